"""Real workers count topics that differ by one hostile record. Their releases may differ by nothing else.

``python -m tests.e2e.differential`` tries every kind of hostile record and prints what it saw. It exits with
1 if anything but the hostile record differs. No noise is added. Last, the worker is killed (kill -9) over
streams that find keys. The simulator does the same in virtual time, under more faults.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
from redis import Redis

from deploy.kafka import broker
from deploy.ports import free_port
from stream_app.state.embedded import EmbeddedRedis
from tests.brokers import Topic
from tests.e2e.same_records import (
    BINS,
    DEFAULT_LOAD,
    GRACE_S,
    HEAVY_LOAD,
    HOSTILE_BIN,
    KILLS,
    PARTITIONS,
    Load,
    Pair,
    Registry,
    TooSlow,
    Writer,
)
from tests.e2e.service import Follower, Service, get
from tests.e2e.topic_workers import REPOSITORY
from tests.ending import end_all_with_this_run
from tests.formats.dumps import dump
from tests.patience import PATIENCE_S
from tests.simulator.conditions import LEFT_OUT
from tests.simulator.hostile import HOSTILE, NEW_KEY, UNSEEN, WAITS, Form, Hostile
from tests.simulator.schedule import KEYS
from tests.stream_app.surfaces import every_path

PUBLISH_EVERY_S = 0.5
JITTER_S = 0.25  # from the instant when a row is visible until a follower has it, on a busy machine
ATTEMPTS = 8  # on an idle machine the first one counts
AT_ONCE = 5  # hostile kinds per service
SETTINGS = """
kafka: {{bootstrap_servers: "{servers}", group: "{group}"}}
redis: {{url: "{redis_url}", api_url: "{api_url}"}}
state: {{dir: ./state}}
api: {{port: {port}}}
publish_every: {publish_ms}ms
streams:
"""
STREAM = """  {name}:
    source: {{topic: {topic}, format: {format}}}
    time:
      {{field: time, format: us, bin: {bin_s}s, grace: {grace_ms}ms, epoch: 1h, max_ahead: 4s,
       first: "{first}"}}
    privacy: {{epsilon: 1.0e9, not_private: true{unit}}}
    keys: {{field: key, {keys}}}
    late: next_bin
{where}"""
LISTED = f"list: [{', '.join(KEYS)}], other: false"
FINDS = "discover: {{epsilon: 5.0e8, delta: 1e-9{per_user}}}"  # found when two users bring it
CAUSAL = "    tree: {release: causal}\n"
WHERE = f"    where: {{not: {{note: {LEFT_OUT}}}}}\n"
Letter = tuple[str, str]  # a record's name and why it was refused


class TimedFollower(Follower):
    """A follower that notes when each bin reached it."""

    def __init__(self, port: int, stream: str) -> None:
        self.told_at_s: dict[int, float] = {}
        super().__init__(port, stream)

    def _note(self, row: bytes) -> None:
        if "bin" in (fields := json.loads(row)):
            self.told_at_s.setdefault(int(fields["bin"]), time.time())
        super()._note(row)


@dataclass(frozen=True)
class Seen:
    """The outcome of one topic: counts of its bins by key, dead letters, and when bins became visible.

    Args: found, the instant that found each key; told, whether anything names the hostile record's new key.
    """

    cells: dict[str, list[int]]
    letters: set[Letter]
    told_at_s: dict[int, float]
    found: dict[str, str]
    told: bool


class Workers:
    """One worker after the other. Args: start, starts one."""

    def __init__(self, start: Callable[[], Service]) -> None:
        self._start = start
        self.all = [start()]

    @property
    def last(self) -> Service:
        """The worker that runs."""
        return self.all[-1]

    def kill(self) -> None:
        """kill -9 the worker, and start the next one."""
        self.last.kill_everything()
        self.all.append(self._start())


def seen_of(
    folder: Path, servers: str, pairs: Sequence[Pair], load: Load, module: str = "stream_app"
) -> dict[str, Seen]:
    """Run one service over one topic for each pair; return each topic's outcome, by the stream's name.

    Args: module, the Python module that is run as the worker.
    """
    named = {f"s{number}": pair for number, pair in enumerate(pairs)}
    with ExitStack() as stack:
        registry = Registry()
        stack.callback(registry.close)
        redis = stack.enter_context(EmbeddedRedis(folder / "redis"))
        topics = asyncio.run(_topics(servers, list(named)))
        port = free_port()
        (folder / "app.yaml").write_text(
            _configuration(servers, redis, port, topics, named, registry.url, load.bin_s)
        )
        here = {"PYTHONPATH": str(REPOSITORY)}
        command = ["worker", "--config", "app.yaml"]
        workers = Workers(lambda: stack.enter_context(Service(command, folder, here, module)))
        stack.enter_context(Service(["api", "--config", "app.yaml"], folder))
        followers = {stream: TimedFollower(port, stream) for stream in named}
        for follower in followers.values():
            stack.callback(follower.close)
        workers.last.until_true(
            lambda: all(one.told_at_s for one in followers.values()), "all streams are open"
        )
        start_s = (time.time() // load.bin_s + 1) * load.bin_s
        writer = Writer(servers, topics, named)
        writer.write(start_s, registry, load, workers.kill)
        first = int(start_s // load.bin_s)
        bins = range(first, first + BINS)
        if load.kills:
            again = bins[HOSTILE_BIN]
            workers.last.until_true(
                lambda: any(again in one.told_at_s for one in followers.values()), "it goes on"
            )
            workers.kill()
        workers.last.until_true(
            lambda: all(bins[-1] in one.told_at_s for one in followers.values()), "all bins are visible"
        )
        found = {stream: _found(port, stream, form) for stream, (form, _) in named.items()}
        cells = {
            stream: _cells(port, stream, [*keys, "other"] if keys else KEYS, bins, load.bin_s)
            for stream, keys in found.items()
        }
        said = [*_answers(port, named), *_dumped(redis)]
        assert workers.last.interrupt() == 0, workers.last.output
        said += [worker.output.encode() for worker in workers.all]
    said += [file.read_bytes() for file in folder.rglob("*") if file.is_file()]
    told = any(NEW_KEY.encode() in text for text in said)
    return {
        stream: Seen(
            cells[stream],
            _letters(folder, stream, writer),
            {bin: followers[stream].told_at_s[bin] for bin in bins},
            found[stream],
            told,
        )
        for stream in named
    }


def differences(pair: Pair, without: Seen, with_it: Seen, instants: bool = True) -> list[str]:
    """Describe what differs beyond the hostile record itself. Args: instants, whether to compare instants."""
    form, kind = pair
    own = "other" if form.finds else KEYS[0]
    found = [
        f"cells of key {key} differ"
        for key in without.cells
        if key != own and without.cells[key] != with_it.cells.get(key)
    ]
    if without.found != with_it.found:
        found.append(f"keys are found otherwise: {without.found}, {with_it.found}")
    if form.finds and with_it.told:
        found.append("the new key is named")
    if kind in UNSEEN and (
        without.cells != with_it.cells or HOSTILE in {name for name, _ in with_it.letters}
    ):
        found.append("a record that the condition leaves out is counted or refused")
    pairs = zip(without.cells[own], with_it.cells[own], strict=True)
    moved = [more - less for less, more in pairs if more != less]
    if form.finds and moved != [1]:
        found.append(f"the new key's record does not count once in {own}: {moved}")
    if moved not in ([], [1]) and not form.max_events:
        found.append(f"others of the hostile record's key moved: {moved}")
    if kind is Hostile.FUTURE_YEAR and (HOSTILE, "future") not in with_it.letters:
        found.append("the hostile record has no dead letter")
    letters = {letter for letter in with_it.letters if letter[0] != HOSTILE}
    if letters != without.letters:
        found.append(f"{len(letters ^ without.letters)} dead letters of others differ")
    late_s = delay_s(without, with_it)
    if instants and late_s > PUBLISH_EVERY_S + JITTER_S and kind not in WAITS:
        found.append(f"a bin is visible {late_s:.2f} s earlier or later")
    return found


def delay_s(without: Seen, with_it: Seen) -> float:
    """Return the largest time between the same bin's arrivals in two topics."""
    return max(abs(with_it.told_at_s[bin] - at_s) for bin, at_s in without.told_at_s.items())


def pairs_of(form: Form, kinds: Sequence[Hostile] | None = None) -> list[Pair]:
    """Return a form's pairs: one without a hostile record, and one for each kind of hostile record."""
    return [(form, None), *((form, kind) for kind in (form.kinds() if kinds is None else kinds))]


# A record of a key that no other record has. With the cap, all records of a user count.
NEW_KEYS = [
    *pairs_of(Form(finds=True), [Hostile.OTHER_KEY]),
    *pairs_of(Form(finds=True, max_events=1_000), [Hostile.OTHER_KEY]),
]


def tried(
    folder: Path, servers: str, pairs: Sequence[Pair], load: Load = DEFAULT_LOAD
) -> list[tuple[Pair, list[str], float]]:
    """Return, for each topic with a hostile record, what differs and the largest delay.

    A busy machine can hold up one topic alone. So a difference counts only if it appears in every attempt.
    Raises: AssertionError if in every attempt the machine was too slow to write the records in time.
    """
    found: list[tuple[Pair, list[str], float]] | None = None
    for attempt in range(ATTEMPTS):
        place = folder / f"attempt{attempt}"
        place.mkdir()
        with suppress(TooSlow):
            found = _compared(pairs, list(seen_of(place, servers, pairs, load).values()), not load.kills)
            if not any(words for _, words, _ in found):
                break
    assert found is not None, f"the machine was too slow to write the records in time, {ATTEMPTS} times"
    return found


def _compared(
    pairs: Sequence[Pair], seen: Sequence[Seen], instants: bool = True
) -> list[tuple[Pair, list[str], float]]:
    clean = {form: found for (form, kind), found in zip(pairs, seen, strict=True) if kind is None}
    return [
        ((form, kind), differences((form, kind), clean[form], found, instants), delay_s(clean[form], found))
        for (form, kind), found in zip(pairs, seen, strict=True)
        if kind is not None
    ]


async def _topics(servers: str, streams: Sequence[str]) -> dict[str, Topic]:
    made = await asyncio.gather(*(Topic.create(servers, partitions=PARTITIONS + 1) for _ in streams))
    return dict(zip(streams, made, strict=True))


def _configuration(
    servers: str,
    redis: EmbeddedRedis,
    port: int,
    topics: dict[str, Topic],
    pairs: dict[str, Pair],
    registry: str,
    bin_s: int,
) -> str:
    # Which of a user's records count depends on where the user's window ends: the same in all streams.
    first = _instant(time.time() // bin_s * bin_s)
    text = SETTINGS.format(
        servers=servers,
        group=next(iter(topics.values())).name,
        redis_url=redis.worker_url,
        api_url=redis.api_url,
        port=port,
        publish_ms=int(PUBLISH_EVERY_S * 1000),
    )
    for stream, (form, _) in pairs.items():
        text += STREAM.format(
            name=stream,
            topic=topics[stream].name,
            format=f'avro, schema_registry: "{registry}"' if form.avro else "json",
            unit=f", unit: {{user: user, max_events: {form.max_events}}}" if form.max_events else "",
            bin_s=bin_s,
            first=first,
            grace_ms=int(GRACE_S * 1000),
            where=(WHERE if form.where else "") + (CAUSAL if form.finds else ""),
            keys=_keys(form),
        )
    return text


def _dumped(redis: EmbeddedRedis) -> list[bytes]:
    with Redis.from_url(redis.operator_url, protocol=2) as client:
        return [line.encode() for line in dump(client)]


def _instant(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _keys(form: Form) -> str:
    per_user = f", per_user: {min(form.max_events, 8)}" if form.max_events else ""
    return FINDS.format(per_user=per_user) if form.finds else LISTED


def _found(port: int, stream: str, form: Form) -> dict[str, str]:
    """Return the instant that found each key of a stream; nothing for a stream that finds none."""
    if not form.finds:
        return {}
    listed = get(port, f"/v1/streams/{stream}/keys/list")
    return dict(zip(listed["keys"], listed["found"], strict=True))


def _answers(port: int, streams: dict[str, Pair]) -> Iterator[bytes]:
    """Yield all that the API answers about streams that find keys."""
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client:
        for stream in (name for name, (form, _) in streams.items() if form.finds):
            for path in every_path(client.get("/openapi.json").json(), stream, NEW_KEY[:3]):
                yield client.get(path).content


def _cells(port: int, stream: str, keys: Iterable[str], bins: range, bin_s: int) -> dict[str, list[int]]:
    """Return the counts of a stream's bins by key."""
    start, end = _instant(bins.start * bin_s), _instant(bins.stop * bin_s)
    path, asked = f"/v1/streams/{stream}/series", {"kind": "bin", "start": start, "end": end}
    return {key: [round(value) for value in get(port, path, key=key, **asked)["value"]] for key in keys}


def _letters(folder: Path, stream: str, writer: Writer) -> set[Letter]:
    """Return the dead letters of a topic as (record's name, reason). A repeated letter is there once."""
    files = (folder / "state" / "dead_letters" / stream).glob("*.ndjson")
    letters = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return {
        (writer.name(stream, int(letter["partition"]), letter["position"]), letter["reason"])
        for letter in letters
    }


@contextmanager
def _broker() -> Iterator[str]:
    with (
        tempfile.TemporaryDirectory(prefix="differential-") as folder,
        broker.running(Path(folder)) as servers,
    ):
        yield servers


def put_back_is_found() -> bool:
    """Return whether the comparison notices a worker that waits behind a record from the future; print it."""
    pairs = pairs_of(Form(), [Hostile.FUTURE_YEAR])
    with _broker() as servers, tempfile.TemporaryDirectory(prefix="differential-") as folder:
        seen = seen_of(Path(folder), servers, pairs, HEAVY_LOAD, "tests.e2e.held_up_worker")
    [(_, found, late_s)] = _compared(pairs, list(seen.values()))
    said = "; ".join(found) or "NOT FOUND"
    print(f"a worker that waits behind a record from the future: {said}; within {late_s:.2f} s", flush=True)
    return bool(found)


def main() -> int:
    """Try every kind of every form, then many records behind a record from the future; return the status.

    At the end, run a worker that such a record holds up. The comparison must notice it.
    """
    runs = [(pairs_of(Form(), [Hostile.FUTURE_YEAR]), HEAVY_LOAD)]
    for form in (Form(), Form(avro=True), Form(max_events=4), Form(max_events=4, where=True)):
        kinds = form.kinds()
        at_once = [kinds[first : first + AT_ONCE] for first in range(0, len(kinds), AT_ONCE)]
        runs += [(pairs_of(form, some), DEFAULT_LOAD) for some in at_once]
    runs += [(NEW_KEYS, DEFAULT_LOAD), (NEW_KEYS, KILLS)]
    wrong = 0
    with _broker() as servers:
        for pairs, load in runs:
            with tempfile.TemporaryDirectory(prefix="differential-") as folder:
                for (form, kind), found, late_s in tried(Path(folder), servers, pairs, load):
                    wrong += bool(found)
                    said = "; ".join(found) or "all else is equal"
                    print(f"{form}, {load.behind} behind: {kind}: {said}; within {late_s:.2f} s", flush=True)
    return int(wrong > 0 or not put_back_is_found())


if __name__ == "__main__":
    end_all_with_this_run()
    sys.exit(main())
