"""``stream-app plan``: every stream's tree beside the other ways to count it, and the reverse question."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.table import Table

from dphist.plan_report import candidate_figure, candidate_table, in_decimals
from dphist.tree.candidates import Candidate, candidates, least_epsilon
from stream_app.config import Settings, StreamSettings
from stream_app.plans import planned
from stream_app.ports import OperatorError


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
    """Yield for every stream the ways to count it at its epsilon; with ``plot``, draw them too.

    Raises: OperatorError where no tree fits, or a plot of several streams is asked for.
    """
    if plot is not None and len(streams) > 1:
        raise OperatorError("--plot: a figure shows one stream; name it with --stream")
    for stream in streams:
        strategy = planned(stream)
        rows = list(_candidates(stream, strategy.width))
        epsilon = in_decimals(stream.privacy.epsilon)
        title = f"{stream.name}: {stream.time.epoch_bins:,} bins an epoch, epsilon {epsilon}"
        if plot is not None:
            candidate_figure(rows, plot, title)
        yield candidate_table(rows, title, stream.tree.workload, f"planned, {strategy.design.release}")


def epsilons_for(streams: tuple[StreamSettings, ...], error: float) -> Iterator[str]:
    """Yield for every stream the smallest epsilon whose planned tree errs at most so much.

    Raises: OperatorError where none does.
    """
    for stream in streams:
        if stream.has_axes:
            raise OperatorError(
                f"--target-rmse: {stream.name} has keys or a value; name another with --stream"
            )
        if stream.tree.epochs is not None:
            raise OperatorError(
                f"--target-rmse: {stream.name} has tree.epochs, and an epoch's tree a part of epsilon only; "
                "take tree.epochs out to ask"
            )
        design = planned(stream).design
        try:
            epsilon = least_epsilon(
                design.horizon,
                error,
                stream.tree.workload,
                design.release,
                stream.privacy.neighbours,
                stream.privacy.max_events,
            )
        except ValueError as refusal:
            raise OperatorError(f"--target-rmse: streams.{stream.name}: {refusal}") from None
        now = in_decimals(stream.privacy.epsilon)
        yield (
            f"{stream.name}: epsilon {in_decimals(epsilon)} is the smallest that errs at most {error:g} "
            f"events ({stream.tree.workload}, root mean square); it is {now} now"
        )


def _candidates(stream: StreamSettings, width: int) -> Iterator[Candidate]:
    privacy = stream.privacy
    try:
        yield from candidates(
            stream.time.epoch_bins,
            privacy.epsilon,
            stream.tree.workload,
            privacy.neighbours,
            privacy.max_events,
            width,
        )
    except ValueError as refusal:
        raise OperatorError(f"streams.{stream.name}.tree: {refusal}") from None
