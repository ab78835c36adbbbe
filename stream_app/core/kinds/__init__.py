"""Kinds of release: a tree over time, with keys and values, kinds that add to a tree, and approximate counts.

Only ``kind_of`` and ``READERS`` choose a kind. A new kind is a new class in this package, with its tables,
its closing, its part of a row, its errors and its view of an epoch, and a line in ``READERS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dphist.epochs import EpochLevels
from dphist.product.design import ProductDesign
from dphist.toeplitz import ToeplitzDesign
from dphist.tree.design import TreeDesign
from dphist.users import BUCKETS, NumbersOfUsers
from dphist.windows.design import WindowDesign
from stream_app.core.kinds.approximate_discovering import read_discovering_toeplitz
from stream_app.core.kinds.axes import AnticipatingAxes, Axes, CausalAxes
from stream_app.core.kinds.discovering import DISCOVERY, Discovering, DiscoveringTree, read_rule
from stream_app.core.kinds.kind import Kind
from stream_app.core.kinds.toeplitz import TOEPLITZ, TOEPLITZ_KEYS, Toeplitz
from stream_app.core.kinds.tree import AnticipatingTree, CausalTree, Tree
from stream_app.core.kinds.wrappers import MEASURING, Measuring, OverEpochs, Windows

__all__ = ["READERS", "Discovering", "Kind", "Measuring", "kind_from", "kind_of"]


def kind_of(design: TreeDesign | ProductDesign | WindowDesign | EpochLevels, width: int = 1) -> Kind:
    """Return the kind of release that a design describes.

    Args: width, for a tree over time only: the number of cells, each with its own tree.
    """
    if isinstance(design, ProductDesign):
        return AnticipatingAxes(design) if design.time.anticipates else CausalAxes(design)
    if isinstance(design, WindowDesign):
        return Windows(_tree(design.time), design)
    if isinstance(design, EpochLevels):
        assert isinstance(design.epoch, TreeDesign)
        return OverEpochs(_tree(design.epoch), design)
    return _tree(design, width)


def measuring(counts: Kind, users: NumbersOfUsers) -> Measuring:
    """Return a kind that counts users, too. Raises: ValueError for counts that do not allow it."""
    if not isinstance(counts, Tree | Axes) or isinstance(counts, Discovering):
        raise ValueError("numbers of users go with a tree over time, with or without keys and values")
    return Measuring(counts, users)


def _tree(design: TreeDesign, width: int = 1) -> Tree:
    return AnticipatingTree(design, width) if design.anticipates else CausalTree(design, width)


# The kind of a stored strategy, by the design that it has beside its tree over time.
READERS: dict[str, Callable[[str, TreeDesign], Kind]] = {
    "product": lambda text, design: kind_of(ProductDesign.from_json(text)),
    "window": lambda text, design: kind_of(WindowDesign.from_json(text, design)),
    "over_epochs": lambda text, design: kind_of(EpochLevels.from_json(text, design)),
}


def kind_from(fields: Mapping[str, str], width: int) -> Kind:
    """Return the kind whose ``Kind.fields`` these are; all checks run again.

    Args: width, the number of cells, for a tree over time only.
    Raises: ValueError for other text.
    """
    if DISCOVERY in fields and TOEPLITZ_KEYS in fields:
        return read_discovering_toeplitz(fields, width)
    for name in (TOEPLITZ, TOEPLITZ_KEYS):
        if name in fields:
            return Toeplitz(ToeplitzDesign.from_json(fields[name]), keyed=name == TOEPLITZ_KEYS)
    if DISCOVERY in fields:
        product = ProductDesign.from_json(fields["product"])
        return DiscoveringTree(product, rule=read_rule(fields[DISCOVERY]))
    if MEASURING in fields:
        counts = {name: text for name, text in fields.items() if name != MEASURING}
        return measuring(kind_from(counts, width - BUCKETS), NumbersOfUsers.from_json(fields[MEASURING]))
    design = TreeDesign.from_json(fields["design"])
    for name, read in READERS.items():
        if name in fields:
            return read(fields[name], design)
    return _tree(design, width)
