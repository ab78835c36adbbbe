"""How much of the main heap of a running process is in use: ``python -m benchmarks.soak.heap PID``.

It reads the blocks of glibc's heap from outside and does not stop the process. A heap that grows while the
memory in use does not is full of holes between live blocks.
"""

from __future__ import annotations

import argparse
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_HEADER, _SMALLEST, _FLAGS, _PREVIOUS_IN_USE = 16, 32, 7, 1
_POINTERS = 48  # at the beginning of a free block, whose pages the system cannot have


class Block(NamedTuple):
    """A block of the heap. Args: at, where it begins; size, in bytes, with its header."""

    at: int
    size: int
    in_use: bool


def blocks(heap: bytes) -> Iterator[Block]:
    """Yield the blocks of a heap, without the last one, which is what is left at its end.

    Raises: ValueError if the process changed the heap meanwhile, or it is not one of glibc.
    """
    at = 0
    while True:
        size = struct.unpack_from("<Q", heap, at + 8)[0] & ~_FLAGS
        after = at + size
        if size < _SMALLEST or after > len(heap):
            raise ValueError(f"no block of glibc at byte {at} of the heap; try again")
        if after + _HEADER > len(heap):
            return
        in_use = struct.unpack_from("<Q", heap, after + 8)[0] & _PREVIOUS_IN_USE
        yield Block(at, size, bool(in_use))
        at = after


def whole_pages(begin: int, free: Block, page: int = os.sysconf("SC_PAGE_SIZE")) -> int:
    """Return the bytes of whole pages in a free block. Args: begin, the heap's address."""
    first = -(-(begin + free.at + _POINTERS) // page)
    return max(0, (begin + free.at + free.size) // page - first) * page


def read_heap(pid: int) -> tuple[int, bytes]:
    """Return the address of a process's main heap, and what is in it."""
    mappings = Path(f"/proc/{pid}/maps").read_text().splitlines()
    place = next(line.split()[0] for line in mappings if line.endswith("[heap]"))
    begin, end = (int(number, 16) for number in place.split("-"))
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        memory.seek(begin)
        return begin, memory.read(end - begin)


def main() -> None:
    """Print the size of the heap, what is in use, and what could be given back."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("pid", type=int)
    begin, heap = read_heap(parser.parse_args().pid)
    found = list(blocks(heap))
    in_use = sum(block.size for block in found if block.in_use)
    pages = sum(whole_pages(begin, block) for block in found if not block.in_use)
    print(
        f"heap {len(heap) / 1e6:.2f} MB, in use {in_use / 1e6:.2f} MB, free whole pages {pages / 1e6:.2f} MB"
    )


if __name__ == "__main__":
    main()
