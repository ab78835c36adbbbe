"""The needs of a configuration on this machine, as one list for check-config, doctor and a start."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Literal

from stream_app.config import Settings, SourceSettings, StreamSettings, TopicSettings
from stream_app.config.access import check_operator
from stream_app.config.key_file import read_keys
from stream_app.config.plans import planned
from stream_app.config.settings import TlsSettings
from stream_app.durable import check_directory
from stream_app.ports import OperatorError, OutsideLedger
from stream_app.sinks.ledger_file import LedgerFile
from stream_app.stored_format import check_directory_format
from stream_app.vault.key_ring import KeyRing
from stream_app.wiring.event_logs import check_log, decoder_of
from stream_app.wiring.halted import some_of
from stream_app.wiring.storage import outside_ledger

State = Literal["ok", "note", "warn", "fail"]


class Reach(IntEnum):
    """The farthest thing that a check asks; a command makes the checks up to one of these."""

    FILE = 1  # a file of events, or its format
    MACHINE = 2
    STORE = 3
    CLUSTER = 4


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Args:
        what: the configuration key, or the object that it names.
        state: "ok"; "note", about an option that is not used; "warn", which may be intended;
            "fail", if the service cannot start or keep its guarantee.
        said: the result and, if it is not "ok", the remedy.
        exact: whether it is computed from events, which makes it private.
        public: for an exact result, a text without numbers of events, which a public log may show.
    """

    what: str
    state: State
    said: str
    exact: bool = False
    public: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that a configuration needs.

    Args:
        key: the configuration key that a person would correct.
        ask: return the findings. Raises: OperatorError, the line with which a start is refused.
        ends: whether a run ends with status 2 because of a finding that fails.
    """

    key: str
    reach: Reach
    ask: Callable[[], Iterable[Finding] | Awaitable[Iterable[Finding]]]
    ends: bool = True

    async def asked(self) -> list[Finding]:
        """Return the findings. Raises: OperatorError, as a start does."""
        asked = self.ask()
        return list(await asked if isinstance(asked, Awaitable) else asked)

    async def found(self) -> list[Finding]:
        """Return the findings; a refusal is a finding that fails."""
        try:
            return await self.asked()
        except OperatorError as refusal:
            return [self.refused(refusal)]

    def refused(self, refusal: OperatorError) -> Finding:
        """Return a refusal of a start as a finding."""
        return Finding(self.key, "fail", str(refusal).removeprefix(f"{self.key}: "))


def checks_of_logs(settings: Settings) -> Iterator[Check]:
    """Yield the checks of each stream: its plan, its file or the format of its topic."""
    for stream in settings.streams:
        key = f"streams.{stream.name}"
        yield Check(key, Reach.FILE, partial(_silent, partial(planned, stream)))
        source = stream.source
        if isinstance(source, TopicSettings):
            ask = partial(_silent, partial(decoder_of, source, [stream]))
            yield Check(f"{key}.source.format", Reach.FILE, ask)
        elif source.keep_us is None:
            yield Check(f"{key}.source.file", Reach.FILE, partial(_log, stream, source, settings.state_dir))


def checks_of_machine(settings: Settings) -> Iterator[Check]:
    """Yield the checks of directories, keys, certificates and the ledger's file, of all processes."""

    def needs(key: str, ask: Callable[[], object]) -> Check:
        return Check(key, Reach.MACHINE, partial(_silent, ask))

    ingest, api = settings.ingest, settings.api
    directories = {"state.dir": settings.state_dir, "redis.url": settings.redis.embedded}
    directories["ingest.dir"] = None if ingest is None else ingest.directory
    for key, directory in directories.items():
        if directory is not None:
            yield Check(key, Reach.MACHINE, partial(_directory, key, directory))
    yield Check("secrets.key_file", Reach.MACHINE, partial(_noise_keys, settings))
    own = None if ingest is None else ingest.operator
    for operator in dict.fromkeys((settings.operator, api.operator, settings.alerts.operator, own)):
        yield needs("operator.host", partial(check_operator, operator))
    for name in {} if settings.kafka is None else settings.kafka.clusters:
        yield needs("kafka", partial(_client, settings, name))
    if api.keys is not None:
        yield needs("api.keys", partial(read_keys, api.keys))
    if ingest is not None and ingest.keys is not None:
        yield needs("ingest.keys", partial(read_keys, ingest.keys, "ingest.keys"))
    for key, tls in (("api.tls", api.tls), ("ingest.tls", None if ingest is None else ingest.tls)):
        if tls is not None:
            yield needs(key, partial(_check_tls, key, tls))
    if (outside := outside_ledger(settings)) is not None:
        reach = Reach.MACHINE if isinstance(outside, LedgerFile) else Reach.CLUSTER
        yield Check("ledger", reach, partial(_ledger, outside))


def noise_of_this_machine(settings: Settings) -> str | None:
    """Return which streams no worker on another machine can go on with; None if there are none."""
    if settings.noise_key_file is not None:
        return None
    names = [
        stream.name
        for stream in settings.streams
        if isinstance(stream.source, TopicSettings)
        and settings.output_of(stream.name) is not None
        and planned(stream).kind.drawn_ahead
    ]
    if not names:
        return None
    return (
        f"it is not set, so only workers over this state.dir can read the noise of {some_of(names)}; a "
        "worker on another machine would stop these streams; set it before you start one"
    )


def _silent(ask: Callable[[], object]) -> Iterator[Finding]:
    """Run a check that can only raise; it has no findings otherwise."""
    ask()
    return iter(())


def _log(stream: StreamSettings, source: SourceSettings, state_dir: Path) -> Iterator[Finding]:
    what = f"streams.{stream.name}.source.file"
    unread = check_log(stream, source, state_dir)
    yield Finding(what, "ok", f"{source.file} can be read")
    if unread:
        said = f"not checked: whether {unread:,} more bytes of compressed files are whole; a start does"
        yield Finding(what, "warn", said)


def _directory(key: str, directory: Path) -> Iterator[Finding]:
    check_directory(key, directory)
    check_directory_format(key, directory)
    if directory.exists() and directory.stat().st_mode & 0o077:
        said = f"{directory} holds secrets and others may enter it, until a start or chmod 700"
        yield Finding(key, "warn", said)
    else:
        yield Finding(key, "ok", f"{directory} can be written")


def _noise_keys(settings: Settings) -> Iterator[Finding]:
    """Yield whether the workers' shared secret is usable, and whether a rotation is to be finished."""
    what, file = "secrets.key_file", settings.noise_key_file
    if file is None:
        if said := noise_of_this_machine(settings):
            yield Finding(what, "note", said)
        return
    ring = KeyRing.read(file)
    if len(ring.keys) > 1:
        yield Finding(what, "warn", f"{file} holds {len(ring.keys)} keys; run stream-app rotate-key finish")
    elif len(ring.users) > 1:
        said = (
            f"{file} holds {len(ring.users)} keys of users' hashes; when cap windows under the older ones "
            "are released, stream-app rotate-key finish takes them out"
        )
        yield Finding(what, "warn", said)
    else:
        yield Finding(what, "ok", f"{file} holds a secret")


async def _ledger(outside: OutsideLedger) -> list[Finding]:
    try:
        entries = await outside.entries()
    except OSError as failure:
        raise OperatorError(str(failure)) from None
    return [Finding("ledger", "ok", f"{outside.name} holds {len(entries)} epoch(s)")]


def _client(settings: Settings, name: str) -> None:
    from stream_app.wiring.topics import cluster_of  # its packages may not be installed

    cluster_of(settings, name).client()  # reads its password and certificates


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
