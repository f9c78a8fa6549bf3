"""Random objects in v1beta1, and what Kubernetes' own conversion makes of them in v1.

`manifest(seed)` is the same in every run. `python -m tests.conformance.conversions COUNT` stores them in an API server
that serves v1beta1, reads them in v1, and compares with Muster's conversion; with `--write` it keeps the answers, which
the tests replay. The server fills in defaults, which no conversion does: `without_defaults` takes them away.
"""

import argparse
import copy
import gzip
import json
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from admission.conversion import equivalents
from tests.controlplane import ControlPlane, building

Json = dict[str, Any]

KEPT = Path(__file__).parent / "data" / "conversions.jsonl.gz"
PLURALS = {
    "ResourceClaim": "namespaces/default/resourceclaims",
    "ResourceClaimTemplate": "namespaces/default/resourceclaimtemplates",
    "DeviceClass": "deviceclasses",
    "ResourceSlice": "resourceslices",
}
OLD = "resource.k8s.io/v1beta1"
GATES = dict.fromkeys(
    ("DRAConsumableCapacity", "DRADeviceTaints", "DRAPartitionableDevices", "DRAPrioritizedList"), True
)


class _Draw:
    """What a seed chooses."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - the same for the same seed

    def maybe(self, **fields: Callable[[], Any]) -> Json:
        """Return some of the fields."""
        return {name: make() for name, make in fields.items() if self.random.random() < 0.5}

    def some(self, most: int, make: Callable[[int], Any]) -> list[Any]:
        return [make(at) for at in range(self.random.randint(1, most))]

    def of(self, *values: Any) -> Any:
        return self.random.choice(values)

    def selectors(self) -> list[Json]:
        return self.some(2, lambda _: {"cel": {"expression": self.of("true", "device.driver == 'gpu.example.com'")}})

    def tolerations(self) -> list[Json]:
        return self.some(
            2, lambda at: {"key": f"k{at}", "operator": "Exists", **self.maybe(effect=lambda: "NoSchedule")}
        )

    def request(self, at: int) -> Json:
        if self.random.random() < 0.25:
            return {
                "name": f"r{at}",
                "firstAvailable": self.some(2, lambda inner: {"name": f"s{inner}", **self._asked()}),
            }
        fields = [("name", f"r{at}"), *self._asked().items()]
        self.random.shuffle(fields)
        return dict(fields)

    def _asked(self) -> Json:
        counted = self.of({}, {"allocationMode": "ExactCount", "count": 3}, {"count": 2}, {"allocationMode": "All"})
        return {
            "deviceClassName": self.of("gpu", "nic"),
            **counted,
            **self.maybe(
                selectors=self.selectors,
                tolerations=self.tolerations,
                capacity=lambda: {"requests": {"memory": self.of("1Gi", "512Mi")}},
            ),
        }

    def config(self) -> list[Json]:
        opaque = {"driver": "gpu.example.com", "parameters": {"kind": "Config", "a": [1, {"b": None}]}}
        return self.some(2, lambda _: {"opaque": opaque})

    def claim(self) -> Json:
        devices = {"requests": self.some(3, self.request), **self.maybe(config=self.config)}
        if self.random.random() < 0.3:
            devices["constraints"] = [{"matchAttribute": "gpu.example.com/numa"}]
        return {"devices": devices}

    def template(self) -> Json:
        return {**self.maybe(metadata=lambda: {"labels": {"a": "b"}}), "spec": self.claim()}

    def device_class(self) -> Json:
        return self.maybe(selectors=self.selectors, config=self.config)

    def device(self, at: int) -> Json:
        attributes = {"model": {"string": "H100"}, "numa": {"int": 1}, "ecc": {"bool": True}, "v": {"version": "1.2.3"}}
        basic = self.maybe(
            attributes=lambda: attributes,
            capacity=lambda: {"memory": {"value": self.of("80Gi", "1")}},
            taints=lambda: [{"key": "a", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}],
            allowMultipleAllocations=lambda: True,
        )
        return {"name": f"d{at}", "basic": basic}

    def slice(self) -> Json:
        where = self.of({"nodeName": "one"}, {"allNodes": True})
        pool = {"name": "one", "generation": self.of(1, 2), "resourceSliceCount": 1}
        return {"driver": "gpu.example.com", "pool": pool, **where, "devices": self.some(3, self.device)}


def manifest(seed: int) -> Json:
    """Return an object in v1beta1 that an API server takes."""
    draw = _Draw(seed)
    kinds: dict[str, Callable[[], Json]] = {
        "ResourceClaim": draw.claim,
        "ResourceClaimTemplate": draw.template,
        "DeviceClass": draw.device_class,
        "ResourceSlice": draw.slice,
    }
    kind = [*kinds][seed % len(kinds)]
    return {"apiVersion": OLD, "kind": kind, "metadata": {"name": f"c{seed}"}, "spec": kinds[kind]()}


def ours(obj: Json) -> Json:
    """Return the spec of an object in v1, by Muster's conversion."""
    spec: Json = equivalents.read(obj)[0]["spec"]
    return without_defaults(spec)


def theirs(control_plane: ControlPlane, obj: Json) -> Json:
    """Return the spec of an object in v1, as an API server that was given it in v1beta1 reads it."""
    client, path = control_plane.client(), PLURALS[obj["kind"]]
    client.create(f"/apis/{OLD}/{path}", obj)
    found: Json = client.get(f"/apis/{equivalents.VERSION}/{path}/{obj['metadata']['name']}")
    client.delete(f"/apis/{equivalents.VERSION}/{path}/{obj['metadata']['name']}")
    return without_defaults(found["spec"])


def without_defaults(spec: Json) -> Json:
    """Return a spec without what defaulting fills into requests; in both answers, so that none hides a difference."""
    found = copy.deepcopy(spec)
    if found.get("metadata") == {}:
        del found["metadata"]
    inner = found.get("spec", found)
    for request in inner.get("devices", {}).get("requests", ()) if isinstance(inner.get("devices"), dict) else ():
        for asked in (request.get("exactly"), *request.get("firstAvailable", ())):
            if asked and asked.get("allocationMode") == "ExactCount":
                del asked["allocationMode"]
            if asked and asked.get("count") == 1:
                del asked["count"]
    return found


def kept() -> Iterator[Json]:
    """Yield the answers that were kept."""
    for line in gzip.decompress(KEPT.read_bytes()).decode().splitlines():
        yield json.loads(line)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.conversions", description=__doc__)
    parser.add_argument("count", type=int, help="how many objects")
    parser.add_argument("--write", action="store_true", help=f"keep the answers in {KEPT.name}")
    words = parser.parse_args()
    records: list[Json] = [{"seed": seed, "obj": manifest(seed)} for seed in range(words.count)]
    with ControlPlane(building.DEFAULT_VERSION, feature_gates=GATES, runtime_config={OLD: True}) as control_plane:
        for record in records:
            record["v1"] = theirs(control_plane, record["obj"])
    differ = [record for record in records if ours(record["obj"]) != record["v1"]]
    for record in differ:
        print(f"seed {record['seed']}: {json.dumps(ours(record['obj']))} is {json.dumps(record['v1'])}")
    print(f"{len(records) - len(differ)} agree, {len(differ)} differ")
    if words.write:
        lines = "".join(f"{json.dumps(record, separators=(',', ':'))}\n" for record in records)
        KEPT.write_bytes(gzip.compress(lines.encode(), 9, mtime=0))
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
