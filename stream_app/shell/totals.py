"""Warns of sources whose total holds back some of their streams only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from stream_app.config import StreamSettings


def total_warnings(streams: Sequence[StreamSettings]) -> Iterator[str]:
    """Yield one line for each stream that may take its source beyond the total of another stream."""
    by_source: dict[str, list[StreamSettings]] = defaultdict(list)
    for stream in streams:
        by_source[stream.declared.source.name].append(stream)
    for source, together in by_source.items():
        totals = {one.name: one.total for one in together if one.total and one.total.per == "source"}
        if not totals:
            continue
        first, total = next(iter(totals.items()))
        for stream in together:
            if stream.total == total:
                continue
            has = "is missing" if stream.total is None else f"is another one ({stream.total.words})"
            yield (
                f"streams.{stream.name}.privacy.total {has}: {first} keeps to {total.words}, and "
                f"{stream.name} may take {source} beyond it; give both the same total"
            )
