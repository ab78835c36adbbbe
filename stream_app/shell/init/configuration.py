"""The text of a first configuration: the answers, each with a comment on its effect."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from urllib.parse import urlsplit

from dphist.planning.report import in_decimals
from stream_app.config import ClusterSettings, values
from stream_app.config.kafka import FILES, REGISTRY_CA, SECRETS, variables_of
from stream_app.config.source import format_of
from stream_app.core.declaration import LogFormat
from stream_app.kafka.tokens import CLIENT_SECRET
from stream_app.ports import OperatorError
from stream_app.shell.init.answers import Answers, Topic, unit_of
from stream_app.shell.samples.of_log import SchemaHints

_HOUR_US, _DAY_US = 3_600_000_000, 86_400_000_000
_LONG_US, _SHORT_US = 30 * _DAY_US, _DAY_US  # of an epoch
_SHORT_BIN_US = 10_000_000  # bins below this have short epochs
_PLAIN = re.compile(r"[A-Za-z_/][\w./*-]*", re.ASCII)
_RESERVED = ("null", "true", "false")
_VARIABLES = {
    "sasl.password": "SASL_PASSWORD",
    CLIENT_SECRET: "OAUTH_CLIENT_SECRET",
}
_WIDTH = 44  # where comments begin

Line = str  # a setting, a tab, and its comment; no value holds a tab as it is


def configuration(answers: Answers, name: str, config: Path) -> str:
    """Return the text of a configuration. Args: name, of the stream; config, the file that it goes into."""
    head = [
        "# Written by stream-app init. docs/configuration.md explains every key.",
        f"# Check it:  stream-app doctor --config {config}",
        f"# Count:     stream-app run --config {config}",
        "# Changes of a running stream hold from a later instant on: stream-app check-config says when.",
    ]
    lines = [*_clusters(answers, config), "streams:", f"  {name}:\tthe name of the stream in every answer"]
    lines += [*_source(answers, config), *_time(answers), *_privacy(answers), *_cells(answers)]
    return "\n".join([*head, "", *map(_written, lines)]) + "\n"


def name_of(events: Path | Topic) -> str:
    """Return a stream's name from the name of its log.

    >>> [name_of(one) for one in (Path("x/Clicks-2026-*.csv.gz"), Topic("shop.orders"), Path("2026.csv"))]
    ['clicks', 'shop-orders', 'events']
    """
    name = events.name
    if isinstance(events, Path):
        name = re.sub(r"[\d*._-]+$", "", name.partition(".")[0])
    return re.sub(r"[^a-z0-9_]+", "-", name.lower()).strip("-_")[:63] or "events"


def quoted(text: str) -> str:
    """Return a text as YAML reads it back.

    >>> [quoted(text) for text in ("meta.at", "clicks-*.csv", "*.csv", "null", "a: b")]
    ['meta.at', 'clicks-*.csv', '"*.csv"', '"null"', '"a: b"']
    """
    plain = _PLAIN.fullmatch(text) and text.lower() not in _RESERVED
    return text if plain else f'"{"".join(map(_escaped, text))}"'


def _escaped(letter: str) -> str:
    if letter in '"\\':
        return f"\\{letter}"
    return letter if letter.isprintable() else f"\\U{ord(letter):08x}"


def _written(line: Line) -> str:
    read, _, comment = line.partition("\t")
    return f"{read:<{_WIDTH}} # {comment}" if read and comment else read or f"    # {comment}"


def _clusters(answers: Answers, config: Path) -> Iterator[Line]:
    if answers.clusters:
        yield "kafka:"
    for name, cluster in answers.clusters.items():
        if name:
            yield "  clusters:"
            yield f"    {name}:\tof the topic; the ledger names both"
        yield from _cluster(cluster, config, name)


def _cluster(cluster: ClusterSettings, config: Path, name: str) -> Iterator[Line]:
    inner = " " * (6 if name else 2)
    plain = "" if cluster.security else "a cluster with TLS or passwords: docs/configuration.md, kafka"
    yield f"{inner}bootstrap_servers: {quoted(cluster.bootstrap_servers)}\t{plain}"
    for key, value in cluster.security.items():
        if key in FILES:
            value = beside(Path(value), config)
        if key not in SECRETS:
            yield f"{inner}{key}: {quoted(value)}"
    for key in (key for key in SECRETS if key in cluster.security):
        said = f"set {variables_of(name)}{_VARIABLES[key]}" if key in _VARIABLES else "add it"
        yield f"\t{key} is not written here; {said}"


def _source(answers: Answers, config: Path) -> Iterator[Line]:
    yield "    source:"
    if isinstance(answers.events, Topic):
        if answers.events.cluster:
            yield f"      cluster: {answers.events.cluster}\tof kafka.clusters"
        yield f"      topic: {quoted(answers.events.name)}\tfollowed live"
        yield from _format(answers.form or "json", answers.hints, config)
        return
    file = beside(answers.events, config)
    how = "new lines are followed" if answers.to is None else "read once, because it no longer grows"
    yield f"      file: {quoted(file)}\tone event a line; {how}"
    if answers.form != format_of(answers.events):
        yield f"      format: {answers.form}"
    if answers.to is not None:
        yield "      replay:\ttake it out to follow new lines; time.first and grace are then needed"
        yield f"        from: {answers.first}\tearlier events are refused. Public"
        yield f"        to: {answers.to}\tevents from then on are refused. Public"


def _format(form: LogFormat, hints: SchemaHints, config: Path) -> Iterator[Line]:
    yield f"      format: {form}\t{'or csv, json_schema, avro, protobuf' if form == 'json' else ''}"
    if hints.columns:
        yield f"      columns: [{', '.join(map(quoted, hints.columns))}]\tthe values of a record, in order"
    if hints.registry:
        parts = urlsplit(hints.registry)
        plain = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        hidden = "" if plain == hints.registry else "its user and password are not written; add them"
        yield f"      schema_registry: {quoted(plain)}\t{hidden}"
    if hints.authority is not None:
        yield f"      {REGISTRY_CA}: {quoted(beside(hints.authority, config))}"


def beside(file: Path, config: Path) -> str:
    """Return the path of a file as a configuration names it."""
    return os.path.relpath(file.absolute(), config.absolute().parent)


def _time(answers: Answers) -> Iterator[Line]:
    bin_us = values.duration_us(answers.bin)
    epoch_us = _SHORT_US if bin_us < _SHORT_BIN_US else _LONG_US
    if answers.to is not None and answers.first is not None:  # all of a replay is one epoch
        epoch_us = values.instant_us(answers.to) - values.instant_us(answers.first)
    bins = (epoch_us + (_HOUR_US if bin_us == _DAY_US else 0)) // bin_us  # a day of a zone may lack an hour
    epoch = values.format_duration(max(bins, 1) * bin_us)
    live = isinstance(answers.events, Topic)
    yield "    time:"
    yield f"      field: {quoted(answers.time.path)}\twhen an event happened"
    forms = "iso8601 with an offset, or s, ms, us, ns since 1970"
    if answers.hints.registry:
        forms = "of numbers and texts; a time type of the schema says its own unit"
    yield f"      format: {answers.time.format}\t{forms}"
    if answers.time.zone is not None:
        yield f"      zone: {answers.time.zone}\tof times without an offset"
        if bin_us == _DAY_US:
            yield f"      timezone: {answers.time.zone}\twhose calendar days are the bins"
    yield f"      bin: {answers.bin}\tthe finest time that readers can ask about"
    if answers.to is not None:
        yield f"      epoch: {epoch}\tall of the replay: its last count is the count of all events"
        return
    yield f"      grace: {'10s' if live else '1m'}\thow long a bin waits for late events"
    yield f"      epoch: {epoch}\tnoise is planned for this long; the page adds epochs up"
    if answers.first is not None:
        public = "Public: init proposes the month of a sample"
        yield f"      first: {answers.first}\tearlier events are refused. {public}"
    else:
        yield "\t  first: 2026-01-01T00:00:00Z  # without it, events before the first start are refused"


_FOUND = "shows a value that many people brought; delta: the chance to show one that one person brought"


def _privacy(answers: Answers) -> Iterator[Line]:
    whom = "one event changes" if answers.user is None else "all events of one user in an epoch change"
    odds = math.exp(float(answers.epsilon))
    odds_in_words = f"{odds:,.2g}" if odds < 10 else f"{odds:,.0f}"
    yield "    privacy:"
    finds = answers.counted.key is not None and not answers.keys
    most = f"at most {odds_in_words}-fold{', but for discover.delta' if finds else ''}"
    yield f"      epsilon: {answers.epsilon}\t{whom} the odds of any result {most}"
    if answers.user is None:
        whole = "protects a person with all events, with larger errors"
        yield f"\t  unit: {{user: FIELD, max_events: 10}}  # {whole}"
        return
    yield "      unit:"
    person = quoted(answers.user)
    yield f"        user: {person}\tthe field that names a person; events without it are refused"
    capped = "of a person in an epoch; more are not counted; errors grow with it"
    yield f"        max_events: {answers.max_events}\t{capped}"


def _cells(answers: Answers) -> Iterator[Line]:
    if (key := answers.counted.key) is not None:
        yield "    keys:"
        yield f"      field: {quoted(key)}\tevents are counted for each of its values"
        if answers.keys:
            yield f"      list: [{', '.join(map(quoted, answers.keys))}]\tpublic; other values count as other"
        else:
            part = in_decimals(Fraction(answers.epsilon) / 2)
            yield f"      discover: {{epsilon: {part}, delta: 1e-9}}\t{_FOUND}"
    if (amount := answers.counted.amount) is not None and answers.span is not None:
        low, high = (in_decimals(end) for end in answers.span)
        yield "    sum:"
        yield f"      field: {quoted(amount)}\tthe number that is added up"
        yield f"      min: {low}\tpublic; smaller numbers count as this one"
        yield f"      max: {high}\tpublic; larger numbers count as this one; errors grow with it"
        yield f"      unit: {in_decimals(unit_of(answers.span))}\tnumbers are rounded to this"


def refuse_existing(config: Path) -> None:
    """Refuse to write where a file is, or where nobody may write. Raises: OperatorError."""
    if os.path.lexists(config):
        raise OperatorError(f"{config} is there already and is not changed; name another file with --config")
    if not os.path.isdir(directory := config.absolute().parent):
        raise OperatorError(f"{config}: its directory is not there; create it, or name another file")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise OperatorError(f"{config}: {directory} cannot be written; name another file with --config")


def write_new(config: Path, text: str) -> None:
    """Create a file whole, or not at all. Raises: OperatorError."""
    try:
        with config.open("x", encoding="utf-8") as file:
            try:
                file.write(text)
                file.flush()
            except BaseException:
                config.unlink(missing_ok=True)
                raise
    except FileExistsError:
        raise OperatorError(f"{config} was created meanwhile and is not changed; name another file") from None
    except OSError as failure:
        raise OperatorError(
            f"{config}: cannot be written: {failure.strerror}; name another file with --config"
        ) from None
