"""After stage 2: merge neighbouring buckets with similar noisy counts, and fit all measurements to them."""

from __future__ import annotations

import math

import numpy as np

from dphist.arrays import Int64Array
from dphist.mechanisms.dawa.expand import bucket_positions
from dphist.mechanisms.measured_runs import MeasuredRuns
from dphist.mechanisms.trees.hierarchical import MeasuredTree
from dphist.mechanisms.uniform_buckets import uniform_buckets


def merged_buckets(measured: MeasuredTree, edges: Int64Array) -> tuple[Int64Array, MeasuredRuns]:
    """Return the edges of the merged buckets and the least-squares fit of every measured node to them.

    A private first stage needs so much noise that it cuts uniform runs of bins by chance; the counts of stage
    2 show where. Merging minimises the negative log-likelihood plus, for each merged bucket, half the log of
    the number of buckets before merging: Schwarz's criterion, without tuning.

    Guarantee: post-processing of published counts. Biased if counts within a merged bucket are not uniform.
    Args: edges of the tree's leaves, in bins.
    Cost: O(k^2) for k buckets up to 4096, in vectors of k; O(k log k) beyond.
    Source: this library's own.
    """
    leaves = measured.solve()[0]
    first = np.arange(leaves.size, dtype=np.float64)
    price = 0.5 * math.log(leaves.size)
    kept = edges[uniform_buckets(leaves, np.diff(edges), measured.variance(first, first + 1.0), price=price)]
    runs = MeasuredRuns(kept.size - 1)
    for starts, ends, noisy, variances in measured.runs():
        places = bucket_positions(np.stack([edges[starts], edges[ends]]), kept)
        runs.add(places[0], places[1], noisy, variances)
    return kept, runs
