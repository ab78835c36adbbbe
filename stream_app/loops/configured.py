"""Compares a stored strategy with the configured one, and refuses differences."""

from __future__ import annotations

from typing import Any

from stream_app.config.facts import fact_in_words
from stream_app.core.counting.where import Condition
from stream_app.core.counting.where import in_words as condition_in_words
from stream_app.core.declaration import Declaration
from stream_app.core.instants import format_instant
from stream_app.core.records import StreamState
from stream_app.core.segments.edges import differences, may_change, needs_segment
from stream_app.core.segments.history import in_words, read_strategy
from stream_app.core.segments.names import base_of
from stream_app.core.segments.strategies import unfinished_change
from stream_app.core.strategy import Strategy
from stream_app.ports import OperatorError
from stream_app.ports.errors import OvertakenError

_EPOCH = "time.epoch_bins"


def running_strategy(state: StreamState, planned: Strategy) -> Strategy:
    """Return the stored strategy.

    Raises: OperatorError if the configured one is another promise; OvertakenError if another worker has begun
        this segment elsewhere: no configuration says where a later one begins.
    """
    check_counted(planned.stream, state)
    running = stored_strategy(planned.stream, state.strategy)
    begun_us, first_us = running.declared.time.first_us, planned.declared.time.first_us
    if planned.number > 1 and begun_us is not None and begun_us != first_us:
        raise OvertakenError(
            f"stream {planned.base}: another worker has begun its generation {planned.number} at "
            f"{format_instant(begun_us)}; start this worker again"
        )
    _check_finished(running, state)
    check_change(running, planned)
    return running


def check_not_overtaken(state: StreamState | None, planned: Strategy) -> None:
    """Check that no other worker has begun a new segment with other settings. Raises: OvertakenError."""
    if state is None:
        return
    running = stored_strategy(planned.stream, state.strategy).declared
    if needs_segment(running, planned.declared):
        raise OvertakenError(
            f"stream {planned.base}: another worker has begun its generation {planned.number} with "
            f"{facts_in_words(planned.declared, running)}; start this worker again"
        )


def _check_finished(running: Strategy, state: StreamState) -> None:
    """Check that no change of an older release decides about records. Raises: OperatorError, one line."""
    if (bin := unfinished_change(state)) is not None:
        begins = format_instant(running.declared.time.binning.start_us(bin))
        raise OperatorError(
            f"stream {running.stream}: an older release announced that time.grace, time.max_ahead or late "
            f"changes at {begins}; run that release until this is over, or take the change back with it"
        )


def stored_strategy(stream: str, text: bytes) -> Strategy:
    """Return the strategy that the store holds for a stream. Raises: OperatorError if it cannot be read."""
    try:
        return Strategy.from_json(text)
    except ValueError as refusal:
        raise OperatorError(f"stream {stream}: {refusal}; give the new stream another name") from None


def check_change(running: Strategy, planned: Strategy) -> None:
    """Check that a strategy has the stored one's declaration; it may lack the tree. Raises: OperatorError."""
    if running.hash == planned.hash:
        return  # each closing asks, and a list of the differences takes long to make
    then, now = (
        {"ledger": strategy.source, "width": strategy.width} | strategy.declared.plain()
        for strategy in (running, planned)
    )
    for fact in sorted(differences(then, now), key=lambda fact: may_change(fact[0], running.declared)):
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


def facts_in_words(before: Declaration, now: Declaration) -> str:
    """Return each fact that differs between two declarations."""
    facts = {fact[0]: fact for fact in differences(before.plain(), now.plain())}
    if "time.bin_us" in facts:  # as many bins are another length, and other bins may be the same one
        facts[_EPOCH] = (_EPOCH, before.time.epoch_bins, now.time.epoch_bins)
    shown = dict.fromkeys(_both_in_words(fact, before, now) for fact in facts.values())
    return ", ".join(f"{key} {after} instead of {then}" for key, then, after in shown if then != after)


def _both_in_words(fact: tuple[str, Any, Any], before: Declaration, now: Declaration) -> tuple[str, str, str]:
    """Return the configuration's key of a fact that differs, and both values as written there."""
    path, then, after = fact
    if path.split(".")[0] == "where":
        return "where", _condition(before.where), _condition(now.where)
    key, was = fact_in_words(path, then, before.time)
    return key, was, fact_in_words(path, after, now.time)[1]


def _condition(where: Condition | None) -> str:
    if where is None:
        return "not set"
    return condition_in_words(where).removeprefix("where ").removeprefix("that match ")


def check_counted(stream: str, state: StreamState) -> None:
    """Check that a stream is not history. Raises: OperatorError, one line."""
    _, history = read_strategy(state.strategy)
    if history is not None:
        raise OperatorError(
            f"stream {stream}: it {in_words(history)}; take {base_of(stream)} out of the configuration, or "
            "give the new stream another name"
        )
