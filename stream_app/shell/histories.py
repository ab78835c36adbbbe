"""Commands about released rows: export, import, retire, put back, or witness them anew."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from stream_app.config import load
from stream_app.core.exports import lines_of
from stream_app.durable import write_durably
from stream_app.ports import OperatorError
from stream_app.shell.options import STREAM, config_option
from stream_app.shell.working import working
from stream_app.wiring import histories, rebuilding


@click.command()
@config_option
@click.argument("file", type=click.Path())
@click.option(
    "--stream", "streams", type=STREAM, multiple=True, help="A stream; may be repeated.  [default: all]"
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["ndjson", "parquet"]),
    default="ndjson",
    show_default=True,
    help="parquet: a file for each whole day, in the folder or the bucket FILE.",
)
def export(config: Path, file: str, streams: tuple[str, ...], form: str) -> None:
    """Write the released data of streams to FILE.

    Another store can import them. A stream's name means all of its generations, NAME@2 only one.
    It holds what readers may see: declarations, epochs, rows, nodes, and the ledger. It holds no secret, so
    it needs access to the store's public keys only. The service may run meanwhile. docs/exports.md describes
    the file.

    With --format parquet it adds the days that FILE lacks, for DuckDB, dbt, Spark and notebooks. FILE is then
    a folder or s3://BUCKET/PREFIX. No store can import these.

    \b
    Examples:
      stream-app export clicks.ndjson --stream clicks --config app.yaml
      stream-app export days --format parquet --config app.yaml
    """
    if form == "parquet":
        from stream_app.wiring.day_files import export_days

        try:
            with working("writing days"):
                said = asyncio.run(export_days(load(config), streams, file))
        except KeyboardInterrupt:
            click.echo(f"{file}: not all days are written; export again to add the rest", err=True)
            raise
        click.echo("\n".join(said))
        return
    with working("reading released data"):
        found = asyncio.run(histories.export(load(config), streams))
        try:
            write_durably(Path(file).absolute(), (line + b"\n" for line in lines_of(found)))
        except OSError as failure:
            raise OperatorError(
                f"{file}: cannot be written ({failure.strerror}); name another file"
            ) from None
    for one in found.streams:
        click.echo(f"{one.strategy.stream}: {len(one.rows):,} bins")
    click.echo(f"{file}: {len(found.streams)} stream(s), {len(found.ledger)} entries of the ledger")


@click.command("import")
@config_option
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def import_(config: Path, file: Path) -> None:
    """Store the streams of FILE, an export, as history.

    Readers see it and nobody counts it.
    The ledger gets all measurements of their sources, so they count toward totals here. A stream that the
    store has, or the configuration names, is refused. The service may run meanwhile.

    \b
    Example:
      stream-app import clicks.ndjson --config app.yaml
    """
    with working("importing"):
        try:
            with file.open("rb") as lines:
                said = asyncio.run(histories.import_history(load(config), lines))
        except OSError as failure:
            raise OperatorError(f"{file}: {failure.strerror or failure}; nothing more was imported") from None
    for line in said:
        click.echo(line)


@click.command()
@config_option
@click.argument("stream", type=STREAM)
def retire(config: Path, stream: str) -> None:
    """End STREAM for good and delete its secrets.

    Its releases and its ledger stay.
    Its counts, users and the keys of its noise are deleted. Readers see what was released, and since when the
    stream is retired. Stop its workers first. A configuration that still names it is then refused.

    \b
    Example:
      stream-app retire clicks --config app.yaml
    """
    with working("retiring the stream"):
        said = asyncio.run(histories.retire(load(config), stream))
    click.echo(said)


@click.command()
@config_option
def rebuild(config: Path) -> None:
    """Put back what readers saw, from the witness.

    It restores every stream that the store has lost.
    Nothing is counted, no noise is drawn and no epoch opens. Workers do the same when they start, and then go
    on; use this command if readers must see the history before workers can start. Stop the workers first.

    \b
    Example:
      stream-app rebuild --config app.yaml
    """
    with working("putting back what the store has lost"):
        said = asyncio.run(rebuilding.rebuild(load(config)))
    for line in said:
        click.echo(line)


@click.command()
@config_option
def new_witness(config: Path) -> None:
    """Write the witness in state.dir anew, from Redis.

    Run it if state.dir was lost and Redis was not. By running it you say that Redis has every row that
    readers have seen. Never run it after Redis was restored from a copy: what was released after the copy
    would get noise a second time. Streams whose witness has rows, or is a topic, do not change. Stop the
    workers of this state.dir first.

    \b
    Example:
      stream-app new-witness --config app.yaml
    """
    with working("writing the witness"):
        said = asyncio.run(rebuilding.new_witness(load(config)))
    for line in said:
        click.echo(line)
