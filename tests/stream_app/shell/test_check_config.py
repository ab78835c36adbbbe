"""``check-config`` also checks the files that the configuration names."""

from __future__ import annotations

import json
import time
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


@pytest.mark.slow
def test_files_of_the_listener_are_checked(tmp_path: Path) -> None:
    file = tmp_path / "app.yaml"
    file.write_text(SPOOL)
    refused = CliRunner().invoke(main, ["check-config", "--config", str(file)])
    assert "ingest.keys: " in refused.output
    assert "does not exist; make it with stream-app api-key" in refused.output
    add_key(tmp_path / "writers.ndjson", "shop", ["clicks"])
    refused = CliRunner().invoke(main, ["check-config", "--config", str(file)])
    assert (refused.exit_code, "ingest.tls.certificate: " in refused.output) == (2, True)
    write_certificates(tmp_path, "server")
    assert CliRunner().invoke(main, ["check-config", "--config", str(file)]).exit_code == 0


@pytest.mark.slow
def test_missing_registry_certificates_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "app.yaml"
    file.write_text(AVRO)
    refused = CliRunner().invoke(main, ["check-config", "--config", str(file)])
    assert refused.exit_code == 2
    [line] = refused.output.splitlines()
    assert f"source.schema_registry.ssl.ca.location: {tmp_path}/ca.pem: No such file" in line
    write_certificates(tmp_path)
    assert CliRunner().invoke(main, ["check-config", "--config", str(file)]).exit_code == 0


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


@pytest.mark.redis
@pytest.mark.slow
def test_a_stream_that_was_changed_since_it_began_is_refused_or_goes_on_changed(tmp_path: Path) -> None:
    """While the embedded Redis runs it is asked; later a copy of its files is."""

    def checked(text: str) -> tuple[int, str]:
        (tmp_path / "app.yaml").write_text(text)
        found = CliRunner().invoke(main, ["check-config", "--config", str(tmp_path / "app.yaml")])
        return found.exit_code, found.output

    text = CHANGED.format(port=free_port())
    (tmp_path / "clicks.ndjson").write_text(json.dumps({"at": int(time.time())}) + "\n")
    assert checked(text) == (0, f"{tmp_path}/app.yaml: good; 1 stream(s): clicks\n")
    changed, moved = text.replace("epoch: 60s", "epoch: 30s"), text.replace("format: s", "format: ms")
    with Service(["run", "--config", "app.yaml"], tmp_path) as service:
        service.until("released until")
        assert checked(text) == (0, f"{tmp_path}/app.yaml: good; 1 stream(s): clicks\n")
        outside = text + "ledger: {file: ledger}\n"
        assert checked(outside)[0] == 2
        CliRunner().invoke(main, ["new-ledger", "--config", str(tmp_path / "app.yaml")])
        status, said = checked(outside)
        assert (status, "not checked" in said) == (0, False), said
        status, said = checked(changed)
        assert (status, "on, as generation 2: time.epoch 30s instead of 1m; a start stores" in said) == (
            0,
            True,
        ), said
        status, said = checked(text.replace("epsilon: 1", "epsilon: 1, unit: {user: u, max_events: 1}"))
        assert (status, "stream clicks: privacy.unit was " in said) == (2, True), said
        assert "put it back, or give the new stream another name" in said
        status, said = checked(text.replace("clicks:", "other:"))
        refused = (
            "streams.other.privacy.accept is missing: file:clicks.ndjson is already measured by clicks from"
        )
        assert (status, refused in said) == (2, True), said
        begun = format_instant((int(time.time()) - 3600) * 1_000_000)
        status, said = checked(text.replace("epoch: 60s", f'epoch: 60s, until: "{begun}"'))
        assert (status, "streams.clicks.time.until: clicks has already counted bins" in said) == (2, True), (
            said
        )
        after = text.replace("clicks:", "after:").replace("epoch: 60s", f'epoch: 60s, first: "{begun}"')
        for facts, field, line in (
            ("clicks", "at", "streams.after.time.first: clicks has already counted bins from "),
            ("clicks", "paid", "streams.after.successor_of: clicks reads its times from another field"),
            ("nobody", "at", "streams.after.successor_of: this store has no stream nobody"),
        ):
            status, said = checked(
                f"{after}    successor_of: {facts}\n".replace("field: at", f"field: {field}")
            )
            assert (status, line in said) == (2, True), said
        status, said = checked(text.replace("epsilon: 1", "epsilon: 2"))
        assert status == 0, said
        [told] = [line for line in said.splitlines() if line.startswith("clicks: from ")]
        assert " on, as generation 2: privacy.epsilon 2 instead of 1; a start stores this now" in told
        status, said = checked(moved)
        assert (
            status,
            "is not the file that the stream began with, or its time.field or format changed" in said,
        ) == (
            2,
            True,
        )
        (tmp_path / "app.yaml").write_text(text)
        assert service.interrupt() == 0
    assert checked(text) == (0, f"{tmp_path}/app.yaml: good; 1 stream(s): clicks\n")
    status, said = checked(changed)
    assert (status, "on, as generation 2: time.epoch 30s instead of 1m; a start stores" in said) == (0, True)


@pytest.mark.redis
@pytest.mark.slow
def test_an_external_store_is_compared_and_an_unreachable_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "clicks.ndjson").write_text(json.dumps({"at": int(time.time())}) + "\n")
    unreachable = f"redis://127.0.0.1:{free_port()}/0"
    text = CHANGED.format(port=free_port()).replace("embedded:./redis", unreachable)
    (tmp_path / "app.yaml").write_text(text)
    found = CliRunner().invoke(main, ["check-config", "--config", str(tmp_path / "app.yaml")])
    assert found.exit_code == 0, found.output
    assert "not checked: the store cannot be asked (" in found.output


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
        (
            "events.ndjson",
            ", total: {epsilon: 9, per: stream}",
            "is another one (the total of epsilon 9 for the stream)",
        ),
        ("events.ndjson", ", total: {epsilon: 9}", ""),
        ("others.ndjson", "", ""),
    ],
)
def test_stream_that_another_stream_s_total_does_not_hold_back_is_named(
    tmp_path: Path, file: str, total: str, warned: str
) -> None:
    for name, user in (("events.ndjson", "ann"), ("others.ndjson", "bob")):
        (tmp_path / name).write_text(f'{{"at": 1704067200, "who": "{user}"}}\n')
    (tmp_path / "app.yaml").write_text(BESIDE.format(file=file, total=total))
    done = CliRunner().invoke(main, ["check-config", "--config", str(tmp_path / "app.yaml")])
    assert done.exit_code == 0
    lines = [line for line in done.output.splitlines() if "privacy.total: " in line]
    said = (
        f"warning: streams.b.privacy.total: {warned}: a keeps to the total of epsilon 9 for the source, "
        "and b may take file:events.ndjson beyond it; give both the same total"
    )
    assert lines == ([said] if warned else [])
