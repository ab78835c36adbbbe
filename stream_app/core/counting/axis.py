"""The common part of the axes of keys and of values: how their counts are released."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

import msgspec

_NOTHING = Fraction(0)
Option = bool | int | float | str | list[int] | None  # a JSON value that a mechanism's option may have


class Axis(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, dict=True, kw_only=True
):
    """How the counts of keys or buckets are released: live, or once per tumbling window.

    Args: for windows only: their length, mechanism, share of epsilon and the mechanism's options.
    """

    mode: Literal["tree", "window"] = "tree"
    window_us: int = 0
    mechanism: str = ""
    share: Fraction = _NOTHING
    options: dict[str, Option] = {}

    def __post_init__(self) -> None:
        """Set default values to the default objects: the text omits a field only if it holds that object."""
        if self.mode == "tree":
            msgspec.structs.force_setattr(self, "mode", "tree")
        if self.share == _NOTHING:
            msgspec.structs.force_setattr(self, "share", _NOTHING)
