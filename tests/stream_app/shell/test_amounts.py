"""``query`` and ``watch`` show sums and means, with the digits that their errors support."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import numpy as np
import pytest
from click.testing import CliRunner

from stream_app.api.app import listen, serve_on
from stream_app.client import AsyncClient, Client
from stream_app.ports.reader import PublicReader
from stream_app.shell.commands import main
from stream_app.shell.numbers import outward, supported
from stream_app.shell.progress import StreamProgress
from tests.models.memory import MemoryStore
from tests.patience import PATIENCE_S
from tests.stream_app.api.client import EXACT, SHARED
from tests.stream_app.published import Published
from tests.stream_app.published_axes import PublishedSums, sales_of

pytestmark = pytest.mark.slow

T = TypeVar("T")
HOURS = 6
WORDS = "of amount, each clamped to 0 to 500 and rounded to 0.01"


async def sold(epsilon: str, cents: list[np.ndarray] | None = None) -> PublishedSums:
    """Return a stream with sales over an epoch and a half. Args: cents, gets those of each bin and key."""
    stream = PublishedSums(MemoryStore(), epsilon=epsilon, epoch_bins=HOURS - 2)
    cells, found = sales_of(stream, HOURS)
    if cents is not None:
        cents.append(found)
    await stream.open()
    await stream.close_cells(cells[:4])
    await stream.open(1, stream.first_bin + 4)
    await stream.close_cells(cells[4:])
    return stream


@asynccontextmanager
async def served(stream: Published) -> AsyncIterator[str]:
    """Serve a stream during the block; yield the address."""

    @asynccontextmanager
    async def reader() -> AsyncIterator[PublicReader]:
        yield stream.store.reader()

    with listen("127.0.0.1", 0) as listener:
        # A command waits 10 s for an answer, and a slow machine takes about as long to start this process.
        await SHARED.of(os.getpid)
        server = asyncio.create_task(serve_on(listener, reader, apart=SHARED))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with AsyncClient(url) as client:
            for _ in range(int(PATIENCE_S * 100)):
                if await client.streams():
                    break
                await asyncio.sleep(0.01)
        yield url
        server.cancel()
        await asyncio.gather(server, return_exceptions=True)


def checked(making: Coroutine[Any, Any, Published], check: Callable[[str], T]) -> T:
    """Make a stream, serve it, and return what a check of its URL returns."""

    async def run() -> T:
        async with served(await making) as url:
            return await asyncio.to_thread(check, url)

    return asyncio.run(run())


def said(*arguments: str, status: int = 0) -> str:
    """Return what a command prints."""
    done = CliRunner(env={"COLUMNS": "200"}).invoke(main, [*arguments])
    assert done.exit_code == status, done.output
    return done.stdout if status == 0 else done.output


def test_without_noise_the_terminal_shows_the_recount() -> None:
    kept: list[np.ndarray] = []

    def check(url: str) -> None:
        [cents], of_sales = kept, ("sales", "--url", url)
        total = f"{cents.sum() / 100:,.2f}"
        summed = said("query", *of_sales, "--of", "sum")
        assert summed.startswith(f"{total}  (95 %: {total} to {total})")
        assert summed.count(f"The sum {WORDS}.") == 1
        answer = json.loads(said("query", *of_sales, "--of", "mean", "--key", "FR", "--format", "json"))
        rows = said("query", *of_sales, "--of", "sum", "--series", "bin").splitlines()
        assert [row.split()[2] for row in rows[1:7]] == [f"{one:,.2f}" for one in cents.sum(axis=1) / 100]
        means = said("query", *of_sales, "--of", "mean", "--series", "bin", "--format", "csv").splitlines()
        assert means[0].startswith("start,end,value,lower,upper,")
        refused = said("query", *of_sales, "--of", "sum", "--cdf", status=2)
        assert "--of sum: belongs to single numbers" in refused
        every = ("--after", "0", "--releases", str(HOURS))
        lines = said("watch", *of_sales, *every, "--of", "sum").splitlines()
        running = [cents[bin - bin % 4 : bin + 1].sum() / 100 for bin in range(HOURS)]
        assert [line.split("\t")[1] for line in lines] == [f"{one:.2f}" for one in running]
        means = said("watch", *of_sales, *every, "--of", "mean").splitlines()
        with Client(url) as client:
            assert answer["value"] == client.mean("sales", key="FR").value
            assert client.epochs("sales") == {0: "2013-01-01T00:00:00Z", 1: "2013-01-01T04:00:00Z"}
            last = client.mean("sales", "2013-01-01T04:00:00Z", "2013-01-01T06:00:00Z").value
        assert means[-1].split("\t")[1] == f"{last:.2f}"

    checked(sold(EXACT, kept), check)


def test_a_stream_without_a_sum_is_refused_with_what_to_do() -> None:
    async def plain() -> Published:
        stream = Published(MemoryStore())
        await stream.open()
        await stream.close([3])
        return stream

    def check(url: str) -> None:
        for of in ("sum", "mean"):
            line = said("query", "departures", "--url", url, "--of", of, status=2)
            assert "this stream has no sum" in line
        line = said("watch", "departures", "--url", url, "--of", "sum", status=2)
        assert "leave --of out, or ask stream-app query --of sum" in line

    checked(plain(), check)


def test_a_noisy_sum_has_no_more_digits_than_its_error() -> None:
    def check(url: str) -> None:
        text = said("query", "sales", "--url", url, "--of", "sum")
        with Client(url) as client:
            found = client.total("sales")
        number, *ends = text.split(")")[0].replace("(95 %:", "to").split(" to ")
        assert (found.upper - found.lower) / 2 > 10
        assert "." not in number
        low, high = (float(end.replace(",", "")) for end in ends)
        assert found.lower - 1 < low <= found.lower < found.upper <= high < found.upper + 1

    checked(sold("1"), check)


@pytest.mark.parametrize("places", [0, 1, 2])
def test_intervals_are_never_written_narrower_than_they_are(places: int) -> None:
    rng = np.random.default_rng(4)
    for low, width in zip(rng.normal(0, 100, 300), rng.exponential(5, 300), strict=True):
        first, last = (float(end.replace(",", "")) for end in outward(low, low + width, places))
        assert low - 10.0**-places <= first <= low + 1e-6
        assert low + width - 1e-6 <= last <= low + width + 10.0**-places
    assert outward(-0.0, 12.0, places)[0].startswith("0")


def test_the_last_shown_digit_is_within_the_error() -> None:
    for half_width in (1e-4, 0.03, 0.5, 2.0, 9.9, 31.0, 7_287.0):
        shown = supported(half_width, most=5)
        assert shown == 0 or half_width / 100 < 10.0**-shown <= half_width / 10 + 1e-9
        assert supported(half_width) == min(2, shown)


def test_lines_of_run_round_interval_ends_outward() -> None:
    progress = StreamProgress("clicks", 1, None, 9.6, 3.6, 15.4, until_us=3_600_000_000)
    assert progress.describe().endswith("count 10 (95 %: 3 to 16)")
