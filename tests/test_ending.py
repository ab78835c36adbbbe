"""A run that is ended leaves no server running, and a run that ignores SIGHUP is like any other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S, eventually

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[1]
CONFTEST = """
from tests.ending import end_all_with_this_run, pass_hang_ups_on

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        end_all_with_this_run()
    pass_hang_ups_on()
"""
# Servers like those of the tests: one of its own session, one whose parent is gone, one without the
# environment, and one that ignores all that can be ignored.
SERVERS = """
import os, signal, subprocess, sys, time

SLEEP = [sys.executable, "-c", "import signal, time\\n"
         "for number in (1, 2, 15): signal.signal(number, signal.SIG_IGN)\\n"
         "time.sleep(600)", {mark!r}]

def test_it():
    subprocess.Popen(SLEEP, start_new_session=True)
    subprocess.run(["/bin/sh", "-c", 'env -i "$@" & exit 0', "sh", *SLEEP])
    running = subprocess.Popen([sys.executable, "-c", "import subprocess, sys; "
                                "subprocess.run(sys.argv[1:])", *SLEEP])
    open({ready!r}, "a").close()
    time.sleep({seconds})
    {last}
"""


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[str]:
    """Yield a word that is in the command line of each server; end what is left."""
    yield f"mark-of-{tmp_path}"
    for pid in servers(f"mark-of-{tmp_path}"):
        os.kill(pid, signal.SIGKILL)


def servers(mark: str) -> list[int]:
    """Return the processes whose last argument is a mark, and that have not ended."""
    found = []
    for words in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if words.read_bytes().split(b"\0")[-2:-1] == [mark.encode()]:
                found.append(int(words.parent.name))
        except OSError:
            continue
    return found


def small_run(
    folder: Path,
    mark: str,
    *options: str,
    seconds: float = 600,
    last: str = "",
    wrapper: tuple[str, ...] = (),
) -> subprocess.Popen[bytes]:
    """Start a run of pytest with one test that leaves servers running."""
    (folder / "conftest.py").write_text(CONFTEST)
    ready = str(folder / "ready")
    (folder / "test_it.py").write_text(SERVERS.format(mark=mark, ready=ready, seconds=seconds, last=last))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(folder)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTHONPATH"] = str(REPOSITORY)
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            [*wrapper, *command], cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
        )


@pytest.mark.parametrize(
    ("options", "number", "status"),
    [
        ((), signal.SIGTERM, 128 + signal.SIGTERM),
        ((), signal.SIGINT, 2),
        (("-n", "1"), signal.SIGTERM, 128 + signal.SIGTERM),
    ],
    ids=["SIGTERM", "SIGINT", "SIGTERM with processes"],
)
def test_an_ended_run_leaves_no_server(
    tmp_path: Path, mark: str, options: tuple[str, ...], number: int, status: int
) -> None:
    run = small_run(tmp_path, mark, *options)
    eventually(lambda: len(servers(mark)) >= 3, "the servers run")
    run.send_signal(number)
    assert run.wait(PATIENCE_S) == status
    assert servers(mark) == []


def test_a_run_that_ends_leaves_no_server_and_keeps_its_status(tmp_path: Path, mark: str) -> None:
    assert small_run(tmp_path, mark, seconds=0.5, last="assert False").wait(PATIENCE_S) == 1
    assert (tmp_path / "ready").exists()
    assert servers(mark) == []


def test_make_that_is_ended_leaves_no_server(tmp_path: Path, mark: str) -> None:
    (tmp_path / "Makefile").write_text("test:\n\t@$(RUN)\n")
    small_run(tmp_path, mark, "--collect-only").wait(PATIENCE_S)  # writes the files
    command = f"{sys.executable} -m pytest -q -p no:cacheprovider {tmp_path}"
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    environment.pop("PYTEST_XDIST_WORKER", None)
    make = subprocess.Popen(
        ["make", f"RUN={command}", "test"], cwd=tmp_path, env=environment, start_new_session=True
    )
    eventually(lambda: len(servers(mark)) >= 3, "the servers run")
    make.send_signal(signal.SIGTERM)
    assert make.wait(PATIENCE_S) != 0
    eventually(lambda: not servers(mark), "no server is left")


def test_children_of_a_run_under_nohup_take_hang_ups(tmp_path: Path, mark: str) -> None:
    child = "subprocess.run([sys.executable, '-c', 'import os; os.kill(os.getpid(), 1)']).returncode"
    last = f"os.kill(os.getpid(), 1); assert {child} == -1"
    run = small_run(tmp_path, mark, "-n", "1", seconds=0, last=last, wrapper=("/usr/bin/env", "nohup"))
    assert run.wait(PATIENCE_S) == 0, (tmp_path / "log").read_text()
