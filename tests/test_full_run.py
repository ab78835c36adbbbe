"""A full run in parts is written down only if every part passed at one commit; each test has its kind."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict
from pathlib import Path

import click
import pytest

from tests import full_run
from tests.full_run import PARTS, PROCESSES, Result, record, run, sentence
from tests.kinds import kind_of, results, table
from tests.which import REPOSITORY, last_full_run

PASSED = Result("0123abcd", True, 1_500, 90.0, "2026-11-30")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(full_run, "FOLDER", tmp_path / "full_run")
    (tmp_path / "full_run").mkdir()
    return tmp_path / "full_run"


def keep(folder: Path, part: str, result: Result) -> None:
    (folder / f"{part}.json").write_text(json.dumps(asdict(result)))


def test_a_result_is_recorded_when_all_parts_passed_at_one_commit(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "testing.md"
    page.write_text(
        "Before.\n\n`make test-all` last passed on 1 May 2026 at `deadbeef` (1 test).\n\nAfter.\n"
    )
    for part in PARTS:
        keep(folder, part, PASSED)
    record("0123abcd", page)
    assert last_full_run(page) == "0123abcd"
    minutes = len(PARTS) * 90 / 60
    said = f"on 30 November 2026 at `0123abcd` ({1_500 * len(PARTS):,} tests; all parts took {minutes:.0f}"
    assert said in page.read_text()
    assert page.read_text().splitlines()[::4] == ["Before.", "After."]


@pytest.mark.parametrize("wrong", ["failed", "another commit", "never ran"])
def test_a_part_that_has_not_passed_is_named(folder: Path, tmp_path: Path, wrong: str) -> None:
    for part in PARTS:
        keep(folder, part, PASSED)
    if wrong == "never ran":
        (folder / "smoke.json").unlink()
    else:
        changed = {"passed": False} if wrong == "failed" else {"commit": "4567cdef"}
        keep(folder, "smoke", Result(**asdict(PASSED) | changed))
    with pytest.raises(click.ClickException, match="not passed at 0123abcd: smoke; run "):
        record("0123abcd", tmp_path / "no page is read")


def test_a_run_keeps_how_its_part_ended(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for passes in (True, False):
        command = (sys.executable, "-c", f"raise SystemExit({int(not passes)})")
        monkeypatch.setitem(PARTS, "smoke", (command, 1))
        run("smoke", "0123abcd")
        kept = full_run.last_result("smoke")
        assert kept is not None
        assert (kept.commit, kept.passed, kept.tests) == ("0123abcd", passes, 0)


def test_the_sentence_is_one_that_the_choice_of_tests_reads(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(sentence([PASSED]))
    assert last_full_run(tmp_path / "page.md") == PASSED.commit


def test_the_parts_run_what_make_has() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    assert {command[-1] for command, _ in PARTS.values() if command[0] == "make"} <= targets
    assert all((REPOSITORY / place).is_dir() for place in PROCESSES)


@pytest.mark.parametrize(
    ("node_id", "marks", "kind"),
    [
        ("tests/e2e/test_files.py::test_it", ["redis"], "processes"),
        ("tests/stream_app/api/test_it.py::test_it[a]", ["redis", "browser"], "browser"),
        ("tests/stream_app/sources/test_it.py::test_it", ["kafka", "redis"], "Kafka"),
        ("tests/contracts/test_store.py::test_it", ["redis", "slow"], "Redis"),
        ("tests/dphist/test_it.py::test_it", [], "in process"),
        ("tests/deployment/test_packages.py::test_it", [], "packaging"),
        ("tests/test_site.py::test_it", [], "documents"),
    ],
)
def test_the_place_decides_the_kind_and_then_the_marks(node_id: str, marks: list[str], kind: str) -> None:
    assert kind_of(node_id, marks) == kind


def test_the_table_adds_up_the_tests_of_each_kind(tmp_path: Path) -> None:
    case = '<testcase classname="{}" name="test_it" time="{}"><properties>{}</properties>{}</testcase>'
    redis = '<property name="kind" value="Redis"/>'
    cases = [
        case.format("tests.contracts.test_store", 30, redis, ""),
        case.format("tests.contracts.test_store", 10, redis, "<failure/>"),
        case.format("tests.contracts.test_cap", 35, redis, ""),
        case.format("tests.test_which", 25, '<property name="kind" value="in process"/>', ""),
    ]
    (tmp_path / "junit.xml").write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
    found = results(tmp_path / "junit.xml")
    assert [one.passed for one in found] == [True, False, True, True]
    assert table(found).splitlines()[2:] == [
        "| Redis | 3 | 75 | 75% | `tests.contracts.test_store`, 40 s |",
        "| in process | 1 | 25 | 25% | `tests.test_which`, 25 s |",
        "| all | 4 | 100 | 100% | |",
    ]
