"""``check-config`` also checks the files that the configuration names."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from deploy.ports import free_port
from stream_app.config.key_file import add_key
from stream_app.core.instants import format_instant
from stream_app.shell.commands import main
from tests.certificates import write_certificates
from tests.e2e.service import Service

AVRO = """
kafka: {bootstrap_servers: "127.0.0.1:1"}
streams:
  clicks:
    source:
      topic: clicks
      format: avro
      schema_registry: https://registry
      schema_registry.ssl.ca.location: ca.pem
    time: {field: at, format: ms, bin: 1h, grace: 5s, epoch: 4h}
    privacy: {epsilon: 1}
"""


SPOOL = """
ingest: {keys: writers.ndjson, tls: {certificate: server.pem, key: server.key}}
streams:
  clicks:
    source: {http: clicks}
    time: {field: at, format: ms, bin: 1h, grace: 5s, epoch: 4h}
    privacy: {epsilon: 1}
"""


RECEIVED = """
ingest:
  map: {hooks: {at: "@timestamp", user: sender.id}}
  sites: {shop.example: pages}
streams:
  pushes:
    source: {http: hooks}
    time: {field: at, format: iso8601, bin: 1h, grace: 5m, epoch: 30d}
    privacy: {epsilon: 1, unit: {user: user, max_events: 1}}
    keys: {field: repository, list: [a]}
  visits:
    source: {http: pages}
    time: {field: time, format: ms, bin: 1h, grace: 5m, epoch: 30d, first: 2026-11-01T00:00:00Z}
    privacy: {epsilon: 1, unit: {user: visitor, max_events: 1}}
    keys: {field: props.plan, list: [a]}
    where: {status: 200}
    late: drop
"""


def checked(folder: Path, text: str, command: str = "check-config") -> tuple[int, str]:
    """Return the status of a command over a configuration, and what it prints."""
    (folder / "app.yaml").write_text(text)
    found = CliRunner().invoke(main, [command, "--config", str(folder / "app.yaml")])
    return found.exit_code, found.output


def keys(folder: Path) -> None:
    add_key(folder / "writers.ndjson", "shop", ["clicks"])


def certificate(folder: Path) -> None:
    write_certificates(folder, "server")


@pytest.mark.slow
def test_fields_that_no_event_over_http_has_are_named(tmp_path: Path) -> None:
    warned = [
        "streams.pushes: ingest.map.hooks makes no field repository; it makes at, user",
        "streams.pushes.time.format: ingest.map.hooks writes at in ms; write ms",
        "streams.visits: a page's script makes no field status; it makes time, visitor, name, page, ",
        "streams.visits.time.format: a page's script writes time in us; write us",
    ]
    status, said = checked(tmp_path, RECEIVED)
    assert (status, [line in said for line in warned]) == (0, [True] * 4), said
    mended = RECEIVED.replace("iso8601", "ms", 1).replace("time, format: ms", "time, format: us")
    for wrong, right in (("repository", "user"), ("status: 200", "name: pageview")):
        mended = mended.replace(wrong, right)
    status, said = checked(tmp_path, mended)
    assert (status, "makes no field" in said, "writes" in said) == (0, False, False), said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "missing"),
    [
        (SPOOL, {"ingest.keys: .* does not exist; make it": keys, "ingest.tls.certificate: ": certificate}),
        (AVRO, {"source.schema_registry.ssl.ca.location: .*/ca.pem: No such file": write_certificates}),
    ],
)
def test_files_of_listener_and_registry_are_checked(
    tmp_path: Path, text: str, missing: dict[str, Callable[[Path], None]]
) -> None:
    for said, make in missing.items():
        status, line = checked(tmp_path, text)
        assert (status, bool(re.search(said, line))) == (2, True), line
        make(tmp_path)
    assert checked(tmp_path, text)[0] == 0


CHANGED = """
redis: {{url: "embedded:./redis"}}
api: {{port: {port}}}
publish_every: 250ms
streams:
  clicks:
    source: {{file: clicks.ndjson}}
    time: {{field: at, format: s, bin: 1s, grace: 0s, epoch: 60s}}
    privacy: {{epsilon: 1}}
"""
SHORTER = "on, as generation 2: time.epoch 30s instead of 1m; a start stores"


@pytest.mark.redis
@pytest.mark.slow
def test_a_stream_that_was_changed_since_it_began_is_refused_or_goes_on_changed(tmp_path: Path) -> None:
    """While the embedded Redis runs it is asked; later a copy of its files is."""
    text = CHANGED.format(port=free_port())
    changed = text.replace("epoch: 60s", "epoch: 30s")
    good = 0, f"{tmp_path}/app.yaml: good; 1 stream(s): clicks\n"
    begun = format_instant((int(time.time()) - 3600) * 1_000_000)
    after = text.replace("clicks:", "after:").replace("epoch: 60s", f'epoch: 60s, first: "{begun}"')
    after += "    successor_of: PAST\n"
    event = {"at": int(time.time()), "paid": int(time.time()), "u": "ann"}
    (tmp_path / "clicks.ndjson").write_text(json.dumps(event) + "\n")
    assert checked(tmp_path, text) == good
    with Service(["run", "--config", "app.yaml"], tmp_path) as service:
        service.until("released until")
        assert checked(tmp_path, text) == good
        outside = text + "ledger: {file: ledger}\n"
        assert checked(tmp_path, outside)[0] == 2
        checked(tmp_path, outside, "new-ledger")
        status, said = checked(tmp_path, outside)
        assert (status, "not checked" in said) == (0, False), said
        for asked, expected, words in (
            (changed, 0, SHORTER),
            (text.replace("epsilon: 1", "epsilon: 2"), 0, "generation 2: privacy.epsilon 2 instead of 1;"),
            (
                text.replace("lon: 1", "lon: 1, unit: {user: u, max_events: 1}"),
                2,
                "clicks: privacy.unit was ",
            ),
            (text.replace("clicks:", "other:"), 2, "streams.other.privacy.accept is missing: file:clicks."),
            (text.replace("60s", f'60s, until: "{begun}"'), 2, "time.until: clicks has already counted bins"),
            (
                after.replace("PAST", "clicks"),
                2,
                "streams.after.time.first: clicks has already counted bins from ",
            ),
            (
                after.replace("PAST", "clicks").replace("field: at", "field: paid"),
                2,
                "streams.after.successor_of: clicks reads its times from another field",
            ),
            (
                after.replace("PAST", "nobody"),
                2,
                "streams.after.successor_of: this store has no stream nobody",
            ),
            (text.replace("field: at", "field: paid"), 2, "or its time.field or format changed"),
            (text.replace("format: s", "format: ms"), 2, "streams.clicks.time.format: the times of a sample"),
        ):
            status, said = checked(tmp_path, asked)
            assert (status, words in said) == (expected, True), said
        (tmp_path / "app.yaml").write_text(text)
        assert service.interrupt() == 0
    assert checked(tmp_path, text) == good
    status, said = checked(tmp_path, changed)
    assert (status, SHORTER in said) == (0, True)


@pytest.mark.redis
@pytest.mark.slow
def test_an_external_store_that_is_unreachable_is_named(tmp_path: Path) -> None:
    (tmp_path / "clicks.ndjson").write_text(json.dumps({"at": int(time.time())}) + "\n")
    unreachable = f"redis://127.0.0.1:{free_port()}/0"
    text = CHANGED.format(port=free_port()).replace("embedded:./redis", unreachable)
    status, said = checked(tmp_path, text)
    assert (status, "not checked: the store cannot be asked (" in said) == (0, True), said


BESIDE = """
streams:
  a:
    source: {{file: events.ndjson}}
    time: {{field: at, format: s, bin: 1h, grace: 5m, epoch: 1d, first: 2024-01-01T00:00:00Z}}
    privacy: {{epsilon: 1, unit: {{user: who, max_events: 2}}, total: {{epsilon: 9}}}}
  b:
    source: {{file: {file}}}
    time: {{field: at, format: s, bin: 1h, grace: 5m, epoch: 1d, first: 2024-01-01T00:00:00Z}}
    privacy: {{epsilon: 1, unit: {{user: who, max_events: 2}}, accept: "measured again"{total}}}
"""


@pytest.mark.parametrize(
    ("file", "total", "warned"),
    [
        ("events.ndjson", "", "is missing"),
        ("events.ndjson", ", total: {epsilon: 5}", "is another one (the total of epsilon 5 for the source)"),
        ("events.ndjson", ", total: {epsilon: 9, per: stream}", "is another one (the total of epsilon 9 for"),
        ("events.ndjson", ", total: {epsilon: 9}", ""),
        ("others.ndjson", "", ""),
    ],
)
def test_stream_that_another_stream_s_total_does_not_hold_back_is_named(
    tmp_path: Path, file: str, total: str, warned: str
) -> None:
    for name, user in (("events.ndjson", "ann"), ("others.ndjson", "bob")):
        (tmp_path / name).write_text(f'{{"at": 1704067200, "who": "{user}"}}\n')
    status, output = checked(tmp_path, BESIDE.format(file=file, total=total))
    assert status == 0
    lines = [line for line in output.splitlines() if "privacy.total: " in line]
    said = ": a keeps to the total of epsilon 9 for the source, and b may take file:events.ndjson beyond it; "
    assert [warned in line and said in line for line in lines] == [True] * bool(warned)
