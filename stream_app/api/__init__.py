"""api: released values over HTTP and server-sent events, and the live page.

May import: ports, core, dphist, FastAPI; neither state, sources nor sinks: only a ``PublicReader`` comes in.
Start at: ``app.py``, then ``routes.py`` (paths), ``replica.py`` (values in memory), ``answers.py``.
Must stay true: answers come from visible releases in memory; nothing secret can reach this process.
"""
