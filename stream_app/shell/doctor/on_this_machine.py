"""The checks of a start on this machine, made without starting: files, keys, directories."""

from __future__ import annotations

import re
import ssl

from stream_app.config import ConfigError, Settings, TopicSettings
from stream_app.config.access import check_operator
from stream_app.config.document import place_of
from stream_app.config.key_file import read_keys
from stream_app.config.plans import planned
from stream_app.config.settings import IngestSettings, TlsSettings
from stream_app.durable import check_directory
from stream_app.ports import OperatorError
from stream_app.shell.working import Step, silent
from stream_app.sinks.ledger_file import LedgerFile
from stream_app.stored_format import check_directory_format
from stream_app.wiring.event_logs import check_files, decoder_of
from stream_app.wiring.storage import noise_keys, outside_ledger


def check_here(settings: Settings, step: Step = silent) -> None:
    """Plan every stream and check every file that the configuration names, without changing anything.

    Args: step, which is called with what is done next.
    Raises: OperatorError, one line that begins with the configuration's file.
    """
    for stream in settings.streams:
        step(f"planning {stream.name}")
        planned(stream)
        try:
            check_files([stream])
            if isinstance(stream.source, TopicSettings):
                decoder_of(stream.source, [stream])
        except OperatorError as refusal:
            raise ConfigError(f"{stream.where}: {refusal}") from None
    step("checking files")
    try:
        _check_files(settings)
    except OperatorError as refusal:
        [key] = re.findall(r"^[\w.]*", str(refusal))
        raise ConfigError(f"{place_of(settings.file, key)}: {refusal}") from None


def _check_files(settings: Settings) -> None:
    for key, directory in (("state.dir", settings.state_dir), ("redis.url", settings.redis.embedded)):
        if directory is not None:
            check_directory(key, directory)
            check_directory_format(key, directory)
    noise_keys(settings)
    check_operator(settings.operator)
    if settings.kafka is not None:
        from stream_app.wiring.topics import cluster_of  # its packages may not be installed

        for name in settings.kafka.clusters:
            cluster_of(settings, name).client()  # reads its password and certificates
    if settings.api.keys is not None:
        read_keys(settings.api.keys)
    if settings.api.tls is not None:
        _check_tls("api.tls", settings.api.tls)
    if settings.ingest is not None:
        _check_ingest(settings.ingest)
    outside = outside_ledger(settings)
    if isinstance(outside, LedgerFile):
        outside.check_there()


def _check_ingest(ingest: IngestSettings) -> None:
    check_directory("ingest.dir", ingest.directory)
    check_operator(ingest.operator)
    if ingest.keys is not None:
        read_keys(ingest.keys, "ingest.keys")
    if ingest.tls is not None:
        _check_tls("ingest.tls", ingest.tls)


def _check_tls(section: str, files: TlsSettings) -> None:
    """Check that certificate and key can be used. Raises: OperatorError, one line."""
    for key, file in (("certificate", files.certificate), ("key", files.key)):
        try:
            file.open("rb").close()
        except OSError as failure:
            reason = f"{file} cannot be read: {failure.strerror}"
            raise OperatorError(f"{section}.{key}: {reason}; name a PEM file") from None
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
            files.certificate, files.key, password=lambda: b""
        )
    except (OSError, ValueError):  # ssl.SSLError is an OSError
        raise OperatorError(
            f"{section}: {files.certificate} and {files.key} are not a certificate and its key in PEM, or "
            "the key has a password; correct them"
        ) from None
