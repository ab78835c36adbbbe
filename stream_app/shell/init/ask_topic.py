"""Reads a sample of a topic, and asks for facts that records lack: columns of CSV, or where schemas are."""

from __future__ import annotations

import asyncio

from stream_app.kafka_cluster import Cluster
from stream_app.ports import OperatorError
from stream_app.shell.init.answers import Topic, read_columns, read_registry
from stream_app.shell.init.questions import Questions
from stream_app.shell.init.reach import Reach
from stream_app.shell.samples.of_log import Sample
from stream_app.shell.samples.of_topic import held, refused, sample_of_topic, topic_records, width
from stream_app.shell.samples.schemas import sample_of_schemas
from stream_app.shell.working import working


def asked_sample(questions: Questions, asked: Topic, reach: Reach) -> Sample:
    """Return a sample of a topic.

    Raises: OSError if the cluster is unreachable, or the topic has no record; OperatorError if its records
        cannot be decoded, or their registry is unreachable.
    """
    settings, topic = reach.to(asked.cluster)[asked.cluster], asked.name
    cluster = Cluster(settings.bootstrap_servers, settings.security)
    with working("reading a sample"):
        records = asyncio.run(topic_records(cluster, topic))
    form = held(records)
    if not form:
        raise refused(topic)
    if form != "schema":
        columns: tuple[str, ...] = ()
        if form == "csv":
            questions.say("Its records are CSV. A topic has no header line")
            columns = questions.ask("columns", "names of the columns", None, read_columns(width(records)))
        return sample_of_topic(topic, form, records, columns)
    url, authority = reach.registry, reach.authority
    if not url:
        questions.say("Its records name schemas of a registry")
        url = questions.ask("schema-registry", "URL of the schema registry", None, read_registry)
    with working("reading schemas"):
        try:
            return asyncio.run(sample_of_schemas(topic, records, url, authority))
        except OSError as failure:  # without schemas nobody knows whether it is Avro or Protobuf
            raise OperatorError(f"--schema-registry: {failure}") from None
