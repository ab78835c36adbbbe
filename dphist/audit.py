"""Tests of a privacy promise that trust no code: they look at outputs from neighbouring inputs only.

A run draws one of two neighbouring inputs with a fair coin, and says whether the output lies in a set S. If
an output in S is at most e^epsilon times likelier under the first input, then at most
e^epsilon / (1 + e^epsilon) of the runs that end in S had the first input. This share is a binomial parameter,
so Clopper-Pearson bounds it without an approximation. For discrete Laplace noise the likelihood ratio takes
its largest value on the set "no measured value is above that of the first input", so this S gives the most
powerful test.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from scipy.stats import beta, norm

Verdict = Literal["kept", "exceeded"]


class LossBounds(NamedTuple):
    """Bounds on the logarithm of the likelihood ratio of a set."""

    low: float
    high: float


def loss_bounds(hits: int, neighbour_hits: int, alpha: float) -> LossBounds:
    """Return bounds on log(P(S | input) / P(S | neighbour)).

    Guarantee: each bound is wrong with a probability of at most ``alpha / 2``.
    Args: hits, neighbour_hits, the runs that ended in S with either input, which a fair coin chose.
    Raises: ValueError without hits.

    >>> low, high = loss_bounds(73_106, 26_894, 1e-9)
    >>> low < 1.0 < high, high - low < 0.1
    (True, True)
    """
    low, high = _share(hits, hits + neighbour_hits, alpha)
    return LossBounds(_logit(low), _logit(high))


def mu_bounds(
    hits: int, runs: int, neighbour_hits: int, neighbour_runs: int, alpha: float
) -> tuple[float, float]:
    """Return bounds on the distance of two normal laws of variance 1, from how often each passes a threshold.

    Guarantee: both bounds hold together with a probability of at least ``1 - alpha``. The distance is the mu
        of Gaussian differential privacy if the laws are those of the likelihood ratio's logarithm.
    Args: hits, neighbour_hits, the runs above the threshold; runs, neighbour_runs, all runs.

    >>> low, high = mu_bounds(69_146, 100_000, 30_854, 100_000, 1e-9)
    >>> low < 1.0 < high, high - low < 0.15
    (True, True)
    """
    low, high = _share(hits, runs, alpha / 2)
    neighbour_low, neighbour_high = _share(neighbour_hits, neighbour_runs, alpha / 2)
    return _quantile(low) - _quantile(neighbour_high), _quantile(high) - _quantile(neighbour_low)


@dataclass
class Sequential:
    """Decides, run by run, whether a stated epsilon is kept or exceeded by the factor ``slack``.

    Two wealth processes bet on the runs that end in S: one against "the loss is at most epsilon", the other
    against "the loss is at least slack * epsilon". Under its hypothesis each is a supermartingale that starts
    at 1, so it ever reaches 1 / alpha with a probability of at most alpha (Ville), however long one watches.

    Args: epsilon, the stated loss of S; slack, above 1; alpha, of either error.

    >>> test = Sequential(1.0, slack=1.05, alpha=1e-9)
    >>> test.take(731_060, 268_940)
    'kept'
    >>> Sequential(1.0 / 1.05, slack=1.05, alpha=1e-9).take(731_060, 268_940)
    'exceeded'
    """

    epsilon: float
    slack: float = 1.05
    alpha: float = 1e-9
    runs: int = field(default=0, init=False)
    _against_kept: float = field(default=0.0, init=False)
    _verdict: Verdict | None = field(default=None, init=False)

    def take(self, hits: int, neighbour_hits: int) -> Verdict | None:
        """Bet on more runs that ended in S; return the verdict, None while both are possible.

        The first verdict stays. The two wealths are each other's inverse, so one number holds both.
        """
        kept, exceeded = _expit(self.epsilon), _expit(self.epsilon * self.slack)
        self.runs += hits + neighbour_hits
        self._against_kept += hits * math.log(exceeded / kept)
        self._against_kept += neighbour_hits * (math.log1p(-exceeded) - math.log1p(-kept))
        if self._verdict is None and abs(self._against_kept) >= -math.log(self.alpha):
            self._verdict = "exceeded" if self._against_kept > 0 else "kept"
        return self._verdict


def _share(hits: int, runs: int, alpha: float) -> tuple[float, float]:
    """Return the bounds of Clopper and Pearson on a binomial parameter."""
    if runs < 1 or not 0 <= hits <= runs:
        raise ValueError(f"{hits} of {runs} runs: count at least one run, and no more hits than runs")
    low = 0.0 if hits == 0 else float(beta.ppf(alpha / 2, hits, runs - hits + 1))
    high = 1.0 if hits == runs else float(beta.isf(alpha / 2, hits + 1, runs - hits))
    return low, high


def _logit(share: float) -> float:
    if share <= 0.0:
        return -math.inf
    return math.inf if share >= 1.0 else math.log(share) - math.log1p(-share)


def _expit(loss: float) -> float:
    return 1.0 / (1.0 + math.exp(-loss))


def _quantile(share: float) -> float:
    return float(norm.ppf(share))
