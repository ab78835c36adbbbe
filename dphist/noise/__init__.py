"""The only source of randomness: exact integer noise, drawn in vectors."""

from dphist.noise.sources import (
    LARGEST_SCALE,
    GaussianSource,
    NoiseSource,
    Scale,
    SeededNoise,
    SystemNoise,
    checked_scale,
    checked_scores,
)

__all__ = [
    "LARGEST_SCALE",
    "GaussianSource",
    "NoiseSource",
    "Scale",
    "SeededNoise",
    "SystemNoise",
    "checked_scale",
    "checked_scores",
]
