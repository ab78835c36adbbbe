"""The stream of the page discover.md, and what plan and privacy say of it."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner

from stream_app.config import load_text
from stream_app.config.plans import planned
from stream_app.core.counting.unlisted import Discover
from stream_app.core.kinds import Discovering
from stream_app.core.strategy import Strategy
from stream_app.shell.commands import main
from stream_app.shell.planning.answers import rows_of
from stream_app.shell.planning.promises import promises
from tests.blocks.pages import block

A_YEAR = 365 * 24


def test_block_of_the_page_is_planned_and_says_what_a_key_needs() -> None:
    written = block("docs/how-to/discover.md: streams:").text  # the page discover.md
    settings = load_text(written, Path("app.yaml"), {})
    [stream] = settings.streams
    strategy = planned(stream)
    assert isinstance(strategy.kind, Discovering)
    assert Strategy.from_json(strategy.to_json()) == strategy
    assert strategy.epsilon == 1
    needed = strategy.kind.rule.users_for(0.5)
    [said] = [asked for asked, _ in rows_of(stream) if "appears" in asked]
    assert said == f"a key appears once about {needed} users have brought it"
    first = next(iter(promises(settings, 0)))
    assert "by at most a factor e^1, and adds at most" in first


def test_a_default_that_is_written_out_changes_nothing() -> None:
    plain = block("docs/how-to/discover.md: streams:").text
    written = plain.replace("delta: 1e-9", "delta: 1e-9, room: 1000000, epochs: 4, users: {minimum: 1}")
    assert written != plain
    [one], [other] = (load_text(text, Path("app.yaml"), {}).streams for text in (plain, written))
    assert planned(one).hash == planned(other).hash


@pytest.mark.parametrize(("epsilon", "users"), [("3", 11), ("1", 31), ("0.5", 60)])
def test_page_says_how_many_users_a_key_needs(epsilon: str, users: int) -> None:
    rule = Discover(Fraction(epsilon), Fraction(1, 10**9)).rule(A_YEAR)
    assert rule.users_for(0.5) == users


def test_doctor_and_plan_name_no_key_of_a_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    events = [
        {"at": f"2026-01-01T{n:02}:00:00Z", "user": {"id": "a"}, "page": f"/secret-{n}"} for n in range(9)
    ]
    Path("events.ndjson").write_text("".join(f"{json.dumps(one)}\n" for one in events))
    Path("app.yaml").write_text(block("docs/how-to/discover.md: streams:").text)
    doctor, plan = (CliRunner().invoke(main, [name, "--config", "app.yaml"]) for name in ("doctor", "plan"))
    assert "9 of 9 events of a sample have a key in page" in doctor.output
    assert "names of keys cost epsilon 0.5" in plan.output
    assert "/secret" not in doctor.output + plan.output
