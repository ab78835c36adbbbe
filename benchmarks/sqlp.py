"""The published benchmark of private streaming: section 5.1 of DP-SQLP (arXiv 2303.18086), at full size.

Ten million users bring a million keys that nobody listed. Names of keys are found with ``KeyDiscovery``, as
in the service, and each found key is counted from the first instant on. The released histogram at the last
instant is compared with the true one; a key that was not found counts as 0. The true one is counted when
contributions are drawn, before they have an order. ``python -m benchmarks.sqlp --share 0.01`` is small.
"""

from __future__ import annotations

import argparse
import json
import os
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
from dphist.noise.derived import SEED_BYTES
from dphist.toeplitz import RunningCounts, ToeplitzCounter, plan_toeplitz

RESULTS = Path(__file__).parent / "results" / "sqlp.json"
USERS, KEYS, MOST = 10_000_000, 1_000_000, 32
COLUMNS = 4_096  # counted at once
DELTA = Fraction(1, 10**9)
SIZES = (50, 100, 200, 500, 1_000, 5_000)  # contributions of a key

# Called with counts of shape (instants, columns); returns the released running counts at the last instant.
Count = Callable[[Int64Array], NDArray[np.float64]]


@dataclass(frozen=True)
class Records:
    """Contributions in the order of their instants.

    Args: first, where each instant begins, and the end; true, the contributions of each key.
    """

    users: NDArray[np.int32]
    keys: NDArray[np.int32]
    first: Int64Array
    true: Int64Array

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
    each = np.minimum(zipf_mandelbrot(users, 100_000, 26, 6.738, rng) + 1, MOST)
    who = np.repeat(np.arange(users, dtype=np.int32), each)
    what = zipf_mandelbrot(who.size, keys, 1000, 1.4, rng)
    true = np.zeros(keys, np.int64)
    different, number = np.unique(what, return_counts=True)
    true[different] = number
    when = rng.integers(0, instants, who.size, dtype=np.int16)
    order = np.argsort(when, kind="stable")
    first = np.concatenate([[0], np.cumsum(np.bincount(when, minlength=instants))])
    return Records(who[order], what[order], first, true)


def found_keys(records: Records, rule: DiscoveryRule) -> Int64Array:
    """Return the instant at which each key is named; the number of instants if it never is.

    A user brings her first key that is not public.
    """
    assert rule.per_user == 1
    discovery, keys = KeyDiscovery(rule, os.urandom(SEED_BYTES)), records.true.size
    named_at = np.full(keys, records.instants)
    has_brought = np.zeros(int(records.users.max()) + 1, bool)
    number = np.full(keys, -1, np.int64)  # of each key in the discovery
    known = np.empty(0, np.int64)
    for place, (start, end) in enumerate(zip(records.first, records.first[1:], strict=False)):
        who, what = records.users[start:end], records.keys[start:end]
        bring = (named_at[what] == records.instants) & ~has_brought[who]
        who, what = who[bring], what[bring]
        firsts = np.concatenate([[True], who[1:] != who[:-1]])  # a user's records of an instant are together
        has_brought[who[firsts]] = True
        brought, users = np.unique(what[firsts], return_counts=True)
        new = brought[number[brought] < 0]
        number[new] = known.size + np.arange(new.size)
        known = np.concatenate([known, new])
        discovery.add([key.to_bytes(4) for key in new.tolist()])
        discovery.bring(number[brought], users)
        named_at[known[discovery.decide(place)]] = place
    return named_at


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
    """Return counts without delta: a tree with noise ahead, at most ``MOST`` events of a user.

    The tree is planned for running counts and, as errors are compared at the last instant, for the total.
    """
    questions = {"prefix": "0.7", f"sliding({instants})": "0.3"}
    design = plan_tree(instants, epsilon, questions, release="anticipating", max_events=MOST)

    def count(exact: Int64Array) -> NDArray[np.float64]:
        counter = AnticipatingCounter(design, SystemNoise(), exact.shape[1])
        return np.asarray(counter.push_many(exact).published[-1] / 2**16)

    return count


def counted(
    records: Records, counts: NDArray[np.bool_], found: Int64Array, keys: int, count: Count
) -> NDArray[np.float64]:
    """Return the released counts of the found keys at the last instant, from the first one on.

    Args: counts, which contributions count.
    """
    column = np.full(keys, -1, np.int64)
    column[found] = np.arange(found.size)
    width = -(-found.size // COLUMNS) * COLUMNS
    exact = np.zeros((records.instants, width), np.int32)
    for row, (start, end) in enumerate(zip(records.first, records.first[1:], strict=False)):
        columns = column[records.keys[start:end][counts[start:end]]]
        exact[row] = np.bincount(columns[columns >= 0], minlength=width)
    parts = [count(exact[:, at : at + COLUMNS].astype(np.int64)) for at in range(0, width, COLUMNS)]
    return np.concatenate(parts)[: found.size]


def delays(records: Records, named_at: Int64Array) -> dict[str, float | None]:
    """Return when keys are named, by their contributions: the median and the 95 % quantile of the instant.

    None if fewer keys are named. The users of a key come evenly, so by half of all instants it has half.
    """
    found: dict[str, float | None] = {}
    for size in SIZES:
        at = named_at[(records.true > size * 0.9) & (records.true < size * 1.1)]
        for share in (0.5, 0.95):
            instant = float(np.quantile(at, share, method="higher")) if at.size else np.inf
            name = f"of {size} contributions, {share:.0%} named by"
            found[name] = (instant + 1) / records.instants if instant < records.instants else None
    return found


def run(
    users: int, keys: int, instants: int, names: Fraction, counts: Fraction, is_pure: bool, seed: int
) -> dict[str, float | None]:
    """Return the measures of one run."""
    records = drawn_records(users, keys, instants, np.random.default_rng(seed))
    started, worked = time.perf_counter(), time.process_time()
    named_at = found_keys(records, DiscoveryRule(names, DELTA if is_pure else DELTA / 2, instants))
    found, named = np.flatnonzero(named_at < instants), time.process_time() - worked
    count = (pure if is_pure else approximate)(counts, instants)
    released = np.zeros(keys)
    all_count = np.ones(records.keys.size, bool)
    counts_once = all_count if is_pure else without_repeats(records, keys)
    released[found] = counted(records, counts_once, found, keys, count)
    seconds, processor = time.perf_counter() - started, time.process_time() - worked
    true, error = records.true, np.abs(released - records.true)
    by_time = {
        f"keys by {share:.0%} of the time": int((named_at < instants * share).sum())
        for share in (0.1, 0.25, 0.5)
    }
    return {
        "seed": seed,
        "contributions": records.keys.size,
        "keys": found.size,
        "l_inf": float(error.max()),
        "l_1": float(error.sum()),
        "l_2": float(np.sqrt((error**2).sum())),
        "captured_mass": float(true[found].sum() / true.sum()),
        "seconds": seconds,
        "processor_seconds": processor,
        "processor_seconds_of_names": named,
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "load": os.getloadavg()[0],
        **by_time,
        **delays(records, named_at),
    }


def rounded(value: float | None) -> float | None:
    """Return a measure as it is written."""
    return None if value is None else round(value, 4)


def summary(runs: list[dict[str, float | None]]) -> dict[str, dict[str, float]]:
    """Return the mean and the standard deviation of each measure that all runs have."""
    found = {}
    for name in runs[0]:
        values = [value for one in runs if (value := one[name]) is not None]
        if len(values) == len(runs) and name != "seed":
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            found[name] = {"mean": round(statistics.mean(values), 4), "deviation": round(spread, 4)}
    return found


def main() -> None:
    """Print the measures, and keep them if the benchmark ran at full size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="of users and keys")
    parser.add_argument("--instants", type=int, default=100)
    parser.add_argument(
        "--pure", action="store_true", help="counts without delta; epsilon 1.01 + 4.99, otherwise 1.52 + 4.48"
    )
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--results", type=Path, default=RESULTS, help="seeds that it has are not run again")
    asked = parser.parse_args()
    # Of a total epsilon of 6. At 100 instants, thresholds of 25 and of 17 use nearly all delta of the names.
    names = Fraction("1.01") if asked.pure else Fraction("1.52")
    counts = 6 - names
    users, keys = round(USERS * asked.share), round(KEYS * asked.share)
    name = f"{'pure' if asked.pure else 'approximate'}, {asked.instants} instants, {users:,} users"
    rows = json.loads(asked.results.read_text()) if asked.results.exists() else {}
    runs = rows.get(name, {}).get("runs", [])
    for seed in range(asked.seeds):
        if any(one["seed"] == seed for one in runs):
            continue
        measured = run(users, keys, asked.instants, names, counts, asked.pure, seed)
        runs.append({of: rounded(value) for of, value in measured.items()})
        print(json.dumps(runs[-1]), flush=True)
        rows[name] = {"runs": runs, "commit": commit(), "machine": machine(), **summary(runs)}
        if asked.share == 1:
            asked.results.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n")
    print(json.dumps(rows[name], indent=1))


if __name__ == "__main__":
    main()
