"""The command ``stream-app init``."""

from __future__ import annotations

import os
import shlex
import time
from fractions import Fraction
from pathlib import Path

import click

from stream_app.config import ConfigError, load_text
from stream_app.config.second_measurement import check_measurements
from stream_app.ports import OperatorError
from stream_app.shell.init import answers, proposals
from stream_app.shell.init.answers import FIND, NOBODY, NOW, RECORD_TIME, Answers, Counted, Topic
from stream_app.shell.init.configuration import configuration, name_of, refuse_existing, write_new
from stream_app.shell.init.questions import Questions
from stream_app.shell.init.topics import Reach, asked_sample, reached
from stream_app.shell.init.web_log import web_configuration
from stream_app.shell.options import CONFIG, bootstrap_option
from stream_app.shell.planning.shown import print_plan
from stream_app.shell.present_step import working
from stream_app.shell.samples.of_log import NO_HINTS, Sample, file_sample
from stream_app.sources.decode import TimeField
from stream_app.sources.file_list import files_of, is_list
from stream_app.sources.packed import is_packed, unpacked_name

_FILES = (".csv", ".ndjson", ".jsonl")
_OF_A_FILE = ("grows", "first", "to")  # options
_OF_A_WEB_LOG = ("site", "first", "epsilon")
_MOST_NAMED = 12  # fields, at a question


@click.command()
@click.argument("file", required=False)
@click.option(
    "--config",
    "-c",
    type=click.Path(path_type=Path),
    default=CONFIG,
    show_default=True,
    help="The file to write; an existing file is never changed.",
)
@click.option("--events", help="A file, a list such as 'clicks-*.csv', topic:NAME, or topic:CLUSTER/NAME.")
@click.option("--time", help="Field with the event's time; FIELD in ms, if no sample tells the format.")
@click.option("--zone", help="Time zone of times without an offset, for example Europe/Paris.")
@click.option(
    "--grows",
    help="With a file: yes or no, whether events are still added.  [default: by its newest event]",
)
@click.option("--first", help="With a file: the instant from which events count, RFC 3339, or now.")
@click.option(
    "--to", help="With a file that no longer grows: until when events count.  [default: until today]"
)
@click.option("--user", help="Field that names the person of an event, or none.")
@click.option("--max-events", help="With --user: how many events of a person count in an epoch.")
@click.option("--count", help="all, by FIELD, sum of FIELD, or sum of FIELD by FIELD.")
@click.option("--keys", help="With --count by: the values to count one by one, DE,FR,US; or find.")
@click.option("--range", help="With --count sum: the smallest and largest amount, 0 to 100.")
@click.option("--epsilon", help="The privacy budget of an epoch; smaller is more private.")
@click.option("--bin", help="The finest time that readers can ask about, for example 1h.")
@click.option("--site", help="With an access log: the host of the site, whose own pages are no referrers.")
@click.option("--name", help="The stream's name.  [default: by the name of the file or topic]")
@click.option("--columns", help="With a topic of CSV: the names of its columns, in order, at,country.")
@click.option("--schema-registry", help="With a topic of Avro or Protobuf: the registry's URL.")
@click.option(
    "--kafka-from",
    type=click.Path(path_type=Path),
    help="With a topic: a configuration whose kafka section and schema registry reach the cluster.",
)
@bootstrap_option
def init(
    file: str | None,
    config: Path,
    bootstrap_servers: str | None,
    kafka_from: Path | None,
    **given: str | None,
) -> None:
    """Write a first configuration, from your answers and a sample.

    It asks questions in five steps, with proposals from a sample of your own events. Each question has an
    option, which takes the same words. Without a terminal all options that matter are needed. The sample is
    private: proposals on the terminal show names of fields, and the months in which it begins and ends. No
    value of an event is written into the file except these months, if you accept them.

    A file that no longer grows becomes a replay: it is counted once, from --first to --to.

    FILE is the same as --events. Of an access log of a web server it makes a page of visitors, pages and
    referrers, and asks three questions: --site, --first and --epsilon.

    A cluster with TLS or passwords: name a configuration that reaches it with --kafka-from. Passwords come
    from there, or from the environment (STREAM_APP_KAFKA_SASL_PASSWORD), and are not written.

    \b
    Examples:
      stream-app init access.log
      stream-app init --config clicks.yaml --events 'clicks-*.ndjson' --time at \\
        --first 2026-01-01T00:00:00Z --user none --count all --epsilon 1 --bin 1h
    """
    refuse_existing(config)
    if file is not None and given["events"] is not None:
        raise OperatorError("--events: FILE names the events already; leave one of them out")
    given["events"] = given["events"] or file
    questions = Questions(given)
    questions.say("Enter takes what is in brackets. Ctrl-C leaves nothing behind.")
    try:
        events, sample = _asked_events(questions)
        if isinstance(events, Path) and sample is not None and sample.is_of_web_server:
            _refuse_other_options(questions)
            _write(web_configuration(questions, events, sample, config), config)
            click.echo(f"\n{config} is written. Count, and open the board that it names:")
            click.echo(f"  stream-app run --config {config}")
            return
        answered = _asked(questions, reached(bootstrap_servers, kafka_from), events, sample)
        questions.check()
        _write(configuration(answered, given["name"] or name_of(answered.events), config), config)
    except (click.Abort, KeyboardInterrupt):
        click.echo("\nnothing was written", err=True)
        raise
    if answered.to is not None and isinstance(answered.events, Path) and not questions.has("grows"):
        click.echo(
            f"\n{answered.events.name} seems to grow no more: it is counted once, until {answered.to}, which "
            "readers see. --to names another end, and --grows yes follows new lines"
        )
    click.echo(f"\n{config} is written. Next, check that its events can be read:")
    click.echo(f"  stream-app doctor --config {config}")
    if answered.user is not None and isinstance(answered.events, Path):
        click.echo("A cap may change later, for later events only. What caps leave out of this file:")
        click.echo(f"  stream-app plan --config {config} --caps {shlex.quote(str(answered.events))}")


def _refuse_other_options(questions: Questions) -> None:
    """Refuse the options that a page about a site has not."""
    if other := next((name for name in questions.options if name not in ("events", *_OF_A_WEB_LOG)), None):
        own = ", ".join(f"--{name}" for name in _OF_A_WEB_LOG)
        raise OperatorError(f"--{other}: is not for an access log, which has {own}; leave it out")


def _asked_events(questions: Questions) -> tuple[Path | Topic, Sample | None]:
    questions.head("1. What are the events? A file of CSV or JSON lines, an access log, or topic:NAME")
    questions.say("clicks-*.csv is all files with such names; compressed files are read, too")
    return questions.ask("events", "events", _only_file(), _read_sampled)


def _asked(questions: Questions, reach: Reach, events: Path | Topic, of_file: Sample | None) -> Answers:
    """Ask the other questions, in five steps."""
    if questions.has("site"):
        raise OperatorError("--site: is for an access log, which these events are not; leave it out")
    if not isinstance(events, Path) and (of_a_file := next(filter(questions.has, _OF_A_FILE), None)):
        raise OperatorError(f"--{of_a_file}: belongs to a file, and a topic is followed; leave it out")
    sample = of_file if isinstance(events, Path) else _of_topic(questions, events, reach)
    _say_sample(questions, sample)
    field = _asked_time(questions, events, sample)
    first, to = _asked_range(questions, events, field, sample) if isinstance(events, Path) else (None, None)
    user, most = _asked_user(questions, sample, field.path, None if to is None else f"from {first} to {to}")
    counted, keys, span = _asked_counted(questions, sample, field.path, user)
    questions.head("5. How private, and how fine? A smaller epsilon is more private, and errors are larger")
    epsilon = questions.ask("epsilon", "epsilon", "1", answers.read_epsilon)
    bin_length = questions.ask(
        "bin", "length of a bin", "1h" if first is not None else "1m", answers.read_bin(first, to, field.zone)
    )
    form, hints = (None, NO_HINTS) if sample is None else (sample.form, sample.hints)
    clusters = {} if isinstance(events, Path) else reach.to(events.cluster)
    return Answers(
        events, form, field, first, to, user, most, counted, keys, span, epsilon, bin_length, clusters, hints
    )


def _read_sampled(text: str) -> tuple[Path | Topic, Sample | None]:
    """Read the name of a file with a sample of it, or of a topic. Raises: ValueError."""
    events = answers.read_events(text)
    if not isinstance(events, Path):
        return events, None
    with working("reading a sample"):
        return events, file_sample(events)


def _of_topic(questions: Questions, events: Topic, reach: Reach) -> Sample | None:
    """Read a sample of a topic; None if it cannot be read now."""
    try:
        return asked_sample(questions, events, reach)
    except OSError as failure:
        click.echo(f"no sample, and no proposals: {failure}", err=True)
        return None


def _say_sample(questions: Questions, sample: Sample | None) -> None:
    if sample is None:
        return
    questions.say(
        f"A sample of {len(sample.lines):,} events of {sample.where} has the fields {_named(sample.columns)}"
    )
    if sample.undecodable:
        questions.say(f"{sample.undecodable:,} lines could not be read; the service would refuse them, too")


def _asked_time(questions: Questions, events: Path | Topic, sample: Sample | None) -> TimeField:
    found, of_topic = None if sample is None else proposals.likely_time(sample), isinstance(events, Topic)
    if found is None and sample is not None and not of_topic:
        if not sample.columns:
            raise OperatorError(
                f"--events {events}: its objects have no field with a value (those in lists are not seen); "
                "write one object per event"
            )
        names, dated = _named(sample.columns), _named(proposals.dated(sample))
        looks = f"; {dated} looks like a time" if dated else ""
        raise OperatorError(
            f"--time: none of the fields {names} holds times in a form that is read: iso8601 "
            f"(2026-05-01T04:14:00+02:00), or s, ms, us or ns since 1970{looks}; write the times so"
        )
    proposal = found.path if found else RECORD_TIME if of_topic else None
    questions.head("2. Which field is the time of an event?")
    if found:
        questions.say(f"{found.path} is read as {found.format}")
    if of_topic:
        questions.say(f"{RECORD_TIME} is the time that the topic has for each record")
    field = questions.ask("time", "time", proposal, answers.read_time(sample, of_topic=of_topic))
    if questions.has("zone") or (sample is not None and proposals.is_without_offset(sample, field.path)):
        questions.say(f"In which time zone are times in {field.path} that have no offset?")
        questions.say("A name of the tz database: Europe/Paris, UTC. docs/configuration.md, time.zone")
        return questions.ask("zone", "time zone", None, answers.read_zone(sample, field))
    return field


def _asked_range(
    questions: Questions, events: Path, field: TimeField, sample: Sample | None
) -> tuple[str | None, str | None]:
    """Ask from when on events count, and until when if the file no longer grows."""
    now_us = time.time_ns() // 1_000
    grows = questions.given("first") == NOW or (
        not questions.has("to")
        and sample is not None
        and (not is_packed(events) or "*" in events.name)
        and proposals.grows(sample, field, _written_us(events), now_us)
    )
    questions.say("Are events still added to the file? no: it is counted once. yes: new lines are followed")
    words = "yes" if grows else "no"
    is_live = questions.ask("grows", "still grows", words, answers.read_grows, stands_in=words)
    if is_live and questions.has("to"):
        raise OperatorError("--to: a file that grows has no end; leave it out, or write --grows no")
    if is_live and sample is not None and any(b"\r" in line for line in sample.lines):
        click.echo(
            "warning: rows with line breaks in quotes are refused where a file is followed; write each row "
            "on one line, or count the file once with --grows no",
            err=True,
        )
    first = _asked_first(questions, field, sample, is_live=is_live)
    if is_live or first is None:
        return first, None
    questions.say(
        "Until when do events count? Readers see this instant, too. The proposal is the end of the month in "
        "which the sample ends: name another one if nobody may know it, for example today"
    )
    today = proposals.tomorrow(field, now_us)
    end = today if sample is None else proposals.ends(sample, field, now_us)
    return first, questions.ask("to", "until", end, answers.read_to(sample, field, first), stands_in=today)


def _written_us(events: Path) -> int:
    """Return when a file was last written, or any of a list."""
    files = list(files_of(events).values()) if is_list(events) else [events]
    return max(file.stat().st_mtime_ns for file in files) // 1_000


def _asked_first(
    questions: Questions, field: TimeField, sample: Sample | None, *, is_live: bool
) -> str | None:
    proposal = None if sample is None else proposals.begins(sample, field)
    questions.say(
        "From when on do events count? Readers see this instant. The proposal is the month in which the "
        "sample begins: name another one if nobody may know it"
        + (". now: the past does not count" if is_live else "")
    )
    return questions.ask("first", "from", proposal, answers.read_first(sample, field, is_live=is_live))


def _asked_user(
    questions: Questions, sample: Sample | None, time_field: str, replayed: str | None
) -> tuple[str | None, int]:
    """Ask for the field of a person, and for a cap. Args: replayed, the range of a replay."""
    questions.head("3. Which field names the person of an event? none: each event is protected by itself")
    questions.say("Without it, somebody with n events is protected only at n times epsilon")
    proposal = (None if sample is None else proposals.person(sample)) or NOBODY
    if proposal == NOBODY and (found := [] if sample is None else proposals.repeating(sample, time_field)):
        questions.say(f"values come back in: {_named(found)}. If one of them names people, enter it")
    user = questions.ask("user", "person", proposal, answers.read_user(sample))
    if user is None:
        return None, 0
    when = replayed or "in an epoch (30 days)"
    questions.say(f"How many events of one person count {when}? Errors grow with the number")
    return user, questions.ask("max-events", "events of a person", "10", answers.read_whole)


def _asked_counted(
    questions: Questions, sample: Sample | None, time_field: str, user: str | None
) -> tuple[Counted, tuple[str, ...], tuple[Fraction, Fraction] | None]:
    questions.head("4. What is counted? all, by FIELD, sum of FIELD, or sum of FIELD by FIELD")
    many = [] if sample is None else proposals.many_keys(sample, time_field, user)
    if sample is not None:
        for how, fields in (
            ("by", proposals.keys(sample, time_field, user) + many),
            ("sum of", proposals.amounts(sample, time_field, user)),
        ):
            if fields:
                questions.say(f"possible: {', '.join(f'{how} {field}' for field in fields[:_MOST_NAMED])}")
    counted = questions.ask("count", "count", "all", answers.read_counted(sample))
    keys: tuple[str, ...] = ()
    span = None
    if counted.key is not None:
        questions.say(
            f"Which values of {counted.key}? The list is public, so it is never taken from the events"
        )
        questions.say(f"{FIND}: the service shows each value once enough people have brought it")
        proposal = FIND if counted.key in many else None
        keys = questions.ask("keys", "values, separated by commas", proposal, answers.read_keys)
    if counted.amount is not None:
        questions.say(
            f"Between which numbers is {counted.amount}? Public, so it is never taken from the events"
        )
        span = questions.ask("range", "smallest to largest", None, answers.read_span)
    return counted, keys, span


def _named(fields: object) -> str:
    names = list(fields)  # type: ignore[call-overload]
    more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def _only_file() -> str | None:
    """Return the only file of events in the current directory; None if there are several."""
    try:
        found = [entry.name for entry in os.scandir() if unpacked_name(entry.name.lower()).endswith(_FILES)]
    except OSError:  # nobody may list it
        return None
    return found[0] if len(found) == 1 else None


def _write(text: str, config: Path) -> None:
    """Read a configuration as a start would, show its plan, and write it. Raises: OperatorError."""
    try:
        settings = load_text(text, config, {})
        check_measurements(settings.streams, time.time_ns() // 1_000)
    except ConfigError as refusal:
        raise OperatorError(f"these answers do not go together: {refusal}") from None
    click.echo()
    print_plan(settings.streams, inner=False)
    write_new(config, text)
