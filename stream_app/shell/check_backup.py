"""``stream-app check-backup``: checks a copy of Redis before somebody needs it."""

from __future__ import annotations

from pathlib import Path

import click

from stream_app.audit.backups import check_backup as checked
from stream_app.audit.report import failed
from stream_app.config import load
from stream_app.ports import OperatorError
from stream_app.shell.options import config_option
from stream_app.shell.working import working
from stream_app.state.embedded import find_server


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
