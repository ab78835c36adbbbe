"""The streams in one history: their bins one after the other, and which of their columns and keys agree.

A count of keys goes on from one stream to the next if both lists hold all of these keys. All other counts
go on only if the columns agree (docs/decisions/0047-successors.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.laws.law import WeightedNoise
from dphist.product.columns import ColumnSum, KeyPlaces
from dphist.tree.estimate import Estimate
from stream_app.core.answers.answered import QueryError, places_of
from stream_app.core.answers.asked_keys import AskedKeys, KeyNameError
from stream_app.core.answers.steps import JoinedBinning
from stream_app.core.answers.visible_epochs import VisibleEpochs
from stream_app.core.counting.bins import Binning
from stream_app.core.counting.keys import KeyList
from stream_app.core.instants import format_instant
from stream_app.core.kinds.epoch import AxesEpoch, EpochView
from stream_app.core.kinds.tables import Span
from stream_app.core.segments.strategies import strategy_of
from stream_app.core.strategy import Strategy


class Part(NamedTuple):
    """An earlier stream of a history.

    Args: asked_as, the name by which readers ask for the stream; strategy, the stream's last one; epochs, all
        of its epochs, in the history's bins; texts, of all its strategies.
    """

    asked_as: str
    strategy: Strategy
    epochs: Sequence[EpochView]
    texts: tuple[bytes, ...]

    @classmethod
    def of(cls, asked_as: str, view: VisibleEpochs, shift: int) -> Part:
        """Return a stream as a part. Args: shift, from its bins to the history's."""
        epochs = [epoch.shifted(shift) for epoch in view.epochs]
        return cls(asked_as, view.strategy, epochs, view._texts)

    def showing(self, now: Strategy, columns: ColumnSum, places: KeyPlaces | None) -> Iterator[EpochView]:
        """Yield the epochs that show some keys of another stream, with these keys as their count."""
        for epoch in self.epochs:
            yield from _agreeing(epoch, strategy_of(self.texts, epoch.record), now, columns, places)


def _agreeing(
    epoch: EpochView, then: Strategy, now: Strategy, columns: ColumnSum, places: KeyPlaces | None
) -> Iterator[EpochView]:
    """Yield an epoch with some keys of another list as its count; nothing if it does not show all of them.

    Args: then, the epoch's strategy; now, the other one; columns, the count there; places, of the keys in its
        list; None: of all.
    """
    axes, keys, others, over = then.kind.axes, then.axes.keys, now.axes.keys, epoch.over_axes
    if axes is None or keys is None or others is None or over is None:
        return
    asked = (places,) if isinstance(places, int) else places or ()
    there = [place for one in asked if (place := place_in(keys, others, one)) is not None]
    if len(there) == len(asked):
        own = there[0] if isinstance(places, int) else places and tuple(sorted(there))
        yield over.showing(columns.of_keys(axes, own))


def joined_bins(streams: Sequence[VisibleEpochs]) -> tuple[Binning, list[int]]:
    """Return the bins of a history, and the shift from each stream's bins to them.

    Args: streams, oldest first. Each begins at an edge of the bins of the stream before it.
    """
    *before, last = streams
    if all(one.binning == last.binning for one in before):
        return last.binning, [0] * len(streams)
    joined = JoinedBinning.of([(one.binning, edge_us(one)) for one in streams])
    return joined, [-piece.shift for piece in joined.pieces]


def edge_us(stream: VisibleEpochs) -> int:
    """Return where a stream begins, in microseconds since 1970."""
    return stream.binning.start_us(stream.epochs[0].record.first_bin)


def place_in(then: KeyList, now: KeyList, place: int) -> int | None:
    """Return the place in a list of a key of another list; None if it is not there.

    The key ``other`` of a field is the same key only if both lists of the field hold the same values.

    >>> place_in(KeyList("c", ("FR", "DE"), True), KeyList("c", ("DE", "IT"), True), 0)
    1
    >>> place_in(KeyList("c", ("FR", "DE"), True), KeyList("c", ("DE", "IT"), True), 2)
    """
    if now.discover is not None and place == len(now.labels):  # the total less all keys
        return len(then.labels) if then.discover is not None and then.labels == now.labels else None
    found = then.place_of_label.get(now.labels[place])
    if found is None:
        return None
    indices = np.unravel_index(found, then.sizes), np.unravel_index(place, now.sizes)
    for was, now_is, i, j in zip(then.parts, now.parts, *indices, strict=True):
        is_other = j == len(now_is.names)
        if is_other != (i == len(was.names)) or (is_other and set(was.names) != set(now_is.names)):
            return None
    return found


def places_after(parts: Sequence[Part], last: Strategy, key: str | AskedKeys) -> KeyPlaces:
    """Return the place of a key in the list of a history's last stream, or the places of several.

    Args: parts, the streams with other lists, oldest first. A refusal names one that still has the key.
    Raises: QueryError, as ``places_of``.
    """
    try:
        return places_of(last, key)
    except QueryError as refusal:
        names = key.names if isinstance(key, AskedKeys) else (key,)
        for part in reversed(parts):
            keys = part.strategy.axes.keys
            if gone := [name for name in names if keys is not None and name in keys.place_of_label]:
                line = f"{refusal.parameter}: {gone[0][:80]!r} is not on the list of keys any more; "
                raise QueryError(f"{line}ask for it in {part.asked_as}", refusal.parameter) from None
        raise


def same_columns(then: Strategy, now: Strategy) -> bool:
    """Return whether two streams place events in the same cells, and release them in the same columns."""
    was, axes = then.kind.axes, now.kind.axes
    if then.placing != now.placing or was is None or axes is None:
        return then.placing == now.placing and was is axes
    return (was.keys, was.values) == (axes.keys, axes.values)


def some_keys_agree(then: Strategy, now: Strategy) -> bool:
    """Return whether a key that both lists hold is one quantity in two streams.

    With a cap for each user, a key's count depends on the other keys of the list. Values and sums go on only
    in the same columns.
    """
    was, is_now = then.axes, now.axes
    if was.keys is None or is_now.keys is None or was.keys.columns != is_now.keys.columns:
        return False
    declared = then.declared, now.declared
    if any(one.privacy.per_user is not None or one.value or one.amounts for one in declared):
        return False
    held = set(was.keys.labels)
    return any(
        label in held and place_in(was.keys, is_now.keys, place) is not None
        for place, label in enumerate(is_now.keys.labels)
    )


def keys_in_words(then: KeyList | None, now: KeyList | None) -> str:
    """Return how a list of keys differs from the one before; empty if no key differs.

    >>> keys_in_words(KeyList("c", ("FR", "DE"), False), KeyList("c", ("DE", "IT"), False))
    'the list of keys changes (with IT, without FR)'
    """
    was, is_now = (() if one is None else one.labels for one in (then, now))
    added, gone = sorted(set(is_now) - set(was)), sorted(set(was) - set(is_now))
    if not added and not gone:
        return "" if was == is_now else "the list of keys is in another order"
    said = [f"{word} {_some(names)}" for word, names in (("with", added), ("without", gone)) if names]
    return f"the list of keys changes ({', '.join(said)})"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def showing(
    epochs: Iterable[EpochView],
    texts: tuple[bytes, ...],
    now: Strategy,
    columns: ColumnSum,
    places: KeyPlaces | None,
    asked: AskedKeys | None = None,
) -> Iterator[EpochView]:
    """Yield epochs with a sum of columns as their count. Leave out epochs that did not find these keys.

    A pattern means the keys of each epoch that match it.
    Args: texts, those of all strategies of the stream; now, the strategy with the keys of the last epoch;
        places and asked, as for ``StreamView.showing``.
    """
    for epoch in epochs:
        then = strategy_of(texts, epoch.record)
        if then.stored is now.stored is None or then.axes.keys == now.axes.keys:
            if (axes := epoch.over_axes) is not None:
                yield axes.showing(columns)
        elif asked is not None and now.axes.keys is not None and asked.are_patterns(now.axes.keys):
            yield from _matching(epoch, then, columns, asked)
        else:
            yield from _agreeing(epoch, then, now, columns, places)


def _matching(epoch: EpochView, then: Strategy, columns: ColumnSum, asked: AskedKeys) -> Iterator[EpochView]:
    """Yield an epoch with the sum of its keys that are asked for as its count; nothing if it has none."""
    axes, keys, over = then.kind.axes, then.axes.keys, epoch.over_axes
    if axes is None or keys is None or over is None:
        return
    with suppress(KeyNameError):
        yield over.showing(columns.of_keys(axes, asked.places(keys, as_patterns=True)))


def with_one_list(
    view: VisibleEpochs, parts: Iterable[tuple[EpochView, Span]]
) -> Iterator[tuple[AxesEpoch, Span]]:
    """Yield the parts of a range in which one list of keys was shown.

    Raises: QueryError if an epoch in the range found other keys than the last one.
    """
    for epoch, part in parts:
        if epoch.record.names != view.epochs[-1].record.names:
            begins = format_instant(view.binning.start_us(view.epochs[-1].record.first_bin))
            line = f"start: other keys were shown before {begins}; ask from there on, or for a single key"
            raise QueryError(line, "start")
        if (axes := epoch.over_axes) is not None:
            yield axes, part


def columns_of(epochs: Sequence[EpochView]) -> ColumnSum | None:
    """Return the columns whose sum epochs of one kind of release show as their count; None: all events."""
    axes = epochs[0].over_axes if epochs else None
    return None if axes is None else axes.shown


def bins_in(epochs: Sequence[EpochView], starts: Int64Array, stops: Int64Array) -> Int64Array:
    """Return how many bins of these epochs each range has."""
    counts = np.zeros(len(starts), np.int64)
    for epoch in epochs:
        first, last = epoch.span
        counts += np.clip(stops, first, last) - np.clip(starts, first, last)
    return counts


def added(value: float | FloatArray, parts: Sequence[Estimate], cells: int = 1) -> Estimate:
    """Return a sum of independent estimates over some cells. Args: value, the sum; cells, their number."""
    law = WeightedNoise.joined((part.law for part in parts), cells)
    rounding = cells * sum(part.rounding for part in parts)
    return Estimate(value, cells * sum(part.variance for part in parts), law, rounding)
