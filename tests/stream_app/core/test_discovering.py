"""The kind of release that finds keys: its columns, its promise, and the intervals of found keys."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from scipy import stats

from dphist import SeededNoise, plan_tree
from dphist.arrays import Int64Array
from dphist.caps import Caps
from dphist.certified import root_ceiling
from dphist.discovery import DiscoveryRule
from dphist.noise import NoiseSource
from dphist.privacy import path_epsilon
from dphist.product.axis import KeyAxis, ValueAxis
from dphist.product.columns import column_sum
from dphist.product.design import ProductDesign
from dphist.toeplitz import plan_toeplitz
from dphist.toeplitz.calibration import gaussian_delta
from dphist.tree.shape import TreeShape
from stream_app.core.epochs import FoundKeys
from stream_app.core.kinds import Discovering, kind_from
from stream_app.core.kinds.approximate_discovering import DiscoveringToeplitz
from stream_app.core.kinds.discovering import DiscoveringTree
from stream_app.core.kinds.epoch import AxesEpoch
from stream_app.core.kinds.tables import Closed, Named, Span
from stream_app.core.records import EpochRecord
from stream_app.core.releases.row_values import rows_of_bin

pytestmark = pytest.mark.slow

RARE = 1e-7
BINS, FIRST = 12, 100
FOUND = (FoundKeys(FIRST + 4, ("a", "b")), FoundKeys(FIRST + 7, ("c",)))


def kind_of(epsilon: float, listed: int = 0) -> DiscoveringTree:
    time = plan_tree(BINS, Fraction(epsilon), release="causal", branching=[3, 4])
    keys = KeyAxis(listed, Fraction(4, 5), Fraction(1, 5), rest=True)
    product = ProductDesign(time, keys, ValueAxis(1, TreeShape((1,)), (Fraction(1),)))
    return DiscoveringTree(product, rule=DiscoveryRule(Fraction(1, 2), Fraction(1, 10**9), BINS))


def approximate(epsilon: float, listed: int = 0, caps: Caps | None = None) -> DiscoveringToeplitz:
    caps = caps or Caps(max_events=1)
    each = (caps, Fraction(4, 5)), (Caps(max_events=caps.l1), Fraction(1, 5))
    budget = BINS, Fraction(epsilon), Fraction(1, 10**6)
    keys, total = (plan_toeplitz(*budget, own, width=listed + 9, share=share) for own, share in each)
    rule = DiscoveryRule(Fraction(1, 2), Fraction(1, 10**9), BINS)
    return DiscoveringToeplitz(keys, True, rule=rule, total=total, listed=listed)


KINDS = kind_of, approximate


@cache  # checking a design takes longer than releasing by it
def known(kind: Discovering, times: int) -> Discovering:
    """Return the kind that knows the keys of the first times at which keys were found."""
    return kind.with_found(FOUND[:times], FIRST)


def released(kind: Discovering, counts: Int64Array, noise: NoiseSource, listed: int = 0) -> AxesEpoch:
    """Release counts of listed keys, then a, b and c, and the rest; the keys are found as in ``FOUND``.

    Args: counts, shape (bins, listed + 4).
    """
    held, start, epoch = b"", 0, EpochRecord(0, FIRST, BINS, 1, "hash", found=FOUND)
    shown = [*range(listed)]
    everything = known(kind, len(FOUND))
    view = everything.epoch(epoch).over_axes
    assert view is not None
    tables: dict[str, list[Int64Array]] = {}
    for number, stop in enumerate((5, 8, BINS)):
        now = known(kind, number)
        rest = counts[start:stop].sum(axis=1) - counts[start:stop, shown].sum(axis=1)
        named = Named()
        if number < len(FOUND):
            places = [listed + "abc".index(name) for name in FOUND[number].names]
            named = Named(FOUND[number].names, counts[:stop, places])
            shown_after = [*shown, *places]
        closed = now.close_naming(held, np.column_stack([counts[start:stop, shown], rest]), noise, named)
        check_rows(kind, now, closed, number)
        for block in closed.blocks:
            tables.setdefault(block.table, []).append(block.values)
        held, start, shown = closed.state, stop, shown_after
    for table, width in everything.tables.items():
        values = np.concatenate(tables[table])
        assert values.shape == (everything.rows_after(table, BINS), width)
        view.append(table, values)
    return view


def check_rows(kind: Discovering, now: Discovering, closed: Closed, number: int) -> None:
    """Check that rows name keys once, and say the same with the kind that knows all keys."""
    told = [now.row_part(closed, position) for position in range(len(closed))]
    named = [part["found"]["keys"] for part in json.loads(json.dumps(told)) if "found" in part]
    assert named == [list(one.names) for one in FOUND[number : number + 1]]
    later = known(kind, len(FOUND))
    last = len(closed) - 1
    alone = Closed(closed.first_bin + last, closed.running[last:], closed.blocks, b"")
    assert later.row_part(alone, 0) == told[last]


@pytest.mark.parametrize("make", KINDS)
def test_a_bin_has_the_rows_by_which_all_tables_grow(make: Callable[..., Discovering]) -> None:
    """In the order of all tables, in which the witness packs them; a new group grows at every level."""
    kind = make(1e9, 2).with_found([FoundKeys(FIRST - 1, ("z",)), *FOUND], FIRST)
    for bin in range(BINS):
        grown = [
            (one, kind.rows_after(one, bin), kind.rows_after(one, bin + 1), kind.tables[one])
            for one in kind.tables
        ]
        assert list(rows_of_bin(kind, bin)) == [one for one in grown if one[2] > one[1]]


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("listed", [0, 2])
def test_found_keys_have_counts_of_all_bins(make: Callable[..., Discovering], listed: int) -> None:
    counts = np.random.default_rng(listed).integers(0, 50, (BINS, listed + 4))
    kind = make(1e15, listed)
    view = released(kind, counts, SeededNoise(1), listed)
    axes = kind.with_found(FOUND, FIRST).over_keys
    for span in (Span(0, BINS), Span(0, 5), Span(3, 11)):
        part = counts[span.start : span.stop]
        for place in range(listed + 3):
            one = view.showing(column_sum(axes, place))
            assert one.estimate(span, "unbiased").value == part[:, place].sum()
        rest = view.showing(column_sum(axes, listed + 3))
        assert rest.estimate(span, "unbiased").value == part[:, -1].sum()
        without = view.showing(column_sum(axes, (0, listed + 3)))
        assert without.estimate(span, "unbiased").value == part[:, [0, -1]].sum()
        assert view.estimate(span, "unbiased").value == part.sum()
    assert np.asarray(view.of_keys(Span(0, BINS)).value).tolist() == counts[:, :-1].sum(axis=0).tolist()


def test_text_is_read_back_and_costs_add_up() -> None:
    kind = kind_of(1.5, 3)
    assert kind_from(kind.fields(), kind.width) == kind
    lawyers = replace(kind, rule=replace(kind.rule, least_users=50))
    assert kind_from(lawyers.fields(), kind.width) == lawyers
    assert kind.epsilon == 2
    assert kind.delta == Fraction(1, 10**9)
    shown = kind.with_found(FOUND, FIRST)
    spent = [path_epsilon(group.design.scales, 1) for group in shown.axes.groups]
    assert sum(spent) <= Fraction(3, 2)
    assert spent == [path_epsilon(group.design.scales, 1) for group in kind.axes.groups]


def test_text_of_approximate_counts_is_read_back_and_costs_add_up() -> None:
    kind = approximate(1.5, 3, Caps(max_keys=4, max_per_key=2))
    assert kind_from(kind.fields(), kind.width) == kind
    assert kind.epsilon == 2
    assert kind.delta == Fraction(1, 10**6) + Fraction(1, 10**9)
    assert kind.mu is None
    found = kind.with_found(FOUND, FIRST)
    assert (found.epsilon, found.delta) == (kind.epsilon, kind.delta)
    assert isinstance(found, DiscoveringToeplitz)
    spent = sum((design.mu**2 for design, _ in found.mechanisms), Fraction(0))
    assert gaussian_delta(root_ceiling(spent), Fraction(3, 2)) <= Fraction(1, 10**6)
    assert gaussian_delta(root_ceiling(spent * Fraction("1.01")), Fraction(3, 2)) > Fraction(1, 10**6)
    again = kind.at_epsilon({"epsilon": Fraction(4)})  # type: ignore[typeddict-item]
    assert again.epsilon == 4
    assert again.rule.epsilon == 1


def test_designs_that_spend_more_than_one_budget_are_refused() -> None:
    kind = approximate(1.0)
    more = replace(kind.total, share=Fraction(1, 4), noise_steps=4 * kind.total.noise_steps)
    wider = replace(kind.total, delta=Fraction(1, 10**5))
    for total in (more, wider):
        with pytest.raises(ValueError, match="do not share one budget"):
            replace(kind, total=total)


@pytest.mark.parametrize("make", KINDS)
def test_intervals_of_found_keys_hold_their_counts(make: Callable[..., Discovering]) -> None:
    counts, runs, inside = np.random.default_rng(3).integers(0, 9, (BINS, 4)), 400, 0
    kind = make(0.5)
    axes, noise = kind.with_found(FOUND, FIRST).over_keys, SeededNoise(4)
    for _ in range(runs):
        view = released(kind, counts, noise)
        for place in range(4):  # the last one is the rest
            found = view.showing(column_sum(axes, place)).estimate(Span(2, 9), "unbiased").interval(0.95)
            inside += bool(found.lower <= counts[2:9, place].sum() <= found.upper)
    assert stats.binom.cdf(inside, 4 * runs, 0.95) > RARE
    assert stats.binom.sf(inside - 1, 4 * runs, 0.985) > RARE  # nor are they far too wide
