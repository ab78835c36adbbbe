"""A condition that cannot be read is refused in one line: where, what, remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream_app.config import load

CONFIG = """\
streams:
  clicks:
    source: {{file: clicks.ndjson}}
    time: {{field: at, format: iso8601, bin: 1h, grace: 0s, epoch: 2d}}
    privacy: {{epsilon: 1.0}}
    where: {where}
"""


@pytest.mark.parametrize(
    "where",
    ["{field: [amount], min: 1}", "{all: [{field: amount}, {min: 1}]}", "{field: amount}", "{min: 1}"],
)
def test_fields_that_are_named_like_tests_can_be_compared(tmp_path: Path, where: str) -> None:
    config = tmp_path / "app.yaml"
    config.write_text(CONFIG.format(where=where))
    [stream] = load(config).streams
    tests = {"field is amount": "field: " in where or "[amount]" in where, "min is 1": "min" in where}
    assert stream.declared.where is not None
    for said, wanted in tests.items():
        assert (said in str(stream.declared.where)) is wanted
