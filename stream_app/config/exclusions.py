"""Settings of one stream that do not go together, each with the key and the line that refuses it.

Each function yields, in the order in which they are refused: a key, whether the stream has what is refused
there, and the reason with the remedy. A later condition may need that an earlier one did not hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from stream_app.config import values
from stream_app.config.document import Section
from stream_app.config.settings import DAY_US, StreamSettings
from stream_app.core.counting.bounding import MOST_AMOUNTS
from stream_app.core.counting.count_rows import FIELDS as ROW_FIELDS
from stream_app.core.declaration import Declaration
from stream_app.core.instants import PERIODS, format_instant
from stream_app.core.visits import FIELDS, VISITOR

Refusals = Iterator[tuple[str, object, str]]

_WITHOUT_DELTA = "take it out, or take privacy.delta out"
MOST_COLUMNS = 1 << 16  # the state between two bins of an approximate stream holds some ten numbers for each


def check_together(section: Section, stream: StreamSettings) -> None:
    """Refuse settings of a stream that do not go together. Raises: ConfigError."""
    declared = stream.declared
    if declared.privacy.delta is not None:
        section.refuse("tree", f"is for streams without privacy.delta, which have a tree: {_WITHOUT_DELTA}")
    for rule in (_web_log, _engine_rows, _windows, _sum, _max_keys, _time_field, _period, _approximate):
        _refuse(section, rule(declared))
    for of_stream in (_discover, _proposing, _edges):
        _refuse(section, of_stream(stream))


def check_visitors(section: Section, declared: Declaration) -> None:
    """Refuse settings by which a visitor's day counts twice, or beyond its caps. Raises: ConfigError."""
    _refuse(section, _visitors(declared))


def _refuse(section: Section, refusals: Refusals) -> None:
    for key, is_there, line in refusals:
        if is_there:
            raise section.error(key, line)


def _web_log(declared: Declaration) -> Refusals:
    """Fields that an access log has not, and visitors whose day is no part of one epoch."""
    if not declared.source.is_of_web_server:
        return
    fields, keys = declared.cell_fields, declared.keys
    unknown = next((field for field in fields if field not in FIELDS), None)
    line = f'"{unknown}" is no field of an access log; it has {", ".join(FIELDS)}'
    of_axes = {"keys.field": keys, "value.field": declared.value, "sum.field": declared.amounts}
    place = next((key for key, axis in of_axes.items() if axis and unknown in axis.columns), "where")
    user = declared.privacy.per_user
    place = "privacy.unit.user" if user and user.field == unknown else place
    yield place, unknown, line
    line = "visitor names people, so it is no key; count: users counts them"
    yield "keys.field", keys and VISITOR in keys.columns, line
    line = "the field browser needs the extra web; install it: pip install 'private-counts[web]'"
    yield "source.format", "browser" in fields and find_spec("ua_parser") is None, line
    if VISITOR in fields:
        yield from _visitors(declared)


def _visitors(declared: Declaration) -> Refusals:
    """A visitor has one name per day of UTC.

    If an event of the day counted in a later epoch, or after the day's key was destroyed, the caps of that
    visitor would begin anew.
    """
    time, why = declared.time, "a visitor's day must lie in one epoch"
    line = "must be drop or dead_letter: a visitor's events count on their own day"
    yield "late", declared.late == "next_bin", line
    line = "is not built for visitors, whose days are UTC's; take it out"
    yield "time.timezone", time.timezone, line
    yield "time.epoch", time.epoch_bins * time.bin_us % DAY_US, f"must be a whole number of days: {why}"
    line = f"must be the start of a day, as 2026-01-01T00:00:00Z: {why}"
    yield "time.first", time.first_us is None or time.first_us % DAY_US, line


def _engine_rows(declared: Declaration) -> Refusals:
    """Settings that need single events, and fields whose values depend on several events."""
    if not declared.source.origins:
        return
    for key, asked in (("where", declared.where), ("value", declared.value), ("sum", declared.amounts)):
        yield key, asked, "is for events; let the engine choose and count, and name keys"
    user, keys, field = declared.privacy.per_user, declared.keys, declared.time.field
    line = f"{field} says nothing about events; name the field of their bin"
    yield "time.field", field in (*ROW_FIELDS, "@timestamp"), line
    yield "keys.discover", declared.finds_keys, "is for events; list the keys"
    used = next((one for one in (keys.columns if keys else ()) if one in ROW_FIELDS), None)
    yield "keys.field", used, f"{used} is a field of every row of counts, and no key"
    by_epoch = user and (user.per is None or user.max_keys is not None or declared.count == "users")
    line = (
        "must have per and max_events only: an engine caps by hour, day or week, not by epoch; for example "
        "{user: user, per: 1d, max_events: 10}"
    )
    yield "privacy.unit", by_epoch, line


def _windows(declared: Declaration) -> Refusals:
    """Windows that do not fit the stream's time or axes."""
    window, time, keys = declared.windows_of, declared.time, declared.keys
    if window is None:
        return
    bins, rest = divmod(window.window_us, time.bin_us)
    key = "value.window" if window is declared.value else "keys.window"
    line = "must be a whole number of bins, and time.epoch a whole number of windows; change one"
    yield key, rest or time.epoch_bins % max(bins, 1), line
    line = "is for keys without a value; with one, write value.mode: window"
    yield "keys.mode", declared.value and keys and keys.mode == "window", line
    yield "keys.total", keys and keys.total, "belongs to trees; take it out: all events are counted anyway"


def _sum(declared: Declaration) -> Refusals:
    """Settings that exclude a sum."""
    if declared.amounts is None:
        return
    windows, epochs = declared.windows_of, declared.tree.epochs
    for key, other in (("value", declared.value), ("keys.mode", windows), ("tree.epochs", epochs)):
        yield key, other, "is not built yet beside sum; give one of them another stream"
    line = "counts one event of each user, and a sum is of events; write max_events: 1 in privacy.unit"
    yield "count", declared.count == "users", line
    many = declared.cells.places > MOST_AMOUNTS and not declared.finds_keys
    most = f"{MOST_AMOUNTS:,} steps over all keys"
    line = f"makes more than {most}, too many for a cap per user; take a larger one"
    yield "sum.unit", declared.privacy.per_user and many, line


def _max_keys(declared: Declaration) -> Refusals:
    """A cap on a user's keys that does not fit the stream's keys."""
    key, most, keys = "privacy.unit.max_keys", declared.privacy.caps.max_keys, declared.keys
    if most is None:
        return
    line = "is for a stream with keys; add keys, or write max_events in place of max_keys and max_per_key"
    yield key, keys is None, line
    known = len(keys.labels) if keys else 0
    line = f"{most}: the stream has {known:,} keys; write at most {known:,}"
    yield key, most > known and not declared.finds_keys, line
    # One script chooses among all that one user has in a bin, and other streams wait for it. Beside found
    # keys a store leaves out what cannot count.
    cells = f"{MOST_AMOUNTS:,} keys, buckets and steps together"
    line = f"is for streams of at most {cells}; write max_events alone, or fewer keys"
    yield key, declared.cells.places > MOST_AMOUNTS and not declared.finds_keys, line


def _time_field(declared: Declaration) -> Refusals:
    """Fields that overlap the time's field."""
    keys, time = declared.keys, declared.time.field
    read = [("keys.fields" if keys.fields else "keys.field", one) for one in keys.columns] if keys else []
    others = {
        "value.field": declared.value,
        "sum.field": declared.amounts,
        "privacy.unit.user": declared.privacy.per_user,
    }
    read += [(key, reader.field) for key, reader in others.items() if reader]
    read += [("where", field) for field in (declared.where.fields if declared.where else ())]
    for key, field in read:
        overlaps = f"{field}.".startswith(f"{time}.") or time.startswith(f"{field}.")
        yield key, overlaps, f'"{field}" is where time.field reads; name another field'


def _period(declared: Declaration) -> Refusals:
    """A unit of a user's hour, day or week that does not fit the stream's time.

    A late event that counts in the next open bin may count in a later period than its own. All of a user's
    events of one day would then change several periods, and the stated epsilon would be too small.
    """
    user, time, key = declared.privacy.per_user, declared.time, "privacy.unit.per"
    if user is None or user.per is None:
        return
    line = f"{user.per}: must be a whole number of bins of {values.format_duration(time.bin_us)}"
    yield key, PERIODS[user.per] % time.bin_us, line
    line = f"{user.per}: time.epoch must be a whole number of them; change one"
    yield key, time.epoch_bins % declared.period_bins, line
    line = f"must be drop or dead_letter: with privacy.unit.per no event may count in another {user.per}"
    yield "late", declared.late == "next_bin", line


def _approximate(declared: Declaration) -> Refusals:
    """Settings that an approximate stream cannot have."""
    if declared.privacy.delta is None:
        return
    keys, user = declared.keys, declared.privacy.per_user
    for key, is_there in (
        ("privacy.unit.per", user and user.per),
        ("value", declared.value),
        ("sum", declared.amounts),
        ("keys.mode", keys and keys.mode == "window"),
        ("keys.total", keys and keys.total),
    ):
        yield key, is_there, f"is not built yet beside privacy.delta: {_WITHOUT_DELTA}"
    many = len(keys.labels) if keys else 0
    line = f"names {many:,} keys; at most {MOST_COLUMNS:,} beside privacy.delta"
    yield "keys", many > MOST_COLUMNS, line


def _discover(stream: StreamSettings) -> Refusals:
    """Settings that a stream that finds keys cannot have."""
    declared, keys, total = stream.declared, stream.declared.keys, stream.total
    if keys is None or keys.discover is None:
        return
    privacy, user = declared.privacy, declared.privacy.per_user
    line = (
        "must be true beside keys.discover, and is if you take it out: it has no column and costs nothing, "
        "because it is the total less all shown keys"
    )
    yield "keys.other", not keys.other, line
    line = "must be below privacy.epsilon, of which it is a part: the rest protects the counts"
    yield "keys.discover.epsilon", keys.discover.epsilon >= privacy.epsilon, line
    line = "is missing: the names of an epoch have a delta; write for example 1e-6"
    yield "privacy.total.delta", total and total.delta is None, line
    line = "must be 1 for the unit event, because an event has one key; take it out"
    yield "keys.discover.per_user", user is None and keys.discover.per_user != 1, line
    line = "must be below privacy.delta, of which it is a part: the counts have the rest"
    yield "keys.discover.delta", privacy.delta and keys.discover.delta >= privacy.delta, line
    line = "must be causal beside keys.discover: nobody knows ahead for which keys to draw noise"
    yield "tree.release", not privacy.delta and declared.tree.release != "causal", line
    values_of = "a found key has a past of counts and sums; measure values of found keys in a second stream"
    neighbours = "the rule for names is for one user more or less; a replaced user costs twice as much"
    per = "the names of an epoch are decided once, and each period would cost them again"
    for key, is_there, why in (
        ("value", declared.value, values_of),
        ("tree.epochs", declared.tree.epochs, "levels over epochs need the keys of all epochs ahead"),
        ("keys.mode", keys.mode == "window", "a window's histogram needs its keys before it begins"),
        ("keys.total", keys.total, "the total is always measured there"),
        ("privacy.neighbours", privacy.neighbours != "add_remove", neighbours),
        ("privacy.unit.per", user and user.per, per),
        ("successor_of", declared.successor_of, "the names that its predecessor found do not go over"),
    ):
        yield key, is_there, f"does not go with keys.discover: {why}; take one of them out"


def _proposing(stream: StreamSettings) -> Refusals:
    """``privacy.propose_caps`` where users are not counted by their numbers of events."""
    declared, key = stream.declared, "privacy.propose_caps"
    privacy, bounds, part = declared.privacy, declared.bounds, declared.privacy.propose_caps
    if part is None:
        return
    no_cap = bounds is None or bounds.caps.max_keys is not None or declared.count == "users"
    line = "needs privacy.unit: {user: FIELD, max_events: 10}; write that, or take it out"
    yield key, no_cap, line
    line = "must be below privacy.epsilon, of which it is a part: counts have the rest"
    yield key, part >= privacy.epsilon, line
    for other, is_there in (
        ("privacy.delta", privacy.delta),
        ("keys.discover", declared.finds_keys),
        ("keys.mode", declared.windows_of),
    ):
        yield other, is_there, f"does not go with {key} yet; take one of them out"
    line = "needs at most 16,384 keys and buckets together; take it out"
    yield key, bounds and bounds.waiting.most, line


def _edges(stream: StreamSettings) -> Refusals:
    """A start that is later than ``time.first``, and edges inside a bin, which would be counted only in part.

    Kafka finds the start by the times of records, which producers set. One record with a time in the future
    would move the start, and so decide whether other records count. Events before ``time.first`` are not
    counted, wherever reading begins.
    """
    start, first_us = stream.source.start, stream.declared.time.first_us
    if isinstance(start, int) and first_us is not None:
        line = "is later than time.first, which decides what counts; move one of them"
        yield "source.start", start > first_us, f"{format_instant(start)} {line}"
    replay, binning = stream.declared.source.replay, stream.declared.time.binning
    edges = {"time.first": first_us, "time.until": stream.until_us}
    if replay is not None:
        edges = {"source.replay.from": replay.from_us, "source.replay.to": replay.to_us}
    for key, edge_us in edges.items():
        if edge_us is not None:
            [bin] = binning.bin_of([edge_us]).tolist()
            near = f"{format_instant(binning.start_us(bin))} or {format_instant(binning.end_us(bin))}"
            line = f"{format_instant(edge_us)} is inside a bin; write {near}"
            yield key, edge_us != binning.start_us(bin), line
