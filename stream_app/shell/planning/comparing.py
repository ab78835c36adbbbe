"""``stream-app plan``: compare each stream's tree with other ways to count, or find a smallest epsilon."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from msgspec import structs
from rich.table import Table

from dphist.planning.candidates import Candidate, candidate_of, candidates, smallest_epsilon
from dphist.planning.report import candidate_table, in_decimals
from dphist.toeplitz.estimate import mean_squared_error
from dphist.tree.design import TreeDesign
from stream_app.config import Settings, StreamSettings
from stream_app.config.plans import planned
from stream_app.core.costs import USUAL_DELTA
from stream_app.core.kinds import Kind, Measuring
from stream_app.core.kinds.toeplitz import Toeplitz
from stream_app.core.promise import promise_in_words
from stream_app.ports import OperatorError

_THIS_STREAM = "this stream"  # label of the configured design


def chosen_streams(settings: Settings, name: str | None) -> tuple[StreamSettings, ...]:
    """Return the stream of a name, or all streams. Raises: OperatorError for an unknown name."""
    found = tuple(stream for stream in settings.streams if name in (None, stream.name))
    if not found:
        known = ", ".join(stream.name for stream in settings.streams)
        raise OperatorError(f"--stream {name}: not in this configuration; it has {known}")
    return found


def comparisons(streams: tuple[StreamSettings, ...]) -> Iterator[Table]:
    """Yield a comparison of each stream's tree with other ways to count."""
    for stream in streams:
        if stream.declared.privacy.delta is not None:
            continue
        counted, workload = _Counted.by(stream), stream.declared.tree.workload
        own = candidate_of(_THIS_STREAM, counted.design, workload, counted.width)
        rows = [*_candidates(stream, counted), own]
        yield candidate_table(rows, counted.title(stream), workload, _THIS_STREAM)


def epsilons_for(streams: tuple[StreamSettings, ...], error: float) -> Iterator[str]:
    """Yield the smallest epsilon of each stream with at most this error. Cost: about six plans per stream."""
    for stream in streams:

        def reached(epsilon: Fraction, stream: StreamSettings = stream) -> float:
            asked = replace(stream, declared=stream.declared.at_epsilon(epsilon))
            if stream.declared.privacy.delta is not None:
                return typical_error(planned(asked).kind)
            return math.sqrt(_Counted.by(asked).design.mean_squared_error(stream.declared.tree.workload))

        try:
            epsilon = smallest_epsilon(error, reached)
        except ValueError as refusal:
            raise OperatorError(f"--target-rmse: streams.{stream.name}: {refusal}") from None
        approximate = stream.declared.privacy.delta is not None
        cell = ("one key" * bool(stream.declared.keys)) if approximate else _Counted.by(stream).cell
        of = f" in the count of {cell}" if cell else " within an epoch" if stream.declared.tree.epochs else ""
        yield (
            f"{stream.name}: epsilon {in_decimals(epsilon)} is the smallest with an error of at most "
            f"{error:g} events{of} ({stream.declared.tree.workload}, root mean square); "
            f"it is {in_decimals(stream.declared.privacy.epsilon)} now"
        )


@dataclass(frozen=True)
class _Counted:
    """The counts of a stream's trees over time: all events in one tree, or each cell in its own tree."""

    design: TreeDesign  # of one tree
    epsilon: Fraction  # of one tree, a part of the stream's epsilon
    width: int = 1  # the number of trees
    cell: str = ""  # the counts of one tree, in words; empty if it counts all events
    rest: str = ""  # the use of the rest of epsilon, in words

    @classmethod
    def by(cls, stream: StreamSettings) -> _Counted:
        """Return the counts that a stream's plan makes. Raises: OperatorError if no plan fits."""
        kind = planned(stream).kind
        if kind.product:
            cell, cells = kind.product.groups[-1].design, stream.declared.cells
            axes = [name for name, axis in (("bucket", cells.buckets), ("key", cells.keys)) if axis]
            if cells.amounts:
                cell = replace(cell, sensitivity=cell.sensitivity // cells.weight)  # its errors in events
                axes.insert(0, "end of the sum's range")
            names = " of ".join(f"one {name}" for name in axes)
            rest = "numbers of users" if isinstance(kind, Measuring) else "other levels of the axes"
            return cls(cell, cell.epsilon, kind.product.columns, names, rest)
        tree = kind.tree_design
        assert tree is not None  # kinds without a tree have another table
        if kind.windows:
            return cls(tree, kind.epsilon * (1 - kind.windows.share), rest="windows")
        rest = "users by their numbers of events" if isinstance(kind, Measuring) else "levels over epochs"
        return cls(tree, tree.epsilon, rest=rest)  # all of it, without either

    def title(self, stream: StreamSettings) -> str:
        """Return the comparison's title: which errors it compares, and at which epsilon."""
        epsilon = in_decimals(stream.declared.privacy.epsilon)
        if self.epsilon != stream.declared.privacy.epsilon:
            epsilon = f"{float(self.epsilon):.3g} of {epsilon} (the rest: {self.rest})"
        said = f"{stream.name}: {stream.declared.time.epoch_bins:,} bins per epoch, epsilon {epsilon}"
        if self.cell:
            said += f"\nerrors: of the count of {self.cell}, by its own noise; "
            said += f"all else: of all {self.width:,} columns"
        return said


def _candidates(stream: StreamSettings, counted: _Counted) -> Iterator[Candidate]:
    privacy = stream.declared.privacy
    try:
        yield from candidates(
            stream.declared.time.epoch_bins,
            counted.epsilon,
            stream.declared.tree.workload,
            privacy.neighbours,
            privacy.max_events,
            counted.width,
        )
    except ValueError as refusal:
        raise OperatorError(f"streams.{stream.name}.tree: {refusal}") from None


@dataclass(frozen=True)
class Modes:
    """A stream's plans in both modes."""

    stream: StreamSettings
    delta: Fraction
    pure: float  # the root of the mean squared error of one column's running count, over all bins
    approximate: float  # likewise
    break_even: int  # from so many keys on, with one event of a user in each, approximate is more exact

    @classmethod
    def of(cls, stream: StreamSettings) -> Modes | None:
        """Return both plans; None if the stream is not private, or excludes the other mode."""
        delta = stream.declared.privacy.delta or USUAL_DELTA
        if not (stream.declared.privacy.private and _fits_both(stream)):
            return None
        try:
            pure, approximate, one_pure, one_approximate = (
                typical_error(planned(_with(each, mode)).kind)
                for each in (stream, _with_one_event(stream))
                for mode in (None, delta)
            )
        except OperatorError:  # no plan in one of the modes: nothing to compare
            return None
        # With an event in each of k keys, the pure error is k times as large, the other sqrt(k) times.
        break_even = max(1, math.floor((one_approximate / one_pure) ** 2) + 1)
        return cls(stream, delta, pure, approximate, break_even)

    def sentence(self) -> str:
        """Return a sentence on which questions each mode answers better."""
        smaller, factor = "approximate", self.pure / self.approximate
        if factor < 1:
            smaller, factor = "pure", 1 / factor
        chosen = "pure" if self.stream.declared.privacy.delta is None else "approximate"
        spread = (
            "whatever the number of keys that one person is in"
            if self.break_even == 1
            else f"where one person is in {self.break_even:,} keys or more"
        )
        return (
            f"{self.stream.name}: the {smaller} mode has the smaller error here, {factor:.3g} times smaller. "
            f"At this epsilon, epoch and delta, approximate is more exact {spread}, with one event in each. "
            "Pure is better where nothing may ever exceed epsilon: its counts have no delta. "
            f"This configuration is {chosen}; privacy.delta decides."
        )


def typical_error(kind: Kind) -> float:
    """Return the root of the mean squared error of one column's running count, over all bins of an epoch."""
    if isinstance(kind, Toeplitz):
        return math.sqrt(mean_squared_error(kind.toeplitz))
    tree = kind.product.groups[-1].design if kind.product else kind.tree_design
    assert tree is not None
    return math.sqrt(tree.mean_squared_error())


def modes_table(streams: Sequence[StreamSettings]) -> Iterator[Table]:
    """Yield a table of both modes, if a stream has both."""
    rows = [modes for modes in map(Modes.of, streams) if modes is not None]
    if not rows:
        return
    of = "of the running count of all events, or of one key; root mean square over all bins, in events"
    table = Table(
        "stream",
        "pure",
        "RMSE",
        "approximate",
        "RMSE",
        "break-even",
        title="Both modes of the promise",
        title_justify="left",
        caption=f"RMSE: {of}\nbreak-even: from so many keys of one person on, one event in each, "
        "the approximate error is smaller",
        caption_justify="left",
    )
    for one in rows:
        epsilon = one.stream.declared.privacy.epsilon
        table.add_row(
            one.stream.name,
            promise_in_words(epsilon, _with(one.stream, None).declared.delta),
            f"{one.pure:,.1f}",
            promise_in_words(epsilon, one.delta),
            f"{one.approximate:,.1f}",
            f"{one.break_even:,} key" + ("s" if one.break_even > 1 else ""),
        )
    yield table


def mode_sentences(streams: Sequence[StreamSettings]) -> Iterator[str]:
    """Yield, for each stream that has both modes, which questions each of them answers better."""
    yield from (modes.sentence() for modes in map(Modes.of, streams) if modes is not None)


def _fits_both(stream: StreamSettings) -> bool:
    declared = stream.declared
    total = declared.keys is not None and bool(declared.keys.total)
    return not (declared.value or declared.amounts or declared.windows_of or declared.tree.epochs or total)


def _with(stream: StreamSettings, delta: Fraction | None) -> StreamSettings:
    privacy = structs.replace(stream.declared.privacy, delta=delta)
    return replace(stream, declared=structs.replace(stream.declared, privacy=privacy))


def _with_one_event(stream: StreamSettings) -> StreamSettings:
    privacy = structs.replace(stream.declared.privacy, unit="event")
    return replace(stream, declared=structs.replace(stream.declared, privacy=privacy))
