"""No key that may count is refused a number, whatever a reader has forgotten; and few keys get one."""

from __future__ import annotations

import random
from collections import Counter
from math import log

import pytest

from dphist.caps import Caps
from stream_app.core.counting.bounding import CELL_BYTES
from stream_app.core.counting.choosing import Bounds, by_key, chosen
from stream_app.core.counting.first_keys import FirstKeys, KeysOfBin, Known

EVE = bytes(range(16))
KEYS, PLACE = 60, 1 << 31


def field_of(key: int) -> bytes:
    return EVE + (PLACE + key).to_bytes(CELL_BYTES)


@pytest.mark.parametrize("caps", [Caps(1), Caps(4), Caps(None, 2, 3), Caps(5, 3, 2), Caps(2, 4, 1)])
@pytest.mark.parametrize("seed", range(8))
def test_a_key_that_cannot_count_is_never_chosen(caps: Caps, seed: int) -> None:
    """Records come in any order, several bins at once; the reader may forget what it knows at any record."""
    rng, most = random.Random(seed), min(caps.l1, caps.max_keys or caps.l1)
    records = [(rng.randrange(3), rng.randrange(KEYS)) for _ in range(300)]
    known: Known = {}
    refused = set[tuple[int, int]]()
    for bin, key in records:
        if rng.random() < 0.02:
            known.clear()
        first = FirstKeys(most, known)
        spare = first.take(KeysOfBin("0", bin, None), EVE, PLACE + key)
        if spare is not None:
            refused |= {(bin, key), (bin, spare - PLACE)}
        for group, users in first.seen.items():
            known.setdefault(group, {}).update(users)
    before: dict[int, int] = {}
    for bin in range(3):
        numbers = Counter(field_of(key) for at, key in records if at == bin)
        counted = chosen(numbers, Bounds(caps), before)
        assert not [key for at, key in refused if at == bin and PLACE + key in counted]
        before = by_key(counted.items(), Bounds(caps), before)
    assert len(refused) > KEYS


def test_a_user_gets_few_numbers_whatever_others_send() -> None:
    """Of n new keys about m (1 + ln(n / m)) may count; so many more have a chance far below 1e-6."""
    group, most, new = KeysOfBin("0", 7, None), 3, 20_000
    alone, beside = FirstKeys(most, {}), FirstKeys(most, {})
    taken: list[list[int | None]] = [[], []]
    for key in range(PLACE, PLACE + new):
        taken[0].append(alone.take(group, EVE, key))
        beside.take(group, b"another user 123", key)
        beside.take(KeysOfBin("0", 8, None), EVE, PLACE)
        taken[1].append(beside.take(group, EVE, key))
    assert taken[0] == taken[1]
    assert len(set(taken[0])) == 2  # all keys that cannot count wait in one place
    assert most < taken[0].count(None) < 3 * most * (1 + log(new / most))
