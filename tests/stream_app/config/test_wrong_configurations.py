"""Wrong configurations, each with the one line that refuses it, and a few correct ones that look wrong.

The line names file, line, key, value and remedy. A table lists known mistakes, and a fuzzer makes others.
Every text must be accepted, or refused in one line; a traceback is a failure.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from stream_app.config import ConfigError, load_text
from stream_app.ports import ACCEPT_MANAGED
from stream_app.shell.commands import main

TIME = "bin: 5m, grace: 30s, epoch: 30d"


ABC = "keys: {field: k, list: [a, b, c]}"


def yaml_with(
    source: str = "{file: a.ndjson}",
    time: str = TIME,
    privacy: str = "{epsilon: 1.0}",
    extra: str = "",
    top: str = "",
) -> str:
    """Return a valid configuration with the given parts replaced."""
    return f"""{top}
streams:
  s:
    source: {source}
    time: {{field: at, format: iso8601, {time}}}
    privacy: {privacy}
    {extra}
"""


ANCHORS = """
a: &a [x,x,x,x,x,x,x,x,x]
b: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]
c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]
d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]
e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]
f: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]
streams: *f
"""
# A name, the text, and the refusal's words after file and line; None if the text is right.
CASES: list[tuple[str, str, str | None]] = [
    ("empty", "", "the file is empty; start from examples/flights.yaml"),
    ("tabs", "streams:\n\ts: 1", "not YAML: found character '\\t' that cannot start any token; check the"),
    ("list", "- a", "the file ['a']: must hold keys with values, for example {streams:"),
    ("no streams", "redis: {url: 'redis://h/0'}", "streams names no stream; add one under it"),
    ("stream null", "streams: {s: }", "streams.s.source.file is missing; name a file, or a topic of Kafka"),
    ("delta", yaml_with(privacy="{epsilon: 1, delta: 1e-6}"), None),
    (
        "delta 0",
        yaml_with(privacy="{epsilon: 1, delta: 0}"),
        "streams.s.privacy.delta 0: must be a small number above zero, for example 1e-6",
    ),
    (
        "delta too large",
        yaml_with(privacy="{epsilon: 1, delta: 0.01}"),
        "streams.s.privacy.delta 0.01: must be at most 0.001: up to this probability the promise may",
    ),
    (
        "delta and tree",
        yaml_with(privacy="{epsilon: 1, delta: 1e-6}", extra="tree: {release: causal}"),
        "streams.s.tree is for streams without privacy.delta, which have a tree: take it out,",
    ),
    *(
        (
            f"delta and {key}",
            yaml_with(privacy="{epsilon: 1, delta: 1e-6}", extra=extra),
            f"streams.s.{key} is not built yet beside privacy.delta: take it out, or take privacy.delta out",
        )
        for key, extra in (
            ("value", "value: {field: v, min: 0, max: 9, buckets: 3}"),
            ("sum", "sum: {field: v, min: 0, max: 9, unit: 1}"),
            ("keys.total", "keys: {field: k, list: [a, b], total: true}"),
            ("keys.mode", "keys: {field: k, list: [a, b], mode: window, window: 1d, mechanism: identity}"),
        )
    ),
    (
        "eps 0",
        yaml_with(privacy="{epsilon: 0}"),
        "streams.s.privacy.epsilon 0: must be a number above zero, for example",
    ),
    (
        "eps neg",
        yaml_with(privacy="{epsilon: -1}"),
        "streams.s.privacy.epsilon -1: must be a number above zero, for",
    ),
    (
        "eps text",
        yaml_with(privacy="{epsilon: low}"),
        'streams.s.privacy.epsilon "low": must be a number above zero, for',
    ),
    (
        "eps nan",
        yaml_with(privacy="{epsilon: .nan}"),
        "streams.s.privacy.epsilon nan: must be a number above zero, for",
    ),
    (
        "eps inf",
        yaml_with(privacy="{epsilon: .inf}"),
        "streams.s.privacy.epsilon inf: must be a number above zero, for",
    ),
    (
        "eps 1e-300",
        yaml_with(privacy="{epsilon: 1e-300}"),
        "streams.s.tree: epsilon: 1e-300 needs noise beyond 2^38 per node;",
    ),
    (
        "eps 1e-9",
        yaml_with(privacy="{epsilon: 1e-9}"),
        "streams.s.tree: epsilon needs noise beyond 2^32 per node; use a larger",
    ),
    (
        "eps 25",
        yaml_with(privacy="{epsilon: 25}"),
        "streams.s.privacy.epsilon 25 protects nobody; use at most 20, or say",
    ),
    ("eps 25 np", yaml_with(privacy="{epsilon: 25, not_private: true}"), None),
    (
        "eps 1 np",
        yaml_with(privacy="{epsilon: 1, not_private: true}"),
        "streams.s.privacy.not_private is for epsilon above 20; take it out",
    ),
    (
        "eps comma",
        yaml_with(privacy="{epsilon: 1,0}"),
        "streams.s.privacy.0 is not a known key; known here: accept, delta, epsilon,",
    ),
    (
        "eps 1e309 np",
        yaml_with(privacy="{epsilon: 1e309, not_private: true}"),
        "streams.s.privacy.epsilon inf: must be a number above zero, for",
    ),
    (
        "eps '1/0'",
        yaml_with(privacy="{epsilon: 1/0}"),
        'streams.s.privacy.epsilon "1/0": must be a number above zero, for',
    ),
    (
        "rho",
        yaml_with(privacy="{epsilon: 1, rho: 1}"),
        "streams.s.privacy.rho is not a known key; known here: accept,",
    ),
    (
        "unit person",
        yaml_with(privacy="{epsilon: 1, unit: person}"),
        'streams.s.privacy.unit "person": must be event, or {user: the field',
    ),
    (
        "max_events 0",
        yaml_with(privacy="{epsilon: 1, unit: {user: u, max_events: 0}}"),
        "streams.s.privacy.unit.max_events 0: must be a whole number from 1 to",
    ),
    (
        "max_events miss",
        yaml_with(privacy="{epsilon: 1, unit: {user: u}}"),
        "streams.s.privacy.unit.max_events is missing; add it",
    ),
    (
        "max_events of users",
        yaml_with(privacy="{epsilon: 1, unit: {user: u, max_events: 1}}", extra="count: users"),
        "streams.s.privacy.unit.max_events is for count: events; take it out, a user counts once per epoch",
    ),
    (
        "caps on keys",
        yaml_with(
            privacy="{epsilon: 1, unit: {user: u, max_keys: 2, max_per_key: 2}}",
            extra="keys: {field: k, list: [a, b, c]}",
        ),
        None,
    ),
    (
        "all three caps",
        yaml_with(
            privacy="{epsilon: 1, unit: {user: u, max_keys: 4, max_per_key: 2, max_events: 7}}",
            extra="keys: {field: k, list: [a, b, c]}",
        ),
        None,
    ),
    (
        "max_keys alone",
        yaml_with(
            privacy="{epsilon: 1, unit: {user: u, max_keys: 2}}", extra="keys: {field: k, list: [a, b, c]}"
        ),
        "streams.s.privacy.unit.max_keys needs max_per_key beside it: how many of a user's",
    ),
    (
        "max_per_key alone",
        yaml_with(
            privacy="{epsilon: 1, unit: {user: u, max_per_key: 2, max_events: 4}}",
            extra="keys: {field: k, list: [a, b, c]}",
        ),
        "streams.s.privacy.unit.max_per_key needs max_keys beside it: in how many keys",
    ),
    (
        "max_keys 0",
        yaml_with(
            privacy="{epsilon: 1, unit: {user: u, max_keys: 0, max_per_key: 1}}",
            extra="keys: {field: k, list: [a, b, c]}",
        ),
        "streams.s.privacy.unit.max_keys 0: must be a whole number from 1 to 1000",
    ),
    (
        "max_keys above the keys",
        yaml_with(
            privacy="{epsilon: 1, unit: {user: u, max_keys: 5, max_per_key: 1}}",
            extra="keys: {field: k, list: [a, b, c]}",
        ),
        "streams.s.privacy.unit.max_keys 5: the stream has 4 keys; write at most 4",
    ),
    (
        "max_keys without keys",
        yaml_with(privacy="{epsilon: 1, unit: {user: u, max_keys: 2, max_per_key: 1}}"),
        "streams.s.privacy.unit.max_keys is for a stream with keys; add keys, or write max_events",
    ),
    (
        "too many of a user",
        yaml_with(
            privacy="{epsilon: 1, unit: {user: u, max_keys: 4, max_per_key: 2501}}",
            extra="keys: {field: k, list: [a, b, c]}",
        ),
        "streams.s.privacy.unit.max_keys times max_per_key is 10,004 events of a user; at most 10,000",
    ),
    (
        "max_keys of too many places",
        yaml_with(
            privacy="{epsilon: 1, unit: {user: u, max_keys: 2, max_per_key: 2}}",
            extra="keys: {field: k, list: ["
            + ",".join(f"k{i}" for i in range(16))
            + "]}\n    value: {field: v, min: 0, max: 1, buckets: 1024}",
        ),
        "streams.s.privacy.unit.max_keys is for streams of at most 16,384 keys, buckets and steps",
    ),
    (
        "max_keys of users",
        yaml_with(
            privacy="{epsilon: 1, unit: {user: u, max_keys: 1, max_per_key: 1}}",
            extra="count: users\n    keys: {field: k, list: [a, b, c]}",
        ),
        "streams.s.privacy.unit.max_keys is for count: events; take it out, a user counts once per epoch",
    ),
    (
        "unit of a day",
        yaml_with(privacy="{epsilon: 1, unit: {user: u, max_events: 2, per: 1d}}", extra="late: drop"),
        None,
    ),
    (
        "unit of a day with late events",
        yaml_with(privacy="{epsilon: 1, unit: {user: u, max_events: 2, per: 1d}}"),
        "streams.s.late must be drop or dead_letter: with privacy.unit.per no event may count in another 1d",
    ),
    (
        "unit of a month",
        yaml_with(privacy="{epsilon: 1, unit: {user: u, max_events: 2, per: 30d}}", extra="late: drop"),
        'streams.s.privacy.unit.per "30d": must be one of 1h, 1d, 7d',
    ),
    (
        "unit of a week, epoch of a day",
        yaml_with(privacy="{epsilon: 1, unit: {user: u, max_events: 2, per: 7d}}", extra="late: drop"),
        "streams.s.privacy.unit.per 7d: time.epoch must be a whole number of them",
    ),
    (
        "per of users",
        yaml_with(privacy="{epsilon: 1, unit: {user: u, per: 1d}}", extra="count: users"),
        "streams.s.privacy.unit.per is for count: events; write count: events and max_events: 1 to count",
    ),
    (
        "users without a field",
        yaml_with(extra="count: users"),
        "streams.s.privacy.unit must name the field of the user for count: users, for example unit: {user:",
    ),
    (
        "count of people",
        yaml_with(extra="count: people"),
        'streams.s.count "people": must be one of events, users',
    ),
    (
        "user=time",
        yaml_with(privacy="{epsilon: 1, unit: {user: at, max_events: 2}}"),
        'streams.s.privacy.unit.user "at" is where time.field reads; name',
    ),
    (
        "bin 0",
        yaml_with(time="bin: 0s, grace: 0s, epoch: 30d"),
        'streams.s.time.bin "0s": must be from 100ms to 36500d: each bin is',
    ),
    (
        "bin 5",
        yaml_with(time="bin: 5, grace: 0s, epoch: 30d"),
        "streams.s.time.bin 5: must be a duration with its unit, for example",
    ),
    (
        "bin 7m epoch",
        yaml_with(time="bin: 7m, grace: 0s, epoch: 30d"),
        "streams.s.time.epoch must be a whole number of bins of 7m, at most",
    ),
    (
        "bin > epoch",
        yaml_with(time="bin: 2d, grace: 0s, epoch: 1d"),
        "streams.s.time.epoch must be a whole number of bins of 2d, at most",
    ),
    (
        "epoch 1000y us",
        yaml_with(time="bin: 1us, grace: 0s, epoch: 30d"),
        'streams.s.time.bin "1us": must be from 100ms to 36500d: each bin is',
    ),
    (
        "bin 1us",
        yaml_with(time="bin: 1us, grace: 0s, epoch: 1s"),
        'streams.s.time.bin "1us": must be from 100ms to 36500d: each bin is',
    ),
    (
        "bin 1ms",
        yaml_with(time="bin: 1ms, grace: 0s, epoch: 1h"),
        'streams.s.time.bin "1ms": must be from 100ms to 36500d: each bin is',
    ),
    (
        "huge dur",
        yaml_with(time="bin: 99999999999999d, grace: 0s, epoch: 99999999999999d"),
        'streams.s.time.bin "99999999999999d": is longer than 36500d, a',
    ),
    (
        "huge dur2",
        yaml_with(time="bin: 1h, grace: 99999999999999d, epoch: 1d"),
        'streams.s.time.grace "99999999999999d": is longer than 36500d, a',
    ),
    (
        "huge ahead",
        yaml_with(time="bin: 1h, grace: 1m, epoch: 1d, max_ahead: 99999999999999999d"),
        'streams.s.time.max_ahead "99999999999999999d": is longer than 36500d,',
    ),
    (
        "grace missing",
        yaml_with(time="bin: 1h, epoch: 30d"),
        "streams.s.time.grace is missing; say how long to wait for late",
    ),
    (
        "tz bad",
        yaml_with(time="bin: 1d, timezone: Mars/X, grace: 0s, epoch: 30d"),
        'streams.s.time.timezone "Mars/X": is not a time zone; name one of the',
    ),
    (
        "tz path",
        yaml_with(time="bin: 1d, timezone: ../../etc/passwd, grace: 0s, epoch: 30d"),
        'streams.s.time.timezone "../../etc/passwd": is not a time zone; name',
    ),
    (
        "tz 1h",
        yaml_with(time="bin: 1h, timezone: UTC, grace: 0s, epoch: 30d"),
        "streams.s.time.timezone belongs to calendar days; write bin: 1d, or",
    ),
    (
        "first y9999",
        yaml_with(time="bin: 1h, grace: 0s, epoch: 30d, first: 9999-12-31T23:00:00Z"),
        "streams.s.time.first \"9999-12-31T23:00:00Z\": '9999-12-31T23:00:00Z'",
    ),
    (
        "first y1",
        yaml_with(time="bin: 1h, grace: 0s, epoch: 30d, first: 0001-01-01T00:00:00Z"),
        "streams.s.time.first \"0001-01-01T00:00:00Z\": '0001-01-01T00:00:00Z'",
    ),
    (
        "first y1 tz",
        yaml_with(time="bin: 1d, timezone: Asia/Tokyo, grace: 0s, epoch: 30d, first: 0001-01-01T00:00:00Z"),
        "streams.s.time.first \"0001-01-01T00:00:00Z\": '0001-01-01T00:00:00Z'",
    ),
    ("first 2100", yaml_with(time="bin: 1h, grace: 0s, epoch: 30d, first: 2100-01-01T00:00:00Z"), None),
    (
        "first date",
        yaml_with(time="bin: 1h, grace: 0s, epoch: 30d, first: 2024-01-01"),
        "streams.s.time.first \"2024-01-01\": '2024-01-01' is not a time; write",
    ),
    ("grace 10y", yaml_with(time="bin: 1h, grace: 3650d, epoch: 30d"), None),
    (
        "replay swapped",
        yaml_with(source="{file: a.ndjson, replay: {from: 2024-02-01T00:00:00Z, to: 2024-01-01T00:00:00Z}}"),
        "streams.s.source.replay.to must be later than replay.from; move one",
    ),
    (
        "replay off edge",
        yaml_with(source="{file: a.ndjson, replay: {from: 2024-01-01T00:00:01Z, to: 2024-02-01T00:00:00Z}}"),
        "streams.s.source.replay.from 2024-01-01T00:00:01Z is inside a bin;",
    ),
    (
        "replay 9000y",
        yaml_with(source="{file: a.ndjson, replay: {from: 0001-01-01T00:00:00Z, to: 9999-01-01T00:00:00Z}}"),
        'streams.s.source.replay.from "0001-01-01T00:00:00Z":',
    ),
    (
        "file+topic",
        yaml_with(source="{file: a, topic: t}"),
        "streams.s.source.file is given beside topic; keep one",
    ),
    ("topic no kafka", yaml_with(source="{topic: t}"), "kafka is missing, and topics are named; add kafka:"),
    (
        "topic space",
        yaml_with(source="{topic: 'a b'}", top='kafka: {bootstrap_servers: "h:1"}'),
        'streams.s.source.topic "a b": is not a topic name; use letters,',
    ),
    (
        "topic ..",
        yaml_with(source="{topic: '..'}", top='kafka: {bootstrap_servers: "h:1"}'),
        'streams.s.source.topic "..": is not a topic name; use letters,',
    ),
    (
        "servers no port",
        yaml_with(source="{topic: t}", top='kafka: {bootstrap_servers: "h"}'),
        'kafka.bootstrap_servers "h": must be host:port, several separated by',
    ),
    (
        "servers port big",
        yaml_with(source="{topic: t}", top='kafka: {bootstrap_servers: "h:99999"}'),
        'kafka.bootstrap_servers "h:99999": must be host:port, several',
    ),
    (
        "servers url",
        yaml_with(source="{topic: t}", top='kafka: {bootstrap_servers: "http://h:9092"}'),
        'kafka.bootstrap_servers "http://h:9092": must be host:port, several',
    ),
    ("file dir", yaml_with(source="{file: .}"), "streams.s.source.file: HERE is a directory; name its files"),
    (
        "file missing",
        yaml_with(source="{file: nope.ndjson}"),
        "streams.s.source.file: HERE/nope.ndjson is not there;",
    ),
    (
        "files missing",
        yaml_with(source="{file: nope-*.ndjson}"),
        "streams.s.source.file: HERE/nope-*.ndjson names no file; create the first one",
    ),
    (
        "files in a missing directory",
        yaml_with(source="{file: nope/e-*.ndjson}"),
        "streams.s.source.file: HERE/nope cannot be read (No such file or directory); create it",
    ),
    (
        "files of many directories",
        yaml_with(source="{file: '*/e.ndjson'}"),
        'streams.s.source.file "*/e.ndjson": may have * in its last part only',
    ),
    ("file empty", yaml_with(source="{file: ''}"), 'streams.s.source.file "": must be a word'),
    (
        "keys empty",
        yaml_with(extra="keys: {field: k, list: []}"),
        "streams.s.keys.list []: must be a list of keys, for example [UA, AA,",
    ),
    (
        "keys dup",
        yaml_with(extra="keys: {field: k, list: [a, a]}"),
        "streams.s.keys.list ['a', 'a']: holds a key twice; an event has",
    ),
    (
        "keys other",
        yaml_with(extra="keys: {field: k, list: [other]}"),
        'streams.s.keys.list holds "other", which is the key of all others;',
    ),
    (
        "keys null",
        yaml_with(extra="keys: {field: k, list: [null]}"),
        "streams.s.keys.list [None]: None is not a key; write words or",
    ),
    (
        "keys big",
        yaml_with(extra="keys: {field: k, list: [" + ",".join(f"k{i}" for i in range(20000)) + "]}"),
        None,
    ),
    (
        "keys nested",
        yaml_with(extra="keys: {field: k, list: [[a]]}"),
        "streams.s.keys.list [['a']]: ['a'] is not a key; write words or",
    ),
    (
        "keys map",
        yaml_with(extra="keys: {field: k, list: {a: 1}}"),
        "streams.s.keys.list {'a': 1}: must be a list of keys, for example",
    ),
    (
        "keys field=time",
        yaml_with(extra="keys: {field: at, list: [a]}"),
        'streams.s.keys.field "at" is where time.field reads; name another',
    ),
    (
        "value min>max",
        yaml_with(extra="value: {field: v, min: 5, max: 1, buckets: 4}"),
        "streams.s.value.max must be above value.min; move one of them",
    ),
    (
        "value 1 bucket",
        yaml_with(extra="value: {field: v, min: 0, max: 1, buckets: 1}"),
        "streams.s.value.buckets 1: must be a whole number from 2 to 1024",
    ),
    (
        "value 1e9 buckets",
        yaml_with(extra="value: {field: v, min: 0, max: 1, buckets: 1000000000}"),
        "streams.s.value.buckets 1000000000: must be a whole number from 2 to",
    ),
    (
        "value nan",
        yaml_with(extra="value: {field: v, min: .nan, max: 1, buckets: 4}"),
        "streams.s.value.min nan: must be a number, for example -60 or 0.5",
    ),
    ("value tiny", yaml_with(extra="value: {field: v, min: 0, max: 1e-30, buckets: 1024}"), None),
    (
        "value tiny at 1e15",
        yaml_with(extra="value: {field: v, min: 999999999999999, max: 999999999999999.001, buckets: 1024}"),
        "streams.s.value.max must be above value.min; move one of them",
    ),
    (
        "sum min>max",
        yaml_with(extra="sum: {field: v, min: 5, max: 1, unit: 1}"),
        "streams.s.sum.max must be above sum.min; move one of them",
    ),
    (
        "sum min between units",
        yaml_with(extra="sum: {field: v, min: 0.5, max: 10, unit: 1}"),
        "streams.s.sum.min must be a whole number of sum.unit; move it, or take another unit",
    ),
    (
        "sum max between units",
        yaml_with(extra="sum: {field: v, min: 0, max: 9.995, unit: 0.01}"),
        "streams.s.sum.max must be a whole number of sum.unit; move it, or take another unit",
    ),
    (
        "sum unit too fine",
        yaml_with(extra="sum: {field: v, min: 0, max: 10000, unit: 0.01}"),
        "streams.s.sum.unit makes more than 100,000 steps from sum.min to sum.max; take a larger one",
    ),
    (
        "sum unit zero",
        yaml_with(extra="sum: {field: v, min: 0, max: 1, unit: 0}"),
        "streams.s.sum.unit 0: must be the step that amounts are rounded to, a number above zero, for",
    ),
    (
        "sum without unit",
        yaml_with(extra="sum: {field: v, min: 0, max: 1}"),
        "streams.s.sum.unit is missing; add the step that amounts are rounded to",
    ),
    (
        "sum field=time",
        yaml_with(extra="sum: {field: at, min: 0, max: 1, unit: 1}"),
        'streams.s.sum.field "at" is where time.field reads; name another',
    ),
    (
        "sum beside value",
        yaml_with(
            extra="sum: {field: v, min: 0, max: 1, unit: 1}\n"
            "    value: {field: v, min: 0, max: 1, buckets: 4}"
        ),
        "streams.s.value is not built yet beside sum; give one of them another stream",
    ),
    ("sum", yaml_with(extra="sum: {field: v, min: -5, max: 500, unit: 0.01}"), None),
    (
        "sum of users",
        yaml_with(
            privacy="{epsilon: 1, unit: {user: u, max_events: 3}}",
            extra="sum: {field: v, min: 0, max: 5, unit: 1}",
        ),
        None,
    ),
    (
        "sum beside count: users",
        yaml_with(
            privacy="{epsilon: 1, unit: {user: u}}",
            extra="count: users\n    sum: {field: v, min: 0, max: 5, unit: 1}",
        ),
        "streams.s.count counts one event of each user, and a sum is of events; write max_events: 1 in",
    ),
    (
        "sum of users, too fine for the list",
        yaml_with(
            privacy="{epsilon: 1, unit: {user: u, max_events: 3}}",
            extra="sum: {field: v, min: 0, max: 1000, unit: 0.01}\n    keys: {field: k, list: ["
            + ",".join(f"k{i}" for i in range(43_000))
            + "]}",
        ),
        "streams.s.sum.unit makes more than 16,384 steps over all keys, too many for a cap per user",
    ),
    (
        "keys x value huge",
        yaml_with(
            extra="keys: {field: k, list: ["
            + ",".join(f"k{i}" for i in range(9000))
            + "]}\n    value: {field: v, min: 0, max: 1, buckets: 1024}"
        ),
        "streams.s: one bin may need 29,514,279 noise draws, 295.1 s of a bin",
    ),
    (
        "window odd",
        yaml_with(extra="value: {field: v, min: 0, max: 1, buckets: 4, mode: window, window: 7m}"),
        "streams.s.value.window must be a whole number of bins, and",
    ),
    (
        "window mech",
        yaml_with(
            extra="value: {field: v, min: 0, max: 1, buckets: 4, mode: window, window: 1d, mechanism: foo}"
        ),
        'streams.s.value.mechanism "foo": must be one of identity, h, h_bar,',
    ),
    (
        "window share 1",
        yaml_with(extra="value: {field: v, min: 0, max: 1, buckets: 4, mode: window, window: 1d, share: 1}"),
        "streams.s.value.share must be below 1: the rest of epsilon counts all",
    ),
    (
        "shares sum",
        yaml_with(extra="tree: {branching: [24, 360], shares: [0.9, 0.9]}"),
        "streams.s.tree.shares add up to more than 1; lower them: their sum is",
    ),
    (
        "branch small",
        yaml_with(extra="tree: {branching: [2, 2]}"),
        "streams.s.tree: horizon: 8640 bins do not fit branching (2, 2); raise",
    ),
    (
        "branch huge",
        yaml_with(extra="tree: {branching: [1000000, 1000000]}"),
        "streams.s.tree.branching [1000000, 1000000]: makes a tree of more",
    ),
    (
        "workload bad",
        yaml_with(extra="tree: {workload: all}"),
        "streams.s.tree.workload \"all\": is no workload ('all' is unknown;",
    ),
    (
        "a key twice inside a value",
        yaml_with(extra="tree: {workload: {prefix: 1, bin: 1, prefix: 2}}"),
        "streams.s.tree.workload prefix is written twice; keep one",
    ),
    (
        "workload sliding big",
        yaml_with(extra="tree: {workload: sliding(99999999)}"),
        "streams.s.tree: workload: sliding(99999999) is longer than the epoch",
    ),
    (
        "workload neg",
        yaml_with(extra="tree: {workload: {prefix: -1}}"),
        "streams.s.tree.workload {'prefix': -1}: is no workload (workload",
    ),
    (
        "epochs 1",
        yaml_with(extra="tree: {epochs: 1}"),
        "streams.s.tree.epochs 1: must be a whole number of epochs from 2 to",
    ),
    (
        "typo key",
        yaml_with(privacy="{epsillon: 1}"),
        "streams.s.privacy.epsilon is missing; add it; is epsillon a misspelling",
    ),
    ("typo top", yaml_with(top="stream: 1"), "stream is not a known key; did you mean streams?"),
    (
        "name upper",
        yaml_with().replace("  s:", "  Clicks:"),
        "streams.Clicks is not a name; use a-z, 0-9, - and _, at most 63, a",
    ),
    (
        "name slash",
        yaml_with().replace("  s:", "  'a/b':"),
        "streams.a/b is not a name; use a-z, 0-9, - and _, at most 63, a",
    ),
    ("dup stream", yaml_with() + "  s: {}\n", "streams.s is written twice; keep one"),
    (
        "api 0.0.0.0",
        yaml_with(top="api: {host: 0.0.0.0}"),
        "api.host 0.0.0.0 is not loopback and no key is required; name",
    ),
    ("api ''", yaml_with(top="api: {host: ''}"), 'api.host "": must be a word'),
    (
        "api ::",
        yaml_with(top="api: {host: '::'}"),
        "api.host :: is not loopback and no key is required; name a",
    ),
    (
        "api 127.1",
        yaml_with(top="api: {host: '127.1'}"),
        "api.host 127.1 is not loopback and no key is required; name a",
    ),
    (
        "api 0",
        yaml_with(top="api: {host: '0'}"),
        "api.host 0 is not loopback and no key is required; name a keys",
    ),
    (
        "api localhost.evil",
        yaml_with(top="api: {host: localhost.localdomain}"),
        "api.host localhost.localdomain is not loopback and no key is",
    ),
    (
        "api ::ffff:0.0.0.0",
        yaml_with(top="api: {host: '::ffff:0.0.0.0'}"),
        "api.host ::ffff:0.0.0.0 is not loopback and no key is required;",
    ),
    ("api port 0", yaml_with(top="api: {port: 0}"), "api.port 0: must be a port from 1 to 65535"),
    ("api port text", yaml_with(top="api: {port: http}"), 'api.port "http": must be a port from 1 to 65535'),
    (
        "origins *",
        yaml_with(top="api: {origins: ['*']}"),
        "api.origins ['*']: must be a list of origins, for example",
    ),
    (
        "origins null",
        yaml_with(top="api: {origins: ['null']}"),
        "api.origins ['null']: must be a list of origins, for example",
    ),
    (
        "origins path",
        yaml_with(top="api: {origins: ['https://a/b?c']}"),
        "api.origins ['https://a/b?c']: must be a list of origins, for example",
    ),
    (
        "proxy name",
        yaml_with(top="api: {proxy: {header: X, addresses: [proxy]}}"),
        "api.proxy.addresses ['proxy']: must be a list of addresses, for",
    ),
    (
        "proxy header space",
        yaml_with(top="api: {proxy: {header: 'X Y', addresses: [127.0.0.1]}}"),
        'api.proxy.header "X Y": is not a header name; write one such as',
    ),
    (
        "proxy header auth",
        yaml_with(top="api: {proxy: {header: 'Host', addresses: [127.0.0.1]}}"),
        'api.proxy.header "Host": is sent by every client, so it does not say',
    ),
    (
        "proxy no addr",
        yaml_with(top="api: {host: 0.0.0.0, proxy: {header: X}}"),
        "api.proxy.addresses is missing; add it",
    ),
    (
        "rate 0",
        yaml_with(top="api: {requests_per_s: 0}"),
        "api.requests_per_s 0: must be a number above zero",
    ),
    (
        "api rate beyond floats",
        yaml_with(top="api: {requests_per_s: 1" + 400 * "0" + "}"),
        "api.requests_per_s 1000",
    ),
    (
        "speed beyond floats",
        yaml_with(
            "{file: a.ndjson, replay: {from: 2024-01-01T00:00:00Z, to: 2024-01-31T00:00:00Z, speed: 1"
            + 400 * "0"
            + "}}",
            time="bin: 5m, epoch: 30d",
        ),
        "streams.s.source.replay.speed 1000",
    ),
    (
        "keys none",
        yaml_with(top="api: {keys: nope.txt}"),
        "api.keys: HERE/nope.txt does not exist; make it with",
    ),
    (
        "operator same port",
        yaml_with(top="api: {port: 9000}\noperator: {port: 9000}"),
        "operator.port 9000 is api.port as well; choose another one",
    ),
    (
        "redis http",
        yaml_with(top="redis: {url: 'http://h'}"),
        'redis.url "http://h": must be redis://host:port/0, rediss://...,',
    ),
    (
        "redis pw",
        yaml_with(top="redis: {url: 'redis://u:secretpw@'}"),
        'redis.url "redis://***@": must be redis://host:port/0, rediss://...,',
    ),
    (
        "redis accept",
        yaml_with(top="redis: {accept: yes}"),
        'redis.accept "yes": must be one of may lose acknowledged writes',
    ),
    (
        "redis port",
        yaml_with(top="redis: {url: 'redis://h:abc/0'}"),
        'redis.url "redis://h:abc/0": must be redis://host:port/0,',
    ),
    (
        "redis db",
        yaml_with(top="redis: {url: 'redis://h:1/x'}"),
        'redis.url "redis://h:1/x": must be redis://host:port/0, rediss://...,',
    ),
    (
        "redis brackets",
        yaml_with(top="redis: {url: 'redis+cluster://[a:1'}"),
        "must be redis://host:port/0, rediss://...,",
    ),
    (
        "redis sentinel without a name",
        yaml_with(top="redis: {url: 'redis+sentinel://u:secretpw@a:1,b:2'}"),
        'redis.url "redis+sentinel://***@a:1,b:2": names no primary; write the name that the Sentinels know:',
    ),
    (
        "redis sentinel without a host",
        yaml_with(top="redis: {url: 'redis+sentinel://a:1,/main'}"),
        "redis+sentinel://host:port,host:port/name",
    ),
    ("redis sentinel", yaml_with(top="redis: {url: 'rediss+sentinel://u:pw@a:1,b/main/2'}"), None),
    (
        "redis cluster with a database",
        yaml_with(top="redis: {url: 'redis+cluster://a:1/3'}"),
        "names a database; a cluster has database 0 only, leave it out",
    ),
    ("redis cluster", yaml_with(top="redis: {url: 'redis+cluster://u:pw@a:1,[::1]:2', replicas: 1}"), None),
    (
        "redis cluster that may lose a ledger",
        yaml_with(top="redis: {url: 'redis+cluster://a:1'}"),
        "redis.replicas 0: a cluster may lose the node of a source's ledger alone, and nobody would notice; ",
    ),
    (
        "redis cluster with a ledger elsewhere",
        yaml_with(top="redis: {url: 'redis+cluster://a:1'}\nledger: {file: /mnt/x/ledger.ndjson}"),
        "ledger.file: /mnt/x/ledger.ndjson does not exist",
    ),
    (
        "redis managed with a total",
        yaml_with(
            privacy="{epsilon: 1.0, total: {epsilon: 10}}",
            top=f'redis: {{url: "redis://h", accept: "{ACCEPT_MANAGED}"}}',
        ),
        "redis.accept allows Redis to lose what streams have spent, and streams.s.privacy.total needs it; ",
    ),
    (
        "redis replicas embedded",
        yaml_with(top="redis: {replicas: 1}"),
        "an embedded server has none;",
    ),
    (
        "redis tls without tls",
        yaml_with(top="redis: {url: 'redis://h', tls: {ca: ca.pem}}"),
        "redis.tls.ca has no use: a URL connects without TLS; write rediss:// or leave redis.tls out",
    ),
    (
        "redis certificate without key",
        yaml_with(top="redis: {url: 'rediss://h', tls: {certificate: a.pem}}"),
        "redis.tls.certificate and redis.tls.key belong together; write both or neither",
    ),
    (
        "redis tls embedded",
        yaml_with(top="redis: {tls: {ca: ca.pem}}"),
        "redis.tls.ca has no use: an embedded server has no TLS; leave redis.tls out",
    ),
    (
        "clock skew",
        yaml_with(top="redis: {largest_clock_skew: 1000000000s}"),
        'redis.largest_clock_skew "1000000000s": must be from 10ms to 5m: beyond it a wrong clock would',
    ),
    (
        "publish 0",
        yaml_with(top="publish_every: 0s"),
        'publish_every "0s": must be from 250ms to 1d: more often, a busy',
    ),
    (
        "publish 1us",
        yaml_with(top="publish_every: 1us"),
        'publish_every "1us": must be from 250ms to 1d: more often, a busy',
    ),
    (
        "publish 10y",
        yaml_with(top="publish_every: 3650d"),
        'publish_every "3650d": must be from 250ms to 1d: more often, a busy',
    ),
    ("publish > bin", yaml_with(top="publish_every: 1h"), None),
    ("anchor bomb", ANCHORS, "streams [[[[[["),
    (
        "python tag",
        "streams: !!python/object/apply:os.system ['id']",
        "streams cannot be read; write a plain value, without a tag: must hold",
    ),
    (
        "deep",
        "streams: " + "[" * 3000 + "]" * 3000,
        "not YAML: keys and lists more than 50 deep; check the spaces and the",
    ),
    (
        "self anchor",
        "streams: &a {s: *a}",
        "streams.s.source.file is missing; name a file, or a topic of Kafka",
    ),
    ("nul", "streams: \x00", "not YAML: it holds a control character; check the spaces and the"),
    ("two docs", "a: 1\n---\nb: 2", "not YAML: but found another document; check the spaces and the colons"),
    (
        "alert stream",
        yaml_with(top="alerts: {rules: {r: {when: 'count(x) > 1'}}}"),
        'alerts.rules.r.when "count(x) > 1": character 7: names the stream x,',
    ),
    (
        "alert syntax",
        yaml_with(top="alerts: {rules: {r: {when: 'count(s) >> 1'}}}"),
        'alerts.rules.r.when "count(s) >> 1": character 11: here belongs a',
    ),
    (
        "alert nan",
        yaml_with(top="alerts: {rules: {r: {when: 'count(s) > nan'}}}"),
        'alerts.rules.r.when "count(s) > nan": character 12: here belongs a',
    ),
    (
        "alert 1e999",
        yaml_with(top="alerts: {rules: {r: {when: 'count(s) > 1e999'}}}"),
        'alerts.rules.r.when "count(s) > 1e999": character 12: the number is',
    ),
    (
        "alert clear nan",
        yaml_with(top="alerts: {rules: {r: {when: 'count(s) > 10', clear: .nan}}}"),
        "alerts.rules.r.clear nan: must be a finite number",
    ),
    (
        "alert labels reserved",
        yaml_with(top="alerts: {rules: {r: {when: 'count(s) > 10', labels: {alertname: evil, stream: x}}}}"),
        "alerts.rules.r.labels {'alertname': 'evil', 'stream': 'x'}: sets alertname, which",
    ),
    (
        "alert webhook file",
        yaml_with(top="alerts: {webhooks: ['file:///etc/passwd']}"),
        "alerts.webhooks [0]: must be a URL that begins",
    ),
    ("alert webhook meta", yaml_with(top="alerts: {webhooks: ['http://169.254.169.254/latest']}"), None),
    (
        "alert webhook ctl",
        yaml_with(top='alerts: {webhooks: ["http://a b/\\nc"]}'),
        "alerts.webhooks [0]: holds a space or a control",
    ),
    (
        "alert conf 1",
        yaml_with(top="alerts: {rules: {r: {when: 'count(s) > 10', confidence: 1}}}"),
        "alerts.rules.r.confidence 1: must be a number from 0.5 to 0.999999,",
    ),
    (
        "alert window long",
        yaml_with(top="alerts: {rules: {r: {when: 'sum(s, 999999999999d) > 10'}}}"),
        'alerts.rules.r.when "sum(s, 999999999999d) > 10": character 8: the',
    ),
    (
        "out no stream",
        yaml_with(
            source="{topic: t}", top='kafka: {bootstrap_servers: "h:1"}\noutputs: [{stream: x, topic: y}]'
        ),
        "outputs name x, no stream of this file; correct it",
    ),
    (
        "out same",
        yaml_with(
            source="{topic: t}", top='kafka: {bootstrap_servers: "h:1"}\noutputs: [{stream: s, topic: t}]'
        ),
        "outputs go into t, which is read as events; name another topic",
    ),
    (
        "late x",
        yaml_with(extra="late: later"),
        'streams.s.late "later": must be one of next_bin, drop, dead_letter',
    ),
    (
        "accept x",
        yaml_with(privacy="{epsilon: 1, accept: ok}"),
        'streams.s.privacy.accept "ok": must be one of measured again',
    ),
    (
        "state file",
        yaml_with(top="state: {dir: a.ndjson}"),
        "state.dir: HERE/a.ndjson is not a directory; name",
    ),
    ("state dot", yaml_with(top="state: {dir: ''}"), 'state.dir "": must be a word'),
    (
        "key_file",
        yaml_with(top="secrets: {key_file: nope}"),
        "secrets.key_file: HERE/nope: cannot be read: No such file",
    ),
    (
        "secret scalar",
        yaml_with(top="secrets: hunter2"),
        "secrets: must hold keys with values, for example {key_file: noise.key}",
    ),
    (
        "kafka scalar",
        yaml_with(top="kafka: hunter2pw"),
        "kafka: must hold keys with values, for example {bootstrap_servers:",
    ),
    ("tls no key", yaml_with(top="api: {tls: {certificate: a.pem}}"), "api.tls.key is missing; add it"),
    (
        "tls wrong",
        yaml_with(top="api: {tls: {certificate: w.yaml, key: w.yaml}}"),
        "api.tls: HERE/w.yaml and HERE/w.yaml are no",
    ),
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.ndjson").touch()
    return tmp_path


@pytest.mark.slow
def test_each_is_refused_in_one_line_that_says_where_and_what(here: Path) -> None:
    assert len(CASES) >= 140
    wrong = {}
    for name, text, refusal in CASES:
        said = checked(here, text)
        if refusal is None:
            is_as_it_should_be = said.endswith("w.yaml: good; 1 stream(s): s")
        else:
            said = said.replace(str(here), "HERE")
            is_one_line = re.match(r"stream-app: w\.yaml(:\d+)?: [^\n]*$", said) is not None
            is_as_it_should_be = is_one_line and refusal in said
        if not is_as_it_should_be:
            wrong[name] = said
    assert wrong == {}


def checked(here: Path, text: str) -> str:
    """Return the output of ``check-config``. A traceback fails the test."""
    (here / "w.yaml").write_text(text)
    result = CliRunner().invoke(main, ["check-config", "--config", "w.yaml"])
    assert isinstance(result.exception, SystemExit | None), (text, result.exception)
    assert result.exit_code in (0, 2)
    return result.output.strip()


def test_every_refusal_names_a_line_unless_the_file_cannot_be_read(here: Path) -> None:
    lines = [checked(here, text) for _, text, refusal in CASES[:3] if refusal is not None]
    assert [re.match(r"stream-app: w\.yaml:\d+: ", line) is not None for line in lines] == [False, True, True]


GOOD = """
redis: {url: "redis://h:1/0", accept: may lose acknowledged writes}
kafka: {bootstrap_servers: "h:1", group: g}
api: {host: 127.0.0.1, port: 1, origins: [http://a], proxy: {header: X, addresses: [10.0.0.1]}}
operator: {host: 127.0.0.1, port: 2}
state: {dir: ./state}
secrets: {key_file: k}
ledger: {file: l}
outputs: [{stream: t, topic: o}]
publish_every: 1s
alerts: {rules: {r: {when: "sum(s, 1h) > 5", for: 1h, clear: 3, labels: {a: b}}}, webhooks: ["http://a"]}
streams:
  s:
    source: {file: a, format: csv, group: p, replay: {from: 2024-01-01T00:00:00Z, to: 2024-01-02T00:00:00Z}}
    time: {field: at, format: s, bin: 1h, grace: 1m, epoch: 1d, max_ahead: 1h}
    privacy: {epsilon: 1, neighbours: substitute, accept: measured again, unit: {user: u, max_events: 2}}
    tree: {branching: [4, 6], shares: [0.5, 0.5], release: causal, workload: {prefix: 1, bins: 2}}
    keys: {field: k, list: [a, b], other: true, total: true}
    value: {field: v, min: 0, max: 10, buckets: 4}
  t:
    source: {topic: t, start: 2024-01-01T00:00:00Z}
    time: {field: at, format: ms, bin: 1d, timezone: Europe/Paris, grace: 1m, epoch: 30d}
    privacy: {epsilon: 25, not_private: true}
    late: drop
"""
odd = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(["0", "-1", "1e999", ".nan", "1/0", "99999999999999d", "1us", "0s", "/", ".", ".."]),
    st.sampled_from(
        ["http://", "http://[", "redis://h:99999/0", "h:99999", "[::1]:1", "embedded:", "unix://"]
    ),
    st.sampled_from(["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "count(", "sum(s,1h)>1e999", "\x00"]),
    st.lists(st.one_of(st.integers(), st.text(max_size=4)), max_size=3),
    st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
)


def places(value: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    """Return the path of every value of a document, mappings and lists included."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, one in inner for place in places(one, (*path, key)))]


DOCUMENT = yaml.safe_load(re.sub(r"(\d{4}-[\dT:-]+Z)", r"'\1'", GOOD))


@given(st.sampled_from(places(DOCUMENT)[1:]), odd, st.booleans(), st.text(max_size=6))
def test_random_value_anywhere_gives_one_line_and_no_traceback(
    place: tuple[object, ...], value: object, is_key: bool, key: str
) -> None:
    document = yaml.safe_load(yaml.safe_dump(DOCUMENT))
    above = document
    for step in place[:-1]:
        above = above[step]
    if is_key and isinstance(above, dict):
        above[key] = above.pop(place[-1])
    else:
        above[place[-1]] = value
    answers(yaml.safe_dump(document))


@given(st.text(alphabet="abs:{}[]-,&*!|>'\"#% \n\t019.", max_size=60))
def test_random_document_gives_one_line_and_no_traceback(text: str) -> None:
    answers(text)


def answers(text: str) -> None:
    try:
        load_text(text, Path("w.yaml"), {})
    except ConfigError as caught:
        refusal = str(caught)
    else:
        return
    assert re.match(r"w\.yaml(:\d+)?: .", refusal)
    assert len(refusal.splitlines()) == 1


def test_document_is_valid_before_it_is_changed() -> None:
    assert {stream.name for stream in load_text(GOOD, Path("w.yaml"), {}).streams} == {"s", "t"}
