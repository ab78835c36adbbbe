"""Answers on every surface: distributions, sums and means, exact counts, approximate counts.

``tests/world`` recounts the values.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import astuple
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow
import pyarrow.ipc
import pytest
from msgspec import structs
from prometheus_client.parser import text_string_to_metric_families

from dphist.caps import Caps
from dphist.toeplitz import plan_toeplitz
from stream_app.api.answers.streams import detail, summary
from stream_app.api.overview import overview_of
from stream_app.core.answers.answered import QueryError
from stream_app.core.answers.steps import point_ranges
from stream_app.core.answers.sums import mean_over, means_over, sum_of
from stream_app.core.counting.keys import KeyList
from stream_app.core.kinds.tables import PUBLISHED, Span
from stream_app.core.kinds.toeplitz import Toeplitz
from stream_app.core.ledger import statement
from stream_app.core.strategy import Strategy
from tests.stream_app import product_stream
from tests.stream_app.declared import BIN_US, FIRST_BIN, NO_NOISE, strategy_of
from tests.world import World
from tests.world.features import BUCKETS, FEATURES, Counted, Recount, drawn, total_of
from tests.world.recounts import counting, played
from tests.world.settings import EPOCH_BINS

pytestmark = pytest.mark.slow

DELAYS_BINS = 6
NAME = "keys-and-values-and-total"


@pytest.mark.parametrize("release", ["causal", "anticipating"])
def test_distributions_over_http(release: str) -> None:
    start, end = ((FIRST_BIN + edge) * BIN_US // 10**6 for edge in (2, 5))
    span = f"start={start}&end={end}"
    refusals = [
        ("quantile", 422, "q"),
        ("quantile?q=1", 400, "q: every quantile"),
        ("cdf?key=ZZ", 400, "not on the public list"),
        ("series?key=FR&view=first_published", 400, "view")
        if release == "causal"
        else ("nodes?epoch=0", 400, "running counts only"),
    ]
    with counting({NAME: FEATURES[NAME]}, release) as world:
        [(_, feature, recount)] = played(
            world, drawn(9, DELAYS_BINS, 90), DELAYS_BINS, {NAME: FEATURES[NAME]}
        )
        found = world.json(f"cdf?key=FR&{span}")
        counts = _by_bucket(recount.within(2, 5, "FR")).cumsum()
        assert found["consistent"] == counts.tolist()
        assert found["upto"] == [-5 + 5 * bucket for bucket in range(BUCKETS)]
        assert np.allclose(found["value"], counts, atol=0.05)
        assert np.allclose(np.subtract(found["upper"], found["lower"]), 0, atol=0.1)
        whole = _by_bucket(recount.within(2, 5)).cumsum()
        for answer in world.json(f"quantile?q=0.5&q=0.95&{span}")["quantiles"]:
            bucket = int(np.argmax(whole >= answer["q"] * whole[-1]))
            assert -10 + 5 * bucket <= answer["value"] <= -5 + 5 * bucket
            low, high = answer["interval"]
            assert low <= -10 + 5 * bucket < -5 + 5 * bucket <= high <= low + 10
        assert world.json(f"count?key=FR&{span}")["value"] == pytest.approx(int(counts[-1]), abs=0.05)
        for path, status, words in refusals:
            [refused] = world.get(path)
            assert refused.status_code == status
            assert words in refused.json()["error"]
        axes = world.json("")["axes"]
        assert (axes["keys"], axes["first_keys"]) == (len(feature.keys), [*feature.keys])
        columns = sum(group["keys"] * group["nodes"] for group in axes["columns"])
        if release == "causal":
            assert columns == len(world.json("nodes?epoch=0")["values"][0])
        else:
            assert columns == world.strategy(NAME).kind.tables[PUBLISHED]


def _by_bucket(counted: list[Counted]) -> np.ndarray:
    numbers = Counter(one.bucket for one in counted)
    return np.array([numbers[bucket] for bucket in range(BUCKETS)])


BINS = 9  # an epoch and a half
WORDS = "of cart.amount, each clamped to -20 to 500 and rounded to 0.01"


def summing(name: str = "sums-by-key", epsilon: str = "1") -> tuple[World, Recount]:
    """Return a world that has counted drawn visits, and their recount."""
    features = {name: FEATURES[name]}
    world = counting(features, "causal", epsilon)
    [(_, _, recount)] = played(world, drawn(8, BINS, per_bin=40), BINS, features)
    return world, recount


def test_api_answers_sums_and_means() -> None:
    world, recount = summing()
    with world:
        paths = ["sum", "mean", "sum?key=DE", "mean?key=DE&confidence=0.999999", "sum?key=ES", ""]
        summed, mean, of_key, mean_of_key, unknown, detail = world.get(*paths)
    amounts = {"field": "cart.amount", "min": -20, "max": 500, "unit": 0.01}
    for answer in (summed, mean, of_key, mean_of_key):
        assert answer.status_code == 200, answer.text
        assert answer.json()["amounts"] == amounts
    for answer, of in ((summed, "sum"), (of_key, "sum"), (mean, "mean")):
        assert (answer.json()["counted"], answer.json()["meaning"]) == (f"{of} {WORDS}", f"The {of} {WORDS}.")
        assert f"for the {of} of the clamped and rounded amounts" in answer.json()["intervals"]
    feature = FEATURES["sums-by-key"]
    truth = float(total_of(recount.counted, feature))
    assert abs(summed.json()["value"] - truth) < 12 * summed.json()["stderr"]
    german = recount.within(0, BINS, "DE")
    low, high = mean_of_key.json()["interval"]
    assert -20 <= low <= float(total_of(german, feature)) / len(german) <= high <= 500
    assert unknown.status_code in (400, 404, 422)
    assert "is not on the public list" in unknown.text
    assert detail.json()["sum"] == amounts


@pytest.mark.parametrize("name", ["sums-by-key", "sums-by-key-and-total"])
def test_metrics_are_the_answers_of_the_api(name: str) -> None:
    world, _ = summing(name)
    with world:
        view, text = world.view(), world.get("/metrics")[0].text
    found = {
        (line.name.removeprefix("private_counts_"), line.labels.get("key")): line.value
        for family in text_string_to_metric_families(text)
        for line in family.samples
    }
    for key in (None, "FR", "DE", "other"):
        prefix = "sum_running" if key is None else "key_sum_running"
        summed = sum_of(view, view.span, key)
        interval = summed.interval(0.95)
        parts = {
            "": summed.value,
            "_stderr": summed.stderr,
            "_lower": interval.lower,
            "_upper": interval.upper,
        }
        for part, value in parts.items():
            assert found[f"{prefix}{part}", key] == pytest.approx(float(value), rel=1e-9)
    names = ("mean_running", "mean_running_lower", "mean_running_upper")
    means = [found[mean, None] for mean in names]
    assert means == pytest.approx(list(astuple(mean_over(view, view.span))), rel=1e-12)
    events = float(np.sum(view.epochs[-1].estimate(Span(0, 3), "unbiased").value))
    assert found["sum_epoch_filled", None] == pytest.approx(max(events, 0) * 52_000 / 2**44, rel=1e-9)
    assert f"Stream {name}: The sum {WORDS}" in text


def test_api_answers_series_of_sums_and_means_in_every_format() -> None:
    world, _ = summing()
    with world:
        answers = world.get(
            *("sum/series?kind=bin", "mean/series?kind=bin&points=3", "sum/series?format=csv"),
            *("mean/series?format=arrow", "sum/series?view=consistent", "sum/series?view=first_published"),
            *("mean/series?kind=window", "mean/series?view=unbiased"),
        )
    sums, means, csv, arrow, *refused = answers
    assert [answer.status_code for answer in answers[:4]] == [200] * 4
    found, found_means = sums.json(), means.json()
    assert len(found["value"]) == len(found["stderr"]) == BINS
    assert found["lower"][0] < found["value"][0] < found["upper"][0]
    assert (found["counted"], found["meaning"]) == (f"sum {WORDS}", f"The sum {WORDS}.")
    assert (found_means["counted"], found_means["meaning"]) == (f"mean {WORDS}", f"The mean {WORDS}.")
    assert (len(found_means["value"]), found_means["points_available"]) == (3, BINS)
    assert "evenly spaced" in found_means["note"]
    assert csv.text.splitlines()[0] == "start,end,value,stderr,lower,upper,private,meaning"
    with pyarrow.ipc.open_stream(arrow.content) as reader:
        table = reader.read_all()
    assert table.column_names == ["start", "end", "value", "lower", "upper"]
    assert b"cart.amount" in table.schema.metadata[b"meaning"]
    assert {answer.status_code for answer in refused} <= {400, 422}
    lines = [answer.json()["error"] for answer in refused]
    assert lines[0] == "view: sums are never made consistent; leave out view and method"
    assert lines[1] == "view: only the count is kept as first published; leave out view"
    assert "window: say how many bins" in lines[2]


def test_points_of_means_are_evenly_spaced_and_the_means_of_their_ranges() -> None:
    world, _ = summing()
    with world:
        view = world.view()
    ranges = point_ranges(view.binning, "running", view.span, 1, 1, view.span.start)
    means = means_over(view, "running", *ranges, "other", points=4)
    assert len(means.spans) == 4
    assert means.spans[-1] == view.span
    for span, mean in zip(means.spans, means.means, strict=True):
        expected = np.array(astuple(mean_over(view, span, "other")), np.float64)  # no value: NaN
        assert np.array(astuple(mean), np.float64) == pytest.approx(expected, rel=1e-6, nan_ok=True)


def test_rows_say_the_sum_that_was_the_answer_when_they_were_new() -> None:
    """Both laws are exact, and both values follow from the same released columns."""
    for name in ("sums", "sums-by-key-and-total"):
        with counting({name: FEATURES[name]}, "anticipating", "1") as world:
            arrivals = drawn(12, BINS)
            for bin in range(FIRST_BIN, FIRST_BIN + BINS):
                world.start()
                for instant in [instant for instant in sorted(arrivals) if bin <= instant < bin + 1]:
                    world.until(instant)
                    world.write(*arrivals[instant])
                world.until(bin + 1.35)
                world.end()
                view, said = world.view(), world.rows()[-1]["sum"]
                newest = next(epoch.span for epoch in reversed(view.epochs) if epoch.bins)
                summed = sum_of(view, newest)
                interval = summed.interval(0.95)
                assert said["estimate"] == pytest.approx(summed.value, abs=0.001)
                assert said["variance"] == pytest.approx(summed.variance, rel=1e-6)
                assert said["interval"] == pytest.approx([interval.lower, interval.upper], abs=0.01)


def test_stream_without_a_sum_says_so_and_has_no_metric_of_sums() -> None:
    with counting({"keys": FEATURES["keys"]}, "causal") as world:
        world.run_until(FIRST_BIN + 1)
        view = world.view()
        assert "sum" not in world.get("/metrics")[0].text
        assert "sum" not in world.rows()[0]
    with pytest.raises(QueryError, match="this stream has no sum; configure sum"):
        sum_of(view, view.span)
    with pytest.raises(QueryError, match="this stream has no sum"):
        mean_over(view, view.span)


COUNTS = ("value", "counts", "lower", "upper", "interval", "estimate")
ADDRESSES = (
    *("", "count", "count?key=FR", "series?kind=bin", "series?kind=running&key=FR", "cdf?key=FR", "cdf"),
    *("series?kind=window&window=3", "series?kind=bin&view=first_published", "keys?step=1", "heat?step=2"),
    "preview?epsilon=1",
)


def counts_in(answer: Any, name: str = "") -> list[float]:
    """Return every count and end of an interval in an answer."""
    if isinstance(answer, dict):
        return [one for name, part in answer.items() for one in counts_in(part, name)]
    if isinstance(answer, list):
        return [one for part in answer for one in counts_in(part, name)]
    return [answer] if name in COUNTS and isinstance(answer, float) else []


@pytest.mark.parametrize("release", ["causal", "anticipating"])
@pytest.mark.parametrize("name", ["keys-and-values", "keys-and-values-and-total"])
def test_zero_width_intervals_hold_one_whole_number(name: str, release: str) -> None:
    with counting({name: FEATURES[name]}, release) as world:
        world.play(drawn(9, 9), FIRST_BIN + 9)
        for address, answer in zip(ADDRESSES, world.get(*ADDRESSES), strict=True):
            assert answer.status_code == 200, address
            found = counts_in(answer.json())
            assert found, address
            assert [count for count in found if count != round(count)] == [], address
        csv, metrics = world.get("series?kind=bin&key=FR&format=csv", "/metrics")
        assert {row.split(",")[2].partition(".")[2] for row in csv.text.splitlines()[1:]} == {"0"}
        running = [line for line in metrics.text.splitlines() if "running" in line and line[0] != "#"]
        assert len(running) > 4
        assert all(float(line.split()[-1]).is_integer() for line in running)
        assert all(count == round(count) for row in world.rows() for count in counts_in(row))


DELTA = Fraction(1, 10**6)


def approximate(epsilon: Fraction = NO_NOISE, *, keyed: bool = True) -> Strategy:
    """Return a strategy that counts users, by country if it is keyed."""
    keys = KeyList("country", product_stream.COUNTRIES, False, False) if keyed else None
    plain = strategy_of(keys=keys, max_events=1, count="users")
    privacy = structs.replace(plain.declared.privacy, epsilon=epsilon, delta=DELTA)
    width = len(product_stream.COUNTRIES) if keyed else 1
    design = plan_toeplitz(EPOCH_BINS, epsilon, DELTA, Caps(max_events=1), width=width)
    declared = structs.replace(plain.declared, privacy=privacy)
    return Strategy(plain.stream, declared, Toeplitz(design, keyed))


def test_each_epoch_is_entered_with_its_mu() -> None:
    with World(strategy := approximate(Fraction(1))) as world:
        world.run_until(FIRST_BIN + product_stream.BINS)
        ledger = world.ledger()
    assert {(entry.epsilon, entry.delta) for entry in ledger} == {("1", "1/1000000")}
    assert {Fraction(entry.mu or 0) for entry in ledger} == {strategy.kind.mu}
    # Three epochs of a user add up by their mu, to less than the sum of their epsilons.
    stated = statement(strategy.source, ledger)
    assert (stated.epsilon, stated.delta) == (Fraction(3), 3 * DELTA)
    assert 1 < stated.composed < 3


def test_range_is_a_difference_of_published_counts_that_never_change() -> None:
    shown = list[list[float]]()
    with World(approximate(Fraction(1))) as world:
        for stop in range(3, product_stream.BINS + 1, 3):
            world.run_until(FIRST_BIN + stop)
            view = world.view()
            shown.append(view.series("running", view.span).values.tolist())
    for before, after in pairwise(shown):
        assert after[: len(before)] == before
    running = [0.0, *shown[-1]]
    for start, stop in ((0, 3), (2, 5), (1, 14)):
        count = view.count(Span(FIRST_BIN + start, FIRST_BIN + stop))
        assert count.value == pytest.approx(running[stop] - running[start], abs=1e-9)


def test_every_description_of_a_stream_names_its_delta() -> None:
    with World(approximate(Fraction(1))) as world:
        world.run_until(FIRST_BIN + 3)
        view = world.view()
    assert summary(view).delta == detail(view, 1_000_000).delta == "1e-6"
    assert overview_of(view, {}, 1_000_000).delta == "1e-6"
    assert detail(view, 1_000_000).never_revised
    assert view.series("running", view.span).laws.draws().tolist() == [0.0] * 3


def test_noise_source_without_gaussian_noise_is_refused() -> None:
    class OnlyLaplace:
        private = True

    with pytest.raises(ValueError, match="OnlyLaplace draws no Gaussian noise"):
        approximate().kind.close(b"", np.zeros((1, 3), np.int64), OnlyLaplace(), None)  # type: ignore[arg-type]
