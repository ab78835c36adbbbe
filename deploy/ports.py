"""Free loopback ports for services that tests and ``make kafka`` start.

The system chooses ports for sockets and for outgoing connections from one range. So a connection could take
such a port while its service is down. The ports given here are below that range. Each process begins its
search at another port.
"""

from __future__ import annotations

import os
import socket
from itertools import count

_FIRST, _END = 10_000, 30_000  # connections get ports from 32,768 on (Linux) or 49,152 on (elsewhere)
_STRIDE = 7_919  # a prime: processes that start one after another search far apart

_asked = count()


def free_port() -> int:
    """Return a loopback port that is free now and that this process did not get before."""
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
