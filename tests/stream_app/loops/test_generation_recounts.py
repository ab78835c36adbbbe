"""Keys, epsilon and caps that change with a generation count what a recount of single events has."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_app.core.counting.bounding import PerUser
from stream_app.core.counting.keys import KeyList
from stream_app.core.ledger import statement
from tests.stream_app.core.test_query import read
from tests.stream_app.declared import FIRST_BIN, NO_NOISE, SOURCE, STREAM
from tests.stream_app.loops.test_generations import CHANGED_AT, EDGE, SECOND, Worker, stream_of
from tests.stream_app.product_stream import Visit, Visits

EPOCH = EDGE - FIRST_BIN
LAST = EDGE + 2 * EPOCH  # the first bin that is not released
USERS = ("ann", "bob", "cleo", "dora", "emil")
COUNTRIES = ("DE", "ES", "FR")


class Arriving(Visits):
    """A file to which visits are appended when they arrive."""

    def append(self, *visits: Any) -> None:
        """Append visits: (time in bins, user, country)."""
        self.append_visits(visits)


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Arriving]:
    """Yield a file, a store and a witness."""
    with closing(Arriving(tmp_path)) as one:
        yield one


def drawn(seed: int) -> dict[int, list[Visit]]:
    """Return visits by the quarter of a bin in which they arrive: on time, late, or a little ahead."""
    chance, found = random.Random(seed), dict[int, list[Visit]]()
    for quarter in range(4 * FIRST_BIN, 4 * LAST - 4):
        at = quarter / 4 + 0.125
        times = [at - chance.choice((0, 0, 0.2, 0.6, 1.3, -0.8)) for _ in range(chance.randrange(4))]
        found[quarter] = [
            (time, chance.choice(USERS), chance.choice(COUNTRIES)) for time in times if time >= FIRST_BIN
        ]
    return found


@dataclass(frozen=True)
class Counted:
    """What a generation counts. Args: first and last bin; keys, empty: no keys; cap, None: none."""

    bins: range
    keys: tuple[str, ...] = ()
    cap: int | None = None

    def recounted(self, visits: dict[int, list[Visit]]) -> dict[str, list[int]]:
        """Return the visits of each bin by key, or under an empty key without keys."""
        placed = list[tuple[int, str, str]]()
        for quarter, arriving in visits.items():
            for time, user, country in arriving:
                bin = max(int(time), quarter // 4)  # what is late at the edge counts in the next segment
                if bin in self.bins and (not self.keys or country in self.keys):
                    placed.append((bin, user, country if self.keys else ""))
        counts, used = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
        for bin, user, key in sorted(placed):
            window = (bin - FIRST_BIN) // EPOCH
            if self.cap is None or used[user, window] < self.cap:
                used[user, window] += 1
                counts[key, bin] += 1
        return {key: [counts[key, bin] for bin in self.bins] for key in self.keys or ("",)}


OLD, NEW = range(FIRST_BIN, EDGE), range(EDGE, LAST)
OF_KEYS = {"keys": KeyList("country", ("DE", "FR"), False)}


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("before", "after", "old", "new", "epochs"),
    [
        pytest.param(
            *(OF_KEYS, {"keys": KeyList("country", ("ES", "FR"), False)}),
            *(Counted(OLD, ("DE", "FR")), Counted(NEW, ("ES", "FR")), 1),
            id="keys",
        ),
        pytest.param(
            *(OF_KEYS, OF_KEYS | {"epsilon": 2 * NO_NOISE}),
            *(Counted(OLD, ("DE", "FR")), Counted(NEW, ("DE", "FR")), 2),
            id="epsilon",
        ),
        pytest.param(
            *({"user": PerUser("user", 1)}, {"user": PerUser("user", 3)}),
            *(
                Counted(OLD, cap=1),
                Counted(NEW, cap=3),
                4,
            ),  # a user's cost adds up over epochs, of which the last is open
            id="cap",
        ),
    ],
)
async def test_each_visit_counts_where_a_recount_has_it(
    one: Arriving,
    seed: int,
    before: dict[str, Any],
    after: dict[str, Any],
    old: Counted,
    new: Counted,
    epochs: int,
) -> None:
    visits = drawn(seed)
    await (await Worker.start(one, stream_of(one, **before))).run(one, visits, CHANGED_AT)
    await (await Worker.start(one, stream_of(one, **after))).run(one, visits, LAST + 0.25)
    for name, counted in ((STREAM, old), (SECOND, new)):
        view = await read(None, one.store, name)
        for key, bins in counted.recounted(visits).items():
            found = view.of_key(key or None).series("bin", view.span)
            assert np.rint(found.values).astype(int).tolist()[: len(bins)] == bins
            assert sum(bins) > 3
    entries = await one.store.ledger(SOURCE)
    assert statement(SOURCE, entries).epsilon == epochs * NO_NOISE
