"""The commands that check a configuration: ``check-config``, which asks no cluster, and ``doctor``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from stream_app.config import Settings, load
from stream_app.config.document import place_of
from stream_app.ports import OperatorError
from stream_app.shell.checks.everything import all_checks, examine
from stream_app.shell.options import config_option
from stream_app.shell.present_step import Step, working
from stream_app.shell.samples.findings import EXACT
from stream_app.wiring.checks import Finding, Reach

_COLOURS = {"ok": "green", "note": "cyan", "warn": "yellow", "fail": "bold red"}
_PRIVATE = "no event of a sample would be counted; stream-app doctor says why, in numbers that are private"


@click.command("check-config")
@config_option
def check_config(config: Path) -> int:
    """Check a configuration; start nothing.

    It checks plans, files on this machine with a sample of their events, and the store. It says which
    streams would count and which would not. The exit status is 2 if one would not.

    A stream that has begun is compared with the store, if that can be asked: what a start would refuse is
    refused here. Each thing that could not be checked is named.

    \b
    Example:
      stream-app check-config --config examples/flights.yaml
    """
    settings = load(config)
    with working("planning every stream") as step:
        lines, refused = asyncio.run(_checked(settings, step))
    for line in lines:
        click.echo(line)
    for line in dict.fromkeys(refused.values()):
        click.echo(f"stream-app: {line}", err=True)
    if any(stream.declared.capped for stream in settings.streams):
        click.echo(f"not checked: what caps leave out; stream-app doctor --config {config} reads a sample")
    names = [stream.name for stream in settings.streams if stream.name not in refused]
    if not refused:
        click.echo(f"{config}: good; {len(names)} stream(s): {', '.join(names)}")
        return 0
    if names:
        click.echo(
            f"{config}: would count: {', '.join(names)}; would not count as configured: {', '.join(refused)}"
        )
    return 2


@click.command()
@config_option
def doctor(config: Path) -> int:
    """Check that a configuration can run on this machine.

    It looks at files, disks, ports, keys, Redis, Kafka and clocks.

    Each check prints one line: ok, warn (may be intended) or fail, with the remedy. The exit status is 2 if
    a check fails. The command changes nothing and may run beside a running service.

    \b
    Example:
      stream-app doctor --config examples/flights.yaml
    """
    with working("checking files and directories") as step:
        findings = asyncio.run(examine(load(config), step))
    show(findings, Console())
    return 2 if any(finding.state == "fail" for finding in findings) else 0


def show(findings: Sequence[Finding], console: Console) -> None:
    """Print a table on a terminal, one line per finding elsewhere, and say whether numbers are private."""
    is_exact = any(finding.exact for finding in findings)
    if not console.is_terminal:
        for finding in findings:
            line = f"{finding.state:4} {finding.what}: {finding.said}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        if is_exact:
            console.print(f"note {EXACT}", highlight=False, soft_wrap=True)
        return
    table = Table("", "", Column(overflow="fold"), box=None, show_header=False, padding=(0, 1))
    for finding in findings:
        colour = _COLOURS[finding.state]
        table.add_row(f"[{colour}]{finding.state}[/]", escape(finding.what), escape(finding.said))
    console.print(table)
    if is_exact:
        console.print(EXACT, style="bold", highlight=False)


async def _checked(settings: Settings, step: Step) -> tuple[list[str], dict[str, str]]:
    """Return lines about facts that are good or may be intended; and by stream, why it would not count.

    Raises: OperatorError for the first fault for which all streams are refused, or a run ends with status 2.
    """
    lines, refused = list[str](), dict[str, str]()
    for check in all_checks(settings):
        of_store = check.reach == Reach.STORE
        if check.reach > Reach.STORE or (of_store and not check.ends):
            continue
        step(f"checking {check.key}")
        for finding in await (check.asked() if of_store else check.found()):
            if finding.state == "fail" and check.ends:
                stream, line = _stream_of(finding), _refusal(settings, finding)
                if stream is None:
                    raise OperatorError(line)
                refused.setdefault(stream, line)
            elif finding.what == "streams" and finding.state != "fail":
                lines.append(finding.said)
            elif not of_store and (finding.state == "fail" or _is_warning(finding)):
                lines.append(f"warning: {finding.what}: {_public(finding)}")
    return lines, refused


def _stream_of(finding: Finding) -> str | None:
    """Return the stream that a finding is about; None if it is about all of them."""
    section, _, rest = finding.what.partition(".")
    return rest.partition(".")[0] if section == "streams" and rest else None


def _is_warning(finding: Finding) -> bool:
    return finding.state == "warn" and (not finding.exact or bool(finding.public))


def _public(finding: Finding) -> str:
    """Return the text of a finding for a public log: no number of events."""
    return finding.public or _PRIVATE if finding.exact else finding.said


def _refusal(settings: Settings, finding: Finding) -> str:
    """Return a refusal with its place in the configuration, or as it is if it names its place or stream."""
    said = _public(finding)
    if said.startswith((str(settings.file), "stream ")):
        return said
    text = said if said.startswith("streams.") else f"{finding.what}: {said}"
    return f"{place_of(settings.file, finding.what)}: {text}"
