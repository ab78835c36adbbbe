"""Both clients against a real server: equal answers, followers that resume, refusals in one line."""

from __future__ import annotations

import asyncio
import inspect
import io
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

from stream_app.client import AsyncClient, Client, ClientError, Release
from stream_app.client.columns import ARRAYS, Answered
from stream_app.client.following import EventReader
from stream_app.client.questions import Method
from stream_app.shell.commands import main
from stream_app.shell.terminal import RunningChart
from tests.models.memory import MemoryStore
from tests.patience import PATIENCE_S
from tests.stream_app.api.client import EXACT, Api, fill, released, served, with_api
from tests.stream_app.published import FIRST_BIN, Published
from tests.stream_app.published_axes import PublishedWindows, delays
from tests.world import World

pytestmark = pytest.mark.slow

START = datetime(2013, 1, 1, tzinfo=UTC)
METHODS: tuple[Method, ...] = ("top_down", "isotonic")


def row(seq: int) -> str:
    return f'{{"seq":{seq},"start":"a","end":"b","estimate":[1.5],"interval":[[0,3]],"private":true}}'


def test_lines_become_releases_once_and_an_incomplete_event_is_discarded() -> None:
    reader = EventReader(5)
    lines = ["retry: 2000", "", ": nothing new", "", "event: release", "id: 6", f"data: {row(6)}"]
    assert [one for line in lines for one in reader.feed(line)] == []
    assert reader.headers["Last-Event-ID"] == "5"
    assert [one.seq for one in reader.feed("")] == [6]
    assert list(reader.feed("event: release")) + list(reader.feed(f"data: {row(7)}")) == []
    reader.begin()  # the connection was lost in the middle of 7
    assert list(reader.feed("")) == []
    again = [f"{part}" for seq in (6, 7) for part in ("event: release", f"data: {row(seq)}", "")]
    assert [one.seq for line in again for one in reader.feed(line)] == [7]
    assert reader.headers["Last-Event-ID"] == "7"
    assert EventReader(None).headers == {"Accept": "text/event-stream"}


def kinds_of(answer: type[Answered]) -> dict[str, str]:
    """Return the type of every field of an answer and of those made from it, by class and name."""
    own = {f"{answer.__name__}.{name}": str(kind) for name, kind in inspect.get_annotations(answer).items()}
    return own | {name: kind for one in answer.__subclasses__() for name, kind in kinds_of(one).items()}


def test_client_can_read_every_array_of_an_answer() -> None:
    arrays = {name: kind for name, kind in kinds_of(Answered).items() if "Array" in kind}
    assert arrays["Series.value"] == "FloatArray"
    by_itself = {"Window.place": "NDArray[Any]"}  # Window.of makes it
    assert {name: kind for name, kind in arrays.items() if kind not in ARRAYS} == by_itself


@pytest.mark.parametrize(
    "name",
    [
        "streams",
        "titles",
        "alerts",
        "timezone",
        "summary",
        "epochs",
        "keys",
        "count",
        "total",
        "mean",
        "series",
        "cdf",
        "cdfs",
        "quantile",
        "window",
    ],
)
def test_both_clients_document_the_same_method_with_its_arguments(name: str) -> None:
    methods = [getattr(client, name) for client in (Client, AsyncClient)]
    first, second = (inspect.signature(method) for method in methods)
    assert first == second
    assert next(iter(first.parameters)) == "self"
    assert first.return_annotation != inspect.Signature.empty
    assert "Question" not in first.return_annotation
    assert [method.__qualname__ for method in methods] == [f"Client.{name}", f"AsyncClient.{name}"]
    assert methods[0].__doc__ == methods[1].__doc__ is not None


@asynccontextmanager
async def running(stream: Published | World, port: int = 0) -> AsyncIterator[str]:
    """Serve a stream during the block; yield the address."""
    async with served(stream.store.reader(), port=port) as client:
        yield str(client.base_url).rstrip("/")


@pytest.mark.slow  # imports pandas, polars and pyarrow
async def test_both_clients_and_the_terminal_give_the_same_exact_answers() -> None:
    counts = [3, 1, 4, 1, 5, 9, 2, 6]
    async with running(await released(counts, epsilon=EXACT)) as url:
        async with AsyncClient(url, timeout_s=PATIENCE_S) as client:
            whole = await client.count("departures")
            part = await client.count("departures", START + timedelta(hours=2), "2013-01-01T05:00:00Z")
            bins = await client.series("departures", kind="bin", step=2)
            for method in METHODS:
                found = await client.series("departures", kind="bin", view="consistent", method=method)
                assert found.value.tolist() == counts
            with pytest.raises(ClientError, match="inside a bin"):
                await client.count("departures", START + timedelta(minutes=1))
            with pytest.raises(ValueError, match="no time zone"):
                await client.count("departures", datetime(2013, 1, 1))  # noqa: DTZ001
            with pytest.raises(ClientError, match="known streams: departures") as refused:
                await client.count("arrivals")
            assert refused.value.status == 404
            with pytest.raises(ClientError, match=r"this stream has no value.*; ask for its count"):
                await client.cdf("departures")
        assert (whole.value, whole.lower, whole.upper, whole.seq) == (31, 31, 31, 8)
        assert (part.value, part.start, whole.private) == (10, "2013-01-01T02:00:00Z", False)
        assert bins.value.tolist() == [4, 5, 14, 8]
        assert bins.start[1] == np.datetime64("2013-01-01T02:00:00")
        await asyncio.to_thread(check_blocking, url, bins.columns())


def check_blocking(url: str, bins: dict[str, np.ndarray]) -> None:
    with Client(url) as client:
        found = client.series("departures", kind="bin", step=2)
        with pytest.raises(ClientError, match="method: needs view=consistent"):
            client.series("departures", method="isotonic")
        assert all((column == bins[name]).all() for name, column in found.columns().items())
        assert [one.seq for one in (next(client.follow("departures", after)) for after in (None, 0, 3))] == [
            8,
            1,
            4,
        ]
        pandas, polars = found.to_pandas(), found.to_polars()
        assert pandas["value"].tolist() == polars["value"].to_list() == found.value.tolist()
        assert pandas["end"][0].to_pydatetime() == polars["end"][0] == START + timedelta(hours=2)
        assert list(pandas.columns) == polars.columns == ["start", "end", "value", "stderr", "lower", "upper"]
    said = CliRunner().invoke(main, ["query", "departures", "--url", url])
    assert (said.exit_code, said.output.split()[0]) == (0, "31.00")
    assert "NOT PRIVATE" in said.output
    table = CliRunner().invoke(
        main, ["query", "departures", "--url", url, "--series", "bin", "--format", "csv"]
    )
    assert table.output.splitlines()[1] == "2013-01-01T00:00:00Z,2013-01-01T01:00:00Z,3.0,0.0,3.0,3.0"
    watched = CliRunner().invoke(
        main, ["watch", "departures", "--url", url, "--after", "0", "--releases", "3"]
    )
    assert [line.split("\t")[1] for line in watched.stdout.splitlines()] == ["3.00", "4.00", "8.00"]
    narrow = CliRunner(env={"COLUMNS": "80"}).invoke(
        main, ["query", "departures", "--url", url, "--series", "bin"]
    )
    assert narrow.output.splitlines()[1].split() == [
        "2013-01-01T00:00:00Z",
        "2013-01-01T01:00:00Z",
        *("3.00", "0.00", "3.00", "3.00"),
    ]
    refused = CliRunner().invoke(main, ["query", "nothing", "--url", url])
    assert (refused.exit_code, len(refused.output.splitlines())) == (2, 1)


@pytest.mark.slow
async def test_terminal_shows_days_in_their_time_zone_and_csv_in_utc() -> None:
    days: dict[str, Any] = {"first_bin": 15_793, "bin_us": 86_400_000_000, "timezone": "Europe/Paris"}
    async with running(await released([3, 1, 4, 1, 5, 9], epsilon=EXACT, **days)) as url:
        async with AsyncClient(url) as client:
            assert await client.timezone("departures") == "Europe/Paris"
        await asyncio.to_thread(check_days, url)
    async with running(await released([3])) as url, AsyncClient(url) as client:
        assert await client.timezone("departures") is None


def check_days(url: str) -> None:
    with Client(url) as client:
        assert client.timezone("departures") == "Europe/Paris"
        last = next(client.follow("departures", 5))

    def said(*arguments: str) -> list[str]:
        done = CliRunner(env={"COLUMNS": "80"}).invoke(
            main, [arguments[0], "departures", "--url", url, *arguments[1:]]
        )
        assert done.exit_code == 0, done.output
        return done.stdout.splitlines()

    assert said("query")[0].endswith("  29 Mar – 3 Apr 2013, whole days of Europe/Paris")
    bins = said("query", "--series", "bin", "--step", "2")
    assert bins[0].split("  ")[0].strip() == "days of Europe/Paris"
    assert [line.split("  ")[0].strip() for line in bins[1:4]] == [
        "29–30 Mar 2013",
        "31 Mar – 1 Apr 2013",
        "2–3 Apr 2013",
    ]
    edges = ["2013-03-28T23:00:00Z", "2013-04-03T22:00:00Z"]
    assert said("query", "--format", "csv")[1].split(",")[5:7] == edges
    assert said("query", "--series", "bin", "--step", "6", "--format", "csv")[1].split(",")[:2] == edges
    assert said("watch", "--after", "5", "--releases", "1")[0].startswith(f"{edges[1]}\t")
    drawn = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    drawn.print(RunningChart("departures", [last], "Europe/Paris"))
    assert isinstance(drawn.file, io.StringIO)
    assert "until the end of 3 Apr 2013 (Europe/Paris)" in drawn.file.getvalue()


def test_unreachable_service_gives_a_one_line_error() -> None:
    with Client("http://127.0.0.1:9") as client, pytest.raises(ClientError, match="is it running there"):
        client.count("departures")
    watched = CliRunner().invoke(main, ["watch", "departures", "--url", "http://127.0.0.1:9"])
    assert (watched.exit_code, len(watched.output.splitlines())) == (2, 1)
    with Client("127.0.0.1:9") as client, pytest.raises(ClientError, match="write it as http://HOST:PORT"):
        client.count("departures")


async def test_follower_gets_every_release_once_over_a_restart() -> None:
    stream = await released([1, 2, 3])
    seen: list[Release] = []

    async def follow(url: str) -> None:
        async with AsyncClient(url) as client:
            async for release in client.follow("departures", 0):
                seen.append(release)

    async def until(count: int) -> None:
        for _ in range(int(PATIENCE_S * 100)):
            if len(seen) >= count:
                return
            await asyncio.sleep(0.01)

    async with running(stream) as url:
        follower = asyncio.create_task(follow(url))
        await until(3)
    await stream.close([4, 5])  # while the service is down
    async with running(stream, int(url.rpartition(":")[2])):
        await until(5)
        await stream.close([6])
        await until(6)
    follower.cancel()
    assert [release.seq for release in seen] == [1, 2, 3, 4, 5, 6]
    assert seen[-1].interval is not None
    assert seen[-1].interval[0] < seen[-1].value < seen[-1].interval[1]


@with_api([3, 1, 4])
async def test_series_is_the_same_in_csv_arrow_and_json(api: Api) -> None:
    import csv

    import pyarrow

    plain = await api.json("series", kind="bin")
    text = await api.get("series", kind="bin", headers={"Accept": "text/csv"})
    assert text.headers["content-type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(text.text)))
    arrow = await api.get("series", kind="bin", format="arrow")
    table = pyarrow.ipc.open_stream(arrow.content).read_all()
    for name in ("value", "stderr", "lower", "upper"):
        assert [float(one[name]) for one in rows] == plain[name] == table[name].to_pylist()
    assert rows[1]["start"] == "2013-01-01T01:00:00Z"
    assert [time.timestamp() for time in table["end"].to_pylist()] == plain["end"]
    assert plain["end"][0] == (FIRST_BIN + 1) * 3600
    assert table.schema.metadata[b"private"] == b"true"
    assert len({response.headers["etag"] for response in (text, arrow, await api.get("series"))}) == 3
    status, body = await api.error("series", format="xlsx")
    assert (status, body["parameter"]) == (422, "format")


@pytest.mark.slow  # calibrates a band, imports pandas and polars
async def test_window_has_bands_or_nan_where_errors_are_unknown() -> None:
    stream = PublishedWindows(MemoryStore(), epsilon=EXACT, epoch_bins=8, window_bins=2, buckets=10)
    loads = PublishedWindows(
        stream.store,
        name="loads",
        epsilon=EXACT,
        epoch_bins=8,
        window_bins=2,
        over_keys=True,
        mechanism="sorted_isotonic",
    )
    cells = delays(stream, 6)
    for one in (stream, loads):
        await fill(one, cells)
    async with running(stream) as url, AsyncClient(url, timeout_s=300.0) as client:
        day = await client.window("windows", key="UA", levels=[0.5, 0.9])
        exact = cells[4:6, 0].sum(axis=0)
        assert np.allclose(day.count, exact, atol=0.01)
        assert (np.abs(day.upper - exact.cumsum()) < 0.01).all()
        assert (day.place == np.linspace(-15, 120, 10)).all()
        assert (day.earlier, day.later, len(day)) == ("2013-01-01T04:00:00Z", None, 10)
        assert (day.quantiles.lower <= day.quantiles.value).all()
        before = await client.window("windows", day.earlier, key="UA")
        assert np.allclose(before.count, cells[2:4, 0].sum(axis=0), atol=0.01)
        assert len(before.quantiles) == 0
        again = await client.window("windows", until=START + timedelta(hours=5), key="UA")
        assert again.end == before.end
        await asyncio.to_thread(check_windows, url, np.sort(cells[4:6].sum(axis=(0, 2))))


def check_windows(url: str, loads: np.ndarray) -> None:
    with Client(url, timeout_s=60.0) as client:
        found = client.window("loads")
    assert np.allclose(found.count, loads, atol=0.01)
    assert np.isnan(found.lower).all()
    assert (found.place == np.arange(1, 6)).all()
    assert found.sorted
    pandas, polars = found.to_pandas(), found.to_polars()
    assert pandas["count"].tolist() == polars["count"].to_list() == found.count.tolist()

    def said(*arguments: str) -> list[str]:
        done = CliRunner().invoke(main, ["query", *arguments, "--url", url])
        assert done.exit_code in (0, 2)
        return done.output.splitlines()

    assert said("loads", "--histogram", "--format", "csv")[5].split(",")[::8] == ["5", str(loads.sum())]
    assert "unknown" in said("loads", "--histogram")[2]
    last = ["windows", "--histogram", "--key", "UA", "--end", "2013-01-01T04:00:00Z"]
    assert len(said(*last, "--quantile", "0.5", "--quantile", "0.9", "--format", "csv")) == 3
    assert said("loads", "--histogram", "--start", "2013-01-01T04:00:00Z")[0].endswith("leave both out")
    assert "one of them" in said("loads", "--histogram", "--cdf")[0]


def cut_and_whole() -> httpx.MockTransport:
    """Return a service whose first answer ends within an event; the second has it whole, and another."""
    answers = iter(
        [
            f"event: release\nid: 6\ndata: {row(6)}\n",
            "".join(f"event: release\nid: {seq}\ndata: {row(seq)}\n\n" for seq in (6, 7)),
        ]
    )
    return httpx.MockTransport(lambda request: httpx.Response(200, text=next(answers)))


def test_a_connection_cut_inside_an_event_is_resumed() -> None:
    async def run() -> list[int]:
        async with AsyncClient("http://x", transport=cut_and_whole()) as client:
            found = client.follow("departures", 5)
            return [(await anext(found)).seq for _ in range(2)]

    assert asyncio.run(run()) == [6, 7]
    with Client("http://x", transport=cut_and_whole()) as client:
        assert [one.seq for one in itertools.islice(client.follow("departures", 5), 2)] == [6, 7]
