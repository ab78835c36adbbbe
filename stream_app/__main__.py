"""``stream-app``, also as ``python -m stream_app``. Ctrl-C while it loads ends it without a traceback."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    try:
        from stream_app.shell.commands import main as commands

        commands()
    except KeyboardInterrupt:
        sys.exit(130)  # INTERRUPTED, which may not be loaded yet


if __name__ == "__main__":
    main()
