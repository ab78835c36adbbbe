"""The blocking client."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Self

import httpx

from stream_app.client import questions
from stream_app.client.answers import Cdf, Cdfs, Count, Quantiles, Release, Series, Window
from stream_app.client.questions import EventReader, Kind, Levels, Method, Parameters, Time, View


class Client:
    """A client of one service, for released values.

    Args:
        base_url: the service's address, for example http://127.0.0.1:8088.
        api_key: for a service that requires one.
        timeout_s: how long an answer may take.
        transport: for tests and proxies; httpx's own if left out.
    Raises (every method): ClientError, one line; ValueError for a time without its zone.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        timeout_s: float = 10.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._http = httpx.Client(
            base_url=base_url, headers=questions.credentials(api_key), timeout=timeout_s, transport=transport
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def streams(self) -> list[str]:
        """Return the names of the streams that this client may read."""
        answer = questions.body_of(self._get("/v1/streams", {}))
        return [stream["stream"] for stream in answer["streams"]]

    def timezone(self, stream: str) -> str | None:
        """Return the time zone of a stream whose bins are calendar days; None for bins of fixed length."""
        return questions.read_timezone(self._get(*questions.described(stream)))

    def count(
        self,
        stream: str,
        start: Time = None,
        end: Time = None,
        confidence: float = 0.95,
        *,
        key: str | None = None,
    ) -> Count:
        """Return the events from start to end (edges of bins; None: the first and the last released).

        Args: key, one of the stream's list; None counts all.
        """
        return questions.read_count(self._get(*questions.count(stream, start, end, confidence, key)))

    def series(
        self,
        stream: str,
        start: Time = None,
        end: Time = None,
        confidence: float = 0.95,
        *,
        kind: Kind = "running",
        step: int = 1,
        window: int | None = None,
        view: View = "unbiased",
        method: Method | None = None,
        points: int | None = None,
        key: str | None = None,
    ) -> Series:
        """Return running counts, counts of ``step`` bins each, or of sliding windows of ``window`` bins.

        Args: method, of ``view="consistent"``: ``top_down`` if left out, or ``isotonic``.
        """
        asked = {"kind": kind, "step": step, "window": window, "view": view, "method": method}
        more = {"points": points, "key": key}
        return questions.read_series(
            self._get(*questions.series(stream, start, end, confidence, asked | more))
        )

    def cdf(
        self,
        stream: str,
        start: Time = None,
        end: Time = None,
        confidence: float = 0.95,
        *,
        key: str | None = None,
    ) -> Cdf:
        """Return the cumulative counts of a stream's value, with one band around all of them."""
        asked = questions.cdf(stream, start, end, confidence, key)
        return Cdf.of(questions.body_of(self._get(*asked)))

    def cdfs(
        self,
        stream: str,
        start: Time = None,
        end: Time = None,
        *,
        step: int | None = None,
        key: str | None = None,
    ) -> Cdfs:
        """Return rising cumulative counts of a value, from start to the end of every run of ``step`` bins.

        Without a step, the shortest runs with at most 120 ends are used.
        """
        asked = questions.cdfs(stream, start, end, step, key)
        return Cdfs.of(questions.body_of(self._get(*asked)))

    def quantile(
        self,
        stream: str,
        levels: Levels,
        start: Time = None,
        end: Time = None,
        confidence: float = 0.95,
        *,
        key: str | None = None,
    ) -> Quantiles:
        """Return quantiles of a stream's value, at one level such as 0.95 or at several, in their order."""
        asked = questions.quantile(stream, levels, start, end, confidence, key)
        return Quantiles.of(questions.body_of(self._get(*asked)))

    def window(
        self,
        stream: str,
        end: Time = None,
        confidence: float = 0.95,
        *,
        until: Time = None,
        levels: Levels = (),
        key: str | None = None,
    ) -> Window:
        """Return one tumbling window of a stream with ``mode: window``; by default the last complete one.

        Args: end, the end of a window; until, any instant, for the last window that ended by then; levels of
            quantiles of the value; key, if each key has a histogram.
        """
        asked = questions.window(stream, end, until, levels, confidence, key)
        return Window.of(questions.body_of(self._get(*asked)))

    def follow(self, stream: str, after: int | None = None) -> Iterator[Release]:
        """Yield every release after a seq, in order and exactly once, without end; reconnects when needed.

        Args: after, the last seq that you have; 0 for all; None starts at the last release.
        Raises: ClientError if the service refuses. An unreachable service is tried again.
        """
        reader, waits = EventReader(after), questions.waits_s()
        while True:
            with (
                suppress(httpx.TransportError),  # unreachable: resumed below
                self._http.stream(
                    "GET", questions.events(stream), headers=reader.headers, timeout=questions.SILENCE_S
                ) as response,
            ):
                if response.status_code == 200:
                    reader.begin()
                    for line in response.iter_lines():
                        for release in reader.feed(line):
                            waits = questions.waits_s()
                            yield release
                elif response.status_code not in questions.TRY_AGAIN:
                    response.read()
                    raise questions.refusal(response)
            time.sleep(next(waits))

    def _get(self, path: str, parameters: Parameters) -> httpx.Response:
        try:
            return self._http.get(path, params=parameters)
        except httpx.TransportError as failure:
            raise questions.unreachable(failure, self._http.base_url) from None
