"""What ``stream-app plan`` says about streams over keys and values: the split of epsilon, error and load."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from dphist.plan_report import in_decimals
from dphist.product.columns import column_sum
from dphist.product.design import ProductDesign
from dphist.product.planner import Load
from dphist.window_error import window_error
from stream_app.config import StreamSettings
from stream_app.config.values import format_duration
from stream_app.plans import planned


def axes_table(streams: Iterable[StreamSettings]) -> Table | None:
    """Return one row for each stream that has keys or a value; None where none has.

    Raises: OperatorError where a plan asks too much of a machine.
    """
    products = [(stream.name, planned(stream).product) for stream in streams]
    found = [(name, product) for name, product in products if product is not None]
    if not found:
        return None
    table = Table(title="Keys and values", title_justify="left")
    for heading in ("stream", "keys", "total", "buckets", "shares of time", "shares of value"):
        table.add_column(heading)
    for heading in ("error of a key", "noise draws a bin, mean / most", "released an epoch", "noise ahead"):
        table.add_column(heading, justify="right")
    for name, product in found:
        table.add_row(*_row(name, product))
    table.caption = (
        "a cell's epsilon is the product of one share of each axis; error of a key: standard error of its "
        "running count when the epoch's last bin has just closed, in events"
    )
    table.caption_justify = "left"
    return table


def windows_table(streams: Iterable[StreamSettings]) -> Table | None:
    """Return one row for each stream that releases windows; None where none does.

    Raises: OperatorError where a plan cannot be.
    """
    found = [(stream, planned(stream).window) for stream in streams if stream.window is not None]
    if not found:
        return None
    table = Table(title="Windows", title_justify="left")
    for heading in ("stream", "window", "mechanism"):
        table.add_column(heading)
    for heading in ("histograms x buckets", "epsilon of windows / tree", "error of a bucket"):
        table.add_column(heading, justify="right")
    for stream, design in found:
        if design is not None and stream.window is not None:
            error = window_error(design.mechanism, design.buckets, design.epsilon, 0.95)
            table.add_row(
                stream.name,
                format_duration(stream.window.length_us),
                design.mechanism,
                f"{design.histograms:,} x {design.buckets:,}",
                f"{in_decimals(stream.privacy.epsilon * design.share)} / "
                f"{in_decimals(stream.privacy.epsilon * (1 - design.share))}",
                "depends on the data" if error is None else f"{_mean(error.bucket_stderr):,.1f}",
            )
    table.caption = "error of a bucket: root of the mean squared error over all buckets, in events"
    table.caption_justify = "left"
    return table


def _mean(stderr: NDArray[np.float64]) -> float:
    return math.sqrt(float((stderr**2).mean()))


def _row(name: str, product: ProductDesign) -> list[str]:
    load, values = Load.of(product), product.values
    horizon, of_key = product.time.horizon, column_sum(product, 0)
    if product.time.release == "anticipating":
        error = float(of_key.published_laws(np.array([0]), np.array([horizon])).deviations()[0])
    else:
        error = math.sqrt(of_key.live_error(horizon).variance)
    total = float(product.keys.total_share)
    return [
        name,
        f"{product.keys.keys:,}",
        f"{total:.3f}" if total else "their sum",
        f"{values.buckets:,}",
        _by_level(product.time.branching, product.time.shares),
        _by_level(values.shape.branching, values.shares) if values.buckets > 1 else "",
        f"{error:,.1f}",
        f"{load.mean_draws:,.0f} / {load.most_draws:,}",
        f"{load.released_bytes / 1e6:,.1f} MB",
        f"{load.ahead_bytes / 1e6:,.1f} MB" if load.ahead_bytes else "as bins close",
    ]


def _by_level(branching: Iterable[int], shares: Iterable[Fraction]) -> str:
    return ", ".join(f"{k}: {float(share):.3f}" for k, share in zip(branching, shares, strict=True))
