"""RayCluster (ray.io), and with it RayJob and RayService, which make their pods through a RayCluster.

The head and the workers are created together. With autoscaling the cluster starts with the minimum of its workers; Ray
requests the others later. A RayJob submits its job with a batch Job of its own, which is created when the cluster is up
and is not part of the gang (`ray-operator/controllers/ray/utils/util.go`, CalculateMinReplicas, v1.5).

A RayJob that is held as a whole has no RayCluster yet: its pods are planned from the RayCluster that it would create,
so they belong to the RayJob afterwards too. Each retry creates another RayCluster, which is another gang.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from admission.api.kubernetes import active_deadline
from admission.api.kubernetes.jobs import PodTemplate
from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.owners import Parent
from admission.api.kubernetes.pods import Pod
from admission.api.values import names
from admission.api.values.decoding import Json, Reader
from admission.workloads.kinds.registry import Link, Member, Shape, WorkloadKind, one_wave

NODE_TYPE = "ray.io/node-type"
GROUP = "ray.io/group"
HEAD_GROUP = "headgroup"
REPLICA = "ray.io/worker-group-replica-name"
"""The label shared by the hosts of one replica, in groups whose replicas have several hosts."""

REPLICA_INDEX = "ray.io/worker-group-replica-index"
HOST_INDEX = "ray.io/replica-host-index"
CLUSTER_NAME = "ray.io/cluster"

CLUSTER = ("spec", "rayClusterSpec")

SIDECAR_MODE = "SidecarMode"
INTERACTIVE_MODE = "InteractiveMode"


def _container(name: str, cpu: str, memory: str) -> Json:
    return {"name": name, "resources": {"requests": {"cpu": cpu, "memory": memory}}}


WAITS_FOR_HEAD = _container("wait-gcs-ready", "200m", "256Mi")
SUBMITTER = _container("ray-job-submitter", "500m", "200Mi")
AUTOSCALER = _container("autoscaler", "500m", "512Mi")
"""The containers that the operator adds to pods, and their requests unless the autoscaler's resources are set
(`ray-operator/controllers/ray/common/pod.go` and `job.go`, v1.7). WAITS_FOR_HEAD can be disabled there."""


def read(reader: Reader, _meta: Meta) -> Shape:
    """Return the head and the workers of all groups."""
    return _shape(reader.child("spec"))


def read_job(reader: Reader, _meta: Meta) -> Shape:
    """Return the shape of the RayCluster that a RayJob creates."""
    return _shape(_cluster(reader))


def _cluster(reader: Reader) -> Reader:
    return reader.child("spec").child("rayClusterSpec")


def _shape(spec: Reader) -> Shape:
    least = most = 0
    for group in spec.children("workerGroupSpecs"):
        minimum, initial, hosts = _replicas(group)
        least += minimum * hosts
        most += initial * hosts
    scales = spec.flag("enableInTreeAutoscaling")
    return one_wave(1 + most, 1 + least if scales else None)


def _replicas(group: Reader) -> tuple[int, int, int]:
    """Return the least and the initial number of a worker group's replicas, and the hosts per replica."""
    if group.flag("suspend"):
        return 0, 0, 1
    minimum = group.integer("minReplicas")
    initial = max(group.integer("replicas", minimum), minimum)
    if "maxReplicas" in group:
        initial = min(initial, group.integer("maxReplicas"))
    return minimum, initial, group.integer("numOfHosts", 1)


def may_suspend(reader: Reader) -> bool:
    """Return whether the operator supports suspending this RayJob; it fails others at once, or does not stop them.

    (`ray-operator/controllers/ray/utils/validation.go`, ValidateRayJobSpec, and `rayjob_controller.go`,
    updateStatusToSuspendingIfNeeded, v1.7)
    """
    spec = reader.child("spec")
    shuts_down = spec.flag("shutdownAfterJobFinishes")
    return shuts_down and not spec.pairs("clusterSelector") and spec.text("submissionMode") != INTERACTIVE_MODE


def templates(reader: Reader, meta: Meta) -> Iterator[PodTemplate]:
    """Yield the templates of the RayCluster that a RayJob creates, with the containers that the operator adds."""
    spec = _cluster(reader)
    head = spec.child("headGroupSpec").object("template")
    cluster = names.unknown_label(meta.name)
    yield PodTemplate(
        path=(*CLUSTER, "headGroupSpec", "template"),
        body=_with_containers(head, "containers", _workers(reader.child("spec"), spec)),
        pods=1,
        name=f"{meta.name}-head",
        labels=_labels(head, cluster, "head", HEAD_GROUP),
    )
    for number, group in enumerate(spec.children("workerGroupSpecs")):
        _, replicas, hosts = _replicas(group)
        name, template = group.text("groupName"), group.object("template")
        yield PodTemplate(
            path=(*CLUSTER, "workerGroupSpecs", number, "template"),
            body=_with_containers(template, "initContainers", [WAITS_FOR_HEAD]),
            pods=replicas * hosts,
            name=f"{meta.name}-{name}-worker",
            labels=_labels(template, cluster, "worker", name),
            part_labels={REPLICA_INDEX: hosts, REPLICA: hosts} if hosts > 1 else {REPLICA_INDEX: 1},
            index_labels={HOST_INDEX: hosts} if hosts > 1 else {},
        )


def _labels(template: Json, cluster: str, node_type: str, group: str) -> dict[str, str]:
    """Return the labels that the operator adds (`common/pod.go`, labelPod). A template may have others of some.

    cluster: the name of the RayCluster, whose last letters are drawn by lot.
    """
    added = {
        "ray.io/is-ray-node": "yes",
        "ray.io/identifier": f"{cluster}-{node_type}",
        "app.kubernetes.io/name": "kuberay",
        "app.kubernetes.io/created-by": "kuberay-operator",
    }
    given = Reader(template).child("metadata").pairs("labels")
    kept = {key: given.get(key, value) for key, value in added.items()}
    return {**kept, CLUSTER_NAME: cluster, NODE_TYPE: node_type, GROUP: group}


def _workers(job: Reader, cluster: Reader) -> list[Json]:
    """Return the containers that the operator adds to the head."""
    found: list[Json] = [SUBMITTER] if job.text("submissionMode") == SIDECAR_MODE else []
    if cluster.flag("enableInTreeAutoscaling"):
        options = cluster.child("autoscalerOptions")
        resources = {"resources": options.object("resources")} if "resources" in options else {}
        found.append({**AUTOSCALER, **resources})
    return found


def _with_containers(template: Json, where: str, more: Sequence[Json]) -> Json:
    """Return a template with additional containers."""
    spec: Any = template.get("spec")
    if not more or not isinstance(spec, Mapping):
        return template
    containers = spec.get(where) or []
    return {**template, "spec": {**spec, where: [*containers, *more]}} if isinstance(containers, list) else template


def attempt(reader: Reader) -> str:
    """Return the attempt of a RayJob: its failed attempts, which the operator records before the next one begins."""
    failed = reader.child("status").integer("failed")
    return str(failed) if failed else ""


ENDED = frozenset({"Complete", "Failed", "ValidationFailed"})


def has_ended(reader: Reader) -> bool:
    """Return whether a RayJob has ended. Its cluster may remain for `ttlSecondsAfterFinished`, suspended or not."""
    return reader.child("status").text("jobDeploymentStatus") in ENDED


def join_job(_pod: Pod, _links: Sequence[Link], parent: Parent) -> Member:
    """Return a member of a RayJob's present attempt."""
    return Member(uid=parent.meta.uid, name=parent.meta.name, attempt=parent.attempt)


CLUSTERS = WorkloadKind(
    kind="RayCluster",
    group="ray.io",
    versions=("v1", "v1alpha1"),
    plural="rayclusters",
    read=read,
    fields="spec.workerGroupSpecs",
)

KINDS = (
    CLUSTERS,
    WorkloadKind(
        kind="RayJob",
        group="ray.io",
        versions=("v1", "v1alpha1"),
        plural="rayjobs",
        read=read_job,
        join=join_job,
        fields="spec.rayClusterSpec.workerGroupSpecs",
        suspend=("spec", "suspend"),
        deadline=("spec", active_deadline.FIELD),
        may_suspend=may_suspend,
        templates=templates,
        creates_kind=CLUSTERS.key,
        attempt=attempt,
        has_ended=has_ended,
    ),
)
