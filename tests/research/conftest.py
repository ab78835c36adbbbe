"""One quick run of each paper's reproduction on generated data, shared by all tests that read its results."""

import csv

import pytest
from click.testing import CliRunner

from research import datasets
from research.command import reproduce


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    # Each test needs a whole quick reproduction: seconds, and on a busy machine minutes.
    for item in items:
        if "run_reproduce" in getattr(item, "fixturenames", ()):
            item.add_marker("slow")


@pytest.fixture(scope="session")
def run_reproduce():
    """Return a function that runs the command ``reproduce`` with the given arguments."""
    return lambda *arguments: CliRunner().invoke(reproduce, [*map(str, arguments)])


@pytest.fixture(scope="session")
def quick(tmp_path_factory, run_reproduce):
    """Return a function from a paper to its quick run on open data: (printed text, folder)."""
    out = tmp_path_factory.mktemp("reproduction")
    made = {}

    def run(paper):
        if paper not in made:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv(datasets.FOLDER_VARIABLE, "")
                made[paper] = run_reproduce(paper, "--quick", "--out", out)
        assert made[paper].exit_code == 0, made[paper].output
        return made[paper], out / f"{paper}-quick"

    return run


@pytest.fixture(scope="session")
def numbers(quick):
    """Return a function from a paper and a table or figure to its numbers: {(panel, series, x): number}."""

    def read(paper, result):
        with (quick(paper)[1] / f"{result}.csv").open(encoding="utf-8", newline="") as file:
            return {
                (row["panel"], row["series"], row["x"]): float(row["here"]) for row in csv.DictReader(file)
            }

    return read
