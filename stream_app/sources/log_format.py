"""The lines of a web server's log: patterns, compiled from a format as nginx writes it, and local times."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from functools import cache, lru_cache

import numpy as np

from dphist.arrays import Int64Array
from stream_app.sources.times import Bools

_VARIABLE = re.compile(r"\$(\w+)|\$\{(\w+)\}")
# The parts of a line that are read, by nginx's names. All other variables are passed over.
_READ = {
    "remote_addr": "address",
    "time_local": "time_local",
    "time_iso8601": "time_iso8601",
    "msec": "msec",
    "request": "request",
    "request_method": "method",
    "request_uri": "uri",
    "status": "status",
    "body_bytes_sent": "bytes",
    "bytes_sent": "bytes",
    "http_referer": "referrer",
    "http_user_agent": "agent",
    "host": "host",
    "http_host": "host",
    "server_name": "host",
}
_DAY = re.compile(rb"\d\d/[A-Z][a-z]{2}/\d{4}: [+-]\d{4}")
_CLOCK = re.compile(rb"(?:[01]\d|2[0-3]):[0-5]\d:(?:[0-5]\d|60)")
_QUOTED = re.compile(r"'([^']*)'")
_DIRECTIVE = re.compile(r"\s*(?:log_format\s+\S+\s+(?:escape=\w+\s+)?)?((?:'[^']*'\s*)+);?\s*")
TIMES = ("time_local", "time_iso8601", "msec")
_COMMON = '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent'
_OF_COMBINED = ' "$http_referer" "$http_user_agent"'


@cache
def pattern_of(log_format: str) -> re.Pattern[bytes]:
    """Return the pattern of a line, with a group for each part that is read. Raises: ValueError, one line.

    >>> sorted(pattern_of('$remote_addr [$time_local] "$request" $status').groupindex)
    ['address', 'request', 'status', 'time_local']
    """
    pattern = re.compile(_written(_unquoted(log_format)), re.DOTALL)
    found = pattern.groupindex
    for names, said in (
        (("address",), "$remote_addr"),
        (TIMES, "$time_local, $time_iso8601 or $msec"),
        (("request", "uri"), "$request or $request_uri"),
    ):
        if not set(names) & set(found):
            raise ValueError(f"has no {said}; copy the log_format that the server writes, with all its parts")
    return pattern


@cache
def combined() -> re.Pattern[bytes]:
    """Return the pattern of the combined and the common format; more parts behind them are passed over.

    >>> found = combined().fullmatch(b'192.0.2.1 - ann b [x] "GET / HTTP/1.1" 200 5')
    >>> found["request"], found["agent"]
    (b'GET / HTTP/1.1', None)
    """
    common, more = _written(_COMMON, behind=" "), _written(_OF_COMBINED)
    return re.compile(common + rb"(?:%s(?: .*)?)?" % more, re.DOTALL)


def _unquoted(log_format: str) -> str:
    """Return the format itself, where the server's whole directive was copied, or its quoted parts.

    >>> _unquoted("log_format main '$remote_addr - '\\n    '[$time_local]';"), _unquoted("'$a' '$b'")
    ('$remote_addr - [$time_local]', '$a$b')
    """
    found = _DIRECTIVE.fullmatch(log_format)
    return log_format if found is None else "".join(_QUOTED.findall(found[1]))


def _written(log_format: str, behind: str = "") -> bytes:
    """Return the pattern of a format. Args: behind, the character after it, empty at the end of the line."""
    parts = _VARIABLE.split(log_format)
    taken: set[str] = set()
    pattern = re.escape(parts[0]).encode()
    for number in range(1, len(parts), 3):
        name, literal = parts[number] or parts[number + 1], parts[number + 2]
        if not literal and number < len(parts) - 3:
            raise ValueError(f"has nothing between ${name} and the next variable; put a separator there")
        read = _READ.get(name)
        group = f"?P<{read}>" if read and read not in taken else "?:"
        taken.add(read or "")
        pattern += f"({group}{_values(name, literal[:1] or behind)})".encode() + re.escape(literal).encode()
    return pattern


def _values(name: str, end: str) -> str:
    """Return the pattern of a variable's values. Args: end, the character behind it, empty at the end."""
    if name == "remote_user":  # it may have spaces; the bound keeps a damaged line from taking long
        return ".{0,200}?"
    if end == '"':  # nginx and Apache write quotes inside with a backslash
        return r'[^"\\]*(?:\\.[^"\\]*)*'
    return f"[^{re.escape(end)}]*" if end else ".*"


def local_times_us(texts: Sequence[bytes]) -> tuple[Int64Array, Bools]:
    """Return times such as ``10/Oct/2000:13:55:36 -0700`` in microseconds since 1970, and which are valid.

    >>> local_times_us([b"10/Oct/2000:13:55:36 -0700", b"1/Oct/2000"])[0].tolist()
    [971211336000000, 0]
    """
    parts = [(_day_s(text[:12] + text[20:]), _clock_s(text[12:20])) for text in texts]
    good = np.array([None not in part for part in parts], np.bool_)
    at_s = [0 if day is None or clock is None else day + clock for day, clock in parts]
    return np.array(at_s, np.int64) * 1_000_000, good


@lru_cache(1 << 12)
def _day_s(text: bytes) -> int | None:
    """Return when a day such as ``10/Oct/2000: -0700`` begins, in seconds since 1970, or None."""
    if _DAY.fullmatch(text) is None:
        return None
    try:
        found = datetime.strptime(text.decode(), "%d/%b/%Y: %z")
    except ValueError:  # the 31st of February
        return None
    # Every time has whole bins around it in every zone.
    return int(found.timestamp()) if 1 < found.year < 9999 else None


@lru_cache(1 << 17)
def _clock_s(text: bytes) -> int | None:
    """Return the second of the day of a time such as ``13:55:36``, or None."""
    if _CLOCK.fullmatch(text) is None:
        return None
    hour, minute, second = map(int, text.split(b":"))
    # A 60th second is read as the one before it, as in all other times.
    return hour * 3_600 + minute * 60 + min(second, 59)
