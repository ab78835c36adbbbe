"""What share of a batch mechanism's captured mass a live stream finds, on the data of ``benchmarks.sqlp``.

The batch mechanism is the weighted Gaussian mechanism (Gopi and others 2020; ``dp_mm_domain`` of
google-research has one, under Apache-2.0). It is written here from its definition. It decides once, over all
contributions. The stream decides after each of 1, 24 or 720 parts, with the same epsilon and delta.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtri

from benchmarks.machine import commit, machine
from benchmarks.sqlp import KEYS, MOST, USERS, Records, drawn_records, found_keys, without_repeats
from dphist.discovery import DiscoveryRule

RESULTS = Path(__file__).parent / "results" / "batch_names.json"
DECISIONS = (1, 24, 720)
EPSILONS = (Fraction("0.5"), Fraction("1.5"))
DELTA = Fraction(1, 10**9)


def gaussian_scale(epsilon: float, delta: float) -> float:
    """Return the least deviation with which one unit of distance is (epsilon, delta)-private.

    Source: the exact curve of the Gaussian mechanism, Balle and Wang (2018), theorem 8.
    """

    def spent(sigma: float) -> float:
        near, far = 1 / (2 * sigma) - epsilon * sigma, -1 / (2 * sigma) - epsilon * sigma
        return math.exp(log_ndtr(near)) - math.exp(epsilon + log_ndtr(far))

    low, high = 1e-3, 1e4
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if spent(middle) <= delta else (middle, high)
    return high


def threshold(sigma: float, delta: float, most: int) -> float:
    """Return the weight above which a key is named: keys of one user alone pass with probability delta."""
    # The largest of t normal draws stays below ndtri((1 - delta)^(1 / t)).
    passed = [(t, -ndtri(-math.expm1(math.log1p(-delta) / t))) for t in range(1, most + 1)]
    return max(1 / math.sqrt(t) + sigma * z for t, z in passed)


def weighted_gaussian(
    records: Records, epsilon: float, delta: float, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Return which keys the batch mechanism names: a user adds 1 / sqrt(her keys) to the weight of each."""
    counts = without_repeats(records, records.true.size)
    users, keys = records.users[counts], records.keys[counts]
    weight = 1 / np.sqrt(np.bincount(users))
    weights = np.bincount(keys, weights=weight[users], minlength=records.true.size)
    sigma = gaussian_scale(epsilon, delta / 2)
    noisy = weights + rng.normal(0, sigma, weights.size)
    return np.asarray((weights > 0) & (noisy > threshold(sigma, delta / 2, MOST)))


def main() -> None:
    """Print and keep the captured mass of both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="of users and keys")
    parser.add_argument("--results", type=Path, default=RESULTS)
    asked = parser.parse_args()
    size = round(USERS * asked.share), round(KEYS * asked.share)
    told: dict[str, object] = {"users": size[0], "delta": float(DELTA)}
    for decisions in DECISIONS:
        records = drawn_records(*size, decisions, np.random.default_rng(0))
        mass = records.true / records.true.sum()
        for epsilon in EPSILONS:
            if decisions == 1:
                named = weighted_gaussian(records, float(epsilon), float(DELTA), np.random.default_rng(1))
                told[f"batch, epsilon {epsilon}"] = {
                    "keys": int(named.sum()),
                    "mass": round(float(mass[named].sum()), 4),
                }
            started = time.process_time()
            found = found_keys(records, DiscoveryRule(epsilon, DELTA, decisions)) < decisions
            told[f"{decisions} decisions, epsilon {epsilon}"] = {
                "keys": int(found.sum()),
                "mass": round(float(mass[found].sum()), 4),
                "processor_seconds": round(time.process_time() - started, 1),
            }
            print(json.dumps(told), flush=True)
    told |= {"commit": commit(), "machine": machine()}
    if asked.share == 1:
        asked.results.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
