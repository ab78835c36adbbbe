"""The stored text of a declaration keeps the bytes of version 0.1.0, with which running streams compare it.

The hashes were recorded with the code of version 0.1.0, before a declaration was one struct.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from stream_app.config import StreamSettings, load, load_text
from stream_app.config.plans import planned
from stream_app.core.strategy import Strategy, canonical_json
from tests.examples import examples

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[3] / "examples"
PER_BLOCK = 40
# SHA-256 of the declared texts of 40 configurations each.
DECLARED_TEXTS = (
    "b044e828531d92875ea303451c7c6a88034ad5b674de36c4ab8eaf6742cd27eb",
    "cafc95b93a4d90f2a63b4ce0d2a7ce13aa8f499e630e06703910a77f4d3020ba",
    "47dd37a949bdd085a76c06ec9f1defbc4925d1224883dafdf20f93933bb88468",
    "e8b0ec676375fdb5d133a5299b52ec3be55ffda0d5fad52f1d9da1733041255d",
    "2beb0b6874c0a37bb482b7f0a0ed18d40a8c3e0e02a176b6691a1d812fad1bbc",
)
# SHA-256 of whole strategies: the declaration, and what was planned from it.
STRATEGIES = {
    "flights.yaml": "6509a970beb59aef713c283cb1d93e7f3b590d6b13663c16948b7e95a650761e",
    "flights-kafka.yaml": "735480d27c2c6d0cfc96f36cf98d373f72c6243ac2deaa70e0e319bda63918ee",
    "tree": "b066deb570ef906cbd614a7b8e55827d6ce5c71022c6ea4b2b6be5ff52ee24f5",
    "users": "a42f9cc9dec5b122b3400f916471ac2bcce90b4294788c3f6f5dbba73e04fb49",
    "keys": "4f35f69ef3f35f99046ebfe9be4e590ebdc7008e1b9817144adc0be0931da2f7",
    "value": "a9535f7363374e1d6f37d93b0e55b3312fc6f8b99b14d737bee2da2a5ffc388b",
    "window": "d2506d7df0b06340c636eb886c5b55200d6b582dcbf510a0f3897dc871e0a5cd",
    "epochs": "8414e3a89acc23c3e1c82270063d4bf1a721251b683ed4fe732f25d43bb585be",
}

FIELDS = ("at", "flight.at", "größe", 'say "when"')
CALENDAR = {"bin": "1d", "timezone": "Europe/Paris", "grace": "2h", "epoch": "30d"}
INSTANTS = ("2024-01-01T00:00:00Z", "2024-03-01T00:00:00Z")


def text_of(stream: StreamSettings) -> bytes:
    """Return the stored text of a stream's declaration."""
    return canonical_json(stream.declared.plain())


def configured(rng: random.Random) -> StreamSettings:
    """Return a stream whose configuration is drawn at random."""
    stream: dict[str, Any] = {
        "source": _source(rng),
        "time": {"field": rng.choice(FIELDS), "format": rng.choice(["s", "ms", "us", "ns", "iso8601"])},
        "privacy": _privacy(rng),
    }
    replay = "replay" in stream["source"]
    stream["time"] |= _time(rng, replay)
    if rng.random() < 0.5:
        stream["late"] = rng.choice(["next_bin", "drop", "dead_letter"])
    if rng.random() < 0.7:
        stream["tree"] = _tree(rng)
    window = _window(rng) if rng.random() < 0.3 else {}
    axes = rng.choice([(), ("keys",), ("value",), ("keys", "value")])
    if "keys" in axes:
        stream["keys"] = _keys(rng) | (window if axes == ("keys",) else {})
        if window:
            stream["keys"].pop("total", None)
    if "value" in axes:
        stream["value"] = _value(rng) | window
    document = {"streams": {"visits": stream}, "kafka": {"bootstrap_servers": "h:1"}}
    [found] = load_text(yaml.safe_dump(document, allow_unicode=True), Path("/srv/app/app.yaml"), {}).streams
    return found


def _source(rng: random.Random) -> dict[str, object]:
    group = {"group": "visitors"} if rng.random() < 0.3 else {}
    if rng.random() < 0.4:
        form: dict[str, object] = rng.choice(
            [
                {"format": "json"},
                {"format": "csv", "columns": ["id", "at", "größe"]},
                {"format": "avro", "schema_registry": "http://registry:8081"},
            ]
        )
        return {"topic": "web.visits"} | form | group
    file: dict[str, object] = {"file": "log/visits", "format": rng.choice(["ndjson", "csv"])}
    if rng.random() < 0.5:
        file["replay"] = {"from": INSTANTS[0], "to": INSTANTS[1], "speed": rng.choice(["max", 60])}
    return file | group


def _time(rng: random.Random, replay: bool) -> dict[str, object]:
    time: dict[str, object] = (
        dict(CALENDAR) if rng.random() < 0.2 else {"bin": "1h", "grace": "5m", "epoch": "10d"}
    )
    if rng.random() < 0.5:
        time["max_ahead"] = rng.choice(["0s", "90m", "3d"])
    if not replay and "timezone" not in time and rng.random() < 0.5:
        time["first"] = INSTANTS[0]
    if replay and "timezone" in time:
        del time["timezone"]  # a replay begins at midnight UTC
    return time


def _privacy(rng: random.Random) -> dict[str, object]:
    epsilon = rng.choice([1, 0.1, "1/3", 0.25, 20, 1e9])
    found: dict[str, object] = {"epsilon": epsilon} | ({"not_private": True} if epsilon == 1e9 else {})
    if rng.random() < 0.3:
        found["unit"] = rng.choice(["event", {"user": "visitor.id", "max_events": rng.randint(1, 9)}])
    if rng.random() < 0.3:
        found["neighbours"] = rng.choice(["add_remove", "substitute"])
    return found | ({"accept": "measured again"} if rng.random() < 0.2 else {})


def _tree(rng: random.Random) -> dict[str, object]:
    tree: dict[str, object] = {}
    if rng.random() < 0.6:
        tree["workload"] = rng.choice(
            [
                "prefix",
                "bins",
                "ranges",
                "sliding(24)",
                {"prefix": 0.7, "bins": 0.3},
                {"bins": 1, "ranges": 2},
            ]
        )
    if rng.random() < 0.6:
        tree["release"] = rng.choice(["anticipating", "causal"])
    if rng.random() < 0.5:
        tree["branching"] = [10, 24]
        if rng.random() < 0.5:
            tree["shares"] = rng.choice([[0.5, 0.5], ["1/3", "1/2"], [0.1, 0.2]])
    elif rng.random() < 0.3:
        tree["shares"] = "level"
    if rng.random() < 0.3:
        tree["epochs"] = rng.randint(2, 64)
    return tree


def _keys(rng: random.Random) -> dict[str, object]:
    keys: dict[str, object] = {"field": rng.choice(["carrier", "flight.carrier"])}
    keys["list"] = rng.choice([["UA", "AA"], ["Zürich", '"', "\\", "7"], ["a", "b", "c", "d e"]])
    if rng.random() < 0.5:
        keys["other"] = rng.random() < 0.5
    return keys | ({"total": True} if rng.random() < 0.4 else {})


def _value(rng: random.Random) -> dict[str, object]:
    low, high = rng.choice([(0, 60), (-60, 0.5), ("1/3", "2/3"), (-1.25, 1e3)])
    return {"field": "delay", "min": low, "max": high, "buckets": rng.choice([2, 50, 1024])}


def _window(rng: random.Random) -> dict[str, object]:
    window: dict[str, object] = {"mode": "window", "window": "5d"}
    if rng.random() < 0.5:
        window["share"] = rng.choice([0.5, "2/3"])
    mechanism, options = rng.choice(
        [("identity", {}), ("dawa", {"partition_share": 0.2}), ("hb", {}), ("sorted_isotonic", {})]
    )
    return (
        window
        | ({"mechanism": mechanism} if rng.random() < 0.8 or options else {})
        | ({"options": options} if options else {})
    )


SMALL: dict[str, dict[str, object]] = {
    "tree": {"tree": {"release": "causal", "branching": [4, 6], "shares": ["1/3", "2/3"]}},
    "users": {"privacy": {"epsilon": 1, "unit": {"user": "visitor", "max_events": 3}}},
    "user's day": {
        "late": "dead_letter",
        "privacy": {"epsilon": 1, "unit": {"user": "visitor", "max_events": 2, "per": "1d"}},
    },
    "caps on keys": {
        "keys": {"field": "carrier", "list": ["UA", "Zürich"]},
        "privacy": {"epsilon": 1, "unit": {"user": "visitor", "max_keys": 2, "max_per_key": 3}},
    },
    "keys": {"keys": {"field": "carrier", "list": ["UA", "Zürich"], "total": True}},
    "value": {"value": {"field": "delay", "min": -1.5, "max": 4, "buckets": 8}},
    "window": {
        "value": {"field": "delay", "min": 0, "max": 4, "buckets": 8, "mode": "window", "window": "12h"}
    },
    "epochs": {"tree": {"epochs": 16, "branching": [4, 6]}},
}
# What a worker has stored about a file that it follows, and about a topic.
IDS = ({"state_id": "0123456789abcdef"}, {"cluster_id": "lkc-1", "topic_id": "b7Zs"})


def planned_of(name: str) -> Strategy:
    """Return the strategy of an example file's stream, or of a small stream."""
    if name not in SMALL:
        return planned(load(EXAMPLES / name, {}).streams[0])
    stream = {
        "source": {"file": "visits.ndjson"},
        "time": {"field": "at", "format": "us", "bin": "1h", "grace": "5m", "epoch": "1d"},
        "privacy": {"epsilon": 1},
    }
    text = yaml.safe_dump({"streams": {"visits": stream | SMALL[name]}}, allow_unicode=True)
    return planned(load_text(text, Path("/srv/app/app.yaml"), {}).streams[0])


@pytest.mark.parametrize("block", range(len(DECLARED_TEXTS)))
def test_declared_texts_equal_those_of_version_0_1_0(block: int) -> None:
    digest = hashlib.sha256()
    for number in range(PER_BLOCK):
        digest.update(text_of(configured(random.Random(f"{block} {number}"))) + b"\n")
    assert digest.hexdigest() == DECLARED_TEXTS[block]


@pytest.mark.parametrize("name", STRATEGIES)
def test_strategies_equal_those_of_version_0_1_0(name: str) -> None:
    assert planned_of(name).hash == STRATEGIES[name]


@examples(30)
@given(seed=st.integers(0, 10**6), place=st.sampled_from([{}, *IDS]), name=st.sampled_from(sorted(SMALL)))
def test_a_stored_strategy_is_read_and_written_byte_for_byte(
    seed: int, place: dict[str, str], name: str
) -> None:
    said = json.loads(text_of(configured(random.Random(f"any {seed}"))))
    said["source"] |= place
    stored = json.loads(planned_of(name).to_json()) | {"source": said["source"]["name"], "declared": said}
    text = canonical_json(stored)
    again = Strategy.from_json(text)
    assert (again.to_json(), again.hash) == (text, hashlib.sha256(text).hexdigest())


@pytest.mark.parametrize(
    ("part", "fact", "said"),
    [
        (("declared",), "household", "unknown field `household`"),
        (("declared", "privacy"), "rho", "unknown field `rho` - at `$.privacy`"),
        ((), "sketch", "it holds facts that are not known here"),
    ],
)
def test_a_strategy_of_a_later_version_is_refused_in_one_line(
    part: tuple[str, ...], fact: str, said: str
) -> None:
    """If this version ignored an unknown fact, answers or costs would change under the same hash."""
    stored = json.loads(planned_of("tree").to_json())
    place = stored
    for name in part:
        place = place[name]
    place[fact] = 1
    with pytest.raises(ValueError, match="use the release that wrote it") as refused:
        Strategy.from_json(canonical_json(stored))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_settings_of_another_process_declare_the_same_text() -> None:
    """``stream-app run`` pickles the worker's settings, so defaults are other objects in the worker."""
    for seed in range(PER_BLOCK):
        stream = configured(random.Random(seed))
        copied = pickle.loads(pickle.dumps(stream))
        assert text_of(copied) == text_of(stream)
