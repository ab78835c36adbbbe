"""How many examples a property test tries: the profiles of ``make check`` and ``make test`` have fewer."""

from __future__ import annotations

from hypothesis import settings

QUICK, SHORT = "quick", "short"  # of make check, and of make test
MOST = {QUICK: 15, SHORT: 40}


def is_short() -> bool:
    """Return whether this run is one of those that people wait for."""
    return settings.get_current_profile_name() in MOST


def examples(number: int) -> settings:
    """Return settings with this many examples, or with as many as the profile allows."""
    return settings(max_examples=min(number, MOST.get(settings.get_current_profile_name(), number)))
