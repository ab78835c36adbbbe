"""Facts about streams one under another: a row for each, however narrow the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table


def sheet(title: str, headings: Sequence[str], streams: Iterable[Sequence[str]], caption: str) -> Table:
    """Return a section for each stream. Args: streams, of each what stands beside the headings."""
    table = Table(
        title=title, title_justify="left", caption=caption, caption_justify="left", show_header=False
    )
    for facts in streams:
        for heading, fact in zip(headings, facts, strict=True):
            table.add_row(heading, fact)
        table.add_section()
    return table
