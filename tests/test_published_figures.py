"""Figures in the documentation equal those in the cited result files."""

from __future__ import annotations

import json
import pkgutil
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import benchmarks
from benchmarks.figures import FIGURES, MOST_COMMITS, PAGES, stamped, stamps
from stream_app.config import load
from stream_app.config.plans import planned
from stream_app.shell.planning.answers import count_of_span, half_width
from tests.small_benchmarks import SHARED, SMALL

REPOSITORY = Path(__file__).parents[1]
HORIZONS = (1_024, 65_536, 1_048_576)
ROWS = {
    "flat": "flat",
    "binary tree (Chan et al.)": "binary (Chan)",
    "binary tree, refined online (Honaker)": "Honaker online",
    "plain k-ary tree, best k": "plain k-ary",
    "k-ary with subtraction (Andersson et al.), best k": "k-ary with subtraction",
    "OpenDP's consistent b-ary tree, best k; not live": "OpenDP's b-ary tree, offline",
    "**causal**": "causal",
    "**anticipating**": "anticipating",
}


def results(name: str) -> Any:
    return json.loads((REPOSITORY / "benchmarks" / "results" / f"{name}.json").read_text())


def rounded(number: float, places: int) -> str:
    """Return the text of a rounded number. A half is rounded up."""
    return f"{Decimal(repr(number)).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP):,}"


def percent(part: float) -> str:
    return f"{rounded(float(Decimal(repr(part)) * 100), 2)} %"


def two_releases(parts: dict[str, float], of: str) -> str:
    return "; ".join(percent(parts[f"{release}, {of}, 0.99"]) for release in ("causal", "anticipating"))


def of_the_api() -> list[str]:
    found = results("api")
    return [
        f"a count takes {rounded(found['median_ms'], 1)} ms in the median",
        f"and {rounded(found['p99_ms'], 1)} ms at the 99th percentile",
        f"the API took {rounded(found['processors_of_the_api'], 2)} of one processor",
        f"{found['followers_that_saw_every_release_once']} followers of a stream",
        f"{found['questions_per_s']} range counts a second, on {found['processors']} processors",
    ]


def of_the_pages() -> list[str]:
    pages = results("page")["pages"]
    causal, anticipating = (
        pages[f"{kind}, many"]["first_chart_s"] / pages[f"{kind}, few"]["first_chart_s"]
        for kind in ("causal", "anticipating")
    )
    paints = [page["first_paint_s"] for page in pages.values()]
    worst = max(page["first_paint_worst_s"] for page in pages.values())
    return [
        f"{rounded(causal, 2)} times (causal) and {rounded(anticipating, 2)} times (anticipating) as long",
        f"after {rounded(min(paints), 2)} to {rounded(max(paints), 2)} s (medians of five)",
        f"{rounded(worst, 2)} s at the latest",
    ]


def of_alerts() -> list[str]:
    found = results("alerts")
    axes = found["at_the_threshold_over_keys_and_values"]["holds_wrongly"]
    plain, ahead = found["at_the_threshold"], found["at_the_threshold_anticipating"]
    past = found["at_the_threshold_against_the_past"]["holds_wrongly"]
    first, again = found["cost_over_keys"]["first_cpu_s"], found["cost_over_keys"]["median_cpu_s"]
    return [
        f"| events in a window | {percent(plain['holds_wrongly']['0.99'])} |",
        f"| the same of anticipating streams | {percent(ahead['holds_wrongly']['0.99'])} |",
        f"| {percent(axes['one key, 0.99'])}; {percent(axes['two keys, 0.99'])} |",
        *(f"| {two_releases(past, epochs)} |" for epochs in ("one epoch", "two epochs")),
        f"| a key against its past | {percent(axes['a key against its past, 0.99'])} |",
        f"| {percent(axes['median, 0.99'])}; {percent(axes['share of a key, 0.99'])} |",
        f"take {rounded(found['cost']['median_cpu_s'], 1)} s of processor time per release over 100 windows",
        f"{rounded(again, 1)} to {rounded(first, 1)} s over 100 keys",
    ]


def of_topics() -> list[str]:
    ratios = results("ingest")
    share = rounded(100 / ratios["cpu_ratios"]["getmany_to_worker"], 0)
    faster = int(Decimal(ratios["speed_ratios"]["worker_to_faust_agent"]).quantize(Decimal("1E1")))
    return [
        f"takes {share} % of the processor time of reading it with bare aiokafka",
        f"is about {faster} times as fast as a stock Faust agent",
    ]


def of_readme() -> list[str]:
    """Return the facts in README's table, as the results say them."""
    predicted = {(row["horizon"], row["mechanism"]): row["predicted"] for row in results("accuracy")["rows"]}
    ours, best = (rounded(predicted[65_536, name], 1) for name in ("anticipating", "k-ary with subtraction"))
    coverage, first, api = results("coverage"), results("first_minutes"), results("api")
    held = [row["measured"] for row in coverage["rows"]]
    least, most = (rounded(100 * share, 1) for share in (min(held), max(held)))
    demo, _install, lesson = (rounded(seconds, 0) for seconds in list(first["seconds"].values())[:3])
    median, p99 = (rounded(api[name], 1) for name in ("median_ms", "p99_ms"))
    return [
        *of_topics(),
        f"{ours}; the best published live tree has {best}",
        f"in {least} to {most} % of {coverage['runs']:,} runs",
        f"{median} ms in the median, {p99} ms at the 99th percentile",
        f"{demo} s from a fresh clone to the first answer",
        f"your own file in {lesson} s, once the service is installed ({first['date']})",
    ]


def of_wide_streams() -> list[str]:
    found = results("product")
    few, many = (
        max(found[f"{keys} keys, {kind}"]["total"] for kind in ("anticipating", "causal"))
        for keys in (10_000, 100_000)
    )
    slowest = {
        address: max(
            found[f"asking about 10000 keys, {kind}"][address]["slowest"]
            for kind in ("anticipating", "causal")
        )
        for address in ("keys", "query", "query_range")
    }
    return [
        f"10,000 keys {rounded(few, 2)} s",
        f"100,000 keys {rounded(many, 2)} s",
        f"`/keys` {rounded(slowest['keys'], 2)} s",
        f"`query` {rounded(slowest['query'], 2)} s",
        f"`query_range` with three points a key {rounded(slowest['query_range'], 2)} s",
    ]


def of_limits() -> list[str]:
    ingest, long, product = results("ingest")["contenders"]["worker"], results("long"), results("product")
    web = results("web_log")
    keys = next(run for run in results("many_keys")["runs"] if run["keys"] == 100_000)
    used, answers, pages = keys["processes"], keys["answers"], keys["pages"]
    peaks = ", ".join(str(used[role]["peak_mb"]) for role in ("worker", "api", "redis"))
    alone, many = (
        next(run for run in results("many")["streams"] if run["streams"] == number) for number in (1, 1_000)
    )
    panel, stream = (
        answers[name] for name in ("the panel of keys (/keys)", "the stream (/v1/streams/clicks)")
    )
    return [
        f"until all have released | {many['open_s']:.1f} s, {many['all_released_s']:.1f} s |",
        f"with 1,000 | {alone['rss_mb']} MB, {many['rss_mb']} MB |",
        f"everything included | {many['open_cpu_s']} s; {many['cpu_ms_per_closing']:.1f} ms |",
        f"one worker | {ingest['events_per_s']:,} |",
        f"per million events | {rounded(ingest['cpu_s_per_million'], 2)} s |",
        f"| {web['lines_per_cpu_s_of_worker']:,}; {web['lines_per_cpu_s']:,}; {web['worker_mb']} MB |",
        f"| {rounded(max(long[kind]['median_ms'] for kind in ('causal', 'anticipating')), 1)} ms |",
        f"100,000 keys | {rounded(product['100000 keys, anticipating']['total'], 2)} s |",
        f"worker, API, Redis | {peaks} MB |",
        f"until the first release | {used['worker']['cpu_s']:.1f} s |",
        f"an empty cache | {pages['overview']['kb']} kB, {pages['stream']['kb']:,} kB |",
        f"with an empty cache | {pages['stream']['paint_s']} s, {pages['stream']['s']:.2f} s |",
        f"the stream's own answer | {panel['kb']} kB, {stream['kb']:,} kB |",
    ]


@pytest.mark.parametrize(
    ("page", "figures"),
    [
        ("docs/readers.md", of_the_api),
        ("docs/readers.md", of_the_pages),
        ("docs/alerts.md", of_alerts),
        ("README.md", of_readme),
        ("docs/index.md", of_topics),
        ("docs/decisions/0009-product-axes.md", of_wide_streams),
        ("docs/limits.md", of_limits),
    ],
)
def test_figures_in_sentences_equal_the_results(page, figures):
    text = (REPOSITORY / page).read_text()
    assert [figure for figure in figures() if figure not in text] == []


@pytest.mark.parametrize("page", PAGES)
def test_each_figure_says_when_it_was_measured_and_whether_its_code_is_older(page: str) -> None:
    text = (REPOSITORY / page).read_text()
    assert stamped(page, text) == text, "run python -m benchmarks.figures --stamp, or measure anew"


def test_every_benchmark_has_a_small_form() -> None:
    modules = {one.name for one in pkgutil.iter_modules(benchmarks.__path__) if one.name != "__main__"}
    assert modules - SHARED == set(SMALL)


def test_each_figure_has_its_code_and_its_results() -> None:
    assert stamps().keys() == FIGURES.keys()
    for name, figure in FIGURES.items():
        assert [path for path in figure.paths if not (REPOSITORY / path).is_dir()] == [], name
        assert [one for one in figure.results if not results(one)] == [], name
    said = [stamp.date for stamp in stamps().values()]
    texts = [(REPOSITORY / page).read_text() for page in PAGES]
    assert [date for date in said if not any(f" of {date}" in text for text in texts)] == []


def test_figure_of_older_code_is_refused_until_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    stamp = stamps()["bench-api"]
    row = f"| 1.7 ms | `make bench-api`, {stamp.commit} of {stamp.date} |"
    old = f"| 1.7 ms | `make bench-api`, {stamp.commit} of {stamp.date}, older code |"
    for since, right, wrong in ((MOST_COMMITS + 1, old, row), (MOST_COMMITS, row, old)):
        monkeypatch.setattr("benchmarks.figures.commits_since", lambda _name, _stamp, n=since: n)
        assert stamped("README.md", right) == right
        assert stamped("README.md", wrong) == right
        assert stamped("README.md", "| 1.7 ms | `make bench-api` |") == right


def test_errors_of_the_demo_in_sentences_are_those_of_its_plan():
    (departures, *_) = load(REPOSITORY / "examples" / "flights.yaml", {}).streams
    strategy, bins = planned(departures), departures.declared.time.epoch_bins
    year = half_width(count_of_span(strategy, (0, bins)))
    demo = (REPOSITORY / "docs" / "tutorial" / "demo.md").read_text()
    assert f"At the end of the year, at epsilon 1, the running count is within {year:.0f} of" in demo
    middle = np.median([half_width(count_of_span(strategy, (0, bin))) for bin in range(1, bins, bins // 100)])
    faq = (REPOSITORY / "docs" / "faq.md").read_text()
    assert f"of a year of hours, in its median hour, is within {middle:.0f} events of" in faq


def test_table_of_approximate_errors_equals_the_results():
    text = (REPOSITORY / "docs" / "accuracy.md").read_text()
    for row in results("approximate")["errors"]:
        stated, measured, error, root, ahead, causal = (
            f"{row[name]:,.1f}"
            for name in (
                *("stated", "measured", "measured_standard_error"),
                *("square_root", "pure_anticipating", "pure_causal"),
            )
        )
        covered = f"{100 * row['coverage_of_95']:.1f} %"
        cells = [stated, f"{measured} ± {error}", root, ahead, causal, covered]
        assert f"| 2^{row['bits']} | {row['keys']} | {' | '.join(cells)} |" in text


def test_table_of_errors_equals_the_results():
    rows = {(row["horizon"], row["mechanism"]): row for row in results("accuracy")["rows"]}
    text = (REPOSITORY / "docs" / "accuracy.md").read_text()
    for title, mechanism in ROWS.items():
        cells = []
        for row in (rows[horizon, mechanism] for horizon in HORIZONS):
            predicted, measured, error = (
                rounded(row[name], 0 if row["predicted"] > 10_000 else 1)
                for name in ("predicted", "measured", "standard_error")
            )
            cells.append(f"**{predicted}**" if title.startswith("**") else predicted)
            cells.append(f"{measured} ± {error}")
        assert f"| {title} | {' | '.join(cells)} |" in text


def test_table_of_the_streaming_benchmark_equals_the_results():
    text = (REPOSITORY / "docs" / "explanation" / "comparison.md").read_text()
    for row in results("sqlp").values():
        names = ("keys", "l_inf", "l_2", "processor_seconds")
        keys, largest, l_2, seconds = (f"{row[name]['mean']:,.0f}" for name in names)
        millions = f"{row['l_1']['mean'] / 1e6:.2f} M"
        seeds = len(row["runs"])
        who = f"mean of {seeds} seeds" if seeds > 1 else "one seed"
        cells = [f"**{cell}**" for cell in (keys, largest, millions, l_2, f"{seconds} s")]
        assert f"| **ours**, {who} | {' | '.join(cells)} |" in text


def test_table_of_names_found_live_equals_the_results():
    text = (REPOSITORY / "docs" / "explanation" / "comparison.md").read_text()
    rows, epsilons = results("batch_names"), ("1/2", "3/2")
    batch = [rows[f"batch, epsilon {epsilon}"]["mass"] for epsilon in epsilons]
    assert f"| batch, once | {batch[0]:.1%} | {batch[1]:.1%} |".replace("%", " %") in text
    for decisions in (1, 24, 720):
        live = [rows[f"{decisions} decisions, epsilon {epsilon}"]["mass"] for epsilon in epsilons]
        cells = [f"{one:.1%} ({one / of:.1%} of it)" for one, of in zip(live, batch, strict=True)]
        plural = "s" if decisions > 1 else ""
        assert f"| live, {decisions} decision{plural} | {' | '.join(cells)} |".replace("%", " %") in text
