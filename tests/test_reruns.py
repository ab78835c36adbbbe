"""A test that talks to a service runs once more before it fails; a test that computes never does."""

from __future__ import annotations

import pytest


def test_a_test_that_computes_runs_once(request: pytest.FixtureRequest) -> None:
    assert request.node.get_closest_marker("flaky") is None


@pytest.mark.parametrize(
    "_service",
    [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("browser", "kafka", "redis")],
)
def test_a_test_of_a_service_runs_once_more(request: pytest.FixtureRequest, _service: str) -> None:
    mark = request.node.get_closest_marker("flaky")
    assert mark is not None
    assert mark.kwargs == {"reruns": 1}
