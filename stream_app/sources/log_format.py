"""Patterns of a web server's log lines, compiled from a format as nginx writes it."""

from __future__ import annotations

import re
from functools import cache

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
TIMES = ("time_local", "time_iso8601", "msec")
_COMMON = '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent'
_OF_COMBINED = ' "$http_referer" "$http_user_agent"'


@cache
def pattern_of(log_format: str) -> re.Pattern[bytes]:
    """Return the pattern of a line, with a group for each part that is read. Raises: ValueError, one line.

    >>> sorted(pattern_of('$remote_addr [$time_local] "$request" $status').groupindex)
    ['address', 'request', 'status', 'time_local']
    """
    pattern = re.compile(_written(log_format), re.DOTALL)
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
    if name == "remote_user":  # it may have spaces
        return ".*?"
    if end == '"':  # nginx and Apache write quotes inside with a backslash
        return r'[^"\\]*(?:\\.[^"\\]*)*'
    return f"[^{re.escape(end)}]*" if end else ".*"
