"""A sample of a topic that no configuration names yet."""

from __future__ import annotations

from stream_app.kafka_cluster import Cluster, reach, topic_facts
from stream_app.ports import OperatorError
from stream_app.shell.doctor.topic_sample import newest_records
from stream_app.shell.init.sample import Sample, sample_of


async def topic_sample(servers: str, topic: str) -> Sample:
    """Return the newest records of a topic.

    Raises: OSError if the cluster is unreachable, or the topic has no record; OperatorError if its records
        are not JSON.
    """
    cluster = Cluster(servers, {})
    await reach(cluster)
    facts = await topic_facts(cluster, topic)
    if facts is None:
        raise FileNotFoundError(f"the topic {topic} does not exist on {servers}")
    records = [record.value for record in await newest_records(cluster, topic, facts)]
    if not records:
        raise FileNotFoundError(f"the topic {topic} has no records yet")
    try:
        return sample_of(topic, "ndjson", records)
    except OperatorError:
        raise OperatorError(
            f"--events topic:{topic}: its records are not JSON objects; for csv and avro write the "
            "configuration by hand (docs/configuration.md, source.format)"
        ) from None
