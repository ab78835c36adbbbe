"""``stream-app rotate-key``: new keys for stored noise and users' hashes, while the service runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal

import click

from stream_app.config import load
from stream_app.shell.options import config_option
from stream_app.shell.working import working
from stream_app.wiring import rotating


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
