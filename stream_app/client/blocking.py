"""The blocking client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Concatenate, ParamSpec, Self

import httpx

from stream_app.client import questions
from stream_app.client.answers import Release
from stream_app.client.columns import Answer
from stream_app.client.following import SILENCE_S, TRY_AGAIN, EventReader, events
from stream_app.client.questions import Question

Arguments = ParamSpec("Arguments")


def _method(
    question: Callable[Arguments, Question[Answer]],
) -> Callable[Concatenate[Client, Arguments], Answer]:
    """Return the method that asks a question and returns its answer."""

    def ask(self: Client, /, *arguments: Arguments.args, **named: Arguments.kwargs) -> Answer:
        return self._ask(question(*arguments, **named))

    questions.describe(ask, question, "Client")
    return ask


class Client:
    """A client of one service, for released values.

    Args:
        base_url: the service's address, for example http://127.0.0.1:8088.
        api_key: the key, for a service that requires an API key.
        timeout_s: how long an answer may take.
        transport: an httpx transport, for tests and proxies; None: httpx's own.
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

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    streams = _method(questions.streams)
    titles = _method(questions.titles)
    alerts = _method(questions.alerts)
    timezone = _method(questions.timezone)
    summary = _method(questions.summary)
    epochs = _method(questions.epochs)
    keys = _method(questions.keys)
    count = _method(questions.count)
    total = _method(questions.total)
    mean = _method(questions.mean)
    series = _method(questions.series)
    cdf = _method(questions.cdf)
    cdfs = _method(questions.cdfs)
    quantile = _method(questions.quantile)
    window = _method(questions.window)

    def follow(self, stream: str, after: int | str | None = None) -> Iterator[Release]:
        """Yield every release after another one, in order and once, without end; reconnects when needed.

        A stream whose settings change goes on as its next generation, and its releases follow.
        Args: after, the ``id`` of the last release that you have, or its seq in the first generation; 0 for
            all; None starts at the last release.
        Raises: ClientError if the service refuses. An unreachable service is tried again.
        """
        reader, waits = EventReader(after), questions.waits_s()
        while True:
            with (
                suppress(httpx.TransportError),  # unreachable: resumed below
                self._http.stream(
                    "GET", events(stream), headers=reader.headers, timeout=SILENCE_S
                ) as response,
            ):
                if response.status_code == 200:
                    reader.begin()
                    for line in response.iter_lines():
                        for release in reader.feed(line):
                            waits = questions.waits_s()
                            yield release
                elif response.status_code not in TRY_AGAIN:
                    response.read()
                    raise questions.refusal(response)
            time.sleep(next(waits))

    def _ask(self, question: Question[Answer]) -> Answer:
        try:
            response = self._http.get(question.path, params=question.parameters)
        except httpx.TransportError as failure:
            raise questions.unreachable(failure, self._http.base_url) from None
        return question.answer(response)
