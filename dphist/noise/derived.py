"""One-sided geometric noise that is derived from a secret seed and a name, so that it is always the same.

Each variable compares one uniform number U in [0, 1) with powers of q = exp(-step): the variable is at least
m if U < q^m. The bits of U are the output of a keyed hash (BLAKE2b). No step rounds: where 64 bits do not
decide, more bits of U are compared with certified digits of q^m, until they differ.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dphist.arrays import Int64Array
from dphist.certified import exp_bounds

_WORD = 64
_MARGIN = 1e-9  # far more than the error of a double's exponential and logarithm, relative
SEED_BYTES = 32


@dataclass(frozen=True, slots=True)
class DerivedNoise:
    """Geometric variables with P(value = x) proportional to exp(-x step), x = 0, 1, 2, ...

    Guarantee: equal seeds, purposes and names give equal variables. For a seed of 32 random bytes, variables
        of different purposes or names are independent, as far as BLAKE2b behaves like a random function.
    Args: seed, SECRET, 32 bytes; step, above 0.
    Cost: about 1 microsecond for each name.
    """

    seed: bytes
    step: Fraction

    def __repr__(self) -> str:
        return f"<DerivedNoise step={float(self.step):g}>"

    def geometric(self, purpose: bytes, names: Sequence[bytes]) -> Int64Array:
        """Return the variable of each name, shape (names,)."""
        bits, step = self._first_bits(purpose, names).astype(np.float64), float(self.step)
        # U lies between bits and bits + 1, of 2^64.
        values = -np.log((bits + 0.5) / 2.0**_WORD) / step
        margin = _MARGIN * (1 + values) + 1 / (bits + 0.5) / step
        whole = np.floor(values).astype(np.int64)
        undecided = (np.abs(values - np.rint(values)) <= margin) | (bits == 0)  # U may be as small as 0
        for place in np.flatnonzero(undecided).tolist():
            value = max(int(values[place] - margin[place]) - 1, 0)
            while self._is_least(purpose, names[place], value + 1):
                value += 1
            whole[place] = value
        return whole

    def at_least(self, purpose: bytes, names: Sequence[bytes], least: Int64Array) -> NDArray[np.bool_]:
        """Return for each name whether its variable is at least a number. Args: least, shape (names,)."""
        bits = self._first_bits(purpose, names).astype(np.float64)
        bound = np.exp(-float(self.step) * np.maximum(least, 0)) * 2.0**_WORD
        # Both sides of the comparison may be off by the rounding of 64 bits and of the exponential.
        margin = bound * _MARGIN + 4096.0
        reached: NDArray[np.bool_] = bits < bound
        for place in np.flatnonzero(np.abs(bits - bound) <= margin).tolist():
            reached[place] = self._is_least(purpose, names[place], int(least[place]))
        return reached

    def _first_bits(self, purpose: bytes, names: Sequence[bytes]) -> NDArray[np.uint64]:
        hashed = hashlib.blake2b(purpose + b"\0\0", digest_size=_WORD // 8, key=self.seed)
        digests = bytearray()
        for name in names:
            one = hashed.copy()
            one.update(name)
            digests += one.digest()
        return np.frombuffer(bytes(digests), ">u8").astype(np.uint64)

    def _is_least(self, purpose: bytes, name: bytes, least: int) -> bool:
        """Return, by exact arithmetic, whether the variable of this name is at least ``least``."""
        if least <= 0:
            return True
        uniform, bits = 0, 0
        while True:
            word = hashlib.blake2b(
                purpose + b"\0" + bytes([bits // _WORD]), digest_size=_WORD // 8, key=self.seed
            )
            word.update(name)
            uniform, bits = (uniform << _WORD) | int.from_bytes(word.digest()), bits + _WORD
            lower, upper = exp_bounds(least * self.step, bits)
            if uniform + 1 <= lower:
                return True
            if uniform >= upper:
                return False
