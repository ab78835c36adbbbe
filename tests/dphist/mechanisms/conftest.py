"""The papers' data: the folder that the environment names, else one beside the checkout, else not run."""

import os
from pathlib import Path

import pytest

from dphist import datasets

CHECKOUT = Path(__file__).resolve().parents[3]


def pytest_collection_modifyitems(items):
    beside = next(CHECKOUT.parent.glob("*/data/dpbench"), None)
    if beside is not None:
        os.environ.setdefault(datasets.FOLDER_VARIABLE, str(beside))


@pytest.fixture(scope="session")
def papers_counts():
    """Return a function from a data set's name to its counts; tests that ask for it need the data."""
    try:
        datasets.data_folder()
    except FileNotFoundError as missing:
        pytest.skip(f"not run, the papers' data are not here: {missing}")
    return datasets.counts
