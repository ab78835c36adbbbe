"""A curve: estimates along an axis, with an interval around each of them, as a table or a picture."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dphist.arrays import FloatArray, Int64Array
from dphist.privacy import shown


@dataclass(frozen=True, eq=False)
class Curve:
    """Estimates at rising places, each with an interval, if the error is known.

    Guarantee: post-processing of released values. ``of_each`` says whether each interval holds with the
        stated confidence by itself, or all of them at once.
    Args: name of the estimates and of the axis; at, the places, (n,), whole and rising; values, (n,); lower
        and upper, (n,), or both None if no interval can be stated.

    >>> curve = Curve("events before", "edge", np.arange(4), np.array([0.0, 2.0, 2.0, 6.0]))
    >>> curve
    <Curve 'events before' at 4 places from edge 0 to edge 3: 0 ... 6>
    >>> curve([1, 3]).tolist(), curve.quantile(0.5)
    ([2.0, 6.0], 3)
    """

    name: str
    axis: str
    at: Int64Array
    values: FloatArray
    lower: FloatArray | None = None
    upper: FloatArray | None = None
    confidence: float = 0.95
    of_each: bool = True

    def __repr__(self) -> str:
        first, last = (f"{value:,.4g}" for value in self.values[[0, -1]])
        last_interval = ""
        if self.lower is not None and self.upper is not None:
            low, high = self.lower[-1], self.upper[-1]
            last_interval = f", {100 * self.confidence:g} %: {low:,.4g} to {high:,.4g}"
        places = f"{len(self.at)} places from {self.axis} {self.at[0]} to {self.axis} {self.at[-1]}"
        return f"<Curve {self.name!r} at {places}: {first} ... {last}{last_interval}>"

    def __call__(self, at: ArrayLike) -> FloatArray:
        """Return the value at each place, or at the last place of the curve before it.

        Raises: ValueError for a place before the first one.
        """
        asked = np.asarray(at)
        found = np.searchsorted(self.at, asked, side="right") - 1
        if np.any(found < 0):
            raise ValueError(f"at: the curve begins at {self.axis} {self.at[0]}; ask from there on")
        return np.asarray(self.values[found])

    def quantile(self, q: float) -> int:
        """Return the first place at which the curve has reached q times its last value.

        Guarantee: for cumulative counts. It is an estimate; ``Cdf.quantile`` also states an interval.
        Raises: ValueError for q outside (0, 1).
        """
        if not isinstance(q, Real) or not 0.0 < q < 1.0:
            raise ValueError(f"q: {shown(q)} is outside (0, 1); write a number, for example 0.95")
        rising = np.maximum.accumulate(self.values)
        return int(self.at[np.argmax(rising >= q * rising[-1])])

    def to_pandas(self) -> Any:
        """Return a DataFrame with a row for each place: the value, and lower and upper if they are known.

        Raises: ModuleNotFoundError without pandas.
        """
        columns = {self.name: self.values}
        if self.lower is not None and self.upper is not None:
            columns |= {"lower": self.lower, "upper": self.upper}
        pandas = needed("pandas", "frames")
        return pandas.DataFrame(columns, index=pandas.Index(self.at, name=self.axis))

    def plot(self, axes: Any = None) -> Any:
        """Draw the line and its band on matplotlib axes, by default new ones; return the axes.

        Raises: ModuleNotFoundError without matplotlib.
        """
        if axes is None:
            axes = needed("matplotlib.figure", "plot").Figure(layout="constrained").subplots()
        if self.lower is not None and self.upper is not None:
            whom = "each" if self.of_each else "all at once"
            label = f"{100 * self.confidence:g} %, {whom}"
            axes.fill_between(self.at, self.lower, self.upper, alpha=0.25, lw=0, label=label)
        axes.plot(self.at, self.values, label=self.name)
        axes.set_xlabel(self.axis)
        axes.legend(frameon=False)
        return axes


def needed(module: str, extra: str) -> ModuleType:
    """Return a module of an extra. Raises: ModuleNotFoundError that names the extra."""
    from importlib import import_module

    try:
        return import_module(module)
    except ModuleNotFoundError:
        name = module.partition(".")[0]
        message = f'{name} is not installed, and this needs it; pip install "dphist[{extra}]"'
        raise ModuleNotFoundError(message, name=name) from None
