"""Workers with a witness each: after a loss no row gets a second value, and no worker waits for ever."""

from __future__ import annotations

import pytest

from stream_app.loops import lease
from tests.simulator.apart import run_apart
from tests.simulator.schedule import seeds


@pytest.mark.parametrize("seed", seeds(2, 40))
def test_no_row_has_a_second_value_after_a_copy_is_put_back(seed: int) -> None:
    run_apart(seed)


@pytest.mark.parametrize("seed", [22, 31, 51])
def test_schedules_that_failed_in_the_past_pass(seed: int) -> None:
    """Nothing asked the store for long; a worker that held the lease had ended; another one did not ask."""
    run_apart(seed)


def test_a_worker_that_waits_for_no_other_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "SETTLE_S", 0.0)
    assert_caught()


def test_a_worker_that_does_not_state_the_lost_row_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease.Lease, "insist", lambda self, lost_seq: None)
    assert_caught()


def assert_caught() -> None:
    """Check that a schedule gives a row a second value, or opens an epoch before rows that were seen."""
    heard = list[str]()
    for seed in range(12):
        try:
            run_apart(seed)
        except AssertionError as broken:
            heard.append(str(broken))
            if "has a second value" in heard[-1] or ", the witness has" in heard[-1]:
                return
    raise AssertionError(f"the mutant lived; heard {heard}")
