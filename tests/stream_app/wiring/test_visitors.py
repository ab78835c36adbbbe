"""Keys of visitors' names: one a day, on the disk before its use, and gone once its day is released."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from stream_app.config import Settings, load_text
from stream_app.core.visits import DAY_US
from stream_app.ports import OperatorError
from stream_app.vault.visitor_keys import VisitorKeys
from stream_app.wiring.event_logs import check_file, visitor_keys
from stream_app.wiring.spent import first_unreleased
from tests.models.memory import MemoryStore
from tests.stream_app.wiring.test_receiving import Witness

TEXT = """
streams:
  pages:
    source: {file: access.log, format: combined}
    time: {bin: 1h, epoch: 1d, grace: 1m, first: 1970-01-02T00:00:00Z}
    privacy: {epsilon: 1}
  slow:
    source: {file: access.log, format: combined}
    time: {bin: 6h, epoch: 1d, grace: 1m, first: 1970-01-02T00:00:00Z}
    privacy: {epsilon: 1, accept: measured again}
  requests:
    source: {file: access.log, format: combined}
    time: {bin: 1h, epoch: 1d, grace: 1m, first: 1970-01-02T00:00:00Z}
    privacy: {epsilon: 1, accept: measured again, unit: event}
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Return the settings of three streams over one log."""
    return load_text(TEXT, tmp_path / "app.yaml", {})


def destroyed(settings: Settings, *last_bins: int | None) -> list[int]:
    """Destroy what no stream needs; return the days whose keys are left."""
    keys = visitor_keys(settings.streams[0], settings.state_dir)
    witnesses = {
        stream.name: Witness(bin) for stream, bin in zip(settings.streams, (*last_bins, None), strict=True)
    }
    needed = first_unreleased(settings.streams, witnesses, MemoryStore().load)  # type: ignore[arg-type]
    keys.destroy_before(asyncio.run(needed))
    return sorted(int(path.stem) for path in settings.state_dir.rglob("@visitors/*/*.key"))


def test_log_may_be_a_link_that_moves_each_day(tmp_path: Path) -> None:
    link, drawn = tmp_path / "access.log", set[tuple[str, bytes]]()
    for day in (1, 2):
        (today := link.with_name(f"access.2026030{day}.log")).touch()
        link.unlink(missing_ok=True)
        link.symlink_to(today)
        settings = load_text(TEXT, tmp_path / "app.yaml", {})
        stream = settings.streams[0]
        check_file(stream, settings.state_dir)
        drawn.add((stream.declared.source.name, visitor_keys(stream, settings.state_dir).key(7)))
    assert len(drawn) == 1


def test_key_stays_the_same_until_every_stream_has_released_its_day(settings: Settings) -> None:
    keys = visitor_keys(settings.streams[0], settings.state_dir)
    drawn = [keys.key(day) for day in (1, 2, 3)]
    assert len(set(drawn)) == 3
    # Day 1 has the hours 24 to 47, and the quarters 4 to 7; the stream of single events needs no key.
    assert destroyed(settings, 71, None) == [1, 2, 3]
    assert destroyed(settings, 71, 6) == [1, 2, 3]
    assert destroyed(settings, 46, 11) == [1, 2, 3]
    assert visitor_keys(settings.streams[1], settings.state_dir).key(1) == drawn[0]
    assert destroyed(settings, 47, 7) == [2, 3]
    assert destroyed(settings, 95, 14) == [3]
    assert keys.key(3) == drawn[2]
    assert keys.key(1) != drawn[0]


def test_destroyed_key_is_overwritten(settings: Settings, tmp_path: Path) -> None:
    keys = VisitorKeys(tmp_path / "keys")
    key = keys.key(7)
    [file] = (tmp_path / "keys").glob("*.key")
    held = file.open("rb")
    assert keys.destroy_before(8) == 1
    with held:
        assert held.read() == bytes(len(key))
    assert not file.exists()


def test_damaged_key_ends_the_stream_in_one_line(tmp_path: Path) -> None:
    keys = VisitorKeys(tmp_path)
    keys.key(DAY_US)
    (tmp_path / f"{DAY_US}.key").write_bytes(b"short")
    with pytest.raises(OperatorError, match="holds no key of visitors' names; put the right one back"):
        keys.key(DAY_US)
