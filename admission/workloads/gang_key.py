"""The gang that a pod is in, and the gang's size: from the pod's labels and annotations, and from its owners.

The first of these decides: `muster.dev/gang`; the PodGroup of Kubernetes that the pod names; the owner whose pods start
together (`kinds`); the groups of other systems; the batch Job; else the pod is a gang by itself. A gang is identified
by the UID of an object, so that no pod joins a gang by naming it, and an object that was deleted and created again is
another gang. Only `muster.dev/gang`, and groups that other systems form by name alone, consist of whatever pods their
author chose, inside one namespace.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from admission.api.kubernetes.jobs import Job
from admission.api.kubernetes.meta import Owner
from admission.api.kubernetes.owners import UNSERVED, Parent, Part, Wave
from admission.api.kubernetes.pods import Pod
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import GangUid, Uid
from admission.workloads import owner_chain
from admission.workloads.kinds import labels, leaderworkerset, pod_labels, podgroup, spark
from admission.workloads.kinds.pod_labels import Grouping
from admission.workloads.kinds.registry import Member, WorkloadKind, kind_of
from admission.workloads.owner_chain import OwnerChain

LARGEST_SIZE = 10_000

UNKNOWN_SIZE = 2**64
"""The needed pods of a gang of unknown size: more than there can ever be.

It is also no size that can be declared: a declared size that is too large by one gets an error of its own."""

OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""A DNS-1123 subdomain (`apimachinery/pkg/util/validation`, IsDNS1123Subdomain)."""

LONGEST_UID = 200
"""Characters. The ledger's column holds 253."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A gang's identity: its UID, its name, and the object that makes its pods.

    size: its number of pods; 0 while unknown. needed: how many must exist before any starts; less than size near a
    Job's end, and for an elastic gang, which is declared to start with fewer. size_source: the field, and its object,
    that states the size. unknown: why the size cannot be known. counts_ended: whether succeeded pods count among the
    needed ones. parts: the Jobs of the gang, if an object reports how many of them have succeeded. followers: by role,
    how many more pods each part of the gang gets once its first pod is scheduled, of those that are alone in a domain.
    wave: the part of the object's pods that it is, in the order in which they are made; empty for the first or only
    one. grouping: the other system whose group it is. inputs: the keys of all objects, besides the pod, on which this
    depends. position_key: the key shared by the gangs that a controller makes one after the other in the same place; ""
    if there are none. named_by: the key under which pods name it, if names alone form it and its size is the whole
    gang's. deadline: the longest that its owners let it run; None for no limit.
    """

    uid: GangUid
    namespace: str
    name: str
    size: int
    needed: int
    workload: Owner | None = None
    size_source: str = ""
    unknown: str = ""
    counts_ended: bool = False
    parts: Mapping[str, Part] = field(default_factory=dict)
    followers: Mapping[str, int] = field(default_factory=dict)
    wave: str = ""
    grouping: Grouping | None = None
    elastic: bool = False
    inputs: tuple[str, ...] = ()
    position_key: str = ""
    named_by: str = ""
    deadline: timedelta | None = None

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


def identify(pod: Pod, snapshot: Snapshot) -> Identity:
    """Return the gang of a pod: one that it names, one of its owners, or itself."""
    chain = owner_chain.build(pod, snapshot)
    identity = _with_min(_identity(pod, chain, snapshot), declared_min(pod), f"{names.GANG_MIN} of its pods")
    if identity.inputs is chain.inputs or not chain.links:
        return identity if chain.deadline is None else replace(identity, deadline=chain.deadline)
    # A gang named by other means than its owners still depends on them: they limit how long it may run.
    return replace(identity, deadline=chain.deadline, inputs=tuple(dict.fromkeys((*identity.inputs, *chain.inputs))))


def _identity(pod: Pod, chain: OwnerChain, snapshot: Snapshot) -> Identity:
    named = labels.setting(pod, names.GANG)
    if named:
        return _from_name(pod, named, snapshot)
    if pod.group:
        return _from_pod_group(pod, podgroup.GANGS, pod.group, snapshot)
    return _from_owners(pod, chain, snapshot) or _from_foreign_keys(pod, snapshot) or _from_job_or_pod(pod, chain)


def declared_size(pod: Pod) -> int | None:
    """Return `muster.dev/gang-size`, or None if it is absent or not a size (the webhook refuses that)."""
    return size_in(labels.setting(pod, names.GANG_SIZE)) or None


def declared_min(pod: Pod) -> int | None:
    """Return `muster.dev/gang-min`, or None if it is absent or not a size."""
    return size_in(labels.setting(pod, names.GANG_MIN)) or None


def size_in(text: str) -> int:
    """Return the number of pods in a text, or 0 if it is not a size."""
    size = labels.number(text, digits=len(str(LARGEST_SIZE)))
    return size if size <= LARGEST_SIZE else 0


def unique_name(name: str, uid: str) -> str:
    """Return a name for the gang of a workload: the workload's own, and five digits of a digest of its UID.

    A manifest has no UID offline; then its name alone is used. A name that no object could have, which other systems
    may put into an annotation, is replaced.
    """
    if not uid:
        return name
    base = name[:247].rstrip("-.")
    if not OBJECT_NAME.fullmatch(base):
        base = "gang"
    return f"{base}-{_digest(uid)[:5]}"


def gang_uid(*parts: str) -> GangUid:
    """Return a gang's UID from the parts that identify it; a digest if it would be too long or not plain ASCII.

    Any client may write owners and annotations, and the UID is stored in the ledger.
    """
    uid = "/".join(filter(None, parts))
    plain = uid.isascii() and uid.isprintable() and len(uid) <= LONGEST_UID
    return GangUid(uid if plain else _digest(uid))


def maker(uid: GangUid) -> Uid:
    """Return the UID of the object that makes a gang's pods; no object's UID if names alone form the gang."""
    return Uid(uid.partition("/")[0])


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def input_key(kind: str, key: str) -> str:
    """Return the key in `Identity.inputs` of an object that pods name; a UID is its own key."""
    return f"{kind} {key}"


# By names.


def _from_name(pod: Pod, name: str, snapshot: Snapshot) -> Identity:
    uid = f"{pod.meta.namespace}/{name}"
    record = snapshot.gangs.get(uid)
    user_record = record if record is not None and record.written_by_user else None
    size = (user_record.size if user_record is not None else 0) or declared_size(pod) or 0
    identity = Identity(
        uid=GangUid(uid),
        namespace=pod.meta.namespace,
        name=name,
        size=size,
        needed=size or UNKNOWN_SIZE,
        named_by=names.GANG,
    )
    if user_record is None or declared_min(pod) is not None:
        return identity
    return _with_min(identity, user_record.min_count, f"spec.minCount of Gang {uid}")


def _with_min(identity: Identity, least: int | None, size_source: str) -> Identity:
    """Return the gang with a declared least number of pods to start; the same gang if its size is unknown."""
    if least is None or identity.needed == UNKNOWN_SIZE:
        return identity
    # A Job needs fewer pods near its end. For other kinds, succeeded pods are subtracted later.
    needed = min(least, identity.size if identity.counts_ended else identity.needed)
    if needed >= identity.size:
        return replace(identity, needed=needed, elastic=False)
    return replace(identity, needed=needed, elastic=True, size_source=size_source)


def _from_grouping(pod: Pod, grouping: Grouping, name: str) -> Identity:
    """Return the gang of another system's group, whose annotations declare its size."""
    declared = declared_size(pod)
    size = declared or grouping.size(pod)
    uid = gang_uid(pod.meta.namespace, grouping.name_key, name)
    size_source = names.GANG_SIZE if declared else grouping.size_key
    return Identity(
        uid=uid,
        namespace=pod.meta.namespace,
        name=unique_name(name, uid),
        size=size,
        needed=size or UNKNOWN_SIZE,
        size_source=f"{size_source} of its pods",
        unknown=""
        if size
        else f"nobody can say how large group {labels.shortened(name)} of {grouping.system} is: pod {pod.meta.name}"
        f" has no {grouping.size_key} that can be read; write it, or {names.GANG_SIZE}",
        grouping=None if declared else grouping,
        named_by=grouping.name_key if declared or grouping.is_total else "",
    )


def _from_pod_group(pod: Pod, workload_kind: WorkloadKind, name: str, snapshot: Snapshot) -> Identity:
    namespace = pod.meta.namespace
    key = f"{namespace}/{name}"
    pod_group = snapshot.parents.get(workload_kind.key, {}).get(key)
    uid = gang_uid(pod_group.meta.uid) if pod_group is not None else gang_uid(workload_kind.key, key)
    declared = declared_size(pod)
    wave = pod_group.waves[""] if pod_group is not None else None
    unknown = "" if declared or wave is not None else _why_unseen(workload_kind, name, namespace, snapshot)
    version = workload_kind.versions[0]
    return Identity(
        uid=uid,
        namespace=namespace,
        name=unique_name(name, uid),
        size=declared or (wave.pods if wave is not None else 0),
        needed=declared or (wave.needed if wave is not None else UNKNOWN_SIZE),
        workload=None
        if pod_group is None
        else Owner(
            api_version=f"{workload_kind.group}/{version}", kind=workload_kind.kind, name=name, uid=pod_group.meta.uid
        ),
        size_source=f"{names.GANG_SIZE} of its pods"
        if declared
        else f"{workload_kind.fields} of PodGroup {labels.shortened(name)}",
        unknown=unknown,
        counts_ended=True,
        inputs=(input_key(workload_kind.key, key),),
    )


def _from_foreign_keys(pod: Pod, snapshot: Snapshot) -> Identity | None:
    """Return the gang that a pod is in by another system's labels and annotations.

    If that system's kind of PodGroup is not served, its key in a manifest is ignored.
    """
    for workload_kind, name_of in podgroup.NAMED:
        name = name_of(pod)
        if name and (snapshot.unwatched.get(workload_kind.key) != UNSERVED or declared_size(pod)):
            return _from_pod_group(pod, workload_kind, name, snapshot)
    grouping = pod_labels.grouping_of(pod)
    return None if grouping is None else _from_grouping(pod, *grouping)


# By owners.


def _from_owners(pod: Pod, chain: OwnerChain, snapshot: Snapshot) -> Identity | None:
    """Return the gang of a pod's owners; None if no owner decides more than a batch Job does."""
    if chain.endless:
        return _with_unknown_size(pod, chain, _owner_cycle(chain))
    if chain.workload_kind is not None:
        last = chain.links[-1]
        if isinstance(last.obj, Parent):
            return _from_parent(pod, last.obj, chain.workload_kind, chain)
        return _with_unknown_size(
            pod, chain, _why_unseen(chain.workload_kind, last.owner.name, pod.meta.namespace, snapshot)
        )
    maker = chain.links[-1].obj if chain.links else None
    if isinstance(maker, Pod) and spark.is_driver(maker):
        return _from_driver(pod, maker, chain)
    return _from_missing_owner(pod, chain, snapshot) if chain.owner_missing else None


def _from_job_or_pod(pod: Pod, chain: OwnerChain) -> Identity:
    """Return the gang of a pod in no larger group: its batch Job's, or its own."""
    job = chain.links[0].obj if chain.links else None
    if isinstance(job, Job):
        return _from_job(pod, job, chain)
    owner = pod.meta.controller
    # A StatefulSet gives the next pod the same name again; pods of other controllers get new names.
    has_stable_name = owner is not None and kind_of(owner) == owner_chain.STATEFUL_SET
    position_key = gang_uid(owner.uid, pod.meta.name) if owner is not None and has_stable_name else ""
    return replace(_single_pod(pod, chain.inputs), position_key=position_key)


def _from_parent(pod: Pod, parent: Parent, workload_kind: WorkloadKind, chain: OwnerChain) -> Identity:
    """Return the gang of the pods that an object's controller makes together with this one."""
    member = workload_kind.join(pod, chain.links[:-1], parent)
    wave_name = parent.wave_of(member.role)
    wave = parent.waves.get(wave_name)
    owner = chain.links[-1].owner
    source = f"{owner.kind} {owner.name}"
    declared = declared_size(pod)
    attempt = f"restart-{member.attempt}" if member.attempt else ""
    uid = gang_uid(member.uid, wave_name, attempt)
    size = declared or member.size or (wave.pods if wave is not None else 0)
    needed = declared or _needed(member, wave)
    return Identity(
        uid=uid,
        namespace=pod.meta.namespace,
        name=unique_name("-".join(filter(None, (member.name, wave_name, attempt))), uid),
        size=size,
        needed=needed,
        workload=owner,
        size_source=f"{names.GANG_SIZE} of its pods" if declared else f"{workload_kind.fields} of {source}",
        unknown="" if wave is not None else f"{source} says nothing of pods as {pod.meta.name}",
        counts_ended=True,
        parts=wave.parts if wave is not None else {},
        followers=workload_kind.followers(parent, wave_name, pod),
        wave=wave_name,
        elastic=needed < size,
        inputs=chain.inputs,
        position_key=gang_uid(parent.meta.uid, member.name, wave_name),
    )


def _needed(member: Member, wave: Wave | None) -> int:
    if wave is None:
        return UNKNOWN_SIZE
    return wave.needed if member.size is None else member.size


def _from_driver(pod: Pod, driver: Pod, chain: OwnerChain) -> Identity:
    """Return the gang of a Spark driver's executors, without a SparkApplication above: they start one by one."""
    member = spark.executors_of(driver)
    uid = gang_uid(member.uid, member.role)
    return Identity(
        uid=uid,
        namespace=pod.meta.namespace,
        name=unique_name(f"{member.name}-{member.role}", uid),
        size=declared_size(pod) or 0,
        needed=declared_size(pod) or 1,
        workload=chain.links[-1].owner,
        inputs=chain.inputs,
    )


def _from_missing_owner(pod: Pod, chain: OwnerChain, snapshot: Snapshot) -> Identity | None:
    """Return a gang that waits for its pod's missing owner; None if that owner decides nothing, as a StatefulSet."""
    last = chain.links[-1].owner
    if kind_of(last) == owner_chain.BATCH_JOB:
        return _from_job(pod, None, chain)
    is_group = leaderworkerset.SIZE in pod.meta.annotations
    if not is_group and not (kind_of(last) == owner_chain.POD and spark.ROLE in pod.meta.labels):
        return None
    why = snapshot.unwatched.get(kind_of(last))
    return _with_unknown_size(pod, chain, _unwatched(last.kind, why) if why else _missing(last.kind, last.name))


def _with_unknown_size(pod: Pod, chain: OwnerChain, why: str) -> Identity:
    """Return a gang that cannot start because its members cannot be known."""
    last, uid = chain.links[-1].owner, gang_uid(chain.links[-1].owner.uid)
    declared = declared_size(pod)
    return Identity(
        uid=uid,
        namespace=pod.meta.namespace,
        name=unique_name(last.name, uid),
        size=declared or 0,
        needed=UNKNOWN_SIZE,
        workload=last,
        unknown=why,
        inputs=chain.inputs,
    )


def _from_job(pod: Pod, job: Job | None, chain: OwnerChain) -> Identity:
    """Return the gang of a Job; while the Job itself is not seen yet, its size is unknown and it cannot start."""
    owner, uid = chain.links[0].owner, gang_uid(chain.links[0].owner.uid)
    declared = declared_size(pod)
    size = declared or (0 if job is None else job.initial_pods)
    needed = declared or UNKNOWN_SIZE
    if job is not None and not (declared and job.remaining_pods >= job.initial_pods):
        needed = min(needed, remaining_pods(job))
    return Identity(
        uid=uid,
        namespace=pod.meta.namespace,
        name=unique_name(owner.name, uid),
        size=size,
        needed=needed,
        workload=owner,
        inputs=chain.inputs,
    )


def _single_pod(pod: Pod, inputs: tuple[str, ...]) -> Identity:
    owner = Owner(api_version="v1", kind="Pod", name=pod.meta.name, uid=pod.meta.uid)
    return Identity(
        uid=GangUid(pod.meta.uid),
        namespace=pod.meta.namespace,
        name=unique_name(pod.meta.name, pod.meta.uid),
        size=1,
        needed=1,
        workload=owner,
        inputs=inputs,
    )


def remaining_pods(job: Job) -> int:
    """Return how many pods the Job still runs at a time, at least one."""
    return max(job.remaining_pods, 1)


# Reasons of an unknown size.


def _why_unseen(workload_kind: WorkloadKind, name: str, namespace: str, snapshot: Snapshot) -> str:
    """Return why an object that determines a gang is not seen."""
    malformed = snapshot.malformed.get((workload_kind.kind, f"{namespace}/{name}"))
    if malformed is not None:
        return f"nobody can say how large the gang is: {malformed}; mend it"
    why = snapshot.unwatched.get(workload_kind.key)
    if why:
        return _unwatched(workload_kind.key, why)
    if workload_kind.named:
        return (
            f"PodGroup {labels.shortened(name)} ({workload_kind.group}), which the pods name, is not there; create"
            f" it, or annotate the pods with {names.GANG_SIZE}"
        )
    return _missing(workload_kind.kind, name)


def _unwatched(kind: str, why: str) -> str:
    return f"nobody can say how large the gang is: Muster cannot see objects of kind {kind}: {why}"


def _missing(kind: str, name: str) -> str:
    return (
        f"{kind} {name}, which the pods belong to, is not seen yet; if it was deleted, delete the pods as well, or they"
        " wait for ever"
    )


def _owner_cycle(chain: OwnerChain) -> str:
    path: Sequence[str] = [f"{link.owner.kind} {link.owner.name}" for link in chain.links]
    return (
        f"nobody can say who makes the pods: their owners go round in a circle or on and on ({' → '.join(path)}); mend"
        " metadata.ownerReferences"
    )
