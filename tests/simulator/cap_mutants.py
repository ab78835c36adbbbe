"""Mutants that fill a user's cap wrongly: the simulator and neighbouring logs must catch each of them."""

from __future__ import annotations

from collections.abc import Callable

from stream_app.core.records import Apply, Reply
from stream_app.core.strategy import Strategy
from tests.models.memory import MemoryStore
from tests.simulator.pipeline import Pipeline


class FirstAppliedStore(MemoryStore):
    """A store that counts the records of a user that are applied first."""

    async def apply(self, stream: str, change: Apply) -> Reply:
        """Decide at once which records count."""
        reply = await super().apply(stream, change)
        state = self._streams[stream]
        per_user = Strategy.from_json(state.strategy).declared.privacy.per_user
        for shard in list(state.untallied):
            assert per_user is not None
            state._tally_shard(shard, per_user.max_events)
        return reply


class FirstApplied(Pipeline):
    """The order in which slices are applied decides which of a user's records count."""

    def make_store(self, clock_us: Callable[[], int]) -> MemoryStore:
        """Return the wrong store."""
        return FirstAppliedStore(clock_us)
