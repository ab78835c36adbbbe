"""A stream's strategy: planned from its settings once, then kept for the stream's life."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

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


def kept(stream: StreamSettings, stored: bytes | None) -> Strategy:
    """Return the strategy to run with: the stored one if it measures what is configured, or a new one.

    The stored tree goes on even if a later planner would choose another: a running epoch cannot change.
    Raises: OperatorError where the configuration declares something else than what is running.
    """
    if stored is None:
        return planned(stream)
    running = Strategy.from_json(stored)
    asked = {"source": stream.source.identity, **_flat(declared(stream))}
    runs = {"source": running.source, **_flat(running.declared)}
    for key in sorted(asked.keys() | runs.keys()):
        if asked.get(key) != runs.get(key):
            raise OperatorError(
                f"streams.{stream.name}: {key} is {asked.get(key)!r} here, but the stream runs "
                f"with {runs.get(key)!r} for its whole life; put it back, or give the new stream another name"
            )
    return running


def _flat(value: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    return dict(_leaves(value, path))


def _leaves(value: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            yield from _leaves(inner, f"{path}{key}.")
        else:
            yield f"{path}{key}", inner
