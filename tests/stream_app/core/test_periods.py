"""The unit of a user's day: what it costs, by brute force, and how epochs of such streams add up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement

import numpy as np
import pytest

from dphist.caps import Caps
from dphist.tree.design import TreeDesign
from dphist.tree.shape import TreeShape
from stream_app.core.budget import one_more_in_words, over_epochs_in_words
from stream_app.core.counting.bounding import Bounds, PerUser, user_fields
from stream_app.core.declaration import Declaration
from stream_app.core.instants import HOUR_US
from stream_app.core.ledger import entry_from_json, entry_of, entry_to_json, next_entry, statement
from stream_app.core.meaning import meaning_of
from stream_app.core.records import EpochRecord, LedgerEntry
from tests.models.choosing import by_key, chosen
from tests.stream_app.declared import changed, declared_of

DAY_US = 24 * HOUR_US
BINS, PERIOD_BINS, KEYS = 4, 2, 2
Event = tuple[int, int]  # bin and key
User = tuple[Event, ...]  # all events of one user, sorted


def day(epoch: int, first_hour: int, days: int = 7, **facts: object) -> LedgerEntry:
    """Return the entry of an epoch over a user's UTC days; the unit's caps do not matter here."""
    declared = declared_of(user=PerUser("id", 4, per="1d"), late="drop", bin_us=HOUR_US, epoch_bins=24 * days)
    bins = declared.epoch_bins(first_hour, None, 24 * days)
    return replace(entry_of(declared, "s", EpochRecord(epoch, first_hour, bins, 1, "h")), **facts)  # type: ignore[arg-type]


def vectors(events: User, caps: Caps, period_bins: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Return the counts by bin and key of a user's events under caps in each period."""
    bounds, counts = Bounds(caps), np.zeros((BINS, KEYS), dtype=np.int64)
    for first in range(0, BINS, period_bins):
        before: dict[int, int] = {}
        for bin in range(first, first + period_bins):
            keys = [key for at, key in events if at == bin]
            fields = user_fields(np.zeros((KEYS, 16), np.uint8), np.arange(KEYS))
            records = {fields[key]: keys.count(key) for key in set(keys)}
            taken = chosen(records, bounds, before)
            before = by_key(taken.items(), bounds, before)
            for key, number in taken.items():
                counts[bin, key] += number
    return counts


def loss(one: np.ndarray, other: np.ndarray, design: TreeDesign) -> Fraction:
    """Return the exact loss of releasing every node of a tree in each column, whatever is computed from them.

    Noise that is drawn ahead changes nothing: all outputs are functions of noisy nodes (docs/privacy.md).
    """
    total, change = Fraction(0), one - other
    for level, scale in zip(design.shape.levels, design.scales, strict=True):
        width = design.shape.widths[level]
        nodes = change.reshape(-1, width, KEYS).sum(axis=1)
        total += Fraction(int(np.abs(nodes).sum())) / Fraction(float(scale))
    return total


def logs(most: int) -> Iterable[User]:
    """Yield every log of one user with up to so many events."""
    places = [(bin, key) for bin in range(BINS) for key in range(KEYS)]
    for number in range(most + 1):
        yield from combinations_with_replacement(places, number)


@pytest.mark.parametrize("caps", [Caps(2), Caps(None, 1, 2), Caps(1, 2, 1)], ids=str)
@pytest.mark.parametrize("release", ["anticipating", "causal"])
def test_a_user_s_day_costs_epsilon_and_a_whole_epoch_its_days_times(caps: Caps, release: str) -> None:
    """All pairs of logs that differ by a user's events of one day, in exact fractions."""
    shares = (Fraction(1, 2), Fraction(1, 2))  # of which scales are exact doubles
    design = TreeDesign(TreeShape((2, 2)), BINS, Fraction(1), shares, sensitivity=caps.l1, release=release)  # type: ignore[arg-type]
    of_day, of_epoch = Fraction(0), Fraction(0)
    for events in logs(4):
        counts = vectors(events, caps, PERIOD_BINS)
        for first in (0, PERIOD_BINS):
            rest = tuple(event for event in events if not first <= event[0] < first + PERIOD_BINS)
            of_day = max(of_day, loss(counts, vectors(rest, caps, PERIOD_BINS), design))
        of_epoch = max(of_epoch, loss(counts, vectors((), caps, PERIOD_BINS), design))
    assert of_day == 1
    assert of_epoch == BINS // PERIOD_BINS


def test_caps_of_a_whole_epoch_would_not_protect_a_day() -> None:
    """If the cap window is the epoch, a day less makes room for other days: the loss is above epsilon."""
    design = TreeDesign(TreeShape((2, 2)), BINS, Fraction(1), (Fraction(1, 2), Fraction(1, 2)), sensitivity=1)
    events = ((0, 0), (3, 1))
    rest = events[1:]
    assert loss(vectors(events, Caps(1), BINS), vectors(rest, Caps(1), BINS), design) == 2


def test_epochs_of_whole_days_do_not_add_up() -> None:
    stated = statement("file:visits.ndjson", [day(0, 0), day(1, 168), day(2, 336)])
    assert (stated.unit, stated.epsilon) == ("user per 1d", Fraction(1))
    assert stated.neighbouring == (
        "a log, and the same log without all events of one user within one UTC day"
    )
    sentences = stated.sentences()
    assert sentences[0].startswith(
        "Whether or not all events of any one user of file:visits.ndjson within any one UTC day exist changes"
    )
    assert "All events of a user in one epoch of 7 UTC days together cost epsilon 7." in sentences
    assert 'on users that the field "id" names, within each UTC day, from' in sentences[-1]


def test_epochs_that_touch_one_day_add_up() -> None:
    """An epoch that ended within a day, because its store was lost, may have counted events of that day."""
    within_a_day = [day(0, 0), day(1, 30), day(2, 40), day(3, 192)]
    assert statement("file:visits.ndjson", within_a_day).epsilon == 3
    assert statement("file:visits.ndjson", [day(0, 0), day(1, 48)]).epsilon == 1
    assert statement("file:visits.ndjson", [day(0, 30), day(1, 168)]).epsilon == 1
    assert statement("file:visits.ndjson", [day(0, 30), day(1, 40)]).epsilon == 2


def test_first_epoch_ends_with_a_day_and_is_as_many_days_long() -> None:
    assert (day(0, 30).start_us, day(0, 30).end_us, day(0, 30).periods) == (30 * HOUR_US, 8 * DAY_US, 7)
    assert day(0, 30).period_us == DAY_US


def test_more_epochs_cost_nothing_more() -> None:
    first = day(0, 30)
    following = next_entry([first], "s")
    assert following is not None
    assert following.period_us == following.start_us == 8 * DAY_US
    assert one_more_in_words(first.source, [first], "s") == (
        "One more epoch of this stream adds nothing: a UTC day of a user is in one epoch only."
    )
    assert over_epochs_in_words(first) == ""


def test_another_unit_beside_it_leaves_a_promise_for_events() -> None:
    """A promise for a day and one for another period, another time or whole users have no common unit."""
    others = [
        day(0, 0, stream="t", strategy_hash="i", per="1h"),
        day(0, 0, stream="t", strategy_hash="i", time="paid us"),
        day(0, 0, stream="t", strategy_hash="i", user="device"),
        day(0, 0, stream="t", strategy_hash="i", per=None, period_us=None, periods=0),
    ]
    for other in others:
        stated = statement("file:visits.ndjson", [day(0, 0), other])
        assert (stated.unit, stated.epsilon, stated.whole_user) == ("event", Fraction(4), None)
    same = statement("file:visits.ndjson", [day(0, 0), day(0, 0, stream="t", strategy_hash="i")])
    assert (same.unit, same.epsilon) == ("user per 1d", Fraction(2))
    assert "All events of a user in one epoch of each stream of 7 UTC days together cost epsilon 14." in (
        same.sentences()
    )


def test_entries_are_read_as_they_were_written_and_old_ones_keep_their_text() -> None:
    entry = day(3, 192)
    assert entry_from_json(entry_to_json(entry)) == entry
    old = replace(entry, per=None, period_us=None, periods=0)
    assert b"per" not in entry_to_json(old).replace(b"per_", b"")


def test_words_name_the_day_and_its_zone() -> None:
    declared = declared_of(user=PerUser("id", 3, per="1d"), late="drop", bin_us=HOUR_US, epoch_bins=48)
    meaning = meaning_of(declared)
    assert meaning.counts.startswith("Counts at most 3 events per user and UTC day, earliest bins first.")
    assert "the other events of a user in a UTC day are left out" in meaning.intervals
    assert "towards the end of a UTC day" in meaning.shape
    local = changed(declared, time={"bin_us": DAY_US, "timezone": "Europe/Paris", "epoch_bins": 7})
    assert "per user and day in Europe/Paris" in meaning_of(local).counts
    assert Declaration.of(local.plain()) == local
