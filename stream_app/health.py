"""``python -m stream_app.health [PORT...]``: whether the process in this container is alive, for HEALTHCHECK.

It asks ``/healthz`` on loopback, and imports nothing that takes long, because it runs every few seconds. One
answer is enough: a container has one process. Without ports it asks those of the shipped configurations.
"""

from __future__ import annotations

import http.client
import ssl
import sys
from collections.abc import Sequence

PORTS = (9464, 8088, 8089, 9467)  # worker, API, listener of events, watcher of alert rules
_ANSWER_S = 2.0


def main(ports: Sequence[int]) -> int:
    """Return 0 if a port answers that its process is alive; otherwise print why not, and return 1."""
    said = {port: _health(port) for port in ports}
    if "alive" in said.values():
        return 0
    found = [f"{port}: {why}" for port, why in said.items() if why]
    nobody = f"nobody answers on {', '.join(map(str, ports))}; name the port of operator.port or api.port"
    print("; ".join(found) or nobody)
    return 1


def _health(port: int) -> str:
    """Return what a port of loopback says about its process; empty if nobody listens."""
    unchecked = ssl.create_default_context()
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE  # of this container itself
    said = ""
    for connection in (
        http.client.HTTPConnection("127.0.0.1", port, timeout=_ANSWER_S),
        http.client.HTTPSConnection("127.0.0.1", port, timeout=_ANSWER_S, context=unchecked),
    ):
        try:
            connection.request("GET", "/healthz", headers={"Host": "localhost"})
            answer = connection.getresponse()
            if answer.status == http.HTTPStatus.OK:
                return "alive"
            said = answer.read(200).decode(errors="replace").strip()
        except ConnectionRefusedError:
            return said
        except (OSError, http.client.HTTPException) as failure:
            said = said or type(failure).__name__
        finally:
            connection.close()
    return said


if __name__ == "__main__":
    sys.exit(main([int(word) for word in sys.argv[1:]] or PORTS))
