"""The lines of a web server's log: patterns by a format as nginx writes it, or by a sample; local times."""

from __future__ import annotations

import re
from collections import Counter
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
_LOCAL_BYTES = len("10/Oct/2000:13:55:36 -0700")
_OF_DAY, _OF_CLOCK, _COLONS = [*range(12), *range(20, 26)], [12, 13, 15, 16, 18, 19], [14, 17]
_QUOTED = re.compile(r"'([^']*)'")
_DIRECTIVE = re.compile(r"\s*(?:log_format\s+\S+\s+(?:escape=\w+\s+)?)?((?:'[^']*'\s*)+);?\s*")
TIMES = ("time_local", "time_iso8601", "msec")
_LONGEST_TIME = 64  # bytes; without a limit, a sender's text full of [ would make the search slow
_COMMON = '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent'
_OF_COMBINED = ' "$http_referer" "$http_user_agent"'
# Apache's vhost_combined begins with a host and a port. In other lines "-" follows the first word.
_VIRTUAL_HOST = rb'(?:(?P<host>[^ :"]++):\d++ (?!- ))?'
_PART = re.compile(r'"((?:[^"\\]|\\.)*)"|\[([^\]]*)\]|([^\s"\[\]]+)')
_MEMBER = re.compile(r'(?<=")(\w+)":( ?)("?)((?<=")(?:[^"\\]|\\.)*|[^\s",{}\[\]]+)\3')  # of a line of JSON
# What parts of a line look like, in more than which share of the lines, and behind which other part they are.
_LOOKS = {
    "request": (r"[A-Z-]+ \S+ HTTP/[\d.]+", 0.5, ""),
    "time_local": (r"\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}", 0.9, ""),
    "time_iso8601": (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*(?: [-+]\d\d:?\d\d)?", 0.9, ""),
    "msec": (r"1\d{9}\.\d{3}", 0.9, ""),
    "remote_addr": (r"\d{1,3}(?:\.\d{1,3}){3}|[0-9a-fA-F]*:[0-9a-fA-F:.]+", 0.9, ""),
    "host": (r"(?=.*[a-z])(?:[A-Za-z0-9-]+\.)+[A-Za-z][A-Za-z0-9-]+", 0.9, ""),
    "http_user_agent": (r"(?:Mozilla|Opera)/.*", 0, ""),
    "http_referer": (r"https?://.*", 0, ""),
    "status": (r"[1-5]\d\d", 0.9, "request"),
    "body_bytes_sent": (r"\d+|-", 0.9, "status"),
}


@cache
def pattern_of(log_format: str, *, plain: bool = False) -> re.Pattern[bytes]:
    """Return the pattern of a line, with a group for each part that is read.

    Args: plain, of a line without a backslash, which escapes nothing then: it takes a third of the time.
    Raises: ValueError, one line.

    >>> sorted(pattern_of('$remote_addr [$time_local] "$request" $status').groupindex)
    ['address', 'request', 'status', 'time_local']
    """
    pattern = re.compile(_written(_unquoted(log_format), plain), re.DOTALL)
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
def combined(*, plain: bool = False) -> re.Pattern[bytes]:
    """Return the pattern of the combined and the common format, also behind a virtual host.

    More parts behind them are passed over. Args: as of ``pattern_of``.

    >>> found = combined().fullmatch(b'192.0.2.1 - ann b [x] "GET / HTTP/1.1" 200 5')
    >>> found["request"], found["agent"]
    (b'GET / HTTP/1.1', None)
    """
    common, more = _written(_COMMON, plain, behind=" "), _written(_OF_COMBINED, plain)
    return re.compile(_VIRTUAL_HOST + common + rb"(?:%s(?: .*)?)?" % more, re.DOTALL)


def guessed(lines: Sequence[str]) -> str | None:
    """Return the log_format that most lines of an access log have, if its parts are words or in quotes.

    >>> guessed(['192.0.2.1 [01/Mar/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 5 rt=0.1'])
    '$remote_addr [$time_local] "$request" $status $body_bytes_sent $other'
    >>> guessed(['{"at":"2026-03-01T12:00:00Z","ip":"192.0.2.1","status":200,"request":"GET / HTTP/1.1"}'])
    '{"at":"$time_iso8601","ip":"$remote_addr","status":$status,"request":"$request"}'
    """
    shapes = Counter(map(_shape, lines))
    shape = max(shapes, key=shapes.__getitem__, default="")
    rows = [_parts(line) for line in lines if _shape(line) == shape]
    columns = [[text for _, text in column] for column in zip(*rows, strict=True)]
    keys = [key for key, _ in rows[0]] if rows else []
    names = [key if key in _READ and key not in _LOOKS else None for key in keys]
    for name, (looks, share, before) in _LOOKS.items():
        first = names.index(before) + 1 if before in names and name not in keys else 0
        for place in sorted(range(first, len(columns)), key=lambda place: keys[place] != name):
            alike = sum(re.fullmatch(looks, text) is not None for text in columns[place])
            if names[place] is None and (alike > share * len(rows) or (not share and keys[place] == name)):
                names[place] = name
                break
    agent = names.index("http_user_agent") if "http_user_agent" in names else 0
    if "http_referer" not in names and agent and not names[agent - 1] and {*columns[agent - 1]} <= {"-", ""}:
        names[agent - 1] = "http_referer"  # nobody in the sample came from another page
    if "status" not in names:
        return None  # without a status nobody knows which requests showed a page
    address = names.index("remote_addr") if "remote_addr" in names else 0
    if address and all(text.endswith(",") for text in columns[address - 1]):
        return None  # which address of a list is the visitor's is not known
    parts = iter(names)
    written = re.sub(r"\$", lambda _: f"${next(parts) or 'other'}", shape)
    try:
        pattern = pattern_of(written)
    except ValueError:
        return None
    fitting = sum(pattern.fullmatch(line.encode()) is not None for line in lines)
    return written if 2 * fitting > len(lines) else None


def _parts(line: str) -> list[tuple[str, str]]:
    """Return the parts of a line, each behind its name if the line is JSON."""
    if line.startswith("{"):
        return [(found[1], found[4]) for found in _MEMBER.finditer(line)]
    return [("", "".join(found)) for found in _PART.findall(line)]


def _shape(line: str) -> str:
    """Return a line with ``$`` in the place of each of its parts."""
    if line.startswith("{"):
        return _MEMBER.sub(r'\1":\2\3$\3', line.rstrip())
    return _PART.sub(lambda part: {'"': '"$"', "[": "[$]"}.get(part[0][0], "$"), line.rstrip())


def _unquoted(log_format: str) -> str:
    """Return the format itself, where the server's whole directive was copied, or its quoted parts.

    >>> _unquoted("log_format main '$remote_addr - '\\n    '[$time_local]';"), _unquoted("'$a' '$b'")
    ('$remote_addr - [$time_local]', '$a$b')
    """
    found = _DIRECTIVE.fullmatch(log_format)
    return log_format if found is None else "".join(_QUOTED.findall(found[1]))


def _written(log_format: str, plain: bool, behind: str = "") -> bytes:
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
        values = _values(name, literal[:1] or behind, plain)
        pattern += f"({group}{values}){re.escape(literal)}".encode()
    return pattern


def _values(name: str, end: str, plain: bool) -> str:
    """Return the pattern of a variable's values. Args: end, the character behind it, empty at the end."""
    if name == "remote_user":  # it may have spaces; the bound keeps a damaged line from taking long
        return ".{0,200}?"
    if name in TIMES and end:
        return f"[^{re.escape(end)}]{{0,{_LONGEST_TIME}}}"
    if end == '"' and not plain:  # nginx and Apache write quotes inside with a backslash
        return r'[^"\\]*(?:\\.[^"\\]*)*'
    return f"[^{re.escape(end)}]*" if end else ".*"


def local_times_us(texts: Sequence[bytes]) -> tuple[Int64Array, Bools]:
    """Return times such as ``10/Oct/2000:13:55:36 -0700`` in microseconds since 1970, and which are valid.

    >>> local_times_us([b"10/Oct/2000:13:55:36 -0700", b"1/Oct/2000"])[0].tolist()
    [971211336000000, 0]
    """
    if set(map(len, texts)) != {_LOCAL_BYTES}:
        texts = [text if len(text) == _LOCAL_BYTES else bytes(_LOCAL_BYTES) for text in texts]
    letters = np.frombuffer(b"".join(texts), np.uint8).reshape(-1, _LOCAL_BYTES)
    of_day = np.ascontiguousarray(letters[:, _OF_DAY]).view(f"S{len(_OF_DAY)}").ravel()
    days_s = np.array(list(map(_day_s, of_day.tolist())), np.float64)
    digits = letters[:, _OF_CLOCK].astype(np.int64) - ord("0")
    hours, minutes, seconds = (10 * digits[:, ::2] + digits[:, 1::2]).T
    good = ((digits >= 0) & (digits <= 9)).all(axis=1) & (letters[:, _COLONS] == ord(":")).all(axis=1)
    good &= (hours < 24) & (minutes < 60) & (seconds <= 60)
    good &= ~np.isnan(days_s)
    # A 60th second is read as the one before it, as in all other times.
    at_s = np.where(good, days_s, 0).astype(np.int64)
    at_s += 3_600 * hours + 60 * minutes + np.minimum(seconds, 59)
    return np.where(good, at_s * 1_000_000, 0), good


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
