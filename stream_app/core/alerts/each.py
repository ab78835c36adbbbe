"""Turns a rule on each key into one rule for every key that a stream shows now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from stream_app.core.alerts.rules import Rule, RuleError, parse_condition, text_of_key
from stream_app.core.alerts.states import State
from stream_app.core.answers.asked_keys import label_values
from stream_app.core.counting.cells import KeyList


def of_key(rule: Rule, key: str, labels: Mapping[str, str]) -> Rule:
    """Return a rule on ``each`` key, written for one key. Raises: RuleError if it cannot be written.

    Args: labels, of this key beside its name.
    """
    text = text_of_key(rule.text, rule.condition, key)
    return replace(
        rule,
        name=f"{rule.name}[{key}]",
        text=text,
        condition=parse_condition(text),
        labels={"key": key, **labels, **rule.labels},
        written=rule.name,
    )


def written_out(rule: Rule, keys: KeyList) -> list[Rule]:
    """Return one rule for each key of a list. Raises: RuleError, as ``of_key``."""
    return [of_key(rule, key, label_values(keys, place)) for place, key in enumerate(keys.labels)]


def rules_now(rules: Iterable[Rule], keys: KeyList | None, states: Mapping[str, State]) -> list[Rule]:
    """Return the rules, with one rule for each key that is shown or that a state names.

    A key may be shown no more while its alert fires. A key with both kinds of quotes in its name has no rule.
    Args: keys, that the stream shows now; states, of all rules that were decided.
    """
    found = list[Rule]()
    for rule in rules:
        if not rule.condition.each:
            found.append(rule)
            continue
        noted = [name for name in _noted(rule, states) if states[name].phase != "inactive"]
        found += _writable(rule, dict.fromkeys([*(keys.labels if keys else ()), *_keys_of(rule, noted)]))
    return found


def noted_rules(rules: Iterable[Rule], states: Mapping[str, State]) -> list[Rule]:
    """Return the rules, with one rule for each key that a state names."""
    found = list[Rule]()
    for rule in rules:
        found += _writable(rule, _keys_of(rule, _noted(rule, states))) if rule.condition.each else [rule]
    return found


def _noted(rule: Rule, states: Mapping[str, State]) -> list[str]:
    return [name for name in states if name.startswith(f"{rule.name}[") and name.endswith("]")]


def _keys_of(rule: Rule, names: Iterable[str]) -> Sequence[str]:
    return [name[len(rule.name) + 1 : -1] for name in names]


def _writable(rule: Rule, keys: Iterable[str]) -> list[Rule]:
    found = list[Rule]()
    for key in keys:
        try:
            found.append(of_key(rule, key, {}))
        except RuleError:
            continue
    return found
