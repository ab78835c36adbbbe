"""Groups of keys equal a recount in every answer that takes keys, and single keys answer as before."""

from __future__ import annotations

import json
from typing import Any

import httpx
import numpy as np
import pytest
from click.testing import CliRunner

from stream_app.api import replies
from stream_app.api.admission.work import QUICK_US
from stream_app.api.answers import counts
from stream_app.api.schemas import CountQuery
from stream_app.client import Client
from stream_app.core.answers.asked_keys import MOST_NAMES
from stream_app.shell.commands import main
from tests.stream_app.api.test_axes_surface import BINS, LABELS, Counted, answer, counted, seconds
from tests.stream_app.declared import STREAM
from tests.world.counted import counted as counted_visits
from tests.world.features import BUCKETS, FEATURES, total_of

__all__ = ["counted"]  # the fixture: a stream without noise, and its exact counts

PATH = f"/v1/streams/{STREAM}"
GROUP = ["FR", "other"]
PLACES = [LABELS.index(key) for key in GROUP]
EVENTS = "Counts events with a number in flight.delay."
WORDS = f"{EVENTS} These numbers are of 2 keys together: FR, other."


def names(found: dict[str, Any]) -> tuple[Any, ...]:
    return found["key"], found["keys"], found["meaning"]


def test_counts_and_series_of_a_group_equal_the_recount(counted: Counted) -> None:
    one, table = counted
    truth = table[:, PLACES].sum(axis=(1, 2))
    found = answer(one, f"{PATH}/count", key=GROUP)
    assert found["value"] == pytest.approx(truth.sum(), abs=0.01)
    assert found["interval"] == pytest.approx([truth.sum()] * 2, abs=0.01)
    assert names(found) == ("FR, other", GROUP, WORDS)
    series = answer(one, f"{PATH}/series", key=GROUP, kind="bin")
    assert np.allclose(series["value"], truth, atol=0.01)
    assert names(series) == ("FR, other", GROUP, WORDS)
    whole = answer(one, f"{PATH}/series", key=GROUP, view="consistent")
    assert whole["value"] == truth.cumsum().tolist()
    but = answer(one, f"{PATH}/count", not_key=["DE"])
    assert but["value"] == pytest.approx(truth.sum(), abs=0.01)
    assert (but["key"], but["not_keys"], "keys" in but) == ("all but DE", ["DE"], False)
    assert but["meaning"].endswith("of 2 keys together: all but DE.")
    part = answer(one, f"{PATH}/preview", key=GROUP, epsilon=1)
    assert np.allclose(part["value"], truth, atol=0.01)
    assert part["meaning"] == WORDS


def test_distributions_of_a_group_equal_the_recount(counted: Counted) -> None:
    one, table = counted
    truth = table[:, PLACES].sum(axis=(0, 1)).cumsum()
    cdf = answer(one, f"{PATH}/cdf", key=GROUP)
    assert cdf["consistent"] == truth.tolist()
    assert names(cdf) == ("FR, other", GROUP, WORDS)
    found = answer(one, f"{PATH}/quantile", key=GROUP, q=0.5)
    assert names(found) == ("FR, other", GROUP, WORDS)
    [slices] = answer(one, f"{PATH}/quantiles", key=GROUP, q=0.5, step=BINS)["quantiles"]
    assert slices["value"] == [found["quantiles"][0]["value"]]
    growing = answer(one, f"{PATH}/cdfs", key=GROUP, step=BINS)
    assert growing["counts"] == [truth.tolist()]
    heat = answer(one, f"{PATH}/heat", key=GROUP, step=BINS, rows=BUCKETS)
    assert np.allclose(heat["counts"], np.diff(truth, prepend=0)[np.newaxis], atol=0.01)
    assert names(growing) == names(heat) == ("FR, other", GROUP, WORDS)


def test_lists_of_keys_show_the_named_ones_only(counted: Counted) -> None:
    one, _ = counted
    found = answer(one, f"{PATH}/keys", key=GROUP, step=BINS)
    assert sorted(row["key"] for row in found["keys"]) == sorted(GROUP)
    assert found["keys_available"] == 2


@pytest.mark.parametrize("what", ["count", "series", "cdf", "quantile"])
def test_answer_about_one_key_has_no_field_of_groups(what: str, counted: Counted) -> None:
    one, _ = counted
    for key in ("FR", None):
        levels = {"q": 0.5} if what == "quantile" else {}
        found = answer(one, f"{PATH}/{what}", **({"key": key} if key else {}), **levels)
        assert found["key"] == key
        assert not {"keys", "not_keys"} & set(found)
        assert found["meaning"] == EVENTS


def test_names_that_make_no_group_are_refused_in_one_line(counted: Counted) -> None:
    one, _ = counted
    for keys, status, words in (
        ({"key": ["FR", "ZZ"]}, 400, "key: 'ZZ' is not on the public list; known are FR, DE, other"),
        ({"key": ["FR", "FR"]}, 400, "key: 'FR' is named twice; an event is counted once, so take one out"),
        ({"not_key": "ZZ"}, 400, "not_key: 'ZZ' is not on the public list"),
        ({"not_key": LABELS}, 400, "not_key: every key is left out; name fewer of them"),
        ({"key": "FR", "not_key": "DE"}, 400, "not_key: leave key out"),
        ({"key": ["FR"] * (MOST_NAMES + 1)}, 422, "at most 1000 items"),
    ):
        for path in ("count", "series", "keys", "cdf"):
            found, body = answer(one, f"{PATH}/{path}", **keys)
            assert (found, "\n" in body["error"]) == (status, False)
            assert words in body["error"]
            assert len(body["error"]) < 400


def test_groups_are_computed_in_the_process_for_long_questions(
    counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group of 1,000 names takes its turn like every long question; a single key is answered at once."""
    one, _ = counted
    asked: list[float] = []
    own = replies._work

    def noted(request: Any, us: float, replica: Any) -> Any:
        asked.append(us)
        return own(request, us, replica)

    monkeypatch.setattr(replies, "_work", noted)
    for keys in ({"key": "FR"}, {"key": GROUP}, {"not_key": "FR"}):
        answer(one, f"{PATH}/count", **keys)
    assert [us > QUICK_US for us in asked] == [False, True, True]


def test_sums_and_means_of_a_group_equal_the_recount() -> None:
    sales = FEATURES["sums-by-key-and-total"]
    with counted_visits(sales, "anticipating", BINS) as (one, recount):
        own = [sale for key in ("FR", "DE") for sale in recount.within(0, BINS, key)]
        total, mean = float(total_of(own, sales)), float(total_of(own, sales) / len(own))
        found = answer(one, f"{PATH}/sum", key=["FR", "DE"])
        assert found["value"] == pytest.approx(total, abs=0.01)
        assert names(found)[:2] == ("FR, DE", ["FR", "DE"])
        found = answer(one, f"{PATH}/mean", key=["FR", "DE"])
        assert found["value"] == pytest.approx(mean, abs=1e-3)
        assert found["interval"] == pytest.approx([mean] * 2, abs=1e-3)
        assert found["meaning"].endswith("of 2 keys together: FR, DE.")


def test_client_and_terminal_ask_for_groups(counted: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    one, table = counted
    truth = table[:, PLACES].sum()
    view = one.view()
    seen: list[tuple[str, list[str]]] = []

    def serve(request: httpx.Request) -> httpx.Response:
        seen.extend((name, request.url.params.get_list(name)) for name in ("key", "not_key"))
        asked: dict[str, Any] = {name: request.url.params.get_list(name) for name in ("key", "not_key")}
        return httpx.Response(200, json=counts.count(view, CountQuery(**asked)).model_dump(mode="json"))

    with Client("http://service", transport=httpx.MockTransport(serve)) as client:
        assert client.count(STREAM, key=GROUP).value == pytest.approx(truth, abs=0.01)
        assert client.count(STREAM, key=tuple(GROUP)).meaning == WORDS
        assert client.count(STREAM, not_key="FR").meaning.endswith("all but FR.")
        with pytest.raises(ValueError, match="key: names no key"):
            client.count(STREAM, key=[])
    assert [keys for _, keys in seen] == [GROUP, [], GROUP, [], [], ["FR"]]

    class Mocked(Client):
        def __init__(self, url: str, api_key: str | None) -> None:
            super().__init__(url, transport=httpx.MockTransport(serve))

    monkeypatch.setattr("stream_app.shell.readers.Client", Mocked)
    asked = ["query", STREAM, "--url", "http://service", "--key", "FR", "--key", "other", "--format", "json"]
    said = json.loads(CliRunner().invoke(main, asked).output)
    assert (said["value"], said["meaning"]) == (pytest.approx(truth, abs=0.01), WORDS)
    both = CliRunner().invoke(main, [*asked, "--histogram"])
    assert "name one key" in both.output


def test_values_of_keys_add_up_to_their_group(counted: Counted) -> None:
    one, _ = counted
    span = {"start": seconds(1), "end": seconds(6)}
    parts = [answer(one, f"{PATH}/count", key=key, **span)["value"] for key in LABELS]
    for group in (LABELS[:2], LABELS[1:], LABELS):
        together = answer(one, f"{PATH}/count", key=group, **span)["value"]
        assert together == pytest.approx(sum(parts[LABELS.index(key)] for key in group), rel=1e-12)
