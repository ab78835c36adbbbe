"""Spools and lists of files under faults of real processes: a few here, many with the script."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.logs_under_faults import FAULTS, run


@pytest.mark.redis
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_each_event_counts_once_whatever_is_killed_or_frozen(tmp_path: Path) -> None:
    run(tmp_path, faults=len(FAULTS), seed=1)
