"""Knows when kube-scheduler has seen all that was written before: for tests that ask one question and take its answer.

Without it a pod may be judged by half of what a test wrote, and the answer to that is right as well.
"""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.controlplane import fleet, workloads
from tests.controlplane.clients import Client
from tests.controlplane.fleet import Manifest
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually

NODE = "barrier"
DRIVER = DEVICE_CLASS = "barrier.test"
RULE_KEY = "test.muster.dev/rule"
"""The key of every taint that a test puts on devices by a rule: what a rule taints must not stop the barrier."""

OLDER_RULES = {"1.36": "v1beta2"}
WITHOUT_RULES = ("1.35", "1.34")

turns = itertools.count(1)


class Barrier:
    """Writes one more object of each kind, on a node of its own, and a pod that needs all of them.

    kube-scheduler learns of each kind in the order of the writes. So once this pod is bound it has seen whatever was
    written or deleted before: nodes, slices, classes and claims, and DeviceTaintRules where `rules` is their path.
    """

    def __init__(self, client: Client, *, rules: str | None = None) -> None:
        self._client = client
        self._rules = rules
        self._objects = [
            fleet.node(NODE),
            fleet.resource_slice(NODE, [], driver=DRIVER),
            fleet.device_class(DEVICE_CLASS, driver=DRIVER),
        ]

    def put_up(self) -> None:
        fleet.install(self._client, self._objects)

    def remove(self) -> None:
        fleet.remove(self._client, self._objects)
        self._client.delete(f"{fleet.COLLECTIONS['DeviceClass']}/{DEVICE_CLASS}")

    def wait(self, namespace: Namespace) -> None:
        """Return once kube-scheduler has seen everything. What this leaves in the namespace is in nobody's way."""
        eventually(lambda: self._everything_is_seen(namespace, next(turns)), what="kube-scheduler sees all rules")

    def _everything_is_seen(self, namespace: Namespace, turn: int) -> bool:
        """Bind a pod to the first device of two; behind a rule that taints it, only rules seen too late leave it."""
        ruled, free = f"turn-{turn}-ruled", f"turn-{turn}"
        if self._rules is None:
            self._write(turn, devices=[free])
            return self._bind(namespace, turn) == free
        seen = {"deviceSelector": {"driver": DRIVER, "device": ruled}, "taint": taint("barrier.test/seen")}
        self._client.create(self._rules, rule(f"barrier-{turn}", seen))
        try:
            self._write(turn, devices=[ruled, free])
            return self._bind(namespace, turn) == free
        finally:
            self._client.delete(f"{self._rules}/barrier-{turn}")

    def _write(self, turn: int, *, devices: list[str]) -> None:
        mine = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].turn == {turn}"
        changes: dict[str, Manifest] = {
            "Node": {"metadata": {"labels": {DRIVER: str(turn)}}},
            "ResourceSlice": {"spec": {"devices": [_device(name, turn) for name in devices]}},
            "DeviceClass": {"spec": {"selectors": [{"cel": {"expression": mine}}]}},
        }
        for manifest in self._objects:
            path = f"{fleet.COLLECTIONS[manifest['kind']]}/{manifest['metadata']['name']}"
            self._client.merge_patch(path, changes[manifest["kind"]])

    def _bind(self, namespace: Namespace, turn: int) -> str:
        """Bind a pod behind the barrier and return the device that it was given."""
        name = f"barrier-{turn}"
        request = workloads.device_request(device_class=DEVICE_CLASS)
        if self._rules is not None:
            request["exactly"]["tolerations"] = [{"key": RULE_KEY, "operator": "Exists"}]
        namespace.create(
            workloads.claim(name, request), workloads.pod(name, claim=name, nodeSelector={DRIVER: str(turn)})
        )
        namespace.bound(name)
        device: str = namespace.claim(name)["status"]["allocation"]["devices"]["results"][0]["device"]
        return device


@contextmanager
def barrier(client: Client, *, rules: str | None = None) -> Iterator[Barrier]:
    """Put a barrier up for as long as it is needed; there is one at a time."""
    put_up = Barrier(client, rules=rules)
    put_up.put_up()
    try:
        yield put_up
    finally:
        put_up.remove()


def rules_path(kubernetes: str) -> str | None:
    """Where DeviceTaintRules are, in the newest version that a Kubernetes serves; None where it serves none."""
    if kubernetes in WITHOUT_RULES:
        return None
    return f"/apis/resource.k8s.io/{OLDER_RULES.get(kubernetes, 'v1')}/devicetaintrules"


def taint(key: str = RULE_KEY) -> Manifest:
    return {"key": key, "value": "true", "effect": "NoSchedule"}


def rule(name: str, spec: Manifest) -> Manifest:
    return {"kind": "DeviceTaintRule", "metadata": {"name": name}, "spec": spec}


def _device(name: str, turn: int) -> dict[str, Any]:
    return {"name": name, "attributes": {"turn": {"int": turn}}}
