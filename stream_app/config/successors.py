"""``successor_of``: a stream that begins where another one ends. Checks both; the first one gets its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stream_app.config.document import Section
from stream_app.config.settings import StreamSettings
from stream_app.core.instants import format_instant


def with_ends(section: Section, streams: Sequence[StreamSettings]) -> tuple[StreamSettings, ...]:
    """Return the streams; each one that has a successor ends where the successor begins. Raises: ConfigError.

    A stream that has ended may be taken out of the configuration, so the one before need not be in it.
    """
    found = {stream.name: stream for stream in streams}
    successors: dict[str, str] = {}
    above = set[str]()
    for stream in streams:
        before = stream.declared.successor_of
        if before is not None:
            own = section.named(stream.name)
            first_us = _first_of(own, stream)
            if (other := successors.setdefault(before, stream.name)) != stream.name:
                raise own.error(
                    "successor_of", f"{before} has the successor {other} already; a stream has one at most"
                )
            if before in found and before not in above:
                raise own.error("successor_of", f"{before}: must be above this stream; move one of them")
            if before in found:
                found[before] = _until(own, found[before], stream, first_us)
        above.add(stream.name)
    return tuple(found[stream.name] for stream in streams)


def _first_of(own: Section, stream: StreamSettings) -> int:
    """Return where a successor begins. Raises: ConfigError."""
    before, first_us = stream.declared.successor_of, stream.declared.time.first_us
    if stream.declared.source.replay is not None:
        raise own.error("successor_of", "is for a live stream; take it out of a replay")
    if first_us is None:
        raise own.error(
            "time.first", f"is missing: with successor_of, write the instant at which {before} ends"
        )
    return first_us


def _until(own: Section, before: StreamSettings, stream: StreamSettings, first_us: int) -> StreamSettings:
    """Return the stream before with its end. Raises: ConfigError if it cannot end there."""
    then, now, first = before.declared, stream.declared, format_instant(first_us)
    if (why := now.cannot_succeed(before.name, then)) is not None:
        raise own.error("successor_of", why)
    if then.time.first_us is not None and first_us <= then.time.first_us:
        raise own.error("time.first", f"{first} is not later than where {before.name} begins; move it")
    if before.until_us not in (None, first_us):
        assert before.until_us is not None
        ends = format_instant(before.until_us)
        raise own.error("time.first", f"{first}: {before.name} ends at {ends} (time.until); write the same")
    [bin] = then.time.binning.bin_of([first_us]).tolist()
    if then.time.binning.start_us(bin) != first_us:
        near = [format_instant(edge(bin)) for edge in (then.time.binning.start_us, then.time.binning.end_us)]
        raise own.error(
            "time.first", f"{first} is inside a bin of {before.name}; write {near[0]} or {near[1]}"
        )
    return replace(before, until_us=first_us)
