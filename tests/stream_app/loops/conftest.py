"""What the tests of loops begin with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.stream_app.one_source import OneSource


@pytest.fixture
def one(tmp_path: Path) -> Iterator[OneSource]:
    """Yield a file, a store and a witness."""
    with closing(OneSource(tmp_path)) as one:
        yield one
