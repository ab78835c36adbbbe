"""Plan a stream's strategy from its settings."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from time import thread_time

from dphist import plan_product, plan_tree
from dphist.epochs.levels import EpochLevels
from dphist.planning.epochs import plan_epoch_levels
from dphist.planning.product import TOTAL_SHARE, check_load
from dphist.planning.window_load import WindowLoad
from dphist.tree.decoder import LARGEST_DECODED_SCALE
from dphist.tree.design import Release, TreeDesign
from dphist.tree.epoch_nodes import node_counts
from dphist.windows.design import WindowDesign
from stream_app.config import StreamSettings, declared
from stream_app.config.settings import WindowSettings
from stream_app.core.cells import Cells
from stream_app.core.kinds import Kind, kind_of
from stream_app.core.kinds.pages import LARGEST_DRAWS, LARGEST_PAGE_BYTES
from stream_app.core.kinds.tables import PUBLISHED
from stream_app.core.strategy import Strategy
from stream_app.ports import OperatorError

log = logging.getLogger(__name__)


def planned(stream: StreamSettings) -> Strategy:
    """Return the strategy that a new stream would get.

    If an epoch's noise is too much to draw ahead, the stream is causal even if configured otherwise, and a
    log line says so.
        Raises: OperatorError if no tree fits the settings; it names the file and line.
    """
    try:
        return _planned_and_drawable(stream)
    except OperatorError as refusal:
        raise OperatorError(f"{stream.where}: {refusal}" if stream.where else str(refusal)) from None


def _planned_and_drawable(stream: StreamSettings) -> Strategy:
    strategy = _planned(stream, stream.tree.release)
    if strategy.kind.drawn_ahead and not can_draw_ahead(strategy.kind):
        strategy = _planned(stream, "causal")
        log.warning(
            "stream %s: an epoch needs more than %d draws of noise ahead; it is released causally: "
            "shorten time.epoch, or write tree.release: causal",
            stream.name,
            LARGEST_DRAWS,
        )
    return strategy


def can_draw_ahead(kind: Kind) -> bool:
    """Return whether an epoch's noise is small enough to be drawn and stored before the epoch."""
    draws = kind.tables[PUBLISHED] * sum(node_counts(kind.design.shape, kind.design.horizon))
    return draws <= LARGEST_DRAWS and kind.page_geometry().bin_bytes <= LARGEST_PAGE_BYTES


def planned_for_one_epoch(stream: StreamSettings) -> TreeDesign:
    """Return the tree that a stream without axes would have without levels over epochs.

    Raises: OperatorError if no tree fits the settings.
    """
    return _planned_tree(stream, stream.tree.release)


def _planned(stream: StreamSettings, release: Release) -> Strategy:
    if stream.tree.epochs is not None:
        return _planned_over_epochs(stream, stream.tree.epochs, release)
    if stream.window is not None:
        return _planned_with_windows(stream, stream.window, release)
    if stream.keys is not None or stream.value is not None:
        return _planned_over_axes(stream, release)
    design = _planned_tree(stream, release)
    return Strategy(stream.name, stream.source.identity, declared(stream), kind_of(design))


def _planned_over_epochs(stream: StreamSettings, epochs: int, release: Release) -> Strategy:
    """Return the strategy with levels over epochs, planned for this number of epochs."""
    at, privacy = f"streams.{stream.name}.tree.epochs", stream.privacy
    if stream.keys is not None or stream.value is not None:
        raise OperatorError(f"{at}: levels over epochs are not built yet for keys and values; take it out")
    if privacy.unit != "event":
        raise OperatorError(f"{at}: is for the event unit; a user has events in every epoch: take it out")
    try:
        levels = _epoch_levels(stream.time.epoch_bins, epochs, privacy.epsilon, release, privacy.neighbours)
        design = _planned_tree(stream, release, levels.epoch.epsilon / privacy.epsilon)
        levels = EpochLevels(design, privacy.epsilon, levels.branching, levels.epsilons)
    except OperatorError:
        raise
    except ValueError as refusal:
        raise OperatorError(f"{at}: {refusal}") from None
    return Strategy(stream.name, stream.source.identity, declared(stream), kind_of(levels))


_epoch_levels = lru_cache(maxsize=64)(plan_epoch_levels)


def _planned_tree(stream: StreamSettings, release: Release, part: Fraction = Fraction(1)) -> TreeDesign:
    """Return the tree over all events. Args: part, the share of epsilon that it may spend.

    Raises: OperatorError.
    """
    time, privacy, tree = stream.time, stream.privacy, stream.tree
    try:
        design = plan_tree(
            horizon=time.epoch_bins,
            epsilon=privacy.epsilon * part,
            workload=tree.workload,
            release=release,
            neighbours=privacy.neighbours,
            max_events=privacy.max_events,
            branching=tree.branching,
            shares=tree.shares if isinstance(tree.shares, tuple) else None,
        )
        _check_decodable(release, design.scales)
    except ValueError as refusal:
        raise OperatorError(f"streams.{stream.name}.tree: {refusal}") from None
    return design


def _planned_with_windows(stream: StreamSettings, window: WindowSettings, release: Release) -> Strategy:
    part = 1 - window.share
    tree = _planned_tree(stream, release, part)
    time = replace(tree, epsilon=stream.privacy.epsilon, shares=tuple(share * part for share in tree.shares))
    public = declared(stream)
    cells = Cells.of(public)
    over_keys = stream.value is None  # one histogram of the keys; otherwise one of the value per key
    histograms = 1 if over_keys else cells.width // (cells.buckets.count if cells.buckets else 1)
    try:
        design = WindowDesign(
            time,
            window.length_us // stream.time.bin_us,
            histograms,
            cells.width // histograms,
            window.mechanism,
            window.share,
            window.options,
        )
        window_load(design).check(stream.time.bin_us)
    except ValueError as refusal:
        raise OperatorError(f"streams.{stream.name}: {refusal}") from None
    return Strategy(stream.name, stream.source.identity, public, kind_of(design))


@lru_cache(maxsize=64)
def window_load(design: WindowDesign) -> WindowLoad:
    """Return the load of a stream's windows on this machine, measured once and cached.

    Raises: the mechanism's ValueError, if it refuses the histogram.
    """
    return WindowLoad.of(design, thread_time)


def _check_decodable(release: Release, scales: Iterable[Fraction]) -> None:
    if release == "anticipating" and max(scales) > LARGEST_DECODED_SCALE:
        raise ValueError("epsilon needs noise beyond 2^32 a node; use a larger one, or release: causal")


def _planned_over_axes(stream: StreamSettings, release: Release) -> Strategy:
    time, privacy, tree = stream.time, stream.privacy, stream.tree
    public = declared(stream)
    cells = Cells.of(public)
    try:
        product = plan_product(
            time.epoch_bins,
            privacy.epsilon,
            keys=len(cells.keys.labels) if cells.keys else 1,
            buckets=cells.buckets.count if cells.buckets else 1,
            total_share=TOTAL_SHARE if stream.keys and stream.keys.total else Fraction(0),
            workload=tree.workload,
            release=release,
            neighbours=privacy.neighbours,
            max_events=privacy.max_events,
            branching=tree.branching,
            shares=tree.shares if isinstance(tree.shares, tuple) else None,
        )
        _check_decodable(release, (scale for group in product.groups for scale in group.design.scales))
        check_load(product, time.bin_us)
    except ValueError as refusal:
        raise OperatorError(f"streams.{stream.name}: {refusal}") from None
    return Strategy(stream.name, stream.source.identity, public, kind_of(product))
