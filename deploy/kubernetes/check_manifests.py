"""``python check_manifests.py FILE...``: what Kubernetes refuses, as JSON: [file, version, resource, why].

Run by the environment of the tools, in one process for all files, because loading takes longest.
Custom resources are compared with the schemas in tests/vendor/kubernetes.
"""

import json
import sys
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

VERSIONS = ("1.27", "1.37")
CUSTOM = Path(__file__).parents[2] / "tests" / "vendor" / "kubernetes"


def refused(resource: dict[str, Any], version: str) -> str | None:
    """Return why a version of Kubernetes refuses a resource, or None."""
    schema = CUSTOM / f"{resource['kind'].lower()}.schema.json"
    try:
        if schema.is_file():
            jsonschema.validate(resource, json.loads(schema.read_text()))
        else:
            kubernetes_validate.validate(resource, version, strict=True)
    except jsonschema.ValidationError as failure:
        return str(failure.message)
    return None


if __name__ == "__main__":
    found = []
    for file in sys.argv[1:]:
        for resource in filter(None, yaml.safe_load_all(Path(file).read_text())):
            for version in VERSIONS:
                if (why := refused(resource, version)) is not None:
                    name = f"{resource['kind']}/{resource['metadata']['name']}"
                    found.append([Path(file).name, version, name, why])
    print(json.dumps(found))
