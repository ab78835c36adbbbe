"""Tables with a section per stream, one fact per row, for any width of terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table


def sheet(title: str, headings: Sequence[str], streams: Iterable[Sequence[str]], caption: str) -> Table:
    """Return a table with a section for each stream. Args: streams, each with one value per heading."""
    table = Table(
        title=title, title_justify="left", caption=caption, caption_justify="left", show_header=False
    )
    for facts in streams:
        for heading, fact in zip(headings, facts, strict=True):
            table.add_row(heading, fact)
        table.add_section()
    return table
