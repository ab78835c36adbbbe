"""The section ``streams``: the declaration of each stream, how its log is read, and where it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from dphist.tree.design import Release
from dphist.workloads import PREFIX
from stream_app.config import values
from stream_app.config.axes import read_keys, read_sum, read_value
from stream_app.config.boards import read_annotations
from stream_app.config.document import Section
from stream_app.config.exclusions import check_together
from stream_app.config.privacy import read_privacy
from stream_app.config.settings import DAY_US, SourceSettings, StreamSettings
from stream_app.config.source import log_of, read_source, real_place, without_bots
from stream_app.config.where import read_where
from stream_app.core.counting.bins import LatePolicy
from stream_app.core.declaration import Counted, Declaration, Log, Time, TimeFormat, Tree
from stream_app.core.instants import format_instant
from stream_app.core.visits import TIME

MOST_BINS = 2**24  # an epoch of 16 million bins: 16 years of half minutes
_BIN = values.duration_between("100ms", "36500d", "each bin is closed, gets noise and is stored separately")
_LONGEST_TITLE = 80


def read_streams(section: Section, directory: Path, spools: Path) -> tuple[StreamSettings, ...]:
    """Read all streams. Raises: ConfigError, also if two streams read one log in different ways."""
    streams = tuple(_stream(section.named(name), name, directory, spools) for name in section.names())
    streams = with_ends(section, streams)
    first: dict[str, StreamSettings] = {}
    for stream in streams:
        other = first.setdefault(log_of(stream.source), stream)
        if _reading(other) != _reading(stream):
            what = "source, time.field, time.format and time.zone"
            text = f"reads the same log as {other.name}; give both the same {what}"
            raise section.error(stream.name, text)
    return streams


def _reading(stream: StreamSettings) -> tuple[object, ...]:
    """Return the settings that must be equal for two streams to share one pass over a log."""
    source, time = stream.source, stream.declared.time
    if isinstance(source, SourceSettings):
        source = replace(source, file=real_place(source.file, stream.declared.source.format))
    return stream.declared.source, source, time.field, time.format, time.zone


def _stream(section: Section, name: str, directory: Path, spools: Path) -> StreamSettings:
    if "source" not in section.names():
        raise section.error("source", "is missing; name a file, or a topic of Kafka, there")
    log, source = read_source(section.section("source"), directory, spools)
    time, until_us = _time(section.section("time"), log)
    counted = section.take("count", values.one_of("events", "users"), "events")
    count: Counted = "users" if counted == "users" else None
    privacy, accept, total = read_privacy(section.section("privacy"), count, log)
    late: LatePolicy = "drop" if log.is_of_web_server else "next_bin"
    keys = read_keys(section.section("keys"), directory)
    finds = keys is not None and keys.discover is not None and not privacy.delta
    declared = Declaration(
        source=log,
        time=time,
        privacy=privacy,
        tree=_tree(section.section("tree"), "causal" if finds else "anticipating"),
        late=section.take("late", values.one_of("next_bin", "drop", "dead_letter"), late),
        keys=keys,
        value=read_value(section.section("value")),
        where=without_bots(read_where(section.section("where")), log),
        count=count,
        amounts=read_sum(section.section("sum")),
        successor_of=section.take("successor_of", values.name, None),
    )
    where, privacy_where = section.where, section.section("privacy").where
    title = section.take("title", _title, "")
    annotations = read_annotations(section)
    stream = StreamSettings(
        *(name, source, declared, accept, title, total, annotations, until_us),
        _keep_us(section.section("releases"), declared),
        *(where, privacy_where),
    )
    section.finish()
    check_together(section, stream)
    return stream


def _keep_us(section: Section, declared: Declaration) -> int | None:
    """Read how long the releases of an epoch stay in the store after its end; None: for ever."""
    keep_us = section.take("keep", values.positive_duration_us, None)
    if keep_us is not None and declared.source.replay is not None:
        raise section.error("keep", "is for a live stream; a replay keeps all it releases, take keep out")
    if keep_us is not None and declared.tree.epochs is not None:
        raise section.error("keep", "would remove epochs that the nodes of tree.epochs are over; keep one")
    section.finish()
    return keep_us


def _title(value: object) -> str:
    title = values.text(value)
    if len(title) > _LONGEST_TITLE or not title.isprintable() or not title.strip():
        raise ValueError(f"must be one line of at most {_LONGEST_TITLE} characters; everybody may read it")
    return title.strip()


def _time(section: Section, log: Log) -> tuple[Time, int | None]:
    """Return how time decides bins, and where the stream ends."""
    replay = log.replay
    form: TimeFormat
    if log.is_of_web_server:  # its decoder reads them
        field = section.take("field", values.one_of(TIME), TIME)
        form = section.take("format", values.one_of("us"), "us")
    else:
        field = section.take("field", values.text)
        form = _time_format(section, log, field)
    local = section.take("zone", values.timezone, None)
    if local is not None and form != "iso8601":
        raise section.error("zone", "is for times that are texts; write format: iso8601, or take zone out")
    bin_us = section.take("bin", _BIN)
    zone = section.take("timezone", values.timezone, None)
    grace_us = section.take("grace", values.duration_us, 0 if replay else None)
    epoch_us = section.take("epoch", values.positive_duration_us)
    first_us = section.take("first", values.instant_us, None)
    max_ahead_us = section.take("max_ahead", values.duration_us, bin_us)
    until_us = section.take("until", values.instant_us, None)
    section.finish()
    if zone is not None and bin_us != DAY_US:
        raise section.error("timezone", "belongs to calendar days; write bin: 1d, or take timezone out")
    if grace_us is None:
        raise section.error("grace", "is missing; say how long to wait for late events, for example 5m")
    epoch_bins, rest = divmod(epoch_us, bin_us)
    if rest or not 1 <= epoch_bins <= MOST_BINS:
        whole = values.format_duration(bin_us)
        raise section.error("epoch", f"must be a whole number of bins of {whole}, at most {MOST_BINS}")
    if replay is not None and first_us is not None:
        raise section.error("first", "is for a live stream; a replay starts at replay.from, take one out")
    if replay is not None and until_us is not None:
        raise section.error("until", "is for a live stream; a replay ends at replay.to, take one out")
    if until_us is not None and first_us is not None and until_us <= first_us:
        raise section.error("until", "must be later than time.first; move one of them")
    time = Time(
        field=field,
        format=form,
        bin_us=bin_us,
        timezone=zone,
        grace_us=grace_us,
        epoch_bins=epoch_bins,
        first_us=replay.from_us if replay else first_us,
        # The next bin to close lags the clock by the grace, so a punctual event is that far ahead of it.
        max_ahead_bins=-(-(grace_us + max_ahead_us) // bin_us),
        zone=msgspec.UNSET if local is None else local,
    )
    return time, until_us


def _time_format(section: Section, log: Log, field: str) -> TimeFormat:
    if log.topic is not None and field == "@timestamp":
        return section.take("format", values.one_of("ms"), "ms")
    return section.take("format", values.one_of("s", "ms", "us", "ns", "iso8601"))


def _tree(section: Section, release: Release) -> Tree:
    """Read the tree. Args: release, the default: for found keys no noise can be drawn ahead."""
    tree = Tree(
        questions=section.take("workload", values.workload, PREFIX).declared(),
        release=section.take("release", values.one_of("anticipating", "causal"), release),
        branching=section.take("branching", values.branching, None),
        shares=section.take("shares", values.shares, None),
        epochs=section.take("epochs", values.epochs, None),
    )
    section.finish()
    if isinstance(tree.shares, tuple):
        if tree.branching is None:
            raise section.error("shares", "need branching beside them: one share per level")
        if len(tree.shares) != len(tree.branching):
            raise section.error("shares", "must be one for each level in branching; add or remove some")
        if sum(tree.shares) > 1:
            raise section.error("shares", "add up to more than 1; lower them: their sum is what is spent")
    return tree


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
