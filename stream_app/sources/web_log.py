"""Decodes the access logs of web servers into the fields of ``core.visits``, batch by batch.

A log has few different agents, paths and referrers. So each derived value is computed once and remembered by
what it is derived from. Addresses and agents leave this module as visitors' names only.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Literal

import msgspec
import numpy as np

from dphist.arrays import Int64Array
from stream_app.core import visits
from stream_app.core.incoming import Reason
from stream_app.core.json_objects import UNDECODABLE, bare, mended
from stream_app.sources.decode import Decoded, Decoder, decoded_columns
from stream_app.sources.log_format import combined, pattern_of
from stream_app.sources.times import Bools, TimeFormat, times_us, why_no_time
from stream_app.sources.web_times import local_times_us

WebLogKind = Literal["combined", "log_format", "caddy", "traefik"]
Raw = Mapping[str, Sequence[Any]]  # the parts of each line that are read: texts, their bytes, or None

_MOST_REMEMBERED, _LONGEST_REMEMBERED = 1 << 16, 1 << 10
_NO_DAY = -(1 << 40)
_MOST_DAYS = 2  # whose visitors are remembered; a log has one at a time, but around midnight


@dataclass(frozen=True, slots=True)
class WebLog:
    """The form of an access log.

    Args: log_format, of the kind of that name; key_of_day, the key of visitors' names for each day since
        1970. Without it each decoder draws its own, for samples that nothing is counted from.
    """

    kind: WebLogKind
    log_format: str = ""
    key_of_day: Callable[[int], bytes] = field(
        default_factory=lambda: cache(lambda day: secrets.token_bytes(32)), compare=False
    )


class WebLogDecoder(Decoder):
    """Decodes lines of an access log. Args: others, names of ``visits.FIELDS`` beside the time.

    Guarantee: the address and the agent are in no column, and no record leaves with its bytes.
    Cost: three microseconds per line if agents, paths and referrers come back.
    """

    def __init__(self, form: WebLog, others: Sequence[str] = ()) -> None:
        self._read = _readers()[form.kind](form)
        self._others = others
        self._derived = {name: _Remembered(_DERIVED[name][1]) for name in others if name in _DERIVED}
        self._key_of_day = form.key_of_day
        self._visitors: dict[int, _Remembered] = {}

    def decode(self, records: Sequence[bytes]) -> Decoded:
        kept, raw, refused = self._read(records)
        form = next(name for name in _TIMES if name in raw)
        times = _TIMES[form](raw[form])
        columns: dict[str, Iterable[Any]] = {name: self._column(name, raw) for name in self._derived}
        if visits.VISITOR in self._others:
            columns[visits.VISITOR] = self._visitors_of(raw, *times)

        def why(row: int) -> Reason:
            return Reason.BAD_TIME if form == "time_local" else why_no_time(raw[form][row], "iso8601", None)

        return decoded_columns(kept, visits.TIME, times, columns, refused, why)

    def _column(self, name: str, raw: Raw) -> Iterable[Any]:
        parts = [raw[part] for part in _DERIVED[name][0]]
        return map(self._derived[name].__getitem__, zip(*parts, strict=True))

    def _visitors_of(self, raw: Raw, at_us: Int64Array, good: Bools) -> list[str]:
        """Return the name of each line's visitor on the day of the line; empty for a line without a time."""
        days = np.where(good, at_us // visits.DAY_US, _NO_DAY)
        who = list(zip(raw["address"], raw["agent"], strict=True))
        if len(set(days.tolist())) == 1:
            return list(map(self._named(int(days[0])).__getitem__, who))
        return [self._named(day)[one] for day, one in zip(days.tolist(), who, strict=True)]

    def _named(self, day: int) -> _Remembered:
        """Return the names of a day's visitors."""
        if day not in self._visitors:
            if day == _NO_DAY:
                return _Remembered(lambda address, agent: "")
            while len(self._visitors) >= _MOST_DAYS:
                del self._visitors[next(iter(self._visitors))]
            name = partial(visits.visitor_of, self._key_of_day(day))
            self._visitors[day] = _Remembered(lambda address, agent: name(address or "", agent or ""))
        return self._visitors[day]


def kind_of(lines: Sequence[bytes]) -> WebLogKind | None:
    """Return the kind of access log that most of these lines are of; None if they are no access log."""
    kinds: tuple[WebLogKind, ...] = ("combined", "caddy", "traefik")
    of_kind = {kind: len(WebLogDecoder(WebLog(kind)).decode(lines).kept) for kind in kinds}
    best = max(kinds, key=lambda kind: of_kind[kind])
    return best if 2 * of_kind[best] > len(lines) else None


class _Remembered(dict[tuple[Any, ...], Any]):
    """Values of a function of texts; "-" and the empty text are empty, None stays. Only short ones stay."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __missing__(self, parts: tuple[Any, ...]) -> Any:
        value = self._function(*map(_text, parts))
        if sum(len(part) for part in parts if part is not None) <= _LONGEST_REMEMBERED:
            if len(self) >= _MOST_REMEMBERED:
                self.clear()
            self[parts] = value
        return value


def _text(part: bytes | str | None) -> str | None:
    text = part.decode(errors="replace") if isinstance(part, bytes) else part
    return "" if text == "-" else text


def _status(status: str | None) -> int | None:
    return int(status) if status is not None and len(status) == 3 and status.isdecimal() else None


def _bytes(count: str | None) -> int | None:
    return int(count) if count and count.isdecimal() and len(count) < 16 else None


def _of_agent(name: str, agent: str | None) -> Any:
    """Return what an agent says; a log without agents says nothing, and none of its lines is of a bot."""
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
    "host": (("host",), lambda host: host.lower() if host else None),
    "referrer": (("referrer", "host"), lambda url, host: visits.host_of(url or "", host or None)),
    "device": (("agent",), partial(_of_agent, "device")),
    "browser": (("agent",), partial(_of_agent, "browser")),
    "bot": (("agent",), partial(_of_agent, "bot")),
}


def _written_as(form: TimeFormat, values: Sequence[Any]) -> tuple[Int64Array, Bools]:
    texts = [value.decode(errors="replace") if isinstance(value, bytes) else value for value in values]
    return times_us(texts, form)


_TIMES: Mapping[str, Callable[[Sequence[Any]], tuple[Int64Array, Bools]]] = {
    "time_local": local_times_us,
    "time_iso8601": partial(_written_as, "iso8601"),
    "msec": partial(_written_as, "s"),
}
_Read = Callable[[Sequence[bytes]], tuple[Sequence[int], Raw, list[tuple[int, Reason]]]]
_PARTS = ("address", "request", "status", "bytes", "referrer", "agent", "host")


def _by_pattern(form: WebLog) -> _Read:
    """Return a reader of lines of text."""
    pattern = combined() if form.kind == "combined" else pattern_of(form.log_format)
    names = sorted(pattern.groupindex, key=lambda name: pattern.groupindex[name])

    def read(records: Sequence[bytes]) -> tuple[Sequence[int], Raw, list[tuple[int, Reason]]]:
        found = list(map(pattern.fullmatch, records))
        kept: Sequence[int] = range(len(records))
        refused: list[tuple[int, Reason]] = []
        if None in found:
            found = [match or pattern.fullmatch(bare(records[row])) for row, match in enumerate(found)]
            kept = [row for row, match in enumerate(found) if match is not None]
            refused = [(row, Reason.UNDECODABLE) for row, match in enumerate(found) if match is None]
        rows = [match.groups() for match in found if match is not None]
        raw: dict[str, Sequence[Any]] = dict.fromkeys(_PARTS, [None] * len(rows))
        raw |= dict(zip(names, zip(*rows, strict=True) if rows else [()] * len(names), strict=True))
        if "uri" in raw:
            methods = raw.get("method", [b"GET"] * len(rows))
            raw["request"] = list(map(b"%s %s HTTP/1.1".__mod__, zip(methods, raw["uri"], strict=True)))
        return kept, raw, refused

    return read


class _Headers(msgspec.Struct, gc=False):
    agents: list[str] = msgspec.field(name="User-Agent", default_factory=lambda: [""])
    referrers: list[str] = msgspec.field(name="Referer", default_factory=list)


class _CaddyRequest(msgspec.Struct, gc=False):
    method: str
    uri: str
    host: str = ""
    remote_ip: str = ""
    client_ip: str = ""
    headers: _Headers = msgspec.field(default_factory=_Headers)


class _Caddy(msgspec.Struct, gc=False):
    ts: float
    request: _CaddyRequest
    status: int
    size: int = 0

    def parts(self) -> tuple[Any, ...]:
        one, headers = self.request, self.request.headers
        return (
            *(one.client_ip or one.remote_ip, f"{one.method} {one.uri} HTTP/1.1", str(self.status)),
            *(str(self.size), "".join(headers.referrers[:1]), "".join(headers.agents[:1]), one.host, self.ts),
        )


class _Traefik(msgspec.Struct, gc=False):
    at: str = msgspec.field(name="StartUTC")
    address: str = msgspec.field(name="ClientHost")
    method: str = msgspec.field(name="RequestMethod")
    uri: str = msgspec.field(name="RequestPath")
    status: int = msgspec.field(name="DownstreamStatus")
    size: int = msgspec.field(name="DownstreamContentSize", default=0)
    host: str = msgspec.field(name="RequestHost", default="")
    # Traefik writes headers only if accessLog.fields.headers keeps them.
    agent: str | None = msgspec.field(name="request_User-Agent", default=None)
    referrer: str = msgspec.field(name="request_Referer", default="")

    def parts(self) -> tuple[Any, ...]:
        return (
            *(self.address, f"{self.method} {self.uri} HTTP/1.1", str(self.status)),
            *(str(self.size), self.referrer, self.agent, self.host, self.at),
        )


def _by_json(struct: type[_Caddy | _Traefik], form: WebLog) -> _Read:
    """Return a reader of lines of JSON. Lines that lack a part, such as messages of a start, are refused."""
    decode = msgspec.json.Decoder(struct).decode

    def one(record: bytes) -> tuple[Any, ...] | None:
        for text in (record, mended(bare(record))):
            try:
                return decode(text).parts()
            except UNDECODABLE:
                continue
        return None

    def read(records: Sequence[bytes]) -> tuple[Sequence[int], Raw, list[tuple[int, Reason]]]:
        rows = list(map(one, records))
        kept = [row for row, parts in enumerate(rows) if parts is not None]
        refused = [(row, Reason.UNDECODABLE) for row, parts in enumerate(rows) if parts is None]
        columns = list(zip(*(rows[row] for row in kept), strict=True))
        names = (*_PARTS, "msec" if struct is _Caddy else "time_iso8601")
        return kept, dict(zip(names, columns or [()] * len(names), strict=True)), refused

    return read


def _readers() -> Mapping[WebLogKind, Callable[[WebLog], _Read]]:
    return {
        "combined": _by_pattern,
        "log_format": _by_pattern,
        "caddy": partial(_by_json, _Caddy),
        "traefik": partial(_by_json, _Traefik),
    }
