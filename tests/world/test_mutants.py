"""Known ways to count, to cap and to release wrongly: each must fail for a feature or a case of the world."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dphist.laws.law import WeightedNoise
from stream_app.core.alerts import ranges
from stream_app.core.answers import weighted
from stream_app.core.answers.answered import QueryError
from stream_app.core.counting import count_rows
from stream_app.core.counting.bins import Assignment, BinRules
from stream_app.core.counting.bounding import CapWindows
from stream_app.core.counting.count_rows import RowRules
from stream_app.core.counting.keys import KeyList
from stream_app.core.counting.where import Not
from stream_app.core.kinds.tables import Span
from stream_app.core.kinds.wrappers import OverEpochs
from stream_app.core.records import Cut, LedgerEntry, Origin
from stream_app.core.releases import release
from stream_app.loops import cutting, publishing, slices
from stream_app.loops.dead_letters import RefusedAhead
from stream_app.source_ledger import SourceLedger
from tests.models import choosing
from tests.stream_app.declared import FIRST_BIN
from tests.stream_app.loops import test_answers, test_engine_rows, test_ingest, test_over_epochs
from tests.stream_app.loops.test_total import TWO_EPOCHS, users
from tests.world.arrivals import CASES, check
from tests.world.features import FEATURES
from tests.world.recounts import counting
from tests.world.test_recounts import (
    check_all,
)
from tests.world.test_recounts import (
    test_points_of_series_are_the_answers_about_their_ranges as points_have_their_laws,
)
from tests.world.world import World

pytestmark = pytest.mark.slow


def feature(name: str, seed: int = 4) -> Callable[[], None]:
    """Return a check of a feature over two epochs."""
    return lambda: check_all({name: FEATURES[name]}, "causal", seed, bins=13)


def case(words: str) -> Callable[[], None]:
    """Return a check of events under faults. Args: words, in the case's name."""
    [found] = [one for name, one in CASES.items() if words in name]
    return lambda: check(found)


def nothing_is_early() -> None:
    """Check that a row becomes visible at the first public instant after its release."""
    with counting({"events": FEATURES["events"]}, "causal") as world:
        world.start()
        world.until(FIRST_BIN + 1.05)
        assert world.rows() == []


def epochs_fit_their_total() -> None:
    """Check that no epoch opens beyond a total."""
    with World(users(), ledger={"total": TWO_EPOCHS}) as world:
        world.run_until(FIRST_BIN + 14)
        assert len(world.epochs()) == 2


def nodes_are_over_epochs() -> None:
    """Check the released nodes over epochs against a recount."""
    with World(test_over_epochs.over_epochs()) as world:
        test_over_epochs.test_nodes_are_released_with_the_last_bin_and_equal_a_recount(world)


def _other_keys_missing(keys: KeyList, pattern: str) -> tuple[int, ...]:
    return tuple(at for at, label in enumerate(keys.labels) if label.startswith(pattern[:2]) and at < 4)


def _missing_does_not_match(condition: Not, columns: Any) -> Any:
    present = [value is not None for value in columns["user"]]
    return ~condition.part.matches(columns) & np.array(present, np.bool_)


def _refused_for_every_reason(assignment: Assignment, masks: Mapping[Any, Any]) -> Assignment:
    refused, counts = dict(assignment.refused), assignment.kept | assignment.ahead
    for reason, mask in masks.items():
        refused[reason] = mask & counts
    hit = np.logical_or.reduce(list(masks.values())) if masks else np.zeros_like(counts)
    return replace(assignment, kept=assignment.kept & ~hit, ahead=assignment.ahead & ~hit, refused=refused)


async def _always(ledger: SourceLedger, entry: LedgerEntry) -> bool:
    return True


def repeated_rows_count_once() -> None:
    """Check rows of an engine that repeats itself against a recount."""
    test_engine_rows.test_rows_of_an_engine_that_repeats_itself_equal_a_recount(1)


def _closed_by_any_origin(origins: Mapping[int, Origin], rules: RowRules) -> int | None:
    return rules.closing.last_due_bin(max(one.closed_us or 0 for one in origins.values()))


_why_not_next = count_rows._why_not_next
_counted = choosing.counted
_past = ranges.Ranges._past
_errors = release.row_errors

MUTANTS: dict[str, tuple[Any, str, Any, Callable[[], None]]] = {
    "a cut forgets which bin closes next": (
        cutting,
        "Cut",
        lambda bin, position, late=0: Cut(bin, position),
        lambda: test_ingest.test_a_stall_around_the_question_where_the_log_ends("before"),
    ),
    "letters of records from the future are forgotten": (
        RefusedAhead,
        "expect",
        lambda letters, place: None,
        case("from the future holds up"),
    ),
    "late records are dropped and lettered the other way round": (
        BinRules,
        "late_is",
        lambda rules, policy: (
            rules.late == {"drop": "dead_letter", "dead_letter": "drop"}.get(policy, policy)
        ),
        feature("dropped-if-late"),
    ),
    "one more bin ahead is accepted": (
        BinRules,
        "newest_bins",
        lambda rules, open_bins: open_bins + rules.max_ahead_bins + 1,
        case("from the future holds up"),
    ),
    "a record is refused for each of its reasons": (
        slices,
        "refusing",
        _refused_for_every_reason,
        feature("two-of-a-user-by-key-and-value", seed=1),
    ),
    "a rollup misses other": (KeyList, "matching", _other_keys_missing, feature("key-fields")),
    "a record without the field does not match not": (
        Not,
        "matches",
        _missing_does_not_match,
        feature("where-not"),
    ),
    "one more record of a user counts": (
        choosing,
        "counted",
        lambda records, room: _counted(records, room + 1),
        feature("two-of-a-user"),
    ),
    "each bin is a window of the cap": (CapWindows, "of", lambda windows, bins: bins, feature("users")),
    "rows say the error of counts for sums": (
        release,
        "row_errors",
        lambda strategy, first_bin, bins, of_sums=False: _errors(strategy, first_bin, bins),
        test_answers.test_rows_say_the_sum_that_was_the_answer_when_they_were_new,
    ),
    "an epoch over epochs begins with nothing": (
        OverEpochs,
        "kept",
        lambda kind, state: b"",
        nodes_are_over_epochs,
    ),
    "a rule reads the past one bin too late": (
        ranges.Ranges,
        "_past",
        lambda ranges, condition: Span(*(edge + 1 for edge in _past(ranges, condition))),
        feature("events"),
    ),
    "the two windows of a rule have independent noise": (
        weighted,
        "_law",
        lambda view, ranges: WeightedNoise.weighted((w, 1, view.count(span).law) for span, w in ranges),
        lambda: points_have_their_laws("causal"),
    ),
    "rows are shown as soon as they are released": (
        publishing,
        "next_public_instant_us",
        lambda now_us, every_us: now_us + 1_000,
        nothing_is_early,
    ),
    "a repeated row of an engine counts again": (
        count_rows,
        "_why_not_next",
        lambda origins, number, epoch, sequence, rules: _why_not_next({}, number, epoch, sequence, rules),
        repeated_rows_count_once,
    ),
    "an origin of an engine that lags is not awaited": (
        count_rows,
        "_closed_bin",
        _closed_by_any_origin,
        test_engine_rows.test_a_bin_waits_for_every_origin_and_closes_right_after_the_row_of_the_last_one,
    ),
    "a cut of an engine's row lies before it": (
        count_rows,
        "Cut",
        lambda bin, position: Cut(bin, position - 2),
        repeated_rows_count_once,
    ),
    "every epoch fits the total": (SourceLedger, "fits", _always, epochs_fit_their_total),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, wrong, caught_by = MUTANTS[name]
    monkeypatch.setattr(owner, attribute, wrong)
    with pytest.raises((AssertionError, QueryError)):
        caught_by()
