"""Re:cord-play in small: the names of dp-recorder that ``benchmarks.recordplay`` uses. It is on no index.

Source: dp_recorder/auditing/audit_primitives.py at 85d189e (PETS 2026), without random states and profiles.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import Any, ClassVar, Self

import numpy as np

Metric = Callable[[Any, Any], float]


@dataclass
class Entry:
    """One noisy call, or one value that must be equal in both runs (``exact`` is None)."""

    kind: str
    output: Any
    exact: Any = None
    params: str = ""
    sensitivity: float = 0.0
    metric: Metric | None = None
    replayed: Any = None


class Auditor:
    """Records the exact inputs and the noisy outputs of a run, then gives a neighbour the same outputs."""

    active: ClassVar[Auditor | None] = None

    def __init__(self) -> None:
        self.log: list[Entry] = []
        self._replay: Iterator[Entry] | None = None

    def __enter__(self) -> Self:
        Auditor.active = self
        return self

    def __exit__(self, *_: object) -> None:
        Auditor.active = None

    def set_replay(self) -> None:
        """Compare the next run with the recorded one."""
        assert self.log, "no noise was recorded"
        self._replay = iter(self.log)

    def met(self, entry: Entry) -> Any:
        """Record an entry, or compare it with the recorded one; return the recorded output."""
        if self._replay is None:
            self.log.append(entry)
            return entry.output
        known = next(self._replay, None)
        if known is None:
            raise RuntimeError("replay overrun")
        assert (known.kind, known.params) == (entry.kind, entry.params), f"divergence at {entry.kind}"
        assert entry.exact is not None or np.array_equal(known.output, entry.output), "equality failure"
        known.replayed = entry.exact
        return known.output

    def validate_records(self) -> None:
        """Compare each distance of the exact inputs with the declared sensitivity. Raises: AssertionError."""
        for entry in self.log:
            if entry.metric is not None and entry.replayed is not None:
                distance = entry.metric(np.asarray(entry.exact), np.asarray(entry.replayed))
                assert distance <= entry.sensitivity + 1e-9, f"distance {distance} > {entry.sensitivity}"


def audit_spec(kind: str, input_arg: str, sensitivity_arg: str, metric_fn: Metric) -> Callable[..., Any]:
    """Return a decorator of a function that adds noise. Args: the names of two of its arguments."""

    def decorated(noised: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(noised)
        def audited(*args: Any) -> Any:
            if Auditor.active is None:
                return noised(*args)
            given = inspect.signature(noised).bind(*args).arguments
            exact = np.array(given.pop(input_arg))
            entry = Entry(kind, noised(*args), exact, str(given), given[sensitivity_arg], metric_fn)
            return Auditor.active.met(entry)

        return audited

    return decorated


def ensure_equality(**values: Any) -> None:
    """Record values that follow from noisy ones only, or compare them with the recorded ones."""
    if Auditor.active is not None:
        for name, value in values.items():
            Auditor.active.met(Entry(f"equal {name}", np.array(value)))


def dist_l1(one: Any, other: Any) -> float:
    """Return the sum of the absolute differences."""
    return float(np.abs(one - other).sum())
