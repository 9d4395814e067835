"""Checks the manifest of docs/how-to/workers.md against Kubeflow's schema.

    git clone --depth 1 --branch v1.9.0 https://github.com/kubeflow/training-operator
    python -m benchmarks.manifest \\
        training-operator/manifests/base/crds/kubeflow.org_pytorchjobs.yaml

The schema is the one that its training operator publishes. It needs jsonschema and pyyaml. An entry
that the schema does not have is an error, as for `kubectl apply`.
"""

import re
import sys
from pathlib import Path
from typing import Any

import jsonschema
import yaml


def main() -> None:
    page = Path(__file__).parents[1] / "docs/how-to/workers.md"
    (block,) = re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    versions = yaml.safe_load(Path(sys.argv[1]).read_text())["spec"]["versions"]
    (schema,) = (
        version["schema"]["openAPIV3Schema"] for version in versions if version["name"] == "v1"
    )
    close(schema)
    # The published schema leaves the metadata to the API server.
    schema["properties"]["metadata"] = {"type": "object", "required": ["name"]}
    errors = list(jsonschema.Draft4Validator(schema).iter_errors(yaml.safe_load(block)))
    for error in errors:
        print(f"{'.'.join(map(str, error.absolute_path))}: {error.message}")
    print(f"{page.name}: {len(errors)} errors")
    sys.exit(bool(errors))


def close(schema: Any) -> None:
    """Let a schema, and all below it, refuse entries that it does not name.

    A port or an amount may be a number or a text.
    """
    if isinstance(schema, dict):
        if schema.get("x-kubernetes-int-or-string"):
            schema["type"] = ["integer", "string"]
        if "properties" in schema and schema.get("type") == "object":
            schema.setdefault("additionalProperties", False)
        for part in schema.values():
            close(part)
    elif isinstance(schema, list):
        for part in schema:
            close(part)


if __name__ == "__main__":
    main()
