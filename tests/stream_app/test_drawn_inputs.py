"""Drawn inputs, each kind against an oracle that shares no code with the service."""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from random import Random
from zoneinfo import ZoneInfo

import pytest

from stream_app.core.counting.read_values import number_in, numbers
from stream_app.sources.times import times_us
from tests.stream_app.counted import count, stream

NUMBERS = (
    "0 7 007 12 3.5 -.5 +4. 1e3 1E-3 2e+2 1e400 -1e400 1e-400 . e5 1e 1.5.2 0x1f 1_0 inf -Infinity nan NaN "
    "١ ½ 1,5 1'000 ² --1 +-1 1d 1f 1L true 1e5.0 0b1 -0 -0.0 5% $5 1/2 INF"
)
SPACES = ["", "", " ", "\t", "\xa0", "\u2009", "\r"]


def number(text: str) -> float:
    """Return the number of a text by the grammar of docs/configuration.md, NaN for none."""
    if not re.fullmatch(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", text.strip(), re.ASCII):
        return math.nan
    try:
        return float(Fraction(text.strip()))
    except OverflowError:
        return math.copysign(math.inf, -1 if "-" in text.partition("e")[0] else 1)


def test_texts_of_numbers() -> None:
    rng = Random(1)
    for written in [*NUMBERS.split(), "9" * 30, "9" * 5_000]:
        text = rng.choice(SPACES) + written + rng.choice(SPACES)
        wanted = math.inf if written == "9" * 5_000 else number(text)
        assert numbers([text]).tolist() == pytest.approx([wanted], rel=0, nan_ok=True), text
        assert (number_in(text) is None) == math.isnan(wanted), text


CELLS = [
    "a",
    " a",
    "a ",
    "",
    "a,b",
    'say "x"',
    "x\ny",
    "x\r\ny",
    "é",
    "ü\u2028z",
    "\xa0",
    "007",
    "'",
    "#c",
    "\x0b",
    "a\0b",
]


@pytest.mark.parametrize("seed", range(60))
def test_dialects_of_csv(tmp_path: Path, seed: int) -> None:
    """Each key that Python's csv reads in a row is counted once."""
    rng, written = Random(seed), io.StringIO()
    names = rng.sample(["at", "k", "n"], 3) + rng.choice([[], [""], ["k2"]])
    end, dialect = rng.choice(["\n", "\r\n"]), rng.choice(["excel", "unix"])  # unix: all in quotes
    rows = csv.writer(written, dialect, lineterminator=end)
    rows.writerow(names)
    for _ in range(rng.randint(1, 12)):
        at = f"2026-03-01T{rng.randrange(24):02}:00:00Z"
        rows.writerow([at if name == "at" else rng.choice(CELLS) for name in names])
    text = written.getvalue().removesuffix(rng.choice([end, "no end"]))
    (tmp_path / "e.csv").write_bytes(text.encode(rng.choice(["utf-8", "utf-8-sig"])))
    _, *read = csv.reader(io.StringIO(text, newline=""))
    keys = [row[names.index("k")].replace("\r\n", "\n") or "other" for row in read]
    listed = [key for key in dict.fromkeys(cell.replace("\r\n", "\n") for cell in CELLS) if key]
    assert count(tmp_path, one=stream("e.csv", keys={"field": "k", "list": listed}))["one"].cells == Counter(
        keys
    )


ZONES = [
    "Europe/Paris",
    "America/St_Johns",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "Asia/Kathmandu",
    "UTC",
]
FORMS = ["%Y-%m-%d %H:%M:%S", "%Y-%jT%H:%M:%S", "%Y%m%dT%H%M%S", "%G-W%V-%uT%H:%M:%S", "%Y%jT%H%M%S"]


def test_local_days_and_times() -> None:
    rng = Random(3)
    for _ in range(600):
        local = datetime(1902, 1, 1) + timedelta(seconds=rng.randrange(6 * 10**9))  # noqa: DTZ001
        zone, form = rng.choice(ZONES), rng.choice(FORMS)
        since = local.replace(tzinfo=ZoneInfo(zone)) - datetime(1970, 1, 1, tzinfo=UTC)
        [us], [good] = times_us([local.strftime(form)], "iso8601", zone)
        assert (int(us), bool(good)) == (since // timedelta(microseconds=1), True), (local, zone, form)


@pytest.mark.parametrize("seed", range(20))
def test_ranges_of_replays(tmp_path: Path, seed: int) -> None:
    """A replay counts what is not before its beginning and before its end."""
    rng = Random(seed)
    name, step_s = rng.choice([("1m", 60), ("5m", 300), ("1h", 3_600), ("6h", 21_600)])
    first_s = 1_772_323_200 + rng.randrange(6) * step_s
    end_s = first_s + rng.randrange(1, 24) * step_s
    edges: list[float] = [first_s, first_s - 1e-6, first_s - 1, first_s + 0.5, end_s, end_s - 1e-6, end_s - 1]
    times = edges + [rng.randrange(first_s - 3 * step_s, end_s + 3 * step_s) for _ in range(13)]
    (tmp_path / "e.ndjson").write_text("".join(f'{{"at": {at!r}}}\n' for at in times))
    first, end = (f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}" for at in (first_s, end_s))
    time = {"bin": name, "epoch": f"{end_s - first_s}s"}
    one = stream("e.ndjson", form="s", time=time, source={"replay": {"from": first, "to": end}})
    assert count(tmp_path, one=one)["one"].total == sum(first_s <= at < end_s for at in times)
