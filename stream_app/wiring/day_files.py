"""Whole days of released values as Parquet files, for programs that do not ask the API (docs/exports.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from stream_app.api.prometheus.metrics import PREFIX, Of, Statistic, name_of
from stream_app.api.prometheus.samples import read
from stream_app.api.schemas import DEFAULT_CONFIDENCE
from stream_app.config import Settings
from stream_app.core.answers.asked_keys import labels_of_keys
from stream_app.core.answers.days import DayPart, whole_days
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.visible import visible_epochs, width_of
from stream_app.core.counting.unlisted import OTHER
from stream_app.core.declaration import Time
from stream_app.core.instants import format_instant
from stream_app.core.meaning import amounts_in_words, meaning_of, meaning_of_amounts, range_in_words
from stream_app.core.records import PublicState
from stream_app.core.releases.release import row_hash
from stream_app.core.segments.names import base_of, number_of
from stream_app.core.segments.strategies import by_hash
from stream_app.core.strategy import Strategy
from stream_app.ports import OperatorError
from stream_app.ports.reader import PublicReader
from stream_app.sinks.day_files import DayFiles, day_files, parquet_of
from stream_app.wiring.exporting import reading

_PARTS: tuple[Statistic, ...] = ("value", "stderr", "lower", "upper")
_CONFIDENCE = {"confidence": str(DEFAULT_CONFIDENCE)}
SAVE_EVERY_DAYS = 30  # an export that was interrupted goes on behind these


async def export_days(settings: Settings, names: Sequence[str], target: str) -> list[str]:
    """Write the whole days that a folder or a bucket lacks; return a line about each stream, and the sum.

    Guarantee: a day's numbers are the best estimates when its last bin was released. They follow from
        the released rows alone, so every export writes the same numbers.
    Args: names, as for ``exporting.export``.
    Raises: OperatorError for an unknown stream, a place that cannot be used, or files of another store.
    """
    with day_files(target) as files:
        before = len(files.listed)
        async with reading(settings, names) as (reader, wanted):
            said = [await add_days(reader, name, files) for name in wanted]
        return [*said, f"{target}: {len(files.listed) - before:,} new files, {len(files.listed):,} in all"]


async def add_days(reader: PublicReader, name: str, files: DayFiles) -> str:
    """Write the whole days of a stream that the files lack; return a line about them."""
    state = await reader.public_state(name)
    if state is None or state.visible_seq == 0:
        return f"{name}: nothing is released yet"
    await _check_same_rows(reader, name, state, files)
    declared = Strategy.from_json(state.strategy).declared
    days, listed = whole_days(declared, state), files.days(name)
    added = [day for day in days if day not in listed]
    view: StreamView | None = None
    for done, day in enumerate(added):
        if done and done % SAVE_EVERY_DAYS == 0:
            files.save()
        tables = dict[str, list[Mapping[str, Any]]]()
        for part in days[day]:
            if view is None or view.epoch != part.epoch.epoch:
                view = StreamView(by_hash(state.texts)[part.epoch.strategy_hash].to_json())
            await _grow(reader, name, view, state, part)
            for table, columns in _tables(view, part):
                tables.setdefault(table, []).append(columns)
        facts = await _facts(reader, name, day, days[day], declared.time)
        for table, parts in tables.items():
            segment = f"@{number_of(name)}" if number_of(name) > 1 else ""
            path = f"{base_of(name)}/{table.removeprefix(PREFIX)}/{day}{segment}.parquet"
            rows = sum(len(columns["start"]) for columns in parts)
            files.add(path, parquet_of(parts, _CONFIDENCE), facts | {"rows": rows})
    if added:
        files.save()
        return f"{name}: {len(added):,} new days, until {added[-1]}"
    return f"{name}: no new day is whole"


async def _check_same_rows(reader: PublicReader, name: str, state: PublicState, files: DayFiles) -> None:
    """Check that the last file of a stream is of the rows of this store. Raises: OperatorError."""
    if (last := files.last(name)) is None:
        return
    seq, found = last["seq"], await reader.rows(name, last["seq"] - 1, 1)
    kept = [row for at, row in found if at == seq]  # none if retention has removed it
    if state.visible_seq < seq or any(row_hash(row) != last["row"] for row in kept):
        raise OperatorError(
            f"{files.target}: {last['path']} is of another store, or of rows that this one has lost; name "
            "another place"
        )


async def _grow(reader: PublicReader, name: str, view: StreamView, state: PublicState, part: DayPart) -> None:
    """Bring a view of one epoch to the state that readers saw when the part's last bin was released."""
    seq = part.last_seq
    text = by_hash(state.texts)[part.epoch.strategy_hash].to_json()
    then = PublicState(text, visible_epochs([part.epoch], seq), seq)
    wanted = view.missing(then)
    rows = (reader.tile_rows(name, *want, width_of(then, want)) for want in wanted)
    view.extend(then, zip(wanted, await asyncio.gather(*rows), strict=True))


def _tables(view: StreamView, part: DayPart) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the columns of each table for some bins of a view's epoch, by the name of their metric.

    A table has either all events or single keys, so that summing a column counts no event twice.
    """
    declared, keys = view.declared, view.strategy.axes.keys
    quantities: tuple[Of, ...] = ("count", "sum") if declared.amounts else ("count",)
    for of in quantities:
        meaning = meaning_of(declared) if of == "count" else meaning_of_amounts(declared)
        words = {
            "private": declared.privacy.private,
            "counted": range_in_words(declared, 1) if of == "count" else amounts_in_words(declared),
            "meaning": meaning.counts,
            "intervals": meaning.intervals,
        }
        yield name_of(of, "bin", "value"), _rows(view, part, of, [[None]], [{}], words)
        if keys is not None:
            labels = [*labels_of_keys(keys, ("start", "end", *_PARTS, *words))]
            places: list[Sequence[int | None]] = [range(len(labels))]
            if keys.discover is not None:  # the total less all keys comes after them
                places.append([len(labels)])
                labels.append({"key": OTHER})
            yield name_of(of, "bin", "value", of_keys=True), _rows(view, part, of, places, labels, words)


def _rows(
    view: StreamView,
    part: DayPart,
    of: Of,
    places: Sequence[Sequence[int | None]],
    labels: Sequence[Mapping[str, str]],
    words: Mapping[str, Any],
) -> dict[str, Any]:
    """Return columns, bin by bin.

    Args: places, of keys, those that are read together in one list; labels, of each key; words, which are
        the same in each row.
    """
    bins = range(part.first, part.stop)
    edges = [view.binning.start_us(bin) for bin in (*bins, part.stop)]
    found = [read(view, of, "bin", together, _PARTS, bins) for together in places if together]
    same = {"stream": view.name, "generation": view.generation}, words
    first, last = ({name: [word] * len(bins) * len(labels) for name, word in one.items()} for one in same)
    return {
        **first,
        **{name: [label[name] for label in labels] * len(bins) for name in labels[0]},
        "start": np.repeat(edges[:-1], len(labels)),
        "end": np.repeat(edges[1:], len(labels)),
        **{name: np.vstack([one[name] for one in found]).T.ravel() for name in _PARTS},
        **last,
    }


async def _facts(
    reader: PublicReader, name: str, day: str, parts: Sequence[DayPart], time: Time
) -> dict[str, Any]:
    """Return the manifest's entry about a day: its bins, and the row of the chain with which it ended."""
    seq = parts[-1].last_seq
    [(_, row)] = await reader.rows(name, seq - 1, 1)
    start, end = (time.binning.start_us(bin) for bin in (parts[0].first, parts[-1].stop))
    return {
        "stream": name,
        "segment": number_of(name),
        "day": day,
        "timezone": time.timezone or "UTC",
        "start": format_instant(start),
        "end": format_instant(end),
        "bins": sum(part.stop - part.first for part in parts),
        "seq": seq,
        "row": row_hash(row),
    }
