"""Streams that find keys: counts, names and the past of keys are those of a plain recount."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from stream_app.core.answers.answered import QueryError
from stream_app.core.answers.asked_keys import AskedKeys
from stream_app.core.answers.sums import mean_over, sum_of, sum_series
from stream_app.core.incoming import RecordBatch
from stream_app.core.kinds.tables import Span
from stream_app.core.records import Reply
from stream_app.core.releases.restored import WitnessedStream
from stream_app.core.releases.tiles import TileGeometry, join_slices
from stream_app.core.store_writes import Release, TileKey
from stream_app.core.strategy import Strategy
from stream_app.sources.lines import LineFile
from tests.models.memory import MemoryStore
from tests.simulator.memory_sinks import MemoryKeys
from tests.stream_app.declared import BIN_US, FIRST_BIN
from tests.stream_app.found_keys import (
    AMOUNTS,
    APPROXIMATE,
    DISCOVER,
    FOUND,
    Recount,
    Visit,
    amount_of,
    check_recount,
    drawn_visits,
    finding_world,
    replay,
    view_at,
    view_of,
    write_visits,
)
from tests.world.faults import Struck, first, lost_call

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("own", [{}, {"sum": AMOUNTS}, {"privacy": APPROXIMATE}])
@pytest.mark.parametrize("listed", [[], ["/secret-0", "/secret-9"]])
async def test_found_keys_have_their_whole_past(
    tmp_path: Path, listed: list[str], own: dict[str, Any]
) -> None:
    visits = drawn_visits(1)
    write_visits(tmp_path, visits)
    replayed = await replay(tmp_path, keys={"list": listed} if listed else {}, **own)
    await check_recount(replayed, Recount.of_events(visits), listed)


async def test_a_key_needs_about_as_many_users_as_planned(tmp_path: Path) -> None:
    """With noise of epsilon 1 no page of 5 visits is named, and each of 100 is, up to a chance below 1e-6."""
    visits = [(hour + 0.5, "", f"/secret-{page}") for page in range(9) for hour in range(5)]
    visits += [(n % 24 + 0.5, "", "/open") for n in range(100)]
    write_visits(tmp_path, visits)
    replayed = await replay(tmp_path, keys={"discover": {"epsilon": 1, "delta": 1e-9}})
    [found] = (await replayed.view()).epochs[0].record.found
    assert found.names == ("/open",)


async def test_values_that_are_no_names_count_in_the_total_only(tmp_path: Path) -> None:
    pages = ["", None, True, 7, 7.0, "7", "other", "a\nb", "x" * 201, ["a"], 1.5, "ünïcode"]
    visits = [(1.5, "ann", page) for page in pages for _ in range(2)]
    write_visits(tmp_path, visits)
    view = await (await replay(tmp_path)).view()
    keys = view.declared.keys
    assert keys is not None
    assert keys.labels == ("7", "true", "ünïcode")
    assert view.of_key("7").count(view.span).value == 6
    assert view.count(view.span).value == 24
    assert view.of_key("other").count(view.span).value == 14


async def test_no_secret_name_leaves_the_worker(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    visits = [*drawn_visits(3, 50), *((n % 24, "", "/open") for n in range(300))]
    write_visits(tmp_path, visits)
    with caplog.at_level("DEBUG"):
        replayed = await replay(tmp_path, keys={"discover": {"epsilon": 1, "delta": 1e-9}})
    rows = [row for kept in replayed.witness.kept.values() for row in kept]
    said = caplog.text + repr(rows) + json.dumps(await replayed.rows())
    assert "/open" in said
    assert "/secret" not in said
    files = [file for file in (tmp_path / "state").rglob("*") if file.is_file()]
    assert not [file for file in files if b"/secret" in file.read_bytes()]


@pytest.mark.parametrize(
    ("per_user", "own"), [(1, {}), (3, {}), (2, {"sum": AMOUNTS}), (2, {"privacy": APPROXIMATE})]
)
async def test_users_bring_their_first_keys_that_are_not_public(
    tmp_path: Path, per_user: int, own: dict[str, Any]
) -> None:
    visits = drawn_visits(2, 600, most=1)
    write_visits(tmp_path, visits)
    keys, unit = {"discover": DISCOVER | {"per_user": per_user}}, {"user": "user", "max_events": 1_000}
    privacy = own.get("privacy", {}) | {"unit": unit}
    replayed = await replay(tmp_path, keys=keys, **own | {"privacy": privacy})
    await check_recount(replayed, Recount.of_users(visits, per_user))


async def test_one_user_with_invented_pages_gets_few_of_them_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only keys that may count get names: one of 5,000 expects 9.7; 40 have a chance far below 1e-6.

    The events are read in about fifty batches.
    """
    invented = [(0.1 + n / 10_000, "eve", f"/invented-{n}") for n in range(5_000)]
    others = [(0.2 + n / 100, f"user {n}", "/open") for n in range(30)]
    write_visits(tmp_path, [*invented, *others, (23.5, "late", "/x")])
    store, named = MemoryStore(), set[bytes]()
    name_keys = store.name_keys

    async def noted(stream: str, hash: str, window: int, mark: bytes, names: Any) -> Any:
        named.update(one.hash for one in names)
        return await name_keys(stream, hash, window, mark, names)

    monkeypatch.setattr(store, "name_keys", noted)
    read = LineFile.read_in_turns

    async def read_few(lines: LineFile, start: int, end: int) -> RecordBatch | None:
        return await read(lines, start, min(end, start + 8_000))

    monkeypatch.setattr(LineFile, "read_in_turns", read_few)
    own = {"unit": {"user": "user", "max_events": 1}}
    replayed = await replay(tmp_path, store, store.reader(), privacy=own)
    view = await replayed.view()
    assert 3 < len(named) < 40
    assert view.count(view.span).value == 1 + len(others) + 1
    assert view.of_key("/open").count(view.span).value == len(others)


@pytest.mark.parametrize("unit", ["event", "user"])
async def test_no_exact_count_of_a_found_key_outlives_the_row_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unit: str
) -> None:
    write_visits(tmp_path, [(n / 5, f"user {n}", "/open") for n in range(100)])
    store, held = MemoryStore(), dict[bool, list[int]]()
    release = store.release

    async def noted(stream: str, given: Release) -> Reply:
        reply, state = await release(stream, given), store.streams[stream]
        kept = sum(len(counts) for bin, counts in state.cells.items() if bin <= state.released_bin)
        held.setdefault(any(one.names for one in state.epoch.found), []).append(kept)
        return reply

    monkeypatch.setattr(store, "release", noted)
    own = {"unit": {"user": "user", "max_events": 1}} if unit == "user" else {}
    keys = {"discover": {"epsilon": 1, "delta": 1e-3}}
    await replay(tmp_path, store, store.reader(), keys=keys, privacy=own)
    assert max(held[False]) > 0
    assert max(held[True]) == 0


async def test_a_count_of_users_finds_keys(tmp_path: Path) -> None:
    """Each user counts once in the epoch, with her first visit, and brings its page."""
    visits, first = drawn_visits(2, 300, most=1), dict[str, Visit]()
    for visit in sorted(visits, key=lambda visit: visit[0]):
        first.setdefault(visit[1], visit)
    write_visits(tmp_path, visits)
    replayed = await replay(tmp_path, count="users", privacy={"unit": {"user": "user"}})
    await check_recount(replayed, Recount.of_users(first.values(), 1))
    view = await replayed.view()
    assert view.count(view.span).value == 40


@pytest.mark.parametrize("more", [{"sum": AMOUNTS}, {"privacy": APPROXIMATE}], ids=["sums", "approximate"])
async def test_users_with_few_keys_bring_keys_that_count(tmp_path: Path, more: dict[str, Any]) -> None:
    """A user counts in at most three pages, twice in each, earlier bins first."""
    visits, counted = drawn_visits(9, 600, most=1), list[Visit]()
    pages = defaultdict[str, Counter[str]](Counter)
    for visit in sorted(visits, key=lambda visit: visit[0]):
        own, page = pages[visit[1]], str(visit[2])
        if own[page] < 2 and (page in own or len(own) < 3):
            own[page] += 1
            counted.append(visit)
    write_visits(tmp_path, visits)
    privacy = more.get("privacy", {}) | {"unit": {"user": "user", "max_keys": 3, "max_per_key": 2}}
    keys = {"discover": DISCOVER | {"per_user": 2}}
    replayed = await replay(tmp_path, keys=keys, **more | {"privacy": privacy})
    await check_recount(replayed, Recount.of_users(counted, 2))


def test_a_reader_that_has_just_started_counts_known_keys_in_their_places() -> None:
    """Each late user counts in two of six public pages, whichever come first by hash; nothing is in other."""
    unit = {"user": "user", "max_keys": 2, "max_per_key": 1}
    pages = [f"/{page}" for page in range(6)]
    with finding_world(privacy={"unit": unit}) as world:
        worker = world.start()
        for bin, users in ((FIRST_BIN, 2), (FIRST_BIN + 2, 20)):
            at = int((bin + 0.1) * BIN_US)
            world.until(bin + 0.2)
            world.write(
                *(
                    {"at": at, "page": page, "user": f"{bin} {user} {page if users == 2 else ''}"}
                    for page in pages
                    for user in range(users)
                )
            )
            world.until(bin + 1.5)
            if users == 2:
                world.end(worker)
                world.start()
        view = world.run(view_of(world.public_reader()))
        assert set(view.epochs[0].record.names) == set(pages)
        assert view.count(view.span).value == 2 * 6 + 20 * 2
        assert view.of_key("other").count(view.span).value == 0


@pytest.mark.parametrize("epoch", ["1d", "2d"])
async def test_nothing_secret_stays_once_no_bin_is_released_any_more(tmp_path: Path, epoch: str) -> None:
    write_visits(tmp_path, drawn_visits(7, 60))
    replayed = await replay(tmp_path, time={"epoch": epoch})
    state = await replayed.store.load(FOUND)
    assert state is not None
    bins, window = (
        range(state.epoch.first_bin, state.released_bin + 1),
        state.epoch.first_bin + state.epoch.bins,
    )
    assert await replayed.store.read_kept(FOUND, bins, []) == [{}] * 24
    with pytest.raises(LookupError):
        await replayed.store.named_keys(FOUND, window - 1, [0])


async def test_each_epoch_finds_its_own_keys(tmp_path: Path) -> None:
    """A key's count covers the epochs that found it. Counts of all keys together are of the last epoch."""
    visits = [
        (hour + 0.5, "", page) for hour in range(24) for page in (["/a", "/b"] if hour < 12 else ["/b", "/c"])
    ]
    write_visits(tmp_path, visits)
    own = {"discover": DISCOVER | {"epochs": 0}}
    view = await (await replay(tmp_path, time={"epoch": "12h"}, keys=own, sum=AMOUNTS)).view()
    start, keys = view.span.start, view.declared.keys
    assert keys is not None
    assert keys.labels == ("/b", "/c")
    assert view.count(view.span).value == 48
    assert view.of_key("/b").count(view.span).value == 24
    assert sum_of(view, view.span).value == sum(amount_of(hour) for hour, _, _ in visits)
    of_b = [amount_of(hour) for hour, _, page in visits if page == "/b"]
    assert sum_of(view, view.span, "/b").value == sum(of_b)
    assert sum_series(view, "running", view.span, AskedKeys(("/b*",))).values[-1] == sum(of_b)
    assert mean_over(view, view.span, "/b").value == pytest.approx(sum(of_b) / 24)
    assert view.of_key("/c").span == Span(start + 12, start + 24)
    assert view.of_key("other").span == Span(start + 12, start + 24)
    assert np.asarray(view.counts_of_keys(Span(start + 12, start + 24)).value).tolist() == [12, 12]
    assert view.of_one_list().span == Span(start + 12, start + 24)
    with pytest.raises(QueryError, match="other keys were shown before 2026-03-01T12:00:00Z"):
        view.counts_of_keys(view.span)
    with pytest.raises(QueryError, match="not on the public list"):
        view.of_key("/a")


@pytest.mark.parametrize("privacy", [{}, APPROXIMATE], ids=["pure", "approximate"])
async def test_a_found_key_is_listed_for_the_stated_number_of_epochs(
    tmp_path: Path, privacy: dict[str, Any]
) -> None:
    """Each epoch has six hours. Of the later ones none brings /a often enough to find it."""
    visits = [(hour + 0.5, "", "/a") for hour in (1, 1, 8, 14, 20)] + [(8.5, "", "/b"), (9.5, "", "/b")]
    write_visits(tmp_path, visits)
    own = {"discover": DISCOVER | {"epochs": 1}}
    replayed = await replay(tmp_path, time={"epoch": "6h"}, keys=own, privacy=privacy)
    shown = [await view_at(replayed.reader, seq) for seq in (5, 6, 11, 17, 24)]
    assert [one.declared.keys.labels for one in shown if one.declared.keys] == [
        *(("/a",), ("/a",), ("/a", "/b"), ("/b",), ()),
    ]
    start = shown[0].span.start
    assert [one.of_key("/a").count(one.span).value for one in shown[:3]] == [2, 2, 3]
    assert shown[3].of_key("/b").count(Span(start, start + 18)).value == 2
    assert shown[2].epochs[1].record.found[0].bin == start + 1  # a listed key says when it was found
    pages = shown[2].of_key(AskedKeys(("/*",)))  # of each epoch, its keys that match
    assert [pages.count(Span(start + first, start + last)).value for first, last in ((0, 6), (0, 11))] == [
        2,
        5,
    ]
    rows = await replayed.rows()
    assert [row["seq"] for row in rows if "listed" in row] == [7, 13]


@pytest.mark.parametrize("unit", ["event", "user", "approximate"])
async def test_hidden_keys_are_halved_where_there_is_no_room(tmp_path: Path, unit: str) -> None:
    """Which keys stay follows from their hashes: other keys, and the order of events, change nothing."""
    pages = [f"/secret-{page}" for page in range(400)]
    floods = [[f"/flood-{start + page}" for page in range(3_000)] for start in (0, 10_000)]
    by_unit: dict[str, Any] = {
        "user": {"unit": {"user": "user", "max_events": 3}},
        "approximate": APPROXIMATE,
    }
    own = by_unit.get(unit, {})
    given: dict[str, Any] = {"keys": {"discover": DISCOVER | {"room": 1_000}}, "privacy": own}
    vault, named = MemoryKeys(), list[tuple[str, ...]]()
    for flood in floods:
        visits = [(0.5 + place / 9_000, f"a{place}", page) for place, page in enumerate(flood)]
        visits += [(1.5, f"b{page}", page) for page in pages]
        visits += [(5.5, f"c{page}", page) for page in (pages if flood is floods[0] else pages[::-1])]
        directory = tmp_path / flood[0][1:]
        directory.mkdir()
        write_visits(directory, visits)
        replayed = await replay(directory, vault=deepcopy(vault), **given)
        view, truth = await replayed.view(), Recount.of_events(visits)
        keys, record = view.declared.keys, view.epochs[0].record
        assert keys is not None
        assert record.found[0] == (record.first_bin, (), 2)  # 3,000 events of hidden keys
        for key in keys.labels[:20]:
            assert view.of_key(key).count(view.span).value == 2
        assert view.count(view.span).value == sum(one.total() for one in truth.counts.values())
        assert {row.get("thinned") for row in await replayed.rows()} == {None, 2}
        named.append(keys.labels)
    assert named[0] == named[1]
    assert set(named[0]) <= set(pages)
    assert stats.binom.cdf(len(named[0]), len(pages), 0.25) > 1e-7
    assert stats.binom.sf(len(named[0]) - 1, len(pages), 0.25) > 1e-7


async def test_keys_that_do_not_stay_leave_the_store(tmp_path: Path) -> None:
    visits = [(place / 4_000, "", f"/flood-{place}") for place in range(3_900)]
    visits += [(3.5 + place / 9_000, "", f"/later-{place}") for place in range(4_000)]
    write_visits(tmp_path, visits)
    kept = dict[int, int]()

    class Watched(MemoryStore):
        async def release(self, stream: str, release: Release) -> Reply:
            held = self.streams[stream]
            [names] = held.unlisted.values()
            kept[release.last_bin - held.epoch.first_bin] = sum(bool(one.name) for one in names)
            return await super().release(stream, release)

    store = Watched()
    keys = {"discover": DISCOVER | {"room": 1_000}}
    await replay(tmp_path, store, store.reader(), keys=keys)
    assert kept[0] == 7_900  # a replay reads far ahead
    assert kept[2] < 2_400
    assert kept[23] < 1_300


@pytest.mark.parametrize("users", [False, True], ids=["event", "user"])
def test_a_store_that_was_set_back_silently_gives_keys_its_own_numbers(users: bool) -> None:
    """No call fails: the worker would add the events of old keys to new ones, which then have two people."""
    with finding_world(users=users, epochs=0) as world:

        def visited(bin: int, *pages: str) -> None:
            world.until(FIRST_BIN + bin + 0.2)
            at = int((FIRST_BIN + bin + 0.1) * BIN_US)
            world.write(*({"at": at, "page": page, "user": f"{bin} {page}"} for page in pages))

        world.start()
        world.until(FIRST_BIN + 0.1)
        backup = world.backup()
        visited(0, "/a", "/b")
        world.until(FIRST_BIN + 2.2)
        world.restore(backup)
        visited(3, "/new", "/newer")
        visited(4, "/a", "/b")
        visited(5, "/b")
        world.until(FIRST_BIN + 8)
        assert [key for one in world.public().epochs for key in one.names] == ["/b"]


@pytest.mark.parametrize("privacy", [{}, APPROXIMATE], ids=["pure", "approximate"])
async def test_a_witness_puts_found_keys_back_with_their_past(
    tmp_path: Path, privacy: dict[str, Any]
) -> None:
    write_visits(tmp_path, drawn_visits(8, 200))
    replayed = await replay(tmp_path, time={"epoch": "12h"}, privacy=privacy)
    state = await replayed.reader.public_state(FOUND)
    assert state is not None
    strategy, tiles = Strategy.from_json(state.strategy), defaultdict[TileKey, bytes](bytes)
    rows, found = await replayed.witness.rows(FOUND, 0), {}
    for step in WitnessedStream.of(rows).restored(0, strategy.hash):
        found[step.epoch.epoch] = step.epoch.found
        for append in step.tiles:
            assert len(tiles[append.key]) == append.offset_bytes
            tiles[append.key] += append.data
    assert found == {one.epoch: one.found for one in state.epochs}
    assert all(map(len, found.values()))
    for record in state.epochs:
        kind = strategy.with_found(record).kind
        for table, width in kind.tables.items():
            asked = record.epoch, table, 0, kind.rows_after(table, record.bins)
            pieces = (
                (piece, tiles[piece.key][piece.offset_bytes : piece.offset_bytes + piece.length_bytes])
                for piece in TileGeometry(width).slices(*asked)
            )
            kept = await replayed.reader.tile_rows(FOUND, *asked, width)
            assert np.array_equal(join_slices(asked[-1], width, pieces), kept)


async def test_hidden_keys_are_deleted_by_the_next_attempt_if_one_fails(tmp_path: Path) -> None:
    write_visits(tmp_path, [(0.5 + place / 9_000, f"a{place}", f"/{place}") for place in range(3_000)])
    memory = MemoryStore()
    store: Any = Struck(memory, thin_keys=first(lost_call))
    await replay(tmp_path, store, memory.reader(), keys={"discover": DISCOVER | {"room": 1_000}})
    assert len(store.calls("thin_keys")) == 2
