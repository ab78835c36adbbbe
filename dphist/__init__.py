"""dphist: exact, differentially private counts over time, and every histogram mechanism of the papers.

May import: numpy, scipy and opendp; never ``stream_app``, a clock, a network or a file of state.
Start at: ``tree/shape.py`` (geometry), then ``tree/counter.py`` (release once), then ``tree/estimate.py``.
Must stay true: noise comes from ``noise`` alone, counts and noise are integers, and every public
function that touches data states its guarantee.
"""

from dphist.epochs.counter import EpochLevelsCounter
from dphist.epochs.levels import EpochLevels
from dphist.noise import NoiseSource, SeededNoise, SystemNoise
from dphist.planning.epochs import plan_epoch_levels
from dphist.planning.product import plan_product
from dphist.planning.tree import plan_tree
from dphist.privacy import Neighbours, exact
from dphist.product.answers import Cdf, Histogram, Quantile
from dphist.product.counter import ProductCounter
from dphist.product.design import ProductDesign
from dphist.product.forest import ProductForest, RangeSum
from dphist.tree.anticipating import AnticipatingCounter, AnticipatingSnapshot
from dphist.tree.counter import CounterSnapshot, TreeCounter
from dphist.tree.decoder import decode_noise, draw_epoch_noise
from dphist.tree.design import TreeDesign
from dphist.tree.estimate import Estimate, Interval, ReleasedForest
from dphist.tree.release import BinRelease, BinReleases, LevelRelease, NodeRelease
from dphist.tree.shape import TreeShape

__all__ = [
    "AnticipatingCounter",
    "AnticipatingSnapshot",
    "BinRelease",
    "BinReleases",
    "Cdf",
    "CounterSnapshot",
    "EpochLevels",
    "EpochLevelsCounter",
    "Estimate",
    "Histogram",
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
    "decode_noise",
    "draw_epoch_noise",
    "exact",
    "plan_epoch_levels",
    "plan_product",
    "plan_tree",
]
