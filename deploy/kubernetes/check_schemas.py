"""Compare the manifests beside this file with the schemas of Kubernetes and of both operators.

    pip install kubernetes-validate jsonschema
    python deploy/kubernetes/check_schemas.py CRD.yaml …

The core kinds are compared by kubernetes-validate, SparkApplications with the given resource
definitions. A field that a schema does not know is an error.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml


def main(definitions: list[str]) -> int:
    schemas = dict(each for path in definitions for each in versions(Path(path)))
    wrong = 0
    for manifest in sorted(Path(__file__).parent.glob("*.yaml")):
        for resource in yaml.safe_load_all(manifest.read_text()):
            what = (resource["apiVersion"], resource["kind"])
            said = errors(resource, schemas.get(what))
            wrong += len(said)
            verdict = "; ".join(said) or "ok"
            sys.stdout.write(f"{manifest.name}: {' '.join(what)}: {verdict}\n")
    return 1 if wrong else 0


def versions(path: Path) -> list[tuple[tuple[str, str], Any]]:
    crd = yaml.safe_load(path.read_text())["spec"]
    return [
        ((f"{crd['group']}/{each['name']}", crd["names"]["kind"]), closed(each["schema"]))
        for each in crd["versions"]
    ]


def closed(schema: Any) -> Any:
    """As the API server prunes: what is not named is not there."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: closed(value) for key, value in schema.items()}
    open_already = (
        made.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in made
    )
    if (
        isinstance(made.get("properties"), dict)
        and made.get("type") == "object"
        and not open_already
    ):
        made["additionalProperties"] = False
    return made


def errors(resource: Any, schema: Any | None) -> list[str]:
    if schema is None:
        try:
            kubernetes_validate.validate(
                resource, kubernetes_validate.latest_version(), strict=True
            )
        except kubernetes_validate.ValidationError as exc:
            return [f"{'.'.join(map(str, exc.path))}: {exc.message}"]
        return []
    held = schema["openAPIV3Schema"]
    # The API server knows these of every resource.
    held["properties"] |= {"apiVersion": {}, "kind": {}, "metadata": {}}
    found = jsonschema.Draft202012Validator(held).iter_errors(resource)
    return [f"{exc.json_path}: {exc.message}" for exc in found]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
