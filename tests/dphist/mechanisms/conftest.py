"""The papers' data: the folder that the environment names, else the one beside the checkout, else not run."""

import os
from pathlib import Path

import pytest

from dphist import datasets

BESIDE_THE_CHECKOUT = Path(__file__).resolve().parents[4] / "shared" / "data" / "dpbench"


def pytest_collection_modifyitems(items):
    if not os.environ.get(datasets.FOLDER_VARIABLE) and BESIDE_THE_CHECKOUT.is_dir():
        os.environ[datasets.FOLDER_VARIABLE] = str(BESIDE_THE_CHECKOUT)


@pytest.fixture(scope="session")
def papers_counts():
    """Return a function from a data set's name to its counts; tests that ask for it need the data."""
    try:
        datasets.data_folder()
    except FileNotFoundError as missing:
        pytest.skip(f"not run, the papers' data are not here: {missing}")
    return datasets.counts
