"""Every question that a client can ask: its request, and how to read the answer. No I/O.

A function for each question has the arguments and the docstring of the clients' method of the same name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Literal
from urllib.parse import quote

import httpx

from stream_app.client.answers import AlertRule, Count, Mean, Series, Summary, Total
from stream_app.client.columns import Answer
from stream_app.client.distributions import Cdf, Cdfs, Quantiles, Window

Time = str | int | float | datetime | None
SeriesKind = Literal["running", "bin", "window"]
View = Literal["unbiased", "first_published", "consistent"]
Of = Literal["count", "sum", "mean"]
Method = Literal["top_down", "isotonic"]  # of consistent values
Parameters = dict[str, str | list[str]]
Levels = float | Sequence[float]
Keys = str | Sequence[str] | None  # one key, or several that are counted together

LONGEST_WAIT_S = 10.0
FIRST_WAIT_S = 0.25


class ClientError(Exception):
    """The service refused or could not be reached: one line with what, where and the remedy.

    Args: the HTTP status; None where the service could not be reached.
    """

    def __init__(self, line: str, status: int | None = None) -> None:
        super().__init__(line)
        self.status = status


@dataclass(frozen=True, slots=True)
class Question(Generic[Answer]):
    """A request. Args: read, a function that makes the answer from the response's JSON."""

    path: str
    parameters: Parameters
    read: Callable[[Any], Answer]

    def answer(self, response: httpx.Response) -> Answer:
        """Read the response. Raises: ClientError with the service's own line."""
        if response.status_code != 200:
            raise refusal(response)
        return self.read(response.json())


def streams() -> Question[list[str]]:
    """Return the names of the streams that this client may read."""
    return Question("/v1/streams", {}, lambda answer: [one["stream"] for one in answer["streams"]])


def titles() -> Question[dict[str, str]]:
    """Return the title of each stream that this client may read, as pages show it, by stream name."""
    return Question(
        "/v1/streams", {}, lambda answer: {one["stream"]: one["title"] for one in answer["streams"]}
    )


def alerts() -> Question[list[AlertRule]]:
    """Return the alert rules over the streams that this client may read, by name."""
    return Question("/v1/alerts", {}, lambda answer: [AlertRule.of(one) for one in answer["alerts"]])


def timezone(stream: str) -> Question[str | None]:
    """Return the time zone of a stream whose bins are calendar days; None for bins of fixed length."""
    return Question(path_of(stream), {}, lambda answer: answer["timezone"])


def summary(stream: str) -> Question[Summary]:
    """Return what a stream counts, in words, and how much so far."""
    return Question(path_of(stream), {}, Summary.of)


def epochs(stream: str) -> Question[dict[int, str]]:
    """Return the start of every epoch of a stream, RFC 3339, by the epoch's number, as rows name it."""
    return Question(
        path_of(stream), {}, lambda answer: {one["epoch"]: one["start"] for one in answer["epochs"]}
    )


def keys(stream: str, contains: str = "") -> Question[dict[str, str | None]]:
    """Return the first 1,000 keys of a stream's list, with the instant that found each.

    Args: contains, a part of their names, in letters of any case.
    Returns: the end of the bin that first showed a key, RFC 3339; None for a key that was listed.
    """

    def read(answer: dict[str, Any]) -> dict[str, str | None]:
        return dict(zip(answer["keys"], answer.get("found") or [None] * len(answer["keys"]), strict=True))

    return Question(f"{path_of(stream)}/keys/list", {"contains": contains, "limit": "1000"}, read)


def count(
    stream: str,
    start: Time = None,
    end: Time = None,
    confidence: float = 0.95,
    *,
    key: Keys = None,
    not_key: Keys = None,
) -> Question[Count]:
    """Return the number of events from start to end.

    Args: start and end, edges of bins; None: the first and the last released. key, one of the stream's list,
        or several that are counted together, for example ``key=["FR", "DE"]``; None counts all keys. not_key,
        one or several keys that are left out of all.
    """
    return _over(stream, "count", Count.of, (start, end, confidence), (key, not_key))


def total(
    stream: str,
    start: Time = None,
    end: Time = None,
    confidence: float = 0.95,
    *,
    key: Keys = None,
    not_key: Keys = None,
) -> Question[Total]:
    """Return the sum of the stream's amounts from start to end.

    Args: as for ``count``.
    """
    return _over(stream, "sum", Total.of, (start, end, confidence), (key, not_key))


def mean(
    stream: str,
    start: Time = None,
    end: Time = None,
    confidence: float = 0.95,
    *,
    key: Keys = None,
    not_key: Keys = None,
) -> Question[Mean]:
    """Return the mean of the stream's amounts from start to end.

    Args: as for ``count``.
    """
    return _over(stream, "mean", Mean.of, (start, end, confidence), (key, not_key))


def series(
    stream: str,
    start: Time = None,
    end: Time = None,
    confidence: float = 0.95,
    *,
    kind: SeriesKind = "running",
    step: int = 1,
    window: int | None = None,
    view: View = "unbiased",
    method: Method | None = None,
    points: int | None = None,
    key: Keys = None,
    not_key: Keys = None,
    of: Of = "count",
    days: int | None = None,
    months: int | None = None,
    week_start: str | None = None,
    timezone: str | None = None,
) -> Question[Series]:
    """Return running counts, counts of ``step`` bins each, or of sliding windows of ``window`` bins.

    Args: method, for ``view="consistent"`` only: ``top_down`` if left out, or ``isotonic``; of, "sum" or
        "mean" for sums or means of the stream's amounts instead of counts. With ``kind="bin"``, days or
        months are a step of the calendar of ``timezone`` instead of ``step`` (``months=3``: quarters;
        ``days=7``: weeks from ``week_start`` on, for example "sunday"; Monday if left out).
    """
    one_view = of == "mean" and view == "unbiased"  # the service knows no other view of means
    shown: dict[str, Any] = {"kind": kind, "step": step, "window": window, "method": method}
    shown |= {"view": None if one_view else view, "points": points}
    shown |= {"days": days, "months": months, "week_start": week_start, "timezone": timezone}
    path = "series" if of == "count" else f"{of}/series"
    return _over(stream, path, Series.of, (start, end, confidence), (key, not_key), **shown)


def cdf(
    stream: str,
    start: Time = None,
    end: Time = None,
    confidence: float = 0.95,
    *,
    key: Keys = None,
    not_key: Keys = None,
) -> Question[Cdf]:
    """Return the cumulative counts of a stream's value, with one band around all of them."""
    return _over(stream, "cdf", Cdf.of, (start, end, confidence), (key, not_key))


def cdfs(
    stream: str,
    start: Time = None,
    end: Time = None,
    *,
    step: int | None = None,
    key: Keys = None,
    not_key: Keys = None,
) -> Question[Cdfs]:
    """Return rising cumulative counts of a value, from start to the end of every run of ``step`` bins.

    Without a step, the shortest runs with at most 120 ends are used.
    """
    return _about(stream, "cdfs", Cdfs.of, start=start, end=end, step=step, key=key, not_key=not_key)


def quantile(
    stream: str,
    levels: Levels,
    start: Time = None,
    end: Time = None,
    confidence: float = 0.95,
    *,
    key: Keys = None,
    not_key: Keys = None,
) -> Question[Quantiles]:
    """Return quantiles of a stream's value, at one level such as 0.95 or at several, in their order."""
    span, keys = (start, end, confidence), (key, not_key)
    return _over(stream, "quantile", Quantiles.of, span, keys, q=_levels(levels))


def window(
    stream: str,
    end: Time = None,
    confidence: float = 0.95,
    *,
    until: Time = None,
    levels: Levels = (),
    key: str | None = None,
) -> Question[Window]:
    """Return one tumbling window of a stream with ``mode: window``; by default the last complete one.

    Args: end, the end of a window; until, any instant, for the last window that ended by then; levels of
        quantiles of the value; key, if each key has a histogram.
    """
    asked = {"q": _levels(levels), "end": end, "until": until, "confidence": confidence, "key": key}
    return _about(stream, "window", Window.of, **asked)


def path_of(stream: str) -> str:
    """Return the path of a stream, under which its answers are."""
    return f"/v1/streams/{quote(stream, safe='')}"


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


def describe(method: Callable[..., object], question: Callable[..., object], owner: str) -> None:
    """Give a client's method the name, the docstring, the arguments and the answer of its question."""
    asked = inspect.signature(question)
    answer = asked.return_annotation.removeprefix("Question[").removesuffix("]")
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    method.__name__, method.__doc__ = question.__name__, question.__doc__
    method.__qualname__ = f"{owner}.{question.__name__}"
    method.__signature__ = asked.replace(  # type: ignore[attr-defined]
        parameters=[itself, *asked.parameters.values()], return_annotation=answer
    )


def waits_s() -> Iterator[float]:
    """Yield growing pauses between attempts, in seconds."""
    wait_s = FIRST_WAIT_S
    while True:
        yield wait_s
        wait_s = min(2 * wait_s, LONGEST_WAIT_S)


def _over(
    stream: str,
    what: str,
    read: Callable[[Any], Answer],
    span: tuple[Time, Time, float],
    keys: tuple[Keys, Keys],
    **asked: Any,
) -> Question[Answer]:
    """Return a question about a range. Args: span, start, end, confidence; keys, asked and left out."""
    (start, end, confidence), (key, not_key) = span, keys
    limits = {"start": start, "end": end, "confidence": confidence, "key": key, "not_key": not_key}
    return _about(stream, what, read, **limits, **asked)


def _about(stream: str, what: str, read: Callable[[Any], Answer], **asked: Any) -> Question[Answer]:
    """Return a question about a stream. Args: asked, its parameters; None leaves one out."""
    parameters = {name: _text(name, value) for name, value in asked.items() if value is not None}
    for name in ("key", "not_key"):
        if parameters.get(name) == []:
            raise ValueError(f"{name}: names no key; name one, or leave it out to count all")
    return Question(f"{path_of(stream)}/{what}", parameters, read)


def _text(name: str, value: Any) -> str | list[str]:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"{name}: {value} has no time zone; add one, for example tzinfo=UTC")
        return value.isoformat()
    return [str(one) for one in value] if isinstance(value, list | tuple) else str(value)


def _levels(levels: Levels) -> list[str]:
    return [str(level) for level in ([levels] if isinstance(levels, int | float) else levels)]
