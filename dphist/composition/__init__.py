"""The cost of several releases about the same people together: an upper bound that holds in exact arithmetic.

May import: numpy, scipy, ``dphist.certified``.
Start at: ``losses.py`` (the summands), then ``curve.py`` (delta for an epsilon, epsilon for a delta).
Must stay true: no result is below the truth. Floats propose an epsilon; whole numbers, rounded up, decide.
The proof is in docs/decisions/0035-what-epochs-cost-together.md.
"""

from dphist.composition.curve import delta_of, epsilon_of
from dphist.composition.losses import Losses

__all__ = ["Losses", "delta_of", "epsilon_of"]
