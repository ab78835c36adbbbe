"""The worker warns in words while most records are refused, and knows which share was late."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, Gauge

from stream_app.core.counting.outcomes import LATE_BINS, SET_ASIDE
from stream_app.core.incoming import REMEDIES, Reason
from stream_app.core.store_writes import Apply
from stream_app.monitoring.shares import LEAST_LEFT_OUT, LEAST_REFUSED, OVER_S, LateShare, RefusedShare
from tests.contracts.examples import apply


def change(counted: int = 0, left_out: int = 0, expected: int = 0, **refused: int) -> Apply:
    """Return an accepted change with so many records of each kind."""
    set_aside = refused.get(SET_ASIDE, 0)
    return replace(
        apply(expected, expected + 1), records=counted + set_aside, left_out=left_out, operator_counts=refused
    )


class Seen:
    """Stream clicks at a time that the test sets."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.now_s, self.caplog = 0.0, caplog
        self.share = RefusedShare(lambda: self.now_s)

    def said(self, change: Apply) -> str:
        """Return what is logged because of a change."""
        self.caplog.clear()
        self.share.applied("clicks", change)
        return self.caplog.text


@pytest.fixture
def seen(caplog: pytest.LogCaptureFixture) -> Seen:
    return Seen(caplog)


@pytest.mark.parametrize("reason", sorted(set(Reason) - {Reason.TOMBSTONE}))
def test_most_records_refused_is_said_with_reason_and_remedy(seen: Seen, reason: str) -> None:
    said = seen.said(change(LEAST_REFUSED - 1, **{reason: LEAST_REFUSED}))
    assert "clicks: most records of the last 10 minutes were refused, mostly as " in said
    assert REMEDIES[reason][1] in said
    assert not any(digit in said.partition("refused, ")[2] for digit in "0123456789")


def test_records_from_before_the_stream_or_a_restore_do_not_alarm(seen: Seen) -> None:
    """A stream reads a log from its beginning, and again from the place that a copy of the store knew."""
    said = seen.said(change(before_first_bin=LEAST_REFUSED))
    assert "after a loss or restore of the store nothing is wrong: they have counted before" in said
    assert "if the events are newer, correct time.field" in said


def test_fewer_refused_than_counted_is_not_said(seen: Seen) -> None:
    assert not seen.said(change(LEAST_REFUSED, late=LEAST_REFUSED))
    assert not seen.said(change(LEAST_REFUSED, **{Reason.TOMBSTONE: 1_000, LATE_BINS: 1_000}))


def test_a_few_damaged_lines_are_not_said(seen: Seen) -> None:
    assert not seen.said(change(undecodable=LEAST_REFUSED - 1))


def test_the_most_frequent_reason_is_named(seen: Seen) -> None:
    assert "mostly as no_user" in seen.said(change(late=LEAST_REFUSED, no_user=LEAST_REFUSED + 1))


def test_records_from_the_future_are_named_when_they_are_set_aside(seen: Seen) -> None:
    assert "mostly as future" in seen.said(change(**{SET_ASIDE: LEAST_REFUSED}))


def test_it_is_said_again_while_it_lasts_and_forgotten_after_ten_minutes(seen: Seen) -> None:
    assert seen.said(change(late=LEAST_REFUSED))
    seen.now_s = 300
    assert seen.said(change(late=1))
    seen.now_s = 905
    assert not seen.said(change(late=1))
    assert not seen.said(change(counted=1))


def test_a_condition_that_nothing_matches_is_said(seen: Seen) -> None:
    assert not seen.said(change(left_out=LEAST_LEFT_OUT - 1))
    assert "matched the stream's condition; correct where" in seen.said(change(left_out=1))
    assert not seen.said(change(counted=1, left_out=LEAST_LEFT_OUT))


def test_nothing_counted_is_known_of_a_whole_log_only(seen: Seen) -> None:
    assert seen.share.nothing_counted("clicks") is None  # nothing was read
    seen.share.applied("clicks", change(before_first_bin=1))
    why = seen.share.nothing_counted("clicks")
    assert why is not None
    assert why.startswith("clicks: nothing was counted, every record was refused (before_first_bin: ")
    assert seen.share.nothing_counted("other") is None
    seen.share.applied("clicks", change(counted=1))
    assert seen.share.nothing_counted("clicks") is None
    seen.share.applied("later", change(expected=5, late=1))  # another process read the beginning
    assert seen.share.nothing_counted("later") is None


def test_nothing_in_the_range_is_known_of_a_stream_that_this_process_began(seen: Seen) -> None:
    why = seen.share.nothing_counted("clicks", anew=True)
    range_edges = "source.replay.from and source.replay.to"
    assert why == (
        f"clicks: nothing was counted, no record lies in the range; correct {range_edges}, or time.field"
    )
    seen.share.applied("clicks", change(left_out=1))  # a record was there, and the condition decided about it
    assert seen.share.nothing_counted("clicks", anew=True) is None
    seen.share.applied("clicks", change(counted=1))
    assert seen.share.nothing_counted("clicks", anew=True) is None


def test_late_share_is_of_the_records_of_the_last_ten_minutes() -> None:
    now_s, registry = 1_000.0, CollectorRegistry()
    late_share = LateShare(Gauge("late_share", "", ["stream"], registry=registry), lambda: now_s)
    late_share.know("clicks")

    def share(seconds: float, records: int, **counts: int) -> float:
        nonlocal now_s
        now_s = 1_000 + seconds
        change = replace(apply(0, 5), records=records, operator_counts=counts)
        late_share.applied("clicks", change)
        shown = registry.get_sample_value("late_share", {"stream": "clicks"})
        assert shown is not None
        return shown

    assert share(0, 0) == 0
    assert share(10, 200, late_within_60=10) == pytest.approx(0.05)
    assert share(20, 190, late=10, late_longer=10) == pytest.approx(0.05)  # these are refused
    assert share(300, 0, unknown_key=1000) == pytest.approx(0.05)
    assert share(OVER_S + 14, 200) == pytest.approx(10 / 400)
    assert share(OVER_S + 100, 0) == 0
