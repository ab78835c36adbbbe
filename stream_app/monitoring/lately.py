"""The sums of the last ten minutes, in memory only: no exact number of counted events outlives its epoch."""

from __future__ import annotations

from collections import Counter, deque

OVER_S = 600
_SLOT_S = 5


class Lately:
    """What happened in the last ten minutes, by name. SECRET."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._slots: deque[tuple[int, Counter[str]]] = deque()

    def add(self, now_s: float, added: Counter[str]) -> None:
        """Add the numbers of this moment, and drop what is over."""
        slot = int(now_s // _SLOT_S)
        if not self._slots or self._slots[-1][0] != slot:
            self._slots.append((slot, Counter()))
        self._slots[-1][1].update(added)
        self.counts.update(added)
        while self._slots[0][0] <= slot - OVER_S // _SLOT_S:
            self.counts.subtract(self._slots.popleft()[1])

    def number(self, name: str, now_s: float) -> int:
        """Return one sum as of now; another thread may ask."""
        over = int((now_s - OVER_S) // _SLOT_S)
        return sum(counts[name] for slot, counts in list(self._slots) if slot > over)
