"""Names the facts of a declaration and their values as a configuration writes them, for messages."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from fractions import Fraction
from typing import Any, Final

from stream_app.config.values import format_duration
from stream_app.core.declaration import Time
from stream_app.core.instants import format_instant
from stream_app.core.promise import in_words

_LONGEST_SHOWN = 200  # characters of a value in an error

# The keys that a configuration names differently than the declaration's text.
_KEYS: Final = {
    "ledger": "source",
    "source.name": "source",
    "privacy.private": "privacy.not_private",
    "time.bin_us": "time.bin",
    "time.epoch_bins": "time.epoch",
    "time.first_us": "time.first",
    "time.grace_us": "time.grace",
    "time.max_ahead_bins": "time.max_ahead",
    "source.replay.from_us": "source.replay.from",
    "source.replay.to_us": "source.replay.to",
    "width": "the number of counted cells",
}
_NUMBERS = ("epsilon", "delta", "min", "max", "unit", "share")  # exact fractions


def fact_in_words(fact: str, value: object, time: Time) -> tuple[str, str]:
    """Return the configuration's key of a fact, and its value as a configuration writes it.

    Args: fact, its path in the declaration's text; time, of the declaration that has the value.
    """
    return _KEYS.get(fact, fact), _shown(fact, value, time)


def _shown(fact: str, value: Any, time: Time) -> str:
    if value is None:
        return "not set"
    if fact == "privacy.private":
        value = not value
    if fact == "source.replay":
        return f"from {format_instant(value['from_us'])} to {format_instant(value['to_us'])}"
    grace_bins = -(-time.grace_us // time.bin_us)
    of_time: Mapping[str, Callable[[int], str]] = {
        "time.bin_us": format_duration,
        "time.grace_us": format_duration,
        "time.epoch_bins": lambda bins: format_duration(bins * time.bin_us),
        "time.max_ahead_bins": lambda bins: format_duration((bins - grace_bins) * time.bin_us),
        "time.first_us": format_instant,
        "source.replay.from_us": format_instant,
        "source.replay.to_us": format_instant,
    }
    if fact in of_time:
        return of_time[fact](value)
    if fact.rpartition(".")[2] in _NUMBERS:
        with suppress(ValueError, TypeError):
            return in_words(Fraction(value))
    return value if isinstance(value, str) else as_json(value)


def as_json(value: object) -> str:
    """Return a value as text; of a long list its length and its hash, that of a file with one item a line."""
    text = json.dumps(value)
    if len(text) <= _LONGEST_SHOWN or not isinstance(value, (list, tuple)):
        return text
    digest = hashlib.sha256("".join(f"{item}\n" for item in value).encode()).hexdigest()
    return f"a list of {len(value):,} (SHA-256 {digest[:12]})"
