"""``stream-app``: the commands of the service. Each imports what it needs, so that all start quickly."""

from __future__ import annotations

import asyncio
import logging
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from stream_app.config import load
from stream_app.shell.options import Finite, config_option, live_pace, load_to_begin
from stream_app.shell.processes import STOP_S, exit_status, until_stopped

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
# Commands whose modules are imported when they run, because the modules load much: (module, line of help).
_ELSEWHERE = {
    "query": (
        "readers",
        "Ask a running service for a count of STREAM, a series, or a distribution, with errors.",
    ),
    "watch": (
        "readers",
        "Follow the running count of STREAM: a live chart on a terminal, otherwise a line per release.",
    ),
    "plan-alert": (
        "alerts",
        "Predict how often each alert rule is wrong, and how long it takes to notice a change.",
    ),
    "export-alerts": (
        "alerts",
        "Print the alert rules as a Prometheus rule file over the metric private_counts_alert_firing.",
    ),
}


class _Commands(click.Group):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that was asked for, from its module."""
        name, command, rest = super().resolve_command(ctx, args)
        if name in _ELSEWHERE:
            module = import_module(f"stream_app.shell.{_ELSEWHERE[name][0]}")
            command = getattr(module, name.replace("-", "_"))
        return name, command, rest

    def invoke(self, ctx: click.Context) -> None:
        """Run a command. An error that the operator must correct becomes one line on stderr and status 2."""
        command = super().invoke
        ctx.exit(exit_status(lambda: command(ctx)))


@click.group(cls=_Commands, context_settings=_CONTEXT)
@click.option("--verbose", "-v", is_flag=True, help="Log more to stderr; secrets are never logged.")
@click.version_option(package_name="private-counts")
@click.pass_context
def main(context: click.Context, verbose: bool) -> None:
    """Differentially private live counts over event streams.

    \b
    stream-app demo                      a year of real events, a live page on 127.0.0.1:8088
    stream-app check-config -c app.yaml  read a configuration, start nothing
    stream-app run -c app.yaml           count, release and serve
    """
    from stream_app.monitoring.logs import configure

    configure(context.invoked_subcommand or "stream-app", logging.INFO if verbose else logging.WARNING)


@main.command()
@config_option
@click.option("--seconds", type=Finite(min=0), default=0, help="End with status 0 after this long.")
@click.option("--until-complete", is_flag=True, help="End with status 0 when every replay is complete.")
def run(config: Path, seconds: float, until_complete: bool) -> int:
    """Count, release and serve. Worker and API run as separate processes.

    \b
    Example:
      stream-app run --config examples/flights.yaml
    """
    from stream_app.shell.progress import open_report
    from stream_app.shell.supervision import Service, run_service

    with open_report() as report:
        return asyncio.run(run_service(load(config), report, Service(seconds, until_complete)))


@main.command()
@config_option
def worker(config: Path) -> None:
    """Count and release, without serving.

    Several workers share the partitions if every stream reads a topic and releases into a topic. Otherwise
    only one worker may use a state directory, because the witness is a file there.

    STREAM_APP_CONFIG=app.yaml faust -A stream_app.worker worker runs the same loops in a Faust process.
    Faust is only the host then: it reads and counts nothing.

    \b
    Example:
      STREAM_APP_REDIS_URL=redis://worker:secret@db/0 stream-app worker --config app.yaml
    """
    from stream_app.wiring.workers import run_worker

    asyncio.run(until_stopped(run_worker(load(config)), within_s=STOP_S))


@main.command()
@config_option
def api(config: Path) -> None:
    """Serve released values, without counting. It needs access to the store's public keys only.

    \b
    Example:
      STREAM_APP_REDIS_API_URL=redis://api:secret@db/0 stream-app api --config app.yaml
    """
    from stream_app.wiring.public import run_api

    asyncio.run(until_stopped(run_api(load(config)), within_s=STOP_S))


@main.command()
@config_option
def alerts(config: Path) -> None:
    """Watch the alert rules and send notifications. It sees released values and nothing else.

    \b
    Example:
      STREAM_APP_REDIS_ALERTS_URL=redis://alerts:secret@db/0 stream-app alerts --config app.yaml
    """
    from stream_app.wiring.public import run_alerts

    asyncio.run(until_stopped(run_alerts(load(config)), within_s=STOP_S))


@main.command()
@config_option
@click.option("--stdin", metavar="NAME", help="Store the lines of standard input in this spool, then end.")
def ingest(config: Path, stdin: str | None) -> None:
    """Receive events over HTTP, or from standard input, and store them durably; count nothing.

    A stream with source: {http: NAME} counts what arrives. --stdin may be used while another process
    listens, such as stream-app run.

    \b
    Examples:
      stream-app ingest --config app.yaml
      tail -F clicks.log | stream-app ingest --config app.yaml --stdin clicks
    """
    from stream_app.wiring.receiving import receive_lines, run_ingest

    if stdin is None:
        asyncio.run(until_stopped(run_ingest(load(config)), within_s=STOP_S))
    else:
        click.echo(f"{receive_lines(load(config), stdin, 0):,} lines are stored")


@main.command("check-config")
@config_option
def check_config(config: Path) -> None:
    """Check a configuration, its plans and its files on this machine; start nothing.

    \b
    Example:
      stream-app check-config --config examples/flights.yaml
    """
    from stream_app.shell.doctor.on_this_machine import check_here

    settings = load_to_begin(config)
    check_here(settings)
    names = ", ".join(stream.name for stream in settings.streams)
    click.echo(f"{config}: good; {len(settings.streams)} stream(s): {names}")


@main.command("new-ledger")
@config_option
def new_ledger(config: Path) -> None:
    """Create the ledger outside the store. Do it once, before the first start that uses it.

    A start refuses if this ledger is missing, because its record may have been lost.

    \b
    Example:
      stream-app new-ledger --config app.yaml
    """
    from stream_app.wiring.workers import new_ledger as begin

    click.echo(f"{asyncio.run(begin(load(config)))}: created; keep it as long as any released value exists")


@main.command()
@config_option
@click.option("--stream", help="This stream only.")
@click.option(
    "--target-rmse",
    type=Finite(min=0, min_open=True),
    help="Show the smallest epsilon that reaches this error instead.",
)
@click.option(
    "--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw the errors over time here."
)
def plan(config: Path, stream: str | None, target_rmse: float | None, plot: Path | None) -> None:
    """Show the errors of readers' answers, the tree of every stream, and the errors of other ways to count.

    \b
    Examples:
      stream-app plan --config examples/flights.yaml
      stream-app plan --config examples/flights.yaml --target-rmse 20
      stream-app plan --config examples/flights.yaml --stream departures --plot error.png
    """
    from dphist.planning.report import print_whole
    from stream_app.shell.planning.answers import answers_table
    from stream_app.shell.planning.plan import chosen_streams, comparisons, epsilons_for
    from stream_app.shell.planning.promises import meanings
    from stream_app.shell.planning.tables import tables

    settings = load_to_begin(config)
    streams = chosen_streams(settings, stream)
    if target_rmse is not None:
        for line in epsilons_for(streams, target_rmse):
            click.echo(line)
        return
    for table in (answers_table(streams), *tables(streams), *comparisons(streams, plot)):
        print_whole(table)
    for line in meanings(streams):
        click.echo(line)


@main.command()
@config_option
def privacy(config: Path) -> None:
    """State in plain words what a configuration promises, to whom, and its cost per source.

    \b
    Example:
      stream-app privacy --config examples/flights.yaml
    """
    from stream_app.shell.planning.promises import promises

    for line in promises(load_to_begin(config), time.time_ns() // 1_000):
        click.echo(line)


@main.command()
@config_option
def doctor(config: Path) -> int:
    """Check that this configuration can run here: files, disks, ports, keys, Redis, Kafka, clocks.

    Each check prints one line: ok, warn (may be intended) or fail, with the remedy. The exit status is 2 if
    a check fails. The command changes nothing and may run beside a running service.

    \b
    Example:
      stream-app doctor --config examples/flights.yaml
    """
    from rich.console import Console

    from stream_app.shell.doctor.checks import examine
    from stream_app.shell.doctor.findings import show

    findings = asyncio.run(examine(load(config)))
    show(findings, Console())
    return 2 if any(finding.state == "fail" for finding in findings) else 0


@main.command()
@click.option("--seconds", type=Finite(min=0), default=0, help="End with status 0 after this long.")
@click.option("--speed", help="Pace of the replay: max, a factor, or log time per second.  [default: 9d/s]")
@click.option("--port", type=click.IntRange(1, 65_535), help="Port of the page.  [default: 8088]")
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    help="Directory for the events and the state.  [default: state/demo]",
)
@click.option("--fresh", is_flag=True, help="Measure the year once more; the cost is explained above.")
@click.option("--kafka", is_flag=True, help="Through a topic, as if it happened now; see above.")
def demo(seconds: float, kafka: bool, fresh: bool, **options: Any) -> int:
    """Replay a year of real departures and serve the live page on 127.0.0.1:8088.

    The events become a file under state/demo at the first start. A second start goes on where the first
    was, or serves what it released. --fresh measures the same events again under another name. Each
    measurement costs its epsilon, and a reader of two learns more than from one; the page shows the sum.

    --kafka sends the events to a topic with their times moved to now, three hours of 2013 per second, and
    counts them live in bins of a second. Another start begins the year again. It needs a broker: `make
    demo-kafka` starts one, STREAM_APP_KAFKA_BOOTSTRAP_SERVERS names another.

    \b
    Examples:
      stream-app demo
      stream-app demo --speed max --seconds 60
      stream-app demo --kafka --speed 1d/s
    """
    from stream_app.shell.demo import count_topic, replay_year

    if kafka:
        if fresh:
            raise click.UsageError("--fresh and --kafka do not go together; leave one out")
        return count_topic(seconds, **options)
    return replay_year(seconds, fresh=fresh, **options)


@main.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--field", required=True, help="Field with the event's time; dots name nested fields.")
@click.option("--time-format", default="iso8601", show_default=True, help="s, ms, us, ns or iso8601.")
@click.option("--format", "file_format", help="ndjson or csv.  [default: what the name of FILE says]")
@click.option("--from", "start", required=True, help="Start of the first bin, RFC 3339.")
@click.option("--to", "end", required=True, help="End of the last bin, RFC 3339.")
@click.option("--bin", "bin_length", default="1h", show_default=True, help="Length of a bin.")
@click.option("--epsilon", default="1", show_default=True, help="The privacy budget for each event.")
@click.option("--name", default="replay", show_default=True, help="The stream's name.")
@click.option("--state", default="state/replay", show_default=True, help="Directory for the state.")
@click.option(
    "--speed", default="max", show_default=True, help="max, a factor, or log time per second: 9d/s."
)
@click.option("--port", default=8088, show_default=True, help="With --serve: port of the page.")
@click.option("--serve", is_flag=True, help="Stay and serve when the replay is complete.")
def replay(file: Path, serve: bool, **options: Any) -> int:
    """Replay FILE once, as one epoch: release its counts and leave, or --serve them.

    FILE may end in .gz, and may be a list such as 'clicks-*.csv.gz': its files in the order of their names.

    \b
    Examples:
      stream-app replay events.ndjson --field at --bin 1d \\
        --from 2024-01-01T00:00:00Z --to 2025-01-01T00:00:00Z --epsilon 1
      stream-app replay 'clicks-*.csv.gz' --field at --bin 1h \\
        --from 2024-01-01T00:00:00Z --to 2025-01-01T00:00:00Z --serve
    """
    from stream_app.shell.replay import run_replay

    return run_replay(file, serve, **options)


@main.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--topic", "-t", required=True, help="The topic to send to.")
@click.option(
    "--bootstrap-servers",
    "-b",
    envvar=["STREAM_APP_KAFKA_BOOTSTRAP_SERVERS", "KAFKA_BOOTSTRAP_SERVERS"],
    help="host:port of a broker or several, separated by commas; by default those of --config, else "
    "127.0.0.1:9092.  [env: KAFKA_BOOTSTRAP_SERVERS]",
)
@click.option(
    "--config",
    "-c",
    type=click.Path(path_type=Path),
    help="Configuration file whose section kafka has the cluster's address and credentials.",
)
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    help="If the topic does not exist, create it with this many partitions.",
)
@click.option(
    "--key", metavar="FIELD", help="Field whose value becomes the record's key; dots name nested fields."
)
@click.option(
    "--limit", type=click.IntRange(min=0), help="Send at most this many lines; 0 only creates the topic."
)
@click.option("--rate", type=Finite(min=0, min_open=True), help="Largest number of records per second.")
@click.option(
    "--compression",
    type=click.Choice(["gzip", "lz4", "zstd", "snappy"]),
    help="Compression of record batches.",
)
@click.option(
    "--as-live", metavar="PACE", help="Move the events' times to now, at this pace: a factor, or 3h/s."
)
@click.option(
    "--time-field", metavar="FIELD", help="With --as-live: field with the event's time, which is rewritten."
)
@click.option(
    "--time-format",
    type=click.Choice(["s", "ms", "us", "ns", "iso8601"]),
    default="iso8601",
    show_default=True,
    help="With --as-live: the format of the time.",
)
def produce(
    file: Path,
    topic: str,
    as_live: str | None,
    bootstrap_servers: str | None,
    config: Path | None,
    **options: Any,
) -> None:
    """Send the lines of FILE, NDJSON or CSV (by its name), to a Kafka topic, unchanged and in order.

    --as-live rewrites each event's time so that the past happens now, at PACE: a service that counts live
    then has something to count. The command keeps no position: another start sends the whole file again.

    \b
    Examples:
      stream-app produce events.ndjson --topic clicks --partitions 4 --key user.id
      stream-app produce flights.ndjson --topic flights --as-live 3h/s --time-field scheduled
      stream-app produce events.ndjson --topic clicks --config app.yaml
    """
    if (as_live is None) != (options["time_field"] is None):
        raise click.UsageError("--as-live and --time-field need one another; write both or neither")
    from stream_app.shell.produce import LOCAL_BROKER, Production
    from stream_app.shell.produce import produce as send

    kafka = None if config is None else load(config).kafka
    servers = bootstrap_servers or (LOCAL_BROKER if kafka is None else kafka.bootstrap_servers)
    security = {} if kafka is None else kafka.security
    pace = None if as_live is None else live_pace("--as-live", as_live)
    send(Production(file, topic, servers, as_live=pace, security=security, **options))


@main.command("api-key")
@click.option(
    "--file",
    type=click.Path(path_type=Path),
    default=Path("api-keys.ndjson"),
    show_default=True,
    help="The file for its hash, which api.keys names.",
)
@click.option("--name", required=True, help="Name of the key's holder.")
@click.option(
    "--stream",
    "streams",
    multiple=True,
    help="A stream that the key may read; may be repeated.  [default: all]",
)
def api_key(file: Path, name: str, streams: tuple[str, ...]) -> None:
    """Make an API key. Store its hash in FILE (api.keys) and print the key once.

    \b
    Example:
      stream-app api-key --name grafana --stream clicks
    """
    from stream_app.config.key_file import add_key

    click.echo(add_key(file, name, streams))


for _name, (_, _help) in _ELSEWHERE.items():
    main.add_command(click.Command(_name, help=_help))


if __name__ == "__main__":
    main()
