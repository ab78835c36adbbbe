"""No key that may count is refused a number, whatever a reader has forgotten; and few keys get one."""

from __future__ import annotations

import random
from collections import Counter
from math import log

import pytest

from dphist.caps import Caps
from stream_app.core.counting.bounding import HASH_BYTES, STEPS, Bounds
from stream_app.core.counting.unlisted import KeysOfBin, Known, may_count
from tests.models.choosing import by_key, chosen

EVE = bytes(range(16))
KEYS = 60


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
