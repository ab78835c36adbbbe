"""An event log in memory. Its partitions grow with virtual time and have late and broken records and gaps."""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from stream_app.core.incoming import RecordBatch, Refusal

Run = tuple[str, int, int]  # partition, first position, and the position after the last
USERS = ("ann", "bob", "eve")
PAGES = tuple(f"secret-{place}" for place in range(8))
FIELDS = ("key", "page", "side", "value", "amount", "note", "user")  # of an event, beside its time


class Kind(StrEnum):
    """The kinds of entry at a position of a partition."""

    EVENT = "event"
    UNDECODABLE = "undecodable"
    GAP = "gap"  # a position without a record: control batches, compaction


@dataclass(frozen=True, slots=True)
class Entry:
    """The entry at one position of a partition: when it arrives, and what it contains."""

    kind: Kind
    arrival_us: int
    time_us: int = 0

    @property
    def mark(self) -> int:
        """Return the number that decides the event's fields, which do not depend on its position."""
        return self.arrival_us

    @property
    def key(self) -> str:
        """Return the event's key."""
        return "abc"[self.mark % 3]

    @property
    def page(self) -> str:
        """Return the event's page, a key that no list names; few pages have most events."""
        return PAGES[(self.mark // 11 % 12) ** 2 // 16]

    @property
    def value(self) -> int | None:
        """Return the event's value, below 10; sometimes None."""
        return None if self.mark % 40 == 0 else self.mark // 3 % 10

    @property
    def amount(self) -> int | None:
        """Return the event's amount: its value, sometimes a huge number."""
        return 10**30 if self.mark % 25 == 0 else self.value

    @property
    def side(self) -> str:
        """Return the event's second key, which no list has for some events."""
        return ("left", "right", "up")[self.mark // 5 % 3]

    @property
    def note(self) -> str:
        """Return the event's note, which a condition may leave out."""
        return "left out" if self.mark % 4 == 1 else ""

    @property
    def user(self) -> str | None:
        """Return the event's user, one of three; sometimes None."""
        return None if self.mark % 30 == 0 else USERS[self.mark // 7 % 3]


@dataclass(frozen=True)
class Log:
    """Partitions by name. An entry's position is its index; a partition exists from its creation on."""

    partitions: Mapping[str, tuple[Entry, ...]]
    created_us: Mapping[str, int]

    def watermark(self, partition: str, at_us: int) -> int:
        """Return the next position to be written at an instant."""
        return bisect_right(self.partitions[partition], at_us, key=lambda entry: entry.arrival_us)

    def names(self, at_us: int) -> list[str]:
        """Return the partitions that exist at an instant."""
        return [name for name in self.partitions if self.created_us[name] <= at_us]

    def of(self, user: str) -> Log:
        """Return the log without other users' records. Later records move down to lower positions."""
        kept = {
            name: tuple(entry for entry in entries if entry.kind is not Kind.EVENT or entry.user == user)
            for name, entries in self.partitions.items()
        }
        return replace(self, partitions=kept)

    def joined_by(self, partition: str, entries: tuple[Entry, ...]) -> Log:
        """Return the log with one more partition, created with its first entry."""
        created = {**self.created_us, partition: entries[0].arrival_us}
        return replace(self._with(partition, entries), created_us=created)

    def without(self, partition: str, position: int) -> Log:
        """Return the neighbouring log without one record. Later records move down by one position."""
        entries = self.partitions[partition]
        return self._with(partition, entries[:position] + entries[position + 1 :])

    def with_more(self, partition: str, entry: Entry) -> Log:
        """Return the neighbouring log with one more record. Records that arrive later move up by one."""
        entries = self.partitions[partition]
        position = bisect_right(entries, entry.arrival_us, key=lambda entry: entry.arrival_us)
        return self._with(partition, (*entries[:position], entry, *entries[position:]))

    def replaced(self, partition: str, position: int, time_us: int) -> Log:
        """Return the log in which one record has another event time."""
        entries = self.partitions[partition]
        changed = replace(entries[position], time_us=time_us)
        return self._with(partition, (*entries[:position], changed, *entries[position + 1 :]))

    def _with(self, partition: str, entries: tuple[Entry, ...]) -> Log:
        return replace(self, partitions={**self.partitions, partition: entries})


@dataclass(frozen=True, slots=True)
class LogPlan:
    """The settings from which a log is drawn. Times in microseconds; the log ends after ``bins`` bins."""

    start_us: int
    bin_us: int
    bins: int
    partitions: int
    events_per_bin: float


def draw_log(plan: LogPlan, rng: random.Random) -> Log:
    """Draw a log: most events arrive soon; some are late, early, broken, or dated before the first bin."""
    end_us = plan.start_us + plan.bins * plan.bin_us
    partitions: dict[str, tuple[Entry, ...]] = {}
    created: dict[str, int] = {}
    for number in range(plan.partitions):
        born = (
            plan.start_us
            if number == 0
            else rng.choice([plan.start_us, rng.randrange(plan.start_us, end_us)])
        )
        count = int(rng.gauss(1, 0.3) * plan.events_per_bin * plan.bins / plan.partitions)
        arrivals = sorted(rng.randrange(born, end_us) for _ in range(max(1, count)))
        partitions[str(number)] = tuple(_draw_entry(arrival, plan, rng) for arrival in arrivals)
        created[str(number)] = born
    return Log(partitions, created)


def _draw_entry(arrival_us: int, plan: LogPlan, rng: random.Random) -> Entry:
    """Draw an entry that arrives at an instant."""
    dice = rng.random()
    if dice < 0.05:
        return Entry(Kind.UNDECODABLE, arrival_us)
    if dice < 0.10:
        return Entry(Kind.GAP, arrival_us)
    if dice < 0.60:
        lag = rng.randrange(plan.bin_us // 2)
    elif dice < 0.85:
        lag = rng.randrange(4 * plan.bin_us)  # late: its own bin is often closed
    elif dice < 0.93:
        lag = -rng.randrange(2 * plan.bin_us)  # early: a producer's clock is ahead
    elif dice < 0.97:
        lag = -rng.randrange(4 * plan.bin_us, 40 * plan.bin_us)  # in the future: refused
    else:
        return Entry(Kind.EVENT, arrival_us, plan.start_us - rng.randrange(1, 3 * plan.bin_us))
    return Entry(Kind.EVENT, arrival_us, arrival_us - lag)


class LogSource:
    """One worker's consumer of the log (``ports.Source``). Its partitions may be taken away at any time.

    With ``exact_cuts`` the log stamps arrivals like a broker with append times: the cut of a bin is the
    watermark at the bin's closing instant, however late the worker asks. Without it the answer is the
    watermark at the time of the question, as for Kafka offsets or a growing file.
    """

    def __init__(
        self,
        log: Log,
        clock_us: Callable[[], int],
        rng: random.Random,
        *,
        largest_batch: int,
        exact_cuts: bool,
    ) -> None:
        self.log = log
        self.assigned: set[str] = set(log.partitions)
        self._clock_us = clock_us
        self._rng = rng
        self._largest_batch = largest_batch
        self._exact_cuts = exact_cuts

    async def partitions(self) -> Sequence[str]:
        """List the partitions that exist now."""
        return self.log.names(self._clock_us())

    async def owned(self) -> Sequence[str]:
        """List the partitions that exist and are assigned to this worker now."""
        return [name for name in self.log.names(self._clock_us()) if name in self.assigned]

    async def first_position(self, partition: str, since_us: int | None) -> int:
        """Return the start of the log."""
        return 0

    async def kept_since_us(self) -> int | None:
        """Return None: no record is ever removed."""
        return None

    async def positions_at(
        self, partitions: Sequence[str], instants_us: Sequence[int]
    ) -> Mapping[str, Sequence[int]]:
        """Return where each partition ended at the given instants, or where it ends now."""
        asked_us = instants_us if self._exact_cuts else [self._clock_us()] * len(instants_us)
        return {name: [self.log.watermark(name, us) for us in asked_us] for name in partitions}

    async def read(self, positions: Mapping[str, int], timeout_s: float) -> Sequence[RecordBatch]:
        """Return the next batches from the positions, of any size, as soon as there is a batch."""
        runs = self._available(positions)
        if not runs:
            await asyncio.sleep(min(timeout_s, self._next_arrival_s(positions)))
            runs = self._available(positions)
        return [self._batch(*run) for run in runs]

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def largest_time_us(self, idle_us: int) -> int:
        """Return a watermark: the largest event time so far, but never more than ``idle_us`` in the past."""
        now_us = self._clock_us()
        arrived = [
            entry.time_us
            for name, entries in self.log.partitions.items()
            for entry in entries[: self.log.watermark(name, now_us)]
            if entry.time_us <= now_us
        ]
        return max([*arrived, now_us - idle_us])

    def _next_arrival_s(self, positions: Mapping[str, int]) -> float:
        """Return the seconds until the next entry arrives in one of the partitions."""
        now_us = self._clock_us()
        ahead = [
            entries[self.log.watermark(name, now_us)].arrival_us - now_us
            for name, entries in self.log.partitions.items()
            if name in positions and name in self.assigned and self.log.watermark(name, now_us) < len(entries)
        ]
        return min(ahead, default=10**12) / 1e6

    def _available(self, positions: Mapping[str, int]) -> list[Run]:
        now_us = self._clock_us()
        runs = []
        for name in self.log.names(now_us):
            start = positions.get(name)
            if start is None or name not in self.assigned:
                continue
            end = min(self.log.watermark(name, now_us), self._batch_end(name, start))
            if start < end:
                runs.append((name, start, end))
        return runs

    def _batch_end(self, partition: str, start: int) -> int:
        """Return where the next batch ends at the latest."""
        return start + self._rng.randint(1, self._largest_batch)

    def _batch(self, partition: str, start: int, end: int) -> RecordBatch:
        entries = self.log.partitions[partition]
        events = [p for p in range(start, end) if entries[p].kind is Kind.EVENT]
        refused = [
            Refusal(partition, p, "undecodable", b"{")
            for p in range(start, end)
            if entries[p].kind is Kind.UNDECODABLE
        ]
        columns: dict[str, np.ndarray] = {
            name: np.array([getattr(entries[p], name) for p in events], dtype=object) for name in FIELDS
        }
        columns["time"] = np.array([entries[p].time_us for p in events], dtype=np.int64)
        return RecordBatch(partition, start, end, np.array(events, dtype=np.int64), columns, refused)
