"""Adds up the cost of a source's ledger entries once more, without the ledger's own code.

The results are never above the truth, so an honest statement is never refused: losses of pure releases are
rounded down to a grid, and everything is computed in floating point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby, pairwise
from math import prod, sqrt

import numpy as np

from dphist.arrays import FloatArray
from stream_app.core.promise import Statement
from stream_app.core.records import LedgerEntry

_POINTS = 1 << 14  # of the grid of losses


@dataclass(frozen=True, slots=True)
class AddedUp:
    """The releases that one privacy unit may be in."""

    epsilon: Fraction  # the sum
    pure: tuple[Fraction, ...]  # the epsilons of pure releases
    mus: tuple[Fraction, ...]  # of the Gaussian ones
    deltas: tuple[Fraction, ...]  # of those without a mu

    def least_delta(self, epsilon: float) -> float:
        """Return a lower bound, up to rounding, on the delta of all releases together at this epsilon."""
        from scipy.special import log_ndtr, ndtr  # imported here because only an audit needs it

        losses, weights = _law(self.pure)
        left, mu = epsilon - losses, sqrt(float(sum(mu * mu for mu in self.mus)))
        if mu == 0:
            parts = np.maximum(-np.expm1(np.minimum(left, 0.0)), 0.0)
        else:
            parts = ndtr(mu / 2 - left / mu) - np.exp(left + log_ndtr(-mu / 2 - left / mu))
        kept = prod(1 - float(delta) for delta in self.deltas)
        return 1 - kept + kept * float(weights @ parts)


def added_up(stated: Statement, entries: Sequence[LedgerEntry]) -> AddedUp:
    """Return the costliest releases that one unit of the stated kind may be in."""
    counted: list[tuple[LedgerEntry, int]] = []
    for epochs in _measurements(entries):
        in_order = sorted(epochs, key=lambda entry: entry.start_us)
        changes = 2 if stated.neighbours == "substitute" != in_order[0].neighbours else 1
        if stated.unit == "event" and in_order[0].unit == "user":
            changes *= 2
        groups = _of_one_unit(stated.unit, in_order)
        costliest = max(groups, key=lambda group: sum(Fraction(entry.epsilon) for entry in group))
        counted += [(entry, changes) for entry in costliest]
    return AddedUp(
        epsilon=sum((changes * Fraction(entry.epsilon) for entry, changes in counted), Fraction(0)),
        pure=tuple(changes * Fraction(entry.epsilon) for entry, changes in counted if entry.mu is None),
        mus=tuple(changes * Fraction(entry.mu) for entry, changes in counted if entry.mu is not None),
        deltas=tuple(
            Fraction(entry.delta) for entry, _ in counted if entry.delta is not None and entry.mu is None
        ),
    )


def covers(stated: Statement, entries: Sequence[LedgerEntry]) -> bool:
    """Return whether a promise for this unit can be about all of these entries."""
    if stated.unit == "event":
        return True
    _, _, per = stated.unit.partition(" per ")
    named = {entry.user for entry in entries if entry.user is not None}
    alike = all(entry.unit == "user" and entry.per == (per or None) for entry in entries)
    return alike and len(named) <= 1


def _of_one_unit(unit: str, epochs: Sequence[LedgerEntry]) -> list[list[LedgerEntry]]:
    """Return the groups of a stream's epochs, in order, that may count the same unit."""
    if unit == "user":
        return [list(epochs)]
    groups = [[epochs[0]]]
    for before, entry in pairwise(epochs):
        if unit == "event":
            # A successor has its own cap windows, also where it begins within one of the stream before it.
            shared = entry.unit == "user" and entry.stream == before.stream
            shared = shared and entry.start_us < max(one.end_us for one in groups[-1])
        else:
            # An epoch that begins within a period shares it with the epoch before.
            shared = entry.start_us != entry.period_us
            if shared and groups[-1][-1].period_us != entry.period_us:
                groups.append([before])
        groups = [*groups[:-1], [*groups[-1], entry]] if shared else [*groups, [entry]]
    return groups


def _law(pure: Sequence[Fraction]) -> tuple[FloatArray, FloatArray]:
    """Return the law of the summed loss of randomized responses: losses, and the probability of each.

    Args: pure, the epsilon of each response. Losses are rounded down to a grid.
    """
    from scipy.stats import binom

    width = 2 * float(sum(pure)) or 1.0
    step = width / _POINTS
    first, law = 0, np.ones(1)
    for epsilon, same in groupby(sorted(pure)):
        number = len(list(same))
        up = np.arange(number + 1)
        places = np.floor((2 * up - number) * float(epsilon) / step).astype(np.int64)
        weights = np.zeros(places[-1] - places[0] + 1)
        weights[places - places[0]] += binom.pmf(up, number, 1 / (1 + np.exp(-float(epsilon))))
        first, law = first + int(places[0]), np.convolve(law, weights)
    return np.asarray((first + np.arange(len(law))) * step, np.float64), law


def _measurements(entries: Sequence[LedgerEntry]) -> list[list[LedgerEntry]]:
    """Return the epochs of each stream, joined over strategies that name their predecessor, and with its
    successor's if they protect the same unit."""
    succeeded = {entry.successor_of for entry in entries}
    groups: list[tuple[set[tuple[str, str]], list[LedgerEntry]]] = []
    for entry in entries:
        hashes = entry.strategy_hash, entry.changed_from or entry.strategy_hash
        names = {(entry.stream, one) for one in hashes}
        unit = f"any {entry.unit} {entry.per} {entry.user} {entry.time} {entry.neighbours}"
        names |= {(one, unit) for one in (entry.stream, entry.successor_of) if one and one in succeeded}
        joined = [group for group in groups if group[0] & names]
        groups = [group for group in groups if not group[0] & names]
        groups.append(
            (names.union(*(one for one, _ in joined)), [*(one for _, own in joined for one in own), entry])
        )
    return [own for _, own in groups]
