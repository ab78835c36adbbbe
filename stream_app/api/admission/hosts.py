"""Check the header Host against known names, to prevent DNS rebinding.

A page on another host can have its name resolved to this machine's address. Its requests then come from a
browser inside the network, with the page's own name in the header Host. So unknown names are refused. An
address in Host is safe, because no name was resolved.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Hosts:
    """The accepted names in the header Host, besides ``localhost`` and loopback addresses.

    Args:
        names: in lower case, without ports.
        addresses: whether to accept any address, as is necessary for readers on other machines.
        any_name: whether to accept any name. This is safe if every reader has a key or comes from the proxy,
            since a page that uses DNS rebinding has neither.
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
        name, address = _read(host)
        if address is None:
            return self.any_name or name == "localhost" or name in self.names
        return self.addresses or self.any_name or address.is_loopback or name in self.names


@lru_cache(maxsize=64)  # nearly all readers write the same one
def _read(host: str) -> tuple[str, ipaddress.IPv4Address | ipaddress.IPv6Address | None]:
    """Return the name in a header Host, and the address that it is, or None."""
    name = _without_port(host).lower().removesuffix(".")
    try:
        return name, ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return name, None


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]
