"""``stream-app rules``: the alert rules of a running service in the terminal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Literal

import click
from rich.markup import escape
from rich.table import Table

from stream_app.client import AlertRule
from stream_app.shell.options import service_options
from stream_app.shell.readers import service
from stream_app.shell.terminal import print_whole


@click.command()
@service_options
@click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", help="Of what is printed."
)
def rules(url: str, api_key: str | None, form: Literal["table", "json"]) -> None:
    """List the alert rules of a running service.

    It shows state, last change, and what each rule reads now.

    \b
    Example:
      stream-app rules
    """
    with service(url, api_key) as client:
        found = client.alerts()
        titles = client.titles() if form == "table" and found else {}
    if form == "json":
        click.echo(json.dumps([asdict(rule) for rule in found]))
    elif not found:
        click.echo("No rule is watched: none is configured, or its stream has released nothing yet.")
    else:
        _print(found, titles)


def _print(found: Sequence[AlertRule], titles: dict[str, str]) -> None:
    table = Table(
        "rule", "stream", "state", "reads now", "last change", "watched since", "condition", box=None
    )
    for rule in found:
        table.add_row(
            escape(rule.rule),
            escape(titles.get(rule.stream, rule.stream)),
            rule.phase,
            _reading(rule),
            rule.changed or "never",
            rule.watched or "not known",
            escape(rule.condition),
        )
    words = sorted(
        {f"{titles.get(rule.stream, rule.stream)}: {rule.meaning}" for rule in found if rule.meaning}
    )
    words += [f"{rule.rule}: not decided now, {rule.missing_now}" for rule in found if rule.missing_now]
    words += [f"{rule.rule}: does not fire in {rule.quiet}" for rule in found if rule.quiet]
    words += [f"{rule.rule}: refused by {', '.join(rule.refused)}" for rule in found if rule.refused]
    print_whole(table, escape("\n".join(words)))


def _reading(rule: AlertRule) -> str:
    if rule.value_now is None:
        return "–"
    error = "" if rule.stderr_now is None else f" (standard error {rule.stderr_now:,.3g}{rule.unit})"
    against = "" if rule.against_now is None else f", against {rule.against_now:z,.6g}"
    return f"{rule.value_now:z,.6g}{rule.unit}{error}{against}"
