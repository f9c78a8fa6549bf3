"""Manifests of a small cluster, and what `muster simulate` makes of them."""

import asyncio
import textwrap
from typing import Any

import yaml

from admission.simulation import expand as simulation_expand, offline
from admission.simulation.expand import Expanded
from admission.simulation.offline import GangOutcome, Outcome

Objects = list[dict[str, Any]]
RACK = "example.com/rack"


def objects(text: str) -> Objects:
    return [found for found in yaml.safe_load_all(textwrap.dedent(text)) if found]


def node(name: str, gpus: int) -> Objects:
    devices = [{"name": f"gpu-{number}"} for number in range(gpus)]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "nodeName": name, "pool": pool, "devices": devices}
    return [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}},
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec},
    ]


def in_rack(rack: str, name: str, gpus: int) -> Objects:
    """A node with a label that says in which rack it is."""
    made, *rest = node(name, gpus)
    return [{**made, "metadata": {"name": name, "labels": {RACK: rack}}}, *rest]


def job(name: str, *, pods: int = 1, gpus: int = 1, **metadata: Any) -> Objects:
    """A template of so many GPUs, and a Job whose pods use it."""
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": gpus}}
    template = {"spec": {"devices": {"requests": [request]}}}
    claims = [{"name": "gpu", "resourceClaimTemplateName": name}]
    pod = {
        "spec": {"containers": [{"name": "main", "image": "train"}], "resourceClaims": claims, "restartPolicy": "Never"}
    }
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": name},
            "spec": template,
        },
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, **metadata},
            "spec": {"parallelism": pods, "completions": pods, "template": pod},
        },
    ]


def teams(quota: int = 8) -> Objects:
    """One queue for every namespace, a class, and a meter that counts its devices."""
    return objects(f"""
        apiVersion: muster.dev/v1alpha1
        kind: Queue
        metadata: {{name: team}}
        spec:
          namespaceSelector: {{}}
          default: true
          quotas: [{{meter: gpus, nominal: {quota}}}]
        ---
        apiVersion: muster.dev/v1alpha1
        kind: Meter
        metadata: {{name: gpus}}
        spec: {{sources: [{{deviceClasses: [gpu], count: {{}}}}]}}
        ---
        apiVersion: resource.k8s.io/v1
        kind: DeviceClass
        metadata: {{name: gpu}}
        spec: {{}}
        """)


def expand(*parts: Objects, **options: Any) -> Expanded:
    return simulation_expand.expand([found for part in parts for found in part], **options)


def simulate(*parts: Objects, until_empty: bool = False) -> Outcome:
    cluster_state = expand(*parts)
    assert cluster_state.problems == ()
    return asyncio.run(offline.simulate(cluster_state, until_empty=until_empty))


def fates(outcome: Outcome) -> dict[str, str]:
    return {gang.name: gang.reason or gang.verdict for gang in outcome.gangs}


def of(outcome: Outcome, name: str) -> GangOutcome:
    return next(gang for gang in outcome.gangs if gang.name == name)


def nodes_of(gang: GangOutcome) -> list[str]:
    return sorted(pod.node for pod in gang.plan)


def use_of(outcome: Outcome, queue: str = "team", meter: str = "gpus") -> int:
    use = next(found for found in outcome.queues if found.name == queue).meters[meter]  # type: ignore[index]
    return use.reserved + use.used


RUNNING = """
    apiVersion: v1
    kind: Pod
    metadata: {name: old, labels: {muster.dev/queue: team}}
    spec:
      nodeName: one
      containers: [{name: main, image: train}]
      resourceClaims: [{name: gpu, resourceClaimName: old}]
    status: {phase: Running}
    ---
    apiVersion: resource.k8s.io/v1
    kind: ResourceClaim
    metadata: {name: old}
    spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu, count: 3}}]}}
    status:
      allocation:
        devices:
          results:
          - {request: gpu, driver: gpu.example.com, pool: one, device: gpu-0}
          - {request: gpu, driver: gpu.example.com, pool: one, device: gpu-1}
          - {request: gpu, driver: gpu.example.com, pool: one, device: gpu-2}
    """
