"""``make test`` leaves out the long tests only, and takes those back whose packages have changed."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.which import BUDGET_S, REPOSITORY, Long, changes_since, chosen, last_full_run, long_tests

FIRST = Long("tests/e2e/test_first.py", 60, ("stream_app/sinks",))
SECOND = Long("tests/e2e/test_second.py::test_kill", 30, ("stream_app/sinks", "stream_app/loops"))
THIRD = Long("tests/e2e/test_third.py", 90, ("stream_app/api", "deploy/compose.yaml"))


def test_no_change_needs_no_long_test() -> None:
    assert chosen([FIRST, SECOND, THIRD], {}) == []
    assert chosen([FIRST, SECOND, THIRD], {"docs/index.md": 5}) == []


def test_a_change_takes_the_long_tests_of_its_packages() -> None:
    def taken(path: str) -> list[Long]:
        return chosen([FIRST, SECOND, THIRD], {path: 3}, budget_s=120)

    assert taken("stream_app/sinks/letters.py") == [SECOND, FIRST]
    assert taken("deploy/compose.yaml") == [THIRD]
    assert taken("stream_app/sinks_of_another/letters.py") == []


def test_a_changed_test_runs() -> None:
    assert chosen([FIRST, SECOND, THIRD], {"tests/e2e/test_second.py": 1}) == [SECOND]


def test_the_budget_goes_to_the_packages_that_changed_most() -> None:
    changes = {"stream_app/api/replies.py": 300, "stream_app/sinks/letters.py": 1}
    assert chosen([FIRST, SECOND, THIRD], changes, budget_s=120) == [THIRD, SECOND]


def test_a_long_test_is_one_function_or_a_whole_file() -> None:
    assert FIRST.holds("tests/e2e/test_first.py::test_a[1]")
    assert SECOND.holds("tests/e2e/test_second.py::test_kill[3]")
    assert not SECOND.holds("tests/e2e/test_second.py::test_kill_and_freeze")
    assert not FIRST.holds("tests/e2e/test_first.pyi::test_a")


def test_every_long_test_exists_and_protects_something_that_exists() -> None:
    for one in long_tests():
        path, _, function = one.tests.partition("::")
        text = (REPOSITORY / path).read_text()
        assert not function or function.partition("[")[0] in _functions(text), one.tests
        assert all((REPOSITORY / place).exists() for place in one.protects), one.tests
        assert one.protects, one.tests
        assert one.seconds > 0, one.tests


def test_every_package_of_the_service_has_a_long_test_that_fits_the_budget() -> None:
    long = long_tests()
    for package in sorted((REPOSITORY / "stream_app").iterdir()):
        if (package / "__init__.py").is_file():
            change = {f"stream_app/{package.name}/__init__.py": 1}
            assert chosen(long, change), f"no long test of at most {BUDGET_S} s protects {package.name}"


def test_the_page_says_at_which_commit_all_tests_last_passed() -> None:
    assert isinstance(changes_since(last_full_run()), dict)


def test_a_file_that_git_does_not_know_is_a_change_and_a_link_to_a_folder_is_none(tmp_path: Path) -> None:
    here, link = (REPOSITORY / "tests" / f"{tmp_path.name}.{end}" for end in ("txt", "link"))
    here.write_text("one\ntwo\n")
    link.symlink_to(tmp_path, target_is_directory=True)
    try:
        changes = changes_since("HEAD")
    finally:
        here.unlink()
        link.unlink()
    assert changes[here.relative_to(REPOSITORY).as_posix()] == 3
    assert link.relative_to(REPOSITORY).as_posix() not in changes


def _functions(text: str) -> set[str]:
    defined = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, defined)}
