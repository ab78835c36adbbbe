"""Where the events went that ``other`` lost: keys that were found take their past with them."""

from __future__ import annotations

from stream_app.core.answers.query import StreamView
from stream_app.core.instants import format_instant
from stream_app.core.kinds.tables import Span

_SHOWN = 3  # keys


def moved_in_words(view: StreamView) -> str:
    """Return which keys the running epoch found last, and how many events left ``other`` with each.

    Guarantee: post-processing of released values. Empty if keys are not found, or none was.
    """
    if not view.declared.finds_keys or not view.epochs:
        return ""
    record, said = view.epochs[-1].record, list[str]()
    new = [(one.bin, name) for one in record.found if one.bin >= record.first_bin for name in one.names]
    for bin, name in new[: -_SHOWN - 1 : -1]:
        past = view.own.of_key(name).count(Span(record.first_bin, bin + 1))
        value, low = float(past.value), float(past.interval(0.95).lower)
        at = format_instant(view.binning.end_us(bin))
        said.append(f"{value:,.0f} (± {value - low:,.0f}) are under {name} since {at}")
    more = f" So it is with {len(new) - len(said):,} more keys." if len(new) > len(said) else ""
    return f"Other is the total less all shown keys. Of its events, {', '.join(said)}.{more}" if said else ""
