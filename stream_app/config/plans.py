"""Plan a stream's strategy from its declaration."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from functools import cache, lru_cache
from time import thread_time

from msgspec import structs

from dphist import plan_product, plan_tree
from dphist.caps import Caps
from dphist.epochs import EpochLevels
from dphist.planning.epochs import plan_epoch_levels
from dphist.planning.load import WindowLoad, check_load, check_past
from dphist.planning.product import TOTAL_SHARE, plan_sums
from dphist.product.axis import KeyAxis, ValueAxis
from dphist.product.design import ProductDesign
from dphist.toeplitz import plan_toeplitz
from dphist.tree.decoder import LARGEST_DECODED_SCALE
from dphist.tree.design import Release, TreeDesign
from dphist.tree.shape import TreeShape, node_counts
from dphist.users import NumbersOfUsers
from dphist.windows.design import WindowDesign
from stream_app.config.settings import StreamSettings
from stream_app.core.counting.keys import Axis, KeyList
from stream_app.core.counting.unlisted import Discover
from stream_app.core.epochs import MOST_FOUND
from stream_app.core.kinds import Discovering, Kind, Measuring, kind_of, measuring
from stream_app.core.kinds.approximate_discovering import DiscoveringToeplitz
from stream_app.core.kinds.discovering import DiscoveringTree
from stream_app.core.kinds.pages import LARGEST_DRAWS, LARGEST_PAGE_BYTES
from stream_app.core.kinds.tables import PUBLISHED
from stream_app.core.kinds.toeplitz import Toeplitz
from stream_app.core.releases.row_values import may_be_too_large
from stream_app.core.strategy import Strategy
from stream_app.ports import OperatorError

log = logging.getLogger(__name__)


def planned(stream: StreamSettings) -> Strategy:
    """Return the strategy that a new stream would get.

    If an epoch's noise is too much to draw ahead, the stream is causal even if configured otherwise, and a
    log line says so.

    Raises: OperatorError, with the file and line, if no plan fits the settings.
    """
    kind = _planned(stream, stream.declared.tree.release)
    if kind.drawn_ahead and not can_draw_ahead(kind):
        kind = _planned(stream, "causal")
        log.warning(
            "stream %s: an epoch needs more than %d draws of noise ahead; it is released causally: "
            "shorten time.epoch, or write tree.release: causal",
            *(stream.name, LARGEST_DRAWS),
        )
    if may_be_too_large(kind):
        _warn_of_width(stream.name, sum(kind.tables.values()))
    return Strategy(stream.name, stream.declared, kind)


@cache
def _warn_of_width(stream: str, values: int) -> None:
    """Log once that the witness could not put back this stream's history: a bin has too many values."""
    log.warning(
        "stream %s: a bin may release %d values, more than the witness keeps: if Redis is lost, its history "
        "cannot be put back; use fewer keys or buckets, or keep backups of Redis",
        *(stream, values),
    )


def planned_for_one_epoch(stream: StreamSettings) -> TreeDesign:
    """Return the tree that a stream would have without levels over epochs."""
    return _planned_tree(stream, stream.declared.tree.release)


@contextmanager
def _about(stream: StreamSettings, key: str = "") -> Iterator[None]:
    """Turn a planner's refusal into an error that names the stream's file, line and key."""
    try:
        yield
    except ValueError as refusal:
        where = f"{stream.where}: " if stream.where else ""
        raise OperatorError(f"{where}streams.{stream.base}{key}: {refusal}") from None


def can_draw_ahead(kind: Kind) -> bool:
    """Return whether an epoch's noise is small enough to be drawn and stored before the epoch."""
    tree = kind.tree_design
    assert tree is not None  # only noise of trees is drawn ahead
    draws = kind.tables[PUBLISHED] * sum(node_counts(tree.shape, tree.horizon))
    return draws <= LARGEST_DRAWS and kind.page_geometry().bin_bytes <= LARGEST_PAGE_BYTES


def _planned(stream: StreamSettings, release: Release) -> Kind:
    declared = stream.declared
    if declared.privacy.delta is not None and not declared.finds_keys:
        return _planned_approximate(stream, declared.privacy.delta)
    if declared.tree.epochs is not None:
        return kind_of(_planned_over_epochs(stream, declared.tree.epochs, release))
    if declared.windows_of is not None:
        return kind_of(_planned_with_windows(stream, declared.windows_of, release))
    if declared.privacy.propose_caps is not None:
        return _planned_measuring(stream, declared.privacy.propose_caps, release)
    if declared.keys is not None and declared.keys.discover is not None:
        return _planned_discovering(stream, declared.keys, declared.keys.discover)
    if declared.cells.fields:
        return kind_of(_planned_over_axes(stream, release))
    return kind_of(_planned_tree(stream, release))


def _planned_approximate(stream: StreamSettings, delta: Fraction) -> Toeplitz:
    declared, privacy = stream.declared, stream.declared.privacy
    width = len(declared.keys.labels) if declared.keys else 1
    with _about(stream, ".privacy"):
        design = _approximate(
            declared.time.epoch_bins, privacy.epsilon, delta, privacy.caps, privacy.neighbours, width
        )
    return Toeplitz(design, keyed=declared.keys is not None)


def _planned_measuring(stream: StreamSettings, part: Fraction, release: Release) -> Measuring:
    """Return the plan with the rest of epsilon, and the histogram of users with its part."""
    declared, privacy = stream.declared, stream.declared.privacy
    bins = declared.period_bins or declared.time.epoch_bins
    with _about(stream, ".privacy.propose_caps"):
        users = NumbersOfUsers(part, bins, privacy.neighbours)
        rest = structs.replace(privacy, epsilon=privacy.epsilon - part, propose_caps=None)
    counts = replace(stream, declared=structs.replace(declared, privacy=rest))
    return measuring(_planned(counts, release), users)


_approximate = lru_cache(maxsize=64)(plan_toeplitz)


def _planned_over_epochs(stream: StreamSettings, epochs: int, release: Release) -> EpochLevels:
    """Return a tree with levels over epochs, planned for this number of epochs."""
    declared, privacy = stream.declared, stream.declared.privacy
    with _about(stream, ".tree.epochs"):
        if declared.keys is not None or declared.value is not None:
            raise ValueError("levels over epochs are not built yet for keys and values; take it out")
        if privacy.per_user is not None and privacy.per_user.per is not None:
            raise ValueError("is for the event unit, and not built yet for privacy.unit.per; take it out")
        if privacy.per_user is not None:
            raise ValueError("is for the event unit; a user has events in every epoch: take it out")
        levels = _epoch_levels(declared.time.epoch_bins, epochs, privacy.epsilon, release, privacy.neighbours)
    design = _planned_tree(stream, release, levels.epoch.epsilon / privacy.epsilon)
    return EpochLevels(design, privacy.epsilon, levels.branching, levels.epsilons)


_epoch_levels = lru_cache(maxsize=64)(plan_epoch_levels)


def _planned_tree(stream: StreamSettings, release: Release, part: Fraction = Fraction(1)) -> TreeDesign:
    """Return the tree over all events. Args: part, the share of epsilon that it may spend."""
    with _about(stream, ".tree"):
        asked = stream.declared.asked(stream.declared.privacy.epsilon * part, release)
        weight = stream.declared.cells.weight
        design = _tree(**(asked | {"max_events": asked["max_events"] * weight}))
        _check_decodable(release, design.scales)
        return design


# Streams that make the same promise about other keys or logs get the same plan.
_tree = lru_cache(maxsize=64)(plan_tree)


def _planned_with_windows(stream: StreamSettings, window: Axis, release: Release) -> WindowDesign:
    declared, cells, part = stream.declared, stream.declared.cells, 1 - window.share
    tree = _planned_tree(stream, release, part)
    shares = tuple(share * part for share in tree.shares)
    time = replace(tree, epsilon=declared.privacy.epsilon, shares=shares)
    # Without a value there is one histogram, of the keys. Otherwise each key has a histogram of the value.
    histograms = 1 if cells.buckets is None else cells.width // cells.buckets.count
    buckets, bins = cells.width // histograms, window.window_us // declared.time.bin_us
    with _about(stream):
        design = WindowDesign(time, bins, histograms, buckets, window.mechanism, window.share, window.options)
        window_load(design).check(declared.time.bin_us)
        return design


@lru_cache(maxsize=64)
def window_load(design: WindowDesign) -> WindowLoad:
    """Return the load of a stream's windows on this machine, measured once and cached.

    Raises: the mechanism's ValueError, if it refuses the histogram.
    """
    return WindowLoad.of(design, thread_time)


def _planned_over_axes(stream: StreamSettings, release: Release) -> ProductDesign:
    declared, keys, buckets = stream.declared, stream.declared.keys, stream.declared.value
    asked, names = declared.asked(declared.privacy.epsilon, release), len(keys.labels) if keys else 1
    total_share = TOTAL_SHARE if keys and keys.total else Fraction(0)
    with _about(stream):
        if declared.amounts is not None:
            product = plan_sums(**asked, weight=declared.cells.weight, keys=names, total_share=total_share)
        else:
            count = buckets.count if buckets else 1
            product = plan_product(**asked, keys=names, buckets=count, total_share=total_share)
        _check_decodable(release, (scale for group in product.groups for scale in group.design.scales))
        check_load(product, declared.time.bin_us)
        return product


def _planned_discovering(stream: StreamSettings, keys: KeyList, discover: Discover) -> Discovering:
    """Return a tree for the total and for each key, found or listed; names have their own epsilon."""
    declared, part = stream.declared, 1 - discover.epsilon / stream.declared.privacy.epsilon
    if declared.privacy.delta is not None:
        return _planned_approximate_discovering(stream, len(keys.labels), discover, declared.privacy.delta)
    time, columns = _planned_tree(stream, "causal", part), 2 if declared.amounts else 1
    values = ValueAxis(columns, TreeShape((columns,)), (Fraction(1),))
    with _about(stream, ".keys"):
        axis = KeyAxis(len(keys.labels), 1 - TOTAL_SHARE, TOTAL_SHARE, rest=True)
        product = ProductDesign(time, axis, values, declared.cells.weight)
        check_load(product, stream.declared.time.bin_us)
        return DiscoveringTree(product, rule=discover.rule(time.horizon))


def _planned_approximate_discovering(
    stream: StreamSettings, listed: int, discover: Discover, delta: Fraction
) -> DiscoveringToeplitz:
    """Return a mechanism for each key, found or listed, and one for the total, with a part of mu^2 each."""
    privacy, bins = stream.declared.privacy, stream.declared.time.epoch_bins
    budget = privacy.epsilon - discover.epsilon, delta - discover.delta
    width = listed + MOST_FOUND + 1
    with _about(stream, ".time"):
        check_past(bins, stream.declared.time.bin_us)
    with _about(stream, ".privacy"):
        keys, total = (
            _approximate(bins, *budget, caps, privacy.neighbours, width, share=share)
            for caps, share in (
                (privacy.caps, 1 - TOTAL_SHARE),
                (Caps(max_events=privacy.caps.l1), TOTAL_SHARE),
            )
        )
        return DiscoveringToeplitz(keys, True, rule=discover.rule(bins), total=total, listed=listed)


def _check_decodable(release: Release, scales: Iterable[Fraction]) -> None:
    if release == "anticipating" and max(scales) > LARGEST_DECODED_SCALE:
        raise ValueError("epsilon needs noise beyond 2^32 per node; use a larger one, or release: causal")
