"""The published benchmark of private streaming: section 5.1 of DP-SQLP (arXiv 2303.18086), at full size.

Ten million users bring a million keys that nobody listed. Names of keys are found with ``KeyDiscovery``, and
each found key is counted from the first instant on. The released histogram at the last instant is compared
with the true one; a key that was not found counts as 0. ``python -m benchmarks.sqlp --share 0.01`` is small.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.machine import commit, machine
from dphist import AnticipatingCounter, SystemNoise, plan_tree
from dphist.arrays import Int64Array
from dphist.caps import Caps
from dphist.discovery import DiscoveryRule, KeyDiscovery
from dphist.toeplitz import RunningCounts, ToeplitzCounter, plan_toeplitz

RESULTS = Path(__file__).parent / "results" / "sqlp.json"
USERS, KEYS, MOST = 10_000_000, 1_000_000, 32
COLUMNS = 4_096  # counted at once
DELTA = Fraction(1, 10**9)

# Called with counts of shape (instants, columns); returns the released running counts at the last instant.
Count = Callable[[Int64Array], NDArray[np.float64]]


@dataclass(frozen=True)
class Records:
    """Contributions in the order of their instants. Args: first, where each instant begins, and the end."""

    users: NDArray[np.int32]
    keys: NDArray[np.int32]
    first: Int64Array

    @property
    def instants(self) -> int:
        """The number of instants at which names and counts are released."""
        return len(self.first) - 1


def zipf_mandelbrot(
    size: int, values: int, q: float, s: float, rng: np.random.Generator
) -> NDArray[np.int32]:
    """Return draws from 0 to ``values`` - 1; the weight of n is (n + 1 + q)^-s."""
    weights = (np.arange(1, values + 1) + q) ** -s
    reached = np.cumsum(weights / weights.sum())
    drawn = np.empty(size, np.int32)
    for start in range(0, size, 1 << 22):  # so that the doubles of a part only are in memory
        part = rng.random(min(1 << 22, size - start))
        drawn[start : start + part.size] = np.minimum(np.searchsorted(reached, part), values - 1)
    return drawn


def drawn_records(users: int, keys: int, instants: int, rng: np.random.Generator) -> Records:
    """Return the contributions of all users, each of at most ``MOST``."""
    number = np.minimum(zipf_mandelbrot(users, 100_000, 26, 6.738, rng) + 1, MOST)
    who = np.repeat(np.arange(users, dtype=np.int32), number)
    what = zipf_mandelbrot(who.size, keys, 1000, 1.4, rng)
    when = rng.integers(0, instants, who.size, dtype=np.int16)
    order = np.argsort(when, kind="stable")
    first = np.concatenate([[0], np.cumsum(np.bincount(when, minlength=instants))])
    return Records(who[order], what[order], first)


def found_keys(records: Records, keys: int, rule: DiscoveryRule) -> Int64Array:
    """Return the keys that are named by the last instant. A user brings her first key that is not public."""
    assert rule.per_user == 1
    discovery = KeyDiscovery(rule, SystemNoise())
    public = np.zeros(keys, bool)
    has_brought = np.zeros(int(records.users.max()) + 1, bool)
    number = np.full(keys, -1, np.int64)  # of each key in the discovery
    known, brought = np.empty(0, np.int64), np.empty(0, np.int64)
    for start, end in zip(records.first, records.first[1:], strict=False):
        who, what = records.users[start:end], records.keys[start:end]
        bring = ~public[what] & ~has_brought[who]
        who, what = who[bring], what[bring]
        firsts = np.concatenate([[True], who[1:] != who[:-1]])  # a user's records of an instant are together
        has_brought[who[firsts]] = True
        new = np.unique(what[firsts])
        new = new[number[new] < 0]
        number[new] = known.size + np.arange(new.size)
        known = np.concatenate([known, new])
        discovery.add(new.size)
        brought = np.concatenate([brought, np.zeros(new.size, np.int64)])
        brought += np.bincount(number[what[firsts]], minlength=known.size)
        public[known[discovery.decide(brought)]] = True
    return np.flatnonzero(public)


def without_repeats(records: Records, keys: int) -> NDArray[np.bool_]:
    """Return which contributions are the first of their user to their key: only these count."""
    pairs = records.users.astype(np.int64) * keys + records.keys
    order = np.argsort(pairs, kind="stable")
    repeated = np.zeros(pairs.size, bool)
    repeated[order[1:]] = pairs[order[1:]] == pairs[order[:-1]]
    return ~repeated


def approximate(epsilon: Fraction, instants: int) -> Count:
    """Return Gaussian counts: at most ``MOST`` keys of a user, one event in each."""
    caps = Caps(max_keys=MOST, max_per_key=1)
    design = plan_toeplitz(instants, epsilon, DELTA / 2, caps, width=COLUMNS)

    def count(exact: Int64Array) -> NDArray[np.float64]:
        released = ToeplitzCounter(design).close(exact, SystemNoise())
        return np.asarray(RunningCounts(design).append(released)[-1] * float(design.step))

    return count


def pure(epsilon: Fraction, instants: int) -> Count:
    """Return counts without delta: a tree with noise ahead, at most ``MOST`` events of a user."""
    design = plan_tree(instants, epsilon, release="anticipating", max_events=MOST)

    def count(exact: Int64Array) -> NDArray[np.float64]:
        counter = AnticipatingCounter(design, SystemNoise(), exact.shape[1])
        return np.asarray(counter.push_many(exact).published[-1] / 2**16)

    return count


def counted(records: Records, found: Int64Array, keys: int, count: Count) -> NDArray[np.float64]:
    """Return the released counts of the found keys at the last instant, from the first one on."""
    counts = without_repeats(records, keys)
    column = np.full(keys, -1, np.int64)
    column[found] = np.arange(found.size)
    width = -(-found.size // COLUMNS) * COLUMNS
    exact = np.zeros((records.instants, width), np.int32)
    for row, (start, end) in enumerate(zip(records.first, records.first[1:], strict=False)):
        columns = column[records.keys[start:end][counts[start:end]]]
        exact[row] = np.bincount(columns[columns >= 0], minlength=width)
    parts = [count(exact[:, at : at + COLUMNS].astype(np.int64)) for at in range(0, width, COLUMNS)]
    return np.concatenate(parts)[: found.size]


def run(
    users: int, keys: int, instants: int, names: Fraction, counts: Fraction, is_pure: bool, seed: int
) -> dict[str, float]:
    """Return the measures of one run."""
    records = drawn_records(users, keys, instants, np.random.default_rng(seed))
    started = time.perf_counter()
    found = found_keys(records, keys, DiscoveryRule(names, DELTA if is_pure else DELTA / 2, instants))
    count = (pure if is_pure else approximate)(counts, instants)
    released = np.zeros(keys)
    released[found] = counted(records, found, keys, count)
    seconds = time.perf_counter() - started
    true = np.bincount(records.keys, minlength=keys)
    error = np.abs(released - true)
    return {
        "contributions": records.keys.size,
        "keys": found.size,
        "l_inf": float(error.max()),
        "l_1": float(error.sum()),
        "l_2": float(np.sqrt((error**2).sum())),
        "captured_mass": float(true[found].sum() / true.sum()),
        "seconds": seconds,
    }


def main() -> None:
    """Print the measures, and keep them if the benchmark ran at full size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="of users and keys")
    parser.add_argument("--instants", type=int, default=100)
    parser.add_argument(
        "--pure", action="store_true", help="counts without delta; epsilon 1.01 + 4.99, otherwise 1.52 + 4.48"
    )
    parser.add_argument("--seeds", type=int, default=10)
    asked = parser.parse_args()
    # Of a total epsilon of 6. At 100 instants, thresholds of 25 and of 17 use nearly all delta of the names.
    names = Fraction("1.01") if asked.pure else Fraction("1.52")
    counts = 6 - names
    users, keys = round(USERS * asked.share), round(KEYS * asked.share)
    runs = []
    for seed in range(asked.seeds):
        runs.append(run(users, keys, asked.instants, names, counts, asked.pure, seed))
        print(json.dumps({name: round(value, 3) for name, value in runs[-1].items()}), flush=True)
    means = {name: round(statistics.mean(one[name] for one in runs), 3) for name in runs[0]}
    told = {
        "users": users,
        "instants": asked.instants,
        "counts": "pure" if asked.pure else "approximate",
        "seeds": asked.seeds,
        "means": means,
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "commit": commit(),
        "machine": machine(),
    }
    print(json.dumps(told, indent=2))
    if asked.share == 1:
        rows = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        rows[f"{told['counts']}, {asked.instants} instants"] = told
        RESULTS.write_text(json.dumps(rows, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
