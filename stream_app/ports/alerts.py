"""The interfaces of the watcher of alert rules: a store of its decisions, and targets to notify."""

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

    async def begin(self, former: Mapping[str, str]) -> None:
        """Take over the places that older versions kept, and forget refusals of targets that are gone.

        The targets of one host once shared a place: each goes on there, unless one of them has its own.
        Args: former, per target that is notified now, the name of its place in older versions, or "".
        """

    async def register(self, target: str) -> str:
        """Return the place up to which a target was notified; a new target starts at the current end."""

    async def acknowledge(self, target: str, place: str, rule: str = "", refusal: str = "") -> None:
        """Note that a target was notified of everything up to a place.

        Args: rule, that of the last notification; refusal, why the target refused this notification, for
            readers; empty if the target accepted it.
        """


class NotDelivered(Exception):
    """A target did not accept a transition; try again later. The message contains no secret."""


class Refused(Exception):
    """A target refused a transition, and would refuse it again.

    Args: status, of its answer; said, the rest of its answer, for the operator's eyes only.
    """

    def __init__(self, status: int, said: str = "") -> None:
        super().__init__(f"status {status}")
        self.said = "".join(letter for letter in said[:200] if letter.isprintable())


class AlertTarget(Protocol):
    """A receiver of alert transitions.

    Args: name, its place in the configuration; shown, the same with its host, for log lines; identity, under
        which the store keeps its place in the list of transitions; former, the same in older versions.
    """

    name: str
    shown: str
    identity: str
    former: str

    async def send(self, transition: Mapping[str, Any]) -> str:
        """Send one transition; return the target's answer, or "" if it gets no such transitions.

        Raises: NotDelivered, Refused.
        """

    async def remind(self, firing: Sequence[Mapping[str, Any]]) -> None:
        """Send firing alerts again, if the target would drop them. Raises: as ``send``."""
        return  # most targets remember firing alerts, so there is nothing to send
