"""How many records of each stream were refused, and why. For the operator only: exact numbers."""

from __future__ import annotations

from collections.abc import Mapping

from stream_app.config import Settings
from stream_app.core.incoming import REMEDIES, refused_because
from stream_app.shell.samples.findings import EXACT
from stream_app.wiring.storage import stored_counts


async def refused_lines(settings: Settings) -> list[str]:
    """Return a line for each reason of a refusal, by stream, and a line that these numbers are private.

    Args: settings, whose store is running. A store that fails gives no lines: the worker reports it.
    """
    try:
        counts = await stored_counts(settings)
    except OSError:
        return []
    lines = [line for stream, reasons in counts.items() for line in _lines(stream, reasons)]
    return [*lines, EXACT] if lines else []


def _lines(stream: str, counts: Mapping[str, int]) -> list[str]:
    """Return the lines of one stream, the most frequent reason first.

    >>> _lines("clicks", {"late": 3, "no_user": 4, "late_within_10": 3})
    ['clicks: 4 refused as no_user: they name no user; correct privacy.unit.user', \
'clicks: 3 refused as late: they come after their bin closed; set a longer time.grace']
    """
    refused = {reason: number for reason, number in counts.items() if reason in REMEDIES and number}
    most = sorted(refused, key=lambda reason: -refused[reason])
    return [f"{stream}: {refused[reason]:,} refused as {refused_because(reason)}" for reason in most]
