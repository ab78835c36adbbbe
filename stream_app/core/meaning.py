"""What a stream's numbers mean, in words: what it counts, and what an interval is for.

Pages, API, command line, client, rows and metrics all show these words, so no two of them can differ. A
number that is private and read as something else is worse than none: a cap per user leaves events out, and a
count of users counts a user once per epoch.
"""

from __future__ import annotations

from dataclasses import dataclass

from stream_app.core.declaration import Declaration


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a stream counts.

    Args:
        noun: plural, for headings: "events", "counted events", "users first seen".
        counts: a sentence that says what is counted.
        intervals: a sentence that says what intervals are for.
        shape: a sentence that says what the shape of a chart hides; empty if it hides nothing.
    """

    noun: str
    counts: str
    intervals: str
    shape: str = ""

    @property
    def plain(self) -> bool:
        """Whether every event counts, so that readers need no warning."""
        return self == EVERY_EVENT

    @property
    def warning(self) -> str:
        """What to write beside every chart; empty if every event counts."""
        return "" if self.plain else f"{self.counts} {self.shape}".rstrip()

    @property
    def sentences(self) -> str:
        """What is counted and what intervals are for."""
        return f"{self.counts} {self.intervals}"


EVERY_EVENT = Meaning("events", "Counts events.", "Intervals are for the true number of events.")


def meaning_of(declared: Declaration) -> Meaning:
    """Return what a stream counts."""
    if declared.count == "users":
        return _users(declared)
    per_user = declared.privacy.per_user
    if per_user is None:
        return EVERY_EVENT
    most = per_user.max_events
    events = "1 event" if most == 1 else f"{most:,} events"
    first = "the first one" if most == 1 else "the first ones"
    return Meaning(
        noun="counted events",
        counts=f'Counts at most {events} per user and epoch, {first}. The field "{per_user.field}" names the '
        "user.",
        intervals="Intervals are for the number of events that count, not for the number of all events: "
        "the later events of a user in an epoch are left out.",
        shape="This cap bends the shape of a chart: it leaves out more events towards the end of an epoch.",
    )


def range_in_words(declared: Declaration, epochs: int) -> str:
    """Return what a count over a range of time is of. Args: epochs, how many the range touches."""
    if declared.count == "users":
        if epochs > 1:
            return f"users first seen in this range, once in each of its {epochs:,} epochs"
        return "users first seen in this range, which is within one epoch"
    per_user = declared.privacy.per_user
    if per_user is None:
        return "events"
    return f"counted events (at most {per_user.max_events:,} per user and epoch, the first ones)"


def _users(declared: Declaration) -> Meaning:
    per_user = declared.privacy.per_user
    assert per_user is not None  # the configuration refuses a count of users that nothing names
    under = ", under one of the user's keys in that bin" if declared.keys else ""
    return Meaning(
        noun="users first seen",
        counts=f"Counts each user once per epoch, in the first bin with an event of the user{under}. "
        f'The field "{per_user.field}" names the user.',
        intervals="Intervals are for the number of users first seen in a range. A range over several epochs "
        "counts a user once in each of them.",
        shape="Charts show when users are first seen in an epoch, not how many are active: the first bins of "
        "an epoch are the highest.",
    )
