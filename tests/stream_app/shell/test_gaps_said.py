"""``query``, ``watch`` and the client say what no epoch measured."""

from __future__ import annotations

import json

from click.testing import CliRunner, Result

from stream_app.client import Client, Gap
from stream_app.shell.commands import main
from tests.stream_app.api.test_gaps import GAPS, at, sold
from tests.stream_app.published import Published
from tests.stream_app.shell.test_amounts import checked, said

WORDS = "; ".join(f"from {at(start)} to {at(end)}" for start, end in GAPS)


async def with_gaps() -> Published:
    stream, _, _ = await sold("1")
    return stream


def test_numbers_over_gaps_say_so_in_every_format() -> None:
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

    checked(with_gaps(), check)


def test_watch_says_where_an_epoch_begins_and_what_was_not_measured() -> None:
    def watched(url: str) -> Result:
        watch = ["watch", "sales", "--url", url, "--after", "0", "--releases", "15"]
        return CliRunner().invoke(main, watch)

    done = checked(with_gaps(), watched)
    assert (done.exit_code, len(done.stdout.splitlines())) == (0, 15), done.output
    told = done.stderr
    assert "Columns, separated by tabs: end of the bin, " in told.splitlines()[0]
    assert told.count("Running numbers are since ") == 1
    for (start, end), begun in zip(GAPS, (7, 14), strict=True):
        assert f"An epoch began at {at(begun)}: its running numbers start at 0." in told
        assert told.count(f"Not measured, and in no number here: from {at(start)} to {at(end)}.") == 1
