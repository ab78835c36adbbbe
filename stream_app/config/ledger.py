"""The section ``ledger``: where to keep a copy of the ledger that survives a loss of the store."""

from __future__ import annotations

from pathlib import Path

from stream_app.config import values
from stream_app.config.document import Section
from stream_app.config.kafka import topic_name
from stream_app.config.settings import LedgerSettings


def read_ledger(section: Section, directory: Path) -> LedgerSettings | None:
    """Read the section; None if it is not written. Raises: ConfigError."""
    file = section.take("file", values.text, None)
    topic = section.take("topic", topic_name, None)
    section.finish()
    if not section.written:
        return None
    if (file is None) == (topic is None):
        raise section.error("file", "or topic has to be written, and one of them only; correct it")
    return LedgerSettings(None if file is None else (directory / file).absolute(), topic)


def check_ledger(section: Section, ledger: LedgerSettings | None, lost_together: tuple[Path, ...]) -> None:
    """Refuse a file that would be lost together with the original ledger. Raises: ConfigError."""
    if ledger is None or ledger.file is None:
        return
    for directory in lost_together:
        if ledger.file.resolve().is_relative_to(directory.resolve()):
            raise section.error(
                "file", f"{ledger.file} is inside {directory}, and would be lost with it; name another disk"
            )
