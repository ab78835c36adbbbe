"""Noise drawn in idle time and kept in memory, for streams too wide to store an epoch's noise ahead.

Every causal closing needs vectors of the same scales and shapes, which are drawn between two closings. Noise
in the pool is independent of all data and is lost with the process, so no noise is ever used twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dphist.arrays import Int64Array
from dphist.noise import NoiseSource, Scale
from stream_app.core.kinds.kind import Vector

LARGEST_POOL = 4_000_000  # numbers: the vectors of one bin with a million columns on four levels


class NoisePool:
    """A noise source that keeps some vectors ready, and draws a missing vector at once.

    Guarantee: that of ``source``, which draws every vector. Each vector is returned whole, and once.
    Args: wanted, how many vectors of each scale and shape to keep ready; none are kept if together they have
        more than ``LARGEST_POOL`` numbers.
    """

    def __init__(self, source: NoiseSource, wanted: Mapping[Vector, int]) -> None:
        self.private = source.private
        self._source = source
        self._wanted = dict(wanted)
        self._ready: dict[Vector, deque[Int64Array]] = {vector: deque() for vector in wanted}
        if sum(int(np.prod(shape)) * count for (_, shape), count in wanted.items()) > LARGEST_POOL:
            self._wanted.clear()

    def discrete_laplace(self, scale: Scale, shape: int | tuple[int, ...]) -> Int64Array:
        """Return a vector that is ready, or draw one now."""
        whole = (shape,) if isinstance(shape, int) else tuple(shape)
        ready = self._ready.get((Fraction(scale), whole))
        if ready:
            return ready.popleft()
        return self._source.discrete_laplace(scale, shape)

    def select(self, scores: NDArray[np.integer[Any]], scale: Scale) -> int:
        """Return the source's selection; nothing is drawn ahead for it."""
        return self._source.select(scores, scale)

    def draw_one(self) -> bool:
        """Draw one vector that is missing; return whether there was one."""
        for vector, count in self._wanted.items():
            if len(self._ready[vector]) < count:
                scale, shape = vector
                self._ready[vector].append(self._source.discrete_laplace(scale, shape))
                return True
        return False
