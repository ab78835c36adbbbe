"""A record that is on time counts in its own bin, whatever stalls, fails or moves meanwhile.

The check uses only a record's own time and its arrival. It does not look at cuts, so it also notices a wrong
cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stream_app.core.incoming import Reason
from tests.simulator.checks import Broken
from tests.simulator.log import Entry, Kind, Log
from tests.simulator.recount import PartitionHistory, Place, Rules, floor_at

NEVER = {Reason.LATE, Reason.FUTURE}


def is_on_time(entry: Entry, rules: Rules) -> bool:
    """Return whether a record arrived before its bin closed and is not dated too far ahead.

    ``max_ahead_bins`` counts from the bin that closes next, so the limit includes the grace.
    """
    own = entry.time_us // rules.bin_us
    closes_next = entry.arrival_us // rules.bin_us - 5
    while rules.closes_us(closes_next) <= entry.arrival_us:
        closes_next += 1
    return closes_next <= own <= rules.newest(closes_next)


def on_time_places(
    log: Log, histories: Mapping[str, PartitionHistory], rules: Rules
) -> Iterator[tuple[Place, int]]:
    """Yield each applied record that is on time and has a cell, with the bin of its own time."""
    for partition, history in histories.items():
        for position in range(history.start, history.position):
            entry = log.partitions[partition][position]
            own = entry.time_us // rules.bin_us
            countable = entry.kind is Kind.EVENT and rules.place(entry) is not None
            if countable and own >= floor_at(position, history) and is_on_time(entry, rules):
                yield (partition, position), own


def check_on_time(
    log: Log,
    histories: Mapping[str, PartitionHistory],
    rules: Rules,
    placed: Mapping[Place, int],
    letters: Mapping[Place, str],
) -> None:
    """Check that each record that was on time is counted in its own bin and never refused.

    Args: placed, the bin of every counted record; letters, the reason of every dead letter.
    """
    for place, own in on_time_places(log, histories, rules):
        if placed.get(place) != own:
            raise Broken(
                f"record {place} was on time for bin {own}, and is counted in bin {placed.get(place)}"
            )
        if letters.get(place) in NEVER:
            raise Broken(f"record {place} was on time for bin {own}, and was refused as {letters[place]}")
