"""Warns of sources whose total holds back some of their streams only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stream_app.config import StreamSettings
from stream_app.config.source import by_source
from stream_app.wiring.checks import Finding


def total_findings(streams: Sequence[StreamSettings]) -> Iterator[Finding]:
    """Yield a warning for each stream that may take its source beyond the total of another stream."""
    groups = by_source(streams)  # several names may mean the same events
    for source, together in {id(group): (source, group) for source, group in groups.items()}.values():
        limited = [one for one in together if one.total and one.total.per == "source"]
        if not limited:
            continue
        first, total = limited[0], limited[0].total
        assert total is not None
        for stream in together:
            if stream.total == total:
                continue
            has = "is missing" if stream.total is None else f"is another one ({stream.total.words})"
            said = (
                f"{has}: {first.name} keeps to {total.words}, and {stream.name} may take {source} beyond it; "
                "give both the same total"
            )
            yield Finding(f"streams.{stream.name}.privacy.total", "warn", said)
