"""Sums and means on the API, in its formats, and among the metrics (``tests/world`` recounts them)."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np
import pyarrow
import pyarrow.ipc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from stream_app.core.answers.answered import QueryError
from stream_app.core.answers.sums import mean_over, means_over, sum_of
from stream_app.core.kinds.tables import Span
from tests.stream_app.declared import FIRST_BIN
from tests.world import World
from tests.world.features import FEATURES, Recount, drawn, total_of
from tests.world.recounts import counting, played

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
    ranges = view.ends_of("running", range(*view.span))
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
