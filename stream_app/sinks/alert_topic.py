"""Alert transitions as records of a Kafka topic: CloudEvents in JSON, with the idempotency key as id."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from stream_app.core.instants import format_instant
from stream_app.kafka.cluster import Cluster, translating_errors
from stream_app.ports import OperatorError
from stream_app.ports.alerts import AlertTarget, NotDelivered
from stream_app.sinks.alert_texts import page_of
from stream_app.sinks.topics import Producer

CONTENT_TYPE = b"application/cloudevents+json; charset=UTF-8"
_TYPE = "private-counts.alert"


def cloud_event(transition: Mapping[str, Any], site: str | None = None) -> dict[str, Any]:
    """Return a transition in the format of CloudEvents 1.0.

    Source and id together are unique, so a reader can drop a record whose id it has seen for the stream.
    Args: site, where readers open the pages; the data then has a link to the stream's page.
    """
    instants = {
        "bin_end": transition["at_us"],
        "since": transition["since_us"],
        "decided": transition["now_us"],
    }
    same = ("rule", "condition", "confidence", "seq", "value", "stderr", "private", "labels", "summary")
    return {
        "specversion": "1.0",
        "id": transition["key"],
        "source": f"/v1/streams/{quote(transition['stream'], safe='')}",
        "type": f"{_TYPE}.{transition['kind']}",
        "subject": transition["rule"],
        "time": format_instant(transition["now_us"]),
        "datacontenttype": "application/json",
        "data": {"kind": transition["kind"], "stream": transition["stream"]}
        | {name: transition[name] for name in same}
        # Transitions of older versions lack these two.
        | {name: transition.get(name, "") for name in ("unit", "meaning")}
        | {name: transition[name] for name in ("against",) if name in transition}
        | {name: format_instant(us) for name, us in instants.items()}
        | ({} if site is None else {"url": page_of(transition, site)}),
    }


class TopicTarget(AlertTarget):
    """An existing topic. A transition is a record with its rule as key, so a rule's records stay in order.

    Delivery is at least once: a record whose acknowledgement was lost is sent again with the same id.
    Args: named, the cluster's name in the configuration; empty for that of the section ``kafka``.
    """

    def __init__(self, cluster: Cluster, topic: str, site: str | None = None, named: str = "") -> None:
        self.name, self.shown = "topic", f"alerts.topic {topic}"
        # A topic of this name in another cluster has got nothing yet.
        self.identity = f"topic {named}/{topic}" if named else f"topic {topic}"
        self.former = f"topic {topic}" if named else ""
        self._cluster, self._topic, self._site = cluster, topic, site
        self._producer = Producer(cluster)

    async def send(self, transition: Mapping[str, Any]) -> str:
        try:
            producer = await self._producer.started()
            value = json.dumps(cloud_event(transition, self._site), separators=(",", ":")).encode()
            headers = [("content-type", CONTENT_TYPE)]
            with translating_errors(self._cluster):
                await producer.send_and_wait(self._topic, value, transition["rule"].encode(), headers=headers)
        except (OperatorError, OSError) as failure:
            await self.close()
            raise NotDelivered(str(failure)) from None
        return "acknowledged by all replicas"

    async def close(self) -> None:
        await self._producer.stop()
