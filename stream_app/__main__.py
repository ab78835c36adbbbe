"""``stream-app``, also as ``python -m stream_app``. Ctrl-C while it loads ends it without a traceback.

Without a terminal, SIGHUP never ends it.
"""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Run the command line."""
    if not sys.stderr.isatty():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the event loop has begun, and logs it
    try:
        from stream_app.shell.commands import main as commands

        commands()
    except KeyboardInterrupt:
        sys.exit(130)  # INTERRUPTED, which may not be loaded yet


if __name__ == "__main__":
    main()
