"""By which names the service may be asked.

A page on another host can have its name resolved to this machine's address (DNS rebinding); what it then asks
comes from a browser inside, and carries the page's own name in the header Host. So names are refused unless
they are known. An address in Host is safe beyond loopback: no name was resolved to get there.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hosts:
    """Names by which the service may be asked, beside ``localhost`` and loopback addresses.

    Args:
        names: in lower case, without ports.
        addresses: whether any address will do, as it has to where readers come from other machines.
        any_name: whether any name will do, as it may where every reader shows a key or comes from the proxy:
            a page that was rebound has neither.
    """

    names: frozenset[str] = frozenset()
    addresses: bool = False
    any_name: bool = False

    def know(self, host: str) -> bool:
        """Return whether a header Host names this service.

        >>> Hosts().know("127.0.0.1:8088"), Hosts().know("[::1]:8088"), Hosts().know("localhost")
        (True, True, True)
        >>> Hosts().know("evil.example"), Hosts(frozenset({"api"})).know("API:8088"), Hosts().know("10.0.0.7")
        (False, True, False)
        """
        name = _without_port(host).lower().removesuffix(".")
        try:
            address = ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
        except ValueError:
            return self.any_name or name == "localhost" or name in self.names
        return self.addresses or self.any_name or address.is_loopback or name in self.names


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]
