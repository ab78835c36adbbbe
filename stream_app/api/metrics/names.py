"""The name, description and labels of each metric of released values, the same in /metrics and /api/v1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Literal

from stream_app.api.schemas import DEFAULT_CONFIDENCE
from stream_app.core.answers.query import StreamView
from stream_app.core.meaning import meaning_of, meaning_of_amounts

Of = Literal["count", "sum", "mean"]
Quantity = Literal["running", "bin"]
Statistic = Literal["value", "lower", "upper", "stderr"]

PREFIX = "private_counts_"
SINCE = "since the first bin of this generation that is kept"  # what running values count

_NOUNS: dict[Of, str] = {"count": "events", "sum": "sum of the amounts", "mean": "mean of the amounts"}
_QUANTITIES: dict[Quantity, str] = {"running": SINCE, "bin": "in the bin that ended"}
_PARTS: dict[Statistic, str] = {
    "value": "Estimated",
    "lower": f"Lower end of the {DEFAULT_CONFIDENCE:.0%} interval of",
    "upper": f"Upper end of the {DEFAULT_CONFIDENCE:.0%} interval of",
    "stderr": "Standard error of",
}


@dataclass(frozen=True, slots=True)
class Metric:
    """The meaning of a metric's values. Args: help, its description."""

    of: Of
    quantity: Quantity
    part: Statistic
    help: str


def name_of(of: Of, quantity: Quantity, part: Statistic, of_keys: bool = False) -> str:
    """Return a metric's name. A key has separate names, so that summing a metric counts no event twice.

    >>> name_of("count", "running", "value"), name_of("sum", "bin", "lower", of_keys=True)
    ('private_counts_running', 'private_counts_key_sum_bin_lower')
    """
    words = ("key" if of_keys else "", "" if of == "count" else of, quantity, "" if part == "value" else part)
    return PREFIX + "_".join(filter(None, words))


def _all(of_keys: bool) -> Iterator[tuple[str, Metric]]:
    for of, (quantity, when), (part, words) in product(_NOUNS, _QUANTITIES.items(), _PARTS.items()):
        if (of, part) != ("mean", "stderr"):
            what = f"{words} {_NOUNS[of]} {when}{', of one key' if of_keys else ''}"
            yield name_of(of, quantity, part, of_keys), Metric(of, quantity, part, what)


# Metrics by name. All are gauges: a noisy count may fall, so ``rate()`` does not apply.
METRICS = dict(_all(of_keys=False))
KEY_METRICS = dict(_all(of_keys=True))


def metrics_of(view: StreamView, metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """Return the metrics that a stream has: those of sums and means only if it adds up an amount."""
    summed = view.declared.amounts is not None
    return {name: one for name, one in metrics.items() if summed or one.of == "count"}


def labels_of_stream(view: StreamView) -> dict[str, str]:
    """Return the labels that all series of a stream have.

    Generations have different bins, keys or epsilons, so each has its own series. The first one has no label
    ``generation``: a stream's series stay the same until its settings change.
    """
    labels = {"stream": view.name, "private": str(view.private).lower()}
    return labels if view.generation == 1 else labels | {"generation": str(view.generation)}


def words_of(view: StreamView, of: Of) -> str:
    """Return the meaning of a stream's counts or sums; empty if it counts every event, or has no sum."""
    if of != "count":
        return meaning_of_amounts(view.declared, of).counts if view.declared.amounts else ""
    meaning = meaning_of(view.declared)
    return "" if meaning.plain else meaning.counts


def with_words(text: str, counts: Mapping[str, str]) -> str:
    """Return a metric's description, with the meaning of each stream that does not count every event.

    >>> with_words("Estimated events", {"a": "", "b": "Counts each user once per epoch."})
    'Estimated events. Stream b: Counts each user once per epoch.'
    """
    said = [f"Stream {stream}: {words}" for stream, words in counts.items() if words]
    return " ".join([f"{text}.", *said]) if said else text
