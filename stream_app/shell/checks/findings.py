"""How ``stream-app doctor`` prints its findings."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from stream_app.shell.samples.findings import EXACT
from stream_app.wiring.checks import Finding

_COLOURS = {"ok": "green", "note": "cyan", "warn": "yellow", "fail": "bold red"}


def show(findings: Sequence[Finding], console: Console) -> None:
    """Print a table on a terminal, one line per finding elsewhere, and say whether numbers are private."""
    if not console.is_terminal:
        for finding in findings:
            line = f"{finding.state:4} {finding.what}: {finding.said}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        if any(finding.exact for finding in findings):
            console.print(f"note {EXACT}", highlight=False, soft_wrap=True)
        return
    table = Table("", "", Column(overflow="fold"), box=None, show_header=False, padding=(0, 1))
    for finding in findings:
        colour = _COLOURS[finding.state]
        table.add_row(f"[{colour}]{finding.state}[/]", escape(finding.what), escape(finding.said))
    console.print(table)
    if any(finding.exact for finding in findings):
        console.print(EXACT, style="bold", highlight=False)
