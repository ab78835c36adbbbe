"""Contacts between people are counted within each person's caps, whatever is killed or frozen.

``python -m tests.e2e.under_faults contacts`` tries many faults.
Two streams count the days of a file of contacts, and of the same file without one person's records. Each key
belongs to one person, so released counts show what counts of each person.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import httpx

from deploy.ports import free_port
from tests.e2e.service import get
from tests.e2e.under_faults import order, started, strike
from tests.patience import PATIENCE_S

START = datetime(2026, 3, 2, tzinfo=UTC)
PEOPLE, FRIENDS, DAYS = 10, 5, 3
MOST_KEYS, MOST_PER_KEY = 2, 3
CONTACTS_A_DAY = 90
PATIENCE_PER_FAULT_S = 20.0  # a fault may start the whole service again, on a busy machine
FAULTS = ("kill worker", "kill redis", "freeze worker", "kill all")
FROZEN_S = 1.0
STREAM = """
  {name}:
    source: {{file: {name}.ndjson, replay: {{from: {start}, to: {end}, speed: {speed}}}}}
    time: {{field: at, format: iso8601, bin: 1h, grace: 0s, epoch: {hours}h}}
    privacy:
      epsilon: 1.0e9
      not_private: true
      unit: {{user: person, max_keys: {most_keys}, max_per_key: {most_per_key}, per: 1d}}
    late: drop
    keys: {{field: pair, list: [{keys}], other: false}}
"""
ALL, WITHOUT = "everybody", "one_less"


class Contact(NamedTuple):
    """A contact that one person reports. Args: hour, since the start; second, within it."""

    hour: int
    second: int
    person: int
    friend: int

    @property
    def pair(self) -> str:
        """The key: it belongs to the person who reports."""
        return f"p{self.person}-{self.friend}"

    @property
    def day(self) -> int:
        """The day of the contact."""
        return self.hour // 24

    @property
    def line(self) -> str:
        """The contact as a line of the file."""
        at = START + timedelta(hours=self.hour, seconds=self.second)
        return json.dumps({"at": f"{at:%Y-%m-%dT%H:%M:%SZ}", "person": f"p{self.person}", "pair": self.pair})


def draw_contacts(seed: int) -> list[Contact]:
    """Draw contacts in the order of their times; some people meet many others, some one again and again."""
    rng = random.Random(f"contacts {seed}")
    return sorted(
        Contact(
            24 * day + rng.randrange(24),
            rng.randrange(3600),
            min(rng.randrange(PEOPLE), rng.randrange(PEOPLE)),
            min(rng.randrange(FRIENDS), rng.randrange(FRIENDS)),
        )
        for day in range(DAYS)
        for _ in range(CONTACTS_A_DAY)
    )


def check_caps(contacts: list[Contact], counted: dict[str, list[int]]) -> int:
    """Check each person's day; return how many contacts counted. Raises: AssertionError.

    A key that finds room counts from its first contact on, up to its cap; a key that finds none never does.
    Keys find room in the order of their first hours. So this recount is exact, except which of the keys of
    one hour find room: a secret key decides that.

    Args: counted, for each key the released counts of hours.
    """
    written: dict[tuple[int, int], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for contact in contacts:
        written[contact.person, contact.day][contact.pair].append(contact.hour)
    for (person, day), keys in written.items():
        hours = range(24 * day, 24 * day + 24)
        found = {key: sum(counted[key][hour] for hour in hours) for key in keys}
        chosen = [key for key, number in found.items() if number]
        where = f"person {person}, day {day}: {found} of {dict(keys)}"
        assert len(chosen) == min(MOST_KEYS, len(keys)), where
        assert all(found[key] == min(MOST_PER_KEY, len(keys[key])) for key in chosen), where
        last = max(keys[key][0] for key in chosen)
        assert all(keys[key][0] >= last for key in keys if key not in chosen), where
        for key in chosen:
            first = Counter(keys[key][:MOST_PER_KEY])
            assert all(counted[key][hour] == first[hour] for hour in hours), where
    return sum(map(sum, counted.values()))


def run(
    folder: Path, faults: int, seed: int, seconds: int = 20, tell: Callable[[str], None] = lambda _: None
) -> str:
    """Count contacts under a schedule of faults and recount them; return a summary.

    Args: seconds, that the replay takes.
    """
    contacts, rng, port = draw_contacts(seed), random.Random(f"faults {seed}"), free_port()
    left_out = contacts[0].person
    others = [contact for contact in contacts if contact.person != left_out]
    _write(folder, port, {ALL: contacts, WITHOUT: others}, 86_400 * DAYS // seconds)
    service = started(folder)
    try:
        service.until("released until")
        for number, fault in order(FAULTS, faults, rng):
            time.sleep(rng.random() * seconds / (faults + 2))
            tell(f"fault {number}: {fault}")
            service = strike(service, fault, FROZEN_S, rng)
        patience_s = PATIENCE_S + seconds + faults * PATIENCE_PER_FAULT_S
        service.until_true(
            lambda: all(map(_is_complete, (port, port), (ALL, WITHOUT))), "both replays end", patience_s
        )
        with_all, without = (_counted(port, name) for name in (ALL, WITHOUT))
    finally:
        service.close()
    total = check_caps(contacts, with_all)
    check_caps(others, without)
    own = {key for key in with_all if key.startswith(f"p{left_out}-")}
    moved = [key for key in with_all if key not in own and with_all[key] != without[key]]
    assert not moved, f"seed {seed}: counts of others moved: {moved}"
    assert not any(any(without[key]) for key in own)
    assert any(any(with_all[key]) for key in own)
    return f"seed {seed}: {faults} faults, {len(contacts)} contacts, {total} within the caps"


def _write(folder: Path, port: int, files: dict[str, list[Contact]], speed: int) -> None:
    """Write the files and the configuration."""
    keys = [f"p{person}-{friend}" for person in range(PEOPLE) for friend in range(FRIENDS)]
    text = f'redis: {{url: "embedded:./redis"}}\napi: {{port: {port}}}\npublish_every: 250ms\nstreams:\n'
    for name, contacts in files.items():
        (folder / f"{name}.ndjson").write_text("".join(contact.line + "\n" for contact in contacts))
        text += STREAM.format(
            name=name,
            start=_instant(0),
            end=_instant(24 * DAYS),
            speed=speed,
            hours=24 * DAYS,
            most_keys=MOST_KEYS,
            most_per_key=MOST_PER_KEY,
            keys=", ".join(keys),
        )
    (folder / "app.yaml").write_text(text)


def _is_complete(port: int, stream: str) -> bool:
    try:
        return bool(get(port, f"/v1/streams/{stream}")["released_until"] == _instant(24 * DAYS))
    except (AssertionError, OSError, ValueError, httpx.HTTPError):
        return False  # the API starts


def _counted(port: int, stream: str) -> dict[str, list[int]]:
    """Return the released counts of hours, by key."""
    asked = {"kind": "bin", "start": _instant(0), "end": _instant(24 * DAYS)}
    keys = [f"p{person}-{friend}" for person in range(PEOPLE) for friend in range(FRIENDS)]
    found = {key: get(port, f"/v1/streams/{stream}/series", key=key, **asked)["value"] for key in keys}
    return {key: [round(value) for value in values] for key, values in found.items()}


def _instant(hour: int) -> str:
    return f"{START + timedelta(hours=hour):%Y-%m-%dT%H:%M:%SZ}"
