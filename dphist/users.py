"""Users by their numbers of events, in powers of two: a pure histogram from which caps are proposed."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from dphist.arrays import Int64Array
from dphist.noise import LARGEST_SCALE, NoiseSource
from dphist.privacy import Neighbours, exact, sensitivity

BUCKETS = 21  # bucket b counts users with 2^b to 2^(b + 1) - 1 events; the last one has no end
_SURE = 0.95


class LeftOut(NamedTuple):
    """How many events a cap leaves out: between ``least`` and ``most``, of users that the histogram shows.

    ``most`` is None if it shows users of the last bucket, which has no end.
    """

    least: float
    most: float | None


@dataclass(frozen=True)
class NumbersOfUsers:
    """The histogram of one cap window.

    Guarantee: epsilon-differentially private, pure. A user with events is in one bucket, so one user more
        changes one count by 1, and another user's events in a user's place change two.
    Args: epsilon; bins, of a cap window; neighbours.
    Raises: ValueError for an epsilon that needs more noise than the sources draw.

    >>> NumbersOfUsers(Fraction(1, 10), 24).scale
    Fraction(10, 1)
    """

    epsilon: Fraction
    bins: int
    neighbours: Neighbours = "add_remove"

    def __post_init__(self) -> None:
        if self.epsilon <= 0 or self.bins < 1:
            raise ValueError("numbers of users: an epsilon above 0 and a window of bins are needed")
        if self.scale > LARGEST_SCALE:
            raise ValueError(f"epsilon {float(self.epsilon):g} needs noise beyond 2^52; write a larger one")

    @property
    def scale(self) -> Fraction:
        """The scale of each count's noise."""
        return sensitivity(1, self.neighbours) / self.epsilon

    def release(self, numbers: Int64Array, noise: NoiseSource) -> Int64Array:
        """Return the noisy histogram. Draw it once. Args: numbers, the users of each bucket, SECRET."""
        return np.asarray(numbers + noise.discrete_laplace(self.scale, (BUCKETS,)), np.int64)

    @property
    def reach(self) -> float:
        """How far all counts together are at most from the truth, in 95 of 100 releases."""
        # The least k with BUCKETS * P(|error| > k) <= 1 - _SURE, where P = 2 p^(k + 1) / (1 + p).
        scale = float(self.scale)
        p, most = math.exp(-1.0 / scale), (1.0 - _SURE) / BUCKETS
        return float(max(math.ceil(scale * math.log(2.0 / (most * (1.0 + p)))) - 1, 0))

    def left_out(self, released: Int64Array, cap: int) -> LeftOut:
        """Return how many events a cap leaves out, with 95 % confidence for all caps together.

        Users in buckets whose count noise alone explains are left out of the sums.
        """
        first = 2.0 ** np.arange(BUCKETS)
        shown = np.where(released > self.reach, released, 0)
        fewest, many = np.maximum(shown - self.reach, 0.0), np.where(shown > 0, shown + self.reach, 0.0)
        least, most = np.maximum(first - cap, 0.0), np.maximum(2.0 * first - 1.0 - cap, 0.0)
        return LeftOut(float(fewest @ least), None if shown[-1] else float(many @ most))

    def to_json(self) -> str:
        """Return the canonical text, which is stored."""
        fields = {"epsilon": str(self.epsilon), "bins": self.bins, "neighbours": self.neighbours}
        return json.dumps(fields, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> NumbersOfUsers:
        """Read the text of ``to_json``. Raises: ValueError."""
        fields = json.loads(text)
        return cls(exact(fields["epsilon"], "epsilon"), fields["bins"], fields["neighbours"])
