"""Running counts of a finished series in one call."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dphist.curve import Curve
from dphist.noise import NoiseSource
from dphist.planning.tree import plan_tree
from dphist.privacy import Exact
from dphist.tree.anticipating import AnticipatingCounter


def running_counts(
    counts: ArrayLike, epsilon: Exact, confidence: float = 0.95, noise: NoiseSource | None = None
) -> Curve:
    """Return the running count after each bin, with an interval of each.

    Guarantee: epsilon-DP for one event added or removed, all running counts together. Each interval, by
        itself, contains the true count with at least this confidence.
    Args: counts per bin, (n,), whole and not negative; noise, by default the system's.
    Raises: ValueError for counts of a wrong kind (the message never shows a count), or a bad epsilon.

    >>> running_counts([5, 0, 2], epsilon=1e9).values.tolist()
    [5.0, 5.0, 7.0]
    """
    series = np.asarray(counts)
    if series.ndim != 1 or not series.size:
        raise ValueError(f"counts: shape {series.shape} given; (n,) with n of at least 1 is needed")
    if series.dtype.kind == "f" and np.isfinite(series).all() and (series == np.floor(series)).all():
        series = series.astype(np.int64)  # pandas makes floats of whole numbers
    counter = AnticipatingCounter(plan_tree(series.size, epsilon, release="anticipating"), noise)
    counter.push_many(series[:, np.newaxis])
    return counter.curve(confidence)
