"""A tree with a share of epsilon for every node, in exact dyadic fractions.

Where a node lies decides how often running counts use it, so shares per node beat shares per level. A share
is a whole number of 4096ths: few different scales, sums without rounding, two bytes a node.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from dphist.noise import checked_scale
from dphist.privacy import Neighbours, exact
from dphist.privacy import sensitivity as level_sensitivity
from dphist.tree.design import LARGEST_SCALE, Release, TreeDesign
from dphist.tree.epoch_nodes import by_parent, node_counts, to_children
from dphist.tree.law import discrete_laplace_variance
from dphist.tree.node_error import anticipating_error, causal_error, prefix_variances
from dphist.tree.range_error import workload_error
from dphist.tree.shape import TreeShape
from dphist.workloads import PREFIX, Workload, WorkloadText

FloatArray = NDArray[np.float64]
Uint16Array = NDArray[np.uint16]

SHARE_BITS = 12
WHOLE = 1 << SHARE_BITS


@dataclass(frozen=True, eq=False)
class NodeDesign:
    """One tree over an epoch of ``horizon`` bins, with a share of epsilon per node.

    Guarantee: releasing every measured node once, with discrete Laplace noise of its own scale, is
        epsilon-DP for streams whose counts differ by at most ``sensitivity`` in L1 on each level: an event is
        counted by one path of nodes, the shares of every path add up to at most 1 (checked, in integers), and
        every scale is at least sensitivity / (epsilon * share) (rounded up, checked in fractions).
    Args: share_parts, per measured level, root side first, one uint16 for each node that holds a bin of the
        epoch, in 4096ths; 0 for a node that is not measured, which no leaf may be. A causal release never
        measures nodes that the horizon cuts off: they never complete.
    Raises: ValueError naming the field that is wrong.
    """

    shape: TreeShape
    horizon: int
    epsilon: Fraction
    share_parts: tuple[Uint16Array, ...]
    neighbours: Neighbours = "add_remove"
    sensitivity: int = 1
    release: Release = "anticipating"

    def __post_init__(self) -> None:
        if not 1 <= self.horizon <= self.shape.capacity:
            raise ValueError(
                f"horizon: {self.horizon} bins are outside [1, {self.shape.capacity}] of this tree"
            )
        if not isinstance(self.epsilon, Fraction) or self.epsilon <= 0:
            raise ValueError(f"epsilon: {self.epsilon!r} is not a fraction above zero; use privacy.exact")
        least = level_sensitivity(1, self.neighbours)
        if self.sensitivity < least or self.sensitivity % least:
            raise ValueError(
                f"sensitivity: {self.sensitivity} is not a multiple of {least} under {self.neighbours}"
            )
        if self.release not in get_args(Release):
            raise ValueError(
                f"release: {self.release!r} is unknown; write one of {', '.join(get_args(Release))}"
            )
        object.__setattr__(self, "share_parts", tuple(_frozen(parts) for parts in self.share_parts))
        self._check_paths()
        smallest = min(self.scale_of_part, default=WHOLE)
        if self.scale_of_part[smallest] > LARGEST_SCALE:
            raise ValueError(
                f"epsilon: {self.epsilon} needs noise beyond 2^38 a node; choose a larger epsilon"
            )
        for part, scale in self.scale_of_part.items():
            if Fraction(scale) * self.epsilon * part < self.sensitivity * WHOLE:
                raise AssertionError(
                    "scales rounded up cannot cost more than their share; dphist.noise is wrong"
                )

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, NodeDesign) and self.to_bytes() == other.to_bytes())

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.to_bytes())

    @property
    def branching(self) -> tuple[int, ...]:
        """The branching factors, root to leaf."""
        return self.shape.branching

    @cached_property
    def scale_of_part(self) -> dict[int, float]:
        """The noise scale, in counts and rounded up, of each share in use (in 4096ths)."""
        used = np.unique(np.concatenate(self.share_parts))
        return {
            int(part): checked_scale(self.sensitivity * WHOLE / (self.epsilon * int(part)))
            for part in used
            if part
        }

    @cached_property
    def node_scales(self) -> tuple[FloatArray, ...]:
        """The noise scale of every node, per measured level, in counts; 0 where a node is not measured."""
        return self._looked_up(self.scale_of_part, 0.0)

    @cached_property
    def node_variances(self) -> tuple[FloatArray, ...]:
        """The exact variance of every node's noise, per measured level; infinite where it is not measured."""
        table = {part: discrete_laplace_variance(scale) for part, scale in self.scale_of_part.items()}
        return self._looked_up(table, np.inf)

    def mean_squared_error(self, workload: Workload | WorkloadText = PREFIX) -> float:
        """Return the expected squared error of a workload's answers, mean over its questions.

        Guarantee: exact for the design's release, as ``TreeDesign.mean_squared_error`` says.
        Raises: ValueError for a workload that is unknown or longer than the epoch.
        Cost: O(nodes) for the running count, else O(height * horizon).
        """
        questions, anticipating = Workload.of(workload), self.release == "anticipating"
        if questions != PREFIX:
            return workload_error(self.shape, self.horizon, self.node_variances, questions, anticipating)
        error = anticipating_error if anticipating else causal_error
        return error(self.shape, self.horizon, self.node_variances)[0] / self.horizon

    def prefix_variances(self) -> FloatArray:
        """Return the variance of every published running count, t = 1..horizon, shape (horizon,)."""
        return prefix_variances(self.shape, self.horizon, self.node_variances, self.release == "anticipating")

    def to_bytes(self) -> bytes:
        """Return the canonical bytes: a line of JSON, then two little-endian bytes a node, root side first.

        Equal designs have equal bytes, on every machine: what is hashed and stored.
        """
        fields = {
            "branching": list(self.branching),
            "epsilon": f"{self.epsilon.numerator}/{self.epsilon.denominator}",
            "horizon": self.horizon,
            "neighbours": self.neighbours,
            "release": self.release,
            "sensitivity": self.sensitivity,
            "share_bits": SHARE_BITS,
        }
        header = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode() + b"\n"
        return header + b"".join(parts.astype("<u2").tobytes() for parts in self.share_parts)

    @classmethod
    def from_bytes(cls, data: bytes) -> NodeDesign:
        """Read what ``to_bytes`` wrote, checking everything again.

        Raises: ValueError for bytes that are no design.
        """
        header, _, body = data.partition(b"\n")
        fields = json.loads(header)
        expected = {"branching", "epsilon", "horizon", "neighbours", "release", "sensitivity", "share_bits"}
        if not isinstance(fields, Mapping) or set(fields) != expected or fields["share_bits"] != SHARE_BITS:
            raise ValueError(f"node design: expected the keys {sorted(expected)} and {SHARE_BITS} share bits")
        shape, horizon = TreeShape(tuple(fields["branching"])), fields["horizon"]
        if isinstance(horizon, bool) or not isinstance(horizon, int) or horizon < 1:
            raise ValueError(f"node design: horizon {horizon!r} is not a whole number of at least 1 bin")
        counts = node_counts(shape, horizon)
        if len(body) != 2 * sum(counts):
            raise ValueError(
                f"node design: {len(body)} bytes of shares are not two for each of {sum(counts)}"
            )
        parts = np.split(np.frombuffer(body, dtype="<u2").astype(np.uint16), np.cumsum(counts)[:-1])
        return cls(
            shape=shape,
            horizon=horizon,
            epsilon=exact(fields["epsilon"]),
            share_parts=tuple(parts),
            neighbours=fields["neighbours"],
            sensitivity=fields["sensitivity"],
            release=fields["release"],
        )

    def to_json(self) -> str:
        """Return ``to_bytes`` as one line of text: the shares in base 64 under ``share_parts``."""
        header, _, body = self.to_bytes().partition(b"\n")
        fields = json.loads(header) | {"share_parts": base64.b64encode(body).decode()}
        return json.dumps(fields, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> NodeDesign:
        """Read what ``to_json`` wrote, checking everything again, every path's sum included.

        Raises: ValueError for text that is no design.
        """
        fields = json.loads(text)
        if not isinstance(fields, Mapping) or not isinstance(fields.get("share_parts"), str):
            raise ValueError("node design: share_parts is missing")
        body = base64.b64decode(fields["share_parts"], validate=True)
        header = {key: value for key, value in fields.items() if key != "share_parts"}
        return cls.from_bytes(json.dumps(header).encode() + b"\n" + body)

    def _looked_up(self, values: Mapping[int, float], not_measured: float) -> tuple[FloatArray, ...]:
        table = np.full(WHOLE + 1, not_measured)
        table[list(values)] = list(values.values())
        return tuple(table[parts] for parts in self.share_parts)

    def _check_paths(self) -> None:
        counts = node_counts(self.shape, self.horizon)
        if tuple(len(parts) for parts in self.share_parts) != counts:
            raise ValueError(f"share_parts: {counts} nodes per level need as many shares, one per node")
        path = np.zeros(1, np.int64)
        branching = (counts[0], *self.branching[1:])
        for level, (k, parts) in enumerate(zip(branching, self.share_parts, strict=True), start=1):
            path = to_children(path, k, len(parts)) + parts
            cut_off = len(parts) * self.shape.widths[level] > self.horizon
            if self.release == "causal" and cut_off and parts[-1]:
                raise ValueError(f"share_parts: the last node of level {level} never completes; give it 0")
        if not bool(self.share_parts[-1].all()):
            raise ValueError("share_parts: a leaf has none; every bin needs a share above zero")
        if int(path.max()) > WHOLE:
            raise ValueError(f"share_parts: a path adds up to {int(path.max())}/{WHOLE} > 1; lower them")


def design_from_json(text: str | bytes) -> TreeDesign | NodeDesign:
    """Read what either kind of design wrote as ``to_json``.

    Raises: ValueError for text that is no design.
    """
    kind = NodeDesign if "share_parts" in json.loads(text) else TreeDesign
    return kind.from_json(text)


def single_children(shape: TreeShape, horizon: int, level: int) -> bool:
    """Whether the last node of a level holds the same bins as its only child, and need not be measured."""
    if level == shape.height:
        return False
    children = by_parent(np.ones(node_counts(shape, horizon)[level], np.int64), shape.branching[level])
    return int(children[-1].sum()) == 1


def _frozen(parts: Uint16Array) -> Uint16Array:
    rows = np.asarray(parts)
    if rows.dtype != np.uint16 or rows.ndim != 1:
        raise ValueError(f"share_parts: {rows.dtype} {rows.shape} given; uint16 of shape (nodes,) is needed")
    copy = rows.copy()
    copy.flags.writeable = False
    return copy
