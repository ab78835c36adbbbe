"""Build requests from arguments and answers from responses; no I/O."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Literal
from urllib.parse import quote

import httpx

from stream_app.client.answers import Count, Release, Series

Time = str | int | float | datetime | None
Kind = Literal["running", "bin", "window"]
View = Literal["unbiased", "first_published", "consistent"]
Method = Literal["top_down", "isotonic"]  # of consistent values
Parameters = dict[str, str | list[str]]
Levels = float | Sequence[float]

LONGEST_WAIT_S = 10.0
FIRST_WAIT_S = 0.25
SILENCE_S = 45.0  # the service sends a heartbeat every 15 s
TRY_AGAIN = frozenset({429, 500, 502, 503, 504})


class ClientError(Exception):
    """The service refused or could not be reached: one line with what, where and the remedy.

    Args: the HTTP status; None where the service could not be reached.
    """

    def __init__(self, line: str, status: int | None = None) -> None:
        super().__init__(line)
        self.status = status


def count(
    stream: str, start: Time, end: Time, confidence: float, key: str | None = None
) -> tuple[str, Parameters]:
    """Return path and parameters of a range count. Args: key, one of the list; None for all."""
    return f"{_path(stream)}/count", _range(start, end, confidence) | _given(key=key)


def cdf(stream: str, start: Time, end: Time, confidence: float, key: str | None) -> tuple[str, Parameters]:
    """Return path and parameters of a distribution."""
    return f"{_path(stream)}/cdf", _range(start, end, confidence) | _given(key=key)


def cdfs(stream: str, start: Time, end: Time, step: int | None, key: str | None) -> tuple[str, Parameters]:
    """Return path and parameters of distributions from one start to the end of each ``step`` bins."""
    asked = _given(start=_time("start", start), end=_time("end", end), step=step, key=key)
    return f"{_path(stream)}/cdfs", asked


def quantile(
    stream: str, levels: Levels, start: Time, end: Time, confidence: float, key: str | None
) -> tuple[str, Parameters]:
    """Return path and parameters of quantiles."""
    wanted = [levels] if isinstance(levels, int | float) else levels
    asked: Parameters = {"q": [str(level) for level in wanted]}
    return f"{_path(stream)}/quantile", asked | _range(start, end, confidence) | _given(key=key)


def window(
    stream: str, end: Time, until: Time, levels: Levels, confidence: float, key: str | None
) -> tuple[str, Parameters]:
    """Return path and parameters of a tumbling window."""
    wanted = [levels] if isinstance(levels, int | float) else levels
    asked: Parameters = {"q": [str(level) for level in wanted]} if wanted else {}
    edges = _given(end=_time("end", end), until=_time("until", until))
    return f"{_path(stream)}/window", asked | edges | _given(confidence=confidence, key=key)


def series(
    stream: str, start: Time, end: Time, confidence: float, asked: dict[str, Any]
) -> tuple[str, Parameters]:
    """Return path and parameters of a series. Args: asked, further parameters; None is left out."""
    return f"{_path(stream)}/series", _range(start, end, confidence) | _given(**asked)


def described(stream: str) -> tuple[str, Parameters]:
    """Return path and parameters of a stream's description."""
    return _path(stream), {}


def events(stream: str) -> str:
    """Return the path of a stream's releases."""
    return f"{_path(stream)}/events"


def read_count(response: httpx.Response) -> Count:
    """Read a count. Raises: ClientError."""
    return Count.of(body_of(response))


def read_series(response: httpx.Response) -> Series:
    """Read a series. Raises: ClientError."""
    return Series.of(body_of(response))


def read_timezone(response: httpx.Response) -> str | None:
    """Read the time zone of a stream whose bins are calendar days. Raises: ClientError."""
    zone: str | None = body_of(response)["timezone"]
    return zone


def body_of(response: httpx.Response) -> Any:
    """Return the body of a good answer. Raises: ClientError with the service's own line."""
    if response.status_code != 200:
        raise refusal(response)
    return response.json()


def refusal(response: httpx.Response) -> ClientError:
    """Return the error for an unsuccessful response, whose body has been read."""
    try:
        line = str(response.json()["error"])
    except (ValueError, KeyError, TypeError):
        line = f"{response.url.host} answered {response.status_code}; is this the service's address?"
    return ClientError(line, response.status_code)


def unreachable(failure: httpx.TransportError, base_url: httpx.URL) -> ClientError:
    """Return the error for a service that does not answer."""
    if isinstance(failure, httpx.UnsupportedProtocol):
        return ClientError(f"{base_url}: is not the address of a service; write it as http://HOST:PORT")
    return ClientError(f"{base_url}: not reached ({type(failure).__name__}); is it running there?")


def credentials(api_key: str | None) -> dict[str, str]:
    """Return the header that carries an API key."""
    return {} if api_key is None else {"Authorization": f"Bearer {api_key}"}


class EventReader:
    """Parses lines of server-sent events into releases, and remembers where to resume.

    Args: after, the last seq that the follower has; None starts at the last release.
    """

    def __init__(self, after: int | None) -> None:
        self.after = after
        self._event = ""
        self._data: list[str] = []
        self._private: bool | None = None

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers of a connection that resumes after this reader's last release."""
        resume = {} if self.after is None else {"Last-Event-ID": str(self.after)}
        return {"Accept": "text/event-stream", **resume}

    def begin(self) -> None:
        """Discard an incomplete event, which a new connection sends again."""
        self._event, self._data = "", []

    def feed(self, line: str) -> Iterator[Release]:
        """Read one line without its end; yield the release that it completes, if it is new."""
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._event = value
        elif name == "data":
            self._data.append(value)
        elif not line:
            event, data = self._event, "\n".join(self._data)
            self.begin()
            if event == "privacy" and data:
                self._private = bool(json.loads(data)["private"])
            if event == "release" and data:
                release = Release.of(json.loads(data), self._private)
                if self.after is None or release.seq > self.after:
                    self.after = release.seq
                    yield release


def waits_s() -> Iterator[float]:
    """Yield growing pauses between attempts, in seconds."""
    wait_s = FIRST_WAIT_S
    while True:
        yield wait_s
        wait_s = min(2 * wait_s, LONGEST_WAIT_S)


def _path(stream: str) -> str:
    return f"/v1/streams/{quote(stream, safe='')}"


def _given(**parameters: Any) -> Parameters:
    return {name: str(value) for name, value in parameters.items() if value is not None}


def _range(start: Time, end: Time, confidence: float) -> Parameters:
    return _given(start=_time("start", start), end=_time("end", end), confidence=confidence)


def _time(name: str, time: Time) -> str | None:
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise ValueError(f"{name}: {time} has no time zone; add one, for example tzinfo=UTC")
        return time.isoformat()
    return None if time is None else str(time)
