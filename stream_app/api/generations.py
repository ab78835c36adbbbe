"""Streams by the names that readers know: generations of one stream, and each with the streams before it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, zip_longest

from stream_app.api.replica import StreamReplica
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.succession import continued, edge_in_words, is_complete
from stream_app.core.segments.names import address_of, base_of


class Generations:
    """All streams of the store, as readers see them. Args: by_name, as the store names them."""

    def __init__(self, by_name: Mapping[str, StreamReplica]) -> None:
        self.by_name = by_name
        self._by_stream: Mapping[str, Sequence[StreamReplica]] = {}  # by the configured name, newest first

    def generations(self, stream: str) -> list[StreamReplica]:
        """Return the generations of a stream that a worker has opened, newest first. Args: its name."""
        return [one for one in self._by_stream.get(stream, ()) if one.view is not None]

    def shown_as(self, name: str) -> StreamReplica | None:
        """Return the generation that readers see under a name; None if no worker has opened one.

        ``NAME`` is the newest generation that has released something, else the first one. ``NAME@2`` is one
        generation, and ``NAME@1`` the first.
        """
        found = self.generations(base_of(name))
        if name != base_of(name):
            return next((one for one in found if address_of(one.stream) == name), None)
        return next((one for one in found if one.seq > 0), found[-1] if found else None)

    def with_history(self, shown: Iterable[StreamReplica]) -> Iterator[tuple[StreamReplica, int | None]]:
        """Yield each stream's generations with releases, oldest first, and the first sample of the next one.

        That is the end of the first bin of the next generation, in microseconds since 1970, and None for the
        last one. Args: shown, as ``shown`` returns it.
        """
        for newest in shown:
            found = self.generations(newest.name)
            with_rows = [one for one in reversed(found) if one.seq > 0 or one is newest]
            for one, following in zip_longest(with_rows, with_rows[1:]):
                yield one, None if following is None else _first_end_us(following)

    def shown(self) -> list[StreamReplica]:
        """Return every stream once, by name: the generation that its name means."""
        found = (self.shown_as(name) for name in sorted(self._by_stream))
        return [one for one in found if one is not None]

    def join(self) -> None:
        """Let followers of a generation that is complete go on in the next one, once it has released rows."""
        self._by_stream = found = defaultdict[str, list[StreamReplica]](list)
        for one in sorted(self.by_name.values(), key=lambda one: one.generation, reverse=True):
            found[one.name].append(one)
        for stream in found:
            for after, before in pairwise(self.generations(stream)):
                assert before.view is not None
                assert after.view is not None
                if not after.labels.changes or not before.labels.next_changes:
                    changes = edge_in_words(before.view, after.view)
                    after.say(replace(after.labels, changes=changes))
                    before.say(replace(before.labels, next_changes=changes))
                goes_on = after.seq > 0 and is_complete(before.view, after.view)
                before.go_on_in(after if goes_on else None)


def _first_end_us(replica: StreamReplica) -> int:
    assert replica.view is not None
    return replica.view.binning.end_us(replica.view.span.start)


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
