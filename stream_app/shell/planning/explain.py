"""Explain a configuration before it runs: its trees and errors, and its guarantee in plain words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.table import Table

from dphist.tree.design import TreeDesign
from stream_app.config import Settings, StreamSettings
from stream_app.config.plans import planned
from stream_app.config.second_measurement import first_measurement
from stream_app.config.values import format_duration
from stream_app.core.instants import format_instant
from stream_app.core.ledger import in_words, statement
from stream_app.core.records import LedgerEntry
from stream_app.core.strategy import Strategy
from stream_app.shell.planning.section import sheet


def plan_table(streams: Sequence[StreamSettings]) -> Table | None:
    """Return a section for each stream with its tree and expected error; None without streams."""
    if not streams:
        return None
    return sheet(
        "Trees over time",
        (
            "stream",
            "epoch",
            "epsilon",
            "branching",
            "shares",
            "typical error",
            "the tree's noise draws",
        ),
        [_plan_row(stream, planned(stream)) for stream in streams],
        "typical error: root of the mean squared error of what the tree is planned for, in events",
    )


def _plan_row(stream: StreamSettings, strategy: Strategy) -> list[str]:
    design = strategy.design
    return [
        stream.name,
        f"{design.horizon:,} bins of {format_duration(stream.declared.time.bin_us)}",
        in_words(strategy.epsilon),
        " x ".join(map(str, design.branching)),
        ", ".join(f"{float(share):.3f}" for share in design.shares),
        f"{math.sqrt(design.mean_squared_error(stream.declared.tree.workload)):,.1f}",
        _draws(design),
    ]


def _draws(design: TreeDesign) -> str:
    nodes = sum(design.drawn_nodes(design.horizon))
    if design.anticipates:
        return f"{nodes:,}, all before the epoch begins"
    return f"{nodes / design.horizon:,.2f} / {design.shape.height:,} per bin, mean / most"


def promises(settings: Settings, now_us: int) -> Iterator[str]:
    """Yield the combined guarantee of the configured streams, source by source, in plain words.

    It assumes that each stream runs one epoch, live streams from now. Earlier measurements are in the store's
    ledger, which the API shows under /v1/streams/NAME/privacy.
    """
    for source in dict.fromkeys(stream.declared.source.name for stream in settings.streams):
        streams = [stream for stream in settings.streams if stream.declared.source.name == source]
        yield from statement(source, [_entry(stream, now_us) for stream in streams]).sentences()
        for stream in streams:
            yield _neighbours(stream)


def _entry(stream: StreamSettings, now_us: int) -> LedgerEntry:
    return replace(first_measurement(stream, now_us), strategy_hash=planned(stream).hash)


def _neighbours(stream: StreamSettings) -> str:
    time, privacy, add_up = stream.declared.time, stream.declared.privacy, "do not add up"
    unit, neighbours = privacy.per_user, privacy.neighbours
    if unit is None:
        relation = {
            "add_remove": "one event that is there or not",
            "substitute": "one event that is replaced by any other, its time included",
        }[neighbours]
    else:
        add_up = "add up"
        what = "there or not" if neighbours == "add_remove" else "replaced by any others"
        relation = f"all events of one user ({unit.field}; {unit.max_events} count per epoch), {what}"
    start = "from its first start" if time.first_us is None else f"from {format_instant(time.first_us)}"
    epoch = format_duration(time.epoch_bins * time.bin_us)
    return f"{stream.name} protects {relation}, {start}, in epochs of {epoch} whose costs {add_up}."
