"""Which gang a pod is in, and how large that is: from what the pod says, and from what it belongs to.

In this order: `muster.dev/gang`; the PodGroup of Kubernetes that it names; the object above it whose pods start
together, if there is one (`kinds`); the groups of other systems; its batch Job; or nobody else. The UID of an object
says who the gang is, so that nobody joins one by writing its name, and what was deleted and made again is another gang.
Only a `muster.dev/gang`, and what other systems group by names alone, gathers what its author chose to gather, inside
one namespace.
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
"""Pods that a gang needs of which nobody has said how large it is: more than there can ever be.

And no size that somebody might say: what is too large by one is told to be too large.
"""

OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""A DNS-1123 subdomain (`apimachinery/pkg/util/validation`, IsDNS1123Subdomain)."""

LONGEST_UID = 200
"""Characters. The books have room for 253."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who a gang is: its UID, the name that people see, and what makes its pods.

    size: how many pods it has; 0 while that is not known. needed: how many must be there before any starts, which
    is fewer towards a Job's end, and where it is elastic: somebody says that it starts with fewer than it has.
    said: which field of which object says so. unknown: why nobody knows. counts_ended: whether pods that have
    succeeded count among those that are needed. parts: of which Jobs it consists, where an object says how many of
    these have succeeded. grouping: of what other system it is a group. inputs: the keys of all objects that this
    depends on, beside the pod. line: what it has in common with the gangs that its controller made before in the same
    place, and will make after it; empty where no two gangs are of one line. named_by: the key under which its pods
    name it, where names alone make it and its size is that of all of it. deadline: how long what the pod belongs to
    lets it run at most; None where nobody limits it.
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
    """Return the gang that a pod belongs to: a named one, that of what is above it, or one of its own."""
    ancestry = owner_chain.build(pod, snapshot)
    found = _starting_with(_identified(pod, ancestry, snapshot), declared_least(pod), f"{names.GANG_MIN} of its pods")
    if found.inputs is ancestry.inputs or not ancestry.links:
        return found if ancestry.deadline is None else replace(found, deadline=ancestry.deadline)
    # What is named otherwise than by what makes its pods depends on that as well: it says how long they may run.
    return replace(found, deadline=ancestry.deadline, inputs=tuple(dict.fromkeys((*found.inputs, *ancestry.inputs))))


def _identified(pod: Pod, ancestry: OwnerChain, snapshot: Snapshot) -> Identity:
    named = labels.setting(pod, names.GANG)
    if named:
        return _named(pod, named, snapshot)
    if pod.group:
        return _of_pod_group(pod, podgroup.GANGS, pod.group, snapshot)
    return _of_ancestry(pod, ancestry, snapshot) or _of_others(pod, snapshot) or _of_itself(pod, ancestry)


def declared_size(pod: Pod) -> int | None:
    """Return `muster.dev/gang-size`, or None when it is absent or not a size (the webhook has refused that)."""
    return size_in(labels.setting(pod, names.GANG_SIZE)) or None


def declared_least(pod: Pod) -> int | None:
    """Return `muster.dev/gang-min`, or None when it is absent or not a size."""
    return size_in(labels.setting(pod, names.GANG_MIN)) or None


def size_in(text: str) -> int:
    """Return how many pods a gang is said to have, or 0 where that is not a size."""
    size = labels.number(text, digits=len(str(LARGEST_SIZE)))
    return size if size <= LARGEST_SIZE else 0


def unique_name(name: str, uid: str) -> str:
    """Return a name for the gang of a workload: the workload's own, and five letters that tell its lives apart.

    Offline a manifest has no UID yet, and its name alone is the clearest. What cannot be the name of an object, as
    others may write it into an annotation, is left out.
    """
    if not uid:
        return name
    base = name[:247].rstrip("-.")
    if not OBJECT_NAME.fullmatch(base):
        base = "gang"
    return f"{base}-{_digest(uid)[:5]}"


def gang_uid(*parts: str) -> GangUid:
    """Return who a gang is, from what tells it apart; as a digest where that is long, or not of plain characters.

    Owners and annotations are written by anybody, and what is written there ends up in the books.
    """
    uid = "/".join(filter(None, parts))
    plain = uid.isascii() and uid.isprintable() and len(uid) <= LONGEST_UID
    return GangUid(uid if plain else _digest(uid))


def maker(uid: GangUid) -> Uid:
    """Return the UID of the object that a gang is one of; of no object where names alone make the gang."""
    return Uid(uid.partition("/")[0])


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def ground(kind: str, key: str) -> str:
    """Return what `Identity.grounds` calls an object that pods name: a UID stands for itself."""
    return f"{kind} {key}"


# Named outright.


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
    """Return a gang that starts with fewer pods than it has, where somebody says so and it is known how many it has."""
    if least is None or found.needed == UNKNOWN_SIZE:
        return found
    # A Job needs fewer towards its end. Of what others make, pods that have succeeded are subtracted later.
    needed = min(least, found.size if found.counts_ended else found.needed)
    if needed >= found.size:
        return replace(found, needed=needed, elastic=False)
    return replace(found, needed=needed, elastic=True, said=said)


def _grouped(pod: Pod, grouping: Grouping, name: str) -> Identity:
    """Return the gang that another system's words make, which say how large it is."""
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
    """Return the gang that a pod is in by the words of another system.

    Where a system's kind of PodGroup is not served, what is left of its words in a manifest means nothing.
    """
    for family, name_of in podgroup.NAMED:
        name = name_of(pod)
        if name and (snapshot.unwatched.get(family.key) != UNSERVED or declared_size(pod)):
            return _of_pod_group(pod, family, name, snapshot)
    grouped = pod_labels.grouping_of(pod)
    return None if grouped is None else _grouped(pod, *grouped)


# By owners.


def _of_ancestry(pod: Pod, ancestry: OwnerChain, snapshot: Snapshot) -> Identity | None:
    """Return the gang of what is above a pod; None where nothing above it says more than a batch Job does."""
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
    """Return the gang of a pod that nothing gathers: its batch Job's, or one of its own."""
    job = ancestry.links[0].found if ancestry.links else None
    if isinstance(job, Job):
        return _of_job(pod, job, ancestry)
    owner = pod.meta.controller
    # The next pod of a StatefulSet has the name of the one before; what others make has a name of its own.
    in_line = owner is not None and kind_of(owner) == owner_chain.STATEFUL_SET
    line = gang_uid(owner.uid, pod.meta.name) if owner is not None and in_line else ""
    return replace(_alone(pod, ancestry.inputs), line=line)


def _of_parent(pod: Pod, parent: Parent, family: WorkloadKind, ancestry: OwnerChain) -> Identity:
    """Return the gang of those that an object's controller makes with a pod."""
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
    """Return the executors of a Spark driver that no SparkApplication stands above: they start one by one."""
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
    """Return a gang that waits for what its pod belongs to; None where that decides nothing, as of a StatefulSet."""
    last = ancestry.links[-1].owner
    if kind_of(last) == owner_chain.BATCH_JOB:
        return _of_job(pod, None, ancestry)
    is_group = leaderworkerset.SIZE in pod.meta.annotations
    if not is_group and not (kind_of(last) == owner_chain.POD and spark.ROLE in pod.meta.labels):
        return None
    why = snapshot.unwatched.get(kind_of(last))
    return _held(pod, ancestry, _blind(last.kind, why) if why else _missing(last.kind, last.name))


def _held(pod: Pod, ancestry: OwnerChain, why: str) -> Identity:
    """Return a gang that cannot start, as nobody can say who is in it."""
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
    """Return the gang of a Job; while the Job itself is not seen yet, one that cannot be complete."""
    owner, uid = ancestry.links[0].owner, gang_uid(ancestry.links[0].owner.uid)
    declared = declared_size(pod)
    size = declared or (0 if job is None else job.together)
    needed = declared or UNKNOWN_SIZE
    if job is not None and not (declared and job.left >= job.together):
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
    return max(job.left, 1)


# Why nobody knows.


def _unseen(family: WorkloadKind, name: str, namespace: str, snapshot: Snapshot) -> str:
    """Say why an object is not seen that gangs are read from."""
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
