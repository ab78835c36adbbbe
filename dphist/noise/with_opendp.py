"""OpenDP's measurements of vectors of integers. Few processes need them; loading takes time."""

from functools import lru_cache
from typing import Any

# Imported one by one: the prelude also loads the data-frame extras.
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_gaussian, make_laplace, make_noisy_max
from opendp.measures import max_divergence
from opendp.metrics import l1_distance, l2_distance, linf_distance
from opendp.mod import enable_features

enable_features("contrib")


@lru_cache(maxsize=256)
def gaussian(scale: float) -> Any:
    """Return the measurement that adds discrete Gaussian noise."""
    return make_gaussian(vector_domain(atom_domain(T="i64")), l2_distance(T="f64"), scale=scale)


@lru_cache(maxsize=256)
def laplace(scale: float) -> Any:
    """Return the measurement that adds discrete Laplace noise."""
    return make_laplace(vector_domain(atom_domain(T="i64")), l1_distance(T="i64"), scale=scale)


@lru_cache(maxsize=256)
def noisy_max(scale: float) -> Any:
    """Return the measurement that selects the index of a high score."""
    domain = vector_domain(atom_domain(T="i64"))
    return make_noisy_max(domain, linf_distance(T="i64"), max_divergence(), scale=scale)
