"""The table of segments: every case of what is known, what is configured, and the time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from stream_app.config import SourceSettings, StreamSettings
from stream_app.config.plans import planned
from stream_app.core.declaration import Declaration
from stream_app.core.records import EpochRecord, History, LedgerEntry, StreamState
from stream_app.core.segments.history import history_text
from stream_app.core.segments.names import generation, number_of
from stream_app.core.segments.plan import LEAD_US, KnownSegment, Segment, Segments, beginning_at, segments_of
from stream_app.core.strategy import Strategy
from tests.stream_app.declared import BIN_US, FIRST_BIN, SOURCE, STREAM, changed, declared_of

pytestmark = pytest.mark.slow

EPOCH = 60  # bins
EDGE = FIRST_BIN + EPOCH
LONG_BIN = {"bin_us": 4 * BIN_US, "epoch_bins": 15}
BEGUN = declared_of(epsilon=Fraction(1), first_us=FIRST_BIN * BIN_US, epoch_bins=EPOCH)

CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "same": {},
    "longer bins": {"time": LONG_BIN},
    "longer bins and another epsilon": {"time": LONG_BIN, "privacy": {"epsilon": Fraction(2)}},
    "another epsilon": {"privacy": {"epsilon": Fraction(2)}},
    "another tree": {"tree": {"branching": (60,)}},
    "another grace": {"time": {"grace_us": 3 * BIN_US}},
    "another late policy": {"late": "drop"},
    "no shared edge": {"time": {"bin_us": 7919 * BIN_US + 1, "epoch_bins": 1}},
    "another time field": {"time": LONG_BIN | {"field": "paid"}},
    "another source": {"time": LONG_BIN, "source": {"name": "file:other.ndjson"}},
    "another first bin": {"time": {"first_us": (FIRST_BIN - 7) * BIN_US}},
}
FIXED = {"another time field", "another source", "another first bin"}
STATES = (
    *("unknown", "lost", "running", "stopped", "end stored", "ended", "ended and shown", "history"),
    *("end stored for the next one", "ended for the next one"),
)
LEFT = STATES[-2:]  # the next one is not in the ledger
NOW = (FIRST_BIN + 3) * BIN_US, EDGE * BIN_US - LEAD_US, (EDGE - 1) * BIN_US


@cache  # thousands of cases have a few declarations
def plan_for(declared: Declaration) -> Strategy:
    """Return the planner's strategy."""
    return planned(StreamSettings(STREAM, SourceSettings(Path("visits.ndjson"), "earliest"), declared))


@cache
def known_in(state: str, name: str, begun: Declaration, end_bin: int) -> KnownSegment:
    """Return a segment in a state. Args: end_bin, where it ends, if its end is stored."""
    strategy = replace(plan_for(begun), stream=name)
    first_bin = begun.first_bin(0)
    if state == "unknown":
        return KnownSegment(name)
    if state == "lost":
        return KnownSegment(name, None, strategy, begun.time.first_us)
    ended = state.startswith("ended")
    text = strategy.to_json()
    return KnownSegment(
        name,
        StreamState(
            strategy=history_text(text, History(retired_us=1)) if state == "history" else text,
            epoch=EpochRecord(0, first_bin, end_bin - first_bin, 1, strategy.hash),
            seq=0,
            head="",
            released_bin=end_bin - 1 if ended else first_bin,
            sealed_bin=end_bin - 1 if ended else first_bin,
            counter=b"",
            stopped=ended or state == "stopped",
            until_bin=end_bin if ended or state.startswith("end stored") else None,
            late_from={} if state in LEFT else None,
        ),
        strategy,
        begun.time.first_us,
        is_shown=state == "ended and shown",
    )


@dataclass(frozen=True)
class Case:
    """One line of the table: the state of the newest segment, and what the configuration says."""

    state: str
    configuration: str
    earlier: str | None  # the state of the segment before, if there is one
    until: bool
    continued: bool
    now_us: int

    @property
    def known(self) -> list[KnownSegment]:
        """The known segments."""
        if self.earlier is None:
            return [known_in(self.state, STREAM, BEGUN, EDGE)]
        second = structs.replace(beginning_at(BEGUN, EDGE * BIN_US), successor_of=STREAM)
        newest = known_in(self.state, f"{STREAM}@2", second, EDGE + EPOCH)
        if self.state == "unknown":
            newest = replace(newest, first_us=EDGE * BIN_US)
        return [known_in(self.earlier, STREAM, BEGUN, EDGE), newest]

    def decided(self) -> Segments:
        """Return what the table decides."""
        declared = changed(BEGUN, **CONFIGURATIONS[self.configuration])
        until_us = 10 * EDGE * BIN_US if self.until else None
        entries, newest = list[LedgerEntry](), self.known[-1]
        if self.continued:
            facts = SOURCE, "after", 0, 10 * EDGE * BIN_US, 11 * EDGE * BIN_US, "1", "event", "h"
            entries = [LedgerEntry(*facts, successor_of=newest.name)]
        configured = Segment(STREAM, declared, until_us)
        return segments_of(configured, self.known, entries, self.now_us)

    @property
    def may_change(self) -> bool:
        """Whether another segment may follow the newest one."""
        if self.until or self.continued:
            return False
        if self.configuration == "same" or (self.configuration == "another first bin" and self.earlier):
            return self.state in LEFT
        if self.configuration in FIXED:
            return False
        return self.state in ("lost", "running", "stopped", "end stored", *LEFT)


EARLIER = (None, "unknown", "lost", "running", "ended", "ended and shown", "history")
CASES = [
    Case(state, configuration, earlier, until, continued, now_us)
    for state, configuration, earlier, until, continued, now_us in product(
        STATES, CONFIGURATIONS, EARLIER, (False, True), (False, True), NOW
    )
]


@pytest.mark.parametrize("state", STATES)
def test_each_known_segment_runs_or_has_ended(state: str) -> None:
    for case in (case for case in CASES if case.state == state):
        found, newest = case.decided(), case.known[-1].name
        names = [segment.name for segment in (*found.ended, *found.running)]
        counted = case.earlier not in (None, "unknown", "history")
        assert names == [STREAM, newest][not counted or newest == STREAM :], case
        assert [segment.name for segment in found.ended] == [STREAM] * (case.earlier == "ended and shown")
        for before, following in zip(found.running, found.running[1:], strict=False):
            assert before.until_us == following.declared.time.first_us, case


@pytest.mark.parametrize("state", STATES)
def test_a_next_segment_begins_only_where_the_table_says_so(state: str) -> None:
    for case in (case for case in CASES if case.state == state):
        found, newest = case.decided(), case.known[-1]
        has_edge = case.configuration != "no shared edge"
        assert (found.next is not None) == (case.may_change and has_edge), case
        assert (found.refused is not None) == (case.may_change and not has_edge), case
        assert not has_edge or found == case.decided()
        if found.refused is not None:
            assert "no bin begins where an epoch of the settings so far ends" in found.refused
        if not case.may_change:
            continue
        # What is stored runs on until then.
        assert newest.strategy is not None
        assert found.running[-1] == Segment(newest.name, newest.strategy.declared), case
        if found.next is not None:
            check_next(case, found, newest)


def check_next(case: Case, found: Segments, newest: KnownSegment) -> None:
    """Check a segment that is wanted next."""
    coming = found.next
    assert coming is not None
    declared, first_us = coming.segment.declared, coming.segment.declared.time.first_us
    assert coming.segment.name == generation(STREAM, number_of(newest.name) + 1)
    assert (declared.successor_of, first_us) == (newest.name, coming.edge_us)
    assert coming.is_stored == (case.state in ("end stored", *LEFT))
    assert coming.edge_us == edge_us(case), case
    assert coming.is_due(case.now_us) == (coming.is_stored or coming.edge_us - LEAD_US <= case.now_us)
    before, following = found.beginning(coming)[-2:]
    assert (before.until_us, following) == (coming.edge_us, coming.segment)
    assert found.beginning(None) == found.running
    refused = found.without({coming.segment.name: "it costs too much"})
    assert (refused.next, refused.running) == (None, found.running)
    assert refused.refused is not None
    assert refused.refused.endswith(": it costs too much")
    assert ("the stream ends at" in refused.refused) == coming.is_stored


def edge_us(case: Case) -> int:
    """Return where the next segment begins: at the epoch's end, which is an edge of all these bins.

    A stream that its total has stopped has no epoch to finish.
    """
    if case.state != "stopped":
        return (EDGE if case.earlier is None else EDGE + EPOCH) * BIN_US
    length_us = 4 * BIN_US if case.configuration.startswith("longer") else BIN_US
    ahead_us = case.now_us + 5_000_000
    return (ahead_us // BIN_US * BIN_US // length_us + 1) * length_us


def test_an_end_of_which_nobody_says_what_follows_is_reported() -> None:
    for case in CASES:
        unsaid = case.configuration == "same" and not case.until and not case.continued
        stored = case.state in ("end stored", "ended", "ended and shown")
        end = (EDGE if case.earlier is None else EDGE + EPOCH) * BIN_US
        alike = case.decided().abandoned_us
        if unsaid and stored:
            assert alike == end, case
        elif case.until or case.continued or not stored:
            assert alike is None, case
