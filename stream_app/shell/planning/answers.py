"""The questions that readers can ask a stream, each with its 95 % error, before there is an event.

The errors are those of the API's answers when the first epoch is complete: errors do not depend on events.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from rich.markup import escape
from rich.table import Table

from dphist.laws.law import WeightedNoise
from dphist.planning.report import in_decimals
from dphist.product.answers import Histogram
from dphist.product.columns import ColumnSum, column_sum
from dphist.product.forest import RangeSum
from dphist.product.sums import sum_columns
from dphist.tree.estimate import Estimate
from stream_app.config import StreamSettings
from stream_app.config.plans import planned
from stream_app.config.settings import DAY_US
from stream_app.config.values import format_duration
from stream_app.core.answers.query import StreamView
from stream_app.core.counting.cells import Amounts
from stream_app.core.epochs import FoundKeys
from stream_app.core.kinds import Discovering
from stream_app.core.kinds.tables import OVER_EPOCHS, Span
from stream_app.core.records import EpochRecord, PublicState
from stream_app.core.strategy import Strategy

CONFIDENCE = 0.95
_CAPTION = "95 % error: half the width of the 95 % interval, as the API answers when the epoch is complete."
_OF_QUANTILE = " For a quantile: by how many events its rank may be wrong."
_OF_MEAN = (
    " For a mean: divide by the number of events in the range; amounts in the middle of sum.min and sum.max "
    "have the least error, amounts at an end the largest."
)

_SHOWN_KEYS = 100  # the plan states the error of ``other`` for so many shown keys

Row = tuple[str, str]  # what is asked for, its error


def answers_table(streams: Sequence[StreamSettings]) -> Table:
    """Return a table of readers' questions to each stream, with errors. Raises: OperatorError without a plan.

    Cost: about 0.2 s for each stream with values.
    """
    table = Table(
        "you ask for",
        "95 % error",
        title="What readers get",
        title_justify="left",
        caption=_caption(streams),
        caption_justify="left",
    )
    for stream in streams:
        shown = f", shown as {stream.title}" if stream.title else ""
        table.add_row(escape(f"stream {stream.name}{shown}"), "")
        for asked, error in rows_of(stream):
            table.add_row(f"  {asked}", error)
        table.add_section()
    return table


def _caption(streams: Sequence[StreamSettings]) -> str:
    """Return a caption that explains the errors, for the questions that the streams answer."""
    quantiles = any(stream.declared.value for stream in streams)
    means = any(stream.declared.amounts for stream in streams)
    return _CAPTION + _OF_QUANTILE * quantiles + _OF_MEAN * means


def rows_of(stream: StreamSettings) -> Iterator[Row]:
    """Yield the questions that readers can ask a stream, each with its 95 % error."""
    strategy, declared = planned(stream), stream.declared
    users = declared.count == "users"
    noun, within = ("users", "users first seen in") if users else ("events", "events of")
    horizon = declared.time.epoch_bins
    spans = {f"{noun} of an epoch ({format_duration(horizon * declared.time.bin_us)})": (0, horizon)}
    per_day = DAY_US // declared.time.bin_us
    if 1 < per_day < horizon:
        spans[f"{within} its last day"] = (horizon - per_day, horizon)
    spans[f"{within} its last bin ({format_duration(declared.time.bin_us)})"] = (horizon - 1, horizon)
    for asked, span in spans.items():
        yield asked, f"± {in_words(half_width(count_of_span(strategy, span)))}"
    axes, kind = strategy.kind.axes, strategy.kind
    if axes is None:
        return
    if isinstance(kind, Discovering):
        needed, unit = kind.rule.threshold + 1, "events" if declared.privacy.per_user is None else "users"
        axes = kind.with_found([FoundKeys(0, ("found",))], 0).over_keys
        yield f"a key appears once about {needed:,} {unit} have brought it", ""
        yield f"names of keys cost epsilon {in_decimals(kind.rule.epsilon)} of an epoch's", ""
        others = kind.with_found([FoundKeys(0, tuple(map(str, range(_SHOWN_KEYS))))], 0).over_keys
        rest = column_sum(others, others.keys.keys).of_range(RangeSum.without_events(others, (0, horizon)))
        yield f"{noun} of other beside {_SHOWN_KEYS} shown keys", f"± {in_words(half_width(rest))}"
    whole = RangeSum.without_events(axes, (0, horizon))
    if axes.keys.cells > 1:
        error = half_width(column_sum(axes, 0).of_range(whole))
        yield f"{noun} of one key in an epoch", f"± {in_words(error)}"
    if declared.amounts is not None:
        yield from _of_amounts(whole, declared.amounts, keyed=axes.keys.keys > 1)
    elif axes.values.buckets > 1:
        yield "the median of an epoch", f"± {in_words(rank_error(whole, 0.5))} in rank"
        yield "the 95 % quantile of an epoch", f"± {in_words(rank_error(whole, 0.95))} in rank"


def _of_amounts(whole: RangeSum, amounts: Amounts, *, keyed: bool) -> Iterator[Row]:
    unit = float(amounts.unit)
    total = sum_columns(whole.design, amounts.range).of_range(whole)
    yield f"the sum of {amounts.field} in an epoch", f"± {in_words(half_width(total) * unit)}"
    if keyed:
        one = sum_columns(whole.design, amounts.range, 0).of_range(whole)
        yield f"the sum of {amounts.field} of one key in an epoch", f"± {in_words(half_width(one) * unit)}"
    middle, end = (in_words(mean_error(whole, part) * unit) for part in (0.5, 0.0))
    yield f"the mean of {amounts.field} in an epoch", f"± {middle} to {end} / events"


def rank_error(whole: RangeSum, q: float) -> float:
    """Return by how many events the rank of a reported quantile may be wrong, if the band holds.

    The band holds if it contains all true cumulative counts F and the true total N.
    """
    reach = Histogram.of(whole).cdf(CONFIDENCE).reach
    return float(reach.max() + q * reach[-1])


def mean_error(whole: RangeSum, part: float) -> float:
    """Return half the width of a mean's interval, in units, times the number of events.

    Args: part, of the range of the amount at which the mean is: 0 to 1.
    """
    one = ColumnSum(whole.design, None, np.array([1.0, 0.0]), 1).of_range(whole)  # the other end is alike
    law = WeightedNoise.weighted([(part, 1, one.law), (1.0 - part, 1, one.law)])
    return half_width(Estimate(0.0, law.variance, law, one.rounding))


def count_of_span(strategy: Strategy, span: tuple[int, int]) -> Estimate:
    """Return the error of a count over bins [a, b) of the first epoch, when it is complete."""
    if strategy.kind.levels is None:
        starts, stops = (np.array([edge]) for edge in span)
        errors = strategy.kind.errors("unbiased").within(strategy.kind.design.horizon, starts, stops)
        law, rounding = errors.error(0)
        return Estimate(0.0, law.variance, law, rounding)
    # The nodes over epochs improve the count of a whole epoch, as only a view of released values knows.
    horizon = strategy.kind.design.horizon
    view = StreamView(strategy.to_json())
    record = EpochRecord(0, 0, horizon, 1, strategy.hash)
    state = PublicState(strategy.to_json(), (record,), horizon)
    nothing = []
    for part in view.missing(state):
        rows = np.zeros((part.rows, strategy.kind.tables[part.table]), np.int64)
        if part.table == OVER_EPOCHS:
            rows[:, 0] = 1  # the number of complete epochs
        nothing.append((part, rows))
    view.extend(state, nothing)
    return view.count(Span(*span))


def half_width(estimate: Estimate) -> float:
    """Return half the width of the 95 % interval."""
    interval = estimate.interval(CONFIDENCE)
    return float(interval.upper - interval.lower) / 2


def in_words(number: float) -> str:
    """Return a number with thousands separated, whole from 10 on."""
    return f"{number:,.0f}" if number >= 10 else f"{number:,.2g}"
