"""Replays of streams that find keys, and a plain recount of what they count and name."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from stream_app.core.answers.query import StreamView
from stream_app.core.answers.sums import mean_over, sum_of, sums_of_keys
from stream_app.core.answers.visible import visible_epochs, width_of
from stream_app.core.kinds.tables import Span
from stream_app.ports import NoiseKeys, Store
from stream_app.ports.reader import PublicReader
from tests.models.memory import MemoryStore
from tests.simulator.memory_sinks import MemoryWitness
from tests.stream_app.counted import run_replay, settings_of, stream
from tests.stream_app.one_source import DeadLetterList
from tests.world import World
from tests.world.settings import configured

FOUND = "pages"  # the stream
DISCOVER = {"epsilon": 5.0e8, "delta": 1e-9}  # so large that a key is named as soon as two users bring it
# Counts with a delta, whose noise is far below the unit of released values.
APPROXIMATE = {"epsilon": 1.0e21, "delta": 1e-6}
AMOUNTS = {"field": "amount", "min": -10, "max": 40, "unit": 1}
Visit = tuple[float, str, Any]  # hours after the start, user, page


def amount_of(hour: float) -> int:
    """Return the amount of a visit."""
    return int(hour * 1_000) % 51 - 10


class Shown(NamedTuple):
    """A key in the recount. Args: bin, of the row that names it, in its epoch."""

    name: str
    bin: int


@dataclass
class Recount:
    """What a stream must say without noise.

    Args: counts, by bin and page; amounts, their sums; brought, users by bin and page.
    """

    counts: Mapping[int, Counter[str]]
    amounts: Mapping[int, Counter[str]]
    brought: dict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    @classmethod
    def of_events(cls, visits: Iterable[Visit]) -> Recount:
        """Count every event; each is its own user."""
        counts, amounts = defaultdict[int, Counter[str]](Counter), defaultdict[int, Counter[str]](Counter)
        for hour, _, page in visits:
            counts[int(hour)][page] += 1
            amounts[int(hour)][page] += amount_of(hour)
        return cls(counts, amounts, counts)

    @classmethod
    def of_users(cls, visits: Iterable[Visit], per_user: int, listed: Iterable[str] = ()) -> Recount:
        """Count every event; users bring their first keys that are not public by earlier bins.

        In no bin does a user bring more keys than there are slots left, so no order matters.
        """
        events = cls.of_events(visits)
        recount = cls(events.counts, events.amounts)
        of_bin, slots = defaultdict[int, dict[tuple[str, str], None]](dict), defaultdict[str, set[str]](set)
        for hour, user, page in visits:
            of_bin[int(hour)][user, page] = None
        for bin in range(24):
            public = {*listed, *(one.name for one in recount.named(bins=bin))}
            new = [(user, page) for user, page in of_bin[bin] if page not in public | slots[user]]
            for user, page in new:
                rest = per_user - len(slots[user])
                assert not rest or sum(one == user for one, _ in new) <= rest
                if rest:
                    slots[user].add(page)
                    recount.brought[bin][page] += 1
        return recount

    def named(self, users: int = 2, bins: int = 24) -> list[Shown]:
        """Return the keys that so many users have brought, in the order of bins and then of names."""
        total, found = Counter[str](), list[Shown]()
        for bin in range(bins):
            total += self.brought.get(bin, Counter())
            shown = {one.name for one in found}
            found += [Shown(n, bin) for n in sorted(total) if total[n] >= users and n not in shown]
        return found


def write_visits(directory: Path, visits: Iterable[Visit]) -> None:
    """Write visits as a file of events, by time."""
    lines = [
        json.dumps(
            {
                "at": f"2026-03-01T{int(h):02d}:{int(h * 60) % 60:02d}:00Z",
                "user": u,
                "page": p,
                "amount": amount_of(h),
            }
        )
        for h, u, p in sorted(visits, key=lambda visit: visit[0])
    ]
    (directory / "visits.ndjson").write_text("\n".join(lines) + "\n")


def finding(**more: Any) -> dict[str, Any]:
    """Return the configuration of a stream that finds pages. Args: more, sections to add or to change."""
    keys = {"field": "page", "discover": DISCOVER} | more.pop("keys", {})
    return stream("visits.ndjson", keys=keys, **_tree(more.get("privacy") or {}), **more)


def _tree(privacy: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section of pure counts; approximate ones have no tree."""
    return {} if "delta" in privacy else {"tree": {"release": "causal"}}


@dataclass
class Replayed:
    """A finished replay. Args: store, its reader, the keys of the vault, the rows of the witness."""

    store: Store
    reader: PublicReader
    witness: MemoryWitness
    name: str = FOUND

    async def view(self) -> StreamView:
        """Return what readers see at the end."""
        return await view_of(self.reader, self.name)

    async def rows(self) -> list[dict[str, Any]]:
        """Return the rows of the chain."""
        return [json.loads(row) for _, row in await self.store.rows(self.name, 0, 10**6)]


async def view_of(reader: PublicReader, name: str = FOUND, view: StreamView | None = None) -> StreamView:
    """Return a view, or bring one up to date."""
    return await view_at(reader, None, name, view)


async def view_at(
    reader: PublicReader, seq: int | None, name: str = FOUND, view: StreamView | None = None
) -> StreamView:
    """Return what readers saw when a row was the last visible one (None: now). Args: view, to bring there."""
    state = await reader.public_state(name)
    assert state is not None
    if seq is not None:
        state = replace(state, visible_seq=seq, epochs=visible_epochs(state.epochs, seq))
    view = view or StreamView(state.strategy, state.earlier)
    wanted = view.missing(state)
    rows = [await reader.tile_rows(name, *want, width_of(state, want)) for want in wanted]
    view.extend(state, zip(wanted, rows, strict=True))
    return view


async def replay(
    directory: Path,
    store: Store | None = None,
    reader: PublicReader | None = None,
    vault: NoiseKeys | None = None,
    witness: MemoryWitness | None = None,
    name: str = FOUND,
    **more: Any,
) -> Replayed:
    """Replay the visits of a directory to the end. Args: more, as of ``finding``."""
    if store is None:
        store = memory = MemoryStore()
        reader = memory.reader()
    assert reader is not None
    settings, rows = settings_of(directory, {name: finding(**more)}), witness or MemoryWitness()
    await run_replay(list(settings.streams), settings, store, {name: rows}, DeadLetterList(), vault)
    return Replayed(store, reader, rows, name)


def drawn_visits(seed: int, number: int = 400, most: int = 10**6) -> list[Visit]:
    """Draw visits of few users to many pages. Args: most, of a user in an hour."""
    rng, seen, visits = random.Random(seed), Counter[tuple[str, int]](), list[Visit]()
    weights = [1 / (place + 1) for place in range(60)]
    for _ in range(number):
        hour, user = rng.random() * 24, f"user {rng.randrange(40)}"
        seen[user, int(hour)] += 1
        [place] = rng.choices(range(60), weights)
        if seen[user, int(hour)] <= most:
            visits.append((hour, user, f"/secret-{place}"))
    return visits


async def check_recount(replayed: Replayed, truth: Recount, listed: Sequence[str] = ()) -> None:
    """Compare all counts, names and times of names with a recount."""
    view, named = await replayed.view(), [one for one in truth.named() if one.name not in listed]
    keys = view.declared.keys
    assert keys is not None
    assert list(keys.labels) == [*listed, *(one.name for one in named)]
    start = view.span.start
    found = [(one.bin - start, name) for one in view.epochs[0].record.found for name in one.names]
    assert found == [(one.bin, one.name) for one in named]
    for first, last in ((0, 24), (0, 7), (5, 19)):
        span, bins = Span(start + first, start + last), range(first, last)
        for key in keys.labels:
            assert view.of_key(key).count(span).value == sum(truth.counts[bin][key] for bin in bins)
        total = sum(truth.counts[bin].total() for bin in bins)
        shown = sum(truth.counts[bin][key] for bin in bins for key in keys.labels)
        assert view.count(span).value == total
        assert view.of_key("other").count(span).value == total - shown
        if view.declared.amounts is None:
            continue
        every = {key: sum(truth.amounts[bin][key] for bin in bins) for key in keys.labels}
        of_all = sum(sum(truth.amounts[bin].values()) for bin in bins)
        assert sum_of(view, span).value == of_all
        assert sum_of(view, span, "other").value == of_all - sum(every.values())
        assert {key: sum_of(view, span, key).value for key in every} == every
        assert np.asarray(sums_of_keys(view, span).value).tolist() == list(every.values())
        assert mean_over(view, span, keys.labels[0]).value == pytest.approx(
            every[keys.labels[0]] / sum(truth.counts[bin][keys.labels[0]] for bin in bins)
        )


def finding_world(
    *, users: bool = False, sums: bool = False, privacy: Any = None, keys: Any = None, **discover: Any
) -> World:
    """Return a world with the stream "pages", which has no noise, and finds a key that two users bring.

    Args: users, whether the unit is the user; sums, whether amounts are added; privacy, keys, more of these
        sections; discover, of its own.
    """
    unit = {"unit": {"user": "user", "max_events": 50}} if users else {}
    section = {"field": "page", "discover": DISCOVER | discover} | (keys or {})
    own = ({"sum": AMOUNTS} if sums else {}) | {
        "keys": section,
        "privacy": unit | (privacy or {}),
        **_tree(privacy or {}),
    }
    return World(*configured(pages=own))
