"""shell: the command line, and the processes that it runs and watches.

May import: everything below it; nothing imports it.
Start at: ``commands.py`` (every command), then ``supervision.py`` (worker and API as processes).
Must stay true: an error is one line and status 2; the API's process never gets the worker's secrets.
"""
