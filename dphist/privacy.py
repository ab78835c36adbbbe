"""The privacy cost of a release, in exact fractions: neighbours, sensitivity, composition.

These functions see no data. Costs are rounded up and shares of a budget down, so no sum computed here is
below the true cost. The service's ledger and every tree design use these functions.
"""

import math
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from typing import Literal, get_args

Neighbours = Literal["add_remove", "substitute"]
NEIGHBOURS_IN_WORDS: dict[Neighbours, str] = {"add_remove": "added or removed", "substitute": "moved"}
Exact = Fraction | int | float | str | Decimal

# Longest accepted number in a config or JSON row; Fraction would take hours to expand "1e999999999".
_LONGEST_NUMBER = 200
_LONGEST_SHOWN = 60
# Python reads 1_0 and 010 as 10; other programs read 010 as 8 or refuse such texts.
_WHOLE = "(?:0|[1-9][0-9]*)"
_PLAIN = re.compile(rf"[-+]?(?:{_WHOLE}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?(?:/{_WHOLE})?")


def exact(value: Exact, name: str = "epsilon") -> Fraction:
    """Return a positive number as the fraction that its decimal text says.

    A float is read as it prints (0.1 is 1/10, not the double nearest to it). So 0.3 is exactly 3 x 0.1.

    Args: value as number, text ("0.1", "1/3", "1e-3") or fraction; name for the error message.
    Raises: ValueError for anything that is not a finite number above zero.

    >>> exact(0.1), exact("1/3"), exact(2)
    (Fraction(1, 10), Fraction(1, 3), Fraction(2, 1))
    """
    refusal = ValueError(f"{name}: {shown(value)} is not a finite number above zero; write for example 0.5")
    if isinstance(value, bool) or not isinstance(value, (Real, str, Decimal)):
        raise refusal
    try:
        fraction = value if isinstance(value, Fraction) else _from_text(str(value))
    except (ValueError, ZeroDivisionError, OverflowError):
        raise refusal from None
    if fraction <= 0:
        raise refusal
    return fraction


def ratio(value: Fraction) -> str:
    """Return the text "p/q" of a fraction, as designs store it; ``exact`` reads it."""
    return f"{value.numerator}/{value.denominator}"


def sensitivity(max_events: int, neighbours: Neighbours) -> int:
    """Return the largest L1 difference between neighbouring streams in the nodes of one level.

    Guarantee: with ``add_remove`` neighbours differ by at most ``max_events`` events added or removed, each
        in one node of every level. With ``substitute`` they are replaced: each removed and another added.
    Args: max_events counted of one privacy unit (1 for the unit ``event``).
    Raises: ValueError for an unknown relation or max_events below 1.

    >>> sensitivity(4, "add_remove"), sensitivity(4, "substitute")
    (4, 8)
    """
    if neighbours not in get_args(Neighbours):
        raise ValueError(
            f"neighbours: {neighbours!r} is unknown; write one of {', '.join(get_args(Neighbours))}"
        )
    if isinstance(max_events, bool) or not isinstance(max_events, int) or max_events < 1:
        raise ValueError(f"max_events: {max_events!r} is not a whole number of at least 1")
    return max_events if neighbours == "add_remove" else 2 * max_events


def path_epsilon(scales: Iterable[Fraction | float], sensitivity: int) -> Fraction:
    """Return the epsilon of releasing counts on every level of a tree, added up exactly over the levels.

    Guarantee: counts of L1 sensitivity D per level with discrete Laplace noise of scale s_i are together
        (sum of D / s_i)-DP, because the event (or unit) changes the counts of level i by at most D in L1.
    Args: scales in counts, one per level; floats are taken as the doubles they are.
    Raises: ValueError for a scale that is not finite and above zero.

    >>> path_epsilon([4, 4.0], sensitivity=1)
    Fraction(1, 2)
    """
    total = Fraction(0)
    for scale in scales:
        if not math.isfinite(scale) or scale <= 0:
            raise ValueError(f"scale {scale!r} is not finite and above zero; it would protect nobody")
        total += Fraction(sensitivity) / Fraction(scale)
    return total


def check_shares(shares: Sequence[Fraction]) -> None:
    """Check, in exact arithmetic, that shares of a budget are above zero and add up to at most one.

    Raises: ValueError naming the first bad share or the sum.
    """
    for position, share in enumerate(shares, start=1):
        if not isinstance(share, Fraction) or share <= 0:
            raise ValueError(f"shares: level {position} has {share!r}; every share is a fraction above zero")
    total = sum(shares, Fraction(0))
    if total > 1:
        raise ValueError(f"shares: they add up to {total} > 1; lower them until the sum is at most 1")


def is_plain(text: str, longest: int = _LONGEST_NUMBER) -> bool:
    """Return whether a text is an ordinary decimal number or a quotient of whole numbers.

    >>> [is_plain(text) for text in ("0.5", "1/3", "-2e-3", "010", "1_0", "0x10", "12:30")]
    [True, True, True, False, False, False, False]
    """
    return len(text) <= longest and _PLAIN.fullmatch(text) is not None


def _from_text(text: str) -> Fraction:
    if not is_plain(text):
        raise ValueError(text)
    numerator, _, denominator = text.partition("/")
    # The double bounds the exponent before Fraction writes the number out in digits.
    bounds = [abs(float(part)) for part in (numerator, denominator) if part]
    if not all(math.isfinite(part) and part > 0 for part in bounds):
        raise ValueError(text)
    return Fraction(text)


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return "did you mean 'x'? " for the known name that is most like a wrong one, or an empty text.

    >>> did_you_mean("dwa", ["dawa", "identity"]), did_you_mean("?", ["dawa"])
    ("did you mean 'dawa'? ", '')
    """
    from difflib import get_close_matches  # imported here because only wrong names need it

    by_letters = {one.lower(): one for one in known}
    close = get_close_matches(str(name).lower(), by_letters, n=1)
    return f"did you mean {by_letters[close[0]]!r}? " if close else ""


def shortly(value: Fraction) -> str:
    """Return a fraction as text, rounded if it has many digits."""
    text = str(value)
    return text if len(text) <= 20 else f"{Decimal(value.numerator) / Decimal(value.denominator):.3g}"


def shown(value: object) -> str:
    """Return a short text of a value for a one-line message, even if its repr is long or fails."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # whatever its repr raises, the message is about something else
        text = f"of type {type(value).__name__}"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
