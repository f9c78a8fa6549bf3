"""Objects that have one value in a random field, of the field's type or of another, and whether they can be read.

`manifest(seed)` is the same in every run. The API server decodes an object before it judges it, so that nothing else in
an object matters. `python -m tests.conformance.typed_values FIRST COUNT` asks a control plane of each release.
"""

import argparse
import random
import sys
from functools import cache
from typing import Any

from admission.api.schemas import known_fields
from admission.dra import compatibility
from admission.dra.compatibility import Release
from admission.simulation import validation
from tests.conformance import kubernetes_fields
from tests.controlplane import ApiError, ControlPlane, building
from tests.controlplane.clients import Client

Json = dict[str, Any]

VALUES: tuple[Any, ...] = (
    None, True, 8, -1, 1.5, 2**31, 2**63, "8", "true", "text", "", "1Gi", "500m", "2026-01-31T12:00:00Z", "2026-01-31",
    [], [None], [1], ["a"], [[]], [{}], {}, {"a": None}, {"a": 1}, {"a": "b"}, {"a": ["b"]}, {"a": {}},
)  # fmt: skip


_ALL = [(f"{group}/{version}".removeprefix("/"), kind) for group, version, kind in sorted(kubernetes_fields.KINDS)]
KINDS = [(*one, known_fields.type_of(*one)) for one in _ALL if known_fields.type_of(*one)]
"""apiVersion, kind and type of those that a release has."""


def manifest(seed: int) -> Json:
    """Return the object of a seed, of a kind of any version."""
    choice = random.Random(seed)  # noqa: S311 - nothing secret
    api_version, kind, type_name = choice.choice(KINDS)
    body = _object(choice, type_name)
    metadata = body.get("metadata", {})
    if isinstance(metadata, dict):
        metadata = {"name": "typed", **metadata}
    return {**body, "metadata": metadata, "apiVersion": api_version, "kind": kind}


def _object(choice: random.Random, type_name: str) -> Json:
    """Return an object with one field."""
    fields = known_fields.fields_of(type_name)
    objects = [name for name, kind in fields.items() if known_fields.object_type(kind)]
    if not fields:
        return {}
    name = choice.choice(objects if objects and choice.random() < 0.7 else [*fields])
    inner = known_fields.object_type(fields[name])
    if not inner or choice.random() < 0.2:
        return {name: choice.choice(VALUES)}
    value: Any = _object(choice, inner)
    if fields[name].startswith(known_fields.LIST):
        value = [value]
    elif fields[name].startswith(known_fields.MAPPING):
        value = {"a": value}
    return {name: value}


@cache
def _plurals(client: Client, api_version: str) -> Json:
    """Return the plural of each kind of a version that an API server has, with whether it is namespaced."""
    root = "apis" if "/" in api_version else "api"
    found = client.find(f"/{root}/{api_version}") or {"resources": []}
    return {one["kind"]: one for one in found["resources"] if "/" not in one["name"]}


def told(client: Client, obj: Json) -> str | None:
    """Return why an API server cannot decode an object; empty if it can, None if it does not have the kind."""
    resource = _plurals(client, obj["apiVersion"]).get(obj["kind"])
    if resource is None:
        return None
    root = "apis" if "/" in obj["apiVersion"] else "api"
    within = "namespaces/default/" if resource["namespaced"] else ""
    try:
        client.create(f"/{root}/{obj['apiVersion']}/{within}{resource['name']}?dryRun=All", obj)
    except ApiError as error:
        return error.message if "cannot be handled as a" in error.message else ""
    return ""


def difference(obj: Json, release: str, theirs: str) -> str | None:
    """Return how Muster's answer differs from an API server's: whether it can be decoded.

    An object with a UID is one that an API server has read.
    """
    if isinstance(obj["metadata"], dict) and "uid" in obj["metadata"]:
        return None
    ours = [
        f"{one.field}: {one.message}" for one in validation.wrong_types(obj, compatibility.profile(Release(release)))
    ]
    return f"we say {ours}, the API server {theirs!r}" if bool(ours) != bool(theirs) else None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.typed_values", description=__doc__)
    parser.add_argument("first", type=int, help="the first seed")
    parser.add_argument("count", type=int, help="how many objects")
    parser.add_argument("--k8s", choices=building.VERSIONS, action="append", help="releases; all by default")
    words = parser.parse_args()
    agree = wrong = differ = 0
    for release in words.k8s or building.VERSIONS:
        with ControlPlane(release) as control_plane:
            for seed in range(words.first, words.first + words.count):
                obj = manifest(seed)
                theirs = told(control_plane.client(), obj)
                if theirs is not None and (different := difference(obj, release, theirs)):
                    differ += 1
                    print(f"{release} seed {seed}: {different}: {obj}")
                elif theirs is not None:
                    agree, wrong = agree + 1, wrong + bool(theirs)
    print(f"{agree} agree, {differ} differ; {wrong} cannot be read")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
