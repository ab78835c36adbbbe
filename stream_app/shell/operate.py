"""Commands that keep a service going: released rows out, the witness, keys, and copies of Redis."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal

import click

from stream_app.audit.backups import check_backup as checked
from stream_app.audit.report import failed
from stream_app.config import load
from stream_app.core.exports import lines_of
from stream_app.durable import write_durably
from stream_app.ports import OperatorError
from stream_app.shell.options import STREAM, config_option
from stream_app.shell.present_step import working
from stream_app.state.embedded import find_server
from stream_app.wiring import exporting, rebuilding, retiring, rotating


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

    A stream's name means all of its generations, NAME@2 only one.
    It holds what readers may see: declarations, epochs, rows, nodes, and the ledger. It holds no secret, so
    it needs access to the store's public keys only. The service may run meanwhile. docs/exports.md describes
    the file.

    With --format parquet it adds the days that FILE lacks, for DuckDB, dbt, Spark and notebooks. FILE is then
    a folder or s3://BUCKET/PREFIX.

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
        found = asyncio.run(exporting.export(load(config), streams))
        try:
            write_durably(Path(file).absolute(), (line + b"\n" for line in lines_of(found)))
        except OSError as failure:
            raise OperatorError(
                f"{file}: cannot be written ({failure.strerror}); name another file"
            ) from None
    for one in found.streams:
        click.echo(f"{one.strategy.stream}: {len(one.rows):,} bins")
    click.echo(f"{file}: {len(found.streams)} stream(s), {len(found.ledger)} entries of the ledger")


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
        said = asyncio.run(retiring.retire(load(config), stream))
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


@click.command()
@config_option
@click.argument("step", type=click.Choice(["begin", "finish", "lost", "move"]))
def rotate_key(config: Path, step: Literal["begin", "finish", "lost", "move"]) -> None:
    """Replace the keys of secrets.key_file while workers run.

    No epoch ends and no noise is drawn again. STEP begin adds new keys to the file. Copy the file to every
    machine with a worker. STEP finish encrypts all stored noise with the new key, gives later cap windows the
    new key of users' hashes, and takes the old keys out of the file. The old key of users' hashes stays while
    cap windows need it; run STEP finish again when they are released. Each step may be repeated.

    STEP lost is for a key of stored noise that no file holds any more: it gives this noise up. The running
    epochs that need it end, and the next ones begin with the first key of the file.

    STEP move is for a worker without secrets.key_file, which keeps its keys in state.dir. Stop the worker,
    write secrets.key_file with the name of a file that does not exist, and run it: it moves the keys into the
    file. No epoch ends. After that begin and finish rotate them.

    \b
    Examples:
      stream-app rotate-key begin --config app.yaml
      stream-app rotate-key finish --config app.yaml
      stream-app rotate-key lost --config app.yaml
      stream-app rotate-key move --config app.yaml
    """
    settings = load(config)
    if step == "begin":
        click.echo(rotating.begin(settings))
        return
    if step == "lost":
        click.echo(asyncio.run(rotating.give_up(settings)))
        return
    with working("encrypting stored noise again"):
        said = asyncio.run(rotating.move(settings) if step == "move" else rotating.finish(settings))
    click.echo(said)


@click.command()
@config_option
@click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, type=click.Path(dir_okay=False, path_type=Path)
)
@click.option(
    "--server",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The redis-server that loads the copy.  [default: the embedded one, or the one on PATH]",
)
def check_backup(config: Path, files: tuple[Path, ...], server: Path | None) -> int:
    """Check that FILE, a copy of Redis, can be restored.

    Name one file, or for a cluster the files of all its primaries. It loads the copy into a private server,
    and compares it with the witness, the ledger, the keys and the configuration. It changes nothing, and the
    service may run meanwhile. The exit status is 2 if a check fails. docs/how-to/backup.md says how to copy
    and restore.

    \b
    Example:
      stream-app check-backup backup.rdb --config app.yaml
    """
    with working("loading the copy and comparing it"):
        said, checks = checked(load(config), files, server or _found_server())
    for line in said:
        click.echo(line)
    faults = failed(checks)
    for check in faults:
        click.echo(f"FAIL {check.subject}: {check.asked}: {check.found}")
    click.echo(f"{', '.join(map(str, files))}: {len(checks)} checks, {len(faults)} failed")
    return 2 if faults else 0


def _found_server() -> Path:
    try:
        return find_server()
    except OperatorError:
        raise OperatorError(
            "--server: there is no redis-server here to load the copy; name the path of one, or run this "
            "command where one is (docs/how-to/backup.md)"
        ) from None
