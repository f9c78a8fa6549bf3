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
    Job's end, and for an elastic gang, which is declared to start with fewer. said: the field, and its object, that
    states the size. unknown: why the size cannot be known. counts_ended: whether succeeded pods count among the needed
    ones. parts: the Jobs of the gang, if an object reports how many of them have succeeded. grouping: the other system
    whose group it is. inputs: the keys of all objects, besides the pod, on which this depends. line: the key shared by
    the gangs that a controller makes one after the other in the same place; "" if there are none. named_by: the key
    under which pods name it, if names alone form it and its size is the whole gang's. deadline: the longest that its
    owners let it run; None for no limit.
    """

    uid: GangUid
    namespace: str
    name: str
    size: int
    needed: int
    workload: Owner | None = None
    said: str = ""
    unknown: str = ""
    counts_ended: bool = False
    parts: Mapping[str, Part] = field(default_factory=dict)
    grouping: Grouping | None = None
    elastic: bool = False
    inputs: tuple[str, ...] = ()
    line: str = ""
    named_by: str = ""
    deadline: timedelta | None = None

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


def identify(pod: Pod, snapshot: Snapshot) -> Identity:
    """Return the gang of a pod: one that it names, one of its owners, or itself."""
    ancestry = owner_chain.build(pod, snapshot)
    found = _starting_with(_identified(pod, ancestry, snapshot), declared_least(pod), f"{names.GANG_MIN} of its pods")
    if found.inputs is ancestry.inputs or not ancestry.links:
        return found if ancestry.deadline is None else replace(found, deadline=ancestry.deadline)
    # A gang named by other means than its owners still depends on them: they limit how long it may run.
    return replace(found, deadline=ancestry.deadline, inputs=tuple(dict.fromkeys((*found.inputs, *ancestry.inputs))))


def _identified(pod: Pod, ancestry: OwnerChain, snapshot: Snapshot) -> Identity:
    named = labels.setting(pod, names.GANG)
    if named:
        return _named(pod, named, snapshot)
    if pod.group:
        return _of_pod_group(pod, podgroup.GANGS, pod.group, snapshot)
    return _of_ancestry(pod, ancestry, snapshot) or _of_others(pod, snapshot) or _of_itself(pod, ancestry)


def declared_size(pod: Pod) -> int | None:
    """Return `muster.dev/gang-size`, or None if it is absent or not a size (the webhook refuses that)."""
    return size_in(labels.setting(pod, names.GANG_SIZE)) or None


def declared_least(pod: Pod) -> int | None:
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


def ground(kind: str, key: str) -> str:
    """Return the key in `Identity.inputs` of an object that pods name; a UID is its own key."""
    return f"{kind} {key}"


# By names.


def _named(pod: Pod, named: str, snapshot: Snapshot) -> Identity:
    uid = f"{pod.meta.namespace}/{named}"
    record = snapshot.gangs.get(uid)
    written = record if record is not None and record.written_by_user else None
    size = (written.size if written is not None else 0) or declared_size(pod) or 0
    found = Identity(
        uid=GangUid(uid),
        namespace=pod.meta.namespace,
        name=named,
        size=size,
        needed=size or UNKNOWN_SIZE,
        named_by=names.GANG,
    )
    if written is None or declared_least(pod) is not None:
        return found
    return _starting_with(found, written.min_count, f"spec.minCount of Gang {uid}")


def _starting_with(found: Identity, least: int | None, said: str) -> Identity:
    """Return the gang with a declared least number of pods to start; the same gang if its size is unknown."""
    if least is None or found.needed == UNKNOWN_SIZE:
        return found
    # A Job needs fewer pods near its end. For other kinds, succeeded pods are subtracted later.
    needed = min(least, found.size if found.counts_ended else found.needed)
    if needed >= found.size:
        return replace(found, needed=needed, elastic=False)
    return replace(found, needed=needed, elastic=True, said=said)


def _grouped(pod: Pod, grouping: Grouping, name: str) -> Identity:
    """Return the gang of another system's group, whose annotations declare its size."""
    declared = declared_size(pod)
    size = declared or grouping.size(pod)
    uid = gang_uid(pod.meta.namespace, grouping.name_key, name)
    said = names.GANG_SIZE if declared else grouping.size_key
    return Identity(
        uid=uid,
        namespace=pod.meta.namespace,
        name=unique_name(name, uid),
        size=size,
        needed=size or UNKNOWN_SIZE,
        said=f"{said} of its pods",
        unknown=""
        if size
        else f"nobody can say how large group {labels.shown(name)} of {grouping.system} is: pod {pod.meta.name} has no"
        f" {grouping.size_key} that can be read; write it, or {names.GANG_SIZE}",
        grouping=None if declared else grouping,
        named_by=grouping.name_key if declared or grouping.is_total else "",
    )


def _of_pod_group(pod: Pod, family: WorkloadKind, name: str, snapshot: Snapshot) -> Identity:
    namespace = pod.meta.namespace
    key = f"{namespace}/{name}"
    found = snapshot.parents.get(family.key, {}).get(key)
    uid = gang_uid(found.meta.uid) if found is not None else gang_uid(family.key, key)
    declared = declared_size(pod)
    wave = found.waves[""] if found is not None else None
    unknown = "" if declared or wave is not None else _unseen(family, name, namespace, snapshot)
    version = family.versions[0]
    return Identity(
        uid=uid,
        namespace=namespace,
        name=unique_name(name, uid),
        size=declared or (wave.pods if wave is not None else 0),
        needed=declared or (wave.needed if wave is not None else UNKNOWN_SIZE),
        workload=None
        if found is None
        else Owner(api_version=f"{family.group}/{version}", kind=family.kind, name=name, uid=found.meta.uid),
        said=f"{names.GANG_SIZE} of its pods" if declared else f"{family.fields} of PodGroup {labels.shown(name)}",
        unknown=unknown,
        counts_ended=True,
        inputs=(ground(family.key, key),),
    )


def _of_others(pod: Pod, snapshot: Snapshot) -> Identity | None:
    """Return the gang that a pod is in by another system's labels and annotations.

    If that system's kind of PodGroup is not served, its key in a manifest is ignored.
    """
    for family, name_of in podgroup.NAMED:
        name = name_of(pod)
        if name and (snapshot.unwatched.get(family.key) != UNSERVED or declared_size(pod)):
            return _of_pod_group(pod, family, name, snapshot)
    grouped = pod_labels.grouping_of(pod)
    return None if grouped is None else _grouped(pod, *grouped)


# By owners.


def _of_ancestry(pod: Pod, ancestry: OwnerChain, snapshot: Snapshot) -> Identity | None:
    """Return the gang of a pod's owners; None if no owner decides more than a batch Job does."""
    if ancestry.endless:
        return _held(pod, ancestry, _circle(ancestry))
    if ancestry.family is not None:
        last = ancestry.links[-1]
        if isinstance(last.found, Parent):
            return _of_parent(pod, last.found, ancestry.family, ancestry)
        return _held(pod, ancestry, _unseen(ancestry.family, last.owner.name, pod.meta.namespace, snapshot))
    maker = ancestry.links[-1].found if ancestry.links else None
    if isinstance(maker, Pod) and spark.is_driver(maker):
        return _of_driver(pod, maker, ancestry)
    return _of_lost(pod, ancestry, snapshot) if ancestry.lost else None


def _of_itself(pod: Pod, ancestry: OwnerChain) -> Identity:
    """Return the gang of a pod in no larger group: its batch Job's, or its own."""
    job = ancestry.links[0].found if ancestry.links else None
    if isinstance(job, Job):
        return _of_job(pod, job, ancestry)
    owner = pod.meta.controller
    # A StatefulSet gives the next pod the same name again; pods of other controllers get new names.
    in_line = owner is not None and kind_of(owner) == owner_chain.STATEFUL_SET
    line = gang_uid(owner.uid, pod.meta.name) if owner is not None and in_line else ""
    return replace(_alone(pod, ancestry.inputs), line=line)


def _of_parent(pod: Pod, parent: Parent, family: WorkloadKind, ancestry: OwnerChain) -> Identity:
    """Return the gang of the pods that an object's controller makes together with this one."""
    member = family.join(pod, ancestry.links[:-1], parent)
    wave_name = parent.wave_of(member.role)
    wave = parent.waves.get(wave_name)
    owner = ancestry.links[-1].owner
    where = f"{owner.kind} {owner.name}"
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
        said=f"{names.GANG_SIZE} of its pods" if declared else f"{family.fields} of {where}",
        unknown="" if wave is not None else f"{where} says nothing of pods as {pod.meta.name}",
        counts_ended=True,
        parts=wave.parts if wave is not None else {},
        elastic=needed < size,
        inputs=ancestry.inputs,
        line=gang_uid(parent.meta.uid, member.name, wave_name),
    )


def _needed(member: Member, wave: Wave | None) -> int:
    if wave is None:
        return UNKNOWN_SIZE
    return wave.needed if member.size is None else member.size


def _of_driver(pod: Pod, driver: Pod, ancestry: OwnerChain) -> Identity:
    """Return the gang of a Spark driver's executors, without a SparkApplication above: they start one by one."""
    member = spark.of_driver(driver)
    uid = gang_uid(member.uid, member.role)
    return Identity(
        uid=uid,
        namespace=pod.meta.namespace,
        name=unique_name(f"{member.name}-{member.role}", uid),
        size=declared_size(pod) or 0,
        needed=declared_size(pod) or 1,
        workload=ancestry.links[-1].owner,
        inputs=ancestry.inputs,
    )


def _of_lost(pod: Pod, ancestry: OwnerChain, snapshot: Snapshot) -> Identity | None:
    """Return a gang that waits for its pod's missing owner; None if that owner decides nothing, as a StatefulSet."""
    last = ancestry.links[-1].owner
    if kind_of(last) == owner_chain.BATCH_JOB:
        return _of_job(pod, None, ancestry)
    is_group = leaderworkerset.SIZE in pod.meta.annotations
    if not is_group and not (kind_of(last) == owner_chain.POD and spark.ROLE in pod.meta.labels):
        return None
    why = snapshot.unwatched.get(kind_of(last))
    return _held(pod, ancestry, _blind(last.kind, why) if why else _missing(last.kind, last.name))


def _held(pod: Pod, ancestry: OwnerChain, why: str) -> Identity:
    """Return a gang that cannot start because its members cannot be known."""
    last, uid = ancestry.links[-1].owner, gang_uid(ancestry.links[-1].owner.uid)
    declared = declared_size(pod)
    return Identity(
        uid=uid,
        namespace=pod.meta.namespace,
        name=unique_name(last.name, uid),
        size=declared or 0,
        needed=UNKNOWN_SIZE,
        workload=last,
        unknown=why,
        inputs=ancestry.inputs,
    )


def _of_job(pod: Pod, job: Job | None, ancestry: OwnerChain) -> Identity:
    """Return the gang of a Job; while the Job itself is not seen yet, its size is unknown and it cannot start."""
    owner, uid = ancestry.links[0].owner, gang_uid(ancestry.links[0].owner.uid)
    declared = declared_size(pod)
    size = declared or (0 if job is None else job.initial_pods)
    needed = declared or UNKNOWN_SIZE
    if job is not None and not (declared and job.remaining_pods >= job.initial_pods):
        needed = min(needed, left_of(job))
    return Identity(
        uid=uid,
        namespace=pod.meta.namespace,
        name=unique_name(owner.name, uid),
        size=size,
        needed=needed,
        workload=owner,
        inputs=ancestry.inputs,
    )


def _alone(pod: Pod, inputs: tuple[str, ...]) -> Identity:
    alone = Owner(api_version="v1", kind="Pod", name=pod.meta.name, uid=pod.meta.uid)
    return Identity(
        uid=GangUid(pod.meta.uid),
        namespace=pod.meta.namespace,
        name=unique_name(pod.meta.name, pod.meta.uid),
        size=1,
        needed=1,
        workload=alone,
        inputs=inputs,
    )


def left_of(job: Job) -> int:
    """Return how many pods the Job still runs at a time, at least one."""
    return max(job.remaining_pods, 1)


# Reasons of an unknown size.


def _unseen(family: WorkloadKind, name: str, namespace: str, snapshot: Snapshot) -> str:
    """Return why an object that determines a gang is not seen."""
    unread = snapshot.malformed.get((family.kind, f"{namespace}/{name}"))
    if unread is not None:
        return f"nobody can say how large the gang is: {unread}; mend it"
    why = snapshot.unwatched.get(family.key)
    if why:
        return _blind(family.key, why)
    if family.named:
        return (
            f"PodGroup {labels.shown(name)} ({family.group}), which the pods name, is not there; create it, or"
            f" annotate the pods with {names.GANG_SIZE}"
        )
    return _missing(family.kind, name)


def _blind(kind: str, why: str) -> str:
    return f"nobody can say how large the gang is: Muster cannot see objects of kind {kind}: {why}"


def _missing(kind: str, name: str) -> str:
    return (
        f"{kind} {name}, which the pods belong to, is not seen yet; if it was deleted, delete the pods as well, or they"
        " wait for ever"
    )


def _circle(ancestry: OwnerChain) -> str:
    way: Sequence[str] = [f"{link.owner.kind} {link.owner.name}" for link in ancestry.links]
    return (
        f"nobody can say who makes the pods: their owners go round in a circle or on and on ({' → '.join(way)}); mend"
        " metadata.ownerReferences"
    )
