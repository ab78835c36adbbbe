"""``python -m docs.site.reference``: print the pages of the reference that are made from the code, as JSON.

The commands come from Click's own help, the HTTP interface from the service's OpenAPI document, the metrics
from their registries, the report of an audit from its JSON. Nothing of it is committed, so it cannot differ.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import click
from prometheus_client.metrics import MetricWrapperBase

from dphist.cli import main as dphist_command
from stream_app.api.app import create_app
from stream_app.audit.report import Check, in_markdown
from stream_app.monitoring.alert_metrics import AlertingMetrics
from stream_app.monitoring.api_metrics import ReadingMetrics
from stream_app.monitoring.ingest_metrics import ReceivingMetrics
from stream_app.monitoring.machine import watch_machine
from stream_app.monitoring.metrics import Metrics
from stream_app.monitoring.registry import Registered
from stream_app.shell.commands import main as stream_app_command
from stream_app.shell.processes import MEANINGS

PAGES = {
    "reference/commands.md": "commands",
    "reference/http.md": "http",
    "reference/metrics.md": "metrics",
    "audit-report.md": "audit",
}
COMMANDS = {"stream-app": stream_app_command, "dphist": dphist_command}
COMMANDS_HEAD = """\
# Commands

What each command prints for `--help`. Every command ends with one of these statuses:

| status | means |
|---|---|
"""
HTTP_HEAD = """\
# HTTP

Every path of the service, from its OpenAPI document. A running service has the same under `/docs` and
`/openapi.json`. [Stability](../stability.md#http) says which paths are stable.
"""
METRICS_HEAD = """\
# Metrics

What each process serves on its operator's port ([Watching](../../deploy/README.md#watching)). A scrape has
the same text in the line `# HELP` of each metric. Each process also has the usual `process_*`.
"""


def commands() -> str:
    """Return the page of all commands: what each prints for ``--help``."""
    lines = [COMMANDS_HEAD + "".join(f"| {status} | {text} |\n" for status, text in MEANINGS.items())]
    for program, group in COMMANDS.items():
        for name, text in helps(program, group):
            lines += [f"## {name}", "", "```text", text, "```", ""]
    return "\n".join(lines)


def helps(program: str, group: click.Group) -> Iterator[tuple[str, str]]:
    """Yield each command of a program with its help, the program itself first."""
    above = click.Context(group, info_name=program, max_content_width=100, terminal_width=100)
    yield program, group.get_help(above)
    for name in group.list_commands(above):
        _, command, _ = group.resolve_command(above, [name])
        assert command is not None
        yield (
            f"{program} {name}",
            command.get_help(click.Context(command, parent=above, info_name=name, terminal_width=100)),
        )


def http() -> str:
    """Return the page of the HTTP interface: every path, its parameters, the fields of its answer."""
    document = create_app(cast(Any, None)).openapi()
    lines = [HTTP_HEAD, *document["info"]["description"].splitlines(), ""]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            lines += [f"## {method.upper()} {path}", "", operation.get("description", ""), ""]
            lines += parameters(operation) + answer(operation)
    lines += ["## Answers", "", "What the fields of each answer mean.", ""]
    for name, schema in document["components"]["schemas"].items():
        lines += [f"### {name}", "", schema.get("description", ""), "", *fields(schema)]
    return "\n".join(lines)


def operators() -> dict[str, Registered]:
    """Return the metrics of each process, by its name."""
    every: dict[str, Registered] = {
        "Worker": Metrics(),
        "Listener of events": ReceivingMetrics({}, 1),
        "API": ReadingMetrics(),
        "Watcher of alert rules": AlertingMetrics(),
    }
    for one in every.values():
        watch_machine(one.registry, {}, {})
    return every


def metrics() -> str:
    """Return the page of the operator's metrics: name, labels and meaning of each, by process."""
    lines = [METRICS_HEAD]
    for process, own in operators().items():
        if isinstance(own, Metrics):
            own.know("clicks", 60.0)
            own.stored.show("clicks", {})
        known = {
            one._name: one._labelnames
            for one in own.registry._collector_to_names
            if isinstance(one, MetricWrapperBase)
        }
        lines += [f"## {process}", "", "| metric | labels | type | meaning |", "|---|---|---|---|"]
        for family in own.registry.collect():
            if not family.name.startswith("stream_app_"):
                continue
            name = f"{family.name}_total" if family.type == "counter" else family.name
            seen = {label for one in family.samples for label in one.labels} - {"le"}
            labels = ", ".join(known.get(family.name, sorted(seen)))
            lines.append(f"| `{name}` | {labels} | {family.type} | {cell(family.documentation)} |")
        lines.append("")
    return "\n".join(lines)


def audit() -> str:
    """Return the page of the last audit, from its report in JSON."""
    kept = json.loads((Path(__file__).parents[1] / "audit-report.json").read_text(encoding="utf-8"))
    checks = [Check(**one) for one in kept["checks"]]
    return in_markdown(checks, kept["command"], kept["made"], kept["versions"])


def parameters(operation: dict[str, Any]) -> list[str]:
    """Return the table of an operation's parameters."""
    rows = [
        f"| `{one['name']}` | {one['in']}{', needed' if one.get('required') else ''}"
        f" | {kind(one['schema'])} | {default(one['schema'])} | {cell(one.get('description', ''))} |"
        for one in operation.get("parameters", [])
    ]
    return (
        ["| parameter | in | type | default | meaning |", "|---|---|---|---|---|", *rows, ""] if rows else []
    )


def answer(operation: dict[str, Any]) -> list[str]:
    """Return the sentences that say what an operation answers."""
    lines = []
    for status, response in operation["responses"].items():
        schemas = [kind(one.get("schema", {})) for one in response.get("content", {}).values()]
        said = ", ".join(sorted({schema for schema in schemas if schema}))
        lines.append(f"- {status}: {response['description']}{f' ({said})' if said else ''}")
    return [*lines, ""]


def fields(schema: dict[str, Any]) -> list[str]:
    """Return the table of an answer's fields."""
    needed = set(schema.get("required", ()))
    rows = [
        f"| `{name}` | {kind(one)} | {'always' if name in needed else ''}"
        f" | {cell(one.get('description', ''))} |"
        for name, one in schema.get("properties", {}).items()
    ]
    return ["| field | type | present | meaning |", "|---|---|---|---|", *rows, ""] if rows else []


def kind(schema: dict[str, Any]) -> str:
    """Return the type of a value in words; other answers are linked."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(kind(one) for one in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list of {kind(schema['items'])}" if schema.get("items") else "list"
    return str(schema.get("type", ""))


def default(schema: dict[str, Any]) -> str:
    """Return a parameter's default as a reader would write it."""
    given = schema.get("default")
    return "" if given in (None, [], "") else f"`{given}`"


def cell(text: str) -> str:
    """Return a text that may stand in a table."""
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    json.dump({name: globals()[page]() for name, page in PAGES.items()}, sys.stdout)
