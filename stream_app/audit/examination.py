"""The audit of a configuration: stored data, then neighbouring logs, then outputs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from dphist import SystemNoise
from dphist.toeplitz import ToeplitzDesign
from stream_app.audit.black_box import SLACK, count_gaussian_outputs, count_outputs
from stream_app.audit.collecting import collect
from stream_app.audit.neighbours import GreyBox, NamesLoss, PairLoss, trees_of
from stream_app.audit.rehearsal import Rehearsal
from stream_app.audit.report import Check, Measured
from stream_app.audit.stored import check_source, check_stored
from stream_app.config import Settings, StreamSettings
from stream_app.core.kinds import Measuring
from stream_app.core.kinds.approximate_discovering import DiscoveringToeplitz
from stream_app.core.kinds.toeplitz import Toeplitz
from stream_app.core.promise import in_words
from stream_app.core.strategy import Strategy
from stream_app.ports import OperatorError

_FIRST_US = 1_704_067_200_000_000  # the made-up records are of January 2024
_ROUNDING = 1e-6  # of an integrated law, in doubles
_NEIGHBOURS = "Neighbouring logs cannot be told apart by more than the stated loss"
_COUNTED = "Outputs show the stated loss, and would show a larger one"
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Depth:
    """The extent of an audit. Args: bins, of a rehearsed epoch; seed, of made-up records and of coins."""

    bins: int
    seed: int


def examine(settings: Settings, depth: Depth, tell: Tell) -> Iterator[Check]:
    """Yield every check, each when it is done. Args: tell, takes a line about the present step."""
    tell("reading the store, the witness and the ledger")
    yield from _stored(settings)
    for stream in settings.streams:
        yield from rehearsed(settings, stream, depth, tell)


def _stored(settings: Settings) -> Iterator[Check]:
    found = asyncio.run(collect(settings))
    for stored in found:
        yield from check_stored(stored)
    for source, entries in {one.strategy.source: one.ledger for one in found}.items():
        yield from check_source(source, entries)
    opened = {one.strategy.stream for one in found}
    for stream in settings.streams:
        if stream.name not in opened:
            yield Check("stored", stream.name, "Stored releases are checked", None, "it was never started")


def rehearsed(settings: Settings, stream: StreamSettings, depth: Depth, tell: Tell) -> Iterator[Check]:
    if stream.declared.windows_of is not None:
        why = "its windows have mechanisms whose loss does not follow from differences of counts"
        yield Check("grey box", stream.name, _NEIGHBOURS, None, why)
        return
    try:
        rehearsal = Rehearsal.of(settings, stream, depth.bins, _FIRST_US)
    except OperatorError as refusal:
        yield Check("grey box", stream.name, _NEIGHBOURS, None, f"no plan for {depth.bins} bins: {refusal}")
        return
    tell(f"{stream.name}: neighbouring logs through the pipeline")
    for pair in GreyBox(rehearsal, depth.seed).losses():
        yield _compared(rehearsal.strategy, pair)
    tell(f"{stream.name}: outputs, counted")
    kind = rehearsal.strategy.kind
    if stream.declared.finds_keys:
        return  # its counts are drawn as those of other kinds, and tests count its names
    if not stream.declared.privacy.private:
        why = "it says not_private: true; no number of runs shows so large an epsilon"
        yield Check("black box", stream.name, _COUNTED, None, why)
    elif isinstance(kind, Toeplitz):
        yield _counted_gaussian(stream.name, kind.toeplitz, depth.seed)
    else:
        yield _counted(rehearsal, depth)


def _compared(strategy: Strategy, pair: PairLoss) -> Check:
    mu = strategy.kind.mu
    if pair.names is not None:
        return _compared_names(strategy, pair, pair.names)
    if mu is None:
        kept = pair.loss <= strategy.epsilon and pair.mu_squared == 0
        cost = f"loss {_decimal(pair.loss)} of {in_words(strategy.epsilon)}"
        stated, loss = float(strategy.epsilon), float(pair.loss)
    else:
        kept = pair.mu_squared <= mu**2 and pair.loss == 0
        stated, loss = float(mu), float(pair.mu_squared) ** 0.5
        cost = f"mu {loss:.6g} of {stated:.6g}"
    other = "" if pair.same_bytes else "; the outputs differ in something else than counts with noise"
    said = f"{pair.what}: {cost}, over {pair.moved} numbers{other}"
    measured = Measured(stated, loss, loss)
    return Check("grey box", strategy.stream, _NEIGHBOURS, kept and pair.same_bytes, said, measured)


def _compared_names(strategy: Strategy, pair: PairLoss, names: NamesLoss) -> Check:
    loss, epsilon, delta = (
        float(pair.loss) + names.loss,
        float(strategy.epsilon),
        float(strategy.kind.delta or 0),
    )
    mu = 0.0
    if isinstance(kind := strategy.kind, DiscoveringToeplitz):
        epsilon, delta = float(kind.rule.epsilon), float(kind.rule.delta)
        mu = float(sum(design.mu**2 for design, _ in kind.mechanisms)) ** 0.5
    of_counts = float(pair.mu_squared) ** 0.5
    kept = loss <= epsilon * (1 + _ROUNDING) and names.delta <= delta and of_counts <= mu and pair.same_bytes
    said = (
        f"{pair.what}: loss {loss:.6g} of {epsilon:.6g}, {names.loss:.6g} by names; "
        f"delta {names.delta:.3g} of {delta:.3g}; {f'mu {of_counts:.6g} of {mu:.6g}; ' if mu else ''}"
        f"over {pair.moved} numbers and {names.keys} keys"
    )
    return Check("grey box", strategy.stream, _NEIGHBOURS, kept, said, Measured(epsilon, loss, loss))


def _counted(rehearsal: Rehearsal, depth: Depth) -> Check:
    trees = [design for design, _ in trees_of(rehearsal.strategy)]
    counted = count_outputs(trees, _stated(rehearsal), depth.bins // 2, SystemNoise(), depth.seed)
    low, high = counted.bounds
    said = (
        f"{counted.units} units: loss between {low:.3f} and {high:.3f}, stated {_decimal(counted.stated)}; "
        f"stated / {SLACK:g} is {counted.tighter or 'undecided'}; {counted.runs:,} runs"
    )
    measured = Measured(float(counted.stated), low, high)
    return Check("black box", rehearsal.strategy.stream, _COUNTED, counted.passed, said, measured)


def _counted_gaussian(name: str, design: ToeplitzDesign, seed: int) -> Check:
    counted = count_gaussian_outputs(design, SystemNoise(), seed)
    said = (
        f"{counted.events} events: mu between {counted.low:.3f} and {counted.high:.3f}, stated "
        f"{counted.stated:.3f}; {counted.runs:,} runs"
    )
    measured = Measured(counted.stated, counted.low, counted.high)
    return Check("black box", name, _COUNTED, counted.passed, said, measured)


def _stated(rehearsal: Rehearsal) -> Fraction:
    """Return the epsilon of the trees over time, without that of levels over epochs and numbers of users."""
    kind = rehearsal.strategy.kind
    if isinstance(kind, Measuring):
        return kind.tree.epsilon
    return kind.epsilon if kind.levels is None else kind.levels.epoch.epsilon


def _decimal(loss: Fraction) -> str:
    return f"{float(loss):.6g}"
