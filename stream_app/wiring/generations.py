"""The generations of all configured streams, as a worker runs them, and the notes that outlive the store."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from urllib.parse import quote, unquote

from stream_app.config import Settings, StreamSettings
from stream_app.config.settings import OutputSettings
from stream_app.config.source import all_ledgers_of
from stream_app.core.declaration import Declaration
from stream_app.core.instants import format_instant
from stream_app.core.records import LedgerEntry, Reply
from stream_app.core.segments.names import base_of, number_of, topic_of
from stream_app.core.strategy import canonical_json
from stream_app.durable import secret_directory, write_durably
from stream_app.loops.generations import Generations, Next, Witnessed, generations_of
from stream_app.ports import Clock, OperatorError, OutsideLedger, Store
from stream_app.ports.errors import StreamError, about
from stream_app.stored_format import GENERATIONS, mark_directory
from stream_app.together import each_to_its_end
from stream_app.wiring.known_logs import with_known_logs
from stream_app.wiring.witnessed import Witnesses, notes_text

_LONGEST_SLEEP_S = 60.0  # the clock may be set meanwhile
_AGAIN_US = 60_000_000  # after a start: it must not stop all streams again and again

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Turned:
    """The configuration with each stream's generations.

    Args: running, the settings of what a worker runs now; found, the generations of each stream; now_us, when
        the store was asked.
    """

    running: Settings
    found: tuple[Generations, ...]
    now_us: int

    @property
    def following(self) -> tuple[Next, ...]:
        """The generations that are wanted next."""
        return tuple(one.next for one in self.found if one.next is not None)

    @property
    def is_due(self) -> bool:
        """Whether a beginning is to be stored now, if it is not."""
        return bool(self._due)

    @property
    def everything(self) -> Settings:
        """The settings of what runs now and of what is wanted next: what a start checks."""
        return _settings(self.running, _streams(self.found, self.following))

    @property
    def beginning(self) -> Settings:
        """The settings of what runs, once what is due is stored."""
        return _settings(self.running, _streams(self.found, self._due))

    @property
    def due(self) -> list[str]:
        """The names of the generations whose beginning is to be stored now, if it is not."""
        return [following.stream.name for following in self._due]

    @property
    def _due(self) -> list[Next]:
        return [following for following in self.following if following.is_due(self.now_us)]

    def notes(self) -> dict[str, bytes]:
        """Return, for each generation, the settings of all generations up to it, as output topics keep them.

        A stream of which no later generation runs or is due has none.
        """
        due, found = self._due, dict[str, bytes]()
        for one in self.found:
            beginning = [one.next.stream] if one.next in due and one.next is not None else []
            streams = [*one.ended, *one.running, *beginning]
            streams.sort(key=lambda stream: number_of(stream.name))
            if streams and number_of(streams[-1].name) > 1:
                declared = {stream.name: stream.declared for stream in streams}
                for number, name in enumerate(declared, start=1):
                    found[name] = notes_text(dict(islice(declared.items(), number)))
        return found

    @property
    def known(self) -> Settings:
        """The settings of all generations that the store or this machine knows, also of those that ended."""
        streams = (one for found in self.found for one in (*found.ended, *found.running))
        return _settings(self.running, list(streams))

    def without(self, refused: Mapping[str, str]) -> Turned:
        """Return the configuration without generations that cannot begin. Args: refused, why, by name.

        Raises: OperatorError if no stream is left.
        """
        found = tuple(one.without(refused) for one in self.found)
        streams = _streams(found, ())
        turned = replace(self, running=_settings(self.running, streams), found=found)
        if refused and not streams:
            raise OperatorError(f"stream {'; '.join(turned.refused)}")
        return turned

    def leaving(self, halted: Container[str]) -> Turned:
        """Return the configuration without streams that do not run: no end is stored for them."""
        found = tuple(one for one in self.found if not halted or base_of(one.newest) not in halted)
        return replace(self, running=_settings(self.running, _streams(found, ())), found=found)

    @property
    def refused(self) -> list[str]:
        """A line about each generation that cannot begin."""
        return [one.refused for one in self.found if one.refused is not None]

    def lines(self) -> list[str]:
        """Return what begins with a generation, and when, a line each."""
        return [line + self._topic(one) for one in self.found for line in one.lines(self.now_us)]

    def log(self) -> None:
        """Log what changes, and when; and what ends without anything that follows."""
        for line in (*self.lines(), *self.refused):
            log.warning("stream %s", line)
        for found in self.found:
            if found.abandoned_us is not None:
                log.warning(
                    "stream %s: it ends at %s, and this configuration does not say how it goes on; start a "
                    "worker with the configuration that was to follow, or change this one",
                    *(base_of(found.newest), format_instant(found.abandoned_us)),
                )

    def _topic(self, one: Generations) -> str:
        output = self.everything.output_of(one.newest if one.next is None else one.next.stream.name)
        return "" if output is None else f"; it writes to topic {output.topic}"

    async def is_overtaken(self, store: Store) -> bool:
        """Return whether another worker has meanwhile opened a generation that this one is about to begin."""
        return any([await store.load(one.stream.name) is not None for one in self._due])

    async def store_due(self, store: Store) -> Settings | None:
        """Store what is due and return the settings to run; None: another worker stored something else.

        It cannot be taken back, so the caller makes all checks of a start before (``check_streams``).
        Guarantee: the note of a generation is durable before the end of the one before it is stored, and
            that end is stored before the generation is in the ledger.
        """
        due = self._due
        late = list[Next]()
        streams = _streams(self.found, due)
        several = {base_of(stream.name) for stream in streams if number_of(stream.name) > 1}
        # Those that ended, too: a machine that joined later needs them after a loss of the store.
        for stream in (*(ended for one in self.found for ended in one.ended), *streams):
            if base_of(stream.name) in several:
                await asyncio.to_thread(_note, self.running, stream)
        for following in due:
            before = following.before
            if await store.load(before.name) is None:
                continue  # its own loops store the end when they open it
            until_bin = int(before.declared.time.binning.bin_of([following.edge_us])[0])
            reply = await store.end_at(before.name, until_bin)
            if reply in (Reply.DONE, Reply.ALREADY):
                continue
            # It did not begin: were the note kept, a stream that ends later could go on by it.
            await asyncio.to_thread(_forget, self.running, following.stream)
            if reply is not Reply.SEALED:
                return None
            late.append(following)
            log.warning("stream %s", following.too_late())
        return _settings(self.running, _streams(self.found, [one for one in due if one not in late]))

    async def until_next(self, running: Settings, clock: Clock) -> None:
        """Wait until the beginning of a generation is to be stored; for ever if none is wanted.

        Args: running, what runs now. A beginning that came too late for its instant is tried again later.
            clock, of the store: a worker whose clock is wrong stores no end.
        """
        names, again_us = {stream.name for stream in running.streams}, self.now_us + _AGAIN_US
        wanted = [one for one in self.following if one.stream.name not in names]
        ahead = [again_us if one.is_due(self.now_us) else one.stores_us for one in wanted]
        while ahead:
            left_us = 1_000_000
            with suppress(OSError):  # the loops wait for the store and its clock, and say so
                left_us = min(ahead) - await clock.now_us()
            if left_us <= 0:
                return
            await asyncio.sleep(min(left_us / 1e6, _LONGEST_SLEEP_S))
        await asyncio.Event().wait()

    async def until_begun_elsewhere(self, running: Settings, store: Store) -> set[str]:
        """Wait until another worker has begun a generation that this one does not run; return its streams.

        A worker that ran on without it would keep the partitions for which the generation waits.
        """
        newest = dict[str, int]()
        for stream in running.streams:
            newest[base_of(stream.name)] = max(number_of(stream.name), newest.get(base_of(stream.name), 0))
        while True:
            await asyncio.sleep(_LONGEST_SLEEP_S)
            begun = set[str]()
            with suppress(OSError):
                for source in dict.fromkeys(_sources(running)):
                    for name in {entry.stream for entry in await store.ledger(source)}:
                        is_later = number_of(name) > newest.get(base_of(name), number_of(name))
                        if is_later and await store.load(name) is not None:  # its settings are known
                            begun.add(name)
            for name in sorted(begun):
                log.warning(
                    "stream %s: another worker began its generation %d; this worker goes on with it until it "
                    "starts again with its own configuration",
                    *(base_of(name), number_of(name)),
                )
            if begun:
                return {base_of(name) for name in begun}


async def with_generations(
    settings: Settings,
    store: Store,
    outside: OutsideLedger | None,
    now_us: int,
    witnessed: Witnessed | None = None,
    elsewhere: Collection[str] = (),
) -> Turned:
    """Return the generations of each configured stream. It stores nothing.

    Args: witnessed, what the witnesses say; None: only those in files are asked, for commands over a store
        that a worker keeps; elsewhere, streams that another worker took to a generation since this process
        started: they go on as stored. Raises: OperatorError, as ``generations_of``; OSError.
    """
    settings = await with_known_logs(settings, store, outside)
    asked = witnessed or Witnesses(settings, topics=False)
    notes = await asyncio.to_thread(_notes, settings.state_dir, {one.name for one in settings.streams})
    kept = () if outside is None else await outside.entries()
    sources = dict.fromkeys(_sources(settings))
    # By the streams that they are about: with a thousand streams, each would look at the entries of all.
    ledgers = {source: _by_stream([*await store.ledger(source), *kept], source) for source in sources}

    def entries(stream: StreamSettings) -> list[LedgerEntry]:
        about = (stream.name, stream.declared.successor_of)
        names = all_ledgers_of(stream, settings)
        return [entry for name in names for one in about if one for entry in ledgers[name].get(one, ())]

    async def look(stream: StreamSettings) -> Generations:
        with about(stream.name):
            return await generations_of(store, stream, notes, entries(stream), now_us, asked)

    found = tuple(
        replace(one, next=None) if base_of(one.newest) in elsewhere else one
        for one in await each_to_its_end(*map(look, settings.streams))
    )
    ended = frozenset(stream.name for one in found for stream in one.ended)
    return Turned(_settings(replace(settings, ended=ended), _streams(found, ())), found, now_us)


def _by_stream(entries: Iterable[LedgerEntry], source: str) -> dict[str, list[LedgerEntry]]:
    """Return a source's entries by the configured names of the stream and of the one that it continues."""
    found = defaultdict[str, list[LedgerEntry]](list)
    for entry in entries:
        if entry.source == source:
            for name in {base_of(entry.stream), base_of(entry.successor_of or entry.stream)}:
                found[name].append(entry)
    return found


def _sources(settings: Settings) -> Iterable[str]:
    return (name for stream in settings.streams for name in all_ledgers_of(stream, settings))


def _streams(found: Iterable[Generations], beginning: Sequence[Next]) -> list[StreamSettings]:
    """Return the streams that run if these generations begin, each one after the one before it."""
    streams = list[StreamSettings]()
    for one in found:
        if one.next is None or one.next not in beginning:
            streams += one.running
        else:
            *earlier, _ = one.running
            streams += [*earlier, replace(one.next.before, until_us=one.next.edge_us), one.next.stream]
    return streams


def _settings(settings: Settings, streams: Sequence[StreamSettings]) -> Settings:
    """Return settings with these streams. Each generation after the first writes to a separate topic."""
    outputs = {output.stream: output for output in settings.outputs}
    for stream in streams:
        output, number = outputs.get(base_of(stream.name)), number_of(stream.name)
        if output is not None and number > 1:
            outputs[stream.name] = OutputSettings(stream.name, topic_of(output.topic, number), output.cluster)
    return replace(settings, streams=tuple(streams), outputs=tuple(outputs.values()))


def _note(settings: Settings, stream: StreamSettings) -> None:
    """Note the settings of a generation beside its witness, without the place of its log."""
    path, text = _note_of(settings, stream), canonical_json(stream.declared.plain())
    if not path.exists() or path.read_bytes() != text:
        mark_directory("state.dir", secret_directory(path.parent), GENERATIONS)
        write_durably(path, [text])


def _forget(settings: Settings, stream: StreamSettings) -> None:
    """Delete the note of a generation that did not begin."""
    _note_of(settings, stream).unlink(missing_ok=True)


def _note_of(settings: Settings, stream: StreamSettings) -> Path:
    return _directory(settings.state_dir) / f"{quote(stream.name, safe='')}.json"


def _notes(state_dir: Path, streams: Collection[str]) -> dict[str, Declaration]:
    """Return what this machine has noted of the generations of these streams, by name.

    Raises: OperatorError, one line. A note of a stream that has left the configuration is not read.
    """
    files = {unquote(file.stem): file for file in sorted(_directory(state_dir).glob("*.json"))}
    return {name: _read_note(name, file) for name, file in files.items() if base_of(name) in streams}


def _read_note(name: str, file: Path) -> Declaration:
    try:
        return Declaration.of(json.loads(file.read_bytes()))
    except (OSError, ValueError) as failure:
        raise StreamError(
            f"{file}: the settings of {name} cannot be read ({failure}); bring the file back from a copy of "
            "state.dir, or, if Redis has lost nothing, remove it",
            base_of(name),
        ) from None


def _directory(state_dir: Path) -> Path:
    return state_dir / "witness"


async def of_all_generations(
    settings: Settings, store: Store, witnessed: Witnessed | None = None
) -> Settings:
    """Return the settings of every generation that the store or this machine knows, for commands.

    Args and Raises: as ``with_generations``.
    """
    return (await with_generations(settings, store, None, time.time_ns() // 1_000, witnessed)).known
