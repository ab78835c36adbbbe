"""How ``stream-app init`` reaches a cluster, reads a sample of a topic, and asks what its records lack."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stream_app.config import ClusterSettings, load_clusters
from stream_app.ports import OperatorError
from stream_app.shell.init.answers import Topic, read_columns, read_registry
from stream_app.shell.init.questions import Questions
from stream_app.shell.options import BROKER
from stream_app.shell.present_step import working
from stream_app.shell.samples.of_log import Sample


@dataclass(frozen=True)
class Reach:
    """Clusters by name, the main one as "", and a schema registry if known. SECRET: may hold passwords.

    Args: registry, a URL, empty if none is known; authority, whose certificates are trusted for it.
    """

    clusters: Mapping[str, ClusterSettings]
    registry: str = ""
    authority: Path | None = None

    def to(self, name: str) -> Mapping[str, ClusterSettings]:
        """Return the main cluster, and the cluster of this name. Raises: OperatorError if there is none."""
        if name not in self.clusters:
            raise OperatorError(
                f"--events: no cluster has the name {name}; name a file that has it in kafka.clusters "
                "with --kafka-from"
            )
        return {"": self.clusters[""], name: self.clusters[name]}


def reached(servers: str | None, file: Path | None) -> Reach:
    """Return the clusters that the options name. Args: file, a configuration, with its own servers."""
    if file is None:
        return Reach({"": ClusterSettings(servers or BROKER, {})})
    kafka, registry = load_clusters(file, "--kafka-from")
    if kafka is None:
        raise OperatorError(f"--kafka-from {file}: it has no section kafka; name a file that has one")
    found = kafka.clusters[""]
    main = ClusterSettings(servers or found.bootstrap_servers, found.security)
    return Reach({**kafka.clusters, "": main}, *(registry or ()))


def asked_sample(questions: Questions, asked: Topic, reach: Reach) -> Sample:
    """Return a sample of a topic. Raises: OSError if the cluster is unreachable, or there is no record."""
    from stream_app.kafka.cluster import Cluster  # its packages may not be installed
    from stream_app.shell.samples import of_topic

    settings, topic = reach.to(asked.cluster)[asked.cluster], asked.name
    cluster = Cluster(settings.bootstrap_servers, settings.security)
    with working("reading a sample"):
        records = asyncio.run(of_topic.topic_records(cluster, topic))
    form = of_topic.held(topic, records)
    if form != "schema":
        columns: tuple[str, ...] = ()
        if form == "csv":
            questions.say("Its records are CSV. A topic has no header line")
            wide = of_topic.width(records)
            columns = questions.ask("columns", "names of the columns", None, read_columns(wide))
        return of_topic.sample_of_topic(topic, form, records, columns)
    url, authority = reach.registry, reach.authority
    if not url:
        questions.say("Its records name schemas of a registry")
        url = questions.ask("schema-registry", "URL of the schema registry", None, read_registry)
    with working("reading schemas"):
        try:
            return asyncio.run(of_topic.sample_of_schemas(topic, records, url, authority))
        except OSError as failure:  # without schemas nobody knows whether it is Avro or Protobuf
            raise OperatorError(f"--schema-registry: {failure}") from None
