"""Random pods, Jobs, claims, templates and classes with mistakes, and what is refused of them.

`manifest(seed)` is the same in every run. `refused` are the fields for which Muster refuses one offline, `causes` those
of which the API server complains, in the form of Muster's paths. `python -m tests.conformance.manifests FIRST COUNT`
asks a control plane of each release about so many, prints each that differs, and with `--write` keeps the answers.
What Muster refuses on purpose and the API server takes (`STRICTER` in tests/unit/api/refused.py) is not generated.
"""

import argparse
import gzip
import json
import random
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from admission.dra import compatibility
from admission.dra.compatibility import Release
from admission.simulation import manifests
from tests.controlplane import ApiError, ControlPlane, building
from tests.controlplane.clients import Client

Json = dict[str, Any]

KEPT = Path(__file__).parent / "data" / "manifests.jsonl.gz"
PATHS = {
    "Pod": "/api/v1/namespaces/default/pods",
    "Job": "/apis/batch/v1/namespaces/default/jobs",
    "ResourceClaim": "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
    "ResourceClaimTemplate": "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates",
    "DeviceClass": "/apis/resource.k8s.io/v1/deviceclasses",
    "PersistentVolumeClaim": "/api/v1/namespaces/default/persistentvolumeclaims",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "Node": "/api/v1/nodes",
    "CronJob": "/apis/batch/v1/namespaces/default/cronjobs",
    **{
        kind: f"/apis/apps/v1/namespaces/default/{kind.lower()}s"
        for kind in ("DaemonSet", "Deployment", "ReplicaSet", "StatefulSet")
    },
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "RuntimeClass": "/apis/node.k8s.io/v1/runtimeclasses",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
}
INVALID = (400, 422)

# Good values are named more often, so that most objects have one mistake or none.
NAMES = ("a", "b", "gpus", "gpu-0", "a", "b", "A", "a.b", "", "x" * 64)
CLAIM_NAMES = ("one", "two.three", "one", "One", "a/b", "")
RESOURCES = (
    "cpu",
    "memory",
    "example.com/gpu",
    "hugepages-2Mi",
    "ephemeral-storage",
    "cpu",
    "memory",
    "example.com/gpu",
)
ODD_RESOURCES = (
    "gpu", "pods", "storage", "requests.cpu", "hugepages-", "hugepages-x", "kubernetes.io/batteries", "a/b/c", "",
    "requests.example.com/gpu", "Example.com/gpu", "example.com/", "-cpu", "limits.memory", "hugepages-1.5",
)  # fmt: skip
AMOUNTS = ("1", "2", "4Mi", "1", "2", 1, 2, "3", "8Mi", "500m", "0.5", "-1", "1.0001", "0.9999999", "0", "1e1", "many")
DRIVERS = ("gpu.example.com", "gpu.example.com", "GPU.example.com", "a_b", "")
CLASSES = ("gpu.example.com", "gpu", "gpu", "Gpu", "a b", "")
ATTRIBUTES = ("gpu.example.com/numa", "numa", "gpu.example.com/numa", "gpu.example.com/1numa", "a/b/c", "")


class _Choice:
    """Random parts of objects. odds: of a rare part."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - nothing secret
        self.odds = self.random.choice((0.0, 0.05, 0.15))

    def of(self, values: tuple[Any, ...]) -> Any:
        """Return one of the values: of the good ones, which come first, unless a mistake is made."""
        good = max(1, len(values) // 2)
        return self.random.choice(values if self.rare() else values[:good])

    def rare(self) -> bool:
        return self.random.random() < self.odds

    def some(self, most: int, part: Callable[[int], Any], least: int = 0) -> list[Any]:
        return [part(number) for number in range(self.random.randint(least, most))]

    def name(self, number: int, prefix: str = "r") -> str:
        return str(self.of((f"{prefix}{number}", *NAMES))) if self.rare() else f"{prefix}{number}"


def manifest(seed: int) -> Json:
    """Return the object of a seed."""
    choice = _Choice(seed)
    kind = choice.random.choices(("Pod", "Job", *KINDS), (8, 3, *(3 for _ in KINDS)))[0]
    if kind == "Pod":
        return _object("v1", kind, _pod(choice))
    if kind == "Job":
        return _object("batch/v1", kind, {"template": {"spec": {**_pod(choice), "restartPolicy": "Never"}}})
    return _object("resource.k8s.io/v1", kind, KINDS[kind](choice))


def _object(version: str, kind: str, spec: Json) -> Json:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "fuzzed", "namespace": "default"}, "spec": spec}


def _pod(choice: _Choice) -> Json:
    claims = choice.some(3, lambda number: _pod_claim(choice, number))
    names = [claim.get("name", "") for claim in claims]
    spec: Json = {
        "containers": choice.some(2, lambda number: _container(choice, f"c{number}", names), least=1),
        "initContainers": choice.some(1, lambda number: _container(choice, f"i{number}", names)),
        "resourceClaims": claims,
    }
    if choice.rare():
        spec["resources"] = _resources(choice, names, ("cpu", "memory", "hugepages-2Mi", *ODD_RESOURCES, *RESOURCES))
    return spec


def _pod_claim(choice: _Choice, number: int) -> Json:
    claim: Json = {"name": choice.name(number, "claim-")}
    for field in ("resourceClaimName", "resourceClaimTemplateName"):
        if (field == "resourceClaimName") == bool(number % 2) or choice.rare():
            claim[field] = choice.of(CLAIM_NAMES)
    return {field: value for field, value in claim.items() if not choice.rare()}


def _container(choice: _Choice, name: str, claims: list[str]) -> Json:
    container: Json = {"name": choice.of((name, *NAMES)) if choice.rare() else name, "image": "train"}
    if choice.random.random() < 0.8:
        container["resources"] = _resources(choice, claims, (*RESOURCES, *ODD_RESOURCES))
    return container


def _resources(choice: _Choice, claims: list[str], names: tuple[str, ...]) -> Json:
    amounts = {choice.of(names): choice.of(AMOUNTS) for _ in range(choice.random.randint(0, 3))}
    resources: Json = {
        "limits": {name: amount for name, amount in amounts.items() if not choice.rare()},
        "requests": {
            name: choice.of((amount, *AMOUNTS)) if choice.rare() else amount for name, amount in amounts.items()
        },
    }
    if claims and choice.random.random() < 0.6:
        used = choice.random.sample(claims, choice.random.randint(1, len(claims)))
        if choice.rare():
            used.append(choice.random.choice(("other", *claims, "")))
        resources["claims"] = [
            {"name": name, **({"request": choice.of(NAMES)} if choice.random.random() < 0.3 else {})} for name in used
        ]
    return resources


def _claim(choice: _Choice) -> Json:
    requests = choice.some(3 if not choice.rare() else 34, lambda number: _request(choice, number), least=1)
    names = [str(request.get("name")) for request in requests]
    return {
        "devices": {
            "requests": requests,
            "constraints": choice.some(1, lambda _: _constraint(choice, names)),
            "config": choice.some(1, lambda _: _config(choice, names)),
        }
    }


def _request(choice: _Choice, number: int) -> Json:
    request: Json = {"name": choice.name(number)}
    if choice.random.random() < 0.3:
        request["firstAvailable"] = choice.some(
            3 if not choice.rare() else 9,
            lambda at: {"name": choice.name(at, "alternative-"), **_devices(choice)},
            least=1,
        )
    if "firstAvailable" not in request or choice.rare():
        request["exactly"] = _devices(choice)
    if choice.rare():
        del request[choice.random.choice([*request])]
    return request


def _devices(choice: _Choice) -> Json:
    found: Json = {"deviceClassName": choice.of(CLASSES)}
    if choice.random.random() < 0.5:
        found["count"] = choice.of((1, 2, 8, 3, -1, 40))
    if choice.rare():
        found["allocationMode"] = choice.of(("ExactCount", "All", "ExactCount", "Some"))
    if choice.rare():
        found["selectors"] = choice.some(2, lambda _: choice.of(SELECTORS))
    if choice.rare():
        found["tolerations"] = [_toleration(choice)]
    if choice.rare():
        found["capacity"] = {
            "requests": {choice.of(("memory", "gpu.example.com/memory", "1x", "a b")): choice.of(("1Gi", "2", "x"))}
        }
    return found


SELECTORS: tuple[Json, ...] = (
    {"cel": {"expression": "device.driver == 'gpu.example.com'"}},
    {"cel": {"expression": "true"}},
    {"cel": {"expression": "device.attributes['gpu.example.com'].model == 'H100'"}},
    {"cel": {"expression": "1 +"}},
    {"cel": {"expression": "device.name == 'a'"}},
    {"cel": {"expression": "1"}},
    {"cel": {}},
    {},
)  # fmt: skip


def _toleration(choice: _Choice) -> Json:
    toleration = {
        "key": choice.of(("example.com/a", "a", "a b", "")),
        "operator": choice.of(("Exists", "Exists", "Equal", "Never")),
        "value": choice.of(("", "", "b", "b c")),
        "effect": choice.of(("NoSchedule", "NoExecute", "", "Never")),
    }
    return {field: value for field, value in toleration.items() if value}


def _constraint(choice: _Choice, names: list[str]) -> Json:
    constraint: Json = {"requests": [choice.of((*names, *names, "other", "r0/alternative-0"))]}
    constraint[choice.of(("matchAttribute", "distinctAttribute"))] = choice.of(ATTRIBUTES)
    return {field: value for field, value in constraint.items() if not choice.rare()}


def _config(choice: _Choice, names: list[str]) -> Json:
    opaque = {"driver": choice.of(DRIVERS), "parameters": choice.of(({"a": 1}, {}, {"kind": "A"}))}
    config: Json = {"opaque": {field: value for field, value in opaque.items() if not choice.rare()}}
    if names and choice.rare():
        config["requests"] = [choice.of((*names, *names, "other"))]
    return {} if choice.rare() else config


def _class(choice: _Choice) -> Json:
    spec: Json = {
        "selectors": choice.some(2, lambda _: choice.of(SELECTORS)),
        "config": choice.some(1, lambda _: _config(choice, [])),
    }
    if choice.random.random() < 0.5:
        spec["extendedResourceName"] = choice.of(
            ("example.com/gpu", "a.b/c", "gpu", "example.com/a/b", "kubernetes.io/a")
        )
    return spec


KINDS: dict[str, Callable[[_Choice], Json]] = {
    "ResourceClaim": _claim,
    "ResourceClaimTemplate": lambda choice: {"spec": _claim(choice)},
    "DeviceClass": _class,
}


def refused(obj: Json, release: str) -> list[str]:
    """Return the fields for which Muster refuses an object offline."""
    store = manifests.read([obj], now=None, namespace="default", profile=compatibility.profile(Release(release)))
    return sorted({problem.field for _, error in store.problems for problem in error.problems})


def causes(client: Client, obj: Json) -> list[str]:
    """Return the fields of which the API server complains; `["."]` for an object that it cannot decode or judge.

    Of a Job that it takes, those of the pods that are made of its template, of which it complains only then.
    """
    found = _causes(client, obj)
    if found or obj["kind"] != "Job":
        return found
    template = obj["spec"]["template"]
    metadata = {**template.get("metadata", {}), "name": "fuzzed"}
    # Their priority and RuntimeClass are judged by admission plugins, before the rest and by what there is.
    unjudged = ("priorityClassName", "preemptionPolicy", "runtimeClassName", "overhead")
    spec = {name: value for name, value in template.get("spec", {}).items() if name not in unjudged}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    return [f"spec.template.{field}" for field in _causes(client, pod)]


def _causes(client: Client, obj: Json) -> list[str]:
    metadata = {name: value for name, value in obj.get("metadata", {}).items() if name != "namespace"}
    body = {**obj, "metadata": {"name": "fuzzed", **metadata}}
    try:
        client.create(f"{PATHS[obj['kind']]}?dryRun=All&fieldValidation=Strict", body)
    except ApiError as error:
        if error.code not in INVALID:
            raise
        return sorted({_path(field) for field in error.fields}) or ["."]
    except ConnectionError:
        # It stumbles, as 1.36 does over a policy for the success of a Job without completions, and keeps nothing.
        return ["."]
    return []


ODD_PATHS = {
    r"\.projected\.path$": ".projected.sources",
    r"\.downwardAPI\..*$": ".downwardAPI.items",
    r"\.securityContext\.shareProcessNamespace$": ".shareProcessNamespace",
    r"^metadata\.taints": "spec.taints",
    r"^spec\.template\.(labels|annotations)": r"spec.template.metadata.\1",
    r"\.resources\.storage$": ".resources.requests.storage",
    r"\.overhead\.limits": ".overhead",
    r"\.volumeMounts\.\w+$": ".volumeMounts",
    r"\.persistentDisk\.": ".gcePersistentDisk.",
    r"(Execution\[\d+\](?:\.podAffinityTerm)?|topologySpreadConstraints\[\d+\])\[(\d+)\]$": r"\1.matchLabelKeys[\2]",
    r"\.namespace$": ".namespaces",
}
"""Where the API server names a field that is not there, and the field that it means."""


def _path(field: str) -> str:
    """Return a field of the API server's as Muster writes it: keys of mappings follow a dot."""
    found = re.sub(r"\[([^\]]*[^\]\d][^\]]*)\]", r".\1", field)
    for odd, meant in ODD_PATHS.items():
        found = re.sub(odd, meant, found)
    return found


def difference(ours: list[str], theirs: list[str]) -> str | None:
    """Return how two answers differ: whether it is refused, or that no field is named by both."""
    if bool(ours) != bool(theirs):
        return f"we refuse {ours}, the API server {theirs}"
    if ours and theirs != ["."] and not any(_is_about(one, other) for one in ours for other in theirs):
        return f"we name {ours}, the API server {theirs}"
    return None


def _is_about(one: str, other: str) -> bool:
    """Return whether one field is another, or is within it."""
    longer, shorter = max(one, other, key=len), min(one, other, key=len)
    return longer == shorter or longer.startswith((f"{shorter}.", f"{shorter}["))


def main(made: Callable[[int], Json] = manifest, kept_in: Path = KEPT) -> int:
    """Compare objects. made: returns the object of a seed. kept_in: where `--write` writes."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.manifests", description=__doc__)
    parser.add_argument("first", type=int, help="the first seed")
    parser.add_argument("count", type=int, help="how many objects")
    parser.add_argument("--k8s", choices=building.VERSIONS, action="append", help="releases; all by default")
    parser.add_argument("--write", action="store_true", help=f"keep the answers in {kept_in.name}")
    words = parser.parse_args()
    seeds, releases = range(words.first, words.first + words.count), words.k8s or list(building.VERSIONS)
    records: list[Json] = [{"seed": seed, "obj": made(seed), "refused": {}} for seed in seeds]
    differ = 0
    for release in releases:
        with ControlPlane(release) as control_plane:
            client = control_plane.client()
            for record in records:
                theirs = causes(client, record["obj"])
                record["refused"][release] = theirs
                told = difference(refused(record["obj"], release), theirs)
                if told is not None:
                    differ += 1
                    print(f"{release} seed {record['seed']}: {told}: {json.dumps(record['obj'])}")
    bad = sum(any(record["refused"].values()) for record in records)
    print(
        f"{len(records) * len(releases) - differ} agree, {differ} differ; {bad} of {len(records)} objects are refused"
    )
    if words.write:
        lines = "".join(f"{json.dumps(record, separators=(',', ':'))}\n" for record in records)
        kept_in.write_bytes(gzip.compress(lines.encode(), 9, mtime=0))
    return 1 if differ else 0


def kept(path: Path = KEPT) -> Iterator[Json]:
    """Yield the answers that were kept in a file."""
    for line in gzip.decompress(path.read_bytes()).decode().splitlines():
        yield json.loads(line)


if __name__ == "__main__":
    sys.exit(main())
