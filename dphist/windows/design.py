"""Tumbling windows beside a tree over time: histograms of runs of bins, each released once.

The tree counts all events with a part of epsilon; each window's histograms get the rest. An event is in one
cell of one histogram of one window, so more windows and histograms of more keys cost nothing more. A
mechanism's own guarantee is for one event added or removed. If one privacy unit may change n events, the
mechanism runs with epsilon / n (group privacy, exact for pure epsilon).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from dphist.arrays import Int64Array
from dphist.mechanisms import registry
from dphist.mechanisms.base import LARGEST_TOTAL, HistogramRelease
from dphist.noise import NoiseSource
from dphist.privacy import exact, path_epsilon
from dphist.tree.design import TreeDesign
from dphist.units import UNITS_PER_COUNT, FullError

# Options that would replace the windows' guarantee (one event added or removed) by another one or by none.
_REFUSED = {
    "known_total": "takes the exact number of events as public and hides moved events only; leave it out",
    "neighbours": "is the relation of the mechanism's guarantee, which windows need as it is; leave it out",
    "continuous": "draws floating-point noise, which protects nobody; leave it out",
}
LARGEST_CELLS = 2**16  # numbers per window; each histogram costs time in Python
# Published values are int64 in units of 2^-16; a larger estimate would overflow them.
_LARGEST_VALUE = float(2**46)


def known_options(mechanism: str) -> tuple[str, ...]:
    """Return the options of a mechanism that windows may set."""
    return tuple(sorted(set(registry.describe(mechanism).options) - set(_REFUSED)))


def checked_options(mechanism: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as they are stored: JSON values, in which a share of epsilon has only one spelling.

    Whether values fit the histogram is checked later, by a trial run (``planning/load.py``).

    Args: options, by name; numbers, texts, truth values, lists of whole numbers, or None.
    Raises: ValueError in one line that names the option, its value and the remedy.

    >>> checked_options("dawa", {"partition_share": 0.2, "merge": True})
    {'merge': True, 'partition_share': '1/5'}
    """
    return {name: _as_json(value) for name, value in as_arguments(mechanism, options)}


def as_arguments(mechanism: str, options: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return options, stored or not, as hashable values that the mechanism takes.

    Raises: as ``checked_options``.
    """
    known, defaults = known_options(mechanism), registry.describe(mechanism).defaults()
    for name in options:
        if name in _REFUSED:
            raise ValueError(f"{name} {_REFUSED[name]}")
        if name not in known:
            raise ValueError(f"{mechanism} has no {name}; known here: {', '.join(known) or 'no options'}")
    asked = {
        name: _exact_share(value) if isinstance(defaults[name], Fraction) else value
        for name, value in options.items()
    }
    return tuple(sorted(registry.checked_options(mechanism, asked).items()))


def _exact_share(value: Any) -> Any:
    """Return a share as its decimal text says (0.2 is 1/5). Other values stay as they are."""
    try:
        share = exact(value)
    except ValueError:
        return value
    return share if share < 1 else value


def _as_json(value: Any) -> Any:
    if isinstance(value, Fraction):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def window_mechanisms() -> tuple[str, ...]:
    """Return the mechanisms that windows may use: one axis, guarantee for one event added or removed."""
    rows = ((name, registry.describe(name)) for name in registry.names())
    return tuple(name for name, row in rows if row.dimensions == 1 and row.neighbours == "add_remove")


@dataclass(frozen=True)
class WindowDesign:
    """The design of the windows beside a tree.

    Guarantee: if every tree node and every window is released once, all together are ``time.epsilon``-DP for
        the neighbours of ``time``. An event is in one node of each level and one cell of one histogram of one
        window. It costs the sum over levels of 1 / scale, and the histogram's ``epsilon``. A unit of up to
        ``time.sensitivity`` events added and removed costs at most that many times as much.
    Args: time, the tree over all events, whose shares leave ``share`` of epsilon; bins in a window, which
        divide the horizon; histograms, the number of keys, each with ``buckets`` buckets; mechanism, and its
        options, as ``checked_options`` returns them.
    Raises: ValueError naming the wrong field.

    >>> from dphist.tree.shape import TreeShape
    >>> time = TreeDesign(TreeShape((4,)), 4, Fraction(1), (Fraction(1, 5),))
    >>> WindowDesign(time, 2, 1, 8, "dawa", Fraction(4, 5)).epsilon
    Fraction(4, 5)
    """

    time: TreeDesign
    bins: int
    histograms: int
    buckets: int
    mechanism: str
    share: Fraction
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.mechanism not in window_mechanisms():
            raise ValueError(f"mechanism: {self.mechanism!r} is none of {', '.join(window_mechanisms())}")
        if checked_options(self.mechanism, self.options) != dict(self.options):
            raise ValueError("options: not as they are kept; pass them through checked_options")
        if not 1 <= self.bins <= self.time.horizon or self.time.horizon % self.bins:
            raise ValueError(
                f"window: {self.bins} bins do not divide the epoch of {self.time.horizon}; change one of them"
            )
        if min(self.histograms, self.buckets) < 1 or self.cells > LARGEST_CELLS:
            raise ValueError(f"window: {self.histograms} x {self.buckets} cells; at most {LARGEST_CELLS}")
        if not 0 < self.share < 1:
            raise ValueError(f"share: {self.share} of epsilon for the windows is not between 0 and 1")
        tree = path_epsilon(self.time.scales, self.time.sensitivity)
        if tree + self.epsilon * self.time.sensitivity > self.time.epsilon:
            raise ValueError(f"share: {self.share} for the windows is more than the tree leaves of epsilon")

    @property
    def epsilon(self) -> Fraction:
        """The mechanism's epsilon for each histogram, for one event added or removed."""
        return self.time.epsilon * self.share / self.time.sensitivity

    @property
    def cells(self) -> int:
        """The number of cells of a window: bucket ``b`` of histogram ``k`` is cell k * buckets + b."""
        return self.histograms * self.buckets

    @property
    def attributed(self) -> bool:
        """Whether a window's numbers belong to buckets. If not, they are the counts, sorted upwards."""
        return self.mechanism not in registry.UNATTRIBUTED

    @property
    def arguments(self) -> tuple[tuple[str, Any], ...]:
        """The options, converted to the types that the mechanism takes."""
        return as_arguments(self.mechanism, self.options)

    def release(self, cells: Int64Array, noise: NoiseSource) -> Int64Array:
        """Release the histograms of one window, once.

        Guarantee: see the class.
        Args: exact counts of its cells, shape (cells,), none negative. SECRET.
        Returns: the mechanism's estimates in units of 2^-16, shape (cells,).
        Raises: ValueError for counts of a wrong kind (the message never shows a count), or for a mechanism
            whose guarantee is for another relation.
        Cost: the mechanism's, for each histogram.
        """
        if cells.dtype != np.int64 or cells.shape != (self.cells,):
            raise ValueError(f"counts: {cells.dtype} {cells.shape} given; int64 ({self.cells},) is needed")
        if cells.min() < 0:
            raise ValueError("counts: below 0; check what is counted")
        if cells.sum(dtype=np.float64) > LARGEST_TOTAL:
            raise FullError("counts: above 2^42 in a window; take shorter windows")
        rows = [
            self.release_histogram(row, noise).counts for row in cells.reshape(self.histograms, self.buckets)
        ]
        # The rows are released values. An estimate that is not a number counts as 0.
        found = np.nan_to_num(np.concatenate(rows), nan=0.0, posinf=_LARGEST_VALUE, neginf=-_LARGEST_VALUE)
        values = np.clip(found, -_LARGEST_VALUE, _LARGEST_VALUE)
        return np.rint(values * UNITS_PER_COUNT).astype(np.int64)

    def release_histogram(self, counts: Int64Array, noise: NoiseSource) -> HistogramRelease:
        """Release one histogram of a window.

        Guarantee: ``epsilon``-DP for one event added or removed, if released once.
        Raises: ValueError of the mechanism, or for a mechanism that protects moved events only: it does not
            hide whether an event is present.
        """
        made = registry.release(self.mechanism, counts, self.epsilon, noise=noise, **dict(self.arguments))
        if made.neighbours != "add_remove":
            raise ValueError("its guarantee is for a moved event only; windows need one for an event added")
        return made

    def to_json(self) -> str:
        """Return the design as canonical JSON, without the tree; equal designs have equal texts."""
        fields = {
            "bins": self.bins,
            "histograms": self.histograms,
            "buckets": self.buckets,
            "mechanism": self.mechanism,
            "share": str(self.share),
        } | ({"options": dict(self.options)} if self.options else {})
        return json.dumps(fields, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes, time: TreeDesign) -> WindowDesign:
        """Read the text of ``to_json`` and check it. Raises: ValueError for other fields or bad values."""
        fields: Any = json.loads(text)
        always = {"bins", "histograms", "buckets", "mechanism", "share"}
        if not isinstance(fields, Mapping) or set(fields) - {"options"} != always:
            raise ValueError("window design: expected bins, histograms, buckets, mechanism and share")
        share, options = exact(fields["share"], "share"), fields.get("options", {})
        size = fields["bins"], fields["histograms"], fields["buckets"]
        return cls(time, *size, fields["mechanism"], share, options)
