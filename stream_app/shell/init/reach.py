"""How ``stream-app init`` reaches a cluster and a schema registry."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stream_app.config import ClusterSettings, load_clusters
from stream_app.ports import OperatorError
from stream_app.shell.options import BROKER


@dataclass(frozen=True)
class Reach:
    """A cluster, and a schema registry if one is known. SECRET: both may hold passwords.

    Args: registry, a URL, empty if none is known; authority, whose certificates are trusted for it.
    """

    cluster: ClusterSettings
    registry: str = ""
    authority: Path | None = None


def reached(servers: str | None, file: Path | None) -> Reach:
    """Return what the options name. Args: servers, those of the file if None; file, a configuration.

    Raises: ConfigError; OperatorError if the file names no cluster.
    """
    if file is None:
        return Reach(ClusterSettings(servers or BROKER, {}))
    kafka, registry = load_clusters(file, "--kafka-from")
    if kafka is None:
        raise OperatorError(f"--kafka-from {file}: it has no section kafka; name a file that has one")
    found = kafka.clusters[""]
    cluster = ClusterSettings(servers or found.bootstrap_servers, found.security)
    return Reach(cluster) if registry is None else Reach(cluster, *registry)
