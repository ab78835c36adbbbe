"""The commands of ``stream-app`` that bring events: the demo, a replay, and a producer for Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from stream_app.config import ClusterSettings, Settings, TopicSettings, load
from stream_app.shell.options import BROKER, Finite, bootstrap_option, live_pace


@click.command()
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
    """Replay a year of real departures on a live page.

    The page is on 127.0.0.1:8088.

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


@click.command()
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
    """Replay FILE once, as one epoch.

    It releases the counts and leaves, or serves them with --serve.

    FILE may be compressed (.gz, .bz2, .xz, .zst), and may be a list such as 'clicks-*.csv.gz': its files in
    the order of their names.

    \b
    Examples:
      stream-app replay events.ndjson --field at --bin 1d \\
        --from 2024-01-01T00:00:00Z --to 2025-01-01T00:00:00Z --epsilon 1
      stream-app replay 'clicks-*.csv.gz' --field at --bin 1h \\
        --from 2024-01-01T00:00:00Z --to 2025-01-01T00:00:00Z --serve
    """
    from stream_app.shell.replay import run_replay

    return run_replay(file, serve, **options)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--topic", "-t", required=True, help="The topic to send to.")
@bootstrap_option
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
    """Send the lines of FILE to a Kafka topic.

    FILE is NDJSON or CSV, by its name; compressed files are unpacked. The lines are sent in order and as they
    are, without their line ends, blank lines, the byte order mark and the header of CSV. A row of CSV with
    line breaks in quotes is one record. A file of which nothing could be counted is refused.

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
    from stream_app.shell.produce import produce as send
    from stream_app.shell.produced import Production

    cluster = None if config is None else _cluster_that_has(load(config), topic)
    servers = bootstrap_servers or (BROKER if cluster is None else cluster.bootstrap_servers)
    security = {} if cluster is None else cluster.security
    pace = None if as_live is None else live_pace("--as-live", as_live)
    send(Production(file, topic, servers, as_live=pace, security=security, **options))


def _cluster_that_has(settings: Settings, topic: str) -> ClusterSettings | None:
    """Return the cluster where a stream reads the topic, else the one that needs no name."""
    if settings.kafka is None:
        return None
    sources = [stream.source for stream in settings.streams]
    of_topic = [source for source in sources if isinstance(source, TopicSettings) and source.topic == topic]
    return settings.kafka.clusters[of_topic[0].cluster if of_topic else ""]
