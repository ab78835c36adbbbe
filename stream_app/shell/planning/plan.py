"""``stream-app plan``: compare each stream's tree with other ways to count, or find a smallest epsilon."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from rich.table import Table

from dphist.planning.candidates import Candidate, candidate_of, candidates, smallest_epsilon
from dphist.planning.report import candidate_figure, candidate_table, in_decimals
from dphist.tree.design import TreeDesign
from dphist.workloads import Workload
from stream_app.config import Settings, StreamSettings
from stream_app.config.plans import planned
from stream_app.ports import OperatorError

# Label of the row for the configured design.
THIS_STREAM = "this stream"


def chosen_streams(settings: Settings, name: str | None) -> tuple[StreamSettings, ...]:
    """Return the stream of a name, or all of them.

    Raises: OperatorError for a name that is not configured.
    """
    found = tuple(stream for stream in settings.streams if name in (None, stream.name))
    if not found:
        known = ", ".join(stream.name for stream in settings.streams)
        raise OperatorError(f"--stream {name}: not in this configuration; it has {known}")
    return found


def comparisons(streams: tuple[StreamSettings, ...], plot: Path | None) -> Iterator[Table]:
    """Yield, for every stream, a comparison of its tree with other ways to count; ``plot`` also draws it.

    Raises: OperatorError if no tree fits, or for a plot of several streams.
    """
    if plot is not None and len(streams) > 1:
        raise OperatorError("--plot: a figure shows one stream; name it with --stream")
    for stream in streams:
        counted = Counted.by(stream)
        rows = [*_candidates(stream, counted), counted.candidate(stream.declared.tree.workload)]
        title = counted.title(stream)
        if plot is not None:
            candidate_figure(rows, plot, title, THIS_STREAM)
        yield candidate_table(rows, title, stream.declared.tree.workload, THIS_STREAM)


def epsilons_for(streams: tuple[StreamSettings, ...], error: float) -> Iterator[str]:
    """Yield, for every stream, the smallest epsilon with at most this error.

    Raises: OperatorError if there is none.
    Cost: about six plans per stream.
    """
    for stream in streams:

        def reached(epsilon: Fraction, stream: StreamSettings = stream) -> float:
            asked = replace(stream, declared=stream.declared.at_epsilon(epsilon))
            return math.sqrt(Counted.by(asked).design.mean_squared_error(stream.declared.tree.workload))

        try:
            epsilon = smallest_epsilon(error, reached)
        except ValueError as refusal:
            raise OperatorError(f"--target-rmse: streams.{stream.name}: {refusal}") from None
        cell = Counted.by(stream).cell
        of = f" in the count of {cell}" if cell else " within an epoch" if stream.declared.tree.epochs else ""
        yield (
            f"{stream.name}: epsilon {in_decimals(epsilon)} is the smallest with an error of at most "
            f"{error:g} events{of} ({stream.declared.tree.workload}, root mean square); "
            f"it is {in_decimals(stream.declared.privacy.epsilon)} now"
        )


@dataclass(frozen=True)
class Counted:
    """The counts of a stream's tree over time: all events, or, with axes, each of many cells.

    Args: design, of one cell; epsilon, its part of the stream's; width, the number of such trees; cell, one
        of them in words, empty if it counts all events; rest, the use of the rest of epsilon.
    """

    design: TreeDesign
    epsilon: Fraction
    width: int = 1
    cell: str = ""
    rest: str = ""

    @classmethod
    def by(cls, stream: StreamSettings) -> Counted:
        """Return the counts of a stream's planned tree.

        Raises: OperatorError if no tree fits.
        """
        strategy = planned(stream)
        kind = strategy.kind
        if kind.axes:
            cell = kind.axes.groups[-1].design
            cells = strategy.declared.cells
            axes = [name for name, axis in (("bucket", cells.buckets), ("key", cells.keys)) if axis]
            names = " of ".join(f"one {name}" for name in axes)
            return cls(cell, cell.epsilon, kind.axes.columns, names, "other levels of the axes")
        if kind.windows:
            return cls(kind.design, kind.epsilon * (1 - kind.windows.share), rest="windows")
        return cls(kind.design, kind.design.epsilon, rest="levels over epochs")  # all of it, without levels

    def candidate(self, workload: Workload) -> Candidate:
        """Return the stream's own tree as a candidate of the comparison."""
        return candidate_of(THIS_STREAM, self.design, workload, self.width)

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


def _candidates(stream: StreamSettings, counted: Counted) -> Iterator[Candidate]:
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
