"""LeaderWorkerSet (leaderworkerset.x-k8s.io): every leader and its workers are a gang.

A leader is a pod of the LeaderWorkerSet's StatefulSet; its workers are pods of a StatefulSet that the leader owns. So
the leader's UID identifies the group. Its label `group-key` does not: it is a digest of the leader's name, which anyone
can compute, and which is the same when the group is created again. A group that restarts, or gets a new revision, has
another leader and is another gang.

The workers are created together with the leader, unless `startupPolicy` is LeaderReady or the set has an exclusive
topology: then they are created when the leader runs, and are a wave of their own (`pkg/controllers/pod_controller.go`,
v0.9). The leader runs on beside them: pods of a StatefulSet are restarted whenever they end.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

from admission.api.kubernetes.jobs import PodTemplate
from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.owners import Parent
from admission.api.kubernetes.pods import Pod
from admission.api.scheduling import exclusive_domains
from admission.api.values import names
from admission.api.values.decoding import Json, Reader
from admission.workloads.kinds import labels, wave_templates
from admission.workloads.kinds.registry import ExclusiveParts, Link, Member, Shape, WorkloadKind, wave

SIZE = "leaderworkerset.sigs.k8s.io/size"
SUBGROUP_INDEX = "leaderworkerset.sigs.k8s.io/subgroup-index"
EXCLUSIVE = exclusive_domains.GROUP_EXCLUSIVE
NAME = "leaderworkerset.sigs.k8s.io/name"
GROUP_INDEX = "leaderworkerset.sigs.k8s.io/group-index"
GROUP_KEY = exclusive_domains.GROUP_KEY
WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
REVISION = "leaderworkerset.sigs.k8s.io/template-revision-hash"
POD_NAME, POD_INDEX = "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"
LEADER, WORKER = "leader", "workers"


def read(reader: Reader, meta: Meta) -> Shape:
    """Return the waves of one group."""
    spec = reader.child("spec")
    size = spec.child("leaderWorkerTemplate").integer("size", 1)
    if size > 1 and (spec.text("startupPolicy") == "LeaderReady" or EXCLUSIVE in meta.annotations):
        template = spec.child("leaderWorkerTemplate")
        is_like_leader = "leaderTemplate" not in template and "subGroupPolicy" not in template
        follows = EXCLUSIVE in meta.annotations and is_like_leader
        return {"": wave(1), WORKER: replace(wave(size - 1), follows=follows)}, {WORKER: WORKER}
    return {"": wave(size)}, {}


def join(pod: Pod, links: Sequence[Link], parent: Parent) -> Member:
    """Return a pod's role by its leader; the pod itself leads if no other pod is between it and the set.

    During the roll-out of a new revision, groups of the earlier one keep its size, which the set writes on their
    leaders.
    """
    if not links:
        # Pods that are planned before they exist have the set itself as their owner, and are those of one group.
        size = sum(one.pods for one in parent.waves.values())
        return Member(uid=parent.meta.uid, name=parent.meta.name, size=size or None)
    leader = next((link.obj for link in reversed(links) if isinstance(link.obj, Pod)), pod)
    is_split = WORKER in parent.waves
    size = labels.number(leader.meta.annotations.get(SIZE, ""))
    if is_split and size:
        size = 1 if leader is pod else size - 1
    return Member(
        uid=leader.meta.uid, name=leader.meta.name, role=LEADER if leader is pod else WORKER, size=size or None
    )


def followers(parent: Parent, wave: str, pod: Pod) -> dict[str, int]:
    """Return how many workers follow their leader into its domain, if they are like it.

    Workers are pinned into the domain of their leader once it is scheduled (setNodeSelectorForWorkerPods of
    `pkg/controllers/pod_controller.go`, v0.9).
    """
    workers = parent.waves.get(WORKER)
    if wave or workers is None or not workers.follows:
        return {}
    size = labels.number(pod.meta.annotations.get(SIZE, ""))
    return {LEADER: size - 1 if size else workers.pods}


def leads_others(pod: Pod, parent: Parent) -> bool:
    """Return whether a pod is a leader whose workers are made when it is scheduled, for its domain."""
    return WORKER in parent.waves and EXCLUSIVE in parent.meta.annotations and pod.meta.labels.get(WORKER_INDEX) == "0"


EXCLUSIVE_GROUPS = ExclusiveParts(
    label=GROUP_KEY, index=WORKER_INDEX, role=lambda _pod: LEADER, name=lambda pod: pod.meta.name
)


def templates(reader: Reader, meta: Meta) -> Iterator[PodTemplate]:
    """Yield the templates of the first wave of one group: of its leader, and of the workers that come with it."""
    template = reader.child("spec").child("leaderWorkerTemplate")
    name, path = f"{meta.name}-0", ("spec", "leaderWorkerTemplate")
    given = {
        NAME: meta.name,
        GROUP_INDEX: "0",
        GROUP_KEY: hashlib.sha1(f"{meta.namespace}/{name}".encode(), usedforsecurity=False).hexdigest(),
        REVISION: names.unknown_label(meta.name),
    }
    size, subgroup_size = template.integer("size", 1), template.child("subGroupPolicy").integer("subGroupSize")
    excluded = template.child("subGroupPolicy").text("subGroupPolicyType") == "LeaderExcluded"
    worker, role = "workerTemplate", "leaderTemplate" if "leaderTemplate" in template else "workerTemplate"
    yield PodTemplate(
        path=(*path, role),
        body=template.object(role),
        pods=1,
        name=meta.name,
        labels=given
        | {WORKER_INDEX: "0", POD_NAME: name, POD_INDEX: "0"}
        | ({SUBGROUP_INDEX: "0"} if subgroup_size > 0 and not excluded else {}),
    )
    waves, _ = read(reader, meta)
    if waves[""].pods < size:
        return
    for first, count, subgroup in _runs(size, subgroup_size):
        parts = {SUBGROUP_INDEX: subgroup_size} if subgroup_size > 0 else {}
        yield PodTemplate(
            path=(*path, worker),
            body=template.object(worker),
            pods=count,
            name=name,
            start=first,
            labels=given | {POD_NAME: names.unknown_label(name)},
            part_labels={WORKER_INDEX: 1, POD_INDEX: 1, **parts},
            first_parts={WORKER_INDEX: first, POD_INDEX: first, SUBGROUP_INDEX: subgroup},
        )


def _runs(size: int, subgroup_size: int) -> Iterator[tuple[int, int, int]]:
    """Yield runs of workers: the index of the first one, their number, and the subgroup that the first one begins.

    With the leader as the first pod of subgroup 0, that has one worker less than the others (getSubGroupIndex of
    `pkg/webhooks/pod_webhook.go`, v0.9); it has as many where the leader is one too many.
    """
    is_extra = subgroup_size > 0 and (size - 1) % subgroup_size == 0 and size % subgroup_size != 0
    if subgroup_size <= 0 or is_extra:
        yield 1, size - 1, 0
        return
    within = min(subgroup_size, size)
    if within > 1:
        yield 1, within - 1, 0
    if size > within:
        yield within, size - within, 1


def alone(obj: Json, roles: frozenset[str], _running_roles: frozenset[str]) -> Json | None:
    """Return a set whose workers come together with their leader, which runs on beside them.

    With an exclusive topology they ask for one domain. None where leader and workers would be two gangs even then.
    """
    whole = Reader(obj)
    annotations = whole.child("metadata").pairs("annotations")
    spec = {name: part for name, part in whole.object("spec").items() if name != "startupPolicy"}
    template = whole.child("spec").object("leaderWorkerTemplate")
    label = annotations.pop(EXCLUSIVE, "")
    worker = Reader(template).object("workerTemplate")
    given = {"leaderTemplate": Reader(template).object("leaderTemplate") or worker, "workerTemplate": worker}
    if WORKER not in roles or not wave_templates.are_of_one_gang(given.values()):
        return None
    given = {role: wave_templates.as_part(one, role) for role, one in given.items()}
    if label:
        given = {role: wave_templates.in_one_domain(one, label) for role, one in given.items()}
    metadata = {**whole.object("metadata"), "annotations": annotations}
    return {**obj, "metadata": metadata, "spec": {**spec, "leaderWorkerTemplate": {**template, **given}}}


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
        templates=templates,
        alone=alone,
        followers=followers,
        exclusive=EXCLUSIVE_GROUPS,
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
