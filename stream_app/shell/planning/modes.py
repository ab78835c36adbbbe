"""The two modes of a promise side by side: pure, and approximate at a stated delta.

Both are planned for the same stream, caps and epsilon. The tables compare errors and say in words which
questions each mode answers better. They never choose: ``privacy.delta`` in the configuration does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from msgspec import structs
from rich.table import Table

from dphist.toeplitz.estimate import mean_squared_error
from stream_app.config import StreamSettings
from stream_app.config.plans import planned
from stream_app.core.costs import USUAL_DELTA
from stream_app.core.kinds import Kind
from stream_app.core.kinds.toeplitz import Toeplitz
from stream_app.core.promise import promise_in_words
from stream_app.ports import OperatorError


@dataclass(frozen=True)
class Modes:
    """A stream's plans in both modes.

    Args: pure, approximate, the root of the mean squared error of one column's running count, over all bins;
        break_even, the number of keys, with one event of a user in each, from which the approximate mode has
        the smaller error.
    """

    stream: StreamSettings
    delta: Fraction
    pure: float
    approximate: float
    break_even: int

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
            "Pure is better where nothing may ever exceed epsilon: it has no delta. "
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
            promise_in_words(epsilon, None),
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
