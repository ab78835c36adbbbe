"""The questions that a tree is planned for, as ranges of half-open bins.

A workload's name selects the closed form of its error in ``tree/design.py``; the arrays here are the same
questions written out, for oracles and for mechanisms that take any ranges.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from dphist.noise import Int64Array

# "prefix": the running count after each of the bins 1..horizon, every one weighted alike.
Workload = Literal["prefix"]


def prefixes(bins: int) -> Int64Array:
    """Return the running counts over ``bins`` bins, shape (bins, 2): [0, 1), [0, 2), ..., [0, bins).

    >>> prefixes(2).tolist()
    [[0, 1], [0, 2]]
    """
    ends = np.arange(1, bins + 1, dtype=np.int64)
    return np.stack([np.zeros_like(ends), ends], axis=1)


def single_bins(bins: int) -> Int64Array:
    """Return every bin by itself, shape (bins, 2): [0, 1), [1, 2), ..., [bins - 1, bins).

    >>> single_bins(2).tolist()
    [[0, 1], [1, 2]]
    """
    starts = np.arange(bins, dtype=np.int64)
    return np.stack([starts, starts + 1], axis=1)
