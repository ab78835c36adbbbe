"""Grey box: the privacy loss between neighbouring logs, added up exactly over the noise that hides it.

Four rehearsals for each pair of neighbouring logs. Two without noise show how far each node moves. Two with
noise show that nothing else of the log is visible: the second log, with noise that is moved against its
nodes, must give the same bytes as the first. The loss of the pair is then a sum over the moved numbers: of
|move| / scale for discrete Laplace noise, an exact fraction. For discrete Gaussian noise the sum of
move^2 / variance is mu^2.

Of a stream that finds keys, the logs also differ in the users who bring keys. The law of the decision at
which a key is named is integrated for both logs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dphist import SystemNoise
from dphist.arrays import Int64Array
from dphist.discovery import DiscoveryRule
from dphist.toeplitz import ToeplitzCounter, ToeplitzDesign
from dphist.tree.design import TreeDesign
from dphist.tree.shape import node_counts
from dphist.units import UNITS_PER_COUNT
from stream_app.audit.made_up import Drawn, Event, GivenNoise, Labels, Law, Maker, Number, silence
from stream_app.audit.rehearsal import Public, Rehearsal, UsersOfKeys
from stream_app.core.kinds import Discovering
from stream_app.core.kinds.tables import PUBLISHED, USERS
from stream_app.core.kinds.toeplitz import Toeplitz
from stream_app.core.strategy import Strategy

_EVENTS, _USERS = 100, 8
_RARE = 1e-12  # outcomes that are less likely are not compared: doubles do not hold their ratio


Neighbour = tuple[str, Sequence[Event]]  # how a log differs from the first one by one unit, and the log


class NamesLoss(NamedTuple):
    """The loss that names of keys cause between two logs.

    Args: loss, over keys that other users bring, too; delta, the probability of naming a key that only the
        differing user brings; keys, how many keys have different numbers of users.
    """

    loss: float
    delta: float
    keys: int


@dataclass(frozen=True, slots=True)
class PairLoss:
    """The losses of one pair of neighbouring logs."""

    what: str  # how the logs differ
    moved: int  # how many numbers of noise hide the difference
    loss: Fraction  # the exact privacy loss of the discrete Laplace numbers
    mu_squared: Fraction  # of the discrete Gaussian numbers
    same_bytes: bool  # whether noise that is moved by this much makes both logs' outputs equal
    names: NamesLoss | None = None  # what names show beside counts, of a stream that finds keys


def neighbours(rehearsal: Rehearsal, maker: Maker, events: Sequence[Event]) -> Iterator[Neighbour]:
    """Yield neighbouring logs: with the unit's events added, taken out or replaced, at several places."""
    declared = rehearsal.stream.declared
    bins = (0, rehearsal.bins // 2, rehearsal.bins - 1)
    substitute, per_user = declared.privacy.neighbours == "substitute", declared.privacy.per_user
    if per_user is None:
        for bin in bins:
            if substitute:
                yield f"one event moved to bin {bin}", [maker.largest(bin), *events[1:]]
            else:
                yield f"one event more, in bin {bin}", [*events, maker.largest(bin)]
        if not substitute:
            yield "one event less", events[1:]
        if declared.finds_keys:
            yield "one event more, with a new key", [*events, maker.newcomer(bins[0], 0)]
        return
    person = _USERS  # has no other events
    for bin in bins:
        many = [maker.largest(bin, person) for _ in range(2 * declared.privacy.caps.l1)]
        yield f"one user more, with {len(many)} events in bin {bin}", [*events, *many]
    if length := declared.period_bins:
        # The unit is a user's day, for example: these neighbours differ within one of them.
        period = [bin for bin in range(rehearsal.bins) if _period_of(rehearsal, bin, length) == bins[0]]
        spread = [maker.largest(bin, person) for bin in period]
        yield "one user more, with an event in every bin of a period", [*events, *spread]
        return
    spread = [maker.largest(bin, person) for bin in range(rehearsal.bins)]
    yield "one user more, with an event in every bin", [*events, *spread]
    if declared.finds_keys:
        new = [maker.newcomer(bin, bin, person) for bin in range(rehearsal.bins)]
        yield "one user more, who brings a new key in every bin", [*events, *new]
    one = [event for event in events if _user(rehearsal, event) == _user(rehearsal, events[0])]
    rest = [event for event in events if event not in one]
    yield f"one user less, with {len(one)} events", rest
    if substitute:
        moved = [maker.largest(rehearsal.bins - 1, person) for _ in spread]
        yield "all events of one user in other bins", [*events, *moved]


def _period_of(rehearsal: Rehearsal, bin: int, length: int) -> int:
    """Return the number of a bin's period of the unit, counted from the first bin's."""
    return (rehearsal.first_bin + bin) // length - rehearsal.first_bin // length


def _user(rehearsal: Rehearsal, event: Event) -> object:
    per_user, found = rehearsal.stream.declared.privacy.per_user, event
    assert per_user is not None
    for name in per_user.field.split("."):
        found = found[name]
    return found


@dataclass(frozen=True)
class GreyBox:
    """A stream whose pipeline is rehearsed. Args: seed, of the made-up records."""

    rehearsal: Rehearsal
    seed: int

    @cached_property
    def maker(self) -> Maker:
        """The maker of the records."""
        return Maker(self.rehearsal.stream.declared, self.rehearsal.first_bin, self.seed)

    @cached_property
    def events(self) -> list[Event]:
        """The first log."""
        return self.maker.log(self.rehearsal.bins, _EVENTS, _USERS)

    @cached_property
    def exact(self) -> Public:
        """The outputs of the first log without noise."""
        return self.rehearsal.run(self.events, silence)

    @cached_property
    def places(self) -> Mapping[tuple[str, int, int], Number]:
        """Which drawn ``Number`` is in each value of the node tables, by table, row and column.

        The rehearsal draws labels instead of noise. A value that moves by exactly one label holds the number
        with this label, and no other.
        """
        labels = Labels(self.seed)
        shown = self.rehearsal.run(self.events, labels)
        found = {}
        for name, values in shown.tables.items():
            if name != PUBLISHED:
                moved = values - self.exact.tables[name]
                for row, column in np.ndindex(*moved.shape):
                    if (number := labels.numbers.get(int(moved[row, column]))) is not None:
                        found[name, row, column] = number
        return found

    def losses(self) -> Iterator[PairLoss]:
        """Rehearse each neighbouring log."""
        for what, events in neighbours(self.rehearsal, self.maker, self.events):
            yield self._loss(what, events)

    def _loss(self, what: str, events: Sequence[Event]) -> PairLoss:
        moves = self._moves(self.rehearsal.run(events, silence))
        drawn = Drawn(SystemNoise())
        first = self.rehearsal.run(self.events, drawn)
        drawn.shifts = {number: -move for number, move in moves.items()}
        second = self.rehearsal.run(events, drawn)
        laplace = {number: move for number, move in moves.items() if number.law.name == "laplace"}
        gaussian = {number: move for number, move in moves.items() if number.law.name == "gaussian"}
        return PairLoss(
            what=what,
            moved=len(moves),
            loss=sum((abs(move) / number.law.parameter for number, move in laplace.items()), Fraction(0)),
            mu_squared=sum((move**2 / one.law.parameter for one, move in gaussian.items()), Fraction(0)),
            same_bytes=first.same_as(second),
            names=self._names(second),
        )

    def _names(self, other: Public) -> NamesLoss | None:
        kind = self.rehearsal.strategy.kind
        if not isinstance(kind, Discovering):
            return None
        stated = replace(kind.rule, least_users=1)  # a rehearsal names nothing
        return _names_loss(stated, self.exact.brought, other.brought)

    def _moves(self, exact: Public) -> dict[Number, int]:
        """Return how far the exact value under each number of noise moves from the first log to another."""
        strategy = self.rehearsal.strategy
        moves: dict[Number, int] = {}
        if isinstance(strategy.kind, Toeplitz):
            for design, columns in strategy.kind.mechanisms:
                both = (_counts(one)[:, columns] for one in (self.exact, exact))
                moves |= dict(_moves_of_outputs(design, *both))
            return {number: move for number, move in moves.items() if move}
        if strategy.kind.drawn_ahead:
            moves = dict(_moves_ahead(strategy, _counts(exact) - _counts(self.exact)))
        for (name, row, column), number in self.places.items():
            if name == USERS or not strategy.kind.drawn_ahead:
                move = int(exact.tables[name][row, column] - self.exact.tables[name][row, column])
                moves[number] = moves.get(number, 0) + move
        return {number: move for number, move in moves.items() if move}


def _names_loss(rule: DiscoveryRule, one: UsersOfKeys, other: UsersOfKeys) -> NamesLoss:
    """Return the privacy loss that the names of keys cause between two logs, summed over keys.

    Args: one, other, the users of each key in either log.
    """
    silent = [0] * max(map(len, (*one.values(), *other.values())), default=0)
    loss, delta, keys = 0.0, 0.0, 0
    for key in one.keys() | other.keys():
        users = [np.array(paths.get(key, silent), np.int64) for paths in (one, other)]
        if np.array_equal(users[0], users[1]):
            continue
        keys += 1
        if any(not path.any() for path in users):  # without the differing user nobody brings the key
            delta += max(float(rule.chances(path.tolist()).sum()) for path in users)
        else:
            loss += _largest_ratio(rule, users[0], users[1])
    return NamesLoss(loss, delta, keys)


def _largest_ratio(rule: DiscoveryRule, one: Int64Array, other: Int64Array) -> float:
    laws = [np.append(law, 1 - law.sum()) for law in (rule.chances(path.tolist()) for path in (one, other))]
    kept = (laws[0] > _RARE) & (laws[1] > _RARE)
    return float(np.abs(np.log(laws[0][kept] / laws[1][kept])).max(initial=0.0))


def _counts(exact: Public) -> Int64Array:
    """Return the exact counts of each bin and column, from running counts without noise."""
    running = np.rint(exact.tables[PUBLISHED] / UNITS_PER_COUNT).astype(np.int64)
    return np.diff(running, axis=0, prepend=0)


def _moves_of_outputs(
    design: ToeplitzDesign, counts: Int64Array, other: Int64Array
) -> Iterator[tuple[Number, int]]:
    """Yield the move of each value that an approximate mechanism releases, in steps of its lattice."""
    law = Law("gaussian", design.variance_steps)
    before, after = (ToeplitzCounter(design).close(own, GivenNoise(silence)) for own in (counts, other))
    for place, move in enumerate((after - before).ravel().tolist()):
        yield Number(law, place), move


def _moves_ahead(strategy: Strategy, changes: Int64Array) -> Iterator[tuple[Number, int]]:
    """Yield the move of each node whose noise was drawn before the epoch, in the order of drawing.

    Args: changes, of the columns' exact counts, shape (bins, columns).
    """
    drawn: dict[Law, int] = {}
    for design, columns in trees_of(strategy):
        for level, scale, nodes in _levels(design):
            law = Law("laplace", Fraction(float(scale)))
            first = drawn.get(law, 0)
            drawn[law] = first + nodes * (columns.stop - columns.start)
            width = design.shape.widths[level]
            starts = np.arange(0, len(changes), width)
            sums = np.add.reduceat(changes[:, columns], starts, axis=0)
            for place, move in enumerate(sums.ravel().tolist()):
                yield Number(law, first + place), move


def trees_of(strategy: Strategy) -> list[tuple[TreeDesign, slice]]:
    """Return the trees over time whose noise is drawn one after the other, with their columns."""
    if strategy.kind.product is None:
        return [(strategy.design, slice(0, strategy.kind.tables[PUBLISHED]))]
    return [(group.design, group.columns) for group in strategy.kind.product.groups]


def _levels(design: TreeDesign) -> Iterator[tuple[int, Fraction, int]]:
    counts = node_counts(design.shape, design.horizon)
    return zip(design.shape.levels, design.scales, counts, strict=True)
