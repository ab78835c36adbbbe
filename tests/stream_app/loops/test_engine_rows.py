"""Rows of an engine: each counts once, bins close by rows of all origins, and a recount by hand agrees."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_app.config.load import load_text
from stream_app.config.plans import planned
from stream_app.config.source import SIGNED_EVENT, SIGNED_USER
from stream_app.core.counting.count_rows import LARGEST_DELTA
from stream_app.core.ledger import statement
from stream_app.ports.errors import StreamError
from tests.stream_app.declared import BIN_US, FIRST_BIN
from tests.world import World, configured, deaths

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "engine.md"
Row = dict[str, Any]
ORIGINS, KEYS, GRACE = 3, ("FR", "DE"), 0.5
_BIN = FIRST_BIN
SETTINGS: dict[str, Any] = {
    "source": {"counts": "visits.counts", "origins": ORIGINS},
    "time": {"grace": "5s"},
    "privacy": {"signed": SIGNED_EVENT},
    "keys": {"field": "country", "list": [*KEYS], "other": True},
}
USERS = {
    **SETTINGS,
    "time": {"grace": "5s", "bin": "1h", "epoch": "6h", "first": "1970-01-05T04:00:00Z"},
    "privacy": {"signed": SIGNED_USER, "unit": {"user": "user", "max_events": 3, "per": "1h"}},
    "late": "drop",
}


def row(origin: Any, sequence: Any, bin: float, delta: Any = 1, epoch: Any = 0, **more: Any) -> Row:
    """Return a row that adds to a bin."""
    place = {"origin": origin, "epoch": epoch, "sequence": sequence, "at": int(bin * BIN_US)}
    return {**place, "delta": delta, "country": "FR", **more}


def closing(origin: int, sequence: int, instant: float, epoch: int = 0) -> Row:
    """Return a row that closes an origin up to an instant, in bins."""
    place = {"origin": origin, "epoch": epoch, "sequence": sequence, "at": int(instant * BIN_US)}
    return {**place, "closed": True}


class Engine:
    """An engine as this service may see it: it flushes what it counted, closes, dies, and repeats itself."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(f"engine {seed}")
        self.sent: list[list[Row]] = [[] for _ in range(ORIGINS)]  # since the origin's last checkpoint
        self.sequences, self.epochs = [0] * ORIGINS, [0] * ORIGINS

    def flush(self, origin: int, now: float) -> list[Row]:
        """Return what an origin sends now: counts, at times a repetition, and most often a closing row."""
        rows = list(self.sent[origin]) if self.random.random() < 0.2 else []
        if self.random.random() < 0.1:
            self.epochs[origin], self.sequences[origin] = self.epochs[origin] + 1, 0
        for _ in range(self.random.randrange(4)):
            late = self.random.choice([0, 0, 0, 1, 3])
            country = self.random.choice([*KEYS, "IT"])
            rows.append(self.next(origin, int(now) - late, self.random.randrange(1, 9), country=country))
        if self.random.random() < 0.8:
            self.sequences[origin] += 1
            rows.append(closing(origin, self.sequences[origin], now, self.epochs[origin]))
        self.sent[origin] = rows if self.random.random() < 0.5 else [*self.sent[origin], *rows]
        return rows

    def next(self, origin: int, bin: int, delta: int, **more: Any) -> Row:
        self.sequences[origin] += self.random.choice([1, 1, 5])
        return row(origin, self.sequences[origin], bin, delta, self.epochs[origin], **more)


def recounted(
    rows: Sequence[Row], late: str = "next_bin", first: int = FIRST_BIN
) -> tuple[Counter[tuple[int, str]], int]:
    """Count rows by hand, in the order of the log; return the counts, and the last closed bin.

    Args: first, the first bin that counts.
    """
    last: dict[int, tuple[int, int]] = {}
    closed: dict[int, float] = {}
    counts, cut = Counter[tuple[int, str]](), first - 1
    for one in rows:
        place = one["epoch"], one["sequence"]
        if place <= last.get(one["origin"], (-1, -1)):
            continue
        last[one["origin"]] = place
        bin = one["at"] / BIN_US
        if "closed" in one:
            closed[one["origin"]] = max(bin, closed.get(one["origin"], bin))
            if len(closed) == ORIGINS:
                cut = max(cut, int(min(closed.values()) - GRACE) - 1)
        elif bin >= first and (bin > cut or late == "next_bin"):
            country = one["country"] if one["country"] in KEYS else "other"
            counts[max(int(bin), cut + 1), country] += one["delta"]
    return counts, cut


def counted(world: World, stream: str = "visits") -> Counter[tuple[int, str]]:
    """Return the released counts by bin and key."""
    view, found = world.view(stream), Counter[tuple[int, str]]()
    for country in (*KEYS, "other"):
        points = view.of_key(country).series("bin", view.span)
        for span, number in zip(points.spans, np.rint(points.values).astype(int).tolist(), strict=True):
            found[span.start, country] = number
    return +found


def played(engine: Engine, world: World, bins: int) -> list[Row]:
    """Let an engine send rows of all its origins for some bins; return them in the order of the log."""
    sent: list[Row] = []
    first = world.now
    for step in range(4 * bins):
        now = first + (step + 1) / 4
        world.until(now)
        for origin in engine.random.sample(range(ORIGINS), ORIGINS):
            rows = engine.flush(origin, now)
            world.write(*rows)
            sent += rows
    return sent


def streams() -> list[Any]:
    return configured(visits=SETTINGS, dropped={**SETTINGS, "late": "drop"})


@pytest.mark.parametrize("seed", range(4))
def test_rows_of_an_engine_that_repeats_itself_equal_a_recount(seed: int) -> None:
    with World(*streams()) as world:
        world.start()
        sent = played(Engine(seed), world, 9)
        world.until(_BIN + 10)
        for stream, late in (("visits", "next_bin"), ("dropped", "drop")):
            counts, cut = recounted(sent, late)
            assert cut > FIRST_BIN + 3
            assert world.state(stream).released_bin == cut
            assert counted(world, stream) == Counter({k: n for k, n in counts.items() if k[0] <= cut})
        repeated = world.operator_counts("visits")["repeated"]
        assert repeated > 0
        assert "repeated" not in world.letters_by_reason()


def test_a_worker_that_dies_at_any_call_counts_each_row_once() -> None:
    for death in deaths(step=7):
        with World(*streams()) as world:
            world.start(death=death)
            engine = Engine(5)
            sent = played(engine, world, 2)
            world.end()
            world.start()
            world.write(*(rows := [closing(origin, 10**6, world.now, 99) for origin in range(ORIGINS)]))
            world.until(_BIN + 4)
            counts, cut = recounted([*sent, *rows])
            assert counted(world) == Counter({k: n for k, n in counts.items() if k[0] <= cut})


def test_after_a_loss_of_the_store_rows_of_later_bins_count_once() -> None:
    with World(*configured(visits=SETTINGS)) as world:
        world.start()
        engine = Engine(6)
        sent = played(engine, world, 4)
        world.end()
        first = world.state().released_bin + 1
        assert first > FIRST_BIN
        world.restore()  # rows are read again from the beginning
        world.start()
        sent += played(engine, world, 4)
        world.until(world.now + 1)
        counts, cut = recounted(sent, first=first)
        assert cut > first
        found = Counter({at: number for at, number in counted(world).items() if at[0] >= first})
        assert found == Counter({at: number for at, number in counts.items() if at[0] <= cut})


def test_a_bin_waits_for_every_origin_and_closes_right_after_the_row_of_the_last_one() -> None:
    with World(*streams()) as world:
        world.start()
        world.write(row(0, 1, _BIN, 2), closing(0, 2, _BIN + 1.5), closing(1, 1, _BIN + 1.5))
        world.until(_BIN + 4)
        assert world.state().released_bin == _BIN - 1, "origin 2 is missing"
        world.write(row(2, 1, _BIN, 5), closing(2, 2, _BIN + 1.5), row(2, 3, _BIN, 7))
        world.write(row(0, 3, _BIN + 1, 1))
        world.until(_BIN + 4.5)
        world.write(*(closing(origin, 9, _BIN + 3) for origin in range(ORIGINS)))
        world.until(_BIN + 5)
        assert counted(world) == {(_BIN, "FR"): 7, (_BIN + 1, "FR"): 8}
        assert counted(world, "dropped") == {(_BIN, "FR"): 7, (_BIN + 1, "FR"): 1}


def test_no_row_closes_a_bin_before_the_clock_does() -> None:
    with World(*streams()) as world:
        world.start()
        world.until(_BIN + 0.2)
        world.write(*(closing(origin, 1, _BIN + 900) for origin in range(ORIGINS)))
        world.write(*(closing(origin, 2, _BIN + 1.5) for origin in range(ORIGINS)), row(0, 3, _BIN + 1))
        world.until(_BIN + 0.4)
        assert world.letters_by_reason() == {"future": 2 * ORIGINS}  # of both streams
        assert world.state().released_bin == _BIN - 1
        world.until(_BIN + 1.9)
        assert world.state().released_bin == _BIN


def test_the_rows_of_the_page_count() -> None:
    text, rows = re.findall(r"```\w+\n(.*?)```", PAGE.read_text(), re.DOTALL)
    text = text.replace("epsilon: 1,", "epsilon: 1.0e9, not_private: true,")
    settings = load_text(f"kafka: {{bootstrap_servers: 'nowhere:1'}}\n{text}", PAGE, {})
    with World(*map(planned, settings.streams)) as world:
        world.start_us = 1767225600 * 10**6
        world.start()
        world.write(*(line.encode() for line in rows.splitlines()))
        world.until(world.now + 8)  # bins of ten seconds
        view = world.view()
        found = [view.of_key(key).count(view.span).value for key in ("/", "/blog")]
        assert found == pytest.approx([41, 7], abs=0.01)


REFUSED = {
    "another origin": (row(ORIGINS, 1, _BIN), "unknown_origin"),
    "no origin": (row(None, 1, _BIN), "unknown_origin"),
    "an origin that is true": (row(True, 1, _BIN), "unknown_origin"),
    "no sequence": (row(0, None, _BIN), "bad_value"),
    "a negative sequence": (row(0, -1, _BIN), "bad_value"),
    "a fraction as sequence": (row(0, 1.5, _BIN), "bad_value"),
    "an epoch that is no number": (row(0, 1, _BIN, epoch="one"), "bad_value"),
    "a sequence beyond 63 bits": (row(0, 2**63, _BIN), "bad_value"),
    "a retraction": (row(0, 1, _BIN, -1), "bad_value"),
    "no events": (row(0, 1, _BIN, 0), "bad_value"),
    "a fraction": (row(0, 1, _BIN, 1.5), "bad_value"),
    "no number": (row(0, 1, _BIN, "two"), "bad_value"),
    "closed, in other words": (row(0, 1, _BIN, 1, closed="yes"), "bad_value"),
    "closed, with a number": (row(0, 1, _BIN, 1, closed=True), "bad_value"),
    "no time": ({**row(0, 1, _BIN), "at": None}, "null"),
    "before the first bin": (row(0, 1, _BIN - 2), "before_first_bin"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_row_that_cannot_count_is_a_dead_letter_and_changes_nothing(case: str) -> None:
    refused, reason = REFUSED[case]
    with World(*configured(visits=SETTINGS)) as world:
        world.start()
        world.write(refused, row(0, 10, _BIN, 3))
        world.write(*(closing(origin, 11, _BIN + 1.5) for origin in range(ORIGINS)))
        world.until(_BIN + 3)
        assert (counted(world), world.letters_by_reason()) == ({(_BIN, "FR"): 3}, {reason: 1})


def test_numbers_count_as_other_programs_write_them() -> None:
    with World(*configured(visits=SETTINGS)) as world:
        world.start()
        world.write(row("0", 1.0, _BIN, "3", epoch="0"), row(0.0, "2", _BIN, 4.0), row(0, 2, _BIN, 9))
        world.write(*(closing(origin, 11, _BIN + 1.5) for origin in range(ORIGINS)))
        world.until(_BIN + 3)
        assert (counted(world), world.letters_by_reason()) == ({(_BIN, "FR"): 7}, {})


def test_a_key_that_is_not_listed_is_refused_where_others_do_not_count() -> None:
    keys = {**SETTINGS["keys"], "other": False}
    with World(*configured(visits={**SETTINGS, "keys": keys})) as world:
        world.start()
        world.write(row(0, 1, _BIN, 3, country="IT"))
        world.until(_BIN + 1)
        assert world.letters_by_reason() == {"unknown_key": 1}


@pytest.mark.parametrize("delta", [LARGEST_DELTA - 1, LARGEST_DELTA, LARGEST_DELTA + 1, 10**30])
def test_one_event_more_changes_a_huge_row_by_one_or_by_nothing(delta: int) -> None:
    with World(*configured(visits=SETTINGS)) as world:
        world.start()
        world.write(row(0, 1, _BIN, delta))
        world.write(*(closing(origin, 11, _BIN + 1.5) for origin in range(ORIGINS)))
        world.until(_BIN + 3)
        assert counted(world) == {(_BIN, "FR"): min(delta, LARGEST_DELTA)}


def is_at(line: Row, place: tuple[int, int, int]) -> bool:
    return (line["origin"], line["epoch"], line["sequence"]) == place


@pytest.mark.parametrize("seed", range(3))
def test_logs_that_differ_in_one_event_differ_by_one_in_one_cell(seed: int) -> None:
    found = []
    chosen = random.Random(f"event {seed}").random()
    for is_there in (True, False):
        with World(*configured(visits=SETTINGS)) as world:
            with World(*configured(visits=SETTINGS)) as elsewhere:
                sent = played(Engine(seed), elsewhere, 6)
            counting = [one for one in sent if "delta" in one and one["at"] >= FIRST_BIN * BIN_US]
            one = counting[int(chosen * len(counting))]
            place = one["origin"], one["epoch"], one["sequence"]
            if is_there:  # in its repetitions, too: the engine counts alike
                sent = [{**line, "delta": line["delta"] + 1} if is_at(line, place) else line for line in sent]
            world.until(_BIN + 7)
            world.start()
            world.write(*sent)
            world.write(*(closing(origin, 10**6, _BIN + 6.5, 99) for origin in range(ORIGINS)))
            world.until(_BIN + 8)
            found.append(counted(world))
    more, less = found
    assert (sum((more - less).values()), less - more) == (1, Counter())


def test_under_the_unit_user_rows_must_say_a_cap_that_is_no_larger() -> None:
    first = 36_000  # of the bins of ten seconds that ``row`` counts in: an hour has 360
    with World(*configured(visits=USERS)) as world:
        world.start_us = first * BIN_US
        world.start()
        world.write(
            row(0, 1, first + 1, 5),
            row(0, 2, first + 1, 5, max_events=4),
            row(0, 3, first + 1, 7, max_events=3),
        )
        world.write(row(0, 4, first + 1, 1, max_events=0), row(0, 5, first + 1, 2, max_events=2))
        world.write(*(closing(origin, 9, first + 361) for origin in range(ORIGINS)))
        world.until(first + 400)
        assert world.letters_by_reason() == {"other_cap": 3}
        assert world.json("count")["value"] == 9
        [entry] = world.ledger()
        assert (entry.unit, entry.signed, entry.per, entry.user) == ("user", True, "1h", "user")
        [_, said] = statement(entry.source, [entry]).sentences()
        assert "The operator signs for the engine: a user changes no more of its rows" in said


@pytest.mark.parametrize(("settings", "signed"), [(SETTINGS, "one event adds 1"), (USERS, "a user changes")])
def test_readers_see_what_the_operator_signs(settings: dict[str, Any], signed: str) -> None:
    with World(*configured(visits={**settings, "privacy": {**settings["privacy"], "epsilon": 1}})) as world:
        world.start_us = 100 * 3_600 * 10**6
        world.start()
        world.until(world.now + 1)
        shown = "\n".join(world.json("privacy")["not_protected"])
        stream = world.json("")
        for text in (shown, stream["meaning"]):
            assert f"The operator signs for the engine: {signed}" in text


FULL = {"a": {"privacy": {"signed": SIGNED_EVENT, "delta": "1e-6", "epsilon": 1}}, "b": {}}


@pytest.mark.parametrize(
    ("last", "released", "why"),
    [(32, 0, "has 34,359,738,368 events, noise included"), (33, -1, "one is above 2\\^36")],
)
def test_a_full_epoch_stops_its_own_stream_only(last: int, released: int, why: str) -> None:
    """The approximate stream holds 2^36; the other one over the same topic goes on, at every restart."""
    plain = {"source": {"counts": "visits.counts", "origins": 1}, "time": {"grace": "5s"}}
    streams = {name: {**plain, "privacy": {"signed": SIGNED_EVENT}, **own} for name, own in FULL.items()}
    with World(*configured(**streams)) as world:
        deltas = [LARGEST_DELTA] * 32 + [last]
        world.write(*(row(0, number, _BIN, delta) for number, delta in enumerate(deltas)))
        world.write(closing(0, 100, _BIN + 1.5))
        world.start()
        if released == 0:
            world.until(_BIN + 3)
            assert world.state("a").released_bin == _BIN
            world.write(closing(0, 101, _BIN + 2.5))
        with pytest.raises(StreamError, match=why) as stopped:
            world.until(_BIN + 5)
        assert stopped.value.stream == "a"
        assert world.state("a").released_bin == _BIN + released
        world.workers or world.start()
        with pytest.raises(StreamError, match=why):
            world.until(_BIN + 8)
        assert world.state("b").released_bin > world.state("a").released_bin
