"""Prints the plan of a configuration, as ``stream-app plan`` and ``stream-app init`` show it."""

from __future__ import annotations

import time

from dphist.planning.report import print_whole
from stream_app.config import StreamSettings
from stream_app.shell.planning.answers import answers_table
from stream_app.shell.planning.modes import mode_sentences, modes_table
from stream_app.shell.planning.plan import comparisons
from stream_app.shell.planning.promises import costs_over_epochs, meanings
from stream_app.shell.planning.tables import tables
from stream_app.shell.terminal import echo_wrapped
from stream_app.shell.working import working


def print_plan(
    streams: tuple[StreamSettings, ...],
    *,
    inner: bool = True,
    compare: bool = False,
) -> None:
    """Print the errors of readers' answers, the plan of every stream, and notes.

    Args: inner, whether the plans' own tables follow the errors; compare, whether other ways to count follow.
    Raises: OperatorError if no plan fits.
    """
    lines: list[str] = []
    with working("planning") as step:
        shown = [answers_table(streams), *(tables(streams) if inner else ())]
        if compare:
            step("comparing other ways to count")
            shown += [*modes_table(streams), *comparisons(streams)]
            lines += mode_sentences(streams)
        step("reading a sample of the events")
        lines += [*meanings(streams), *costs_over_epochs(streams, time.time_ns() // 1_000)]
    for table in shown:
        print_whole(table)
    for line in lines:
        echo_wrapped(line)
