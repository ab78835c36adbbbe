"""Free loopback ports for services that tests and ``make kafka`` start.

The system chooses ports for sockets and for outgoing connections from one range. So a connection could take
such a port while its service is down. The ports given here are below that range. Each process begins its
search at another port, and keeps every port that it got from other processes that ask here, until it ends.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from functools import cache
from itertools import count
from pathlib import Path

_FIRST, _END = 10_000, 30_000  # connections get ports from 32,768 on (Linux) or 49,152 on (elsewhere)
_STRIDE = 7_919  # a prime: processes that start one after another search far apart

_asked = count()


def free_port() -> int:
    """Return a loopback port that is free now, and that no running process of this user got before."""
    for _ in range(_END - _FIRST):
        port = _FIRST + (os.getpid() * _STRIDE + next(_asked)) % (_END - _FIRST)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the services do
            try:
                fcntl.lockf(_taken(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError("no loopback port from 10,000 to 30,000 is free")


@cache
def _taken() -> int:
    """Return the descriptor of an empty file in which a process locks the byte of each port that it got."""
    file = Path(tempfile.gettempdir()) / f"private-counts-ports-{os.getuid()}"
    return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
