"""``stream-app``: the commands of the service. Each imports what it needs, so that all start quickly."""

from __future__ import annotations

import asyncio
import logging
from importlib import import_module
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from stream_app.config import load
from stream_app.ports import OperatorError
from stream_app.shell.options import STREAM, Finite, config_option
from stream_app.shell.processes import MEANINGS, STOP_S, exit_status, until_stopped

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
# Commands whose modules are imported when they run, because the modules load much: (module, line of help).
ELSEWHERE = {
    "demo": ("demo", "Replay a year of real departures on a live page."),
    "replay": ("replay", "Replay FILE once, as one epoch."),
    "produce": ("produce", "Send the lines of FILE to a Kafka topic."),
    "check-config": ("checks.commands", "Check a configuration; start nothing."),
    "doctor": ("checks.commands", "Check that a configuration can run on this machine."),
    "init": ("init.command", "Write a first configuration, from your answers and a sample."),
    "plan": ("planning.commands", "Show the errors of answers before anything is counted."),
    "privacy": ("planning.commands", "State in words what a configuration promises, and its cost."),
    "statement": ("planning.commands", "Print one page about a stream, for lawyers and readers."),
    "audit": ("audit", "Check that a deployment keeps its privacy promise."),
    "export": ("operate", "Write the released data of streams to FILE."),
    "rotate-key": ("operate", "Replace the keys of secrets.key_file while workers run."),
    "retire": ("operate", "End STREAM for good and delete its secrets."),
    "rebuild": ("operate", "Put back what readers saw, from the witness."),
    "new-witness": ("operate", "Write the witness in state.dir anew, from Redis."),
    "check-backup": ("operate", "Check that FILE, a copy of Redis, can be restored."),
    "query": ("readers", "Ask a running service for numbers of STREAM."),
    "watch": ("watching", "Follow the running count of STREAM."),
    "rules": ("readers", "List the alert rules of a running service."),
    "plan-alert": ("alerts", "Show how often each alert rule may be wrong."),
}


def command_of(name: str) -> click.Command:
    """Return a command of another module, which is imported now."""
    module, attribute = ELSEWHERE[name][0], name.replace("-", "_")
    found = import_module(f"stream_app.shell.{module}")
    command: click.Command = getattr(found, attribute)
    return command


_REMOVED = {
    "import": "import was removed; to move released data, restore a copy of Redis, or run stream-app rebuild "
    "with the witness (docs/how-to/backup.md)",
}
_GROUPS = {
    "Begin": ("demo", "init", "plan", "check-config", "doctor", "run", "replay"),
    "Read": ("query", "watch", "rules"),
    "Parts of a service": ("worker", "api", "alerts", "ingest", "produce"),
    "Privacy": ("privacy", "statement", "audit", "new-ledger"),
}  # of commands, in the help; all others keep a service going


class _Commands(click.Group):
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in groups."""
        named = {name for names in _GROUPS.values() for name in names}
        others = tuple(name for name in self.list_commands(ctx) if name not in named)
        for title, names in {**_GROUPS, "Operate": others}.items():
            with formatter.section(title):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(80)) for name in names])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that was asked for, from its module."""
        if args[0] in _REMOVED and not ctx.resilient_parsing:
            ctx.fail(_REMOVED[args[0]])
        name, command, rest = super().resolve_command(ctx, args)
        if name in ELSEWHERE:
            command = command_of(name)
        return name, command, rest

    def invoke(self, ctx: click.Context) -> None:
        """Run a command. An error that the operator must correct becomes one line on stderr and status 2."""
        command = super().invoke

        def work() -> int | None:
            try:
                status: int | None = command(ctx)
            except click.Abort:  # Ctrl-C at a question
                raise KeyboardInterrupt from None
            return status

        ctx.exit(exit_status(work))


@click.group(
    cls=_Commands,
    context_settings=_CONTEXT,
    epilog="\b\nExit status:\n" + "\n".join(f"  {status:<3}  {text}" for status, text in MEANINGS.items()),
)
@click.option("--verbose", "-v", is_flag=True, help="Log more to stderr; secrets are never logged.")
@click.version_option(package_name="private-counts")
@click.pass_context
def main(context: click.Context, verbose: bool) -> None:
    """Differentially private live counts over event streams.

    \b
    stream-app demo                      a year of real events, a live page on 127.0.0.1:8088
    stream-app init                      a first configuration for your own events
    stream-app check-config -c app.yaml  read a configuration, start nothing
    stream-app run -c app.yaml           count, release and serve
    """
    from stream_app.monitoring.logs import configure

    configure(context.invoked_subcommand or "stream-app", logging.INFO if verbose else logging.WARNING)


@main.command()
@config_option
@click.option("--seconds", type=Finite(min=0), default=0, help="End with status 0 after this long.")
@click.option(
    "--until-complete",
    is_flag=True,
    help="End when every replay is complete: status 0, or 2 if none counted a record.",
)
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
@click.argument("test", type=click.Choice(["test"]), required=False)
@config_option
def alerts(test: str | None, config: Path) -> int | None:
    """Watch the alert rules and send notifications. It sees released values and nothing else.

    stream-app alerts test sends one test notification to every target instead, and prints what each
    answered. The exit status is 2 if a target did not accept it.

    \b
    Examples:
      STREAM_APP_REDIS_ALERTS_URL=redis://alerts:secret@db/0 stream-app alerts --config app.yaml
      stream-app alerts test --config app.yaml
    """
    from stream_app.wiring.public import run_alerts, try_targets

    if test is not None:
        answers = asyncio.run(try_targets(load(config)))
        for target, answer, _ in answers:
            click.echo(f"{target}: {answer}")
        return 0 if all(accepted for *_, accepted in answers) else 2
    asyncio.run(until_stopped(run_alerts(load(config)), within_s=STOP_S))
    return None


@main.command()
@config_option
@click.option("--stdin", metavar="NAME", help="Store the lines of standard input in this spool, then end.")
def ingest(config: Path, stdin: str | None) -> None:
    """Receive events over HTTP and store them durably.

    It also stores lines of standard input. It counts nothing.

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
        lines, others = receive_lines(load(config), stdin, 0)
        click.echo(f"{lines:,} lines are stored")
        if others:
            said = f"{others:,} of them are no JSON objects, and counting refuses them as undecodable"
            if others == lines:
                raise OperatorError(f"--stdin {stdin}: {said}; write one JSON object per line")
            click.echo(f"warning: {said}", err=True)


@main.command("new-ledger")
@config_option
def new_ledger(config: Path) -> None:
    """Create the ledger outside the store. Do it once, before the first start that uses it.

    A start refuses if this ledger is missing, because its record may have been lost.

    \b
    Example:
      stream-app new-ledger --config app.yaml
    """
    from stream_app.shell.present_step import working
    from stream_app.wiring.storage import new_ledger as begin

    with working("creating the ledger"):
        name = asyncio.run(begin(load(config)))
    click.echo(f"{name}: created; keep it as long as any released value exists")


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
    type=STREAM,
    multiple=True,
    help="A stream that the key may read; may be repeated.  [default: all]",
)
@click.option(
    "--board",
    "boards",
    multiple=True,
    help="A board that the key opens, and nothing else, for a frame in another page; may be repeated.",
)
def api_key(file: Path, name: str, streams: tuple[str, ...], boards: tuple[str, ...]) -> None:
    """Make an API key. Store its hash in FILE (api.keys) and print the key once.

    \b
    Examples:
      stream-app api-key --name grafana --stream clicks
      stream-app api-key --name intranet --board shop
    """
    from stream_app.config.key_file import add_key

    click.echo(add_key(file, name, streams, boards))


@main.command()
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
    click.echo(found(context.find_root().command, {}, "stream-app", "_STREAM_APP_COMPLETE").source())


for _name, (_, _help) in ELSEWHERE.items():
    main.add_command(click.Command(_name, help=_help))


if __name__ == "__main__":
    main()
