"""The services of deploy's compose files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"


def merged(*names: str) -> dict[str, Any]:
    """Return the services of compose files together, as far as Compose's rules of merging are used here."""
    services: dict[str, Any] = {}
    for name in names:
        for service, added in yaml.safe_load((DEPLOY / name).read_text())["services"].items():
            one = services.setdefault(service, {})
            volumes = {volume.split(":")[1]: volume for volume in one.get("volumes", ())}
            volumes |= {volume.split(":")[1]: volume for volume in added.get("volumes", ())}
            one |= {
                **added,
                "volumes": list(volumes.values()),
                "env_file": [*dict.fromkeys([*one.get("env_file", ()), *added.get("env_file", ())])],
                "environment": one.get("environment", {}) | added.get("environment", {}),
            }
    return services
