"""The section ``streams``: the declaration of each stream, and how its log is read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

import msgspec

from dphist.caps import Caps
from dphist.workloads import PREFIX
from stream_app.config import values
from stream_app.config.annotations import read_annotations
from stream_app.config.approximate import check_approximate, read_delta
from stream_app.config.axes import check_axes, read_keys, read_sum, read_value
from stream_app.config.discovering import check_discover
from stream_app.config.document import Section
from stream_app.config.engine_rows import check_engine_rows, check_signed
from stream_app.config.settings import DAY_US, SourceSettings, StreamSettings
from stream_app.config.source import log_of, read_source
from stream_app.config.successors import with_ends
from stream_app.config.web_logs import MOST_OF_VISITOR, check_web_log, without_bots
from stream_app.config.where import read_where
from stream_app.core.budget import Total
from stream_app.core.counting.bins import LatePolicy
from stream_app.core.counting.bounding import Period, PerUser
from stream_app.core.declaration import Counted, Declaration, Log, Privacy, Time, TimeFormat, Tree
from stream_app.core.instants import format_instant
from stream_app.core.ledger import ACCEPTED, LARGEST_PRIVATE_EPSILON
from stream_app.core.periods import PERIODS
from stream_app.core.visits import TIME, VISITOR

MOST_BINS = 2**24  # an epoch of 16 million bins: 16 years of half minutes
_BIN = values.duration_between("100ms", "36500d", "each bin is closed, gets noise and is stored separately")
_LONGEST_TITLE = 80
_MOST_OF_USER = 10_000
_MAX_EVENTS = values.whole(1, _MOST_OF_USER, more=": a user's events of an epoch that count")
_MAX_KEYS = values.whole(1, 1_000, more=": the keys in which a user's events count")


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
        source = replace(source, file=source.file.resolve())
    return stream.declared.source, source, time.field, time.format, time.zone


def _stream(section: Section, name: str, directory: Path, spools: Path) -> StreamSettings:
    log, source = read_source(section.section("source"), directory, spools)
    time, until_us = _time(section.section("time"), log)
    counted = section.take("count", values.one_of("events", "users"), "events")
    count: Counted = "users" if counted == "users" else None
    privacy, accept, total = _privacy(section.section("privacy"), count, log)
    late: LatePolicy = "drop" if log.is_of_web_server else "next_bin"
    declared = Declaration(
        source=log,
        time=time,
        privacy=privacy,
        tree=_tree(section.section("tree")),
        late=section.take("late", values.one_of("next_bin", "drop", "dead_letter"), late),
        keys=read_keys(section.section("keys"), directory),
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
    check_web_log(section, declared)
    check_engine_rows(section, declared)
    check_axes(section, stream)
    _check_period(section, declared)
    check_approximate(section, declared)
    check_discover(section, stream)
    _check_proposing(section, declared)
    _check_start(section, stream)
    _check_edges(section, stream)
    return stream


def _check_period(section: Section, declared: Declaration) -> None:
    """Refuse a unit of a user's hour, day or week that does not fit the stream's time. Raises: ConfigError.

    A late event that counts in the next open bin may count in a later period than its own. All of a user's
    events of one day would then change several periods, and the stated epsilon would be too small.
    """
    user, time = declared.privacy.per_user, declared.time
    if user is None or user.per is None:
        return
    key, length_us = "privacy.unit.per", PERIODS[user.per]
    if length_us % time.bin_us:
        whole = values.format_duration(time.bin_us)
        raise section.error(key, f"{user.per}: must be a whole number of bins of {whole}")
    if time.epoch_bins % declared.period_bins:
        raise section.error(key, f"{user.per}: time.epoch must be a whole number of them; change one")
    if declared.late == "next_bin":
        text = f"must be drop or dead_letter: with privacy.unit.per no event may count in another {user.per}"
        raise section.error("late", text)


def _check_proposing(section: Section, declared: Declaration) -> None:
    """Refuse ``privacy.propose_caps`` where users are not counted by their numbers of events."""
    privacy, bounds, key = declared.privacy, declared.bounds, "privacy.propose_caps"
    if privacy.propose_caps is None:
        return
    if bounds is None or bounds.caps.max_keys is not None or declared.count == "users":
        raise section.error(
            key, "needs privacy.unit: {user: FIELD, max_events: 10}; write that, or take it out"
        )
    if privacy.propose_caps >= privacy.epsilon:
        raise section.error(key, "must be below privacy.epsilon, of which it is a part: counts have the rest")
    for other, is_there in (
        ("privacy.delta", privacy.delta),
        ("keys.discover", declared.finds_keys),
        ("keys.mode", declared.windows_of),
    ):
        if is_there:
            raise section.error(other, f"does not go with {key} yet; take one of them out")
    if bounds.waiting.most:
        raise section.error(key, "needs at most 16,384 keys and buckets together; take it out")


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


def _check_start(section: Section, stream: StreamSettings) -> None:
    """Refuse a ``source.start`` later than ``time.first``.

    Kafka finds the start by the times of records, which producers set. One record with a time in the future
    would move the start, and so decide whether other records count. Events before ``time.first`` are not
    counted, wherever reading begins.
    """
    start, first_us = stream.source.start, stream.declared.time.first_us
    if isinstance(start, int) and first_us is not None and start > first_us:
        text = (
            f"{format_instant(start)} is later than time.first, which decides what counts; move one of them"
        )
        raise section.error("source.start", text)


def _check_edges(section: Section, stream: StreamSettings) -> None:
    """Refuse a start or an end inside a bin, because the bin would be counted only in part."""
    declared = stream.declared
    replay, binning = declared.source.replay, declared.time.binning
    edges = {"time.first": declared.time.first_us, "time.until": stream.until_us}
    if replay is not None:
        edges = {"source.replay.from": replay.from_us, "source.replay.to": replay.to_us}
    for key, edge_us in edges.items():
        if edge_us is None:
            continue
        [bin] = binning.bin_of([edge_us]).tolist()
        if edge_us != (start_us := binning.start_us(bin)):
            near = f"{format_instant(start_us)} or {format_instant(binning.end_us(bin))}"
            raise section.error(key, f"{format_instant(edge_us)} is inside a bin; write {near}")


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


def _privacy(section: Section, count: Counted, log: Log) -> tuple[Privacy, str | None, Total | None]:
    """Return the guarantee, the text that accepts a second measurement, and the total.

    Args: count, what is counted; log, an access log has another default unit.
    """
    epsilon = section.take("epsilon", values.positive_fraction)
    privacy = Privacy(
        epsilon=epsilon,
        unit=_unit(section, count, log),
        neighbours=section.take("neighbours", values.one_of("add_remove", "substitute"), "add_remove"),
        private=not section.take("not_private", values.flag, False),
        delta=read_delta(section),
        propose_caps=section.take("propose_caps", values.positive_fraction, None),
    )
    accept = section.take("accept", values.one_of(ACCEPTED), None)
    check_signed(section, privacy, log)
    total = _total(section, privacy)
    section.finish()
    if privacy.private and epsilon > LARGEST_PRIVATE_EPSILON:
        number = epsilon if epsilon.denominator == 1 else f"{float(epsilon):g}"
        raise section.error(
            "epsilon",
            f"{number} protects nobody; use at most {LARGEST_PRIVATE_EPSILON}, "
            "or say not_private: true and every answer will say so too",
        )
    if not privacy.private and epsilon <= LARGEST_PRIVATE_EPSILON:
        raise section.error("not_private", f"is for epsilon above {LARGEST_PRIVATE_EPSILON}; take it out")
    return privacy, accept, total


def _total(privacy: Section, own: Privacy) -> Total | None:
    """Read ``privacy.total``, the largest cost of all epochs. Args: own, the cost of one epoch."""
    section = privacy.section("total")
    if not section.names():
        return None
    total = Total(
        epsilon=section.take("epsilon", values.positive_fraction),
        delta=section.take("delta", values.positive_fraction, None),
        per=section.take("per", values.one_of("source", "stream"), "source"),
    )
    section.finish()
    if total.delta is not None and total.delta >= 1:
        raise section.error("delta", "must be below 1, for example 1e-6")
    if total.delta is None and own.delta is not None:
        raise section.error("delta", "is missing: each epoch has a delta; write for example 1e-6")
    if total.epsilon > LARGEST_PRIVATE_EPSILON:
        raise section.error("epsilon", f"protects nobody above {LARGEST_PRIVATE_EPSILON}; lower it")
    return total


def _unit(privacy: Section, count: Counted, log: Log) -> Literal["event"] | PerUser:
    """Read ``privacy.unit``: ``event``, or a mapping that names the user.

    An access log has the unit of a visitor's day if nothing is written.
    """
    is_web = log.is_of_web_server
    if not privacy.holds_keys("unit") and not (is_web and "unit" not in privacy.names()):
        event: Literal["event"] = privacy.take("unit", _event, "event")
        if count == "users":
            text = "must name the field of the user for count: users, for example unit: {user: user.id}"
            raise privacy.error("unit", text)
        return event
    section = privacy.section("unit")
    field = section.take("user", values.text, VISITOR) if is_web else section.take("user", values.text)
    if is_web and not section.names() and count is None:
        caps = Caps(MOST_OF_VISITOR)
    else:
        caps = _caps(section) if count is None else _one_event(section)
    per = section.take("per", values.one_of(*get_args(Period)), None)
    if per is not None and count == "users":
        text = "is for count: events; write count: events and max_events: 1 to count each user once in it"
        raise section.error("per", text)
    section.finish()
    return PerUser(field, caps.max_events, caps.max_keys, caps.max_per_key, per)


def _one_event(section: Section) -> Caps:
    """Return the cap of a count of users. Raises: ConfigError if another cap is written."""
    for key in ("max_events", "max_keys", "max_per_key"):
        section.refuse(key, "is for count: events; take it out, a user counts once per epoch")
    return Caps(max_events=1)


def _caps(section: Section) -> Caps:
    keys = section.take("max_keys", _MAX_KEYS, None)
    of_key = section.take("max_per_key", _MAX_EVENTS, None)
    if keys is None and of_key is None:
        return Caps(section.take("max_events", _MAX_EVENTS))
    events = section.take("max_events", _MAX_EVENTS, None)
    if keys is None:
        raise section.error("max_per_key", "needs max_keys beside it: in how many keys a user's events count")
    if of_key is None:
        raise section.error(
            "max_keys", "needs max_per_key beside it: how many of a user's events count in a key"
        )
    caps = Caps(events, keys, of_key)
    if caps.l1 > _MOST_OF_USER:
        text = f"times max_per_key is {caps.l1:,} events of a user; at most {_MOST_OF_USER:,}"
        raise section.error("max_keys", text)
    return caps


def _event(value: object) -> Literal["event"]:
    if value != "event":
        raise ValueError("must be event, or {user: the field that names the user, max_events: 4}")
    return "event"


def _tree(section: Section) -> Tree:
    tree = Tree(
        questions=section.take("workload", values.workload, PREFIX).declared(),
        release=section.take("release", values.one_of("anticipating", "causal"), "anticipating"),
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
