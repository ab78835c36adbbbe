"""``doctor`` and ``plan`` say what caps leave out of a sample, and whether an epoch may fill its sum."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from stream_app.shell.commands import main
from stream_app.shell.samples.findings import EXACT
from tests.stream_app.shell.sampled import configured, examined, planned

pytestmark = pytest.mark.slow

# The busy user has 25 events on each of four pages; each other user has one event.
EVENTS: list[dict[str, Any]] = [
    {"at": 1_700_000_000 + n, "visitor": "busy" if n % 2 else f"user {n}", "page": f"p{n // 2 % 4}"}
    for n in range(200)
]
PAGES = "keys: {field: page, list: [p0, p1, p2, p3], other: false}"
COST = "Choosing {} by the events has a cost"
SHARES = "of the events of a sample the caps leave out: "
CAPS = [  # the caps, words of the warning, the shares
    ("max_events: 50", "max_events 50 leaves out more than 5% of them; raise it, or", "max_events 50: 25.0%"),
    ("max_events: 95", None, "max_events 95: 2.5%"),
    (
        "max_keys: 2, max_per_key: 30, max_events: 70",
        "max_events 70 and max_keys 2 leave out more than 5% of them; raise them",
        "max_events 70: 15.0%, max_keys 2: 25.0%, max_per_key 30: 0.0%; all of them: 25.0%",
    ),
]


@pytest.mark.parametrize(("caps", "warning", "shares"), CAPS)
def test_what_caps_leave_out(tmp_path: Path, caps: str, warning: str | None, shares: str) -> None:
    keys = PAGES if "max_keys" in caps else ""
    more = f"privacy: {{epsilon: 1, unit: {{user: visitor, {caps}}}}}\n    {keys}"
    config = configured(tmp_path, EVENTS, more, time="format: s, bin: 1m, grace: 5s, epoch: 1d")
    *warned, last = found = examined(config)["privacy.unit"]
    assert {(one.state, one.exact) for one in found} == {("warn" if warning else "ok", True)}
    assert last.said == SHARES + shares
    plan = planned(config)
    assert (f"clicks: {SHARES}{shares}\n{EXACT}\n" in plan) == (warning is not None)
    if warning is None:
        assert not warned
    else:
        [one] = warned
        assert warning in one.said
        assert COST.format("them" if keys else "it") in one.said
        assert "25" not in one.said  # no figure of the sample
        assert f"warning: streams.clicks.privacy.unit: {one.said}\n" in plan
        (tmp_path / "clicks.ndjson").unlink()
        assert "warning" not in planned(config)


def test_keys_that_may_be_found_are_capped_apart(tmp_path: Path) -> None:
    unit = "privacy: {epsilon: 1, unit: {user: visitor, max_keys: 2, max_per_key: 30}}\n    "
    found = "keys: {field: page, discover: {epsilon: 0.5, delta: 1e-9}}\n    tree: {release: causal}"
    config = configured(tmp_path, EVENTS, unit + found, time="format: s, bin: 1m, grace: 5s, epoch: 1d")
    shares = "max_keys 2: 25.0%, max_per_key 30: 0.0%; all of them: 25.0%"
    assert examined(config)["privacy.unit"][-1].said == SHARES + shares


def test_what_is_counted_is_said_with_caps(tmp_path: Path) -> None:
    unit = "privacy: {{epsilon: 1, unit: {{user: visitor, {}}}}}"
    config = configured(tmp_path, EVENTS, f"{unit.format('max_keys: 2, max_per_key: 30')}\n    {PAGES}")
    assert "at most 60 events per user and epoch, at most 30 in each of at most 2 keys" in planned(config)
    config = configured(tmp_path, EVENTS, unit.format("max_events: 7"))
    assert "clicks: Counts at most 7 events per user and epoch, earliest bins first." in planned(config)
    said = CliRunner().invoke(main, ["check-config", "--config", str(config)]).output
    assert f"not checked: what caps leave out; stream-app doctor --config {config} reads a sample\n" in said


# An approximate epoch holds 2^35 events: at one in 50 microseconds 30 days have 5.2e10.
@pytest.mark.parametrize(("step_us", "warned"), [(50, True), (1_000, False)])
def test_an_epoch_that_may_fill_its_numbers_is_warned_of(tmp_path: Path, step_us: int, warned: bool) -> None:
    events = ({"at": 1_700_000_000_000_000 + n * step_us} for n in range(500))
    more, time = 'privacy: {epsilon: 1, delta: "1e-6"}', "format: us, bin: 1h, grace: 5s, epoch: 30d"
    config = configured(tmp_path, events, more, time=time)
    found, plan = examined(config)["time.epoch"], planned(config)
    assert [(one.state, one.exact) for one in found] == [("warn", True)] * warned
    assert all("the 34,359,738,368 events that its counts can hold" in one.said for one in found)
    assert "at most 34,359,738,368 events of all" in plan


# With 100,000 units an epoch holds 2^44 / 100,000 = 175,921,860 events; a day with 204 a second has a tenth.
@pytest.mark.parametrize(("step_ms", "warned"), [(4, True), (6, False)])
def test_an_epoch_that_may_fill_its_sum_is_warned_of(tmp_path: Path, step_ms: int, warned: bool) -> None:
    events = ({"at": 1_700_000_000_000 + n * step_ms, "amount": 3} for n in range(500))
    more = "sum: {field: amount, min: 0, max: 1000, unit: 0.01}\n    privacy: {epsilon: 1}"
    more += "\n    tree: {branching: [1440], release: causal}"
    config = configured(tmp_path, events, more, time="format: ms, bin: 1m, grace: 5s, epoch: 1d")
    found, plan = examined(config)["sum.unit"], planned(config)
    assert [(one.state, one.exact) for one in found] == [("warn", True)] * warned
    for one in found:
        assert "an epoch fills more than 10% of the 175,921,860 events that its sum can hold" in one.said
        assert "take a coarser sum.unit" in one.said
        assert "epsilon does not cover that" in one.said
    assert ("warning: streams.clicks.sum.unit: at the rate of a sample" in plan) == warned
    assert (EXACT in plan) == warned
    rows = [line.strip("│").split("│") for line in plan.splitlines() if line.startswith("│")]
    facts = {name.strip(): text.strip() for name, text in (row for row in rows if len(row) == 2)}
    assert facts["an epoch holds"] == "at most 175,921,860 events; the stream stops beyond"
    assert facts["sum"].startswith("amount, from 0 to 1000 in steps of 0.01")
    # Two ends, each with noise of scale w / epsilon at every level: here one level, so w sqrt(2 * 1440) / 1.
    error = float(facts["the sum of amount in an epoch"].removeprefix("± ").replace(",", ""))
    assert error == pytest.approx(1.96 * 1000 * (2 * 1440) ** 0.5, rel=0.01)
