"""The Prometheus interface: samples at real times, exact values, PromQL's texts and patterns, refusals."""

from __future__ import annotations

import json
import math
import random
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_app.api.prometheus.patterns import parse_pattern
from stream_app.api.prometheus.promql import LONGEST_QUERY, PromQLError, Selector, parse, parse_selector
from tests.models.memory import MemoryStore
from tests.stream_app.api.client import EXACT, Api, api_at, with_api
from tests.stream_app.published import FIRST_BIN, Published
from tests.stream_app.published_axes import PublishedKeys

COUNTS = [3, 1, 4, 1, 5, 9, 2, 6]
START_S = FIRST_BIN * 3600
HOUR_S = 3600


async def ask(api: Api, path: str, **parameters: Any) -> Any:
    answer = await api.json(f"/api/v1/{path}", **parameters)
    assert answer["status"] == "success"
    return answer["data"]


async def refused(api: Api, path: str, **parameters: Any) -> str:
    status, body = await api.error(f"/api/v1/{path}", **parameters)
    assert (status, body["status"], body["errorType"]) == (400, "error", "bad_data")
    return str(body["error"])


@with_api(COUNTS, epsilon=EXACT)
async def test_samples_are_at_the_ends_of_bins(api: Api) -> None:
    data = await ask(
        api,
        "query_range",
        query='private_counts_running{stream="departures"}',
        start=START_S,
        end=START_S + 8 * HOUR_S,
        step="30m",
    )
    [series] = data["result"]
    assert series["metric"] == {
        "__name__": "private_counts_running",
        "stream": "departures",
        "private": "false",
    }
    expected = [[START_S + at * 1800, str(float(sum(COUNTS[: at // 2])))] for at in range(17) if at >= 2]
    assert series["values"] == expected
    bins = await ask(
        api,
        "query_range",
        query="private_counts_bin",
        start=START_S + HOUR_S,
        end=START_S + 8 * HOUR_S,
        step=HOUR_S,
    )
    assert [float(value) for _, value in bins["result"][0]["values"]] == COUNTS


@with_api(COUNTS)
async def test_sample_equals_the_count_of_the_api(api: Api) -> None:
    whole = await api.json("count")
    now = START_S + len(COUNTS) * HOUR_S
    data = await ask(api, "query", query='{stream="departures"}', time=now + 10)
    values = {one["metric"]["__name__"]: float(one["value"][1]) for one in data["result"]}
    assert values["private_counts_running"] == whole["value"]
    assert values["private_counts_running_stderr"] == whole["stderr"]
    assert [values[f"private_counts_running_{end}"] for end in ("lower", "upper")] == pytest.approx(
        whole["interval"], abs=1e-6
    )
    last = await api.json("series", kind="bin", start=now - HOUR_S)
    assert values["private_counts_bin"] == last["value"][0]
    # A value is shown for two bins, until the next one is due. Nothing is shown before the first bin's end.
    for at, found in (
        (now + 2 * HOUR_S - 1, 1),
        (now + 2 * HOUR_S, 0),
        (START_S + HOUR_S - 1, 0),
        (START_S + HOUR_S, 1),
    ):
        assert len((await ask(api, "query", query="private_counts_bin", time=at))["result"]) == found


SUM = "sum_over_time(private_counts_bin{}[{}])"


async def test_sum_over_time_has_the_numbers_of_the_series() -> None:
    """Each bin is in one step, also where epochs meet; each end of an interval is that of the sum."""
    stream = Published(MemoryStore(), epoch_bins=32)
    for epoch, counts in enumerate((range(32), range(18))):
        await stream.open(epoch, FIRST_BIN + 32 * epoch)
        await stream.close(counts)
    async with api_at(stream) as api:
        await _check_sums(api)


async def _check_sums(api: Api) -> None:
    steps = await api.json("series", kind="bin", step=6)
    whole = {"start": START_S + HOUR_S, "end": START_S + 55 * HOUR_S, "step": 6 * HOUR_S}
    for shift in (
        5 * HOUR_S,
        5 * HOUR_S + 1_000,
    ):  # a step may end inside a bin: its bins are those that ended
        asked = {**whole, "start": whole["start"] + shift}
        for part in ("value", "stderr", "lower", "upper"):
            name = "" if part == "value" else f"_{part}"
            [found] = (await ask(api, "query_range", query=SUM.format(name, "6h"), **asked))["result"]
            assert found["metric"] == {"stream": "departures", "private": "true"}
            times = [at - shift + 5 * HOUR_S for at, _ in found["values"]]
            assert times == steps["end"] == [START_S + (6 * step + 6) * HOUR_S for step in range(8)]
            assert [float(value) for _, value in found["values"]] == pytest.approx(steps[part], abs=1e-6)
    # At an instant it is of the last bins that are released.
    now = START_S + 51 * HOUR_S
    last = await api.json("count", start=now - 3 * HOUR_S, end=now - HOUR_S)
    [found] = (await ask(api, "query", query=SUM.format("", "2h0m0s"), time=now))["result"]
    assert float(found["value"][1]) == last["value"]
    # A range that begins before the stream does has no sum.
    assert (await ask(api, "query", query=SUM.format("", "3d"), time=now))["result"] == []


async def test_sum_over_time_of_many_keys_has_the_numbers_of_each_series() -> None:
    stream = PublishedKeys(MemoryStore(), epoch_bins=32, carriers=("AA", "B6", "UA"))
    await stream.fill(np.random.default_rng(2).poisson(20, (48, 3)))
    whole = {"start": START_S + 6 * HOUR_S, "end": START_S + 48 * HOUR_S, "step": "6h"}
    async with api_at(stream) as api:
        for part in ("value", "upper", "stderr"):
            name = "private_counts_key_bin" + ("" if part == "value" else f"_{part}")
            found = (await ask(api, "query_range", query=f"sum_over_time({name}[6h])", **whole))["result"]
            assert [one["metric"]["key"] for one in found] == ["AA", "B6", "UA"]
            for one in found:
                of_key = await api.json("series", kind="bin", step=6, key=one["metric"]["key"])
                assert [float(value) for _, value in one["values"]] == pytest.approx(of_key[part], abs=1e-6)


@with_api(COUNTS)
async def test_sum_over_time_says_what_does_not_add_up(api: Api) -> None:
    whole = {"start": START_S, "end": START_S + 8 * HOUR_S, "step": "1h"}
    for query, said in (
        (SUM.format("", "90m"), "5400 s are no whole number of the bins of departures, 1 hour"),
        (SUM.format("", "5m"), "in Grafana: Min step"),
        ("sum_over_time(private_counts_running[1h])", "private_counts_running does not add up over time"),
        ('sum_over_time({stream="departures"}[1h])', "does not add up over time"),
        (SUM.format("", "soon"), "sum_over_time: 'soon' is not a length of time"),
        ("sum_over_time(private_counts_bin)", "character 33"),
        ("private_counts_bin[1h]", "character 20"),
    ):
        assert said in await refused(api, "query_range", query=query, **whole)
    assert "is a sum, not a series" in await refused(api, "series", **{"match[]": SUM.format("", "1h")})


@with_api(COUNTS)
async def test_first_requests_of_grafana_are_answered(api: Api) -> None:
    """Grafana checks the health, and asks for build info, variables and labels, with GET and with POST."""
    assert (await ask(api, "query", query="1+1", time=5))["result"] == [5.0, "2.0"]
    posted = await api.client.post("/api/v1/query", data={"query": "1 + 1", "time": "5"})
    assert posted.json()["data"]["result"] == [5.0, "2.0"]
    assert (await ask(api, "status/buildinfo"))["version"]
    assert await ask(api, "label/stream/values") == ["departures"]
    match = {"match[]": 'private_counts_running{stream=~".+"}'}
    assert await ask(api, "label/stream/values", **match) == ["departures"]
    assert await ask(api, "labels", **match) == ["__name__", "private", "stream"]
    assert len(await ask(api, "label/__name__/values")) == 8
    assert [one["__name__"] for one in await ask(api, "series", **match)] == ["private_counts_running"]
    assert await ask(api, "series", **{"match[]": 'private_counts_running{stream!="departures"}'}) == []
    assert {one["type"] for [one] in (await ask(api, "metadata")).values()} == {"gauge"}
    assert "is not answered here" in (await api.error("/api/v1/rules"))[1]["error"]


@with_api(COUNTS)
async def test_refusals_name_what_where_and_remedy(api: Api) -> None:
    whole = {"start": START_S, "end": START_S + 8 * HOUR_S, "step": 60}
    line = await refused(api, "query_range", query="rate(private_counts_running[5m])", **whole)
    assert "character 5" in line
    assert "selectors" in line
    line = await refused(api, "query_range", query="private_counts_running", **whole | {"step": "2s"})
    assert "14,401 points a series; at most 11,000" in line
    assert "name a stream" in await refused(
        api, "query_range", query='{stream="departures"}', **whole | {"step": 4}
    )
    for parameters, word in (
        ({"query": "private_counts_bin", **whole, "step": "soon"}, "step"),
        ({"query": "private_counts_bin", **whole, "step": "0"}, "step"),
        ({"query": "private_counts_bin", **whole, "start": "then"}, "start"),
        ({"query": "private_counts_bin", **whole, "end": START_S - 1}, "end"),
        ({"query": "private_counts_bin"}, "start"),
        (whole, "query"),
    ):
        assert (await refused(api, "query_range", **parameters)).startswith(f"{word}: ")


@pytest.mark.parametrize(
    "query",
    [
        "",
        "{}",
        '{stream=~".*"}{',
        "sum(a)",
        "a + b",
        "a[5m]",
        "a offset 5m",
        'a{stream="b"',
        "a{stream=b}",
        "a{b}",
        "1 +",
        "é",
        'a{b=~"(x+x+)+y"}',
        'a{b=~"("}',
        "x" * 30_000,
    ],
)
def test_unsupported_promql_is_refused_in_one_line(query: str) -> None:
    with pytest.raises(PromQLError) as refusal:
        parse(query)
    assert "\n" not in str(refusal.value)


def test_matchers_follow_prometheus() -> None:
    def wants(query: str, **labels: str) -> bool:
        selector = parse(query)
        assert isinstance(selector, Selector)
        return selector.matches(labels)

    assert wants('a{s="x"}', __name__="a", s="x")
    assert not wants('a{s="x"}', __name__="b", s="x")
    assert wants('a{s=""}', __name__="a")  # a missing label is the empty text
    assert wants('a{s!="x"}', __name__="a")
    assert wants('{__name__=~"a|b",s=~"x.*"}', __name__="b", s="xy")
    assert not wants('a{s=~"x"}', __name__="a", s="xy")  # patterns are anchored
    assert wants("a{s!~'x'}", __name__="a", s="xy")
    assert wants('a{s="say \\"x\\"",}', __name__="a", s='say "x"')
    assert math.isclose(float(parse("-1e1 + 2.5 - +1")), -8.5)  # type: ignore[arg-type]


GRAFANA = json.loads(Path(__file__).with_name("grafana_escapes.json").read_text())  # by grafana_escapes.mjs
KEYS: list[str] = GRAFANA["keys"]
DEFAULT, SPECIAL = GRAFANA["modes"].values()
BUILDER = GRAFANA["builder"]


def selected(matcher: str) -> list[str]:
    selector = parse_selector(f'm{{stream="s",key{matcher}}}')
    return [key for key in KEYS if selector.matches({"__name__": "m", "stream": "s", "key": key})]


@pytest.mark.parametrize(
    ("escaped", "equal", "other", "quote", "unclear"),
    [
        (DEFAULT["one"], "=", "!=", '"', {'a"=b', 'key="v"'}),  # Grafana leaves quotes as they are
        (DEFAULT["one_of_many"], "=~", "!~", '"', {'a"=b', 'key="v"'}),
        (DEFAULT["one_of_many"], "=~", "!~", "'", set()),
        (SPECIAL["one"], "=", "!=", '"', {'key="v"'}),  # Grafana takes the key for a matcher
        (SPECIAL["one_of_many"], "=~", "!~", '"', set()),
        (BUILDER["exact"], "=", "!=", '"', set()),
        (BUILDER["pattern"], "=~", "!~", '"', set()),
        ([re.sub(r"[\\^$.*+?()[\]{}|]", r"\\\g<0>", key) for key in KEYS], "=~", "!~", "`", {"`tick`"}),
        ([re.escape(key) for key in KEYS], "=~", "!~", "`", {"`tick`"}),
        (KEYS, "=", "!=", "`", {"`tick`"}),
        ([json.dumps(key, ensure_ascii=False) for key in KEYS], "=", "!=", "", set()),
        (
            [json.dumps(key).replace("/", r"\u002f") for key in KEYS if max(key) < "\U00010000"],
            "=",
            "!=",
            "",
            set(),
        ),
        (["".join(f"\\U{ord(sign):08x}" for sign in key) for key in KEYS], "=", "!=", "'", set()),
        (["".join(f"\\x{byte:02X}" for byte in key.encode()) for key in KEYS], "=", "!=", '"', set()),
        (["".join(f"\\{byte:03o}" for byte in key.encode()) for key in KEYS], "=", "!=", '"', set()),
    ],
)
def test_each_escaped_key_selects_its_series_only(
    escaped: list[str], equal: str, other: str, quote: str, unclear: set[str]
) -> None:
    keys = KEYS if len(escaped) == len(KEYS) else [key for key in KEYS if max(key) < "\U00010000"]
    wrong = {
        key
        for key, text in zip(keys, escaped, strict=True)
        if key not in unclear
        and (
            selected(f"{equal}{quote}{text}{quote}") != [key]
            or selected(f"{other}{quote}{text}{quote}") != [one for one in KEYS if one != key]
        )
    }
    assert not wrong


@pytest.mark.parametrize(("all_keys", "quote"), [(DEFAULT["all"], "'"), (SPECIAL["all"], '"')])
def test_all_keys_of_a_variable_are_selected_together(all_keys: str, quote: str) -> None:
    assert selected(f"=~{quote}{all_keys}{quote}") == KEYS
    assert selected(f"!~{quote}{all_keys}{quote}") == []


def test_patterns_match_as_a_backtracking_engine_does() -> None:
    rng = random.Random(20)

    def pattern(depth: int = 0) -> str:
        inner = [f"({pattern(depth + 1)})"] if depth < 2 else []
        parts = ["a", "b", r"\.", ".", ".*", ".+", "{", r"\|", "", "é", *inner]
        return "".join(rng.choice([*parts, *parts, "|"]) for _ in range(rng.randint(0, 5)))

    labels = ["".join(rng.choice("ab.|é\n{") for _ in range(rng.randint(0, 6))) for _ in range(40)]
    matched = 0
    for _ in range(400):
        text = pattern()
        ours, theirs = parse_pattern(text), re.compile(text.replace("{", r"\{"), re.DOTALL)
        for label in labels:
            assert ours.matches(label) == (theirs.fullmatch(label) is not None), (text, label)
            matched += ours.matches(label)
    assert matched > 500


@pytest.mark.parametrize(
    ("matcher", "words"),
    [
        (r'=~"/search?q"', r"'h?' is not understood"),
        (r'=~"C++"', r"'C+' is not understood"),
        ('=~"*"', "'*' is not understood"),
        ('=~"a{2}"', "'{2' is not understood"),
        ('=~"a{2,}"', "'{2' is not understood"),
        ('=~"[a-z]"', "'[a' is not understood"),
        ('=~"^a$"', "'^a' is not understood"),
        ('=~"(?i)a"', "'(?' is not understood"),
        (r'=~"\\d"', r"'\\d' is not understood"),
        ('=~"\\\\"', "is not understood"),
        ('=~"(a"', "a parenthesis is not closed"),
        ('=~"a)"', "a parenthesis is closed and not opened"),
        ('=~"(a|b)*"', "')*' is not understood"),
        ('=~"' + ".x" * 65 + '"', "more than 64 dots"),
        ('=~"' + "(a)" * 17 + '"', "more than 16 groups"),
        ('=~"' + "(a|b)" * 16 + '"', "more than 100,000 characters"),
        ('=~"' + "(a|b)" * 3 + "x" * 15_000 + '"', "more than 100,000 characters"),
        ('=~"' + "(a|b)" * 11 + ".x" * 64 + '"', "more than 64 dots"),
        ('=~"' + ".x" * 40 + '", b=~"' + ".x" * 40 + '"', "more than 64 dots"),
        (",".join(['=~"' + "(a|b)" * 11 + '"'] + ['b=~"' + "(a|b)" * 11 + '"'] * 100), "more than 100,000"),
        ('=~"' + "(.*|b)" * 8 + '"', "more than 64 dots"),
        (r'="a\.b"', "two backslashes"),
        (r'="a\q"', "two backslashes"),
        (r'="a\u12"', "two backslashes"),
        (r'="a\ud83d\ude00"', "two backslashes"),
        (r'="a\U00110000"', "two backslashes"),
        (r'="a\777"', "two backslashes"),
        (r'''="it\'s"''', "two backslashes"),
        ('="a" b="c"', "'b' at character 23"),
        ('="a', "'\"' at character"),
        ("=" + "a" * 9_000, f"'{'a' * 40}' at character"),
        ('="' + "a" * LONGEST_QUERY + '"', f"longer than {LONGEST_QUERY} characters"),
    ],
)
def test_unclear_texts_and_patterns_are_refused(matcher: str, words: str) -> None:
    with pytest.raises(PromQLError) as refusal:
        parse_selector(f'm{{stream="s", key{matcher}}}')
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize(
    "pattern",
    [
        ".*a" * 60 + "b",
        "(.*a|.*aa|.*aaa)" * 2 + "b",
        ".+" * 60 + "b",
        "(.|.)" * 3 + ".*b",
        "|".join(["a" * 9] * 1_900),
        "|".join(map("a".__mul__, range(190))),
        r"\." * 9_000,
        "(" * 16 + "a" + ")" * 16,
        "a|" * 9_000,
    ],
)
def test_work_of_a_pattern_is_bounded(pattern: str) -> None:
    began = time.process_time()
    found = parse_pattern(pattern)
    for _ in range(20):
        assert not found.matches("a" * 200 + "c")
    assert time.process_time() - began < 0.5
