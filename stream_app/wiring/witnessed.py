"""What the witnesses say of a stream's segments, before any of them is opened for writing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from stream_app.config import Settings
from stream_app.core.declaration import Declaration
from stream_app.core.records import WitnessRow
from stream_app.core.segments.names import base_of, number_of
from stream_app.core.strategy import canonical_json
from stream_app.loops.segments import Released
from stream_app.ports import OperatorError, Witness
from stream_app.sinks.witness_file import first_witnessed

if TYPE_CHECKING:
    from stream_app.sinks.witness_topic import WitnessTopic


class Witnesses:
    """Asks the witness of a segment: its file on this machine, or its stream's output topic.

    Args: topics, the open ones, by cluster and name; none of them is asked if there are none. Cost: for each
        topic, reads back to the last rows of its streams; then up to the first row of a segment that the
        store does not know.
    """

    def __init__(self, settings: Settings, topics: Mapping[tuple[str, str], WitnessTopic] = {}) -> None:
        self._settings = settings
        self._topics = topics
        self._newest: dict[tuple[str, str], asyncio.Task[dict[str, int]]] = {}

    async def __call__(self, name: str) -> Released | None:
        """Return what a segment's witness says; None if it has no row. Raises: OSError; OperatorError."""
        output = self._settings.output_of(base_of(name))
        if output is None:
            row = first_witnessed(self._settings.state_dir / "witness", name)
            return None if row is None else Released(_since(row), {})
        place = output.cluster, output.topic
        if (topic := self._topics.get(place)) is None:
            return None
        if place not in self._newest:
            outputs = self._settings.outputs
            streams = {base_of(one.stream) for one in outputs if (one.cluster, one.topic) == place}
            self._newest[place] = asyncio.create_task(topic.newest(streams))
        newest = (await self._newest[place]).get(base_of(name), 0)
        found = await topic.first(name) if number_of(name) <= newest else None
        if found is None:
            return None
        try:
            return Released(_since(found[0].row), read_notes(found[1]))
        except ValueError as failure:
            raise OperatorError(
                f"topic {output.topic}: the settings in the first row of {name} cannot be read ({failure}); "
                "use the release that wrote it, or a newer one"
            ) from None


class Unwritten(Witness):
    """The witness of a segment that can still be taken back: nobody has made its file or topic."""

    async def claim(self, stream: str) -> None:
        """Do nothing: nobody writes."""

    async def resign(self, stream: str) -> None:
        """Do nothing: nobody writes."""

    async def append(self, stream: str, rows: Sequence[WitnessRow]) -> None:
        raise AssertionError(f"{stream} has not begun")

    async def head(self, stream: str) -> None:
        """Return None: there is no row."""

    async def rows(self, stream: str, after_seq: int) -> list[WitnessRow]:
        """Return no row."""
        return []


def notes_text(declared: Mapping[str, Declaration]) -> bytes:
    """Return the settings of segments, as an output topic keeps them."""
    return canonical_json({name: one.plain() for name, one in declared.items()})


def read_notes(text: bytes) -> dict[str, Declaration]:
    """Return what ``notes_text`` wrote; nothing of empty text."""
    return {name: Declaration.of(plain) for name, plain in json.loads(text or b"{}").items()}


def _since(row: bytes) -> str:
    return str(json.loads(row)["start"])
