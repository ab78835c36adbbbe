"""How large a reproduction is: as in the papers, with a given number of trials, or quick."""

from __future__ import annotations

from dataclasses import dataclass

from research.histograms import Histogram
from research.trials import Trials

# Small enough that everything runs in seconds, large enough that trees and partitions differ.
QUICK_BINS = 256


@dataclass(frozen=True)
class Setting:
    """The inputs of every reproduction.

    Args: trials, the object that runs trials; quick, whether to fold histograms and run few trials; asked,
        how many trials of each configuration to run instead of the paper's number.
    """

    trials: Trials
    quick: bool = False
    asked: int | None = None

    def repeats(self, paper: int, quick: int) -> int:
        """Return how many trials of each configuration to run."""
        if self.asked is not None:
            return self.asked
        return quick if self.quick else paper

    def sized(self, histograms: list[Histogram], bins: int = QUICK_BINS) -> list[Histogram]:
        """Return the histograms, folded if quick."""
        return [histogram.folded(bins) for histogram in histograms] if self.quick else histograms
