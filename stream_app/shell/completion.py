"""``stream-app completion``: a shell completes commands, options and names of streams with Tab."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_PROGRAM = "stream-app"
_VARIABLE = "_STREAM_APP_COMPLETE"  # the one that Click reads for a program of this name


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script that completes commands in SHELL.

    It completes commands, options and names of streams.
    Names of streams come from the configuration that the command line names, else from stream-app.yaml.

    \b
    Examples, each for a start file of the shell:
      eval "$(stream-app completion bash)"       # ~/.bashrc; bash 4.4 or newer
      eval "$(stream-app completion zsh)"        # ~/.zshrc, after compinit
      stream-app completion fish | source        # ~/.config/fish/config.fish
    """
    found = get_completion_class(shell)
    assert found is not None  # Click has all three
    click.echo(found(context.find_root().command, {}, _PROGRAM, _VARIABLE).source())
