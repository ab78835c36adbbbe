"""Options of a window's mechanism: which may be set for data that is protected, and how they are kept."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from dphist.mechanisms.registry import describe
from dphist.privacy import exact

LARGEST_OPTION = 2**16  # of whole numbers: as many as a window has cells

# Options that give up the guarantee of windows, for one event more or less, for another one or for none.
_REFUSED = {
    "known_total": "takes the exact number of events as public and hides moved events only; leave it out",
    "neighbours": "is the relation of the mechanism's guarantee, which windows need as it is; leave it out",
    "continuous": "draws floating-point noise, which protects nobody; leave it out",
}


def known_options(mechanism: str) -> tuple[str, ...]:
    """Return the options of a mechanism that windows may set."""
    return tuple(sorted(set(describe(mechanism).options) - set(_REFUSED)))


def checked_options(mechanism: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as they are kept: JSON values, one text for each share of epsilon.

    Whether a value fits the histogram is for the mechanism to say (``window_load.py``).

    Args: options, by name; numbers, texts, truth values, lists of whole numbers, or None.
    Raises: ValueError in one line that names the option, its value and the remedy.

    >>> checked_options("dawa", {"partition_share": 0.2, "merge": True})
    {'merge': True, 'partition_share': '1/5'}
    """
    known, hints = known_options(mechanism), _hints(mechanism)
    for name in options:
        if name in _REFUSED:
            raise ValueError(f"{name} {_REFUSED[name]}")
        if name not in known:
            raise ValueError(f"{mechanism} has no {name}; known here: {', '.join(known) or 'no options'}")
    return {name: _kept(name, options[name], hints[name]) for name in sorted(options)}


def as_arguments(mechanism: str, options: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return kept options as a mechanism takes them, in a form that can be hashed."""
    hints = _hints(mechanism)
    return tuple((name, _argument(value, hints[name])) for name, value in sorted(options.items()))


@lru_cache(maxsize=64)
def _hints(mechanism: str) -> dict[str, tuple[Any, ...]]:
    """Return the types that each option may have."""
    hints = get_type_hints(describe(mechanism).function)
    return {name: get_args(hint) if _is_union(hint) else (hint,) for name, hint in hints.items()}


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, UnionType)


def _kept(name: str, value: Any, hints: tuple[Any, ...]) -> Any:
    """Return a value as it is kept. Raises: ValueError where it is of none of the types."""
    if Fraction in hints:
        share = exact(value, name)
        if share >= 1:
            raise ValueError(f"{name} is {share}; it is a share of epsilon, write one below 1")
        return str(share)
    if not any(_is_a(value, hint) for hint in hints):
        raise ValueError(f"{name} is {value!r}; write {' or '.join(map(_in_words, hints))}")
    for number in value if isinstance(value, list) else [value]:
        if isinstance(number, int | float) and not abs(number) <= LARGEST_OPTION:  # nor what is no number
            raise ValueError(f"{name} holds {number!r}; write at most {LARGEST_OPTION:,}")
    return float(value) if float in hints else value


def _is_a(value: Any, hint: Any) -> bool:
    if get_origin(hint) is Literal:
        return isinstance(value, str) and value in get_args(hint)
    if get_origin(hint) is tuple:
        return isinstance(value, list) and all(type(number) is int for number in value)
    return type(value) in ((int, float) if hint is float else (hint,))


def _in_words(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " or ".join(get_args(hint))
    if get_origin(hint) is tuple:
        return "a list of whole numbers"
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "a word", NoneType: "null"}
    return words[hint]


def _argument(value: Any, hints: tuple[Any, ...]) -> Any:
    if Fraction in hints:
        return Fraction(value)
    return tuple(value) if isinstance(value, list) else value
