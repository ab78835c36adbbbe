"""How a process of the service ends: with a status, and with a line where it could not go on."""

from __future__ import annotations

import sys
from collections.abc import Callable

from stream_app.ports import OperatorError

COMPLETE = 0  # nothing is left to do, or somebody asked for the end
CRASHED = 1  # an error that nobody expected: a supervisor starts the process again
REFUSED = 2  # only the operator can help: starting it again changes nothing


def exit_status(work: Callable[[], int | None], name: str = "stream-app: ") -> int:
    """Do the work of a process; return its exit status, once the line that explains it is written.

    An error that nobody expected goes on: the interpreter logs its type and place, and exits with status 1.

    Args: name, what the operator's line begins with.
    """
    try:
        return work() or COMPLETE
    except OperatorError as refusal:
        print(f"{name}{refusal}", file=sys.stderr, flush=True)
        return REFUSED
    except KeyboardInterrupt:
        return COMPLETE
