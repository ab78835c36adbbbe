"""A stream that finds the terms of events: its names, counts and secrets, beside a recount of the topic.

Most terms are rare, and all change with time, so every epoch names some and hides most. Names have so large
an epsilon that a term is named by the bin in which it comes for the ``LEAST``th time in the epoch.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from numpy.typing import ArrayLike

from dphist.tree.shape import TreeShape
from dphist.units import UNITS_PER_COUNT
from stream_app.core.answers.query import StreamView
from stream_app.core.kinds.kind import values_hash
from stream_app.core.kinds.tables import Span
from stream_app.ports.reader import PublicReader
from tests.chaos.traffic import BIN_MS, TERM, Visit
from tests.patience import PATIENCE_S
from tests.simulator.checks import Broken
from tests.stream_app.found_keys import view_at

FOUND, LEAST = "terms", 20
LOG = "kafka"  # the broker's folder has all events
_STREAM = """
  terms:
    source: {{topic: {topic}, format: json}}
    time: {{field: at, format: ms, bin: 1s, grace: {grace_s}s, epoch: 60s}}
    privacy: {{epsilon: EPSILON, not_private: true, accept: "measured again"}}
    keys:
      field: term
      discover: {{epsilon: 500000000, delta: 1e-9, users: {{minimum: 20}}, epochs: 1}}
"""
_TREE = "    tree: {{release: causal, branching: [5, 4, 3]}}\n"
Answer = dict[str, Any]


def configuration(approximate: bool) -> str:
    """Return the stream's configuration, a template.

    Args: approximate, whether counts have a delta; their noise is far below the unit of released values.
    """
    epsilon, tree = ("1.0e21, delta: 1e-6", "") if approximate else ("1000000000", _TREE)
    return _STREAM.replace("EPSILON", epsilon) + tree


def ask_keys(port: int) -> list[Answer]:
    """Return what the API says now of all keys that are shown; nothing while an emptied store is filled."""
    url = f"http://127.0.0.1:{port}/v1/streams/{FOUND}/keys?limit=20000"
    response = httpx.get(url, timeout=PATIENCE_S, verify=False)
    return [response.json()] if response.status_code == 200 else []


class FoundRecount:
    """What every row must name and release. Args: visits, all events; least, how often a key must come."""

    def __init__(self, visits: Iterable[Visit], least: int = LEAST) -> None:
        self.counts = defaultdict[int, Counter[str]](Counter)
        for visit in visits:
            self.counts[visit.bin][visit.term] += 1
        self.least = least
        self.named = set[str]()
        self.shown: list[str] = []  # of the running epoch, in the order of columns
        self.epoch, self.first_bin = -1, 0

    @property
    def hidden(self) -> set[str]:
        """The terms of events that no row has named."""
        return {term for counts in self.counts.values() for term in counts} - self.named

    def over(self, bins: range) -> Counter[str]:
        """Return the counts of some bins by term."""
        found = Counter[str]()
        for bin in bins:
            found.update(self.counts[bin])
        return found

    async def check(
        self, reader: PublicReader, rows: Mapping[int, bytes], answered: Iterable[Answer] = ()
    ) -> None:
        """Check each row, what readers saw when it was the last one, and earlier answers. Raises: Broken.

        Args: rows, of the stream; answered, by the API while faults happened.
        """
        at_row, view = defaultdict[int, list[Answer]](list), None
        for answer in answered:
            at_row[answer["seq"]].append(answer)
        for seq, row in sorted(rows.items()):
            self._check_names(json.loads(row))
            view = await view_at(reader, seq, FOUND, view)
            tree = view.strategy.kind.tree_design
            self._check_hashes(json.loads(row), None if tree is None else tree.shape)
            # After an epoch's last row, readers may see the list of the next epoch already.
            ends = view.epochs[-1].record.epoch != self.epoch
            if not ends:
                self._check_view(view)
            for answer in at_row[seq]:
                self._check_answer(answer, ends)
        if not self.named or not self.hidden:
            raise Broken(f"{FOUND} must name and hide: {len(self.named)} named, {len(self.hidden)} hidden")

    def _check_names(self, row: Mapping[str, Any]) -> None:
        bin = row["bin"]
        if row["epoch"] != self.epoch:
            self.epoch, self.first_bin = row["epoch"], bin
            self.shown = [name for _, names, _ in row.get("listed", ()) for name in names]
            if new := set(self.shown) - self.named:
                raise Broken(f"epoch {self.epoch} of {FOUND} lists keys that no row has named: {new}")
        so_far = self.over(range(self.first_bin, bin + 1))
        wanted = sorted({term for term, n in so_far.items() if n >= self.least} - {*self.shown})
        names = row.get("found", {}).get("keys", [])
        if names != wanted:
            raise Broken(f"bin {bin} of {FOUND} names {names}; by the recount it must name {wanted}")
        self.shown += names
        self.named.update(names)

    def _check_hashes(self, row: Mapping[str, Any], shape: TreeShape | None) -> None:
        """Check that complete nodes, and the past of keys that the row names, are as recounted.

        Args: shape, of the tree; without one, rows have running counts.
        """
        first, stop = self.first_bin, row["bin"] + 1
        if shape is None:
            unit, past = UNITS_PER_COUNT, [range(first, end) for end in range(first + 1, stop + 1)]
            released = [(range(first, stop), row["columns_hash"])]
        else:

            def node(level: int, index: int) -> range:
                return range(first + index * widths[level], first + (index + 1) * widths[level])

            unit, widths = 1, shape.widths
            past = [node(one, at) for one in shape.levels for at in range((stop - first) // widths[one])]
            released = [(node(level, index), digest) for level, index, digest in row["node_hashes"]]
        for bins, digest in released:
            if digest != values_hash(np.array(self._counts(bins, ["", *self.shown])) * unit):
                raise Broken(f"bins {bins} of {FOUND} are not as recounted: {row}")
        if "found" in row:
            counts = [self._counts(bins, row["found"]["keys"]) for bins in past]
            if row["found"]["past"] != values_hash(np.array(counts).ravel() * unit):
                raise Broken(f"the past of new keys of {FOUND} is not as recounted: {row}")

    def _counts(self, bins: range, terms: Sequence[str]) -> list[int]:
        """Return the counts of terms in some bins; an empty term is the total."""
        counts = self.over(bins)
        return [counts[term] if term else counts.total() for term in terms]

    def _check_view(self, view: StreamView) -> None:
        """Check total, shown keys and ``other``, over the epoch so far and over its later half."""
        assert view.declared.keys is not None
        if (labels := list(view.declared.keys.labels)) != self.shown:
            raise Broken(f"readers of {FOUND} see the keys {labels}; {self.shown} were named")
        stop = view.span.stop
        for first in (self.first_bin, (self.first_bin + stop) // 2):
            span, counts = Span(first, stop), self.over(range(first, stop))
            wanted = [counts[key] for key in self.shown]
            keys = _whole(view.counts_of_keys(span).value) if self.shown else []
            [other], [total] = (_whole(one.count(span).value) for one in (view.of_key("other"), view))
            if (keys, other, total) != (wanted, counts.total() - sum(wanted), counts.total()):
                raise Broken(
                    f"{FOUND}: readers see {keys}, {other} others, {total} together in bins {span}; "
                    f"recounted: {wanted} of {counts.total()}"
                )

    def _check_answer(self, answer: Answer, ends: bool) -> None:
        """Check an answer of the API from when the row that was checked last was its last one."""
        seen = {one["key"]: _whole(one["counts"]) for one in answer["keys"]}
        edges = zip(answer["start"], answer["end"], strict=True)
        slices = [self.over(range(*(round(at_s * 1000) // BIN_MS for at_s in edge))) for edge in edges]
        keys = self.named & seen.keys() if ends else self.shown
        wanted = {key: [counts[key] for counts in slices] for key in keys}
        if seen != wanted:
            raise Broken(f"{FOUND}: the API has answered {seen}; recounted: {wanted}")


def _whole(values: ArrayLike) -> list[float]:
    """Return estimates, which are whole numbers but for the rounding of doubles."""
    return np.round(np.ravel(values), 6).tolist()  # type: ignore[no-any-return]


def check_hidden(named: Iterable[str], said: Iterable[bytes], folder: Path) -> None:
    """Check that no term that no row has named is in what was said, or in a file, except the broker's.

    Args: named, all terms that rows have named; said, by topics of releases and by the store. Raises: Broken.
    """
    files = [
        path for path in folder.rglob("*") if path.is_file() and path.relative_to(folder).parts[0] != LOG
    ]
    texts = (*said, *map(Path.read_bytes, files))
    if hidden := {term.decode() for text in texts for term in TERM.findall(text)} - {*named}:
        raise Broken(f"terms that no row has named are where others may read them: {sorted(hidden)[:20]}")
