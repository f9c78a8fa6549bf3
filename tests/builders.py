"""A small cluster for tests, written as people would: `a_cluster().node("a", gpus=4).queue("q", gpus=8).job("j", …)`.

Everything goes through the decoders, as JSON does in real life.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from admission.api.capacity import node_shapes
from admission.api.capacity.node_shapes import NodeShape
from admission.api.kubernetes import claims, devices, jobs, nodes, pods
from admission.api.kubernetes.meta import Meta
from admission.api.muster import meters, queues
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import Uid

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
CLASS = "gpu.example.com"
NAMESPACE = "team"


class ClusterBuilder:
    """Collects objects; every method returns the builder."""

    def __init__(self) -> None:
        self._nodes: list[nodes.Node] = []
        self._slices: list[devices.Slice] = []
        self._queues: list[queues.Queue] = []
        self._pods: list[pods.Pod] = []
        self._claims: list[claims.Claim] = []
        self._jobs: list[jobs.Job] = []
        self._node_shapes: list[NodeShape] = []
        self._meters = [
            _meter("claims", {"claims": {}}),
            _meter("gpus", {"count": {}}),
        ]
        self._minutes = 0

    def node(
        self,
        name: str,
        *,
        gpus: int = 0,
        cpu: str = "64",
        model: str = "a100",
        labels: dict[str, str] | None = None,
        taints: Sequence[dict[str, str]] = (),
    ) -> Self:
        self._nodes.append(
            nodes.decode(
                {
                    "metadata": {"name": name, "labels": {names.HOSTNAME: name, **(labels or {})}},
                    "spec": {"taints": [*taints]},
                    "status": {"allocatable": {"cpu": cpu, "memory": "256Gi", "pods": "110"}},
                }
            )
        )
        if gpus:
            self._slices.append(devices.decode_slice(_slice(name, gpus, model)))
        return self

    def shape(
        self,
        name: str,
        *,
        gpus: int = 0,
        cpu: str = "64",
        most: int = 4,
        price: str | None = None,
        matches: dict[str, str] | None = None,
        pool: str = "",
        allocatable: dict[str, str] | None = None,
    ) -> Self:
        """Add a NodeShape, whose nodes have its name as their type, if nothing else is said."""
        devices = [{"name": f"gpu-{index}", "attributes": {"model": {"string": "a100"}}} for index in range(gpus)]
        spec: dict[str, Any] = {
            "maxCount": most,
            "matchLabels": matches or {"type": name},
            "allocatable": {"cpu": cpu, "memory": "256Gi", "pods": "110", **(allocatable or {})},
            "resourceSlices": [{"driver": CLASS, "devices": devices}] if gpus else [],
            **({"pricePerHour": price} if price is not None else {}),
            **({"nodePool": pool} if pool else {}),
        }
        self._node_shapes.append(node_shapes.decode({"metadata": {"name": name, "generation": 1}, "spec": spec}))
        return self

    def queue(self, name: str, *, gpus: int | None = None, claims: int = 100, **spec: Any) -> Self:
        quotas = [{"meter": "claims", "nominal": str(claims)}]
        if gpus is not None:
            quotas.append({"meter": "gpus", "nominal": str(gpus)})
        spec = {"namespaceSelector": {}, "quotas": quotas, **spec}
        self._queues.append(queues.decode({"metadata": {"name": name, "generation": 1}, "spec": spec}))
        return self

    def job(
        self,
        name: str,
        *,
        queue: str,
        pods: int = 1,
        gpus: int | tuple[int, ...] = 1,
        made: int | None = None,
        namespace: str = NAMESPACE,
        **pod: Any,
    ) -> Self:
        """Add a Job with its pods, gated, and their claims, as the webhook and the controllers would have made them."""
        uid = f"job-{name}"
        self._minutes += 1
        created = (NOON - timedelta(hours=1) + timedelta(minutes=self._minutes)).isoformat()
        meta = {"name": name, "namespace": namespace, "uid": uid, "creationTimestamp": created}
        spec = {"parallelism": pods, "completions": pods, "template": {}}
        self._jobs.append(jobs.decode({"metadata": meta, "spec": spec}))
        for index in range(pods if made is None else made):
            self.pod(
                f"{name}-{index}",
                queue=queue,
                gpus=gpus,
                owner=uid,
                job=name,
                created=created,
                namespace=namespace,
                **pod,
            )
        return self

    def pod(  # noqa: PLR0917 - keyword arguments in practice
        self,
        name: str,
        queue: str = "q",
        gpus: int | tuple[int, ...] = 1,
        owner: str = "",
        job: str = "",
        created: str = NOON.isoformat(),
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        claim: bool = True,
        cpu: str = "1",
        namespace: str = NAMESPACE,
    ) -> Self:
        meta: dict[str, Any] = {
            "name": name,
            "namespace": namespace,
            "uid": f"pod-{name}",
            "creationTimestamp": created,
            "labels": {names.QUEUE: queue, **(labels or {})},
            "annotations": annotations or {},
        }
        if owner:
            reference = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": owner, "controller": True}
            meta["ownerReferences"] = [reference]
        spec: dict[str, Any] = {
            "schedulingGates": [{"name": names.GATE}],
            "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}],
        }
        status: dict[str, Any] = {"phase": "Pending"}
        if gpus:
            sizes = "-".join(map(str, (gpus,) if isinstance(gpus, int) else gpus))
            spec["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": f"x{sizes}"}]
        if gpus and claim:
            status["resourceClaimStatuses"] = [{"name": "gpus", "resourceClaimName": f"{name}-gpus"}]
            manifest = claim_manifest(f"{name}-gpus", gpus, owner=f"pod-{name}", namespace=namespace)
            self._claims.append(claims.decode(manifest))
        self._pods.append(pods.decode({"metadata": meta, "spec": spec, "status": status}))
        return self

    def snapshot(self) -> Snapshot:
        spaces = {NAMESPACE, *(pod.meta.namespace for pod in self._pods)}
        klass = devices.decode_class({"metadata": {"name": CLASS}, "spec": {}})
        return Snapshot(
            nodes={node.name: node for node in self._nodes},
            namespaces={
                name: nodes.Namespace(meta=Meta(name=name), labels={"kubernetes.io/metadata.name": name})
                for name in spaces
            },
            slices={piece.meta.key: piece for piece in self._slices},
            classes={CLASS: klass},
            claims={claim.meta.key: claim for claim in self._claims},
            pods={pod.meta.uid: pod for pod in self._pods},
            jobs={job.meta.uid: job for job in self._jobs},
            queues={queue.name: queue for queue in self._queues},
            meters={meter.name: meter for meter in self._meters},
            shapes={shape.name: shape for shape in self._node_shapes},
        )


def a_cluster() -> ClusterBuilder:
    return ClusterBuilder()


def running(pod: pods.Pod, node: str) -> pods.Pod:
    """The pod as it is once its gate is open and it runs on a node."""
    return replace(pod, gates=(), node=names.NodeName(node), phase="Running", ready=True)


def let_in(pod: pods.Pod) -> pods.Pod:
    """The pod as it is once its gate is open, before it is bound."""
    return replace(pod, gates=())


def with_pods(snapshot: Snapshot, *changed: pods.Pod, without: tuple[str, ...] = ()) -> Snapshot:
    """The snapshot with some pods changed and some gone."""
    left = {uid: pod for uid, pod in snapshot.pods.items() if pod.meta.name not in without}
    return replace(snapshot, pods=left | {pod.meta.uid: pod for pod in changed})


def pod_of(snapshot: Snapshot, name: str) -> pods.Pod:
    return snapshot.pods[Uid(f"pod-{name}")]


def _meter(name: str, measure: dict[str, Any]) -> meters.Meter:
    spec = {"sources": [{"deviceClasses": [CLASS], **measure}]}
    return meters.decode({"metadata": {"name": name, "generation": 1}, "spec": spec})


def _slice(node: str, gpus: int, model: str) -> dict[str, Any]:
    return {
        "metadata": {"name": f"{node}-slice", "uid": f"slice-{node}", "resourceVersion": "1"},
        "spec": {
            "driver": CLASS,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{index}", "attributes": {"model": {"string": model}}} for index in range(gpus)],
        },
    }


def claim_manifest(name: str, gpus: int | tuple[int, ...], *, owner: str, namespace: str = NAMESPACE) -> dict[str, Any]:
    """Return a claim for GPUs. gpus: of several numbers the first that is available."""
    counts = (gpus,) if isinstance(gpus, int) else gpus
    options = [{"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": count} for count in counts]
    request = (
        {"name": "gpus", "exactly": options[0]}
        if isinstance(gpus, int)
        else {
            "name": "gpus",
            "firstAvailable": [{"name": f"x{one['count']}", **one} for one in options],
        }
    )
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "-", "uid": owner, "controller": True}
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": f"claim-{name}", "ownerReferences": [reference]},
        "spec": {"devices": {"requests": [request]}},
    }
