"""The reader of the papers' histograms, on a folder made here."""

import numpy as np
import pytest

from research import datasets


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "workloads").mkdir()
    np.savez(tmp_path / "tiny.npz", x=np.array([1, 2, 3]))
    np.savez(tmp_path / "workloads" / "line.npz", lo=np.array([0, 1]), hi=np.array([2, 1]))
    lo0, hi0, lo1, hi1 = np.arange(4).reshape(4, 1)
    np.savez(tmp_path / "workloads" / "square.npz", lo0=lo0, hi0=hi0, lo1=lo1, hi1=hi1)
    monkeypatch.setenv("DPHIST_DATA", str(tmp_path))
    return tmp_path


def test_counts_and_half_open_workloads(folder):
    assert datasets.names() == ["tiny"]
    assert datasets.counts("tiny").tolist() == [1, 2, 3]
    assert datasets.workload("line").tolist() == [[0, 3], [1, 2]]
    assert datasets.workload("square").tolist() == [[0, 2, 2, 4]]


def test_a_missing_folder_or_histogram_is_named(folder, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"no histogram 'huge'.*tiny"):
        datasets.counts("huge")
    with pytest.raises(FileNotFoundError, match="no workload 'huge'"):
        datasets.workload("huge")
    monkeypatch.setenv("DPHIST_DATA", str(folder / "nowhere"))
    with pytest.raises(FileNotFoundError, match="which is not a folder"):
        datasets.counts("tiny")
    monkeypatch.setenv("DPHIST_DATA", "")
    with pytest.raises(FileNotFoundError, match="DPHIST_DATA is not set"):
        datasets.counts("tiny")


def test_a_folder_beside_the_checkout_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets, "BESIDE", tmp_path)
    monkeypatch.delenv("DPHIST_DATA", raising=False)
    assert datasets.named_folder() is None
    beside = tmp_path / "papers" / "data" / "dpbench"
    beside.mkdir(parents=True)
    assert datasets.data_folder() == beside
    monkeypatch.setenv("DPHIST_DATA", "")
    assert datasets.named_folder() is None
