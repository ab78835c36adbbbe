"""What any witness knows about a stream's segments."""

from __future__ import annotations

from dataclasses import dataclass

from stream_app.core.releases.row_values import strategies_in
from stream_app.core.segments.names import generation
from stream_app.core.strategy import Strategy
from stream_app.loops.segments import Witnessed
from stream_app.ports import Witness

MOST = 12  # segments of a stream


@dataclass(frozen=True)
class OneWitness(Witnessed):
    """Asks one witness about all segments."""

    witness: Witness

    async def newest(self, base: str) -> int:
        names = [(number, generation(base, number)) for number in range(1, MOST)]
        found = [number for number, name in names if await self.witness.head(name) is not None]
        return max(found, default=0)

    async def strategy(self, name: str) -> Strategy | None:
        return next(strategies_in(await self.witness.rows(name, 0)), None)


class NoWitness(Witnessed):
    """No witness: nothing has released."""

    async def newest(self, base: str) -> int:
        return 0

    async def strategy(self, name: str) -> None:
        """Return None."""
