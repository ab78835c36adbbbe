"""``stream-app plan-alert``: the errors of alert rules, before they run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from rich.markup import escape
from rich.table import Table

from stream_app.config import Settings, StreamSettings, load
from stream_app.config.alerts import cap_warning
from stream_app.config.plans import planned
from stream_app.core.alerts.conditions import OF_AMOUNTS, Condition
from stream_app.core.alerts.forecast import SEEN, forecast
from stream_app.core.alerts.rules import Rule, of_key
from stream_app.core.epochs import FoundKeys
from stream_app.core.meaning import counted_in
from stream_app.core.records import EpochRecord
from stream_app.core.strategy import Strategy
from stream_app.ports import OperatorError
from stream_app.shell.options import Finite, config_option
from stream_app.shell.present_step import working
from stream_app.shell.terminal import print_whole


@click.command("plan-alert")
@config_option
@click.option("--rule", "name", help="This rule only.")
@click.option("--events", type=Finite(min=1), help="Events in a window, for rules on ks and mean.")
def plan_alert(config: Path, name: str | None, events: float | None) -> None:
    """Show how often each alert rule may be wrong.

    It also shows which changes a rule sees.
    The column "values in" has the unit of the errors: events or users first seen, these per time for a rate,
    the amount for a total. For a quantile or a share they are the number of events by which it is missed. For
    a rule against the past they are of the difference: the window less the factor times the past. For
    ks they are shares, and they depend on the number of events in a window (--events). For a mean they are in
    the amount with --events; without, they are those of the window's total, to be divided by its events.

    \b
    Example:
      stream-app plan-alert --config app.yaml --rule busy
    """
    settings = load(config)
    rules = _worth_a_row([rule for rule in settings.alerts.rules if name in (None, rule.name, rule.written)])
    if not rules:
        known = ", ".join(rule.written or rule.name for rule in _worth_a_row(settings.alerts.rules)) or "none"
        if name is not None:
            raise OperatorError(f"--rule {name}: is not in this configuration; it has {known}")
        raise OperatorError("alerts.rules: there is none; add one, for example busy: {when: ...}")
    noisy = [rule for rule in rules if rule.condition.measure != "no_data"]
    with working("computing the errors of the rules"):
        rows = [_row(rule, settings, events) for rule in noisy]
    if rows:
        table = Table(*rows[0], title="Expected of every rule, from the noise alone")
        for row in rows:
            table.add_row(*row.values())
        print_whole(table)
    streams = {stream.name: stream for stream in settings.streams}
    for rule in rules:
        if rule.condition.measure == "no_data":
            click.echo(f"{rule.name}: uses the clock only, so noise does not matter")
        elif said := cap_warning(rule, streams[rule.condition.stream]):
            click.echo(f"warning: alerts.rules.{rule.written or rule.name}: {said}", err=True)


def _worth_a_row(rules: Sequence[Rule]) -> list[Rule]:
    """Return one rule for each rule in the configuration: rules made for several keys have the same noise."""
    return list({rule.written or rule.name: rule for rule in reversed(rules)}.values())[::-1]


def _row(rule: Rule, settings: Settings, events: float | None) -> dict[str, str]:
    stream = next(stream for stream in settings.streams if stream.name == rule.condition.stream)
    try:
        expected = forecast(*_asked(rule, planned(stream)), stream.declared.time.bin_us, events)
    except ValueError as refusal:
        raise OperatorError(f"alerts.rules.{rule.name}: {refusal}") from None
    condition = rule.condition
    unit, per_event = _unit_of(condition, stream, events)
    form = ",.4f" if condition.measure == "ks" else ",.3g" if condition.unit or per_event > 1 else ",.1f"

    def shown(error: float) -> str:
        return f"{condition.in_unit(error) / per_event:{form}}{condition.unit}"

    return {
        "rule": escape(f"{rule.written or rule.name}[each]" if _is_of_each(rule) else rule.name),
        "values in": unit,
        "stderr": shown(expected.stderr),
        "holds beyond": shown(expected.margin),
        "wrong at the threshold": f"at most {1 - rule.confidence:.2%} of releases",
        f"seen by {SEEN:.0%} of releases from": shown(expected.seen),
    }


def _is_of_each(rule: Rule) -> bool:
    return bool(rule.written) or rule.condition.each


def _asked(rule: Rule, strategy: Strategy) -> tuple[Rule, Strategy]:
    """Return a rule and its stream, with the keys in the rule as found keys; [each] becomes one key."""
    if not strategy.declared.finds_keys:
        return rule, strategy
    listed = strategy.axes.keys.place_of_label if strategy.axes.keys else {}
    names = tuple(key for key in rule.condition.keys or ("found",) if key not in listed)
    epoch = EpochRecord(0, 0, strategy.time.horizon, 1, strategy.hash, found=(FoundKeys(0, names),))
    return of_key(rule, "found", {}) if rule.condition.each else rule, strategy.with_found(epoch)


def _unit_of(condition: Condition, stream: StreamSettings, events: float | None) -> tuple[str, float]:
    """Return the unit of a rule's errors, and the number by which to divide errors in counts.

    A mean is past a point if the total is past the point times the number of events. So the error of the
    mean is the error of the total, divided by the number of events.
    """
    amounts = stream.declared.amounts
    if condition.measure not in OF_AMOUNTS or amounts is None:
        return "shares" if condition.measure == "ks" else counted_in(stream.declared), 1.0
    if condition.measure == "total":
        return amounts.field, 1.0
    return (f"{amounts.field}, total", 1.0) if events is None else (amounts.field, events)
