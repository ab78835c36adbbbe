"""One published range: the law of its error, and a bound on its rounding error.

The law comes from a one-row table of ``published_laws.py``. Its weights are the integer decoder's own (whole
multiples of 2^-24), so only the decoder's rounding needs a bound.
"""

from __future__ import annotations

import numpy as np

from dphist.arrays import FloatArray
from dphist.laws.law import WeightedNoise
from dphist.tree.decoder import decoder_weights
from dphist.tree.design import TreeDesign
from dphist.tree.prefix_error import prefix_variances
from dphist.tree.published_laws import published_laws
from dphist.units import UNITS_PER_COUNT


def published_law(design: TreeDesign, a: int, b: int) -> WeightedNoise:
    """Return the exact law of the error of a published range [a, b); a = 0 gives a prefix.

    Guarantee: the law of the decoder's linear map; ``DecoderWeights.rounding_units`` bounds the rest.
    Cost: O(height^2), some 0.7 ms.
    """
    return published_laws(design, np.array([a]), np.array([b])).law(0)


def published_rounding(design: TreeDesign, a: int) -> float:
    """Return a bound, in counts, on the decoder's rounding error in a published range that starts at a."""
    return (1 + (a > 0)) * decoder_weights(design).rounding_units / UNITS_PER_COUNT


def published_prefix_variances(design: TreeDesign) -> FloatArray:
    """Return the variance of every published running count, t = 1..horizon, in closed form: (horizon,).

    Guarantee: exact for unrounded weights. The decoder's weights are optimal up to 2^-24, so the variances
        agree to about 1e-13.
    Cost: O(height * horizon).
    """
    return prefix_variances(design.shape, design.horizon, design.node_variances(), design.anticipates)
