"""Loopback ports for services that are started here, by tests and by ``make kafka``.

The port that a socket gets for the asking lies where connections get theirs: while its service is down,
any connection may take it. These lie below, and two processes begin their search at different places.
"""

from __future__ import annotations

import os
import socket
from itertools import count

_FIRST, _END = 10_000, 30_000  # connections get theirs from 32,768 on (Linux) or 49,152 on (elsewhere)
_STRIDE = 7_919  # a prime: processes begun one after another begin their search far apart

_asked = count()


def free_port() -> int:
    """Return a loopback port that is free now and that this process was not told before."""
    for _ in range(_END - _FIRST):
        port = _FIRST + (os.getpid() * _STRIDE + next(_asked)) % (_END - _FIRST)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the services do
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError("no loopback port from 10,000 to 30,000 is free")
