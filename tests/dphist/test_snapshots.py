"""Stored states: reading returns what was written, later versions may add parts, damaged bytes fail."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from dphist import plan_product
from dphist.arrays import Int64Array
from dphist.noise import SeededNoise
from dphist.product.counter import ProductCounter
from dphist.snapshots import FirstVersion, Snapshot
from dphist.tree.counter import CounterSnapshot


@dataclass(frozen=True)
class State(Snapshot):
    """A state with a part of each form."""

    total: int
    cells: Int64Array
    inner: bytes

    code, noun = b"test", "state"
    first_version = FirstVersion(
        b"old!",
        "<qH",
        lambda size, total, cells: {
            "total": total,
            "cells": [1, cells],
            "inner": {"bytes": size - 8 * cells},
        },
    )


@dataclass(frozen=True)
class LaterState(State):
    """The same state with one more part, which has a default."""

    bins: int = 7


STATE = State(-3_217, np.array([[5, -(2**60)]]), b"\n\0{}")
OLD = b"old!" + b"\x6f\xf3" + b"\xff" * 6 + b"\x02\0" + np.array([5, -(2**60)], "<i8").tobytes() + b"\n\0{}"


def parts(state: State) -> list[object]:
    """Return the state's parts as values that can be compared."""
    return [state.total, state.cells.tolist(), str(state.cells.dtype), state.inner]


def test_a_state_is_read_back_from_this_version_and_the_first() -> None:
    assert parts(State.from_bytes(STATE.to_bytes())) == parts(STATE)
    assert parts(State.from_bytes(OLD)) == parts(STATE)


def test_arrays_that_were_read_may_be_changed_in_place() -> None:
    cells = State.from_bytes(STATE.to_bytes()).cells
    cells += 1
    assert cells.tolist() == [[6, 1 - 2**60]]


def test_a_part_may_be_added_or_dropped_without_another_version() -> None:
    added = LaterState.from_bytes(STATE.to_bytes())
    assert (parts(added), added.bins) == (parts(STATE), 7)
    later = LaterState(STATE.total, STATE.cells, STATE.inner, bins=9)
    assert parts(State.from_bytes(later.to_bytes())) == parts(STATE)
    with pytest.raises(ValueError, match="damaged"):
        CounterSnapshot.from_bytes(b"dpTC\x02\0" + STATE.to_bytes()[6:])


def test_damaged_bytes_are_refused_without_showing_a_part() -> None:
    data = STATE.to_bytes()
    wrong = [data[:stop] for stop in range(len(data))] + [data + b"\0", data[1:], b"xxxx" + data[4:]]
    wrong += [OLD[:stop] for stop in range(30)]  # the rest is the nested state, whose size is not stored
    wrong += [b"test\x02\0" + line + b"\n" for line in (b"[]", b"{", b'{"cells":[-8]}', b'{"total":1}')]
    for one in wrong:
        with pytest.raises(ValueError, match=r"^state: [^\n{]*damaged[^\n{]*$") as refused:
            State.from_bytes(one)
        assert "217" not in str(refused.value)


def test_a_newer_version_is_refused_and_named() -> None:
    newer = b"test\x03\0" + STATE.to_bytes()[6:]
    with pytest.raises(ValueError, match=r"not one of version 1 or 2.*a newer version wrote them"):
        State.from_bytes(newer)


def test_a_product_counter_refuses_groups_that_do_not_fit_together() -> None:
    """In version 1, the snapshot of each group of columns follows its size."""
    design = plan_product(4, 1, keys=2)
    rows = np.zeros((design.time.shape.height, 1), np.int64)

    def stored(*bins: int) -> bytes:
        layout = b"dpTC\x01\0" + len(rows).to_bytes(2, "little") + (1).to_bytes(8, "little")
        states = [layout + bin.to_bytes(8, "little") + rows.tobytes() * 2 for bin in bins]
        return b"".join(len(state).to_bytes(8, "little") + state for state in states)

    width = design.columns
    assert ProductCounter.restore(design, SeededNoise(1), stored(*[2] * width)).bin == 2
    for wrong in (b"", stored(*[2] * (width - 1)), stored(*[2] * (width - 1), 1), stored(2, 2)[:-1]):
        with pytest.raises(ValueError, match="damaged"):
            ProductCounter.restore(design, SeededNoise(1), wrong)
