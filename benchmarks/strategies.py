"""The stored strategies beside what a new search finds: with as many buffers, and with one more.

Run with ``python -m benchmarks.strategies``; some minutes. It writes nothing: stored strategies never change.
"""

from __future__ import annotations

from dphist.toeplitz import optimal_strategy
from dphist.toeplitz.optimise import loss_of, optimise
from dphist.toeplitz.strategy import LARGEST_BUFFERS

BITS = range(4, 25)


def main() -> None:
    """Print, for one horizon after the other, by how much a new search is better."""
    for bits in BITS:
        for horizon in (2**bits, 3 * 2 ** (bits - 1)):
            if horizon <= 2**24:
                stored = optimal_strategy(horizon)
                loss, again = loss_of(stored), loss_of(optimise(horizon, stored.buffers, stored))
                more = min(stored.buffers + 1, LARGEST_BUFFERS)
                print(
                    f"{horizon:9} bins, {stored.buffers} buffers: loss {loss:.4f}; searched again "
                    f"{100 * (loss / again - 1):.3f} % better; {_with_more(horizon, more, loss)}",
                    flush=True,
                )


def _with_more(horizon: int, buffers: int, loss: float) -> str:
    try:
        return f"{buffers} buffers {100 * (loss / loss_of(optimise(horizon, buffers)) - 1):.3f} % better"
    except ValueError:
        return f"{buffers} buffers: the search found no valid strategy"


if __name__ == "__main__":
    main()
