"""Streams beside the first one: each counts the same topic in another way, and is recounted on its own.

One counts by a condition, by key. One adds up an amount, by key. One counts each user once per epoch.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction

from tests.chaos.traffic import BIN_MS, COUNTRIES, Visit
from tests.e2e.service import get
from tests.simulator.checks import Broken

CHOSEN, SALES, PEOPLE = "chosen", "sales", "people"
EPOCH_BINS = 60
AT_ONCE = 500  # bins in one question
SHOP, LEAST, MOST, UNIT = "/shop", 0, 20, Fraction(1, 2)
KEYS = (*COUNTRIES[:-1], "other")
_TIME = "{{field: at, format: ms, bin: 1s, grace: {grace_s}s, epoch: 60s}}"
_EXACT = 'epsilon: 1000000000, not_private: true, accept: "measured again"'
_KEYS = f"{{{{field: country, list: [{', '.join(COUNTRIES[:-1])}]}}}}"
CONFIGURATION = f"""
  {CHOSEN}:
    source: {{{{topic: {{topic}}, format: json}}}}
    time: {_TIME}
    privacy: {{{{{_EXACT}}}}}
    where: {{{{page: {SHOP}}}}}
    keys: {_KEYS}
  {SALES}:
    source: {{{{topic: {{topic}}, format: json}}}}
    time: {_TIME}
    privacy: {{{{{_EXACT}}}}}
    where: {{{{amount: {{{{present: true}}}}}}}}
    sum: {{{{field: amount, min: {LEAST}, max: {MOST}, unit: {float(UNIT)}}}}}
    keys: {_KEYS}
  {PEOPLE}:
    source: {{{{topic: {{topic}}, format: json}}}}
    time: {_TIME}
    privacy: {{{{{_EXACT}, unit: {{{{user: member}}}}}}}}
    count: users
    where: {{{{not: {{{{page: {SHOP}}}}}}}}}
"""


def check_side_streams(
    port: int, visits: Sequence[Visit], rows: Mapping[str, Mapping[int, bytes]]
) -> dict[str, int]:
    """Compare the released values of all side streams with a recount; return how much each counted.

    Args: visits, all events of the topic; rows, of each stream. Raises: Broken.
    """
    said = {
        CHOSEN: _check_chosen(port, visits, _bins_of(rows[CHOSEN])),
        SALES: _check_sales(port, visits, _bins_of(rows[SALES])),
        PEOPLE: _check_people(port, visits, rows[PEOPLE].values()),
    }
    if not all(said.values()):
        raise Broken(f"a stream has counted nothing: {said}")
    return said


def _bins_of(rows: Mapping[int, bytes]) -> range:
    bins = [json.loads(row)["bin"] for _, row in sorted(rows.items())]
    if bins != list(range(bins[0], bins[-1] + 1)):
        raise Broken("a stream's bins are not released one after another")
    return range(bins[0], bins[-1] + 1)


def _check_chosen(port: int, visits: Sequence[Visit], bins: range) -> int:
    expected = Counter((visit.bin, _key(visit)) for visit in visits if visit.page == SHOP)
    for key in KEYS:
        for bin, value in zip(bins, _series(port, CHOSEN, bins, key=key), strict=True):
            if value != expected[bin, key]:
                raise Broken(f"{CHOSEN}: bin {bin} has {value} of {key}, recounted {expected[bin, key]}")
    return sum(expected[bin, key] for bin in bins for key in KEYS)


def _check_sales(port: int, visits: Sequence[Visit], bins: range) -> int:
    counts, sums = Counter[tuple[int, str]](), defaultdict[tuple[int, str], Fraction](Fraction)
    for visit in visits:
        if visit.amount is not None:
            place = visit.bin, _key(visit)
            counts[place] += 1
            clamped = min(max(Fraction(visit.amount), Fraction(LEAST)), Fraction(MOST))
            sums[place] += round(clamped / UNIT) * UNIT
    # A question for each bin would take too long: runs of ten bins still name the bins that differ.
    for key in KEYS:
        for first in range(bins.start, bins.stop, 10):
            run = range(first, min(first + 10, bins.stop))
            count = sum(counts[bin, key] for bin in run)
            total = sum((sums[bin, key] for bin in run), Fraction(0))
            asked = _between(run)
            answers = (
                get(port, f"/v1/streams/{SALES}/count", key=key, **asked)["value"],
                get(port, f"/v1/streams/{SALES}/sum", key=key, **asked)["value"],
            )
            if answers != (count, float(total)):
                raise Broken(f"{SALES}: {key} in bins {run} has {answers}, recounted {count} and {total}")
    return sum(counts[bin, key] for bin in bins for key in KEYS)


def _check_people(port: int, visits: Sequence[Visit], rows: Iterable[bytes]) -> int:
    """Compare first visits. After a lost store, a user may count once more in the rest of the cap window."""
    epochs = {fields["bin"]: fields["epoch"] for fields in map(json.loads, rows)}
    bins = range(min(epochs), max(epochs) + 1)
    of_epochs, of_windows = dict[tuple[int, str], int](), dict[tuple[int, str], int]()
    for visit in visits:
        if visit.page != SHOP and visit.bin in epochs:
            for firsts, run in (
                (of_epochs, epochs[visit.bin]),
                (of_windows, (visit.bin - bins.start) // EPOCH_BINS),
            ):
                place = run, visit.member
                firsts[place] = min(firsts.get(place, visit.bin), visit.bin)
    most, least = Counter(of_epochs.values()), Counter(of_windows.values())
    values = _series(port, PEOPLE, bins)
    for bin, value in zip(bins, values, strict=True):
        if not least[bin] <= value <= most[bin]:
            raise Broken(f"{PEOPLE}: bin {bin} has {value} users, recounted {least[bin]} to {most[bin]}")
    return int(sum(values))


def _key(visit: Visit) -> str:
    return visit.country if visit.country in KEYS else "other"


def _series(port: int, stream: str, bins: range, **asked: str) -> list[float]:
    """Return the counts of a stream's bins."""
    values: list[float] = []
    for first in range(bins.start, bins.stop, AT_ONCE):
        run = range(first, min(first + AT_ONCE, bins.stop))
        found = get(port, f"/v1/streams/{stream}/series", kind="bin", **_between(run), **asked)
        values += found["value"]
    return values


def _between(bins: range) -> dict[str, str]:
    start, end = (datetime.fromtimestamp(at * BIN_MS / 1000, UTC) for at in (bins.start, bins.stop))
    return {"start": f"{start:%Y-%m-%dT%H:%M:%SZ}", "end": f"{end:%Y-%m-%dT%H:%M:%SZ}"}
