"""Sources of noise: the operating system's entropy for people, seeds for research and tests."""

import math
import os
from fractions import Fraction
from functools import lru_cache
from types import ModuleType
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dphist.arrays import Int64Array
from dphist.noise.gaussian import DiscreteGaussian
from dphist.noise.laplace import DiscreteLaplace

Scale = Fraction | int | float

# With larger scales, sums of a tree's noise could overflow int64; OpenDP would saturate without an error.
LARGEST_SCALE = 2**52
# OpenDP converts Python lists, so a draw of any size is cut into lists of this many integers (about 0.7 s).
_DRAWS_PER_CALL = 100_000
# A wider discrete Gaussian differs from a rounded normal variable by less than any test can see.
_NARROW = 256


@runtime_checkable
class NoiseSource(Protocol):
    """A source of noise: draws vectors of integer noise and makes private selections."""

    @property
    def private(self) -> bool:
        """Whether these draws may protect people: true for the system source only."""
        ...

    def discrete_laplace(self, scale: Scale, shape: int | tuple[int, ...]) -> Int64Array:
        """Draw independent integers Z with P(Z = z) proportional to exp(-|z| / scale)."""
        ...

    def select(self, scores: NDArray[np.integer[Any]], scale: Scale) -> int:
        """Draw an index privately, favouring high scores (permute and flip)."""
        ...


@runtime_checkable
class GaussianSource(Protocol):
    """A source of discrete Gaussian noise, which the approximate mechanism adds."""

    @property
    def private(self) -> bool:
        """Whether these draws may protect people: true for the system source only."""
        ...

    def discrete_gaussian(self, variance: Fraction, shape: int | tuple[int, ...]) -> Int64Array:
        """Draw independent integers Z with P(Z = z) proportional to exp(-z^2 / (2 variance))."""
        ...


class SystemNoise:
    """Exact noise from the operating system's entropy.

    Args: sampler, "blocks" for the vectorised sampler of this package, "opendp" for OpenDP's. Both have the
        same law. ``select`` is always OpenDP's.
    Guarantee: ``discrete_laplace`` with scale D / epsilon on integers of L1 sensitivity D is epsilon-DP;
        ``discrete_gaussian`` with variance s^2 on integers of L2 sensitivity D is D^2 / (2 s^2)-zCDP, both
        without floating-point error; ``select`` with scale s on integer scores of sensitivity D is
        2 D / s-DP (D / s if one more person moves all scores in the same direction).
    Cost: "blocks": some 0.05 microseconds per discrete Laplace draw and 0.15 per discrete Gaussian draw in
        large vectors, some milliseconds for a new scale. "opendp": about 7 microseconds per draw.
    Source: Canonne, Kamath, Steinke (2020), algorithms 1 to 3; decision 0034 for blocks; McKenna, Sheldon
        (2020) for ``select``.

    >>> SystemNoise().discrete_laplace(2, 5).dtype
    dtype('int64')
    """

    private = True

    def __init__(self, sampler: Literal["blocks", "opendp"] = "blocks") -> None:
        if sampler not in ("blocks", "opendp"):
            raise ValueError(f'there is no sampler {sampler!r}; choose "blocks" or "opendp"')
        self.sampler = sampler

    def discrete_laplace(self, scale: Scale, shape: int | tuple[int, ...]) -> Int64Array:
        """Draw independent integers Z with P(Z = z) proportional to exp(-|z| / scale).

        Args: scale in counts, rounded up to a double, never down; shape as in numpy.
        Raises: ValueError for a scale that is not finite and in (0, 2^52]; OSError without entropy.
        """
        exact = checked_scale(scale)
        if self.sampler == "blocks":
            return _laplace_blocks(exact).draw(math.prod(_axes(shape)), os.urandom).reshape(shape)
        return _in_lists(_opendp().laplace(exact), shape)

    def discrete_gaussian(self, variance: Fraction, shape: int | tuple[int, ...]) -> Int64Array:
        """Draw independent integers Z with P(Z = z) proportional to exp(-z^2 / (2 variance)).

        Args: variance in squared counts. OpenDP's sampler rounds its square root up to a double.
        Raises: ValueError for a variance outside [2^-40, 2^80]; OSError without entropy.
        """
        if self.sampler == "blocks":
            return _gaussian_blocks(variance).draw(math.prod(_axes(shape)), os.urandom).reshape(shape)
        return _in_lists(_opendp().gaussian(_root(variance)), shape)

    def select(self, scores: NDArray[np.integer[Any]], scale: Scale) -> int:
        """Draw an index, favouring high scores.

        Args: integer scores of shape (n,); scale in units of the scores.
        Raises: ValueError for no scores, scores that are not integers, or a bad scale.
        """
        exact = checked_scale(scale)
        return int(_opendp().noisy_max(exact)(checked_scores(scores).tolist()))


class SeededNoise:
    """Repeatable noise for research and tests. It protects nobody: the service refuses it.

    Guarantee: none. The laws are the discrete Laplace and the discrete Gaussian up to double rounding.
    Cost: about 0.1 microseconds per draw.

    >>> SeededNoise(1).discrete_laplace(2, 4).tolist() == SeededNoise(1).discrete_laplace(2, 4).tolist()
    True
    """

    private = False

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def discrete_laplace(self, scale: Scale, shape: int | tuple[int, ...]) -> Int64Array:
        """Draw discrete Laplace noise, as the difference of two geometric draws."""
        success = -math.expm1(-1.0 / checked_scale(scale))
        one, other = (self.generator.geometric(success, shape) for _ in range(2))
        return np.asarray(one - other, dtype=np.int64)

    def discrete_gaussian(self, variance: Fraction, shape: int | tuple[int, ...]) -> Int64Array:
        """Draw discrete Gaussian noise: by its probabilities if narrow, else by rounding a normal draw."""
        deviation = math.sqrt(variance)
        if deviation > _NARROW:
            return np.rint(self.generator.normal(0.0, deviation, shape)).astype(np.int64)
        reach = math.ceil(12 * deviation) + 1
        values = np.arange(-reach, reach + 1)
        law = np.exp(-(values**2) / (2 * float(variance)))
        return self.generator.choice(values, shape, p=law / law.sum()).astype(np.int64)

    def continuous_laplace(self, scale: float, shape: int | tuple[int, ...]) -> NDArray[np.float64]:
        """Draw the papers' continuous Laplace, for reproducing their figures only."""
        return np.asarray(self.generator.laplace(0.0, checked_scale(scale), shape))

    def select(self, scores: NDArray[np.integer[Any]], scale: Scale) -> int:
        """Draw an index: that of the largest score after adding exponential noise to each."""
        values = checked_scores(scores)
        return int(np.argmax(values + self.generator.exponential(checked_scale(scale), values.shape)))


def checked_scale(scale: Scale) -> float:
    """Return the scale as the smallest double that is not below it.

    Raises: ValueError for a scale that is not finite and in (0, 2^52].

    >>> Fraction(checked_scale(Fraction(1, 3))) >= Fraction(1, 3)
    True
    """
    if isinstance(scale, float) and not math.isfinite(scale):
        raise ValueError(f"noise scale {scale!r} is not finite; pass D / epsilon with a finite epsilon > 0")
    exact = Fraction(scale)
    if not 0 < exact <= LARGEST_SCALE:
        size = f"2^{exact.numerator.bit_length() - exact.denominator.bit_length()}"
        raise ValueError(f"noise scale of about {size} is outside (0, 2^52]; choose another epsilon")
    rounded = float(exact)
    return rounded if Fraction(rounded) >= exact else math.nextafter(rounded, math.inf)


def checked_scores(scores: NDArray[np.integer[Any]]) -> Int64Array:
    """Return the scores as int64; refuse other types, which could carry floating-point error."""
    values = np.asarray(scores)
    if values.ndim != 1 or values.size == 0 or not np.issubdtype(values.dtype, np.integer):
        raise ValueError(f"scores need shape (n,), n >= 1, of integers; got {values.dtype} {values.shape}")
    return values.astype(np.int64)


def _axes(shape: int | tuple[int, ...]) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def _root(variance: Fraction) -> float:
    """Return a double that is not below the square root."""
    root = math.sqrt(variance)
    while Fraction(root) ** 2 < variance:
        root = math.nextafter(root, math.inf)
    return root


def _in_lists(measurement: Any, shape: int | tuple[int, ...]) -> Int64Array:
    """Return draws of an OpenDP measurement of zeros, in lists of bounded length."""
    size = math.prod(_axes(shape))
    drawn = np.empty(size, dtype=np.int64)
    for start in range(0, size, _DRAWS_PER_CALL):
        stop = min(start + _DRAWS_PER_CALL, size)
        drawn[start:stop] = measurement([0] * (stop - start))
    return drawn.reshape(shape)


@lru_cache(maxsize=64)
def _laplace_blocks(scale: float) -> DiscreteLaplace:
    return DiscreteLaplace(Fraction(scale))


@lru_cache(maxsize=64)
def _gaussian_blocks(variance: Fraction) -> DiscreteGaussian:
    return DiscreteGaussian(variance)


def _opendp() -> ModuleType:
    """Return the module of OpenDP's measurements, which few processes need and all would wait for."""
    from dphist.noise import with_opendp

    return with_opendp
