"""core: the pure, synchronous decisions of the service.

May import: dphist, numpy and this package; no I/O, clock, random numbers, Redis, Faust or asyncio.
Start at: ``records.py`` and ``incoming.py`` (the words), then ``bins.py``, ``release.py``, ``query.py``.
Must stay true: an exact count leaves this package only for the secret keys of the store.
"""
