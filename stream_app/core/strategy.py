"""A strategy: everything that determines a measurement. An epoch has one strategy.

Two people with the same strategy and the same released nodes compute the same answers. A strategy has two
parts: the user's declaration, which every start compares with the configuration, and the kind of release
that was planned from it once. The kind is stored, so a better planner in a later version changes no running
stream.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import NamedTuple

import msgspec

from dphist.tree.design import TreeDesign
from stream_app.core.counting.cells import Cells
from stream_app.core.declaration import Declaration
from stream_app.core.epochs import FoundKeys
from stream_app.core.kinds import Kind, kind_from
from stream_app.core.kinds.tables import TimeDesign
from stream_app.core.records import EpochRecord
from stream_app.core.segments.names import base_of, number_of

MOST_SHOWN = 64


def canonical_json(value: object) -> bytes:
    """Return the canonical JSON text of a value: sorted keys, no spaces, no NaN. Hashes use this text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


class Edge(NamedTuple):
    """Where a stream goes on from another one."""

    before: str  # the stream that ends there
    at_us: int
    within: bool  # both are segments of one stream


@dataclass(frozen=True)
class Strategy:
    """A stream's measurement: its declaration and its planned kind of release.

    Args:
        stream: the stream's name.
        declared: the declaration of the stream.
        kind: how bins are released; the horizon of its tree over time is the epoch in bins.
        stored: the strategy without the keys that its epoch has found; None: this one.
    """

    stream: str
    declared: Declaration
    kind: Kind
    stored: Strategy | None = field(default=None, repr=False)

    def with_found(self, epoch: EpochRecord) -> Strategy:
        """Return the strategy with the keys that an epoch has found, as if they were listed.

        Its text and hash stay those of the stored strategy.
        """
        stored, asked = self.stored or self, (epoch.found, epoch.first_bin)
        if not epoch.found or stored.declared.keys is None:
            return stored
        if (shown := stored._shown.get(asked)) is None:
            keys = stored.declared.keys.with_found(epoch.names)
            declared = msgspec.structs.replace(stored.declared, keys=keys)
            shown = Strategy(stored.stream, declared, stored.kind.with_found(*asked), stored)
            if len(stored._shown) >= MOST_SHOWN:
                stored._shown.clear()
            stored._shown[asked] = shown
        return shown

    @cached_property
    def _shown(self) -> dict[tuple[tuple[FoundKeys, ...], int], Strategy]:
        """The strategies with found keys that were asked for last; each keeps its plans of answers."""
        return {}

    @property
    def base(self) -> str:
        """The stream's name in the configuration, which all its segments have."""
        return base_of(self.stream)

    @property
    def number(self) -> int:
        return number_of(self.stream)

    @property
    def edge(self) -> Edge | None:
        """Where this stream goes on from another one; None: there is none before it."""
        before, at_us = self.declared.successor_of, self.declared.time.first_us
        if before is None or at_us is None:
            return None
        return Edge(before, at_us, base_of(before) == self.base)

    @property
    def source(self) -> str:
        """The name under which the ledger adds up costs: a topic, a file, or a group of logs."""
        return self.declared.source.name

    @property
    def time(self) -> TimeDesign:
        """The design over time, of any kind; its horizon is the epoch in bins."""
        return self.kind.design

    @property
    def design(self) -> TreeDesign:
        """The tree over time. Raises: TypeError for a kind without a tree."""
        if self.kind.tree_design is None:
            raise TypeError(f"{self.stream}: this kind of release has no tree")
        return self.kind.tree_design

    @property
    def width(self) -> int:
        return self.kind.width

    @property
    def epsilon(self) -> Fraction:
        """Return the epsilon that an event costs, in its epoch and in all levels over epochs."""
        return self.kind.epsilon

    @property
    def delta(self) -> Fraction | None:
        return self.kind.delta

    @property
    def axes(self) -> Cells:
        """The keys and buckets with answers over any range of time; none if windows count them."""
        return Cells() if self.kind.axes is None else self.declared.cells

    def to_json(self) -> bytes:
        if self.stored is not None:
            return self.stored.to_json()
        return canonical_json(
            {
                "v": 1,
                "stream": self.stream,
                "source": self.source,
                "declared": self.declared.plain(),
                "width": self.width,
                **self.kind.fields(),
            }
        )

    @classmethod
    def from_json(cls, text: bytes | str) -> Strategy:
        """Return the strategy that ``to_json`` wrote; the same text gives the same object.

        Guarantee: ``to_json`` writes the same bytes again, so the hash is that of the stored text.
        Raises: ValueError for another version, a kind of tree that is no longer supported, or a text that
            this version would not write.
        """
        return _parsed(text)

    @cached_property
    def counting(self) -> str:
        """Return a digest of all facts that decide whether and where a record counts."""
        plain = self.declared.plain()
        about_noise = {"source", "tree", "privacy"}
        unit = msgspec.to_builtins(self.declared.privacy.per_user)
        facts = {name: fact for name, fact in plain.items() if name not in about_noise}
        return _digest([unit, self.declared.source.origins, facts])

    @cached_property
    def placing(self) -> str:
        """Return a digest of the facts that decide in which cell of its bin a record counts."""
        plain = self.declared.plain()
        return _digest([plain.get(axis) for axis in ("keys", "value", "sum")])

    @cached_property
    def hash(self) -> str:
        """Return the SHA-256 of the canonical text, in hex; every apply, seal and release includes it."""
        return hashlib.sha256(self.to_json()).hexdigest()


def _digest(value: object) -> str:
    return hashlib.sha256(canonical_json(value)).hexdigest()


@lru_cache(maxsize=4_096)  # every load of the loops reads it, and checking a declaration takes long
def _parsed(text: bytes | str) -> Strategy:
    fields = json.loads(text)
    if fields.get("v") != 1:
        raise ValueError(
            f"strategy version {fields.get('v')!r} is not known here; use the release that wrote it"
        )
    if "share_parts" in json.loads(fields.get("design", "{}")):
        raise ValueError("it began with a share of epsilon per node, which is no longer supported")
    own = {name: fields[name] for name in fields.keys() - {"v", "stream", "source", "declared", "width"}}
    kind = _kind(json.dumps(own, sort_keys=True), fields["width"])
    strategy = Strategy(fields["stream"], Declaration.of(fields["declared"]), kind)
    if strategy.to_json() != (text if isinstance(text, bytes) else text.encode()):
        raise ValueError("it holds facts that are not known here; use the release that wrote it")
    return strategy


@lru_cache(maxsize=64)
def _kind(fields: str, width: int) -> Kind:
    """Return the kind of these fields, as JSON; streams with equal kinds share one object and its check."""
    return kind_from(json.loads(fields), width)
