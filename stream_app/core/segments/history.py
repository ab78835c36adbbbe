"""Streams that are history: retired, or imported by builds up to 0.2.0. Nobody counts them any more.

The store keeps the text of a history in the place of the strategy's text. Its ``"v"`` is not 1, so a build
that knows no history ends with one line when it loads the stream, instead of opening an epoch
(docs/decisions/0040-stored-format.md).
"""

from __future__ import annotations

import json

from stream_app.core.instants import format_instant
from stream_app.core.records import History
from stream_app.core.strategy import canonical_json

_START = b'{"history":'  # of every history's text and of no strategy's: canonical texts have sorted keys
_VERSION = 2
# The hash under which the store keeps the state of a history: no worker's strategy has it, so every script
# refuses what a worker sends.
HISTORY_HASH = "history"
# A stream of which stream-app rebuild has not put back all rows yet; as history, so that no worker counts it.
REBUILDING = History(imported_us=0)


def history_text(strategy: bytes, history: History) -> bytes:
    """Return the text that is stored in the place of a strategy's text."""
    facts = {"retired_us": history.retired_us, "imported_us": history.imported_us}
    return canonical_json({"history": facts, "strategy": strategy.decode(), "v": _VERSION})


def read_strategy(text: bytes) -> tuple[bytes, History | None]:
    """Return the strategy's text, and the ``History`` of a stream that is retired, imported or rebuilt."""
    if not text.startswith(_START):
        return text, None
    fields = json.loads(text)
    return fields["strategy"].encode(), History(**fields["history"])


def in_words(history: History) -> str:
    """Return that the stream was retired or imported, in words that follow its name.

    >>> in_words(History(retired_us=1_700_000_000_000_000))
    'was retired on 2023-11-14'
    """
    if history == REBUILDING:
        return "is rebuilt in part only (stream-app rebuild puts back the rest)"
    if history.imported_us is not None:
        return f"was imported on {_day(history.imported_us)} and is history only"
    return f"was retired on {_day(history.retired_us or 0)}"


def _day(instant_us: int) -> str:
    return format_instant(instant_us)[:10]
