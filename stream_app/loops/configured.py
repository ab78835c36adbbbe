"""Compares a stored strategy with the configured one: what is equal, what may change, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stream_app.config.facts import fact_in_words
from stream_app.core.arrival import Arrival
from stream_app.core.declaration import Declaration
from stream_app.core.instants import format_instant
from stream_app.core.records import StreamState
from stream_app.core.segments.history import in_words, read_strategy
from stream_app.core.segments.names import base_of
from stream_app.core.segments.strategies import (
    announced_bin,
    differences,
    fixed_facts,
    may_announce,
    may_begin_anew,
    pending_change,
)
from stream_app.core.strategy import Strategy
from stream_app.ports import OperatorError

_EPOCH = "time.epoch_bins"


def running_strategy(state: StreamState, planned: Strategy) -> Strategy:
    """Return the stored strategy. Raises: OperatorError if the configured one may not follow it."""
    check_counted(planned.stream, state)
    running = stored_strategy(planned.stream, state.strategy)
    check_change(running, planned)
    return running


def stored_strategy(stream: str, text: bytes) -> Strategy:
    """Return the strategy that the store holds for a stream. Raises: OperatorError if it cannot be read."""
    try:
        return Strategy.from_json(text)
    except ValueError as refusal:
        raise OperatorError(f"stream {stream}: {refusal}; give the new stream another name") from None


def check_change(running: Strategy, planned: Strategy) -> None:
    """Check that a strategy may follow another one, or is declared alike. Raises: OperatorError."""
    if running.hash == planned.hash:
        return  # each closing asks, and a list of the differences takes long to make
    facts = fixed_facts(running, planned)
    for fact in sorted(facts, key=lambda fact: may_begin_anew(fact[0], running)):
        key, before, after = _both_in_words(fact, running.declared, planned.declared)
        if key == "source.state_id":
            if running.declared.source.state_id is None:
                continue  # the stream began before state directories had ids
            raise OperatorError(
                f"stream {planned.stream}: its file is counted from another state directory, whose file id "
                f"holds {before} (here {after}); go on with that one, or give the new stream another name"
            )
        raise OperatorError(
            f"stream {planned.stream}: {key} was {before} when the stream began and is {after} now; put it "
            f"back, or give the new stream another name{_continuing(running, planned)}"
        )


def _continuing(running: Strategy, planned: Strategy) -> str:
    """Return how the new stream continues the running one; empty if it cannot."""
    before, after = running.declared, planned.declared
    if after.until_us is not None or after.cannot_succeed(planned.stream, before) is not None:
        return ""
    return ", with successor_of to continue this one"


def changes_in_words(running: Strategy, wanted: Strategy, state: StreamState, now_us: int) -> list[str]:
    """Return what a start with these settings changes, and from when on, a line; none if nothing changes."""
    return [*releases_in_words(running, wanted, state), *arrival_in_words(running, wanted, state, now_us)]


def releases_in_words(running: Strategy, wanted: Strategy, state: StreamState) -> list[str]:
    """Return the line about settings that change with the next epoch; none if none does."""
    planned = _with_arrival(wanted, running.declared.arrival)
    if running.declared == planned.declared:
        return []
    following = state.epoch.first_bin + state.epoch.bins
    if state.epoch.last_bin is not None:
        following = max(state.released_bin, state.epoch.last_bin) + 1
    begins = format_instant(wanted.declared.time.binning.start_us(following))
    facts = facts_in_words(running.declared, planned.declared)
    return [f"{wanted.stream}: from {begins} on, with its next epoch: {facts}"]


def arrival_in_words(running: Strategy, wanted: Strategy, state: StreamState, now_us: int) -> list[str]:
    """Return the line about the change that is announced, or that these settings announce; or none."""
    name, time, goal = wanted.stream, wanted.declared.time, wanted.declared.arrival
    planned, pending = _with_arrival(running, goal), pending_change(state)
    if pending is None:
        if goal == running.declared.arrival:
            return []
        bin, facts = announced_bin(running, state, now_us), facts_in_words(running.declared, planned.declared)
        if state.until_bin is not None and bin >= state.until_bin:
            return [f"{name}: it ends before these settings could begin: {facts}"]
        is_over = state.change is None or state.change.is_over(state.released_bin)
        on = "on" if is_over else "on at the earliest"
        begins = format_instant(time.binning.start_us(bin))
        return [f"{name}: from {begins} {on}, with a new epoch: {facts}"]
    begins = format_instant(time.binning.start_us(pending.bin))
    announced = facts_in_words(running.declared, running.declared.with_arrival(pending.after))
    if not may_announce(running, state, pending.bin, now_us):
        too_late = "; it is too late to change this, and this file's settings follow later"
        said = f"{name}: from {begins} on, with a new epoch: {announced}"
        return [said if goal == pending.after else said + too_late]
    if goal == running.declared.arrival:
        return [f"{name}: this file takes back the change announced for {begins} ({announced})"]
    end = format_instant(running.declared.time.closing.instant_us(pending.last_cut_bin))
    facts = facts_in_words(running.declared, planned.declared)
    until = f"until {end}, the old settings can be put back"
    return [f"{name}: from {begins} on, with a new epoch: {facts}; {until}"]


def _with_arrival(strategy: Strategy, arrival: Arrival) -> Strategy:
    return replace(strategy, declared=strategy.declared.with_arrival(arrival))


def facts_in_words(before: Declaration, now: Declaration) -> str:
    """Return each fact that differs between two declarations."""
    facts = {fact[0]: fact for fact in differences(before.plain(), now.plain())}
    if "time.bin_us" in facts:  # as many bins are another length, and other bins may be the same one
        facts[_EPOCH] = (_EPOCH, before.time.epoch_bins, now.time.epoch_bins)
    shown = (_both_in_words(fact, before, now) for fact in facts.values())
    return ", ".join(f"{key} {after} instead of {then}" for key, then, after in shown if then != after)


def _both_in_words(fact: tuple[str, Any, Any], before: Declaration, now: Declaration) -> tuple[str, str, str]:
    """Return the configuration's key of a fact that differs, and both values as written there."""
    path, then, after = fact
    key, was = fact_in_words(path, then, before.time)
    return key, was, fact_in_words(path, after, now.time)[1]


def check_counted(stream: str, state: StreamState) -> None:
    """Check that a stream is not history. Raises: OperatorError, one line."""
    _, history = read_strategy(state.strategy)
    if history is not None:
        raise OperatorError(
            f"stream {stream}: it {in_words(history)}; take {base_of(stream)} out of the configuration, or "
            "give the new stream another name"
        )
