"""What is computed once after each release, in the second process: every stream's entry in the overview, and
the present values of its alert rules."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from weakref import WeakKeyDictionary

from dphist.laws.interval import half_widths
from stream_app.api.admission.long_questions import Apart, ProcessEndedError
from stream_app.api.answers import sums
from stream_app.api.answers.formats import as_json
from stream_app.api.answers.ranges import edges_s
from stream_app.api.answers.streams import ends, next_release, so_far, summary
from stream_app.api.generations import Succession
from stream_app.api.replica import StreamReplica
from stream_app.api.replicas import Replicas
from stream_app.api.schemas import (
    DEFAULT_CONFIDENCE,
    CountQuery,
    Overview,
    OverviewStream,
    OverviewSum,
    PreparingStream,
    Sparkline,
)
from stream_app.api.sse import LOOK_S, whenever
from stream_app.core.alerts.conditions import known_condition
from stream_app.core.alerts.readings import Now, shown_now
from stream_app.core.alerts.states import State
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.sums import sum_series
from stream_app.core.instants import format_instant
from stream_app.core.kinds.tables import Span

MayRead = Callable[[str], bool]
Parts = tuple[str, ...]
SPARKLINE_POINTS = 60
MOST_RULES = 200  # of a stream; the others are listed without what they read
WAIT_S = 0.25


def overview_of(view: StreamView, states: Mapping[str, State], publish_every_us: int) -> OverviewStream:
    """Return a stream's entry in the overview. Args: states, those of the alert rules over the stream."""
    said = summary(view)
    epsilon, delta = so_far(view)
    return OverviewStream(
        **said.model_dump(),
        epsilon_so_far=epsilon,
        delta_so_far=delta,
        sum=_sum(view),
        sparkline=sparkline(view),
        next_release=next_release(view, publish_every_us),
        ends=ends(view),
        firing=[name for name, state in sorted(states.items()) if state.phase == "firing"],
        pending=[name for name, state in sorted(states.items()) if state.phase == "pending"],
    )


def sparkline(view: StreamView) -> Sparkline | None:
    """Return the counts of the last bins, except bins never measured; None before the first release."""
    first, stop = view.span
    if stop == first:
        return None
    if any(one.binning != view.own.binning for one in view.before):
        first = view.own.span.start  # bars of bins of one length
    points = sum_series if view.declared.amounts else StreamView.series
    found = points(view, "bin", Span(max(first, stop - SPARKLINE_POINTS), stop))
    halves = half_widths(found.laws, DEFAULT_CONFIDENCE)[0] + found.roundings
    return Sparkline(
        bins=1,
        end=edges_s(view, found.spans)["end"],
        value=found.values.tolist(),
        lower=(found.values - halves).tolist(),
        upper=(found.values + halves).tolist(),
    )


def _sum(view: StreamView) -> OverviewSum | None:
    """Return the sum of all amounts so far; None if there is none."""
    if view.declared.amounts is None or view.released_until_us is None:
        return None
    found = sums.total(view, CountQuery(confidence=DEFAULT_CONFIDENCE))
    return OverviewSum.model_validate(found.model_dump(include=set(OverviewSum.model_fields)))


class Glances:
    """The overview of every stream, computed once after each release or change of an alert."""

    def __init__(self, replicas: Replicas, apart: Apart, publish_every_us: int) -> None:
        self._replicas, self._apart, self._every_us = replicas, apart, publish_every_us
        self._alerts: dict[str, State] = {}
        self._by_stream: dict[str, dict[str, State]] = {}
        # Each stream's last entry, by the streams before it that the reader sees.
        self._last: WeakKeyDictionary[StreamReplica, dict[Parts, bytes]] = WeakKeyDictionary()

    async def all(self, may_read: MayRead) -> Overview:
        """Return the overview of all streams that a reader may see."""
        by_name = self._replicas.by_name
        successions = (Succession.of(replica, by_name, may_read) for replica in self._readable(may_read))
        texts = [await self.one(one) for one in successions]
        streams = [OverviewStream.model_validate_json(text) for text in texts if text is not None]
        preparing = [
            PreparingStream(stream=name, title=title)
            for name, title in self._replicas.preparing()
            if may_read(name)
        ]
        return Overview(now=format_instant(time.time_ns() // 1000), streams=streams, preparing=preparing)

    def follow(self, may_read: MayRead) -> AsyncIterator[bytes]:
        """Yield the current state of every stream, then a stream's new state whenever it changes.

        Each event holds the stream's whole state, so a reader that reconnects has missed nothing.
        """
        sent: dict[str, bytes] = {}

        async def news() -> bytes:
            changes, readable = [], self._readable(may_read)
            for replica in readable:
                text = await self.one(Succession.of(replica, self._replicas.by_name, may_read))
                if text is not None and sent.get(replica.name) != text:
                    sent[replica.name] = text
                    changes.append(b"event: stream\ndata: %b\n\n" % text)
            for gone in set(sent) - {replica.name for replica in readable}:
                del sent[gone]
                changes.append(b"event: gone\ndata: %b\n\n" % gone.encode())
            return b"".join(changes)

        return whenever(news, lambda: self._replicas.closed)

    async def one(self, asked: Succession) -> bytes | None:
        """Return a stream's entry in the overview, as JSON; None before the stream can be read.

        While a long question about the stream is answered, its previous state is repeated, so that one stream
        does not delay the others.
        """
        replica, states = asked.own, self._states(asked.own.name)
        parts = tuple(part.stream for part in asked.parts)
        if (view := asked.view) is None:
            return None
        phases = tuple(sorted((name, state.phase) for name, state in states.items()))
        key = ("overview", parts, view.trimmed, phases)
        if (found := replica.answers.get(key)) is not None:
            return found
        last = self._last.setdefault(replica, {})
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(LOOK_S if parts in last else None):
                    for part in asked.parts:
                        await held.enter_async_context(part.asked_apart)
            except TimeoutError:
                return last[parts]
            view = asked.view
            if view is None:
                return None
            if (found := replica.answers.get(key)) is None:
                seq, stated = view.visible_seq, view.statement
                found = await self._apart.of_view(view, as_json, overview_of, states, self._every_us)
                if asked.view is view and (view.visible_seq, view.statement) == (seq, stated):
                    replica.answers[key] = found
            last[parts] = found
            return found

    def _readable(self, may_read: MayRead) -> list[StreamReplica]:
        return [one for one in self._replicas.streams.shown() if may_read(one.stream)]

    def _states(self, stream: str) -> dict[str, State]:
        """Return the states of the rules over a stream; states are regrouped only when one has changed."""
        alerts = self._replicas.alerts
        if alerts is not self._alerts and alerts != self._alerts:
            self._by_stream = {}
            for name, state in alerts.items():
                if state.last is not None:
                    self._by_stream.setdefault(state.last["stream"], {})[name] = state
        self._alerts = alerts
        return self._by_stream.get(stream, {})


class RuleReadings:
    """The readings of the rules over every stream, kept until the next release.

    The number of requests does not change the work: there is one computation for a stream and a release.
    """

    def __init__(self, replicas: Replicas, apart: Apart) -> None:
        self._replicas, self._apart = replicas, apart

    async def of(self, replica: StreamReplica) -> Mapping[str, Now]:
        """Return the present values of the rules over a stream, by rule.

        It is empty if a long question about the stream is under way: a list of rules must not wait for it.
        Rules read the newest generation only.
        """
        names, texts = self._rules(replica.name)
        if not names or replica.view is None or self._replicas.streams.shown_as(replica.name) is not replica:
            return {}
        key, asked = ("readings", texts), Succession((replica,))
        if any(condition.against_past for text in texts if (condition := known_condition(text))):
            by_name = self._replicas.by_name
            asked = Succession.of(replica, by_name, lambda name: by_name[name].name == replica.name)
        if key not in replica.answers:
            try:
                async with AsyncExitStack() as held:
                    async with asyncio.timeout(WAIT_S):
                        for one in asked.parts:  # oldest first, as all questions
                            await held.enter_async_context(one.asked_apart)
                    await self._compute(asked, key)
            except (TimeoutError, ProcessEndedError):
                return {}
        found = replica.answers.get(key)
        shown = [] if found is None else [Now(*one) for one in json.loads(found)]
        return dict(zip(names, shown, strict=False))

    def _rules(self, stream: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        lasts = (state.last for _, state in sorted(self._replicas.alerts.items()))
        own = [last for last in lasts if last is not None and last["stream"] == stream][:MOST_RULES]
        return tuple(last["rule"] for last in own), tuple(last["condition"] for last in own)

    async def _compute(self, asked: Succession, key: tuple[str, tuple[str, ...]]) -> None:
        view, replica = asked.view, asked.own
        if view is None or key in replica.answers:
            return
        seq = view.visible_seq
        found = await self._apart.of_view(view, readings_now, key[1])
        if replica.view is view.own and view.own.visible_seq == seq:
            replica.answers[key] = found


def readings_now(view: StreamView, texts: Sequence[str]) -> bytes:
    """Return the values of conditions at a view's release, as JSON: the fields of ``Now`` for each.

    A condition that this version cannot parse reads nothing.
    """
    parsed = [known_condition(text) for text in texts]
    shown = iter(shown_now([one for one in parsed if one is not None], view))
    return json.dumps([Now() if one is None else next(shown) for one in parsed]).encode()
