"""The names that users and other programs see: labels, annotations, the gate, the API group."""

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
"""What a Job that another system was to queue calls its queue; the webhook writes it into the template of its pods."""
RUNTIME = "muster.dev/runtime"
CLAIMS = "muster.dev/claims"
TOPOLOGY = "muster.dev/topology"
"""Names a label of nodes: all pods of the gang go to nodes that have one value of it."""
TOPOLOGY_PREFERRED = "muster.dev/topology-preferred"
"""The same, as far as that is possible."""
SUBGROUP = "muster.dev/subgroup"
"""Names the part of its gang that a pod is in."""
SUBGROUP_TOPOLOGY = "muster.dev/subgroup-topology"
"""Names a label of nodes: all pods of this subgroup go to nodes that have one value of it."""
SUBGROUP_TOPOLOGY_PREFERRED = "muster.dev/subgroup-topology-preferred"
"""The same, as far as that is possible."""

USER = "muster.dev/user"
"""Annotation of a pod in a queue, and of a Job's template: who made the workload, as the API server knew them."""

TRACE = "muster.dev/traceparent"
"""Annotation of a pod in a queue, where Muster is told to trace: where its trace goes on (W3C Trace Context)."""

REQUEUED = "muster.dev/requeued"
"""Annotation of a Job that Muster has suspended to take its pods back, and will resume as soon as they are gone."""

HELD = "muster.dev/held"
"""Annotation of a workload that is held as a whole: a `Held`. Only the webhook and the controller write it."""

GANG_UID = "muster.dev/gang-uid"
"""Annotation of an Event: the UID of the gang that it tells of, as logs and the ledger have it."""

LINE = "muster.dev/line"
"""Annotation of a Gang that Muster has made: what it has in common with those that are made in its stead."""

PLACEMENT = "muster.dev/placement"
"""Annotation of a claim that Muster has given devices, or has taken them back from: which, and when."""

POLICY = "muster.dev/policy"
"""Label of a ResourceClaimTemplate that Muster keeps for a ClaimPolicy: the policy's name."""

TEMPLATE = "muster.dev/template"
"""Annotation of such a template: a proof that it was made for this policy and place, and a digest of its spec."""

CONVERTED = "muster.dev/converted"
"""Annotation of a pod, and of a template that Muster makes for such pods: which extended resources became claims."""

PROOF = "muster.dev/proof"
"""Label of a Lease that is never made (a dry run), and annotation that the webhook gives it: the webhook is reached."""
SEEN = "seen"
"""What that annotation says."""

IN_USE = "muster.dev/in-use"
"""Finalizer of a Queue: it stays while its gangs, or those of a queue below it, have anything."""

MANAGED_BY = "app.kubernetes.io/managed-by"
"""Label that tells the Gangs that Muster made from those that users wrote."""

FIELD_MANAGER = "muster"
"""Owner of the fields that Muster applies on the server side."""

HOSTNAME = "kubernetes.io/hostname"

QueueName = NewType("QueueName", str)
MeterName = NewType("MeterName", str)
NodeName = NewType("NodeName", str)
Uid = NewType("Uid", str)
GangUid = NewType("GangUid", str)
"""Identity of a gang: the UID of the owner that makes its pods, or of the lone pod. Never taken from a label."""


class Held(StrEnum):
    """How it stands with a workload that is held as a whole."""

    WAITING = "waiting"
    """Muster has suspended it, and resumes it when its gang may start."""
    STARTED = "started"
    """Muster has resumed it. Where it is suspended, another client has done that."""


def expected_pod(workload: Uid, number: int) -> Uid:
    """Return what stands for the UID of a pod that a workload will make once it is resumed.

    No object has a UID with a slash.
    """
    return Uid(f"{workload}{_EXPECTED}{number}")


def expected_claim(pod: Uid, name: str) -> Uid:
    """Return what stands for the UID of the claim that such a pod will have. name: the pod's own for it."""
    return Uid(f"{pod}/{name}")


def workload_of(uid: Uid) -> Uid:
    """Return the UID of the workload that a pod, or a claim of one, is expected of."""
    return Uid(uid.partition(_EXPECTED)[0])


def is_expected(uid: Uid) -> bool:
    """Return whether a UID is one of `expected_pod`, or of a claim of such a pod: there is no such object yet."""
    return _EXPECTED in uid


def extended_claim(pod: Uid) -> Uid:
    """Return what stands for the UID of a pod's claim for extended resources.

    kube-scheduler makes that claim in the moment in which it binds the pod, so a plan, its charge and its reservation
    come long before the claim has a UID of its own.
    """
    return Uid(f"{pod}{_EXTENDED}")


def is_extended_claim(claim: Uid) -> bool:
    """Return whether a UID is one of `extended_claim`."""
    return claim.endswith(_EXTENDED)


def plugin_claim(pod: Uid) -> Uid:
    """Return what stands for the UID of a claim where a device plugin serves a pod, which needs no claim for that."""
    return Uid(f"{pod}{_PLUGIN}")


def pod_of_plugin_claim(claim: Uid) -> Uid | None:
    """Return the pod of which a UID is the `plugin_claim`; None where it is that of no pod."""
    return Uid(claim.removesuffix(_PLUGIN)) if claim.endswith(_PLUGIN) else None


_EXPECTED = "/expected/"
_EXTENDED = "/extended-resources"
_PLUGIN = "/device-plugin"
