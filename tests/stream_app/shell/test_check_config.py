"""``check-config`` also checks the files that the configuration names."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from stream_app.config.key_file import add_key
from stream_app.shell.commands import main
from tests.certificates import write_certificates

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
