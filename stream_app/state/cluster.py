"""A client of a Redis Cluster: each command goes to the node that has its key's slot.

A stream's keys have one tag, so they lie in one slot, and each script runs on one node. Commands for several
streams are sent to all their nodes at once. Nothing is repeated: if a slot has moved, the caller gets an
error, as for a changed server, and its next command goes to the new node.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from redis import exceptions
from redis.crc import key_slot

from stream_app.state.round_trips import Command, RoundTrips

_SLOTS = 16_384
_WITHOUT_KEY = {"PING", "WAIT"}
# The slot moved, is moving, or its node is down: nothing was changed, and the map of slots may be outdated.
_ELSEWHERE = (
    exceptions.MovedError,
    exceptions.AskError,
    exceptions.TryAgainError,
    exceptions.ClusterDownError,
    exceptions.ConnectionError,
    exceptions.TimeoutError,
)


class ClusterRoundTrips(RoundTrips):
    """A client of all nodes of a cluster.

    A command without a key goes where the command before it goes.
    Args: seeds, addresses of some nodes, ``host:port``; connect, returns a client of one node.
    """

    def __init__(self, seeds: Sequence[str], connect: Callable[[str], RoundTrips]) -> None:
        self._seeds = list(seeds)
        self._known = list(seeds)  # who is asked for the map, in this order
        self._connect = connect
        self._nodes: dict[str, RoundTrips] = {}
        self._firsts: list[int] = []  # the first slot of each range, rising, and the range's node
        self._owners: list[str] = []
        self._learning = asyncio.Lock()

    @property
    def place(self) -> str:
        return f"the cluster of {', '.join(self._seeds)}"

    @property
    def connections(self) -> int:
        return sum(node.connections for node in self._nodes.values())

    @property
    def servers_met(self) -> int:
        return sum(node.servers_met for node in self._nodes.values())

    async def aclose(self) -> None:
        await asyncio.gather(*(node.aclose() for node in self._nodes.values()))

    async def primaries(self) -> Sequence[RoundTrips]:
        await self._learned()
        return [self._node(owner) for owner in dict.fromkeys(self._owners)]

    async def ask(self, commands: Sequence[Command], atomic: bool = False) -> list[Any]:
        await self._learned()
        places: dict[str, list[int]] = defaultdict(list)
        owner = self._owners[0]
        for place, command in enumerate(commands):
            if command[0] not in _WITHOUT_KEY:
                owner = self._owner(key_slot(_key(command)))
            places[owner].append(place)
        try:
            answers = await asyncio.gather(
                *(
                    self._node(owner).ask([commands[place] for place in own], atomic)
                    for owner, own in places.items()
                )
            )
        except _ELSEWHERE as failure:
            self._forget()
            if isinstance(failure, exceptions.ResponseError):
                raise exceptions.ConnectionError(f"a slot of {self.place} moves or is down") from failure
            raise
        replies = [None] * len(commands)
        for own, of_node in zip(places.values(), answers, strict=True):
            for place, reply in zip(own, of_node, strict=True):
                replies[place] = reply
        return replies

    def _owner(self, slot: int) -> str:
        return self._owners[bisect_right(self._firsts, slot) - 1]

    def _node(self, address: str) -> RoundTrips:
        if address not in self._nodes:
            self._nodes[address] = self._connect(address)
        return self._nodes[address]

    def _forget(self) -> None:
        """Forget the map of slots, and ask another node first: a node that is cut off has an old map."""
        self._firsts, self._owners = [], []
        self._known.append(self._known.pop(0))

    async def _learned(self) -> None:
        """Learn the map of slots unless it is known. Raises: redis' ConnectionError if no node answers."""
        async with self._learning:
            failures = []
            for seed in list(self._known):
                if self._owners:
                    return
                try:
                    self._take(seed, await self._node(seed).ask([("CLUSTER", "SLOTS")]))
                except (exceptions.RedisError, OSError) as failure:
                    failures.append(failure)
            if not self._owners:
                raise failures[0]

    def _take(self, asked: str, replies: list[Any]) -> None:
        """Take over a map of slots. Raises: redis' ConnectionError unless each slot has a node."""
        ranges = sorted((int(first), int(last), primary) for first, last, primary, *_ in replies[0])
        reached = 0
        for first, last, _ in ranges:
            if first != reached:
                break
            reached = last + 1
        if reached != _SLOTS:
            raise exceptions.ConnectionError(f"slot {reached} of {self.place} has no node")
        asked_host = asked.rpartition(":")[0]
        with suppress(ValueError):
            self._owners = [_address(primary, asked_host) for _, _, primary in ranges]
            self._firsts = [first for first, _, _ in ranges]
            self._known += [owner for owner in self._owners if owner not in self._known]


def _key(command: Command) -> bytes:
    """Return a command's first key."""
    key = command[3] if command[0] in ("EVAL", "EVALSHA") else command[1]
    return key if isinstance(key, bytes) else str(key).encode()


def _address(primary: Sequence[Any], asked_host: str) -> str:
    """Return a node's ``host:port``. A node that does not know its own address leaves it out."""
    host = (primary[0] or b"").decode()
    if ":" in host:
        host = f"[{host}]"
    return f"{host if host not in ('', '?') else asked_host}:{int(primary[1])}"
