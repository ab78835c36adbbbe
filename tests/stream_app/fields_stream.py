"""A small stream over two key fields for tests: clicks by country and device."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from dphist import plan_product
from dphist.arrays import Int64Array
from dphist.tree.design import Release
from stream_app.core.counting.cells import KeyField, KeyList
from stream_app.core.kinds import kind_of
from stream_app.core.strategy import Strategy
from stream_app.sources.file import FileSource
from tests.stream_app.declared import BIN_US, FIRST_BIN, NO_NOISE, strategy_of
from tests.stream_app.files import AT
from tests.stream_app.product_stream import ProductSource

COUNTRIES, DEVICES = ("FR", "DE", "other"), ("mobile", "desk/top")
KEYS = KeyList(
    fields=(KeyField("geo.country", COUNTRIES[:2], True), KeyField("device", DEVICES, False)), total=False
)
LABELS = KEYS.labels
BINS = 8  # the second epoch is open
Click = tuple[float, str | None, str | None]


def fields_strategy(
    release: Release = "causal", epsilon: Fraction = NO_NOISE, total: bool = False
) -> Strategy:
    """Return a strategy over both fields."""
    share = Fraction(1, 5) if total else Fraction(0)
    design = plan_product(6, epsilon, len(LABELS), total_share=share, release=release, branching=(2, 3))
    keys = KeyList(fields=KEYS.fields, total=total)
    return replace(strategy_of(design.time, keys=keys), kind=kind_of(design))


class Clicks(ProductSource):
    """A file of clicks, a store and a witness."""

    def source(self) -> FileSource:
        """Open the file."""
        notes = self.directory / "notes"
        self.sources.append(FileSource(self.path, "ndjson", AT, notes, ["geo.country", "device"]))
        return self.sources[-1]

    def append_clicks(self, clicks: list[Click]) -> None:
        """Append clicks; a field that is None is left out of the record."""
        with self.path.open("ab") as file:
            for bin, country, device in clicks:
                geo = {} if country is None else {"country": country}
                own = {} if device is None else {"device": device}
                file.write(json.dumps({"at": int(bin * BIN_US), "geo": geo, **own}).encode() + b"\n")


def some_clicks(seed: int, per_bin: int = 40) -> list[Click]:
    """Return random clicks in order of time, some with unlisted values or without a field."""
    rng = np.random.default_rng(seed)
    return [
        (
            FIRST_BIN + float(place),
            ["FR", "DE", "IT", None][int(rng.integers(0, 4))],
            [*DEVICES, "tv", None][min(int(rng.integers(0, 12)) // 5, 3) if rng.random() < 0.95 else 3],
        )
        for place in np.sort(rng.uniform(0, BINS, BINS * per_bin))
    ]


def recounted(clicks: list[Click]) -> Int64Array:
    """Return the exact counts, shape (bins, countries, devices)."""
    table = np.zeros((BINS, 3, 2), np.int64)
    for bin, country, device in clicks:
        if device in DEVICES:
            place = COUNTRIES.index(country) if country in COUNTRIES[:2] else 2
            table[int(bin) - FIRST_BIN, place, DEVICES.index(device)] += 1
    return table


def released(directory: Path, strategy: Strategy, clicks: list[Click]) -> Clicks:
    """Count and release all clicks, with new loops for every two bins."""
    one = Clicks(directory, strategy)
    for start in range(0, BINS, 2):
        one.append_clicks([click for click in clicks if start <= click[0] - FIRST_BIN < start + 2])
        one.run_until(FIRST_BIN + start + 2)
    one.close()
    return one
