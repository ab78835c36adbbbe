"""The states of rules (pending, firing, resolved) and their transitions: pure functions of releases."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from stream_app.core.alerts.conditions import OF_AMOUNTS, Condition, RuleError
from stream_app.core.alerts.ranges import places_of
from stream_app.core.alerts.readings import Reading, readings
from stream_app.core.alerts.rules import Rule, of_key
from stream_app.core.answers.query import StreamView
from stream_app.core.counting.keys import KeyList
from stream_app.core.declaration import Declaration
from stream_app.core.meaning import counted_in, meaning_of, meaning_of_amounts
from stream_app.core.segments.names import base_of, generation, number_of

Phase = Literal["inactive", "pending", "firing"]
Change = Literal["pending", "firing", "resolved", "inactive"]

Transition = dict[str, Any]  # as it is stored and sent

KEPT_FOR_READERS = 1_000  # transitions per stream
_OF_RULES = {"rule", "condition", "confidence", "stream", "generation", "quiet", "unit", "meaning"}
_FOR_READERS = _OF_RULES | {"kind", "seq", "at_us", "since_us", "value", "stderr", "against"}


@dataclass(frozen=True, slots=True)
class State:
    """The state of a rule.

    Args:
        fingerprint: identifies the rule that led to this state.
        since_us: when its condition began to hold, in the time of the log.
        fired_us: when it fired, by the clock of the watching process.
        last: the transition that led to this state; None if the rule was removed, or is not watched yet. If
            it never changed state: the moment since which it is watched (``never_changed``). Both hold this
            moment as ``watched_us``, in the time of the log.
    """

    fingerprint: str
    phase: Phase = "inactive"
    since_us: int = 0
    fired_us: int = 0
    last: Transition | None = None

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, text: bytes) -> State:
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class Moment:
    """When a decision is made: after release ``seq``, which ends at ``at_us``; the clock reads ``now_us``.

    Args: stream, as the store names its generation; declared, of the stream; None for decisions
        about no value.
    """

    stream: str
    seq: int
    at_us: int
    now_us: int
    private: bool
    declared: Declaration | None = None


def trial(stream: str, now_us: int) -> Transition:
    """Return a made-up transition that tests targets. Args: stream, whose page it links to."""
    rule = Rule(
        name="test",
        text="none",
        condition=Condition(measure="no_data", stream=stream),
        summary="This is a test: no rule fired. It was sent by stream-app alerts test.",
    )
    return _transition(rule, Moment(stream, 0, now_us, now_us, True), "firing", now_us, now_us, None)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The changed states by rule, and the transitions to send, in order."""

    states: dict[str, State]
    transitions: list[Transition]


def generation_of(transition: Mapping[str, Any]) -> str:
    """Return the generation of a stream that a transition follows from, as the store names it."""
    return generation(transition["stream"], transition.get("generation", 1))


def for_readers(transition: Mapping[str, Any]) -> Transition:
    """Return the public part of a transition: the fields that depend on released rows and the rule only.

    The time of the decision is left out, because it depends on how busy the watcher was.
    """
    return {name: value for name, value in transition.items() if name in _FOR_READERS}


def evaluate(rules: Sequence[Rule], states: Mapping[str, State], view: StreamView, now_us: int) -> Outcome:
    """Return the transitions that a release causes in its stream's rules, except no_data (``watch_silence``).

    Args: view, with its earlier segments if rules compare with them.
    """
    history, view = view, view.own
    outcome, until_us = Outcome({}, []), view.released_until_us
    if until_us is None:
        return outcome
    moment = Moment(view.strategy.stream, view.visible_seq, until_us, now_us, view.private, view.declared)
    valued = [rule for rule in rules if rule.condition.measure != "no_data"]
    for rule, reading in zip(valued, readings(valued, history), strict=True):
        before = _state(rule, states)
        if reading is not None:
            _note(outcome, rule, before, moment, _valued_phase(rule, before, reading, moment), reading)
        elif view.declared.finds_keys and places_of(rule.condition, view.declared.cells) == ():
            _note(outcome, rule, before, moment, "inactive")  # its key is not shown any more
    return outcome


def begin_watch(rules: Iterable[Rule], states: Mapping[str, State], moment: Moment) -> Outcome:
    """Return the first states of rules that are not watched yet, so that readers see all rules."""
    outcome = Outcome({}, [])
    for rule in rules:
        if _state(rule, states).last is None:
            begun = _transition(rule, moment, "inactive", moment.at_us, 0, None)
            begun |= {"never_changed": True, "watched_us": moment.at_us}
            outcome.states[rule.name] = State(rule.fingerprint, since_us=moment.at_us, last=begun)
    return outcome


def watch_silence(rules: Iterable[Rule], states: Mapping[str, State], moment: Moment) -> Outcome:
    """Return the transitions of the no_data rules over a stream, which time alone causes."""
    outcome = Outcome({}, [])
    for rule in rules:
        if rule.condition.measure == "no_data":
            assert rule.condition.window_us is not None
            silent = moment.now_us - moment.at_us > rule.condition.window_us
            _note(outcome, rule, _state(rule, states), moment, "firing" if silent else "inactive")
    return outcome


def retire(
    rules: Iterable[Rule], states: Mapping[str, State], decided: Mapping[str, int], now_us: int
) -> Outcome:
    """Return the outcome that ends the alerts of rules that were removed or changed.

    Args: decided, per stream the last release that the rules were evaluated on.
    """
    outcome, current = Outcome({}, []), {rule.name: rule.fingerprint for rule in rules}
    for name, state in states.items():
        last = state.last
        if last is not None and last.get("never_changed") and name not in current:
            outcome.states[name] = State(state.fingerprint)  # nothing is known of it, so readers need no line
        if last is None or state.phase == "inactive" or current.get(name) == state.fingerprint:
            continue
        kind: Change = "resolved" if state.phase == "firing" else "inactive"
        stream = generation_of(last)
        seq = decided.get(stream, last["seq"])
        key = _key(state.fingerprint, stream, seq, f"retired-{kind}")
        transition = last | {"kind": kind, "key": key, "seq": seq, "now_us": now_us}
        outcome.transitions.append(transition)
        outcome.states[name] = replace(state, phase="inactive", last=transition)
    return outcome


def _valued_phase(rule: Rule, state: State, reading: Reading, moment: Moment) -> Phase:
    if state.phase == "firing":
        return "inactive" if reading.cleared else "firing"
    if not reading.past(rule) or (rule.quiet is not None and rule.quiet.hold(moment.at_us)):
        return "inactive"
    since_us = state.since_us if state.phase == "pending" else moment.at_us
    return "firing" if moment.at_us - since_us >= rule.for_us else "pending"


def _note(
    outcome: Outcome, rule: Rule, before: State, moment: Moment, phase: Phase, reading: Reading | None = None
) -> None:
    if phase == before.phase:
        return
    kind: Change = "resolved" if before.phase == "firing" else phase
    since_us = before.since_us if before.phase == "pending" else moment.at_us
    fired_us = moment.now_us if phase == "firing" else before.fired_us
    transition = _transition(rule, moment, kind, since_us, fired_us, reading)
    outcome.transitions.append(transition)
    watched = {name: at_us for name, at_us in (before.last or {}).items() if name == "watched_us"}
    outcome.states[rule.name] = State(rule.fingerprint, phase, since_us, fired_us, transition | watched)


def _state(rule: Rule, states: Mapping[str, State]) -> State:
    state = states.get(rule.name)
    return state if state is not None and state.fingerprint == rule.fingerprint else State(rule.fingerprint)


def _transition(
    rule: Rule, moment: Moment, kind: Change, since_us: int, fired_us: int, reading: Reading | None
) -> Transition:
    value, stderr = (None, None) if reading is None else reading.show()
    reach, against = (None, None) if reading is None else (reading.reach(), reading.against())
    return {
        "key": _key(rule.fingerprint, moment.stream, moment.seq, kind),
        "kind": kind,
        "rule": rule.name,
        "condition": rule.text,
        "confidence": rule.confidence,
        "stream": base_of(moment.stream),
        **({} if number_of(moment.stream) == 1 else {"generation": number_of(moment.stream)}),
        "seq": moment.seq,
        "at_us": moment.at_us,
        "now_us": moment.now_us,
        "since_us": since_us,
        "fired_us": fired_us,
        "value": value,
        "stderr": stderr,
        **({} if reach is None else {"reach": reach}),
        **({} if against is None else {"against": against}),
        **({} if rule.quiet is None else {"quiet": str(rule.quiet)}),
        **({"fires_us": since_us + rule.for_us} if kind == "pending" else {}),
        "unit": rule.condition.unit,
        "counted_in": counted_in(moment.declared),
        "meaning": _meaning(rule, moment.declared),
        "private": moment.private,
        "labels": dict(rule.labels),
        "summary": rule.summary,
    }


def _meaning(rule: Rule, declared: Declaration | None) -> str:
    """Return the meaning of the rule's value; empty if it counts every event, or has no value."""
    if declared is None:
        return ""
    if rule.condition.measure in OF_AMOUNTS:
        return meaning_of_amounts(declared, "mean" if rule.condition.measure == "mean" else "sum").counts
    meaning = meaning_of(declared)
    return "" if meaning.plain else meaning.counts


def _key(fingerprint: str, stream: str, seq: int, kind: str) -> str:
    """Return the idempotency key: the same for the same rule, release and change."""
    said = f"{fingerprint}|{stream}|{seq}|{kind}"
    return hashlib.sha256(said.encode()).hexdigest()[:32]


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
