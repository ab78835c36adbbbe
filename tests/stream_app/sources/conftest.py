from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.registry import Registry, serving


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving(Registry()) as served:
        yield served
