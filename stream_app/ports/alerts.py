"""What the watcher of alert rules needs from the world: a store of its decisions, and targets to notify."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class AlertStore(Protocol):
    """The states of rules, and the transitions to send. Only visible releases and the clock decide them."""

    async def load(self) -> tuple[dict[str, bytes], dict[str, int]]:
        """Return the states by rule, and by stream the last release that was evaluated."""

    async def commit(
        self,
        stream: str,
        before: int | None,
        seq: int,
        states: Mapping[str, bytes],
        transitions: Sequence[Mapping[str, Any]],
    ) -> bool:
        """Store the decisions up to ``seq``; return False, without change, if ``before`` is not the last."""

    async def transitions(self, after: str, limit: int) -> list[tuple[str, bytes]]:
        """Return the transitions after a place in the outbox, in order, each with its place."""

    async def register(self, target: str) -> str:
        """Return the place up to which a target was notified; a new target starts at the current end."""

    async def acknowledge(self, target: str, place: str) -> None:
        """Note that a target was notified of everything up to a place."""


class NotDelivered(Exception):
    """A target did not accept a transition; try again later. The message contains no secret."""


class AlertTarget(Protocol):
    """A receiver of alert transitions."""

    name: str

    async def send(self, transition: Mapping[str, Any]) -> None:
        """Send one transition. Raises: NotDelivered."""

    async def remind(self, firing: Sequence[Mapping[str, Any]]) -> None:
        """Send firing alerts again, if the target would otherwise drop them. Raises: NotDelivered."""
        return  # most targets remember firing alerts, so there is nothing to send
