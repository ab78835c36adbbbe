"""How a cap on each user's events trades events left out against noise, on a sample of the events.

A low cap leaves out events of busy users: every count is too small (bias). A high cap needs more noise. The
table shows both for rising caps. It is exact about the sample, so it is as private as the sample.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import structs
from rich.table import Table

from dphist.caps import Caps
from stream_app.config import SourceSettings, StreamSettings
from stream_app.config.plans import planned
from stream_app.core.counting.bounding import left_out
from stream_app.core.incoming import RecordBatch
from stream_app.ports import OperatorError
from stream_app.shell.planning.answers import count_of_span, half_width, in_words
from stream_app.shell.readers import service
from stream_app.shell.samples.fields import records_of_users
from stream_app.shell.samples.findings import read_sample
from stream_app.sources.lines import ENOUGH_RECORDS

_CAPTION = (
    "of all events of an epoch, in the mean over the sample's epochs. {events:,} events were read: of a "
    "larger file only the first megabyte, or some {most:,} events. So take few people over a whole epoch, "
    "not many over a short time. Exact and private: a cap that was chosen by these numbers tells "
    "something about the people in the sample, and epsilon does not cover that. Take a sample of other "
    "people, or of people who agreed"
)


@dataclass(frozen=True, slots=True)
class Trade:
    """The cost of one cap."""

    most: int
    share: float  # of the sample's events, left out
    bias: float  # how many events of an epoch these are
    noise: float  # the 95 % error of the count of an epoch, in events

    @property
    def together(self) -> float:
        """Return how far the shown count of an epoch may be from the count of all its events."""
        return math.hypot(self.bias, self.noise)


def caps_table(stream: StreamSettings, sample: Path) -> Table:
    """Return a table of the costs of rising caps on a user's events, by a file of such events."""
    records = sampled(stream, sample)
    found = tuple(trades(stream, records))
    best = min(found, key=lambda trade: trade.together)
    table = Table(
        "max_events",
        "left out",
        "too small by",
        "noise, 95 %",
        "both",
        title=f"Caps on a user's events: {stream.name}",
        title_justify="left",
        caption=_CAPTION.format(events=len(records.positions), most=ENOUGH_RECORDS),
        caption_justify="left",
    )
    for trade in found:
        numbers = (in_words(number) for number in (trade.bias, trade.noise, trade.together))
        mark = " <" if trade is best else ""
        bias, noise, together = numbers
        table.add_row(f"{trade.most:,}", f"{trade.share:.1%}", bias, f"± {noise}", f"{together}{mark}")
    return table


def released_caps(stream: str, url: str, api_key: str | None) -> Table:
    """Return the costs of rising caps, as a running service computes them from its released histogram."""
    with service(url, api_key, "--caps: ") as client:
        released = client.summary(stream).caps
    if released is None:
        line = f"{stream} has released no histogram of users"
        raise OperatorError(f"--caps: {line}; write privacy.propose_caps, and wait for a whole epoch")
    title = f"Caps on a user's events: {stream}"
    table = Table(
        "max_events", "leaves out, of users seen", "noise, 95 %", title=title, caption=released["sentence"]
    )
    for cap in released["caps"]:
        left, error = f"{cap['least']:,.0f} to {cap['most']:,.0f}", f"± {in_words(cap['error'])}"
        mark = " <" if cap["max_events"] == released["proposed"] else ""
        table.add_row(f"{cap['max_events']:,}", left, f"{error}{mark}")
    return table


def sampled(stream: StreamSettings, sample: Path) -> RecordBatch:
    """Return the events of a file. Raises: OperatorError if the stream has no caps or counts none."""
    per_user = stream.declared.capped
    if per_user is None or stream.declared.count == "users":
        raise OperatorError(
            f"--caps: streams.{stream.name} has no caps; write privacy.unit: {{user: FIELD, max_events: 1}}"
        )
    records = read_sample(replace(stream, source=SourceSettings(sample, "earliest")))
    if records is None or records_of_users(stream, records.columns) is None:
        raise OperatorError(f"--caps: {sample} has no event that streams.{stream.name} would count")
    return records


def trades(stream: StreamSettings, records: RecordBatch) -> Iterator[Trade]:
    """Yield the cost of each cap, from 1 to the most events of a user in a sample."""
    found = records_of_users(stream, records.columns)
    assert found is not None
    owners, keys = found
    epochs = len({window for window, _ in owners})
    for most in _rising(max(Counter(owners).values())):
        capped = _with_cap(stream, most)
        share = left_out(owners, keys, Caps(most)).together
        strategy = planned(capped)
        noise = half_width(count_of_span(strategy, (0, strategy.kind.design.horizon)))
        yield Trade(most, share, share * len(owners) / epochs, noise)


def _with_cap(stream: StreamSettings, most: int) -> StreamSettings:
    per_user = stream.declared.capped
    assert per_user is not None
    unit = structs.replace(per_user, max_events=most, max_keys=None, max_per_key=None)
    privacy = structs.replace(stream.declared.privacy, unit=unit)
    return replace(stream, declared=structs.replace(stream.declared, privacy=privacy))


def _rising(largest: int) -> Sequence[int]:
    """Return 1, 2, 5, 10, 20, ... up to the first that no user exceeds.

    >>> _rising(30), _rising(1)
    ([1, 2, 5, 10, 20, 50], [1])
    """
    caps: list[int] = []
    for power in range(5):
        for digit in (1, 2, 5):
            caps.append(digit * 10**power)
            if caps[-1] >= largest:
                return caps
    return caps
