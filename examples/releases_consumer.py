"""Follow released counts in their topic with kafka-python, without any code of this service.

    python examples/releases_consumer.py localhost:9092 clicks.private

Every record is one bin of one stream: key ``stream/epoch/bin``, value the row as JSON. A record may come
twice, with the same bytes. The value of a key never changes.
"""

from __future__ import annotations

import json
import sys

from kafka import KafkaConsumer


def main(bootstrap_servers: str, topic: str) -> None:
    """Print a line for each released bin, from the first on."""
    releases = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap_servers,
        auto_offset_reset="earliest",
        # The service writes in transactions: do not read rows of transactions that were aborted.
        isolation_level="read_committed",
    )
    for record in releases:
        row = json.loads(record.value)
        ((low, high),) = row["interval"]
        print(
            f"{row['stream']} until {row['end']}: {row['estimate'][0]:z.0f} ({low:z.0f} to {high:z.0f})",
            flush=True,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
