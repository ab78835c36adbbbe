"""api: released values over HTTP and server-sent events, and the live page.

May import: ports, core, dphist, FastAPI; not state, sources or sinks. Values come from a ``PublicReader``.
Start at: ``app.py``, then ``routes.py`` (paths), ``replica.py`` (values in memory), ``answers/``.
Must stay true: answers come from visible releases in memory; nothing secret can reach this process.
"""
