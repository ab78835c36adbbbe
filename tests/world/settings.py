"""Streams of a world as a user configures them: over one file, in bins of ten seconds, from bin 100 on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stream_app.config.load import load_text
from stream_app.config.plans import planned
from stream_app.core.strategy import Strategy

EPOCH_BINS = 6
_DEFAULTS: dict[str, dict[str, Any]] = {
    "source": {"file": "visits.ndjson"},
    "time": {
        "field": "at",
        "format": "us",
        "bin": "10s",
        "grace": "0s",
        "epoch": f"{EPOCH_BINS}0s",
        "first": "1970-01-01T00:16:40Z",
    },
    "privacy": {"epsilon": 1_000_000_000},
}


def configured(**streams: dict[str, Any]) -> list[Strategy]:
    """Return the planned streams of a configuration. Args: streams, each with sections that differ.

    Without an epsilon a stream has no noise.
    """
    sections = {name: _with_defaults(stream) for name, stream in streams.items()}
    document = {"streams": sections, "kafka": {"bootstrap_servers": "nowhere:1"}}
    settings = load_text(json.dumps(document), Path("/nowhere/world.yaml"), {})
    return [planned(stream) for stream in settings.streams]


def _with_defaults(stream: dict[str, Any]) -> dict[str, Any]:
    merged = {name: {**section, **stream.get(name, {})} for name, section in _DEFAULTS.items()}
    if float(merged["privacy"]["epsilon"]) > 20:
        merged["privacy"]["not_private"] = True
    if "counts" in stream.get("source", {}):
        merged["source"] = stream["source"]
    return {**stream, **merged}
