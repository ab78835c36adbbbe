"""``python -m stream_app`` is ``stream-app``."""

from stream_app.shell.commands import main

if __name__ == "__main__":
    main()
