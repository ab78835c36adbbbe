"""Parse server-sent events into releases. No I/O."""

from __future__ import annotations

import json
from collections.abc import Iterator

from stream_app.client.answers import Release
from stream_app.client.questions import path_of

SILENCE_S = 45.0  # the service sends a heartbeat every 15 s
TRY_AGAIN = frozenset({429, 500, 502, 503, 504})


def events(stream: str) -> str:
    """Return the path of a stream's releases."""
    return f"{path_of(stream)}/events"


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
