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

    Args: after, the seq of the last release that the follower has, or its id; None starts at the last one.
    """

    def __init__(self, after: int | str | None) -> None:
        self.after = None if after is None else str(after)
        self._event = self._id = ""
        self._data: list[str] = []
        self._private: bool | None = None

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers of a connection that resumes after this reader's last release."""
        resume = {} if self.after is None else {"Last-Event-ID": self.after}
        return {"Accept": "text/event-stream", **resume}

    def begin(self) -> None:
        """Discard an incomplete event, which a new connection sends again."""
        self._event, self._id, self._data = "", "", []

    def feed(self, line: str) -> Iterator[Release]:
        """Read one line without its end; yield the release that it completes, if it is new."""
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._event = value
        elif name == "id":
            self._id = value
        elif name == "data":
            self._data.append(value)
        elif not line:
            event, place, data = self._event, self._id, "\n".join(self._data)
            self.begin()
            if event == "privacy" and data:
                self._private = bool(json.loads(data)["private"])
            if event == "release" and data:
                release = Release.of(json.loads(data), self._private, _place(place)[0])
                if self.after is None or (release.generation, release.seq) > _place(self.after):
                    self.after = release.id
                    yield release


def _place(id: str) -> tuple[int, int]:
    """Return the generation and the seq of an event's id: ``2:17``, and ``17`` in the first generation."""
    generation, _, seq = id.rpartition(":")
    return int(generation or 1), int(seq or 0)
