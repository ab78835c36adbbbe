"""api: released values over HTTP and server-sent events, and the live page.

May import: ports, core, dphist, FastAPI; neither state, sources nor sinks: only a ``PublicReader`` comes in.
Start at: ``app.py``, then ``routes.py`` (addresses), ``replica.py`` (what is known), ``answers.py``.
Must stay true: requests are answered from visible releases in memory; nothing secret can reach this process.
"""
