"""``stream-app plan`` for running counts over many epochs."""

from __future__ import annotations

import math

from rich.table import Table

from dphist.epochs.levels import EpochLevels
from stream_app.config import StreamSettings
from stream_app.config.plans import planned, planned_for_one_epoch
from stream_app.core.ledger import in_words
from stream_app.shell.planning.section import sheet


def epochs_table(streams: tuple[StreamSettings, ...]) -> Table | None:
    """Return the gain of levels over epochs, for streams that have them; None if there is none.

    Raises: OperatorError if no levels fit.
    """
    found = [
        _row(stream, stream.declared.tree.epochs, levels)
        for stream in streams
        if stream.declared.tree.epochs and (levels := planned(stream).kind.levels)
    ]
    if not found:
        return None
    return sheet(
        "Over epochs",
        ("stream", "epochs", "epochs per node", "left per epoch", "error", "epochs' totals added"),
        found,
        "error: root of the mean squared error of the stream's running count over all bins of so many "
        "epochs, in events",
    )


def _row(stream: StreamSettings, epochs: int, levels: EpochLevels) -> list[str]:
    alone = planned_for_one_epoch(stream)
    added = EpochLevels(alone, alone.epsilon)
    within = [f"{width:,}" for width in levels.widths if width <= epochs]
    return [
        stream.name,
        f"{epochs:,}",
        ", ".join(within) + (", ..." if len(within) < len(levels.widths) else ""),
        f"{float(levels.epoch.epsilon):.3f} of {in_words(levels.epsilon)}",
        f"{math.sqrt(levels.mean_squared_error(epochs)):,.1f}",
        f"{math.sqrt(added.mean_squared_error(epochs)):,.1f}",
    ]
