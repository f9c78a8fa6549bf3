"""Karpenter beside a control plane: its core with its KWOK provider, which starts a node by making a Node object.

KWOK plays the nodes. Nobody publishes their devices: that is a driver's part, and a test's.
"""

import json
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.controlplane import building, modules
from tests.controlplane.clients import Client
from tests.controlplane.fleet import Manifest
from tests.controlplane.observing import eventually
from tests.controlplane.processes import Family, Program, tail
from tests.controlplane.running import ControlPlane

MODULE = "sigs.k8s.io/karpenter"
CRDS = ("pkg/apis/crds", "kwok/apis/crds")
NODE_CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
NODE_POOLS = "/apis/karpenter.sh/v1/nodepools"
NODE_CLASSES = "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses"
SOLD_OUT = "test.muster.dev/sold-out"
"""Label: NodeClaims that have it, with the value `true`, are refused for want of machines."""


def version() -> str:
    """Return the version of Karpenter that is built."""
    found = re.search(rf"^\s*{re.escape(MODULE)} (v\S+)$", (building.KARPENTER / "go.mod").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


class Karpenter:
    """One Karpenter, usable as a context manager, with one instance type, NodePool and NodeClass of the same name."""

    def __init__(
        self,
        control_plane: ControlPlane,
        name: str,
        *,
        labels: Mapping[str, str],
        resources: Mapping[str, str],
        slices: Sequence[Manifest],
    ) -> None:
        """Choose what its nodes are like.

        labels: of the NodePool's template. slices: driver and devices of the ResourceSlices that it expects of a node.
        """
        self._binary = building.karpenter()
        self.client: Client = control_plane.client()
        self.name = name
        self._control_plane = control_plane
        self._labels = dict(labels)
        self._resources = dict(resources)
        self._slices = list(slices)
        self._folder = Path(tempfile.mkdtemp(prefix="muster-karpenter-"))
        self._family = Family(self._folder)
        self._program: Program | None = None

    def __enter__(self) -> Self:
        try:
            self._define()
            self.start()
            eventually(self._works, what=f"NodePool {self.name} is ready")
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *unused: object) -> None:
        self.end()

    def start(self, *, ignores_claims: bool = False) -> None:
        """Start the program, in place of one that runs.

        ignores_claims: its default, in which it starts no node for a pod with claims.
        """
        if self._program is not None:
            self._program.end(hard=True)
        types, devices = self._folder / "types.json", self._folder / "devices.json"
        types.write_text(json.dumps([self._instance_type()]))
        devices.write_text(json.dumps({self.name: self._slices}))
        environment = {
            "KUBECONFIG": self._control_plane.kubeconfig,
            "INSTANCE_TYPES_FILE_PATH": types,
            "DEVICES_FILE_PATH": devices,
            "IGNORE_DRA_REQUESTS": str(ignores_claims).lower(),
            "DISABLE_LEADER_ELECTION": "true",
            "METRICS_PORT": 0,
            "HEALTH_PROBE_PORT": 0,
        }
        words = [f"{name}={value}" for name, value in environment.items()]
        self._program = self._family.start("karpenter", ["env", *words, str(self._binary)])

    def end(self) -> None:
        """End it for good. Its nodes and NodeClaims stay."""
        if self._program is not None:
            self._program.end(hard=True)
        self._family.end()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def log(self) -> str:
        assert self._program is not None
        return self._program.log.read_text(errors="replace")

    @property
    def nodes(self) -> list[Any]:
        """The nodes that it has started."""
        return self.client.items(f"/api/v1/nodes?labelSelector=karpenter.sh%2Fnodepool%3D{self.name}")

    @property
    def claims(self) -> list[Any]:
        """Its NodeClaims."""
        return self.client.items(NODE_CLAIMS)

    def sell_out(self, *, sold_out: bool) -> None:
        """Have launches refused, or no longer."""
        labels = {SOLD_OUT: "true" if sold_out else None}
        changes = {"spec": {"template": {"metadata": {"labels": labels}}}}
        self.client.merge_patch(f"{NODE_POOLS}/{self.name}", changes)

    def _define(self) -> None:
        source = modules.source(MODULE, version(), used_by=building.KARPENTER)
        paths = [path for folder in CRDS for path in sorted((source / folder).glob("*.yaml"))]
        files = [word for path in paths for word in ("-f", str(path))]
        self._control_plane.kubectl("apply", "--server-side", *files)
        self._control_plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", *files)
        api = {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass"}
        self.client.apply(f"{NODE_CLASSES}/{self.name}", {**api, "metadata": {"name": self.name}, "spec": {}})
        self.client.apply(f"{NODE_POOLS}/{self.name}", self._node_pool())

    def _node_pool(self) -> Manifest:
        """A NodePool of three nodes at most, which are taken away as soon as they are empty."""
        node = {
            "requirements": [_one_of("node.kubernetes.io/instance-type", self.name)],
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": self.name},
            "expireAfter": "Never",
        }
        return {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": {"name": self.name},
            "spec": {
                "template": {"metadata": {"labels": self._labels}, "spec": node},
                "disruption": {
                    "consolidationPolicy": "WhenEmpty",
                    "consolidateAfter": "0s",
                    "budgets": [{"nodes": "100%"}],
                },
                "limits": {"nodes": "3"},
            },
        }

    def _instance_type(self) -> Manifest:
        placed = [_one_of("karpenter.sh/capacity-type", "on-demand"), _one_of("topology.kubernetes.io/zone", "zone-a")]
        return {
            "name": self.name,
            "offerings": [{"Price": 31.5, "Available": True, "Requirements": placed}],
            "architecture": "amd64",
            "operatingSystems": ["linux"],
            "resources": self._resources,
        }

    def _works(self) -> bool:
        assert self._program is not None
        assert not self._program.ended, f"Karpenter ended:\n{tail(self._program.log, 30)}"
        conditions = self.client.get(f"{NODE_POOLS}/{self.name}").get("status", {}).get("conditions", [])
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _one_of(key: str, *values: str) -> Manifest:
    return {"key": key, "operator": "In", "values": list(values)}
