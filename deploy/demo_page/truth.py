"""The true numbers beside the released ones: a recount of the public events, with no code of the service."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from deploy.demo_page.columns import packed
from deploy.demo_page.deployments import (
    DAYS,
    LEAST_DELAY,
    MOST_DELAY,
    MOST_IN_A_DAY,
    MOST_IN_A_YEAR,
    START,
    UNITS,
    ZONE,
)

EDGES = range(LEAST_DELAY + 5, MOST_DELAY + 1, 5)  # upper ends of the buckets of delays, in minutes
HOURS_A_DAY = 24


def recount(events: Path, days: int = DAYS) -> dict[str, Any]:
    """Return for every unit the departures per hour; and their delays by week, as the page needs them.

    Raises: ValueError if a cap would leave departures of an aircraft out: the page says that none does.
    """
    found = list(_events(events, days))
    return {unit: _of_unit(found, days, needs_tail=unit != "departure") for unit in UNITS}


def _events(file: Path, days: int) -> Iterator[tuple[int, bool, int | None]]:
    """Yield of each departure its hour after the start, whether it names its aircraft, and its delay."""
    by_day, by_year = Counter[tuple[str, str]](), Counter[str]()
    hours: dict[str, int] = {}
    with file.open() as lines:
        for line in lines:
            event = json.loads(line)
            text, tail = event["scheduled"], event["tailnum"]
            hour = text[:13]
            if hour not in hours:
                hours[hour] = int((datetime.fromisoformat(text) - START).total_seconds() // 3600)
            if not 0 <= hours[hour] < days * HOURS_A_DAY:
                continue
            if tail is not None:
                by_day[tail, text[:10]] += 1
                by_year[tail] += 1
            yield hours[hour], tail is not None, event["delay_minutes"]
    if max(by_day.values()) > MOST_IN_A_DAY or max(by_year.values()) > MOST_IN_A_YEAR:
        raise ValueError("an aircraft has more departures than its cap: raise the cap in deployments.py")


def _of_unit(events: list[tuple[int, bool, int | None]], days: int, needs_tail: bool) -> dict[str, Any]:
    counted = [(hour, delay) for hour, has_tail, delay in events if has_tail or not needs_tail]
    per_hour = np.bincount([hour for hour, _ in counted], minlength=days * HOURS_A_DAY)
    delays = sorted((hour, delay) for hour, delay in counted if delay is not None)
    hours, minutes = np.array(delays, dtype=np.int64).reshape(-1, 2).T
    minutes = minutes.clip(LEAST_DELAY, MOST_DELAY)
    edges = _weeks(days)
    quantiles, upto = [], []
    for start, end in pairwise(edges):
        week = np.sort(minutes[(hours >= start) & (hours < end)])
        quantiles += [week[int(np.ceil(q * len(week))) - 1] for q in (0.5, 0.9)]
        so_far = minutes[hours < end]
        upto += [int((so_far < edge).sum()) for edge in EDGES[:-1]] + [len(so_far)]
    return {
        "departures": packed(per_hour),
        "not_counted": len(events) - len(counted),
        "quantiles": packed(quantiles),
        "cdfs": packed(upto),
    }


def _weeks(days: int) -> list[int]:
    """Return the hours at which weeks begin on Mondays in New York, and both ends of the range."""
    zone, edges = ZoneInfo(ZONE), []
    for hour in range(days * HOURS_A_DAY + 1):
        at = datetime.fromtimestamp(START.timestamp() + hour * 3600, zone)
        if (at.weekday() == 0 and at.hour == 0) or hour in {0, days * HOURS_A_DAY}:
            edges.append(hour)
    return edges
