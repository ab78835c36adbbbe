"""Options of a window's mechanism: which may be set for protected data, and how they are stored."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from dphist.mechanisms import registry
from dphist.privacy import exact

# Options that would replace the windows' guarantee (one event added or removed) by another one or by none.
_REFUSED = {
    "known_total": "takes the exact number of events as public and hides moved events only; leave it out",
    "neighbours": "is the relation of the mechanism's guarantee, which windows need as it is; leave it out",
    "continuous": "draws floating-point noise, which protects nobody; leave it out",
}


def known_options(mechanism: str) -> tuple[str, ...]:
    """Return the options of a mechanism that windows may set."""
    return tuple(sorted(set(registry.describe(mechanism).options) - set(_REFUSED)))


def checked_options(mechanism: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as they are stored: JSON values, in which a share of epsilon has only one spelling.

    Whether values fit the histogram is checked later, by a trial run (``planning/window_load.py``).

    Args: options, by name; numbers, texts, truth values, lists of whole numbers, or None.
    Raises: ValueError in one line that names the option, its value and the remedy.

    >>> checked_options("dawa", {"partition_share": 0.2, "merge": True})
    {'merge': True, 'partition_share': '1/5'}
    """
    return {name: _as_json(value) for name, value in as_arguments(mechanism, options)}


def as_arguments(mechanism: str, options: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return options, stored or not, as hashable values that the mechanism takes.

    Raises: as ``checked_options``.
    """
    known, defaults = known_options(mechanism), registry.describe(mechanism).defaults()
    for name in options:
        if name in _REFUSED:
            raise ValueError(f"{name} {_REFUSED[name]}")
        if name not in known:
            raise ValueError(f"{mechanism} has no {name}; known here: {', '.join(known) or 'no options'}")
    asked = {
        name: _exact_share(value) if isinstance(defaults[name], Fraction) else value
        for name, value in options.items()
    }
    return tuple(sorted(registry.checked_options(mechanism, asked).items()))


def _exact_share(value: Any) -> Any:
    """Return a share as its decimal text says (0.2 is 1/5). Other values stay as they are."""
    try:
        share = exact(value)
    except ValueError:
        return value
    return share if share < 1 else value


def _as_json(value: Any) -> Any:
    if isinstance(value, Fraction):
        return str(value)
    return list(value) if isinstance(value, tuple) else value
