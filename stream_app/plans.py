"""A stream's strategy, planned from its settings."""

from __future__ import annotations

from dphist import plan_tree
from stream_app.config import StreamSettings, declared
from stream_app.core.strategy import Strategy
from stream_app.ports import OperatorError


def planned(stream: StreamSettings) -> Strategy:
    """Return the strategy that a new stream would get.

    Raises: OperatorError where no tree fits what is asked.
    """
    time, privacy, tree = stream.time, stream.privacy, stream.tree
    try:
        design = plan_tree(
            horizon=time.epoch_bins,
            epsilon=privacy.epsilon,
            workload=tree.workload,
            release=tree.release,
            neighbours=privacy.neighbours,
            branching=tree.branching,
            shares=tree.shares,
        )
    except ValueError as refusal:
        raise OperatorError(f"streams.{stream.name}.tree: {refusal}") from None
    return Strategy(stream.name, stream.source.identity, declared(stream), design)
