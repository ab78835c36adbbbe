"""The findings of ``stream-app doctor``, and how to print them."""

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
    """The result of one check.

    Args:
        what: the configuration key, or the object that it names.
        state: "ok"; "warn", which may be intended; "fail", if the service cannot start or keep its guarantee.
        said: the result and, if it is not "ok", the remedy.
    """

    what: str
    state: State
    said: str


def sampled(what: str, time_field: str, time_format: str, kept: int, refused: int) -> Finding:
    """Return a finding about a sample of events, in words only, because numbers would count people's events.

    Args: kept, refused, the numbers of events of the sample that could and could not be decoded.
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
    """Print a table on a terminal, one line per finding elsewhere."""
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
