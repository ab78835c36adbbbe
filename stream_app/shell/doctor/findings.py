"""What ``stream-app doctor`` found, and how it is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table

State = Literal["ok", "warn", "fail"]

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Args:
        what: the key of the configuration, or what it names.
        state: "warn" may be meant so; with "fail" the service does not start or does not keep its promise.
        said: what was found and, if it is not "ok", the remedy.
    """

    what: str
    state: State
    said: str


def sampled(what: str, time_field: str, time_format: str, kept: int, refused: int) -> Finding:
    """Return what a sample of events looks like, in words: how many are good is a count of people's events.

    Args: kept, refused, how many of the sample could be decoded and how many not.
    """
    if refused and not kept:
        said = (
            f"no event of a sample has a time in {time_field} ({time_format}); correct time.field or format"
        )
        return Finding(what, "fail", said)
    if refused:
        return Finding(what, "warn", "some events of a sample cannot be decoded; see the dead letters")
    return Finding(what, "ok", "every event of a sample can be decoded")


def show(findings: Sequence[Finding], console: Console) -> None:
    """Print a table on a terminal, a line for each finding elsewhere."""
    if not console.is_terminal:
        for finding in findings:
            line = f"{finding.state:4} {finding.what}: {finding.said}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        return
    table = Table(box=None, show_header=False, padding=(0, 1))
    for finding in findings:
        colour = _COLOURS[finding.state]
        table.add_row(f"[{colour}]{finding.state}[/]", escape(finding.what), escape(finding.said))
    console.print(table)
