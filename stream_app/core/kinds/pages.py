"""Pages: the noise of an epoch, drawn before the epoch and divided into runs of bins.

A page holds all secret noise for the releases of its bins: the errors of their running counts and the noise
of the nodes that they complete. Closing a bin reads one page. A page is no longer needed once its bins are
released. Nodes that reach beyond the horizon are never published, so no page holds their decoded noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dphist.arrays import Int64Array
from dphist.tree.anticipating import BinsNoise

LARGEST_PAGE_BYTES = 1 << 20
BINS_PER_PAGE = 1024  # smaller pages are destroyed sooner; each costs a key step and a field in the store
LARGEST_DRAWS = 10_000_000  # noise draws per epoch, about a minute; a stream that needs more stays causal
_VALUE, _NARROW = np.dtype("<i8"), np.dtype("<i4")


@dataclass(frozen=True, slots=True)
class StoredNoise:
    """Noise drawn for an epoch, stored in ``pages`` encrypted pages; ``nonce`` identifies the drawing."""

    nonce: str
    pages: int


@dataclass(frozen=True, slots=True)
class PageGeometry:
    """How the bins of an epoch are divided into pages.

    Args: horizon in bins; width, numbers per row; node widths in bins per released level, root first.
    """

    horizon: int
    width: int
    node_bins: tuple[int, ...]

    @property
    def bin_bytes(self) -> int:
        """Return the largest size of one bin in bytes: one error, and at most one node per level."""
        return _VALUE.itemsize * self.width * (1 + len(self.node_bins))

    @property
    def bins_per_page(self) -> int:
        """Return how many bins a full page holds."""
        return max(1, min(BINS_PER_PAGE, LARGEST_PAGE_BYTES // self.bin_bytes))

    @property
    def pages(self) -> int:
        return -(-self.horizon // self.bins_per_page)

    def page_of(self, bin: int) -> int:
        return bin // self.bins_per_page

    def bins_of(self, page: int) -> range:
        start = page * self.bins_per_page
        return range(start, min(start + self.bins_per_page, self.horizon))

    def rows_of(self, page: int) -> tuple[int, ...]:
        """Return how many rows a page holds: errors, then the nodes of each level."""
        bins = self.bins_of(page)
        return (len(bins), *(bins.stop // width - bins.start // width for width in self.node_bins))

    def packed(self, of_bins: Callable[[range], BinsNoise]) -> Iterator[bytes]:
        """Yield all pages in order. SECRET. Args: of_bins, the noise of a run of bins."""
        for page in range(self.pages):
            noise = of_bins(self.bins_of(page))
            yield _packed(np.concatenate((noise.errors, *noise.nodes)))


@dataclass(frozen=True, slots=True)
class SeedPage(PageGeometry):
    """The one page of an epoch that stores a seed: it is needed until the epoch ends."""

    @property
    def bins_per_page(self) -> int:
        return self.horizon


def _packed(rows: Int64Array) -> bytes:
    """Return a page's rows as bytes, four per number if every number fits, which is nearly always."""
    limits = np.iinfo(_NARROW)
    narrow = bool(rows.min() >= limits.min and rows.max() <= limits.max)
    return rows.astype(_NARROW if narrow else _VALUE).tobytes()


def read_page(geometry: PageGeometry, page: int, data: bytes) -> BinsNoise:
    """Return the noise on a page that ``PageGeometry.packed`` yielded. SECRET.

    Raises: ValueError for bytes of another length.
    """
    rows = geometry.rows_of(page)
    numbers = geometry.width * sum(rows)
    sizes = [size for size in (_NARROW, _VALUE) if len(data) == size.itemsize * numbers]
    if not sizes:
        raise ValueError(f"noise page {page}: {len(data)} bytes are not those of its bins; it is damaged")
    values = np.frombuffer(data, sizes[0]).astype(np.int64).reshape(-1, geometry.width)
    errors, *nodes = np.split(values, np.cumsum(rows)[:-1])
    return BinsNoise(geometry.bins_of(page).start, errors, tuple(nodes))


def part_of_page(geometry: PageGeometry, page: BinsNoise, bins: range) -> BinsNoise:
    """Return the noise of some of a page's bins."""
    first = page.first_bin
    nodes: Sequence[Int64Array] = [
        values[bins.start // width - first // width : bins.stop // width - first // width]
        for values, width in zip(page.nodes, geometry.node_bins, strict=True)
    ]
    return BinsNoise(bins.start, page.errors[bins.start - first : bins.stop - first], tuple(nodes))
