"""Which streams continue each other, so that a successor's history begins before it.

Their counts add up if cells mean the same in both. Where lists of keys differ, counts of keys that both lists
hold add up. All else may differ, bins too: answers over several epochs have exact errors, whatever the
settings of each epoch were (docs/decisions/0047-successors.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

from stream_app.core.answers.joined_history import edge_us, keys_in_words, same_columns, some_keys_agree
from stream_app.core.answers.query import StreamView
from stream_app.core.declaration import Declaration
from stream_app.core.promise import delta_in_words, in_words
from stream_app.core.segments.endings import ENDED
from stream_app.core.strategy import Strategy

Found = Callable[[str], StreamView | None]


def continued(view: StreamView, found: Found) -> tuple[StreamView, ...]:
    """Return the earlier streams that a stream continues, oldest first.

    Args: found, returns a stream that the reader may see, and None for any other.
    """
    before = list[StreamView]()
    after, names = view, {view.strategy.stream}
    while (edge := after.strategy.edge) is not None and edge.before not in names:
        one = found(edge.before)
        if one is None or not continues(one, after):
            break
        names.add(edge.before)
        before.append(one)
        after = one
    return tuple(reversed(before))


def continues(before: StreamView, after: StreamView) -> bool:
    """Return whether the counts of two streams may be added: the second begins where the first one ends.

    The first has released its last bin, and retention has removed no bin at the beginning of the second.
    """
    if not _agree(before.strategy, after.strategy) or after.trimmed:
        return False
    if not is_complete(before, after):
        return False
    edge, bins = edge_us(after), before.binning
    is_edge = bins.start_us(int(bins.bin_of([edge])[0])) == edge
    return is_edge and bins.start_us(before.span.stop) <= edge


def is_complete(before: StreamView, after: StreamView) -> bool:
    """Return whether a stream has released its last bin before the one that continues it."""
    if not after.epochs or before.released_until_us is None:
        return False
    retired = before.history is not None and before.history.retired_us is not None
    return (
        retired or before.epochs[-1].record.end_reason == ENDED or before.released_until_us == edge_us(after)
    )


def _agree(before: Strategy, after: Strategy) -> bool:
    """Return whether the cells of a bin mean the same in two streams, or the cells of some keys do."""
    then, now = before.declared, after.declared
    if _counted(then) != _counted(now):
        return False
    if then.windows_of is not None:
        return False  # a window is one measurement, and its numbers are not sums over bins
    return same_columns(before, after) or some_keys_agree(before, after)


def _counted(declared: Declaration) -> tuple[object, ...]:
    """Return the settings besides cells that decide which events are counted."""
    return declared.source.name, declared.privacy.unit, declared.count, declared.where


def edge_in_words(before: StreamView, after: StreamView, names_keys: bool = True) -> str:
    """Return a sentence for the edge between two streams: which settings differ from there on.

    The sentence is true before the edge and after it.
    Args: names_keys, whether it may name keys that only one of both lists holds.
    """
    then, now = before.strategy, after.first_strategy
    # Epochs may change settings, so once the first one has left, nobody knows those of the edge.
    is_known = not after.trimmed
    changes, beyond = list(_changes(then, now)) if is_known else [], ""
    names, otherwise = f"{then.stream} ends, and {now.stream} goes on", " with the same settings" * is_known
    if before.name == after.name and after.generation > 1:
        otherwise = " with other settings"
        names = f"{after.name} goes on as generation {after.generation}"
        beyond = " Events from before that arrive later count in its first open bin." * (
            is_known and now.declared.late == "next_bin"
        )
    if not same_columns(then, now):
        changes = [*_cells(then, now, names_keys), *changes]
        if some_keys_agree(then, now):
            beyond += " Keys of both lists have one history; the total over all keys begins there."
    return (f"{names}: {'; '.join(changes)}." if changes else f"{names}{otherwise}.") + beyond


def _cells(before: Strategy, after: Strategy, names_keys: bool) -> Iterator[str]:
    """Yield how the cells of a bin differ between two streams."""
    was, now = before.axes, after.axes
    if keys := keys_in_words(was.keys, now.keys):
        yield keys if names_keys else "the list of keys changes"
    if was.buckets != now.buckets:
        yield "other buckets of the value"
    if was.amounts != now.amounts:
        yield "another sum"
    if (was.keys, was.buckets, was.amounts) == (now.keys, now.buckets, now.amounts):
        yield "the cells of a bin are released in other columns"


def _changes(before: Strategy, after: Strategy) -> Iterator[str]:
    then, now = before.declared, after.declared
    facts = {
        "epsilon": (in_words(before.epsilon), in_words(after.epsilon)),
        "delta": (_delta(before.delta), _delta(after.delta)),
        "bins": (then.time.binning.text, now.time.binning.text),
        "epoch": (_epoch(before), _epoch(after)),
        "grace": (f"{then.time.grace_us / 1e6:g} s", f"{now.time.grace_us / 1e6:g} s"),
        "late events": (then.late, now.late),
        "release": (before.kind.release, after.kind.release),
    }
    changes = [
        f"{name} {was} until then, {now} from then on" for name, (was, now) in facts.items() if was != now
    ]
    others = (
        ("other caps for each user", then.privacy.per_user != now.privacy.per_user),
        ("other conditions on events", then.where != now.where),
        ("other windows", then.windows_of != now.windows_of),
    )
    changes += [words for words, differs in others if differs]
    yield from changes
    if not changes and before.kind.fields() != after.kind.fields():
        yield "another tree"


def _delta(delta: Fraction | None) -> str:
    return "0" if delta is None else delta_in_words(delta)


def _epoch(strategy: Strategy) -> str:
    bins = strategy.declared.time.epoch_bins
    return "1 bin" if bins == 1 else f"{bins:,} bins"
