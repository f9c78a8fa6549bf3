"""Write admission/api/schemas/workload_fields.json from the CRDs that the projects of other workload kinds publish.

`python -m tests.conformance.workload_fields CLONES`, for another kind or a newer release (in `SOURCES`). CLONES is a
folder with a bare clone of each repository: `git clone --bare https://github.com/OWNER/NAME CLONES/OWNER+NAME`. The
file has a line for each type, as kubernetes_fields.json:

    kinds     `group/version/Kind` -> type
    releases  `group/version/Kind` -> the release whose CRD was read
    types     type -> field -> the type of its value; Kubernetes' own for a pod template, "{}" for an object whose
              fields nobody lists, "" where anything goes, and for a status
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from admission.api.schemas import known_fields

FILE = Path(__file__).parents[2] / "admission" / "api" / "schemas" / "workload_fields.json"

Types = dict[str, dict[str, str]]


class Source(NamedTuple):
    """CRDs of one release. repository: `owner/name` at GitHub. release: its tag. versions: of the kinds."""

    repository: str
    release: str
    folder: str
    files: tuple[str, ...]
    versions: tuple[str, ...]


TRAINING = ("pytorchjobs", "tfjobs", "xgboostjobs", "paddlejobs", "jaxjobs", "mpijobs")

SOURCES = (
    Source(
        "kubernetes-sigs/jobset",
        "v0.12.0",
        "config/components/crd/bases",
        ("jobset.x-k8s.io_jobsets.yaml",),
        ("v1alpha2",),
    ),
    Source(
        "kubernetes-sigs/lws",
        "v0.10.0",
        "config/crd/bases",
        ("leaderworkerset.x-k8s.io_leaderworkersets.yaml",),
        ("v1",),
    ),
    Source("kubeflow/mpi-operator", "v0.8.0", "manifests/base", ("kubeflow.org_mpijobs.yaml",), ("v2beta1",)),
    Source(
        "kubeflow/trainer",
        "v1.9.3",
        "manifests/base/crds",
        tuple(f"kubeflow.org_{plural}.yaml" for plural in TRAINING),
        ("v1",),
    ),
    Source(
        "ray-project/kuberay",
        "v1.7.0",
        "ray-operator/config/crd/bases",
        ("ray.io_rayclusters.yaml", "ray.io_rayjobs.yaml", "ray.io_rayservices.yaml", "ray.io_raycronjobs.yaml"),
        ("v1", "v1alpha1"),
    ),
    Source(
        "kubeflow/spark-operator",
        "v2.5.2",
        "config/crd/bases",
        ("sparkoperator.k8s.io_sparkapplications.yaml", "sparkoperator.k8s.io_scheduledsparkapplications.yaml"),
        ("v1beta2",),
    ),
    Source(
        "volcano-sh/volcano",
        "v1.15.1",
        "config/crd/volcano/bases",
        ("batch.volcano.sh_jobs.yaml", "scheduling.volcano.sh_podgroups.yaml"),
        ("v1alpha1", "v1beta1"),
    ),
    Source(
        "kubernetes-sigs/scheduler-plugins",
        "v0.34.7",
        "config/crd/bases",
        ("scheduling.x-k8s.io_podgroups.yaml",),
        ("v1alpha1",),
    ),
    Source(
        "NVIDIA/KAI-Scheduler",
        "v0.20.1",
        "deployments/kai-scheduler/crds",
        ("scheduling.run.ai_podgroups.yaml",),
        ("v2alpha2",),
    ),
    Source(
        "kubeflow/trainer",
        "v2.3.0",
        "manifests/base/crds",
        ("trainer.kubeflow.org_trainjobs.yaml",),
        ("v1alpha1",),
    ),
)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.workload_fields")
    parser.add_argument("clones", type=Path)
    FILE.write_text(text(parser.parse_args(arguments).clones))
    print(f"{FILE}: {FILE.stat().st_size} bytes")
    return 0


def text(clones: Path) -> str:
    """Return the file."""
    kinds: dict[str, str] = {}
    releases: dict[str, str] = {}
    types: Types = {}
    known: dict[str, str] = {}
    for source in SOURCES:
        for definition in _definitions(source, clones):
            for name, schema in _versions(definition, source):
                kinds[name] = _Reader(name, types, known).read(schema, name)
                releases[name] = f"{source.repository.partition('/')[2]} {source.release}"
    parts: Mapping[str, Mapping[str, Any]] = {"kinds": kinds, "releases": releases, "types": types}
    return "{\n" + ",\n".join(f'"{name}": {{\n{_lines(part)}\n}}' for name, part in parts.items()) + "\n}\n"


def _definitions(source: Source, clones: Path) -> Iterator[Any]:
    folder = clones / source.repository.replace("/", "+")
    for file in source.files:
        words = ["git", f"--git-dir={folder}", "show", f"{source.release}:{source.folder}/{file}"]
        yield from yaml.safe_load_all(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def _versions(definition: Any, source: Source) -> Iterator[tuple[str, Any]]:
    spec = definition["spec"]
    for version in spec["versions"]:
        if version["name"] in source.versions:
            schema = version["schema"]["openAPIV3Schema"]
            yield f"{spec['group']}/{version['name']}/{spec['names']['kind']}", schema


class _Reader:
    """Reads the schema of one kind into types. known: by their fields, those of all kinds; equal ones are one."""

    def __init__(self, kind: str, types: Types, known: dict[str, str]) -> None:
        self._kind = kind
        self._types = types
        self._known = known

    def read(self, schema: Any, path: str) -> str:
        """Return the type of a value."""
        for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
            if isinstance(schema.get(key), dict):
                return mark + self.read(schema[key], path)
        if schema.get("type") != "object":
            return _scalar(schema)
        properties = schema.get("properties")
        if properties and _is_pod_template(properties):
            return known_fields.POD_TEMPLATE
        if not properties or schema.get("x-kubernetes-preserve-unknown-fields"):
            return known_fields.MAPPING
        fields = {
            name: "meta.v1.ObjectMeta"
            if (path, name) == (self._kind, "metadata")
            else ""
            if (path, name) == (self._kind, "status")
            else self.read(inner, f"{path}.{name}")
            for name, inner in properties.items()
        }
        found = self._known.setdefault(_compact(fields), path)
        self._types[found] = fields
        return found


def _scalar(schema: Any) -> str:
    """Return the type of a value that is no object; "" if any is allowed."""
    if schema.get("x-kubernetes-int-or-string"):
        return "Quantity" if "pattern" in schema else "IntOrString"
    kind = schema.get("type", "")
    if kind == "integer":
        return "int32" if schema.get("format") == "int32" else "int64"
    return "bool" if kind == "boolean" else str(kind)


def _is_pod_template(properties: Any) -> bool:
    return "containers" in properties.get("spec", {}).get("properties", {})


def _lines(part: Mapping[str, Any]) -> str:
    return ",\n".join(f"{_compact(name)}:{_compact(part[name])}" for name in sorted(part))


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
