"""core: the pure, synchronous decisions of the service.

May import: dphist, numpy and this room; no I/O, clock, chance, Redis, Faust or asyncio.
Start at: ``records.py`` (the words), then ``bins.py``, ``closing.py``, ``release.py``, ``query.py``.
Must stay true: an exact count leaves this room only towards the secret half of the store.
"""
