"""The names that users and other programs see: labels, annotations, the scheduling gate, the API group."""

from datetime import UTC, datetime
from enum import StrEnum
from typing import NewType

GROUP = "muster.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

GATE = "muster.dev/admission"
"""The scheduling gate that holds a pod until its gang is admitted."""

QUEUE = "muster.dev/queue"
GANG = "muster.dev/gang"
GANG_SIZE = "muster.dev/gang-size"
GANG_MIN = "muster.dev/gang-min"
QUEUE_ALIAS = "muster.dev/queue-alias"
"""The queue's name in another queueing system's label of a Job; the webhook copies it into the Job's pod template."""
RUNTIME = "muster.dev/runtime"
PRIORITY_CLASS = "muster.dev/priority-class"
"""Names a priority class of the queue, which counts in place of the pod's priority for the order and for preemption."""
CLAIMS = "muster.dev/claims"
TOPOLOGY = "muster.dev/topology"
"""Names a label of nodes: all pods of the gang go to nodes with one value of it."""
TOPOLOGY_PREFERRED = "muster.dev/topology-preferred"
"""The same as a preference."""
SUBGROUP = "muster.dev/subgroup"
"""Names the subgroup of its gang to which a pod belongs."""
SUBGROUP_TOPOLOGY = "muster.dev/subgroup-topology"
"""Names a label of nodes: all pods of this subgroup go to nodes with one value of it."""
SUBGROUP_TOPOLOGY_PREFERRED = "muster.dev/subgroup-topology-preferred"
"""The same as a preference."""

USER = "muster.dev/user"
"""Annotation of a pod in a queue, and of a Job's pod template: the API server's name of the workload's creator."""

REQUIRE_QUEUE = "muster.dev/require-queue"
REQUIRED = "true"
"""Label of a namespace, and its value, where pods that ask for devices and enter no queue are refused."""

TRACE = "muster.dev/traceparent"
"""Annotation of a pod in a queue, if tracing is on: the trace that it continues (W3C Trace Context)."""

REQUEUED = "muster.dev/requeued"
"""Annotation of a Job that Muster has suspended to evict its pods, and will resume as soon as they are gone."""

HELD = "muster.dev/held"
"""Annotation of a workload that is held as a whole: a `Held`. Only the webhook and the controller write it."""

COMPLETE = "muster.dev/complete"
"""Annotation of a Job's pod template whose pods lack nothing but the gate, which a policy in the API server adds. The
webhook writes it, and takes out of new Jobs what somebody else wrote."""

GANG_UID = "muster.dev/gang-uid"
"""Annotation of an Event: the UID of its gang, as in logs and in the ledger."""

POSITION_KEY = "muster.dev/line"
"""Annotation of a Gang that Muster created: its position key, equal for the gangs that replace each other."""

PLACEMENT = "muster.dev/placement"
"""Annotation of a claim that Muster has allocated, or of a claim or pod that it has withdrawn: which, and when."""

POLICY = "muster.dev/policy"
"""Label of a ResourceClaimTemplate that Muster keeps for a ClaimPolicy: the policy's name."""

TEMPLATE = "muster.dev/template"
"""Annotation of such a template: a proof that it was made for this policy and namespace, and a digest of its spec."""

CONVERTED = "muster.dev/converted"
"""Annotation of a pod, and of a template that Muster makes for such pods: the extended resources that became claims."""

PROOF = "muster.dev/proof"
"""Label of a Lease in a dry run, and annotation that the webhook adds to it: a proof that the webhook is reached."""
SEEN = "seen"
"""The value of that annotation."""

IN_USE = "muster.dev/in-use"
"""Finalizer of a Queue, which stays while gangs of the queue or of its descendants have open seats or holdings."""

MANAGED_BY = "app.kubernetes.io/managed-by"
"""Label that distinguishes Gangs created by Muster from those created by users."""

FIELD_MANAGER = "muster"
"""Owner of the fields that Muster applies on the server side."""

HOSTNAME = "kubernetes.io/hostname"

SCALE_DOWN = "muster.dev/scale-down-disabled"
"""Annotation of a node: which annotations Muster has put on it to keep autoscalers from taking it away."""

CONSUMED_REQUEST = "autoscaling.x-k8s.io/consume-provisioning-request"
"""Annotation of a pod: the name of the ProvisioningRequest for whose capacity it was made."""

MATCHED_LABELS = "muster.dev/matched-labels"
"""Annotation of a ProvisioningRequest: `matchLabels` of the NodeShapes whose nodes it asks for, by shape, as JSON."""

PROVISIONING_CLASS = "autoscaling.x-k8s.io/provisioning-class-name"
"""Annotation of such a pod: the class of that request. Cluster Autoscaler needs both."""

QueueName = NewType("QueueName", str)
MeterName = NewType("MeterName", str)
NodeName = NewType("NodeName", str)
Uid = NewType("Uid", str)
GangUid = NewType("GangUid", str)
"""Identity of a gang: the UID of the owner that makes its pods, or of a lone pod. Never from a label."""


class Held(StrEnum):
    """The state of a workload that is held as a whole."""

    WAITING = "waiting"
    """Muster has suspended it, and resumes it when its gang may start."""
    STARTED = "started"
    """Muster has resumed it. If it is suspended, another client has done that."""


def expected_pod(workload: Uid, number: int) -> Uid:
    """Return the placeholder UID of a pod that a workload will make once it is resumed.

    It contains a slash, so it differs from the UID of any object.
    """
    return Uid(f"{workload}{_EXPECTED}{number}")


def expected_claim(pod: Uid, name: str) -> Uid:
    """Return the placeholder UID of a claim of such a pod. name: the claim's name in the pod."""
    return Uid(f"{pod}/{name}")


def workload_of(uid: Uid) -> Uid:
    """Return the UID of the workload from the placeholder UID of a pod or claim."""
    return Uid(uid.partition(_EXPECTED)[0])


def is_expected(uid: Uid) -> bool:
    """Return whether a UID is a placeholder from `expected_pod` or `expected_claim`, for an object to be created."""
    return _EXPECTED in uid


def unknown_label(text: str) -> str:
    """Return a value in place of one that is only known once its object exists, such as the UID of a Job.

    It is equal where the real ones are. text: names the object.
    """
    return f"{UNKNOWN_LABEL}{text}"


def extended_claim(pod: Uid) -> Uid:
    """Return the placeholder UID of a pod's claim for extended resources.

    kube-scheduler creates that claim when it binds the pod, so a plan, its charge and its reservation exist long before
    the claim has a UID.
    """
    return Uid(f"{pod}{_EXTENDED}")


def is_extended_claim(claim: Uid) -> bool:
    """Return whether a UID is one of `extended_claim`."""
    return claim.endswith(_EXTENDED)


def resources_claim(pod: Uid) -> Uid:
    """Return the UID that stands for what a pod takes of its node without a claim: CPU, memory, a device plugin's."""
    return Uid(f"{pod}{_RESOURCES}")


def pod_of_resources_claim(claim: Uid) -> Uid | None:
    """Return the pod of a UID from `resources_claim`; None for other UIDs."""
    return Uid(claim.removesuffix(_RESOURCES)) if claim.endswith(_RESOURCES) else None


def node_to_come(
    shape: str, number: int, joined_at: datetime | None = None, *, asked_at: datetime | None = None
) -> NodeName:
    """Return what stands for a node that was asked for, until it comes and after: its NodeShape, and its number there.

    joined_at: when it was asked for, of pods that join a gang of which others had started before. asked_at: when, of
    the pods of its start; None for people. It has slashes, so it differs from the name of any node.
    """
    mark, at = ("/", joined_at) if joined_at is not None else ("@", asked_at)
    time = "" if at is None else f"{mark}{at.astimezone(UTC).isoformat(timespec='microseconds')}"
    return NodeName(f"{_TO_COME}{shape}/{number}{time}")


def shape_of(node: NodeName) -> str | None:
    """Return the NodeShape of a name from `node_to_come`; None for other names."""
    return node.removeprefix(_TO_COME).partition("/")[0] if node.startswith(_TO_COME) else None


def joined_at(node: NodeName) -> datetime | None:
    """Return when a node was asked for, of pods that join a started gang; None for those of its start, and others."""
    at = node.split("/")[3:] if node.startswith(_TO_COME) else []
    return datetime.fromisoformat(at[0]) if at else None


def asked_at(node: NodeName) -> datetime | None:
    """Return when a node was asked for; None for others, and for those that an older Muster asked for."""
    at = node.partition("@")[2] if node.startswith(_TO_COME) else ""
    return datetime.fromisoformat(at) if at else joined_at(node)


def for_people(node: NodeName) -> NodeName:
    """Return the name of a node, or what stands for one that was asked for, without the time of a gang's start."""
    return NodeName(node.partition("@")[0])


UNKNOWN_LABEL = "not-known-yet."
"""What values of labels begin with that `unknown_label` returns."""

_TO_COME = "nodeshape/"
_EXPECTED = "/expected/"
_EXTENDED = "/extended-resources"
_RESOURCES = "/device-plugin"
"""As it is in ledgers from when only resources of device plugins were counted without a claim."""
