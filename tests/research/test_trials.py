"""Stored trials: no trial runs twice, and no stored result is used for other inputs."""

import ast
import json

import numpy as np
import pytest

from dphist.mechanisms import describe, names
from research.trials import Job, Trials, reached_source

CALLS: list[int] = []  # the factor of each call of ``doubled``


def doubled(*, values, factor=2, options=None):
    CALLS.append(factor)
    return {"sum": float(np.sum(values)) * factor}


def other(*, values):
    return {"sum": -1.0}


@pytest.fixture(autouse=True)
def _no_calls():
    CALLS.clear()


def test_a_trial_runs_once_and_is_known_to_the_next_program(tmp_path):
    file = tmp_path / "made" / "trials.jsonl"
    jobs = [Job(doubled, {"values": np.arange(n)}) for n in (3, 4, 3)]
    first = Trials(file)
    assert [outcome["sum"] for outcome in first.run("sums", jobs)] == [6, 12, 6]
    assert (len(CALLS), first.ran) == (2, 2)
    again = Trials(file)
    assert [outcome["sum"] for outcome in again.run("sums", jobs)] == [6, 12, 6]
    assert (len(CALLS), again.ran) == (2, 0)


def test_a_line_that_was_cut_off_is_run_again(tmp_path):
    file = tmp_path / "trials.jsonl"
    jobs = [Job(doubled, {"values": np.arange(n)}) for n in (3, 4)]
    Trials(file).run("sums", jobs)
    whole = file.read_bytes()
    file.write_bytes(whole[:-9])
    again = Trials(file)
    assert [outcome["sum"] for outcome in again.run("sums", jobs)] == [6, 12]
    assert again.ran == 1


def test_every_input_makes_another_trial():
    given = {"values": np.array([1, 2]), "factor": 2, "options": {"a": 1, "b": [2, 3]}}
    changed = [
        {**given, "values": np.array([2, 1])},
        {**given, "values": np.array([1, 2], dtype=np.int32)},
        {**given, "values": np.array([[1, 2]])},
        {**given, "factor": 3},
        {**given, "options": {"a": 1, "b": [2, 4]}},
        {name: value for name, value in given.items() if name != "factor"},
    ]
    keys = {Job(doubled, one).key("source") for one in [given, *changed]}
    keys |= {Job(other, given).key("source"), Job(doubled, given).key("another source")}
    assert len(keys) == 1 + len(changed) + 2


def test_the_order_of_inputs_does_not_matter():
    one = {"factor": 2, "options": {"a": 1, "b": 2}}
    two = {"options": {"b": 2, "a": 1}, "factor": 2}
    assert Job(doubled, one).key("s") == Job(doubled, two).key("s")


def test_progress_is_reported_for_every_trial():
    told = []
    Trials(report=lambda *news: told.append(news)).run("sums", [Job(doubled, {"values": np.ones(2)})] * 2)
    assert told == [("sums", 0, 2), ("sums", 1, 2), ("sums", 2, 2)]


def test_nothing_is_written_without_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Trials().run("sums", [Job(doubled, {"values": np.ones(2)})])
    assert list(tmp_path.iterdir()) == []


def test_the_file_is_lines_of_json(tmp_path):
    file = tmp_path / "trials.jsonl"
    Trials(file).run("sums", [Job(doubled, {"values": np.ones(2)})])
    (line,) = file.read_text().splitlines()
    assert json.loads(line)["outcome"] == {"sum": 4.0}


def imported_modules(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_everything_that_a_trial_can_reach_is_hashed():
    reached = reached_source()
    folder = reached["privacy.py"].parent
    wanted = {describe(name).function.__module__ for name in names()}
    wanted |= {module for path in reached.values() for module in imported_modules(path)}
    files = set()
    for module in wanted:
        place = module.removeprefix("dphist.").replace(".", "/")
        if module.startswith(("dphist.", "research.")):
            places = (f"{place}.py", f"{place}/__init__.py")
            root = folder if module.startswith("dphist.") else folder.parent
            files |= {name for name in places if (root / name).is_file()}
    assert len(files) > 30
    assert files <= set(reached)
