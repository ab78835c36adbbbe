"""``stream-app plan``: compare each stream's tree with other ways to count, or find a smallest epsilon."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from rich.table import Table

from dphist.planning.candidates import Candidate, candidate_of, candidates, smallest_epsilon
from dphist.planning.report import candidate_table, in_decimals
from dphist.tree.design import TreeDesign
from stream_app.config import Settings, StreamSettings
from stream_app.config.plans import planned
from stream_app.core.kinds import Measuring
from stream_app.ports import OperatorError
from stream_app.shell.planning.modes import typical_error

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
    """Yield the smallest epsilon of each stream with at most this error. Cost: about six plans per stream.

    Raises: OperatorError if there is none.
    """
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
    """The counts of a stream's trees over time: all events in one tree, or each cell in its own tree.

    Args:
        design: of one tree.
        epsilon: of one tree, a part of the stream's epsilon.
        width: the number of trees.
        cell: the counts of one tree, in words; empty if it counts all events.
        rest: the use of the rest of epsilon, in words.
    """

    design: TreeDesign
    epsilon: Fraction
    width: int = 1
    cell: str = ""
    rest: str = ""

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
