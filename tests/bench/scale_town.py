"""A large cluster as an API server shows it: nodes, slices, Jobs, pods and claims of ordinary size, as JSON.

Objects carry what real ones carry that Muster does not read (managedFields, images, conditions, volumes), since reading
past it is part of what is measured. Pods are in gangs of five, each with one claim for one GPU. Of the gangs, those
with the lowest numbers run, and the others wait for quota.
"""

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from admission.accounting import books
from admission.accounting.books import Book
from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.api.muster.ledger_entries import Entry, Holding, Seat
from admission.api.values import names
from admission.api.values.names import GangUid, MeterName, NodeName, QueueName, Uid
from tests.bench import cluster

Json = dict[str, Any]

DRIVER, CLASS, GPUS = "gpu.example.com", "gpu", MeterName("gpus")
DEVICES, PODS = 8, 5
NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
TEMPLATE = "one-gpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much there is. running: of the gangs. queues: leaves, each with a namespace of its own."""

    nodes: int = 5_000
    gangs: int = 10_000
    running: int = 7_800
    queues: int = 100


def namespace(gang: int, size: Size) -> str:
    return f"team-{gang % size.queues}"


def node_of(gang: int, pod: int) -> int:
    """Return the node of a pod that runs."""
    return (gang * PODS + pod) // DEVICES


def claim_key(gang: int, pod: int, size: Size) -> str:
    return f"{namespace(gang, size)}/{gang_name(gang)}-{pod}-gpu"


def gang_name(gang: int) -> str:
    return f"pretrain-{gang:05}"


def everything(size: Size) -> Iterator[tuple[str, Json]]:
    """Yield every object with the path of its collection."""
    yield from _fixed(size)
    for at in range(size.nodes):
        yield "/api/v1/nodes", node(at)
        yield "/apis/resource.k8s.io/v1/resourceslices", _slice(at)
    for gang in range(size.gangs):
        yield from members(gang, size, running=gang < size.running)


def members(gang: int, size: Size, *, running: bool = False, queue: str = "") -> Iterator[tuple[str, Json]]:
    """Yield a Job with its pods and claims, as webhook and controllers have made them. queue: not its namespace's."""
    queue = queue or f"queue-{gang % size.queues}"
    yield "/apis/batch/v1/jobs", job(gang, size)
    for at in range(PODS):
        yield "/api/v1/pods", pod(gang, at, size, queue=queue, running=running)
        yield "/apis/resource.k8s.io/v1/resourceclaims", claim(gang, at, size, running=running)


def _fixed(size: Size) -> Iterator[tuple[str, Json]]:
    yield "/api/v1/namespaces", {"metadata": {"name": "muster-system"}}
    quotas = {"": size.nodes * DEVICES, "express": size.nodes * DEVICES}
    held = -(-size.running // size.queues) * PODS
    for at in range(size.queues):
        labels = {"kubernetes.io/metadata.name": f"team-{at}", "team": f"team-{at}"}
        yield "/api/v1/namespaces", {"metadata": {"name": f"team-{at}", "labels": labels}}
        # What runs there is all that it may have.
        quotas[f"queue-{at}"] = held
        exactly = {"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": 1}
        spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
        template = {"metadata": {"name": TEMPLATE, "namespace": f"team-{at}"}, "spec": {"spec": spec}}
        yield "/apis/resource.k8s.io/v1/resourceclaimtemplates", template
    for name, nominal in quotas.items():
        if name:
            given = [{"meter": GPUS, "nominal": str(nominal)}]
            yield (
                f"/apis/{names.API_VERSION}/queues",
                {
                    "metadata": {"name": name, "generation": 1, "finalizers": [names.IN_USE]},
                    "spec": {"namespaceSelector": {}, "quotas": given},
                },
            )
    meter = {"sources": [{"deviceClasses": [CLASS], "count": {}}]}
    yield f"/apis/{names.API_VERSION}/meters", {"metadata": {"name": GPUS, "generation": 1}, "spec": meter}
    selectors = [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]
    yield "/apis/resource.k8s.io/v1/deviceclasses", {"metadata": {"name": CLASS}, "spec": {"selectors": selectors}}


def node(at: int) -> Json:
    """Return a node, whose heartbeat may be changed."""
    name = node_name(at)
    beat = {"lastHeartbeatTime": _time(NOON), "lastTransitionTime": _time(NOON), "status": "False", "message": "fine"}
    images = [{"names": [f"registry.example.com/ml/image-{n}@sha256:{n:064}"], "sizeBytes": 10**9} for n in range(10)]
    resources = {"cpu": "96", "memory": "1Ti", "pods": "110", "ephemeral-storage": "3Ti"}
    return {
        "metadata": {
            **_meta(name, "kubelet", 20),
            "labels": {
                names.HOSTNAME: name,
                "node.kubernetes.io/instance-type": "p5.48xlarge",
                "topology.kubernetes.io/region": "eu-west-1",
                "topology.kubernetes.io/zone": f"eu-west-1{'abc'[at % 3]}",
                "example.com/rack": f"rack-{at // 16}",
            },
        },
        "spec": {"podCIDR": "10.0.0.0/24", "providerID": f"aws:///{name}"},
        "status": {
            "allocatable": resources,
            "capacity": resources,
            "conditions": [
                {"type": kind, **beat} for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
            ],
            "images": images,
            "nodeInfo": {"kubeletVersion": "v1.37.1", "osImage": "Debian", "architecture": "amd64"},
        },
    }


def node_name(at: int) -> NodeName:
    return NodeName(f"node-{at:05}")


def _slice(at: int) -> Json:
    name = node_name(at)
    given = [
        {
            "name": f"gpu-{gpu}",
            "attributes": {
                "model": {"string": "H100"},
                "uuid": {"string": f"GPU-{at:08}-{gpu}"},
                "pcieRoot": {"string": f"pci0000:{gpu // 2:02}"},
                "driverVersion": {"version": "570.1.0"},
            },
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for gpu in range(DEVICES)
    ]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "pool": pool, "nodeName": name, "devices": given}
    return {"metadata": _meta(f"slice-{at:05}", "driver", 40), "spec": spec}


def job(gang: int, size: Size) -> Json:
    """Return a Job of five pods."""
    name = gang_name(gang)
    spec = cluster._spec(name)
    meta = {**_meta(name, "kube-controller-manager", 30, namespace(gang, size)), "uid": f"job-{gang}"}
    own = {"labels": {"job-name": name}, "annotations": {names.USER: "alice@example.com"}}
    counts = {"parallelism": PODS, "completions": PODS, "completionMode": "Indexed"}
    return {"metadata": meta, "spec": {**counts, "template": {"metadata": own, "spec": spec}}}


_POD = cluster._pod(0, "")


def pod(gang: int, at: int, size: Size, *, queue: str, running: bool) -> Json:
    """Return a pod with a claim for one GPU."""
    made = copy.deepcopy(_POD)
    name = f"{gang_name(gang)}-{at}"
    owner = {**made["metadata"]["ownerReferences"][0], "name": gang_name(gang), "uid": f"job-{gang}"}
    told = {"batch.kubernetes.io/controller-uid": f"job-{gang}", "batch.kubernetes.io/job-name": gang_name(gang)}
    made["metadata"] |= {
        **_meta(name, "kube-controller-manager", 60, namespace(gang, size)),
        "uid": f"pod-{gang}-{at}",
        "ownerReferences": [owner],
        "labels": {**made["metadata"]["labels"], **told, names.QUEUE: queue},
        "annotations": {"batch.kubernetes.io/job-completion-index": str(at), names.USER: "alice@example.com"},
    }
    spec = made["spec"]
    spec["nodeSelector"] = {}
    for container in (*spec["initContainers"], *spec["containers"]):
        container["resources"] = {"requests": {"cpu": "8", "memory": "100Gi"}, "claims": [{"name": "gpu"}]}
    spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": TEMPLATE}]
    named = [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}]
    made["status"] = {"phase": "Pending", "resourceClaimStatuses": named}
    if running:
        start(made, node_name(node_of(gang, at)))
    else:
        spec["schedulingGates"] = [{"name": names.GATE}]
    return made


def start(made: Json, node: str) -> None:
    """Let a pod run, as kube-scheduler and the kubelet do."""
    state = {"running": {"startedAt": _time(NOON)}}
    made["spec"]["nodeName"] = node
    made["status"] |= {
        "phase": "Running",
        "startTime": _time(NOON),
        "podIP": "10.1.2.3",
        "hostIP": "10.0.0.3",
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": _time(NOON)}
            for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        ],
        "containerStatuses": [
            {"name": "train", "ready": True, "restartCount": 0, "state": state, "imageID": f"sha256:{7:064}"}
        ],
    }


def claim(gang: int, at: int, size: Size, *, running: bool) -> Json:
    """Return a pod's claim."""
    name = f"{gang_name(gang)}-{at}"
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"pod-{gang}-{at}", "controller": True}
    meta = _meta(f"{name}-gpu", "kube-controller-manager", 20, namespace(gang, size))
    exactly = {"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": 1}
    made: Json = {
        "metadata": {**meta, "uid": f"claim-{gang}-{at}", "ownerReferences": [owner]},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }
    if running:
        number = gang * PODS + at
        allocate(made, node_name(number // DEVICES), f"gpu-{number % DEVICES}", f"pod-{gang}-{at}")
    return made


def allocate(made: Json, node: str, device: str, pod: str) -> None:
    """Give a claim a device, as kube-scheduler does."""
    here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    result = {"request": "gpu", "driver": DRIVER, "pool": node, "device": device}
    made["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]
    made["status"] = {
        "allocation": {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [here]}},
        "reservedFor": [{"resource": "pods", "name": pod, "uid": pod}],
    }


def entries(size: Size) -> Iterator[Entry]:
    """Yield how the books of such a cluster came about: every gang that runs was granted its devices and has them."""
    at = NOON - timedelta(days=1)
    for gang in range(size.running):
        seats, holdings = [], []
        for pod_ in range(PODS):
            number, uid = gang * PODS + pod_, Uid(f"claim-{gang}-{pod_}")
            device = DeviceId(DRIVER, node_name(number // DEVICES), f"gpu-{number % DEVICES}")
            key = f"{namespace(gang, size)}/{gang_name(gang)}-{pod_}"
            holdings.append(
                Holding(
                    claim_uid=uid,
                    claim=f"{key}-gpu",
                    devices=(RequestDevice(request="gpu", device=device),),
                    charge={GPUS: 1},
                    classes={CLASS: 1},
                )
            )
            node = node_name(number // DEVICES)
            seats.append(Seat(pod_uid=Uid(f"pod-{gang}-{pod_}"), pod=key, node=node, claims=(uid,)))
        reserved = books.reserve(
            gang_uid=GangUid(f"job-{gang}"),
            gang=f"{namespace(gang, size)}/{gang_name(gang)}",
            queue=QueueName(f"queue-{gang % size.queues}"),
            seats=seats,
            holdings=holdings,
            at=at,
            actor="bench",
            reason="",
            on_behalf_of="",
        )
        yield reserved
        (placement,) = Book.replay([reserved]).placements.values()
        what = {h.claim_uid: books.Allocated(h.devices, h.charge, h.classes) for h in holdings}
        settled = books.settle(placement, what, at=at, actor="bench")
        if settled is not None:
            yield settled


def _meta(name: str, manager: str, fields: int, namespace: str = "") -> Json:
    owned: Json = {f"f:field-{at}": {".": {}, f'k:{{"name":"{at}"}}': {}} for at in range(fields)}
    return {
        "name": name,
        **({"namespace": namespace} if namespace else {}),
        "uid": f"uid-{name}",
        "creationTimestamp": _time(NOON - timedelta(hours=5)),
        "generation": 1,
        "managedFields": [
            {
                "manager": manager,
                "operation": "Update",
                "apiVersion": "v1",
                "time": _time(NOON),
                "fieldsType": "FieldsV1",
                "fieldsV1": {"f:metadata": owned},
            }
        ],
    }


def _time(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


def size_of(made: Json) -> int:
    """Return the bytes of an object as JSON."""
    return len(json.dumps(made, separators=(",", ":")))
