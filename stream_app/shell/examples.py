"""The example configurations of the demos, found in a checkout or in the installed package."""

from __future__ import annotations

from pathlib import Path

import stream_app
from stream_app.config import Settings, load_text

_PACKAGE = Path(stream_app.__file__).parent


def example(name: str) -> Settings:
    """Return the settings of an example as if its file were in ``./examples``, so that relative paths and the
    names in the ledger are the same wherever the package is installed.
    """
    # The wheel holds the examples in the package; a checkout has them beside it.
    places = (_PACKAGE / "examples" / name, _PACKAGE.parent / "examples" / name)
    text = next(place for place in places if place.is_file()).read_text(encoding="utf-8")
    return load_text(text, Path.cwd() / "examples" / name)
