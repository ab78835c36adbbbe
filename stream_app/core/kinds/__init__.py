"""Kinds of release: a tree over time, keys and values beside it, and what wraps a tree.

``kind_of`` and ``kind_from`` are the one place that chooses a kind. A new kind is a new file beside these: a
``Kind`` with its tables, its closing, its part of a row, its errors and its view of an epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dphist.product.design import ProductDesign
from dphist.tree.design import TreeDesign
from dphist.tree.epoch_levels import EpochLevels
from dphist.window import WindowDesign
from stream_app.core.kinds.axes import AnticipatingAxes, CausalAxes
from stream_app.core.kinds.kind import Kind
from stream_app.core.kinds.over_epochs import OverEpochs
from stream_app.core.kinds.tree import AnticipatingTree, CausalTree, Tree
from stream_app.core.kinds.windows import Windows

__all__ = ["Kind", "kind_from", "kind_of"]


def kind_of(design: TreeDesign | ProductDesign | WindowDesign | EpochLevels, width: int = 1) -> Kind:
    """Return the kind of release that a design describes.

    Args: width, cells with a tree each, for a tree over time alone.
    """
    if isinstance(design, ProductDesign):
        return AnticipatingAxes(design) if design.time.release == "anticipating" else CausalAxes(design)
    if isinstance(design, WindowDesign):
        return Windows(_tree(design.time), design)
    if isinstance(design, EpochLevels):
        assert isinstance(design.epoch, TreeDesign)
        return OverEpochs(_tree(design.epoch), design)
    return _tree(design, width)


def _tree(design: TreeDesign, width: int = 1) -> Tree:
    return AnticipatingTree(design, width) if design.release == "anticipating" else CausalTree(design, width)


def kind_from(fields: Mapping[str, Any]) -> Kind:
    """Read what ``Kind.fields`` wrote, checking everything again. Raises: ValueError for other text."""
    design = TreeDesign.from_json(fields["design"])
    if "product" in fields:
        return kind_of(ProductDesign.from_json(fields["product"]))
    if "window" in fields:
        return kind_of(WindowDesign.from_json(fields["window"], design))
    if "over_epochs" in fields:
        return kind_of(EpochLevels.from_json(fields["over_epochs"], design))
    return _tree(design, fields["width"])
