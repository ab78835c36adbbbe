"""Prints the plan of a configuration, as ``stream-app plan`` and ``stream-app init`` show it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

from rich.table import Table

from dphist.epochs import EpochLevels
from dphist.planning.load import Load
from dphist.planning.report import bytes_in_words, in_decimals, print_whole
from dphist.product.columns import MOST_WEIGHT
from dphist.product.design import ProductDesign
from dphist.toeplitz.counter import MOST_EVENTS
from dphist.toeplitz.estimate import mean_squared_error
from dphist.tree.design import TreeDesign
from dphist.windows.design import WindowDesign
from dphist.windows.error import window_error
from stream_app.config import StreamSettings
from stream_app.config.plans import planned, planned_for_one_epoch, window_load
from stream_app.config.values import format_duration
from stream_app.core.kinds import Kind
from stream_app.core.kinds.approximate_discovering import DiscoveringToeplitz
from stream_app.core.kinds.toeplitz import Toeplitz
from stream_app.core.promise import in_words, promise_in_words
from stream_app.shell.planning.answers import answers_table
from stream_app.shell.planning.comparing import comparisons, mode_sentences, modes_table
from stream_app.shell.planning.promises import costs_over_epochs, meanings
from stream_app.shell.present_step import working
from stream_app.shell.terminal import echo_wrapped


def print_plan(
    streams: tuple[StreamSettings, ...],
    *,
    inner: bool = True,
    compare: bool = False,
) -> None:
    """Print the errors of readers' answers, the plan of every stream, and notes.

    Args: inner, whether the plans' own tables follow the errors; compare, whether other ways to count follow.
    """
    lines: list[str] = []
    with working("planning") as step:
        shown = [answers_table(streams), *(tables(streams) if inner else ())]
        if compare:
            step("comparing other ways to count")
            shown += [*modes_table(streams), *comparisons(streams)]
            lines += mode_sentences(streams)
        step("reading a sample of the events")
        lines += [*meanings(streams), *costs_over_epochs(streams, time.time_ns() // 1_000)]
    for table in shown:
        print_whole(table)
    for line in lines:
        echo_wrapped(line)


# A design's own measure. The table of what readers get has the 95 % errors.
_ROOT = "root of the mean squared error"
Facts = Mapping[str, str]  # of one stream, by heading


def tables(streams: Sequence[StreamSettings]) -> Iterator[Table]:
    """Yield the tables that have a stream to show. Raises: OperatorError if no plan is possible."""
    kinds = [(stream, planned(stream).kind) for stream in streams]
    trees = [
        _tree(stream, kind, kind.tree_design)
        for stream, kind in kinds
        if kind.tree_design and (kind.windows or not kind.axes)
    ]
    levels = [_epochs(stream, kind.levels) for stream, kind in kinds if kind.levels]
    axes = [_axes(stream, kind.product) for stream, kind in kinds if kind.product]
    windows = [_windows(stream, kind.windows) for stream, kind in kinds if kind.windows]
    approximate = [_approximate(stream, kind) for stream, kind in kinds if isinstance(kind, Toeplitz)]
    if trees:
        yield _table("Trees over time", trees, f"RMSE: {_ROOT} of what the tree is planned for, in events")
    if approximate:
        yield _table("Approximate counts", approximate, f"RMSE: {_ROOT} of the running count, in events")
    if levels:
        over = "of the running count over all bins of these epochs, in events"
        yield _table("Over epochs", levels, f"RMSE: {_ROOT} {over}")
    if axes:
        yield _table("Keys and values", axes, "a cell's epsilon is the product of one share of each axis")
    if windows:
        mean = f"{_ROOT} over all buckets, in events"
        tried = "the mechanism was tried out here, over an empty histogram and one of all-different counts"
        yield _table("Windows", windows, f"RMSE of a bucket: {mean}; draws and time: {tried}")


def _table(title: str, streams: Iterable[Facts], caption: str) -> Table:
    """Return a table with a section for each stream, which fits any width of terminal."""
    table = Table(
        title=title, title_justify="left", caption=caption, caption_justify="left", show_header=False
    )
    for facts in streams:
        for heading, fact in facts.items():
            table.add_row(heading, fact)
        table.add_section()
    return table


def _tree(stream: StreamSettings, kind: Kind, design: TreeDesign) -> Facts:
    nodes = sum(design.drawn_nodes(design.horizon))
    return {
        "stream": stream.name,
        "epoch": f"{design.horizon:,} bins of {format_duration(stream.declared.time.bin_us)}",
        "epsilon": in_words(kind.epsilon),
        "branching": " x ".join(map(str, design.branching)),
        "shares": ", ".join(f"{float(share):.3f}" for share in design.shares),
        "RMSE": f"{math.sqrt(design.mean_squared_error(stream.declared.tree.workload)):,.1f}",
        "the tree's noise draws": (
            f"{nodes:,}, all before the epoch begins"
            if design.anticipates
            else f"{nodes / design.horizon:,.2f} / {design.shape.height:,} per bin, mean / most"
        ),
    }


def _approximate(stream: StreamSettings, kind: Toeplitz) -> Facts:
    design, columns = kind.toeplitz, "one key" if kind.keyed else "all events"
    keys, draws = f"{design.width:,}; the total is their sum" if kind.keyed else "none", ""
    if isinstance(kind, DiscoveringToeplitz):
        keys = f"{kind.listed:,} listed, others found; the total has noise {float(kind.total.sigma):,.2f}"
        draws = "; of a key that is found, one for each bin of the epoch so far"
    return {
        "stream": stream.name,
        "epoch": f"{design.horizon:,} bins of {format_duration(stream.declared.time.bin_us)}",
        "promise of an epoch": promise_in_words(kind.epsilon, kind.delta),
        "keys": keys,
        "an epoch holds": f"at most {MOST_EVENTS:,} events of {columns}; the stream stops beyond",
        "buffers per key": f"{design.strategy.buffers}",
        "noise of a bin": f"Gaussian, {float(design.sigma):,.2f}",
        f"RMSE of {columns}": f"{math.sqrt(mean_squared_error(design)):,.1f}",
        "noise draws": f"{kind.columns.columns:,} per bin{draws}",
    }


def _epochs(stream: StreamSettings, levels: EpochLevels) -> Facts:
    epochs, alone = stream.declared.tree.epochs or 0, planned_for_one_epoch(stream)
    added = EpochLevels(alone, alone.epsilon)
    within = [f"{width:,}" for width in levels.widths if width <= epochs]
    return {
        "stream": stream.name,
        "epochs": f"{epochs:,}",
        "epochs per node": ", ".join(within) + (", ..." if len(within) < len(levels.widths) else ""),
        "left per epoch": f"{float(levels.epoch.epsilon):.3f} of {in_words(levels.epsilon)}",
        "RMSE": f"{math.sqrt(levels.mean_squared_error(epochs)):,.1f}",
        "RMSE of epochs' totals added": f"{math.sqrt(added.mean_squared_error(epochs)):,.1f}",
    }


def _axes(stream: StreamSettings, product: ProductDesign) -> Facts:
    load, time, horizon = Load.of(product), product.time, product.time.horizon
    total = float(product.keys.total_share)
    draws = f"{load.mean_draws:,.0f} / {load.most_draws:,} per bin, mean / most"
    if load.ahead_bytes:
        draws = f"{product.columns * sum(time.drawn_nodes(horizon)):,}, all before the epoch begins"
    return {
        "stream": stream.name,
        "keys": f"{product.keys.keys:,}",
        "total": f"{total:.3f}" if total else "their sum",
        **_of_values(stream, product),
        "shares of time": _by_level(time.branching, time.shares),
        "noise draws": draws,
        "released per epoch": bytes_in_words(load.released_bytes),
        "noise ahead": bytes_in_words(load.ahead_bytes) if load.ahead_bytes else "as bins close",
    }


def _of_values(stream: StreamSettings, product: ProductDesign) -> Facts:
    """Return the facts about a stream's values: their buckets, or their sum."""
    values, amounts = product.values, stream.declared.amounts
    if amounts is None:
        if values.buckets == 1:
            return {}
        shares = _by_level(values.shape.branching, values.shares)
        return {"buckets": f"{values.buckets:,}", "shares of value": shares}
    low, high, unit = (in_decimals(number) for number in (amounts.low, amounts.high, amounts.unit))
    return {
        "sum": f"{amounts.field}, from {low} to {high} in steps of {unit}; values beyond count as the end",
        "an epoch holds": f"at most {MOST_WEIGHT // product.weight:,} events; the stream stops beyond",
    }


def _by_level(branching: Iterable[int], shares: Iterable[Fraction]) -> str:
    return ", ".join(f"{k}: {float(share):.3f}" for k, share in zip(branching, shares, strict=True))


def _windows(stream: StreamSettings, design: WindowDesign) -> Facts:
    error = window_error(design.mechanism, design.buckets, design.epsilon, 0.95, design.arguments)
    declared, share, load = stream.declared, design.share, window_load(design)
    epsilon, bin_us = declared.privacy.epsilon, declared.time.bin_us
    options = ", ".join(f"{name} {value}" for name, value in sorted(design.options.items()))
    mean = None if error is None else math.sqrt(float((error.bucket_stderr**2).mean()))
    return {
        "stream": stream.name,
        "window": format_duration(design.bins * bin_us),
        "mechanism": f"{design.mechanism}: {options}" if options else design.mechanism,
        "histograms x buckets": f"{design.histograms:,} x {design.buckets:,}",
        "epsilon of windows / tree": f"{in_decimals(epsilon * share)} / {in_decimals(epsilon * (1 - share))}",
        "RMSE of a bucket": "depends on the data" if mean is None else f"{mean:,.1f}",
        "noise draws of a window, empty / most": f"{load.window_draws[0]:,} / {load.window_draws[1]:,}",
        "time to release one": f"at most {load.seconds:,.2g} s for a bin of {format_duration(bin_us)}",
        "released per epoch": bytes_in_words(load.released_bytes),
    }
