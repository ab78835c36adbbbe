"""Every feature that decides what counts, side by side over one log without noise: a recount by hand."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from dphist import plan_product
from dphist.planning.product import plan_sums
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.sums import sum_of
from stream_app.core.counting.cells import Amounts, Buckets, KeyField, KeyList
from stream_app.core.counting.where import AllOf, Condition, Not, OneOf, Within
from stream_app.core.kinds import kind_of
from stream_app.core.kinds.tables import Span
from stream_app.core.ledger import ACCEPTED
from stream_app.core.strategy import Strategy
from stream_app.sources.file import FileSource
from tests.stream_app.declared import BIN_US, FIRST_BIN, NO_NOISE, design_of, strategy_of
from tests.stream_app.files import AT
from tests.stream_app.one_source import OneSource
from tests.stream_app.product_stream import view_of

EPOCH_BINS, BINS = 6, 9  # an epoch and a half
SPANS = ((0, BINS), (0, 1), (2, 5), (4, 8))
Visit = Mapping[str, Any]
COUNTRY = KeyList("country", ("FR", "DE"), True, False)
DEVICES = KeyList(
    fields=(KeyField("country", ("FR", "DE"), True), KeyField("device", ("tv",), True)), total=False
)
DELAY = Buckets("delay", Fraction(0), Fraction(10), 4)
AMOUNT = Amounts("amount", Fraction(0), Fraction(20), Fraction(1, 2))


@dataclass(frozen=True)
class Feature:
    """What a stream counts, and the same by hand.

    Args: keys, buckets, amounts, where, users: as declared; matches, whether a visit matches the condition.
    """

    keys: KeyList | None = None
    buckets: Buckets | None = None
    amounts: Amounts | None = None
    where: Condition | None = None
    users: bool = False
    matches: Callable[[Visit], bool] = lambda visit: True

    def strategy(self, name: str) -> Strategy:
        """Return the stream."""
        keys, facts = len(self.keys.labels) if self.keys else 1, dict[str, Any]()
        if self.users:
            facts = {"max_events": 1, "count": "users"}
        if self.amounts:
            design = plan_sums(EPOCH_BINS, NO_NOISE, self.amounts.range.weight, keys, branching=(2, 3))
        elif self.keys or self.buckets:
            count = self.buckets.count if self.buckets else 1
            design = plan_product(EPOCH_BINS, NO_NOISE, keys, count, branching=(2, 3))
        else:
            return strategy_of(design_of(), stream=name, where=self.where, **facts)
        facts |= {"keys": self.keys, "value": self.buckets, "amounts": self.amounts, "where": self.where}
        return replace(strategy_of(design.time, stream=name, **facts), kind=kind_of(design))


FEATURES = {
    "events": Feature(),
    "where": Feature(
        where=AllOf((OneOf("country", ("FR", "IT")), Within("amount", min=Fraction(0), below=Fraction(9)))),
        matches=lambda visit: visit["country"] in ("FR", "IT") and 0 <= _number(visit["amount"]) < 9,
    ),
    "keys, where": Feature(
        keys=COUNTRY,
        where=Not(OneOf("device", ("tv", "pc"))),
        matches=lambda visit: visit["device"] not in ("tv", "pc"),
    ),
    "values, where": Feature(
        buckets=DELAY, where=OneOf("country", ("DE",)), matches=lambda visit: visit["country"] == "DE"
    ),
    "key fields": Feature(keys=DEVICES),
    "key fields, where": Feature(
        keys=DEVICES, where=Not(OneOf("user", ("u1",))), matches=lambda visit: visit["user"] != "u1"
    ),
    "users": Feature(users=True),
    "users, where": Feature(
        users=True, where=OneOf("device", ("tv",)), matches=lambda visit: visit["device"] == "tv"
    ),
    "sums": Feature(amounts=AMOUNT),
    "sums, keys, where": Feature(
        keys=COUNTRY,
        amounts=AMOUNT,
        where=Within("amount", above=Fraction(-10)),
        matches=lambda visit: _number(visit["amount"]) > -10,
    ),
    "sums, key fields": Feature(keys=DEVICES, amounts=AMOUNT),
}


class Visits(OneSource):
    """One file, counted by all streams at once."""

    def source(self) -> FileSource:
        """Open the file."""
        fields = ["user", "country", "device", "delay", "amount"]
        self._sources.append(FileSource(self.path, "ndjson", AT, self.directory / "notes", fields))
        return self._sources[-1]


def drawn(rng: random.Random) -> dict[int, list[Visit]]:
    """Draw the visits of every bin; some lack fields."""
    return {
        bin: [
            {
                "at": int((bin + rng.random()) * BIN_US),
                "user": f"u{rng.randrange(12)}",
                "country": rng.choice(["FR", "DE", "IT"]),
                "device": rng.choice(["tv", "pc", "watch"]),
                "delay": rng.choice([rng.randrange(-5, 20), None]),
                "amount": rng.choice([rng.randrange(-80, 120) / 4, "7.25", 10**30, None, "?"]),
            }
            for _ in range(25)
        ]
        for bin in range(FIRST_BIN, FIRST_BIN + BINS)
    }


def _number(value: Any) -> float:
    try:
        return float("nan" if value is None else value)
    except ValueError:
        return float("nan")


def _clamped(visit: Visit) -> Fraction:
    return min(max(Fraction(_number(visit["amount"])), Fraction(0)), Fraction(20))


def label_of(visit: Visit, keys: KeyList) -> str:
    """Return the key of a visit, as answers name it."""
    country = visit["country"] if visit["country"] in ("FR", "DE") else "other"
    return f"{country}/{'tv' if visit['device'] == 'tv' else 'other'}" if keys.fields else country


def counting(feature: Feature, visits: dict[int, list[Visit]]) -> dict[int, list[Visit]]:
    """Return the visits that count, bin by bin."""
    found: dict[int, list[Visit]] = {}
    seen: set[tuple[int, str]] = set()
    for bin, some in visits.items():
        found[bin] = kept = []
        for visit in filter(feature.matches, some):
            if feature.buckets and visit["delay"] is None:
                continue
            if feature.amounts and _number(visit["amount"]) != _number(visit["amount"]):
                continue
            user = (bin - FIRST_BIN) // EPOCH_BINS, visit["user"]
            if not feature.users or user not in seen:
                kept.append(visit)
                seen.add(user)
    return found


async def run(one: Visits, visits: dict[int, list[Visit]]) -> dict[str, StreamView]:
    """Count and release everything, with new loops every two bins; return what is visible of each stream."""
    for bin, some in visits.items():
        with one.path.open("ab") as file:
            file.writelines(json.dumps(visit).encode() + b"\n" for visit in some)
        if (bin - FIRST_BIN) % 2 and bin != FIRST_BIN + BINS - 1:
            continue
        closers = [one.closer(strategy, accept=ACCEPTED) for strategy in one.strategies]
        for closer in closers:
            await closer.reconcile()
        ingest = one.ingest()
        one.clock.set_bin(bin + 1)
        while await ingest.step():
            pass
        for closer in closers:
            await closer.close_due()
            await closer.publisher.publish()
    return {strategy.stream: await view_of(one.store, strategy.stream) for strategy in one.strategies}


def check(view: StreamView, feature: Feature, visits: dict[int, list[Visit]]) -> None:
    """Compare all ranges and keys, rollups over a field included, with the visits that count."""
    asked: list[str | None] = [None]
    if feature.keys:
        asked += feature.keys.labels
        asked += ["FR/*", "other/*", "*/tv", "*/other"] if feature.keys.fields else []
    for start, stop in SPANS:
        some = [visit for bin in range(start, stop) for visit in visits[FIRST_BIN + bin]]
        span = Span(FIRST_BIN + start, FIRST_BIN + stop)
        for key in asked:
            own = [visit for visit in some if key is None or _is_under(visit, key, feature.keys)]
            assert view.of_key(key).count(span).value == pytest.approx(len(own), abs=1e-6), (key, span)
            if feature.amounts:
                units = [_clamped(visit) * 2 for visit in own]
                total = float(sum(map(round, units))) / 2
                assert sum_of(view, span, key).value == pytest.approx(total, abs=1e-6), (key, span)


def _is_under(visit: Visit, key: str, keys: KeyList | None) -> bool:
    assert keys is not None
    pairs = zip(label_of(visit, keys).split("/"), key.split("/"), strict=True)
    return all(wanted in ("*", part) for part, wanted in pairs)


def everything(directory: Path) -> tuple[dict[str, StreamView], dict[int, list[Visit]]]:
    """Count one log with all features at once."""
    visits = drawn(random.Random(15))
    strategies = [feature.strategy(name) for name, feature in FEATURES.items()]
    with closing(Visits(directory, *strategies)) as one:
        return asyncio.run(run(one, visits)), visits


def test_every_feature_equals_its_recount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_app.loops.ingest.READ_TIMEOUT_S", 0.0)
    views, visits = everything(tmp_path)
    for name, feature in FEATURES.items():
        counted = counting(feature, visits)
        assert sum(map(len, counted.values())) > 10, name
        check(views[name], feature, counted)


def test_a_rollup_that_misses_other_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_app.loops.ingest.READ_TIMEOUT_S", 0.0)
    views, visits = everything(tmp_path)
    matching = KeyList.matching

    def listed_only(keys: KeyList, pattern: str) -> tuple[int, ...]:
        return tuple(place for place in matching(keys, pattern) if "other" not in keys.labels[place])

    monkeypatch.setattr(KeyList, "matching", listed_only)
    with pytest.raises(Exception, match=r"FR/|other/"):
        check(views["key fields"], FEATURES["key fields"], visits)
