"""The search that found the strategies of ``dphist/toeplitz/table.py``, and these beside what it finds anew.

The loss is |c|^2 times the mean of sum_(j <= t) b_j^2: the mean squared error of running counts, for a noise
of parameter 1 per unit of sensitivity. It has a closed form in weights and rates, so a step costs the same at
any horizon. ``python -m benchmarks.strategies`` searches with as many buffers, and with one more; some
minutes. It writes nothing: stored strategies never change.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from scipy.optimize import minimize

from dphist.arrays import FloatArray
from dphist.toeplitz import ToeplitzStrategy, optimal_strategy
from dphist.toeplitz.inverse import InverseWeights, geometric
from dphist.toeplitz.strategy import LARGEST_BUFFERS, rounded_decay, rounded_weight

BITS = range(4, 25)
# A loss that no strategy has: steps out of bounds are taken back.
_OUT_OF_BOUNDS = 50.0
_PENALTY = 1e4
_FASTEST = 0.99  # of the sum of weight / rate, which must stay below 1


def loss_of(strategy: ToeplitzStrategy) -> float:
    """Return the mean squared error of running counts if noise of parameter 1 hides a change of norm 1."""
    weights = np.array([float(weight) for weight in strategy.weights])
    decays = np.array([float(1 - rate) for rate in strategy.rates])
    return _loss(weights, decays, strategy.horizon)


def optimise(horizon: int, buffers: int, start: ToeplitzStrategy | None = None) -> ToeplitzStrategy:
    """Return a local optimum of the loss, rounded to the numbers that a strategy may have.

    Args: horizon of at least 2; start, a strategy with as many buffers, by default time scales spread evenly
        in ratio.
    Cost: seconds.
    """
    point = _first_point(horizon, buffers) if start is None else _point_of(start)
    for _ in range(3):
        point = minimize(_log_loss, point, args=(horizon,), method="BFGS", options={"gtol": 1e-8}).x
    return _rounded(horizon, *_parameters(point))


def _loss(weights: FloatArray, decays: FloatArray, horizon: int) -> float:
    pairs = decays[:, np.newaxis] + decays - decays[:, np.newaxis] * decays
    norm = 1.0 + float(weights @ geometric(pairs, np.array(horizon - 1)) @ weights)
    return norm * InverseWeights.of(weights, decays).mean_square(horizon)


def _log_loss(point: FloatArray, horizon: int) -> float:
    weights, decays = _parameters(point)
    if weights.sum() > 0.95 or (np.diff(decays) < 1e-6 * decays[1:]).any() or decays[-1] > 0.999:
        return _OUT_OF_BOUNDS
    excess = max(0.0, float((weights / (1.0 - decays)).sum()) - _FASTEST)
    try:
        return float(np.log(_loss(weights, decays, horizon))) + _PENALTY * excess**2
    except ValueError:  # two rates that are equal in doubles have no root between them
        return _OUT_OF_BOUNDS


def _first_point(horizon: int, buffers: int) -> FloatArray:
    scales = np.geomspace(min(1.0 / horizon, 0.3), 0.8, buffers) if buffers > 1 else np.array([0.4])
    weights = np.sqrt(scales)
    return _joined(0.45 * weights / weights.sum(), 1.0 - np.exp(-scales) * 0.999)


def _point_of(strategy: ToeplitzStrategy) -> FloatArray:
    weights = np.array([float(weight) for weight in strategy.weights])
    return _joined(weights, np.array([float(1 - rate) for rate in strategy.rates]))


def _joined(weights: FloatArray, decays: FloatArray) -> FloatArray:
    return np.concatenate([np.log(weights), np.log(decays / (1.0 - decays))])


def _parameters(point: FloatArray) -> tuple[FloatArray, FloatArray]:
    logs, odds = np.split(point, 2)
    decays = 1.0 / (1.0 + np.exp(-np.clip(odds, -60.0, 60.0)))
    order = np.argsort(decays)
    return np.exp(logs)[order], decays[order]


def _rounded(horizon: int, weights: FloatArray, decays: FloatArray) -> ToeplitzStrategy:
    return ToeplitzStrategy(
        horizon,
        tuple(rounded_weight(Fraction(weight)) for weight in weights.tolist()),
        tuple(1 - rounded_decay(Fraction(decay)) for decay in decays.tolist()),
    )


def main() -> None:
    """Print, for one horizon after the other, by how much a new search is better."""
    for bits in BITS:
        for horizon in (2**bits, 3 * 2 ** (bits - 1)):
            if horizon <= 2**24:
                stored = optimal_strategy(horizon)
                loss, again = loss_of(stored), loss_of(optimise(horizon, stored.buffers, stored))
                more = min(stored.buffers + 1, LARGEST_BUFFERS)
                print(
                    f"{horizon:9} bins, {stored.buffers} buffers: loss {loss:.4f}; searched again "
                    f"{100 * (loss / again - 1):.3f} % better; {_with_more(horizon, more, loss)}",
                    flush=True,
                )


def _with_more(horizon: int, buffers: int, loss: float) -> str:
    try:
        return f"{buffers} buffers {100 * (loss / loss_of(optimise(horizon, buffers)) - 1):.3f} % better"
    except ValueError:
        return f"{buffers} buffers: the search found no valid strategy"


if __name__ == "__main__":
    main()
