"""``stream-app plan`` for streams over keys and values: the split of epsilon, error and load."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from dphist.planning.product import Load
from dphist.planning.report import in_decimals
from dphist.product.design import ProductDesign
from dphist.windows.design import WindowDesign
from dphist.windows.error import window_error
from stream_app.config import StreamSettings
from stream_app.config.plans import planned, window_load
from stream_app.config.values import format_duration
from stream_app.core.kinds import Kind
from stream_app.shell.planning.section import sheet


def axes_table(streams: Iterable[StreamSettings]) -> Table | None:
    """Return a section for each stream that has keys or a value; None if there is none.

    Raises: OperatorError if a plan needs too much work at a closing.
    """
    kinds = [(stream.name, planned(stream).kind) for stream in streams]
    found = [_row(name, kind, kind.axes) for name, kind in kinds if kind.axes]
    if not found:
        return None
    return sheet(
        "Keys and values",
        (
            "stream",
            "keys",
            "total",
            "buckets",
            "shares of time",
            "shares of value",
            "error of a key",
            "noise draws",
            "released per epoch",
            "noise ahead",
        ),
        found,
        "a cell's epsilon is the product of one share of each axis; error of a key: standard error of its "
        "running count when the epoch's last bin has just closed, in events",
    )


def windows_table(streams: Iterable[StreamSettings]) -> Table | None:
    """Return a section for each stream that releases windows; None if there is none.

    Raises: OperatorError if no plan is possible.
    """
    found = [
        _window_row(stream, design)
        for stream in streams
        if stream.declared.windows_of and (design := planned(stream).kind.windows)
    ]
    if not found:
        return None
    return sheet(
        "Windows",
        (
            "stream",
            "window",
            "mechanism",
            "histograms x buckets",
            "epsilon of windows / tree",
            "error of a bucket",
            "noise draws of a window, empty / most",
            "time to release one",
            "released per epoch",
        ),
        found,
        "error of a bucket: root of the mean squared error over all buckets, in events; draws and time: the "
        "mechanism was tried out here, over an empty histogram and one of all-different counts",
    )


def _window_row(stream: StreamSettings, design: WindowDesign) -> list[str]:
    error = window_error(design.mechanism, design.buckets, design.epsilon, 0.95, design.arguments)
    declared, share, load = stream.declared, design.share, window_load(design)
    epsilon, bin_us = declared.privacy.epsilon, declared.time.bin_us
    return [
        stream.name,
        format_duration(design.bins * bin_us),
        with_options(design),
        f"{design.histograms:,} x {design.buckets:,}",
        f"{in_decimals(epsilon * share)} / {in_decimals(epsilon * (1 - share))}",
        "depends on the data" if error is None else f"{_mean(error.bucket_stderr):,.1f}",
        f"{load.window_draws[0]:,} / {load.window_draws[1]:,}",
        f"at most {load.seconds:,.2g} s for a bin of {format_duration(bin_us)}",
        f"{load.released_bytes / 1e6:,.1f} MB",
    ]


def with_options(design: WindowDesign) -> str:
    """Return a mechanism's name with the options that were set."""
    said = ", ".join(f"{name} {value}" for name, value in sorted(design.options.items()))
    return f"{design.mechanism}: {said}" if said else design.mechanism


def _mean(stderr: NDArray[np.float64]) -> float:
    return math.sqrt(float((stderr**2).mean()))


def _row(name: str, kind: Kind, product: ProductDesign) -> list[str]:
    load, values, horizon = Load.of(product), product.values, product.time.horizon
    errors = kind.errors("first_published", key=0)
    running = errors.within(horizon, np.array([0]), np.array([horizon]))
    total = float(product.keys.total_share)
    return [
        name,
        f"{product.keys.keys:,}",
        f"{total:.3f}" if total else "their sum",
        f"{values.buckets:,}",
        _by_level(product.time.branching, product.time.shares),
        _by_level(values.shape.branching, values.shares) if values.buckets > 1 else "",
        f"{running.laws.deviations()[0]:,.1f}",
        _draws(product, load),
        f"{load.released_bytes / 1e6:,.1f} MB",
        f"{load.ahead_bytes / 1e6:,.1f} MB" if load.ahead_bytes else "as bins close",
    ]


def _draws(product: ProductDesign, load: Load) -> str:
    if load.ahead_bytes:
        drawn = product.columns * sum(product.time.drawn_nodes(product.time.horizon))
        return f"{drawn:,}, all before the epoch begins"
    return f"{load.mean_draws:,.0f} / {load.most_draws:,} per bin, mean / most"


def _by_level(branching: Iterable[int], shares: Iterable[Fraction]) -> str:
    return ", ".join(f"{k}: {float(share):.3f}" for k, share in zip(branching, shares, strict=True))
