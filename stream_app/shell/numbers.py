"""How the terminal writes numbers with an error: with the digits that the error supports, ends outward."""

from __future__ import annotations

import math

_DUST = 1e-6  # of the last digit: rounding errors of sums of doubles


def supported(half_width: float, most: int = 2) -> int:
    """Return how many decimals to show beside an error: those of its first two digits, at most ``most``.

    Pages choose decimals by the same rule (``dashboard/words.js``).

    >>> [supported(error) for error in (7_287, 12.5, 3.1, 0.42, 0.0)]
    [0, 0, 1, 2, 2]
    """
    if not half_width > 0:
        return most
    return min(most, max(0, 1 - math.floor(math.log10(half_width))))


def outward(lower: float, upper: float, places: int = 0) -> tuple[str, str]:
    """Return both ends of an interval as text, rounded outward: the text covers the interval.

    >>> outward(3.2, 15.1), outward(-0.314, 2.0, 2)
    (('3', '16'), ('-0.32', '2.00'))
    >>> outward(1_234_567.89, 1_234_567.89, 2)
    ('1,234,567.89', '1,234,567.89')
    """
    size = 10**places
    dust = max(_DUST, 4 * math.ulp(max(abs(lower), abs(upper)) * size))
    ends = math.floor(lower * size + dust) / size, math.ceil(upper * size - dust) / size
    low, high = (f"{end:z,.{places}f}" for end in ends)
    return low, high
