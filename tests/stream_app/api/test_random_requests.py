"""Random hostile requests to every address are answered or refused, and none makes the service fail."""

from __future__ import annotations

import asyncio
import http.client
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

import numpy as np
import pytest

from tests.models.memory import MemoryStore
from tests.patience import PATIENCE_S
from tests.stream_app.api.client import fill, served
from tests.stream_app.published import Published
from tests.stream_app.published_axes import PublishedAxes, PublishedWindows

pytestmark = pytest.mark.slow

NEW_YEAR_BIN = 473_352  # 2024-01-01T00:00:00Z in hours
START, END = "2024-01-01T00:00:00Z", "2024-01-02T12:00:00Z"

STREAMS = ("plain", "keyed", "win")
ODD_STREAMS = ("nope", "", "..", "%00", "plain/", "%2e%2e", "a" * 300, "é", "<script>")
VIEWS = (
    *("", "/count", "/series", "/cdf", "/quantile", "/window", "/nodes", "/privacy", "/keys", "/heat"),
    *("/quantiles", "/cdfs", "/preview", "/marks", "/alerts", "/transitions"),
)
QUERIES = tuple(f"/api/v1/{name}" for name in ("query", "query_range", "series"))
PAGES = (
    *("/", "/v1/streams", "/v1/overview", "/v1/alerts", "/metrics", "/healthz", "/readyz", "/docs"),
    *("/openapi.json", "/streams/plain", "/dashboard/stream.js", "/dashboard/../../access.py"),
    *("/dashboard/%2e%2e/%2e%2e/access.py", "/dashboard/..%2f..%2faccess.py", "/dashboard//etc/passwd"),
    *("/api/v1/labels", "/api/v1/label/stream/values", "/api/v1/label/__name__/values"),
    *("/api/v1/metadata", "/api/v1/status/buildinfo", "/api/v1/xyz"),
)
PATHS = (
    *(f"/v1/streams/{stream}{view}" for stream in STREAMS for view in VIEWS for _ in range(4)),
    *(f"/v1/streams/{stream}{view}" for stream in ODD_STREAMS for view in VIEWS[:3]),
    *(QUERIES * 15),
    *PAGES,
)
TIMES = (
    *(START, END, "2024-01-01T07:00:00Z", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59"),
    *("9999-12-31T23:59:59Z", "9999-12-31T23:59:59-23:59", "1704067200", "1704067200.5", "1e400", "-1e400"),
    *("nan", "inf", "-62135596800", "253402300799", "253402300800", "9" * 400, "1" * 4_301, "-0", "1e18"),
    *("2024-02-30T00:00:00Z", "2024-01-01T00:00:00.0000000001Z", "2024-01-01", "", "\x00", "9.3e12"),
    *("٢٠٢٤-01-01T00:00:00Z", "9223372036854775807", "2024-W01-1", "2024-01-01T24:00:00Z", " ", "1_000"),
    *("1e-400", "0x10", "٣", "²", "1,5", "+1", "2013-01-01T00:00:00+99:99", "00000-01-01T00:00:00Z"),
)
NUMBERS = (
    *("0", "1", "2", "-1", "7", "24", "1e3", "9007199254740992", "9007199254740993", "9" * 50, "9" * 5_000),
    *(
        "0x10",
        "",
        " ",
        "1.5",
        "true",
        "NaN",
        "inf",
        "120",
        "121",
        "11000",
        "11001",
        "½",
        "٣",
        "²",
        "1_000",
        "+1",
    ),
)
SPANS = ("60", "1h", "5m", "1ms", "-5", "0.0000001", "9" * 400, "1y", "1d1h", "nan")
SHARES = (
    *("0.95", "0.5", "0.999999", "0.9999999", "1", "0", "-1", "nan", "inf", "1e-400", "1e400", "abc", ""),
    *("0.49999999999999999", "0.999", "0.9990000001", "0.05", "20", "20.0001", "1e-2"),
)
KEYS = (
    *("UA", "other", "</script>", "<img src=x onerror=alert(1)>", "\x00", "", "x" * 1_000, "é"),
    "A\r\nX-Evil: 1",
)
PROMQL = (
    *('private_counts_running{stream="plain"}', 'private_counts_key_bin{key=~"UA|B6"}', "x[5m]", "1 1"),
    *('{__name__=~"private.*"}', '{__name__=~".+"}', "1" + "+1" * 900, "-" * 1_900 + "1", "1e308+1e308"),
    *("1e999", "(" * 1_000, '{a="' + "\\\\" * 900 + '"}', '{a=~"(((((((("}', '{a=~"(a|b)|(c|.*.*.*"}'),
    *('{stream=~".*.*.*x"}', '{stream!~""}', '{stream=""}', "sum(x)", '"', "{", "}", "{,}", '{a="b",}'),
    *('x{__name__="y"}', "\x00", "é", '{stream=~"[[:alpha:]]"}', '{a=~"a\\\\"}', '{a=~"(?P<x>a)"}'),
    *('{a=~"|||"}', '{a=~"' + "(a|)" * 25 + '"}', "+", "1-", ".", "1e", '{a=~"a**"}', '{a=~".*+"}'),
)
VALUES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("start", "end", "time", "at", "until"), TIMES),
    **dict.fromkeys(("step", "window", "points", "rows"), NUMBERS + SPANS),
    **dict.fromkeys(("limit", "level", "epoch", "first", "after"), NUMBERS),
    **dict.fromkeys(("confidence", "q", "epsilon"), SHARES),
    **dict.fromkeys(("query", "match[]"), PROMQL),
    "key": KEYS,
    "stream": STREAMS + ODD_STREAMS,
    "kind": ("running", "bin", "window", "x", ""),
    "view": ("unbiased", "first_published", "consistent", "x"),
    "method": ("top_down", "isotonic", "x"),
    "format": ("json", "csv", "arrow", "x"),
    "zz": ("1",),
}
KNOWN = {
    "/count": "start end key confidence",
    "/series": "start end key confidence kind step window view method points format",
    "/cdf": "start end key confidence",
    "/quantile": "start end key confidence q",
    "/window": "end until key q confidence",
    "/nodes": "epoch level first limit",
    "/keys": "start end step limit confidence",
    "/heat": "start end step key rows",
    "/quantiles": "start end step key q confidence",
    "/cdfs": "start end step key",
    "/preview": "start end step key epsilon confidence",
    "/query": "query time",
    "/query_range": "query start end step",
}
GOOD = {  # most values are good, so that a bad value gets far
    "start": START,
    "end": END,
    "time": START,
    "until": END,
    "step": "12",
    "window": "4",
    "rows": "4",
    "limit": "10",
    "level": "1",
    "epoch": "0",
    "first": "0",
    "points": "10",
    "key": "UA",
    "kind": "bin",
    "confidence": "0.9",
    "q": "0.5",
    "epsilon": "1",
    "view": "unbiased",
    "format": "json",
    "query": 'private_counts_running{stream="plain"}',
    "method": "top_down",
}
HEADERS: tuple[dict[str, str], ...] = (
    *({"If-None-Match": "*"}, {"If-None-Match": '"0:480", W/"x"'}, {"Accept": "text/csv"}),
    *({"Accept": "," * 2_000}, {"Accept": "application/vnd.apache.arrow.stream"}, {"Last-Event-ID": "-1"}),
    *({"Origin": "http://evil"}, {"Authorization": "Basic \xff"}, {"Authorization": "Bearer " + "x" * 5_000}),
    *({"Host": "a/b?c#d"}, {"X-Forwarded-For": "1.2.3.4"}, {"Range": "bytes=0-1,2-3,-1"}),
    *({"Range": "bytes=99999999999-"}, {"Accept-Encoding": "x" * 4_000}),
)
NO_ANSWER = 599
METHODS = ("GET",) * 40 + ("POST", "HEAD", "OPTIONS", "PUT", "DELETE")


@dataclass(frozen=True)
class Request:
    """One request. A failed test shows its text, so that it can be sent again."""

    method: str
    target: str
    body: str | None = None
    headers: dict[str, str] = field(default_factory=dict)


def requests(seed: int, count: int) -> Iterator[Request]:
    """Return random requests; equal seeds give equal requests."""
    choose = random.Random(seed)
    for _ in range(count):
        path = choose.choice(PATHS)
        query = _query(choose, "/series_" if path in QUERIES[2:] else "/" + path.rpartition("/")[2])
        method = choose.choice(METHODS)
        headers = dict(choose.choice(HEADERS)) if choose.random() < 0.2 else {}
        if method == "POST":
            headers["Content-Type"] = "application/x-www-form-urlencoded"
            yield Request(method, quote(path, safe="/%<>."), query[:20_000], headers)
        else:
            yield Request(method, quote(path, safe="/%.") + (f"?{query}" if query else ""), None, headers)


def _query(choose: random.Random, view: str) -> str:
    if choose.random() < 0.03:
        return "".join(choose.choice("%&=+;ab\x7f0") for _ in range(30)).replace("\x7f", "%7F")
    known = "match[]" if view == "/series_" else KNOWN.get(view, "")
    names = [name for name in known.split() if choose.random() < 0.6]
    if choose.random() < 0.08:
        names.append(choose.choice(list(VALUES)))
    if names and choose.random() < 0.03:
        names.append(names[0])
    return urlencode(
        [
            (name, GOOD[name] if name in GOOD and choose.random() < 0.7 else choose.choice(VALUES[name]))
            for name in names
        ]
    )


@asynccontextmanager
async def loopback() -> AsyncIterator[int]:
    """Serve three streams: a plain one, one with keys and values, one with windows. Yield the port."""
    store = MemoryStore()
    place: dict[str, Any] = {"first_bin": NEW_YEAR_BIN}
    plain = Published(store, "plain", source="a.ndjson", **place)
    keyed = PublishedAxes(store, "keyed", source="b.ndjson", buckets=8, **place)
    windows = PublishedWindows(
        store, "win", source="c.ndjson", buckets=8, window_bins=4, epoch_bins=64, **place
    )
    await fill(plain, [5] * 36)
    for stream in (keyed, windows):
        await fill(stream, np.ones((36, 5, 8), np.int64))
    async with served(store.reader()) as client:
        yield client.base_url.port or 0


def answers(port: int, asked: Iterator[Request]) -> Iterator[tuple[Request, int]]:
    """Send requests one after the other; return each with its status, or with ``NO_ANSWER``."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)) as connection:
        for request in asked:
            try:
                connection.request(request.method, request.target, request.body, request.headers)
                answer = connection.getresponse()
                answer.read()
            except (OSError, http.client.HTTPException):  # the connection ended without an answer
                connection.close()
                yield request, NO_ANSWER
            else:
                yield request, answer.status


@pytest.mark.parametrize("seed", [1, 2])
def test_random_requests_never_fail_the_service(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> list[tuple[Request, int]]:
        async with loopback() as port:
            return await asyncio.to_thread(lambda: list(answers(port, requests(seed, 300))))

    answered = asyncio.run(run())
    assert [(request, status) for request, status in answered if status >= 500] == []
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
    kinds = Counter(status for _, status in answered)
    assert min(kinds[status] for status in (200, 400, 404, 405, 422)) >= 1, kinds
    assert kinds[200] >= 50, kinds
