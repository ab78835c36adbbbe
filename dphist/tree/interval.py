"""placeholder"""

from dataclasses import dataclass


@dataclass(frozen=True)
class HalfWidth:
    value: float
    level: float


def half_width(law, confidence):
    import math

    return HalfWidth(2 * math.sqrt(law.variance), 0.95)
