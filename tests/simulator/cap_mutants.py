"""Mutants that choose wrongly which records count under a cap. The simulator must catch each of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from stream_app.core.counting.bounding import Bounds
from stream_app.core.counting.unlisted import Slots
from stream_app.core.records import Reply
from stream_app.core.store_writes import Apply
from stream_app.core.strategy import Strategy
from tests.models.memory import MemoryStore
from tests.simulator.pipeline import Pipeline


class FirstApplied(Pipeline):
    """Which of a user's records count depends on the order in which slices are applied."""

    class store(MemoryStore):
        """A store that counts the records of a user that are applied first."""

        async def apply(self, stream: str, change: Apply) -> Reply:
            """Decide at once which records count, instead of after the bin is sealed."""
            reply = await super().apply(stream, change)
            state = self.streams[stream]
            bounds = Strategy.from_json(state.strategy).declared.bounds
            for shard in list(state.untallied):
                assert bounds is not None
                state._tally_shard(shard, bounds, {})
            return reply


class CountsAgain(Pipeline):
    """A user who returns in a later bin of the epoch counts twice."""

    class store(MemoryStore):
        """A store that forgets, before each bin, which users have counted."""

        async def tally(
            self, stream: str, strategy_hash: str, bounds: Bounds, up_to_bin: int, slots: Slots | None = None
        ) -> Reply:
            """Let a user of an earlier bin count again."""
            if stream in self.streams:
                self.streams[stream].users.clear()
            return await super().tally(stream, strategy_hash, bounds, up_to_bin, slots)


@dataclass
class OneTooMany(Pipeline):
    """Of each user one more key, one more event in a key or one more event counts. Args: cap, which."""

    cap: str = "max_events"

    def __post_init__(self) -> None:
        cap = self.cap

        class Store(MemoryStore):
            async def tally(
                self,
                stream: str,
                strategy_hash: str,
                bounds: Bounds,
                up_to_bin: int,
                slots: Slots | None = None,
            ) -> Reply:
                """Raise one of the caps."""
                caps = replace(bounds.caps, **{cap: getattr(bounds.caps, cap) + 1})
                more = replace(bounds, caps=caps)
                return await super().tally(stream, strategy_hash, more, up_to_bin, slots)

        self.store = Store
