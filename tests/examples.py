"""How many examples a property test tries, for tests that need another number than the profile's."""

from __future__ import annotations

from hypothesis import settings

QUICK = "quick"  # the profile of make check
QUICK_MOST = 15


def examples(number: int) -> settings:
    """Return settings with this many examples; with fewer in the quick profile."""
    quick = settings.get_current_profile_name() == QUICK
    return settings(max_examples=min(number, QUICK_MOST) if quick else number)
