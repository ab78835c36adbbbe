"""The loop that evaluates alert rules: it reads visible values, decides after each release, stores states.

It may read public keys and write the keys of alerts; it may not read secret keys.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace

from dphist.arrays import Int64Array
from stream_app.core.alerts.rules import Rule
from stream_app.core.alerts.states import (
    Moment,
    Outcome,
    State,
    begin_watch,
    evaluate,
    generation_of,
    noted_rules,
    retire,
    rules_now,
    watch_silence,
)
from stream_app.core.answers.answered import Missing
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.succession import continued, is_complete
from stream_app.core.answers.visible import visible_epochs, width_of
from stream_app.core.ledger import statement
from stream_app.core.promise import Statement
from stream_app.core.records import PublicState
from stream_app.core.segments.names import base_of, by_stream, next_name
from stream_app.core.segments.visible_costs import KnownEpochs
from stream_app.loops.clocks import own_clock_us
from stream_app.outage import Outage
from stream_app.ports import OperatorError
from stream_app.ports.alerts import AlertStore
from stream_app.ports.reader import PublicReader
from stream_app.source_ledger import ledgers_of_all_names

log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.2
LONGEST_PAUSE_S = 5.0
PUT_BACK_US = 300_000_000  # in which workers put back what a restored store lacks
RELEASES_A_STEP = 256  # decided between two writes; after a crash, at most these are decided again


class AlertWatcher:
    """Evaluates every rule once after every release.

    Args: looked, called whenever all rules have been compared with the newest releases.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        reader: PublicReader,
        store: AlertStore,
        looked: Callable[[], None] = lambda: None,
    ) -> None:
        self._has_looked = looked
        self._rules: dict[str, list[Rule]] = defaultdict(list)
        for rule in rules:
            self._rules[rule.condition.stream].append(rule)
        self._all = tuple(rules)
        self._reader, self._store = reader, store
        self._views: dict[str, StreamView] = {}
        self._past: dict[str, StreamView] = {}  # earlier segments that rules look back to
        self._states: dict[str, State] = {}
        self._decided: dict[str, int] = {}  # by segment: the last release that was evaluated
        self._at: dict[str, str] = {}  # by stream: the segment that its rules read now
        # By stream: the last release that was seen, and since when no restore was noticed.
        self._steady: dict[str, tuple[int, int]] = {}
        self._loaded = False
        self._known = KnownEpochs()
        self._learned: set[str] = set()  # the streams whose epochs this look has read

    async def run(self) -> None:
        """Watch until cancelled. If the store is unreachable, try again."""
        pause_s = LOOK_EVERY_S
        outage = Outage(log, "alerts")
        while True:
            try:
                await self.look()
                self._has_looked()
                outage.over()
                pause_s = LOOK_EVERY_S
            except OSError as failure:
                kind = type(failure).__name__  # a client's message may hold a password
                outage.failed(f"redis.api_url or redis.alerts_url does not answer ({kind}), rules wait")
                self._loaded = False  # a write whose answer was lost may have happened
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            await asyncio.sleep(pause_s)

    async def look(self) -> None:
        """Evaluate the rules on every release that became visible since the last call. Raises: OSError."""
        if not self._loaded:
            await self._load()
        self._learned.clear()
        stored = frozenset(await self._reader.streams())
        for stream in self._rules:
            name: str | None = await self._generation(stream, stored)
            while name is not None:
                while await self._step(name):
                    pass
                last, name = name, await self._next(name, stored)
            await self._silence(last)

    async def _load(self) -> None:
        stored, self._decided = await self._store.load()
        self._at.clear()
        self._states = {name: State.from_json(text) for name, text in stored.items()}
        rules = noted_rules(self._all, self._states)
        outcome = retire(rules, self._states, self._decided, own_clock_us())
        for stream, of_stream in _by_stream(outcome, self._states).items():
            seq = self._decided.get(stream)
            if seq is not None:
                await self._commit(stream, seq, seq, of_stream)
        self._loaded = True

    async def _generation(self, stream: str, stored: Set[str]) -> str:
        """Return the segment of a stream that its rules read: the last one that was evaluated.

        Without one it is the newest that has released something. Args: stored, the streams in the store.
        """
        if stream not in self._at:
            own = by_stream(stored).get(stream, [])
            decided = [name for name in own if name in self._decided]
            for name in [] if decided or len(own) < 2 else reversed(own):
                state = await self._reader.public_state(name)
                if state is not None and state.visible_seq > 0:
                    decided = [name]
                    break
            self._at[stream] = (decided or own or [stream])[-1 if decided else 0]
        return self._at[stream]

    async def _next(self, name: str, stored: Set[str]) -> str | None:
        """Return the next segment once this one has no more releases; None until then.

        Its rules go on with the first release there, so no release is left out at the edge.
        """
        following = next_name(name)
        if following not in stored:
            return None
        public, view = await self._reader.public_state(following), self._views.get(name)
        if public is None or public.visible_seq == 0:
            return None
        if name in stored and not public.trimmed:
            after = await self._view_at(following, public, 0)
            if view is None or not is_complete(view, after):
                return None
        if following not in self._decided:
            await self._commit(following, None, 0, Outcome({}, []))
        self._at[base_of(name)] = following
        return following

    async def _step(self, stream: str) -> bool:
        """Evaluate the rules on the next releases of a segment; return whether there are more."""
        public = await self._reader.public_state(stream)
        self._known.learn(stream, public)
        if public is None:
            return False
        before = self._decided.get(stream)
        if before is None:  # rules start at the newest release: old releases raise no alert
            before = public.visible_seq
            await self._commit(stream, None, before, Outcome({}, []))
        if before < (last := public.trimmed.seq):
            await self._commit(stream, before, last, Outcome({}, []))
            log.warning(
                "stream %s: retention removed releases %d to %d before its rules were evaluated on them",
                *(stream, before + 1, last),
            )
            before = last
        view = self._views.get(stream)
        if view is None or view.visible_seq != before or not view.continues_to(public):
            view = self._views[stream] = await self._view_at(stream, public, before)
            view.statement = await self._stated(view)
        await self._begin_watch(stream, view)
        upto = min(public.visible_seq, before + RELEASES_A_STEP)
        if upto <= before:
            return False
        target = state_at(public, upto)
        columns = {
            (want.epoch, want.table): (want.first, rows)
            for want, rows in await self._read(stream, view, target)
        }
        view.statement = await self._stated(view)
        await self._read_past(stream, view)
        total = Outcome({}, [])
        for seq in range(before + 1, upto + 1):
            state = state_at(public, seq)
            view.extend(state, [(want, _part(columns, want)) for want in view.missing(state)])
            states = self._states | total.states
            history = view.following(continued(view, self._past.get))
            decided = evaluate(self._rules_now(view, states), states, history, own_clock_us())
            total.states.update(decided.states)
            total.transitions.extend(decided.transitions)
        await self._commit(stream, before, upto, total)
        return upto < public.visible_seq

    async def _read_past(self, stream: str, view: StreamView) -> None:
        """Read the earlier segments of a stream that its rules look back to. Raises: OSError."""
        name, after = base_of(stream), view
        back_us = max(rule.condition.looks_back_us for rule in self._rules[name])
        needed_us = (view.released_until_us or view.start_us) - back_us
        while back_us and after.start_us > needed_us:
            edge = after.strategy.edge
            if edge is None or not edge.within:
                return  # readers of this stream may have no access to another one
            if (before := edge.before) not in self._past or not is_complete(self._past[before], after):
                public = await self._reader.public_state(before)
                if public is None:
                    return
                self._past[before] = await self._view_at(before, public, public.visible_seq)
            after = self._past[before]

    async def _stated(self, view: StreamView) -> Statement:
        """Return the statement of a view's source, as readers may know it now."""
        source = view.strategy.source
        ledgers = await ledgers_of_all_names(self._reader, source)
        await self._learn(source, {entry.stream for ledger in ledgers for entry in ledger})
        return statement(source, self._known.counted(source, ledgers))

    async def _learn(self, source: str, measured: set[str]) -> None:
        """Read the epochs of all streams that may have measured a source, once per look. Raises: OSError.

        Args: measured, the streams in its ledgers; a log's ledger also lists streams over its group.
        """
        streams = await self._reader.streams()
        self._known.forget_all_but(streams)
        names = [
            name
            for name in streams
            if name not in self._learned
            and (name in measured or self._known.source_of(name) in (None, source))
        ]
        states = await asyncio.gather(*map(self._reader.public_state, names), return_exceptions=True)
        for name, state in zip(names, states, strict=True):
            if isinstance(state, OperatorError):
                self._known.unreadable(name)  # a newer build writes it; what is known of it still counts
            elif isinstance(state, BaseException):
                raise state
            else:
                self._known.learn(name, state)
            self._learned.add(name)

    async def _begin_watch(self, stream: str, view: StreamView) -> None:
        """Store which rules are watched from the view's release on."""
        until_us, seq = view.released_until_us, self._decided[stream]
        if until_us is None:
            return
        moment = Moment(stream, seq, until_us, own_clock_us(), view.private, view.declared)
        begun = begin_watch(self._rules_now(view, self._states), self._states, moment)
        if begun.states:
            await self._commit(stream, seq, seq, begun)

    def _rules_now(self, view: StreamView, states: Mapping[str, State]) -> list[Rule]:
        """Return the rules of a stream; a rule on each key becomes one rule for every shown key."""
        return rules_now(self._rules[view.name], view.declared.keys, states)

    async def _silence(self, stream: str) -> None:
        view, seq = self._views.get(stream), self._decided.get(stream)
        if view is not None and seq is not None and view.released_until_us is not None:
            moment = Moment(stream, seq, view.released_until_us, own_clock_us(), view.private)
            rules = self._of_silence(stream, moment)
            if watch_silence(rules, self._states, moment).transitions:
                view.statement = await self._stated(view)  # the source may cost more since its last release
                moment = replace(moment, private=view.private)
                await self._commit(stream, seq, seq, watch_silence(rules, self._states, moment))

    def _of_silence(self, stream: str, moment: Moment) -> list[Rule]:
        """Return the no_data rules that can be decided now.

        After a start, and after a restore, the newest releases may be missing until a worker has put them
        back. A rule waits for them as long as its own length, but not for longer than ``PUT_BACK_US``.
        """
        seen, since_us = self._steady.get(stream, (moment.seq, moment.now_us))
        if moment.seq < seen:
            since_us = moment.now_us
        self._steady[stream] = moment.seq, since_us
        lengths = ((rule, rule.condition.window_us) for rule in self._rules[base_of(stream)])
        waited_us = moment.now_us - since_us
        return [rule for rule, us in lengths if us is not None and waited_us >= min(us, PUT_BACK_US)]

    async def _commit(self, stream: str, before: int | None, seq: int, outcome: Outcome) -> None:
        """Store the decisions. Raises: ConnectionError if another watcher stored others first."""
        states = {name: state.to_json() for name, state in outcome.states.items()}
        if await self._store.commit(stream, before, seq, states, outcome.transitions):
            self._states |= outcome.states
            self._decided[stream] = seq
        else:
            self._loaded = False
            raise ConnectionError("alerts: another watcher decided first")

    async def _view_at(self, stream: str, public: PublicState, seq: int) -> StreamView:
        state = state_at(public, min(seq, public.visible_seq))
        view = StreamView(state.strategy, state.earlier)
        view.extend(state, await self._read(stream, view, state))
        return view

    async def _read(
        self, stream: str, view: StreamView, state: PublicState
    ) -> list[tuple[Missing, Int64Array]]:
        return [
            (want, await self._reader.tile_rows(stream, *want, width_of(state, want)))
            for want in view.missing(state)
        ]


def state_at(public: PublicState, seq: int) -> PublicState:
    """Return the public state as it was after an earlier release."""
    return replace(public, epochs=visible_epochs(public.epochs, seq), visible_seq=seq)


def _part(columns: dict[tuple[int, str], tuple[int, Int64Array]], want: Missing) -> Int64Array:
    first, rows = columns[want.epoch, want.table]
    return rows[want.first - first : want.first - first + want.rows]


def _by_stream(outcome: Outcome, before: Mapping[str, State]) -> dict[str, Outcome]:
    """Return the part of an outcome that is about each segment of a stream.

    Args: before, the states that it changes.
    """
    found: dict[str, Outcome] = defaultdict(lambda: Outcome({}, []))
    for rule, state in outcome.states.items():
        last = state.last or before[rule].last
        assert last is not None  # only known rules are retired
        found[generation_of(last)].states[rule] = state
    for transition in outcome.transitions:
        found[generation_of(transition)].transitions.append(transition)
    return found
