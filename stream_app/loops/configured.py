"""Compares a stored strategy with the configured one: what is equal, what may change, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from stream_app.config.facts import fact_in_words
from stream_app.core.arrival import Arrival
from stream_app.core.instants import format_instant
from stream_app.core.records import StreamState
from stream_app.core.segments.history import in_words, read_strategy
from stream_app.core.segments.names import base_of
from stream_app.core.segments.strategies import (
    announced_bin,
    may_announce,
    may_begin_anew,
    may_change,
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
    facts = _fixed_facts(running, planned)
    for fact in sorted(facts, key=lambda fact: may_begin_anew(fact[0], running)):
        key, before, after = _both_in_words(fact, running, planned)
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


def needs_generation(running: Strategy, planned: Strategy) -> bool:
    """Return whether the planned settings need, and may have, the next generation of the stream."""
    facts = _fixed_facts(running, planned)
    return bool(facts) and all(may_begin_anew(fact[0], running) for fact in facts)


def _fixed_facts(running: Strategy, planned: Strategy) -> list[tuple[str, Any, Any]]:
    """Return the facts that differ, and that no later epoch of the stream may change."""
    then, now = (
        {"ledger": strategy.source, "width": strategy.width} | strategy.declared.plain()
        for strategy in (running, planned)
    )
    return [fact for fact in differences(then, now) if not may_change(fact[0], running, planned)]


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
    return [f"{wanted.stream}: from {begins} on, with its next epoch: {facts_in_words(running, planned)}"]


def arrival_in_words(running: Strategy, wanted: Strategy, state: StreamState, now_us: int) -> list[str]:
    """Return the line about the change that is announced, or that these settings announce; or none."""
    name, time, goal = wanted.stream, wanted.declared.time, wanted.declared.arrival
    planned, pending = _with_arrival(running, goal), pending_change(state)
    if pending is None:
        if goal == running.declared.arrival:
            return []
        bin, facts = announced_bin(running, state, now_us), facts_in_words(running, planned)
        if state.until_bin is not None and bin >= state.until_bin:
            return [f"{name}: it ends before these settings could begin: {facts}"]
        is_over = state.change is None or state.change.is_over(state.released_bin)
        on = "on" if is_over else "on at the earliest"
        begins = format_instant(time.binning.start_us(bin))
        return [f"{name}: from {begins} {on}, with a new epoch: {facts}"]
    begins = format_instant(time.binning.start_us(pending.bin))
    announced = facts_in_words(running, _with_arrival(running, pending.after))
    if not may_announce(running, state, pending.bin, now_us):
        too_late = "; it is too late to change this, and this file's settings follow later"
        said = f"{name}: from {begins} on, with a new epoch: {announced}"
        return [said if goal == pending.after else said + too_late]
    if goal == running.declared.arrival:
        return [f"{name}: this file takes back the change announced for {begins} ({announced})"]
    end = format_instant(running.declared.time.closing.instant_us(pending.last_cut_bin))
    facts = facts_in_words(running, planned)
    until = f"until {end}, the old settings can be put back"
    return [f"{name}: from {begins} on, with a new epoch: {facts}; {until}"]


def _with_arrival(strategy: Strategy, arrival: Arrival) -> Strategy:
    return replace(strategy, declared=strategy.declared.with_arrival(arrival))


def facts_in_words(before: Strategy, now: Strategy) -> str:
    """Return each declared fact that differs between two strategies."""
    facts = {fact[0]: fact for fact in differences(before.declared.plain(), now.declared.plain())}
    if "time.bin_us" in facts:  # as many bins are another length, and other bins may be the same one
        facts[_EPOCH] = (_EPOCH, before.declared.time.epoch_bins, now.declared.time.epoch_bins)
    shown = (_both_in_words(fact, before, now) for fact in facts.values())
    return ", ".join(f"{key} {after} instead of {then}" for key, then, after in shown if then != after)


def _both_in_words(fact: tuple[str, Any, Any], before: Strategy, now: Strategy) -> tuple[str, str, str]:
    """Return the configuration's key of a fact that differs, and both values as written there."""
    path, then, after = fact
    key, was = fact_in_words(path, then, before.declared.time)
    return key, was, fact_in_words(path, after, now.declared.time)[1]


def check_counted(stream: str, state: StreamState) -> None:
    """Check that a stream is not history. Raises: OperatorError, one line."""
    _, history = read_strategy(state.strategy)
    if history is not None:
        raise OperatorError(
            f"stream {stream}: it {in_words(history)}; take {base_of(stream)} out of the configuration, or "
            "give the new stream another name"
        )


def differences(then: object, now: object, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the path of each fact that differs between two JSON values, and both values."""
    if isinstance(then, dict) and isinstance(now, dict):
        for key in sorted(then.keys() | now.keys()):
            yield from differences(then.get(key), now.get(key), f"{path}.{key}" if path else key)
    elif then != now:
        yield path, then, now
