"""React to released counts in a Faust agent: print each bin's count, the difference of two running counts.

RELEASES_BROKER=kafka://localhost:9092 RELEASES_TOPIC=clicks.private faust -A examples.releases_agent worker
"""

from __future__ import annotations

import os

import faust

app = faust.App(
    "releases-example",
    broker=os.environ.get("RELEASES_BROKER", "kafka://localhost:9092"),
    topic_partitions=1,
    web_enabled=False,
    consumer_auto_offset_reset="earliest",
    processing_guarantee="exactly_once",  # so Faust reads committed rows only; others may never become public
)
releases = app.topic(os.environ.get("RELEASES_TOPIC", "clicks.private"), value_serializer="json")
before: dict[tuple[str, int], float] = {}  # by stream and epoch: the running count that was seen last


@app.agent(releases)
async def follow(rows: faust.StreamT[dict]) -> None:
    """Print for each bin about how many events it has: the noisy running count less the one before."""
    async for row in rows:
        run, count = (row["stream"], row["epoch"]), row["estimate"][0]
        print(f"{row['stream']} bin {row['bin']}: {count - before.get(run, 0.0):.0f} events", flush=True)
        before[run] = count
