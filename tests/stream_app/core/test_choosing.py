"""Which of a user's records count under caps on keys, by an oracle; and which keys get a number.

No key that may count is refused a number, whatever a reader has forgotten; and few keys get one.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Mapping
from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphist.caps import Caps
from stream_app.core.counting.bounding import HASH_BYTES, STEPS, Bounds, left_out
from stream_app.core.counting.unlisted import KeysOfBin, Known, may_count
from tests.models.choosing import by_key, chosen

USER = bytes(range(16))
PLACES = 12
caps = st.one_of(
    st.builds(Caps, st.none() | st.integers(1, 9), st.integers(1, 5), st.integers(1, 4)),
    st.builds(Caps, st.integers(1, 9)),
)
bounds = st.builds(Bounds, caps, st.sampled_from([1, 2, 3]))
bins = st.dictionaries(st.integers(0, PLACES - 1), st.integers(1, 6), max_size=PLACES)
windows = st.lists(bins, min_size=1, max_size=4)

EVE = bytes(range(16))
KEYS = 60


def field(place: int) -> bytes:
    return USER + place.to_bytes(4, "big")


def oracle(records: Mapping[int, int], bounds: Bounds, before: Mapping[int, int]) -> dict[int, int]:
    """Return what ``chosen`` returns, written anew: one record after the other, a key after the other."""
    rank = {place: hashlib.sha1(field(place)).hexdigest() for place in range(PLACES)}
    held, taken = Counter(before), Counter[int]()
    width, limits = bounds.key_places, bounds.caps
    most_keys = PLACES if limits.max_keys is None else limits.max_keys
    most_of_key = 10**9 if limits.max_per_key is None else limits.max_per_key
    keys = sorted(
        {place // width for place in records}, key=lambda key: (key not in before, rank[key * width])
    )
    order = [place for key in keys for place in sorted(range(key * width, (key + 1) * width), key=rank.get)]  # type: ignore[arg-type]
    if limits.max_keys is None:
        order = sorted(records, key=lambda place: rank[place])
    for place in order:
        for _ in range(records.get(place, 0)):
            key = place // width
            allowed = held[key] or sum(1 for number in held.values() if number) < most_keys
            if allowed and held[key] < most_of_key and held.total() < (limits.max_events or 10**9):
                held[key] += 1
                taken[place] += 1
    return dict(taken)


@given(windows, bounds)
def test_choice_is_that_of_an_oracle_and_obeys_the_caps(window: list[dict[int, int]], bounds: Bounds) -> None:
    before: dict[int, int] = {}
    for records in window:
        taken = chosen({field(place): number for place, number in records.items()}, bounds, before)
        assert taken == oracle(records, bounds, before)
        assert all(0 < number <= records[place] for place, number in taken.items())
        before = by_key(taken.items(), bounds, before)
    caps = bounds.caps
    assert sum(before.values()) <= caps.l1
    assert caps.max_keys is None or len(before) <= caps.max_keys
    assert caps.max_per_key is None or max(before.values(), default=0) <= caps.max_per_key
    if caps.max_keys is not None:
        assert sum(number**2 for number in before.values()) <= caps.l2_squared


@given(bins, bounds, st.integers(0, 99))
def test_order_of_records_plays_no_part(records: dict[int, int], bounds: Bounds, seed: int) -> None:
    fields = [(field(place), number) for place, number in records.items()]
    shuffled = random.Random(seed).sample(fields, len(fields))
    assert chosen(dict(fields), bounds, {}) == chosen(dict(shuffled), bounds, {})


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), max_size=20), caps)
def test_shares_left_out_are_those_of_a_recount(records: list[tuple[str, int]], caps: Caps) -> None:
    owners, keys = [(0, user) for user, _ in records], [key for _, key in records]
    found = left_out(owners, keys, caps)
    counts = Counter(owners)
    if caps.max_events is not None and records:
        over = sum(max(0, number - caps.max_events) for number in counts.values())
        assert found.alone["max_events"] == over / len(records)
    if caps.max_per_key is not None and records:
        over = sum(max(0, number - caps.max_per_key) for number in Counter(records).values())
        assert found.alone["max_per_key"] == over / len(records)
    assert set(found.alone) == {
        name for name in ("max_events", "max_keys", "max_per_key") if getattr(caps, name)
    }
    assert max(found.alone.values()) <= found.together <= 1


def place_of(key: int, step: int = 0) -> bytes:
    """Return the place of a key and a step, as if its hash were its number."""
    return (1 + key).to_bytes(HASH_BYTES, "little") + step.to_bytes(4)


@pytest.mark.parametrize("caps", [Caps(1), Caps(4), Caps(None, 2, 3), Caps(5, 3, 2), Caps(2, 4, 1)])
@pytest.mark.parametrize("seed", range(8))
def test_a_key_without_a_name_is_never_the_first_time_chosen(caps: Caps, seed: int) -> None:
    """Records come in any order, several bins at once; the reader may forget what it knows at any record."""
    rng, most = random.Random(seed), min(caps.l1, caps.max_keys or caps.l1)
    records = [(rng.randrange(3), rng.randrange(KEYS), rng.randrange(4)) for _ in range(300)]
    known: Known = {}
    named, refused = [set[int](), set[int](), set[int]()], 0
    for bin, key, step in records:
        if rng.random() < 0.02:
            known.clear()
        place = place_of(key, 0 if caps.max_keys else step)
        if may_count(known, KeysOfBin("0", bin, None), EVE, place, most):
            named[bin].add(key)
        else:
            refused += 1
    bounds, before, has_name = Bounds(caps, STEPS, keyed=True), dict[int, int](), set[int]()
    for bin in range(3):
        numbers = Counter(EVE + place_of(key, step) for at, key, step in records if at == bin)
        counted = chosen(numbers, bounds, before)
        has_name |= named[bin]
        assert {place // STEPS for place in counted} <= {
            int.from_bytes(place_of(key)) // STEPS for key in has_name
        }
        before = by_key(counted.items(), bounds, before)
    assert refused > KEYS


def test_a_user_gets_few_numbers_whatever_others_send() -> None:
    """Of n new keys about m (1 + ln(n / m)) may count; so many more have a chance far below 1e-6."""
    group, most, new = KeysOfBin("0", 7, None), 3, 20_000
    alone, beside = Known(), Known()
    taken: list[list[bool]] = [[], []]
    for key in map(place_of, range(new)):
        taken[0].append(may_count(alone, group, EVE, key, most))
        may_count(beside, group, b"another user 123", key, most)
        may_count(beside, KeysOfBin("0", 8, None), EVE, place_of(new), most)
        taken[1].append(may_count(beside, group, EVE, key, most))
    assert taken[0] == taken[1]
    assert most < sum(taken[0]) < 3 * most * (1 + log(new / most))
