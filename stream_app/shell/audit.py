"""``stream-app audit``: run the audit of a configuration, show it, and write its report."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from stream_app.audit.examination import Depth, examine
from stream_app.audit.report import Check, draw, failed, in_json, in_markdown
from stream_app.config import load
from stream_app.shell.options import config_option

_MARKS = {True: "ok", False: "FAIL", None: "--"}


@click.command()
@config_option
@click.option(
    "--report",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory for audit.md and audit.json.  [default: none is written]",
)
@click.option(
    "--bins",
    type=click.IntRange(2, 512),
    default=30,
    show_default=True,
    help="Bins of an epoch in the rehearsals; more take longer.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Of the made-up records.",
)
def audit(config: Path, report: Path | None, bins: int, seed: int) -> int:
    """Check that a deployment keeps its privacy promise.

    For its operator, or for an auditor.
    First it compares what is stored: releases, witness, ledger and configuration. Then it runs every
    stream's pipeline on made-up neighbouring logs, in a store of its own, and adds up the privacy loss.
    Then it counts outputs, without looking at what made them. The exit status is 2 if a check fails.

    It changes no release, no ledger and no state, and the service may run.

    \b
    Example:
      stream-app audit --config examples/flights.yaml --report audit
    """
    checks: list[Check] = []
    for check in examine(load(config), Depth(bins, seed), _say):
        checks.append(check)
        click.echo(f"{_MARKS[check.passed]:<5} {check.part}, {check.subject}: {check.asked}")
        click.echo(f"      {check.found}")
    faults = failed(checks)
    if report is not None:
        command = f"stream-app audit --config {config.name} --bins {bins} --seed {seed}"
        report.mkdir(parents=True, exist_ok=True)
        (report / "audit.md").write_text(in_markdown(checks, command), encoding="utf-8")
        draw(checks, report / "audit.png")
        (report / "audit.json").write_text(in_json(checks, command), encoding="utf-8")
        click.echo(f"report: {report / 'audit.md'}")
    click.echo(f"{len(checks)} checks, {len(faults)} failed")
    return 2 if faults else 0


def _say(line: str) -> None:
    """Say what is done next, if a person watches."""
    if sys.stderr.isatty():
        click.echo(f"      {line}", err=True)
