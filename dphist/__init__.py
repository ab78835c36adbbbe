"""dphist: exact, differentially private counts over time, and every histogram mechanism of the papers.

May import: numpy, scipy and opendp; never ``stream_app``, a clock, a network or a file of state.
Start at: ``tree/shape.py`` (geometry), then ``tree/counter.py`` (release once), then ``tree/estimate.py``.
Must stay true: noise comes from ``noise.py`` alone, counts and noise are integers, and every public
function that touches data states its guarantee.
"""

from dphist.noise import NoiseSource, SeededNoise, SystemNoise
from dphist.privacy import Neighbours, exact
from dphist.tree.counter import CounterSnapshot, TreeCounter
from dphist.tree.design import TreeDesign
from dphist.tree.estimate import Estimate, Interval, ReleasedForest
from dphist.tree.planner import plan_tree
from dphist.tree.release import BinRelease, BinReleases, LevelRelease, NodeRelease
from dphist.tree.shape import TreeShape

__all__ = [
    "BinRelease",
    "BinReleases",
    "CounterSnapshot",
    "Estimate",
    "Interval",
    "LevelRelease",
    "Neighbours",
    "NodeRelease",
    "NoiseSource",
    "ReleasedForest",
    "SeededNoise",
    "SystemNoise",
    "TreeCounter",
    "TreeDesign",
    "TreeShape",
    "exact",
    "plan_tree",
]
