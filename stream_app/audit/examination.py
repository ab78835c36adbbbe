"""The audit of a configuration: what is stored, what neighbouring logs show, what outputs show."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from dphist import SystemNoise
from stream_app.audit.black_box import SLACK, count_outputs
from stream_app.audit.checks import Check
from stream_app.audit.collecting import collect
from stream_app.audit.neighbours import GreyBox, trees_of
from stream_app.audit.rehearsal import Rehearsal
from stream_app.audit.stored import check_source, check_stored
from stream_app.config import Settings, StreamSettings
from stream_app.core.ledger import in_words
from stream_app.ports import OperatorError

_FIRST_US = 1_704_067_200_000_000  # the made-up records are of January 2024
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Depth:
    """How much is done. Args: bins, of a rehearsed epoch; seed, of made-up records and of coins."""

    bins: int
    seed: int


def examine(settings: Settings, depth: Depth, tell: Tell) -> Iterator[Check]:
    """Yield every check, each when it is done. Args: tell, takes a line about what is being done."""
    tell("reading the store, the witness and the ledger")
    yield from _stored(settings)
    for stream in settings.streams:
        yield from _rehearsed(settings, stream, depth, tell)


def _stored(settings: Settings) -> Iterator[Check]:
    found = asyncio.run(collect(settings))
    for stored in found:
        yield from check_stored(stored)
    for source, entries in {one.strategy.source: one.ledger for one in found}.items():
        yield check_source(source, entries)
    opened = {one.strategy.stream for one in found}
    for stream in settings.streams:
        if stream.name not in opened:
            yield Check("stored", stream.name, "Stored releases are checked", None, "it was never started")


def _rehearsed(settings: Settings, stream: StreamSettings, depth: Depth, tell: Tell) -> Iterator[Check]:
    grey = "Neighbouring logs cannot be told apart by more than the stated loss"
    black = "Outputs show the stated loss, and would show a larger one"
    if stream.declared.privacy.delta is not None:
        why = "rehearsals are not built yet for approximate streams; tests hold their mechanism to its mu"
        yield Check("grey box", stream.name, grey, None, why)
        return
    if stream.declared.windows_of is not None:
        why = "its windows have mechanisms whose loss does not follow from differences of counts"
        yield Check("grey box", stream.name, grey, None, why)
        return
    try:
        rehearsal = Rehearsal.of(settings, stream, depth.bins, _FIRST_US)
    except OperatorError as refusal:
        yield Check("grey box", stream.name, grey, None, f"no plan for {depth.bins} bins: {refusal}")
        return
    tell(f"{stream.name}: neighbouring logs through the pipeline")
    for pair in GreyBox(rehearsal, depth.seed).losses():
        epsilon = rehearsal.strategy.epsilon
        private = pair.loss <= epsilon and pair.mu_squared == 0 and pair.same_bytes
        said = f"{pair.what}: loss {_decimal(pair.loss)} of {in_words(epsilon)}, over {pair.moved} numbers"
        other = "" if pair.same_bytes else "; the outputs differ in something else than counts with noise"
        yield Check("grey box", stream.name, grey, private, said + other)
    tell(f"{stream.name}: outputs, counted")
    trees = [design for design, _ in trees_of(rehearsal.strategy)]
    stated = _stated(rehearsal)
    counted = count_outputs(trees, stated, depth.bins // 2, SystemNoise(), depth.seed)
    low, high = counted.bounds
    said = (
        f"{counted.units} units: loss between {low:.3f} and {high:.3f}, stated {_decimal(counted.stated)}; "
        f"stated / {SLACK:g} is {counted.tighter or 'undecided'}; {counted.runs:,} runs"
    )
    yield Check("black box", stream.name, black, counted.passed, said)


def _stated(rehearsal: Rehearsal) -> Fraction:
    """Return the epsilon of the trees over time, without that of levels over epochs."""
    levels = rehearsal.strategy.kind.levels
    return rehearsal.strategy.epsilon if levels is None else levels.epoch.epsilon


def _decimal(loss: Fraction) -> str:
    return f"{float(loss):.6g}"
