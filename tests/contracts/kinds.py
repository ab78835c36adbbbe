"""The kinds of release that the contract suite tests: one design for each kind, and a toy kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.caps import Caps
from dphist.epochs import EpochLevels
from dphist.noise import NoiseSource
from dphist.product.axis import KeyAxis, ValueAxis
from dphist.product.columns import ColumnSum
from dphist.product.design import ProductDesign
from dphist.toeplitz import ToeplitzDesign, ToeplitzStrategy, plan_toeplitz
from dphist.tree.anticipating import BinsNoise
from dphist.tree.design import TreeDesign
from dphist.tree.estimate import Estimate
from dphist.tree.shape import TreeShape
from dphist.users import NumbersOfUsers
from dphist.windows.design import WindowDesign
from stream_app.core.kinds import Kind, kind_of, measuring
from stream_app.core.kinds.epoch import EpochView
from stream_app.core.kinds.errors import Errors, RowError
from stream_app.core.kinds.tables import PUBLISHED, Block, Closed, SeriesKind, SeriesView, Span
from stream_app.core.kinds.toeplitz import Toeplitz
from stream_app.core.kinds.tree import CausalTree
from stream_app.core.records import EpochRecord

BINS, SHARES = 12, (Fraction(1, 6), Fraction(1, 3), Fraction(1, 2))
ReleaseKind = Literal["causal", "anticipating"]


def tree(
    release: ReleaseKind, part: Fraction = Fraction(1), epsilon: Fraction = Fraction(1, 2)
) -> TreeDesign:
    """Return a tree that spends the given part of epsilon."""
    shares = tuple(share * part for share in SHARES)
    return TreeDesign(TreeShape((2, 3, 2)), BINS, epsilon, shares, release=release)


def axes(release: ReleaseKind) -> ProductDesign:
    """Return a design over two keys, their total, and two buckets."""
    keys = KeyAxis(2, Fraction(9, 11), Fraction(2, 11))
    values = ValueAxis(2, TreeShape((2,)), (Fraction(1),))
    return ProductDesign(tree(release), keys, values)


def sums(release: ReleaseKind) -> ProductDesign:
    """Return a design over two keys and the two ends of a range of ten units."""
    time = replace(tree(release), sensitivity=10)
    return ProductDesign(time, KeyAxis(2), ValueAxis(2, TreeShape((2,)), (Fraction(1),)), 10)


def windows(release: ReleaseKind) -> WindowDesign:
    """Return windows of three bins, with a histogram of four buckets for each of three keys."""
    return WindowDesign(tree(release, Fraction(1, 5)), 3, 3, 4, "identity", Fraction(4, 5))


def over_epochs(release: ReleaseKind) -> EpochLevels:
    """Return levels of two and of six epochs."""
    epoch = tree(release, epsilon=Fraction(1, 4))
    return EpochLevels(epoch, Fraction(1, 2), (2, 3), (Fraction(1, 8), Fraction(1, 8)))


class ToyEpoch(EpochView):
    """An epoch of the toy kind: the released counts of bins, and their running sums as first published."""

    def running_values(self, kind: SeriesKind, view: SeriesView) -> FloatArray:
        return np.asarray(self.rows("counts").sum(axis=1).cumsum(), np.float64)

    def _estimate(self, part: Span, view: SeriesView) -> Estimate:
        value = float(self.rows("counts")[part.start : part.stop].sum())
        found = toy().errors().within(self.bins, np.array([part.start]), np.array([part.stop]))
        law = found.laws.law(0)
        return Estimate(value, law.variance, law, float(found.roundings[0]))


@dataclass(frozen=True)
class Toy(Kind):
    """A kind that adds noise to the count of each bin and releases it in the table "counts"."""

    design: TreeDesign  # the toy kind has one level
    width = 1
    tables = {PUBLISHED: 1, "counts": 1}
    rows_hold_values = True

    def rows_after(self, table: str, bins: int) -> int:
        return bins

    def close(self, held: bytes, counts: Int64Array, noise: NoiseSource, ahead: BinsNoise | None) -> Closed:
        bin, total = np.frombuffer(held or bytes(16), "<i8").tolist()
        noisy = counts + noise.discrete_laplace(self.design.scales[0], counts.shape)
        running = (total + noisy.cumsum(axis=0)) << 16
        state = np.array([bin + len(counts), int(running[-1, 0]) >> 16], "<i8").tobytes()
        return Closed(bin, running, (Block(PUBLISHED, bin, running), Block("counts", bin, noisy)), state)

    def row_part(self, closed: Closed, position: int) -> dict[str, object]:
        bin = closed.first_bin + position
        return {"nodes": [[1, bin, closed.row("counts", bin).tolist()]]}

    def row_errors(self, bins: Int64Array) -> list[RowError]:
        laws, _ = self.errors().within(BINS, np.zeros_like(bins), bins + 1)
        return [(float(d) ** 2, 3 * float(d)) for d in laws.deviations()]

    def errors(self, known: SeriesView = "unbiased", columns: ColumnSum | None = None) -> Errors:
        return CausalTree(self.design).errors(known)

    def running_variances(self, bins: int) -> FloatArray:
        return np.asarray(self.design.variances[0] * np.arange(1, bins + 1), np.float64)

    def epoch(self, record: EpochRecord) -> EpochView:
        return ToyEpoch(record, self.design, 1)

    def fields(self) -> dict[str, str]:
        return {"design": self.design.to_json(), "toy": ""}


def toy() -> Toy:
    """Return a toy kind over one level."""
    return Toy(replace(tree("causal"), shape=TreeShape((BINS,)), shares=(Fraction(1),)))


def toeplitz(width: int) -> ToeplitzDesign:
    """Return an approximate design in which a user may count in two columns, twice in each."""
    caps = Caps(max_keys=2, max_per_key=2)
    weights, rates = (Fraction(3, 16), Fraction(1, 4)), (Fraction(15, 16), Fraction(1, 2))
    strategy = ToeplitzStrategy(BINS, weights, rates)
    return plan_toeplitz(BINS, Fraction(1, 2), "1e-6", caps, width=width, strategy=strategy)


_DESIGNS: tuple[tuple[str, Callable[[ReleaseKind], Any]], ...] = (
    ("tree", tree),
    ("axes", axes),
    ("sums", sums),
    ("windows", windows),
    ("over epochs", over_epochs),
)
_RELEASES: tuple[ReleaseKind, ...] = ("causal", "anticipating")
KINDS: dict[str, Kind] = {
    f"{name} {release}": kind_of(design(release)) for name, design in _DESIGNS for release in _RELEASES
} | {
    "toeplitz": Toeplitz(toeplitz(1), keyed=False),
    "toeplitz keys": Toeplitz(toeplitz(3), keyed=True),
    "numbers of users": measuring(kind_of(tree("causal")), NumbersOfUsers(Fraction(1, 4), 3)),
    "numbers of users by key": measuring(kind_of(axes("anticipating")), NumbersOfUsers(Fraction(1, 4), 3)),
    "toy": toy(),
}
