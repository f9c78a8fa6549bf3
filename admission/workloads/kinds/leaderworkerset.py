"""LeaderWorkerSet (leaderworkerset.x-k8s.io): every leader and its workers are a gang.

A leader is a pod of the LeaderWorkerSet's StatefulSet; its workers are pods of a StatefulSet that the leader owns. So
the leader's UID identifies the group. Its label `group-key` does not: it is a digest of the leader's name, which anyone
can compute, and which is the same when the group is created again. A group that restarts, or gets a new revision, has
another leader and is another gang.

The workers are created together with the leader, unless `startupPolicy` is LeaderReady or the set has an exclusive
topology: then they are created when the leader runs, and are a wave of their own (`pkg/controllers/pod_controller.go`,
v0.9).
"""

from collections.abc import Sequence

from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.owners import Parent
from admission.api.kubernetes.pods import Pod
from admission.api.values.decoding import Reader
from admission.workloads.kinds import labels
from admission.workloads.kinds.registry import Link, Member, Shape, WorkloadKind, wave

SIZE = "leaderworkerset.sigs.k8s.io/size"
SUBGROUP_INDEX = "leaderworkerset.sigs.k8s.io/subgroup-index"
EXCLUSIVE = "leaderworkerset.sigs.k8s.io/exclusive-topology"
LEADER, WORKER = "leader", "workers"


def read(reader: Reader, meta: Meta) -> Shape:
    """Return the waves of one group."""
    spec = reader.child("spec")
    size = spec.child("leaderWorkerTemplate").integer("size", 1)
    if spec.text("startupPolicy") == "LeaderReady" or EXCLUSIVE in meta.annotations:
        return {"": wave(1), WORKER: wave(size - 1)}, {WORKER: WORKER}
    return {"": wave(size)}, {}


def join(pod: Pod, links: Sequence[Link], parent: Parent) -> Member:
    """Return a pod's role by its leader; the pod itself leads if no other pod is between it and the set.

    During the roll-out of a new revision, groups of the earlier one keep its size, which the set writes on their
    leaders.
    """
    leader = next((link.obj for link in reversed(links) if isinstance(link.obj, Pod)), pod)
    is_split = WORKER in parent.waves
    size = labels.number(leader.meta.annotations.get(SIZE, ""))
    if is_split and size:
        size = 1 if leader is pod else size - 1
    return Member(
        uid=leader.meta.uid, name=leader.meta.name, role=LEADER if leader is pod else WORKER, size=size or None
    )


def unsized(_reader: Reader, _meta: Meta) -> Shape:
    """Return an empty shape, for kinds that only stand between pods and their workload."""
    return {}, {}


KINDS = (
    WorkloadKind(
        kind="LeaderWorkerSet",
        group="leaderworkerset.x-k8s.io",
        versions=("v1",),
        plural="leaderworkersets",
        read=read,
        join=join,
        fields="spec.leaderWorkerTemplate.size",
    ),
    WorkloadKind(
        kind="StatefulSet",
        group="apps",
        versions=("v1",),
        plural="statefulsets",
        read=unsized,
        is_link=True,
    ),
)
