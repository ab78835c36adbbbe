"""receiving: the listener for events, which writes them into spools and sees nothing else.

May import: ports, durable, spool, and the limits on connections of ``api.admission``. It reads no store, no
released value and no ``state.dir``.
Start at: ``spool_writer.py``, then ``listener.py``.
Must stay true: a reply says 200 only if all of its records, and the key under which a retry is recognised,
are on the disk.
"""
