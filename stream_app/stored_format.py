"""The version of the stored format: what a build must know about a store, directory, file or topic.

Everything that was stored before formats had numbers has format 1. The number of a place rises only when
something is stored there that older builds would misread. So a rollback works until then, and afterwards an
older build ends with one line. docs/decisions/0040-stored-format.md has the rules.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from stream_app.durable import NoRoomError, naming_full_disk, sync_directory, waited_for
from stream_app.ports import OperatorError

FIRST = 1
# Format 2: a stream may be history, which nobody counts any more (core/segments/history.py).
HISTORY = 2
# Format 3: users' records wait as entries in strings (state/lua/waiting.lua), not in hashes.
ENTRIES = 3
# Format 4: a stream's settings may have changed (core/segments/strategies.py): it has several strategies.
CHANGES = 4
# Format 5: a stream may have an end (state/lua/end_at.lua), and a successor that counts from there on.
ENDS = 5
# Format 6: retention may have removed a stream's oldest epochs (state/lua/trim.lua).
TRIMMED = 6
# Format 7: older releases announced a bin from which on grace or late policy differ (segments/strategies.py).
# Format 8: a stream may note which keys hash the users of its cap windows (core/user_keys.py).
USER_KEYS = 8
# Format 9: of witnesses only: a later segment of a stream may have released (sinks/witness_file.py). An
# older build over a lost store would count on under the configured name.
GENERATIONS = 9
NEWEST = GENERATIONS  # the newest format that this build knows

_FILE = "format"


def format_of(texts: Sequence[bytes], least: int) -> int:
    """Return the format that a stream with these strategies needs, at least ``least``."""
    return max(least, CHANGES if len(texts) > 1 else FIRST)


def check_format(place: str, stored: bytes | str | int | None) -> None:
    """Check that this build knows the format of a place. Args: stored, its number; None: none is stored.

    Raises: OperatorError, one line, for a newer format or a text that is no number.
    """
    if stored is None:
        return
    try:
        number = int(stored)
    except ValueError:
        raise OperatorError(f"{place}: its stored format is no number; restore it from a backup") from None
    if number > NEWEST:
        raise OperatorError(
            f"{place}: it has stored format {number}, and this build knows formats up to {NEWEST}; use the "
            "build that wrote it, or a newer one"
        )


def check_directory_format(key: str, directory: Path) -> None:
    """Check the format of a directory. Args: key, the setting that names it. Raises: OperatorError."""
    file = directory / _FILE
    # An empty file is one that another process is about to fill.
    check_format(f"{key}: {directory}", (file.read_bytes().strip() or None) if file.exists() else None)


def mark_directory(key: str, directory: Path, needed: int = FIRST) -> None:
    """Check the format of a directory, and raise it to the one that is needed now. Raises: OperatorError.

    Several processes may do this at the same time.
    """
    try:
        with naming_full_disk(directory):
            descriptor = os.open(directory / _FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                with waited_for(descriptor):
                    check_directory_format(key, directory)
                    if int(os.pread(descriptor, 20, 0) or b"0") < needed:
                        os.pwrite(descriptor, b"%d\n" % needed, 0)
                        os.fsync(descriptor)
                        sync_directory(directory)
            finally:
                os.close(descriptor)
    except NoRoomError as failure:
        raise OperatorError(f"{key}: {failure}") from None
