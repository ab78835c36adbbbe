"""How ``stream-app init`` reaches a cluster and a schema registry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stream_app.config import ClusterSettings, load_clusters
from stream_app.ports import OperatorError
from stream_app.shell.options import BROKER


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
    """Return the clusters that the options name. Args: servers; file, a configuration, with its own servers.

    Raises: ConfigError; OperatorError if the file names no cluster.
    """
    if file is None:
        return Reach({"": ClusterSettings(servers or BROKER, {})})
    kafka, registry = load_clusters(file, "--kafka-from")
    if kafka is None:
        raise OperatorError(f"--kafka-from {file}: it has no section kafka; name a file that has one")
    found = kafka.clusters[""]
    main = ClusterSettings(servers or found.bootstrap_servers, found.security)
    return Reach({**kafka.clusters, "": main}, *(registry or ()))
