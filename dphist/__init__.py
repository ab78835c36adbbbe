"""Counts with differential privacy: exact noise, and an interval around every answer.

Each example releases once. A second release of the same events costs epsilon again.

**A histogram, and a count of any range of its bins.** ``release`` runs any of the mechanisms that ``names()``
lists; ``describe(name)`` describes each mechanism.

>>> counts = [120, 80, 95, 14, 3, 0, 7, 52]
>>> made = release("hb", counts, epsilon=1.0)
>>> made.answer([[0, 3]])  # doctest: +SKIP
array([293.1])
>>> interval = made.interval([[0, 3]])  # 95 %: made.variance has the exact variance
>>> bool(interval.lower[0] < interval.upper[0])
True

**A cumulative distribution and its median.** ``to_pandas()`` and ``plot()`` give a table and a picture with
the band.

>>> curve = release("cdf_tree", counts, epsilon=1.0).cdf()
>>> curve.quantile(0.5) in range(9)
True

**A running count,** known after each bin, for a series that is complete.

>>> running_counts(counts, epsilon=1.0)  # doctest: +SKIP
<Curve 'running count' at 8 places from bin 1 to bin 8: 118.6 ... 371.4, 95 %: 361 to 381.8>

**A running count while bins arrive.** Each ``push`` closes a bin, and may be published.

>>> counter = TreeCounter(plan_tree(horizon=1024, epsilon=1.0))
>>> for count in counts:
...     _ = counter.push(count)
>>> counter.range(2, 7).interval(0.95).level >= 0.95
True

**Counts by key and value over time, with quantiles.**

>>> by_key = ProductCounter(plan_product(24, 1.0, keys=2, buckets=4))
>>> by_key.push([3, 0, 1, 9, 0, 2, 2, 5]).levels[-1].values.shape
(1, 8)

**The standard error of a running count before anything is released.**

>>> round(plan_tree(horizon=1024, epsilon=1.0, release="anticipating").mean_squared_error() ** 0.5, 1)
10.8

**What several releases cost together:** ``dphist.composition``. **Which mechanism is best for data like
mine:** ``dphist.comparison``, or the command ``dphist compare``. ``SeededNoise`` repeats a release for tests
and protects nobody; without it, noise comes from the operating system.
"""

from dphist import mechanisms
from dphist.curve import Curve
from dphist.epochs import EpochLevels, EpochLevelsCounter
from dphist.laws.interval import Interval
from dphist.mechanisms import HistogramRelease, describe, names, release
from dphist.noise import NoiseSource, SeededNoise, SystemNoise
from dphist.planning.epochs import plan_epoch_levels
from dphist.planning.product import plan_product
from dphist.planning.running import running_counts
from dphist.planning.tree import plan_tree
from dphist.privacy import Neighbours, did_you_mean, exact
from dphist.product.answers import Cdf, Histogram, Quantile
from dphist.product.counter import ProductCounter
from dphist.product.design import ProductDesign
from dphist.product.forest import ProductForest, RangeSum
from dphist.tree.anticipating import AnticipatingCounter, AnticipatingSnapshot
from dphist.tree.counter import CounterSnapshot, TreeCounter
from dphist.tree.decoder import decode_noise, draw_epoch_noise
from dphist.tree.design import TreeDesign
from dphist.tree.estimate import Estimate, ReleasedForest
from dphist.tree.release import BinRelease, BinReleases, LevelRelease, NodeRelease
from dphist.tree.shape import TreeShape

__version__ = "0.2.0"

__all__ = [
    "AnticipatingCounter",
    "AnticipatingSnapshot",
    "BinRelease",
    "BinReleases",
    "Cdf",
    "CounterSnapshot",
    "Curve",
    "EpochLevels",
    "EpochLevelsCounter",
    "Estimate",
    "Histogram",
    "HistogramRelease",
    "Interval",
    "LevelRelease",
    "Neighbours",
    "NodeRelease",
    "NoiseSource",
    "ProductCounter",
    "ProductDesign",
    "ProductForest",
    "Quantile",
    "RangeSum",
    "ReleasedForest",
    "SeededNoise",
    "SystemNoise",
    "TreeCounter",
    "TreeDesign",
    "TreeShape",
    "__version__",
    "decode_noise",
    "describe",
    "draw_epoch_noise",
    "exact",
    "mechanisms",
    "names",
    "plan_epoch_levels",
    "plan_product",
    "plan_tree",
    "release",
    "running_counts",
]


def __dir__() -> list[str]:
    """Return the names that may be used; all others may change."""
    return __all__


def __getattr__(name: str) -> object:
    """Refuse an unknown name, and say which one may be meant."""
    raise AttributeError(f"dphist has no {name!r}; {did_you_mean(name, __all__)}help(dphist) shows each task")
