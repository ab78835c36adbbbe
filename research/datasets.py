"""Read the papers' histograms from a folder that the user provides; the package ships none.

The data's licences do not allow a package to ship them. The variable ``DPHIST_DATA`` names the folder. The
folder holds ``.npz`` files, each with one array ``x`` of counts, and ``workloads/*.npz`` with inclusive
bounds ``lo`` and ``hi``. If the variable is not set, the folder is ``*/data/dpbench`` beside the checkout.
"""

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

FOLDER_VARIABLE = "DPHIST_DATA"
BESIDE = Path(__file__).resolve().parents[2]
ONE_DIMENSIONAL = ("adult", "nettrace", "medcost", "searchlogs", "income", "patent", "hepph")


def named_folder() -> Path | None:
    """Return the folder in ``DPHIST_DATA``.

    Without the variable, return the first ``*/data/dpbench`` beside the checkout, or None.
    If the variable is set to the empty string, there is no folder.
    Raises: FileNotFoundError if it names something that is not a folder.
    """
    named = os.environ.get(FOLDER_VARIABLE)
    if named is None:
        return next(iter(sorted(BESIDE.glob("*/data/dpbench"))), None)
    if named and not Path(named).is_dir():
        raise FileNotFoundError(f"{FOLDER_VARIABLE} is {named!r}, which is not a folder")
    return Path(named) if named else None


def data_folder() -> Path:
    """Return the folder of the papers' histograms. Raises: FileNotFoundError if there is none."""
    folder = named_folder()
    if folder is None:
        raise FileNotFoundError(
            f"{FOLDER_VARIABLE} is not set; set it to the folder of the papers' histograms"
        )
    return folder


def names() -> list[str]:
    """List the names of the histograms in the folder."""
    return sorted(path.stem for path in data_folder().glob("*.npz"))


def counts(name: str) -> NDArray[np.int64]:
    """Return a histogram's counts: shape (4096,) in one dimension, (256, 256) in two.

    Raises: FileNotFoundError for an unknown name; its message lists the histograms in the folder.
    """
    path = data_folder() / f"{name}.npz"
    if not path.is_file():
        raise FileNotFoundError(f"no histogram {name!r} in the data folder; there are {', '.join(names())}")
    with np.load(path) as stored:
        return np.asarray(stored["x"], dtype=np.int64)


def workload(name: str) -> NDArray[np.int64]:
    """Return the named workload from the folder, as half-open ranges, (m, 2), or rectangles, (m, 4)."""
    path = data_folder() / "workloads" / f"{name}.npz"
    if not path.is_file():
        raise FileNotFoundError(f"no workload {name!r} in the data folder's workloads")
    with np.load(path) as stored:
        axes = [""] if "lo" in stored else ["0", "1"]
        edges = [column for axis in axes for column in (stored[f"lo{axis}"], stored[f"hi{axis}"] + 1)]
        return np.stack(edges, axis=1).astype(np.int64)
