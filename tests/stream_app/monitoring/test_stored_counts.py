"""The operator sees how many records were late, how late, refused or set aside, as the store counted them."""

from __future__ import annotations

import asyncio

from prometheus_client.parser import text_string_to_metric_families

from stream_app.core.incoming import OF_ENGINE, Reason
from stream_app.monitoring.metrics import Metrics
from stream_app.monitoring.stored_counts import StoredCounts, follow
from tests.models.memory import MemoryStore
from tests.patience import ended


def shown(counts: StoredCounts) -> dict[tuple[str, str], float]:
    """Return the values of all samples, by name and the label beside the stream."""
    metrics = Metrics()
    metrics.registry.unregister(metrics.stored)
    metrics.registry.register(counts)
    families = text_string_to_metric_families(metrics.exposition().decode())
    samples = [sample for family in families for sample in family.samples if "stream" in sample.labels]
    return {(one.name, one.labels.get("reason") or one.labels.get("le") or ""): one.value for one in samples}


def test_counters_of_the_store_become_metrics() -> None:
    counts = StoredCounts()
    counts.know("clicks", 10.0, of_engine=True)
    counts.show(
        "clicks", {"late": 2, "late_within_10": 2, "late_within_300": 1, "late_bins": 7, "set_aside": 4}
    )
    found = shown(counts)
    assert found["stream_app_refused_records_total", "late"] == 2
    assert found["stream_app_refused_records_total", "future"] == 0
    assert {reason for name, reason in found if name == "stream_app_refused_records_total"} == set(Reason)
    assert found["stream_app_set_aside_records_total", ""] == 4
    buckets = {le: n for (name, le), n in found.items() if name == "stream_app_late_seconds_bucket"}
    assert [buckets[le] for le in ("5.0", "10.0", "60.0", "300.0", "604800.0", "+Inf")] == [0, 2, 2, 3, 3, 3]
    assert found["stream_app_late_seconds_count", ""] == 3
    assert found["stream_app_late_seconds_sum", ""] == 70


def test_only_streams_over_an_engine_have_the_reasons_of_its_rows() -> None:
    counts = StoredCounts()
    for name in ("clicks", "rows"):
        counts.know(name, 10.0, of_engine=name == "rows")
        counts.show(name, {})
    refused = next(iter(counts.collect())).samples
    shown = {(one.labels["stream"], one.labels["reason"]) for one in refused}
    assert shown == {("rows", one) for one in Reason} | {("clicks", one) for one in set(Reason) - OF_ENGINE}


def test_counters_are_read_again_after_the_store_was_down() -> None:
    class Down(MemoryStore):
        answers = [{}, {"late": 1}, None, {"late": 5}]

        async def operator_counts(self, stream: str) -> dict[str, int]:
            answer = self.answers.pop(0)
            if answer is None:
                raise ConnectionError("redis: no answer")
            return answer

    async def read() -> list[float]:
        counts, found = StoredCounts(), []
        counts.know("clicks", 1.0)
        for _ in range(4):
            following = asyncio.create_task(follow(Down(), ["clicks"], counts))
            await asyncio.sleep(0.01)
            await ended(following)
            found.append(shown(counts)["stream_app_refused_records_total", "late"])
        return found

    assert asyncio.run(read()) == [0, 1, 1, 5]
