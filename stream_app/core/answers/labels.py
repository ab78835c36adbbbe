"""Labels that readers see in place of the operator's names: titles, and no path of a machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stream_app.core.boards import Annotation
from stream_app.core.budget import Total
from stream_app.core.segments.names import base_of

_FILE = "file:"
_LOG = "the log"


@dataclass(frozen=True, slots=True)
class Labels:
    """The words that a stream is shown with. They change no number and may change at any start.

    Args: title, empty for a stream without one; timezone, in which pages show instants; total, the largest
        cost of its epochs together, None for no limit; annotations, of its charts; until_us, where it ends,
        None if the configuration names no end; changes, a sentence on differences from the segment
        before, empty for the first one; next_changes, the changes of the next one, empty until it is
        announced; halted, whether a fault has stopped
        it.
    """

    title: str = ""
    timezone: str = "UTC"
    total: Total | None = None
    annotations: tuple[Annotation, ...] = ()
    until_us: int | None = None
    changes: str = ""
    next_changes: str = ""
    halted: bool = False

    def source(self, name: str) -> str:
        """Return how readers see a source: a file has its name without directories.

        An operator who gives a stream a title chooses the shown name, so a file then has no name. The title
        does not stand for it: a title names a stream, and several streams may count one source.

        >>> Labels().source("file:../../srv/shop/clicks.ndjson"), Labels("Shop").source("file:clicks.ndjson")
        ('file:clicks.ndjson', 'the log')
        >>> Labels("Shop").source("topic:clicks")
        'topic:clicks'
        """
        if not name.startswith(_FILE):
            return name
        return _LOG if self.title else _FILE + name.removeprefix(_FILE).rpartition("/")[2]


UNLABELLED = Labels()


@dataclass(frozen=True, slots=True)
class AllLabels:
    """The labels of all configured streams. Args: by_stream; others, of streams that are not configured."""

    by_stream: Mapping[str, Labels] = field(default_factory=dict)
    others: Labels = UNLABELLED

    def of(self, stream: str) -> Labels:
        """Return the labels of a stream, or of one of its segments."""
        return self.by_stream.get(base_of(stream), self.others)


NO_LABELS = AllLabels()
