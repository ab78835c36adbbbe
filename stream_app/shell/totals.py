"""Warns of sources whose total holds back some of their streams only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stream_app.config import StreamSettings
from stream_app.config.source import by_source


def total_warnings(streams: Sequence[StreamSettings]) -> Iterator[str]:
    """Yield one line for each stream that may take its source beyond the total of another stream."""
    for source, together in by_source(streams).items():
        limited = [one for one in together if one.total and one.total.per == "source"]
        if not limited:
            continue
        first, total = limited[0], limited[0].total
        assert total is not None
        for stream in together:
            if stream.total == total:
                continue
            has = "is missing" if stream.total is None else f"is another one ({stream.total.words})"
            yield (
                f"streams.{stream.name}.privacy.total {has}: {first.name} keeps to {total.words}, and "
                f"{stream.name} may take {source} beyond it; give both the same total"
            )
