"""Decodes the access logs of web servers into the fields of ``core.visits``, batch by batch.

A log has few different agents, paths and referrers. So each derived value is computed once and remembered by
the text from which it is derived. Addresses and agents leave this module as visitors' names only.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from typing import Any, Literal

import numpy as np

from dphist.arrays import Int64Array
from stream_app.core import visits
from stream_app.core.coded import Coded, pairs, used
from stream_app.core.counting.where import AnyOf, Condition
from stream_app.core.incoming import Reason
from stream_app.core.json_objects import bare
from stream_app.sources.combined_lines import split_lines
from stream_app.sources.decode import Decoded, Decoder, NdjsonDecoder, decoded_columns
from stream_app.sources.log_format import combined, guessed, local_times_us, pattern_of
from stream_app.sources.times import Bools, TimeFormat, times_us, why_no_time

WebLogKind = Literal["combined", "log_format", "caddy", "traefik"]
Raw = Mapping[str, Sequence[Any]]  # the parts of each line that are read: bytes, or None
_Names = Callable[[bytes, bytes], str]  # of visitors, by address and agent

_MOST_REMEMBERED, _LONGEST_REMEMBERED = 1 << 14, 300  # of each field: at most 30 MiB, whatever is sent
_LONGEST_LINE = (
    1 << 15
)  # bytes; web servers take about as much of a request, and longer lines would take long
_STATUS = re.compile(r"[1-9][0-9]{2}")
# As nginx and Apache write bytes that are no plain text; those of control characters stay as they are.
_ESCAPED = re.compile(rb"(?:\\x(?:[2-689a-fA-F][0-9a-fA-F]|7[0-9a-eA-E]))+|\\[\"\\]")
_MOST_DAYS = 2  # whose keys are remembered; a log has one at a time, but around midnight


@dataclass(frozen=True, slots=True)
class WebLog:
    """The form of an access log.

    Args: log_format, of the kind of that name; key_of_day, the key of visitors' names for each day since
        1970, or None if it is gone: lines of that day name no visitor. Without it each decoder draws its
        own, for samples that nothing is counted from; counted, the conditions of streams: lines that fulfil
        none of them name no visitor. None among them: all lines count.
    """

    kind: WebLogKind
    log_format: str = ""
    key_of_day: Callable[[int], bytes | None] = field(
        default_factory=lambda: cache(lambda day: secrets.token_bytes(32)), compare=False
    )
    counted: Collection[Condition | None] = (None,)


class WebLogDecoder(Decoder):
    """Decodes lines of an access log. Args: others, names of ``visits.FIELDS`` beside the time.

    Guarantee: the address and the agent are in no column, and no record leaves with its bytes.
    Cost: three microseconds per line if agents, paths and referrers come back; at most 20 milliseconds.
    """

    def __init__(self, form: WebLog, others: Sequence[str] = ()) -> None:
        self._read = _by_json(form) if form.kind in _PATHS else _by_pattern(form)
        self._others = others
        derived = (name for name in others if name in _DERIVED)
        self._derived = {name: _Codes(_of_texts(_DERIVED[name][1])) for name in derived}
        if "browser" in others:
            visits.agent_of("")  # loads a second's worth of patterns, before anything waits for a decoder
        self._names_of = lru_cache(_MOST_DAYS)(partial(_names_by, form.key_of_day))
        conditions = [
            one for one in form.counted if one is not None and self._derived.keys() >= {*one.fields}
        ]
        # None: also of a condition that needs more than the columns that need no visitor.
        self._counted = AnyOf(tuple(conditions)) if len(conditions) == len(form.counted) else None

    def decode(self, records: Sequence[bytes]) -> Decoded:
        if max(map(len, records), default=0) > _LONGEST_LINE:
            records = [record if len(record) <= _LONGEST_LINE else b"" for record in records]  # refused
        kept, raw, refused = self._read(records)
        form = next(name for name in _TIMES if name in raw)
        times = _TIMES[form](raw[form])
        columns = {name: self._column(name, raw, len(kept)) for name in self._derived}
        if visits.VISITOR in self._others:
            at_us, named = times
            if self._counted is not None:
                named = named & self._counted.matches(columns)
            columns[visits.VISITOR] = self._visitors_of(raw, at_us, named)

        def why(row: int) -> Reason:
            written = raw[form][row].decode(errors="replace")
            return why_no_time(written, "iso8601", None) if form == "time_iso8601" else Reason.BAD_TIME

        return decoded_columns(kept, visits.TIME, times, columns, refused, why)

    def _column(self, name: str, raw: Raw, lines: int) -> Coded:
        first, *more = [raw[part] for part in _DERIVED[name][0]]
        return self._derived[name].coded(zip(first, *more, strict=True) if more else first, lines)

    def _visitors_of(self, raw: Raw, at_us: Int64Array, named: Bools) -> Coded:
        """Return the name of each line's visitor on the line's day; empty of lines that are not to be named.

        Without the day's key it is empty, too.
        """
        lines = np.flatnonzero(named)
        addresses, agents = raw["address"], raw["agent"]
        who = Coded.of([(addresses[line], agents[line]) for line in lines.tolist()])
        of_day, codes, places = pairs(at_us[lines] // visits.DAY_US, who)
        several = zip(of_day.tolist(), map(who.values.__getitem__, codes.tolist()), strict=True)
        names_of = {day: self._names_on(day) for day in dict.fromkeys(of_day.tolist())}
        names = [names_of[day](address, agent or b"") for day, (address, agent) in several]
        of_line = np.full(len(named), len(names), np.int64)
        of_line[lines] = places
        return Coded([*names, ""], of_line)

    def _names_on(self, day: int) -> _Names:
        try:
            return self._names_of(day)
        except LookupError:
            return lambda address, agent: ""


def form_of(lines: Sequence[bytes]) -> WebLog | None:
    """Return the form of access log that most of these lines have; None if they are no access log."""
    forms = [WebLog("combined"), WebLog("caddy"), WebLog("traefik")]
    if (own := guessed([line.decode(errors="replace").rstrip("\r") for line in lines])) is not None:
        forms.append(WebLog("log_format", own))
    kept = [len(WebLogDecoder(form).decode(lines).kept) for form in forms]
    best = max(range(len(forms)), key=kept.__getitem__)
    return forms[best] if 2 * kept[best] > len(lines) else None


def has_one_address(form: WebLog, lines: Sequence[bytes]) -> bool:
    """Return whether all of some lines have one address, as behind a proxy whose address the server logs."""
    _, raw, _ = (_by_json if form.kind in _PATHS else _by_pattern)(form)(lines)
    return len(set(raw["address"])) == 1


class _Codes(dict[Any, int]):
    """Codes of what a function makes of parts of lines. Only results for short parts are remembered."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._values: dict[Any, int] = {}  # and their codes
        self._once: list[Any] = []  # the results for long parts: with codes below 0

    def coded(self, parts: Iterable[bytes | tuple[bytes | None, ...] | None], lines: int) -> Coded:
        """Return the results for the parts of several lines."""
        if len(self) > _MOST_REMEMBERED:
            self.clear()
            self._values.clear()
        found = np.fromiter(map(self.__getitem__, parts), np.int64, lines)
        values = [*self._values, *reversed(self._once)]
        self._once.clear()
        codes, places = used(np.where(found < 0, found + len(values), found), len(values))
        return Coded([values[code] for code in codes.tolist()], places)

    def __missing__(self, key: bytes | tuple[bytes | None, ...] | None) -> int:
        parts = key if isinstance(key, tuple) else (key,)
        value = self._function(*parts)
        if sum(map(len, filter(None, parts))) > _LONGEST_REMEMBERED:
            self._once.append(value)
            return -len(self._once)
        code = self[key] = self._values.setdefault(value, len(self._values))
        return code


def _of_texts(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of parts that are decoded first; "-" is read as empty."""
    return lambda *parts: function(*map(_text, parts))


def _names_by(key_of_day: Callable[[int], bytes | None], day: int) -> _Names:
    """Return the names of a day. Raises: LookupError, which no cache keeps, if its key is gone.

    An operator who corrects a clock makes the day count again.
    """
    if (key := key_of_day(day)) is None:
        raise LookupError(day)
    return visits.visitors_by(key)


def _text(part: bytes | None) -> str | None:
    return None if part is None else "" if part == b"-" else part.decode(errors="replace")


def _status(status: str | None) -> int | None:
    return int(status) if status is not None and _STATUS.fullmatch(status) else None


def _bytes(count: str | None) -> int | None:
    return int(count) if count and count.isdecimal() and len(count) < 16 else None


def _of_agent(name: str, agent: str | None) -> Any:
    """Return the facts in an agent's text; in a log without agents all are unknown, and nobody is a bot."""
    if agent is None:
        return False if name == "bot" else None
    return getattr(visits.agent_of(agent, with_browser=name == "browser"), name)


def _of_request(name: str, request: str | None) -> str | None:
    found: str | None = getattr(visits.request_of(request or ""), name)
    return found


# For each field the parts of a line that it is derived from, and how.
_DERIVED: Mapping[str, tuple[tuple[str, ...], Callable[..., Any]]] = {
    "page": (
        ("request", "status"),
        lambda request, status: visits.page_of(visits.request_of(request or ""), _status(status)),
    ),
    "path": (("request",), partial(_of_request, "path")),
    "uri": (("request",), partial(_of_request, "uri")),
    "method": (("request",), partial(_of_request, "method")),
    "status": (("status",), _status),
    "status_class": (("status",), lambda status: visits.status_class(_status(status))),
    "bytes": (("bytes",), _bytes),
    "host": (("host",), lambda host: visits.host_name(host or "")),
    "referrer": (("referrer", "host"), lambda url, host: visits.host_of(url or "", host or None)),
    "device": (("agent",), partial(_of_agent, "device")),
    "browser": (("agent",), partial(_of_agent, "browser")),
    "bot": (("agent",), partial(_of_agent, "bot")),
}


def _written_as(form: TimeFormat, values: Sequence[Any]) -> tuple[Int64Array, Bools]:
    return times_us([value.decode(errors="replace") for value in values], form)


def _seconds(values: Sequence[Any]) -> tuple[Int64Array, Bools]:
    """Return times in seconds; Caddy can be configured to write texts instead."""
    at_us, good = _written_as("s", values)
    if good.all():
        return at_us, good
    texts_us, are_texts = _written_as("iso8601", values)
    return np.where(good, at_us, texts_us), good | are_texts


_TIMES: Mapping[str, Callable[[Sequence[Any]], tuple[Int64Array, Bools]]] = {
    "time_local": local_times_us,
    "time_iso8601": partial(_written_as, "iso8601"),
    "msec": _seconds,
}
_Read = Callable[[Sequence[bytes]], tuple[Sequence[int], Raw, list[tuple[int, Reason]]]]
_PARTS = ("address", "request", "status", "bytes", "referrer", "agent", "host")
_NEEDED = ("address", "method", "uri", "status")  # in a line of JSON


def _by_pattern(form: WebLog) -> _Read:
    pattern_for: Callable[..., re.Pattern[bytes]] = combined
    if form.kind == "log_format":
        pattern_for = partial(pattern_of, form.log_format)
    pattern, plain = pattern_for(), pattern_for(plain=True)
    names = sorted(pattern.groupindex, key=lambda name: pattern.groupindex[name])

    def read(records: Sequence[bytes]) -> tuple[Sequence[int], Raw, list[tuple[int, Reason]]]:
        if b"\r" in b"".join(records):
            records = [record.rstrip(b"\r") for record in records]
        if form.kind != "combined":
            return matched(records)
        is_plain, parts = split_lines(records)
        plain, others = np.flatnonzero(is_plain), np.flatnonzero(~is_plain)
        if len(plain) and not len(others):
            return range(len(records)), {"host": [None] * len(records), **parts}, []
        kept, raw, refused = matched([records[row] for row in others.tolist()])
        rows = np.append(plain, others[list(kept)])
        order = np.argsort(rows)
        places = order.tolist()
        together = {part: [*parts.get(part, [None] * len(plain)), *values] for part, values in raw.items()}
        raw = {part: [values[place] for place in places] for part, values in together.items()}
        return rows[order].tolist(), raw, [(int(others[row]), reason) for row, reason in refused]

    def matched(records: Sequence[bytes]) -> tuple[Sequence[int], Raw, list[tuple[int, Reason]]]:
        written = b"".join(records)
        found = list(map((pattern if b"\\" in written else plain).fullmatch, records))
        kept: Sequence[int] = range(len(records))
        refused: list[tuple[int, Reason]] = []
        if None in found:
            found = [match or pattern.fullmatch(bare(records[row])) for row, match in enumerate(found)]
            kept = [row for row, match in enumerate(found) if match is not None]
            refused = [(row, Reason.UNDECODABLE) for row, match in enumerate(found) if match is None]
        rows = [match.groups() for match in found if match is not None]
        raw: dict[str, Sequence[Any]] = dict.fromkeys(_PARTS, [None] * len(rows))
        raw |= dict(zip(names, zip(*rows, strict=True) if rows else [()] * len(names), strict=True))
        for part in ("request", "uri", "referrer") if b"\\" in written else ():
            if part in names:
                raw[part] = [_unescaped(text) if text and b"\\" in text else text for text in raw[part]]
        if "uri" in raw:
            methods = raw.get("method", [b"GET"] * len(rows))
            raw["request"] = list(map(b"%s %s HTTP/1.1".__mod__, zip(methods, raw["uri"], strict=True)))
        return kept, raw, refused

    return read


def _unescaped(text: bytes) -> bytes:
    r"""Return a text as it was sent, if that is UTF-8.

    >>> _unescaped(rb"/caf\xC3\xA9\x22").decode(), _unescaped(rb"/caf\xE9\x22") == rb"/caf\xE9\x22"
    ('/café"', True)
    """
    sent = _ESCAPED.sub(
        lambda found: (
            found[0][1:] if len(found[0]) == 2 else bytes.fromhex(found[0].replace(b"\\x", b"").decode())
        ),
        text,
    )
    try:
        sent.decode()
    except UnicodeDecodeError:
        return text
    return sent


# Where the parts are in a line of JSON; of a list its first element is read.
_PATHS: Mapping[str, Mapping[str, str]] = {
    "caddy": {
        "msec": "ts",
        "address": "request.client_ip",
        "method": "request.method",
        "uri": "request.uri",
        "status": "status",
        "bytes": "size",
        "referrer": "request.headers.Referer",
        "agent": "request.headers.User-Agent",
        "host": "request.host",
    },
    # Traefik writes headers only if accessLog.fields.headers keeps them.
    "traefik": {
        "time_iso8601": "StartUTC",
        "address": "ClientHost",
        "method": "RequestMethod",
        "uri": "RequestPath",
        "status": "DownstreamStatus",
        "bytes": "DownstreamContentSize",
        "referrer": "request_Referer",
        "agent": "request_User-Agent",
        "host": "RequestHost",
    },
}


# Where a part is in lines of older versions.
_BEFORE = {"request.client_ip": ("request.remote_ip", "request.remote_addr")}


def _by_json(form: WebLog) -> _Read:
    """Return a reader of lines of JSON. Lines that lack a part, such as messages of a start, are refused."""
    paths = _PATHS[form.kind]
    time = next(part for part in _TIMES if part in paths)
    before = {path: _BEFORE.get(path, ()) for path in paths.values()}
    decoder = NdjsonDecoder(None, [*before, *(older for paths in before.values() for older in paths)])

    def read(records: Sequence[bytes]) -> tuple[Sequence[int], Raw, list[tuple[int, Reason]]]:
        decoded = decoder.decode(records)
        raw = {part: list(map(_plain, decoded.columns[path].tolist())) for part, path in paths.items()}
        for part, path in paths.items():
            for older in before[path]:
                found = map(_plain, decoded.columns[older].tolist())
                raw[part] = [new or old for new, old in zip(raw[part], found, strict=True)]
        rows = list(zip(*(raw[part] for part in (time, *_NEEDED)), strict=True))
        good = [row for row, parts in enumerate(rows) if None not in parts]
        raw = {part: [values[row] for row in good] for part, values in raw.items()}
        raw["request"] = list(map(b"%s %s HTTP/1.1".__mod__, zip(raw["method"], raw["uri"], strict=True)))
        if form.kind == "caddy":  # a request without an agent has no such header
            raw["agent"] = [agent or b"" for agent in raw["agent"]]
        lacking = [(row, Reason.MISSING_FIELD) for row, parts in enumerate(rows) if None in parts]
        places = decoded.kept.tolist()
        refused = [*decoded.refused, *((places[row], reason) for row, reason in lacking)]
        return [places[row] for row in good], raw, sorted(refused)

    return read


def _plain(value: Any) -> bytes | None:
    """Return a value of JSON as the bytes of a text; None if it is none."""
    if isinstance(value, list):
        value = value[0] if value else None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).encode(errors="replace") if isinstance(value, str | int | float) else None
