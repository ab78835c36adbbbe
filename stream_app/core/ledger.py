"""What the measurements of one source cost together, in exact fractions and in plain words.

Everything that can count the same event adds up; epochs of one stream cannot, for the event unit, because an
event falls into one bin. So a source costs the sum over its streams of each one's largest epsilon.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from stream_app.core.instants import format_instant
from stream_app.core.records import LedgerEntry

# What an operator writes to let a second measurement of the same events happen.
ACCEPTED = "measured again"


@dataclass(frozen=True, slots=True)
class Measurement:
    """All epochs of one stream under one strategy, and what they cost together."""

    stream: str
    strategy_hash: str
    epsilon: Fraction
    start_us: int
    end_us: int
    epochs: int
    private: bool


@dataclass(frozen=True, slots=True)
class Statement:
    """What is promised about a source: ``epsilon`` is the sum over ``measurements``."""

    source: str
    epsilon: Fraction
    private: bool
    measurements: tuple[Measurement, ...]

    def sentences(self) -> tuple[str, ...]:
        """Return the promise in plain words, the whole first, then what it is made of."""
        if not self.measurements:
            return (f"Nothing has been measured in {self.source}.",)
        if not self.private:
            return (
                f"Not private: epsilon {in_words(self.epsilon)} is so large that it protects nobody.",
                *map(_sentence, self.measurements),
            )
        promise = (
            f"Whether or not any one event of {self.source} exists changes the probability of anything that "
            f"is shown by at most a factor e^{in_words(self.epsilon)}."
        )
        return (
            promise,
            *map(_sentence, self.measurements),
            "A person with k events is protected k times more weakly.",
        )


def statement(source: str, entries: Sequence[LedgerEntry]) -> Statement:
    """Compose a source's ledger.

    Guarantee: all outputs of all streams over the source together are ``epsilon``-DP for the event unit: in
        parallel over the epochs of one stream, in sequence over streams and strategies.
    Raises: ValueError for an entry of another source or unit, which these rules do not cover.

    >>> entry = LedgerEntry("file:a", "s", 0, 0, 10, "1/2", "event", "h")
    >>> again = LedgerEntry("file:a", "s", 1, 10, 20, "1/2", "event", "h")
    >>> other = LedgerEntry("file:a", "t", 0, 0, 20, "1/3", "event", "i")
    >>> statement("file:a", [entry, again, other]).epsilon
    Fraction(5, 6)
    """
    streams: dict[tuple[str, str], list[LedgerEntry]] = defaultdict(list)
    for entry in entries:
        if entry.source != source or entry.unit != "event":
            raise ValueError(f"ledger of {source}: {entry} cannot be composed here; its unit must be event")
        streams[entry.stream, entry.strategy_hash].append(entry)
    measurements = tuple(_measurement(epochs) for epochs in streams.values())
    return Statement(
        source=source,
        epsilon=sum((m.epsilon for m in measurements), Fraction(0)),
        private=all(m.private for m in measurements),
        measurements=measurements,
    )


def measured_before(entries: Sequence[LedgerEntry], new: LedgerEntry) -> tuple[LedgerEntry, ...]:
    """Return the entries that count events of the same period under another stream or strategy."""
    return tuple(
        entry
        for entry in entries
        if (entry.stream, entry.strategy_hash) != (new.stream, new.strategy_hash)
        and entry.start_us < new.end_us
        and new.start_us < entry.end_us
    )


def check_measurement(entries: Sequence[LedgerEntry], new: LedgerEntry, accept: str | None) -> None:
    """Refuse to measure a period again, unless the operator accepts it in words.

    Raises: ValueError, one line, with the sum that accepting would lead to.
    """
    before = measured_before(entries, new)
    if before and accept != ACCEPTED:
        total = statement(new.source, [*entries, new]).epsilon
        raise ValueError(
            f"stream {new.stream}: {new.source} was already measured by {before[0].stream} from "
            f"{format_instant(before[0].start_us)}; both together cost epsilon {in_words(total)}: write "
            f'privacy.accept: "{ACCEPTED}" to accept that'
        )


def in_words(epsilon: Fraction) -> str:
    """Return an epsilon as people write it, exactly: a decimal if it has a short one, else a fraction.

    >>> in_words(Fraction(1, 2)), in_words(Fraction(3)), in_words(Fraction(1, 3))
    ('0.5', '3', '1/3')
    """
    decimal = f"{float(epsilon):.12g}"
    return decimal if "e" not in decimal and Fraction(decimal) == epsilon else str(epsilon)


def _measurement(epochs: Sequence[LedgerEntry]) -> Measurement:
    return Measurement(
        stream=epochs[0].stream,
        strategy_hash=epochs[0].strategy_hash,
        epsilon=max(Fraction(entry.epsilon) for entry in epochs),
        start_us=min(entry.start_us for entry in epochs),
        end_us=max(entry.end_us for entry in epochs),
        epochs=len(epochs),
        private=all(entry.private for entry in epochs),
    )


def _sentence(measurement: Measurement) -> str:
    epochs = "one epoch" if measurement.epochs == 1 else f"{measurement.epochs} epochs, which do not add up"
    return (
        f"Stream {measurement.stream} spends epsilon {in_words(measurement.epsilon)} on events from "
        f"{format_instant(measurement.start_us)} to {format_instant(measurement.end_us)} ({epochs})."
    )
