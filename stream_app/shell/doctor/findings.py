"""The findings of ``stream-app doctor``, and how to print them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from stream_app.config import StreamSettings
from stream_app.core.counting.remedies import refused_because
from stream_app.core.incoming import Reason, Refusal
from stream_app.shell.capped import cap_warning, shares_in_words
from stream_app.shell.filling import filling_warning
from stream_app.sources.shapes import why_undecodable
from stream_app.wiring.checks import Finding

EXACT = "What is said here about events is exact and private: for the operator only, publish none of it."

_FEW = 0.05  # of a sample

_COLOURS = {"ok": "green", "note": "cyan", "warn": "yellow", "fail": "bold red"}


def sampled(what: str, time_field: str, time_format: str, kept: int, refused: Sequence[Refusal]) -> Finding:
    """Return a finding about a sample of events, in words only, because numbers would count people's events.

    Args: kept, the number of events that could be decoded; refused, the other events, with their reasons.
    """
    reasons = Counter(one.reason for one in refused)
    undecodable = [one.record for one in refused if one.reason == Reason.UNDECODABLE]
    cause = next(filter(None, map(why_undecodable, undecodable)), None)
    why = "; ".join(
        f"{reason}: {cause}" if cause and reason == Reason.UNDECODABLE else refused_because(reason)
        for reason, _ in reasons.most_common()
    )
    if refused and not kept:
        return Finding(
            what, "fail", f"no event of a sample has a time in {time_field} ({time_format}): {why}"
        )
    if refused:
        few = len(refused) <= _FEW * kept
        said = "cannot be decoded and become dead letters when the service runs"
        if few and not cause and set(reasons) == {Reason.UNDECODABLE}:
            why = "their lines are damaged; the format is right"
        return Finding(
            what,
            "warn",
            f"{f'less than {_FEW:.0%} of the' if few else 'some'} events of a sample {said}: {why}",
        )
    return Finding(what, "ok", "every event of a sample can be decoded")


def capped(stream: StreamSettings, columns: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield findings about what the caps per user leave out of a sample. Args: its columns by field."""
    what, keyed = f"streams.{stream.name}.privacy.unit", stream.declared.privacy.caps.max_keys is not None
    if warning := cap_warning(stream, columns):
        yield Finding(what if keyed else f"{what}.max_events", "warn", warning, exact=True)
    if shares := shares_in_words(stream, columns):
        yield Finding(what, "warn" if warning else "ok", shares, exact=True)


def filling(stream: StreamSettings, columns: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield a finding if an epoch may have more events than its sum holds. Args: a sample, by field."""
    if warning := filling_warning(stream, columns):
        yield Finding(f"streams.{stream.name}.sum.unit", "warn", warning, exact=True)


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
