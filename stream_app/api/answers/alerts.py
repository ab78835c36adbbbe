"""Answer questions about alert rules: all rules, those over one stream, and their changes. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stream_app.api import schemas
from stream_app.api.answers.ranges import released
from stream_app.core.alerts.conditions import known_condition
from stream_app.core.alerts.readings import Now
from stream_app.core.alerts.states import KEPT_FOR_READERS, State
from stream_app.core.answers.query import StreamView
from stream_app.core.instants import format_instant

_OF_EVENTS = ("count", "sum", "rate")


def alerts(
    states: Mapping[str, State],
    private: Callable[[str], bool],
    now: Mapping[str, Now],
    refused: Mapping[str, list[str]],
) -> schemas.AlertList:
    """Return the states of all rules that are watched.

    Args: private, says whether a stream is private now; now, the values of rules at the last release;
        refused, how targets refused a rule's last notification.
    """
    return schemas.AlertList(
        alerts=[
            schemas.AlertAnswer(
                **last | {"private": last["private"] and private(last["stream"])},
                **times_of(last, format_instant),
                **reading_of(now, name),
                refused=refused.get(name, []),
                phase=state.phase,
                since=format_instant(state.since_us),
            )
            for name, state in sorted(states.items())
            if (last := state.last) is not None
        ]
    )


def times_of(last: Mapping[str, Any], instant: Callable[[int], Any]) -> dict[str, Any]:
    """Return when a rule changed, will fire, and began to be watched.

    None: it never changed, is not pending, or the time is not known.
    """
    changed = None if last.get("never_changed") else last["at_us"]
    fires = last.get("fires_us") if last["kind"] == "pending" else None
    times = {"changed": changed, "fires": fires, "watched": last.get("watched_us")}
    return {name: None if at_us is None else instant(at_us) for name, at_us in times.items()}


def reading_of(now: Mapping[str, Now], rule: str) -> dict[str, Any]:
    """Return the present value of a rule, if it is known."""
    found = now.get(rule, Now())
    return {f"{name}_now": value for name, value in found._asdict().items()}


def marks(
    view: StreamView,
    states: Mapping[str, State],
    now: Mapping[str, Now],
    refused: Mapping[str, list[str]],
) -> schemas.AlertMarks:
    """Return the rules over a stream: their thresholds and last changes.

    Args: now, the values of rules; refused, how targets refused a rule's last notification.
    """
    name = view.name
    lasts = [(state, state.last) for _, state in sorted(states.items()) if state.last is not None]
    found = [_mark(view, state, last, now, refused) for state, last in lasts if last["stream"] == name]
    return schemas.AlertMarks(**released(view), alerts=found)


def transitions(
    view: StreamView, kept: Sequence[bytes], states: Mapping[str, State]
) -> schemas.AlertTransitions:
    """Return the changes of the rules over a stream, up to the release that the view shows.

    Args: kept, the stream's last transitions, oldest first. A store of an older version keeps none; each
        rule's last transition is then taken from its state.
    """
    changed = (state.last for state in states.values() if state.last is not None)
    lasts = [last for last in changed if not last.get("never_changed")]
    every = [json.loads(text) for text in kept]
    own = view.name, view.generation
    every += [one for one in lasts if (one["stream"], one.get("generation", 1)) == own]
    distinct = {(one["rule"], one["seq"], one["kind"]): one for one in every}
    shown = [one for one in distinct.values() if one["seq"] <= view.visible_seq]
    found = sorted(shown, key=lambda one: int(one["seq"]))
    return schemas.AlertTransitions(
        **released(view),
        transitions=[schemas.AlertTransition(**one, at=one["at_us"] / 1e6) for one in found],
        kept=KEPT_FOR_READERS,
    )


def _mark(
    view: StreamView,
    state: State,
    last: dict[str, Any],
    now: Mapping[str, Now],
    refused: Mapping[str, list[str]],
) -> schemas.AlertMark:
    condition = known_condition(last["condition"])
    window_us = condition.window_us if condition else None
    threshold, events = condition.threshold if condition and not condition.against_past else None, None
    if condition is not None and threshold is not None and condition.measure in _OF_EVENTS:
        events = condition.events(threshold)
    return schemas.AlertMark(
        **last,
        phase=state.phase,
        measure=condition.measure if condition else last["condition"].partition("(")[0],
        window_bins=None if window_us is None else window_us // view.binning.bin_us,
        comparison=condition.comparison if condition else None,
        threshold=threshold,
        threshold_events=events,
        keys=list(condition.keys) if condition and not condition.without else [],
        not_keys=list(condition.keys) if condition and condition.without else [],
        level=condition.level if condition else None,
        since=state.since_us / 1e6,
        **times_of(last, lambda at_us: at_us / 1e6),
        **reading_of(now, last["rule"]),
        refused=refused.get(last["rule"], []),
    )
