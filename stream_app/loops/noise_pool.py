"""Noise drawn while nothing is due, for streams too wide to store an epoch's ahead: in memory, used once.

A causal close asks for the same vectors again and again, one for each scale and shape. They are drawn
between two closings and handed out whole, each to the first who asks; what is not there is drawn at once.
Noise in the pool is independent of all data and dies with the process: nothing of it is ever used twice.
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

LARGEST_POOL = 4_000_000  # numbers; the vectors of one bin of a million columns on four levels


class NoisePool:
    """A source that has some of its vectors ready.

    Guarantee: that of ``source``: every vector is drawn by it, and given out once.
    Args: wanted, how many vectors of each scale and shape to keep ready; none if they are more than
        ``LARGEST_POOL`` numbers.
    """

    def __init__(self, source: NoiseSource, wanted: Mapping[Vector, int]) -> None:
        self.private = source.private
        self._source = source
        self._wanted = dict(wanted)
        self._ready: dict[Vector, deque[Int64Array]] = {vector: deque() for vector in wanted}
        if sum(int(np.prod(shape)) * count for (_, shape), count in wanted.items()) > LARGEST_POOL:
            self._wanted.clear()

    def __repr__(self) -> str:
        return f"<NoisePool of {self._source!r}>"

    def discrete_laplace(self, scale: Scale, shape: int | tuple[int, ...]) -> Int64Array:
        """Return a vector that is ready, or draw one."""
        whole = (shape,) if isinstance(shape, int) else tuple(shape)
        ready = self._ready.get((Fraction(scale), whole))
        if ready:
            return ready.popleft()
        return self._source.discrete_laplace(scale, shape)

    def select(self, scores: NDArray[np.integer[Any]], scale: Scale) -> int:
        """Select as the source does."""
        return self._source.select(scores, scale)

    def draw_one(self) -> bool:
        """Draw one vector that is missing; return whether there was one."""
        for vector, count in self._wanted.items():
            if len(self._ready[vector]) < count:
                scale, shape = vector
                self._ready[vector].append(self._source.discrete_laplace(scale, shape))
                return True
        return False
