"""A stream together with the streams before it, as one reader may see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stream_app.api.replica import StreamReplica
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.succession import continued


class Succession:
    """A stream together with its predecessors. Readers query them as one stream.

    Guarantee: it holds only streams that the reader may read, so no answer depends on any other one.
    Args: parts, oldest first, the asked stream last.
    """

    def __init__(self, parts: tuple[StreamReplica, ...]) -> None:
        self.parts = parts

    @classmethod
    def of(
        cls, replica: StreamReplica, by_name: Mapping[str, StreamReplica], may_read: Callable[[str], bool]
    ) -> Succession:
        """Return the part of a stream's history that a reader may see. Args: by_name, all streams."""
        if replica.view is None:
            return cls((replica,))
        before = continued(
            replica.view, lambda name: by_name[name].view if name in by_name and may_read(name) else None
        )
        return cls((*(by_name[one.strategy.stream] for one in before), replica))

    @property
    def own(self) -> StreamReplica:
        """The asked stream."""
        return self.parts[-1]

    @property
    def view(self) -> StreamView | None:
        """The history as it is now; None if the stream was removed."""
        own = self.own.view
        if own is None or len(self.parts) == 1:
            return own
        return own.following(continued(own, {one.stream: one.view for one in self.parts[:-1]}.get))

    @property
    def answers(self) -> dict[object, bytes]:
        """Rendered answers of all readers at the stream's seq: each key must name the streams shown."""
        return self.own.answers
