"""How a process of the service ends: its exit status, and an error line if it could not continue."""

from __future__ import annotations

import sys
from collections.abc import Callable

from stream_app.ports import OperatorError

COMPLETE = 0  # no work is left, or the end was requested
CRASHED = 1  # an unexpected error: a supervisor restarts the process
REFUSED = 2  # the operator must correct something; a restart does not help


def exit_status(work: Callable[[], int | None], name: str = "stream-app: ") -> int:
    """Do the work of a process and return its exit status; log a line that explains an operator's error.

    An unexpected error is raised: the interpreter then logs its type and place and exits with status 1.

    Args: name, the prefix of the operator's line.
    """
    try:
        return work() or COMPLETE
    except OperatorError as refusal:
        print(f"{name}{refusal}", file=sys.stderr, flush=True)
        return REFUSED
    except KeyboardInterrupt:
        return COMPLETE
