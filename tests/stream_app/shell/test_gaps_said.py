"""``query``, ``watch`` and the client say what no epoch measured."""

from __future__ import annotations

import asyncio
import json

from click.testing import CliRunner

from stream_app.client import Client, Gap
from stream_app.shell.commands import main
from tests.stream_app.api.test_gaps import GAPS, at, sold
from tests.stream_app.shell.test_amounts import said, served

WORDS = "; ".join(f"from {at(start)} to {at(end)}" for start, end in GAPS)


def test_numbers_over_gaps_say_so_in_every_format() -> None:
    async def run() -> None:
        stream, _, _ = await sold("1")
        async with served(stream) as url:
            await asyncio.to_thread(check, url)

    def check(url: str) -> None:
        gaps = tuple(Gap(at(start), at(end)) for start, end in GAPS)
        with Client(url) as client:
            for found in (client.count("sales"), client.total("sales"), client.mean("sales")):
                assert found.unmeasured == gaps
            assert client.summary("sales").unmeasured == gaps
            assert client.count("sales", at(7), at(11)).unmeasured == ()
        for of in ("count", "sum", "mean"):
            query = "query", "sales", "--url", url, "--of", of
            assert f"Not measured, and in no number here: {WORDS}." in said(*query)
            listed = [{"start": gap.start, "end": gap.end} for gap in gaps]
            assert json.loads(said(*query, "--format", "json"))["unmeasured"] == listed
            column = " ".join(f"{gap.start}/{gap.end}" for gap in gaps)
            assert column in said(*query, "--format", "csv").splitlines()[1]
            within = *query, "--start", at(7), "--end", at(11)
            assert "Not measured" not in said(*within)
            assert json.loads(said(*within, "--format", "json"))["unmeasured"] == []
            assert "unmeasured" not in said(*within, "--format", "csv")
        line = said("query", "sales", "--url", url, "--start", at(12), "--end", at(13), status=2)
        assert f"no epoch measured the bins from {at(11)} to {at(14)}" in line
        watched = said("watch", "sales", "--url", url, "--after", "0", "--releases", "15")
        assert len(watched.splitlines()) == 15

    asyncio.run(run())


def test_watch_says_where_an_epoch_begins_and_what_was_not_measured() -> None:
    async def run() -> str:
        stream, _, _ = await sold("1")
        async with served(stream) as url:
            return await asyncio.to_thread(watched, url)

    def watched(url: str) -> str:
        done = CliRunner().invoke(main, ["watch", "sales", "--url", url, "--after", "0", "--releases", "15"])
        assert done.exit_code == 0, done.output
        return done.stderr

    told = asyncio.run(run())
    assert "Columns, separated by tabs: end of the bin, " in told.splitlines()[0]
    assert told.count("Running numbers are since ") == 1
    for (start, end), begun in zip(GAPS, (7, 14), strict=True):
        assert f"An epoch began at {at(begun)}: its running numbers start at 0." in told
        assert told.count(f"Not measured, and in no number here: from {at(start)} to {at(end)}.") == 1
