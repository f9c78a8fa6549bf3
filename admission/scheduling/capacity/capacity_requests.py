"""ProvisioningRequests of gangs: what Cluster Autoscaler is asked for, for one gang, and what follows from its answer.

A request is that of one reservation: its name follows from the gang and the time when it was charged. So every leader
knows from the books which request a gang has, and a gang that is tried again asks with another one. Once pods are let
in, their annotations say it: later reservations of the gang change nothing. Pods that join a gang that has started have
a request of their own, by the time that their places on nodes to come have.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from admission.api.capacity.node_provision import Provisioning, ProvisioningMode
from admission.api.capacity.node_shapes import NodeShape
from admission.api.capacity.provisioning_requests import GROUP, KEY, KIND, MOST_POD_SETS, Answer, ProvisioningRequest
from admission.api.kubernetes.meta import Owner
from admission.api.kubernetes.pods import Pod
from admission.api.muster.ledger_entries import Placement
from admission.api.muster.queues import Queue
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import NodeName, Uid
from admission.api.values.reasons import Detail, Hold, HoldReason
from admission.lifecycle import placement_progress
from admission.workloads.gangs import Group

LONGEST_GANG = 40
"""Characters of the gang's name in that of its request."""

MOST_OWNERS = 64
"""The most pods that own a request of a gang without a workload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSet:
    """Equal pods of a gang. pod: one of them. labels: of the nodes to which they are kept; {} if they go anywhere."""

    pod: Pod
    count: int
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityRequest:
    """The request of one gang. owners: with the last of which the garbage collector deletes it.

    shapes: the labels of the nodes that are asked for, by shape.
    """

    name: str
    namespace: str
    gang: str
    provisioning_class: str
    parameters: Mapping[str, str]
    pod_sets: tuple[PodSet, ...]
    owners: tuple[Owner, ...]
    shapes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def annotations(self) -> Mapping[str, str]:
        """Return those of the request: whose it is, and what it asks for."""
        shapes = {name: dict(labels) for name, labels in self.shapes.items()}
        return {names.GANG: self.gang, names.MATCHED_LABELS: json.dumps(shapes, sort_keys=True)}

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


def asks_by_request(queue: Queue | None) -> bool:
    """Return whether a queue asks for nodes by ProvisioningRequests."""
    return queue is not None and queue.provisioning.mode is ProvisioningMode.REQUEST


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is asked for at a time: for the start of a gang, or for pods that join it when it has started.

    key: `namespace/name` of the request that pods consume, or else that there has to be. pods: those that wait for its
    nodes. members: those that are let in together with them, themselves included.
    """

    key: str
    pods: frozenset[Uid]
    members: frozenset[Uid]
    is_joining: bool


def asked(placement: Placement, snapshot: Snapshot) -> tuple[Asked, ...]:
    """Return what is asked for a gang; nothing if no nodes are."""
    members: dict[datetime | None, set[Uid]] = {}
    for uid, seat in placement.seats.items():
        members.setdefault(names.joined_at(seat.as_asked), set()).add(uid)
    found: list[Asked] = []
    for at, uids in members.items():
        pods = frozenset(uid for uid in uids if names.shape_of(placement.seats[uid].as_asked) is not None)
        if pods:
            key = _consumed(placement, pods, snapshot) or _key(placement, pods, at)
            found.append(Asked(key=key, pods=pods, members=frozenset(uids), is_joining=at is not None))
    return tuple(found)


def _key(placement: Placement, pods: Iterable[Uid], joined_at: datetime | None) -> str:
    namespace, _, gang = placement.gang.partition("/")
    asked = (placement_progress.nodes_asked_at(placement.seats[uid], placement) for uid in pods)
    at = min(filter(None, asked)).astimezone(UTC).isoformat(timespec="microseconds")
    of = f"{placement.gang_uid}/{at}" if joined_at is None else f"{placement.gang_uid}/joins/{at}"
    digest = hashlib.sha256(of.encode()).hexdigest()[:10]
    return f"{namespace}/{gang[:LONGEST_GANG].rstrip('-.')}-{digest}"


def build(group: Group, one: Asked, provisioning: Provisioning, shapes: Mapping[str, NodeShape]) -> CapacityRequest:
    """Return the request of a gang with a place. one: of `asked`."""
    namespace, _, name = one.key.partition("/")
    seats = group.placement.seats if group.placement is not None else {}
    pods = [(pod, seats[pod.meta.uid].as_asked) for pod in group.pods if pod.meta.uid in one.members and not pod.node]
    asked_of = placement_progress.asked_for(node for _, node in pods)
    return CapacityRequest(
        name=name,
        namespace=namespace,
        gang=group.key,
        provisioning_class=provisioning.provisioning_class,
        parameters=provisioning.parameters,
        pod_sets=tuple(_sets(pods, shapes)),
        owners=_owners(group),
        shapes={one: shapes[one].matches for one in asked_of if one in shapes},
    )


def unserved(snapshot: Snapshot) -> str:
    """Return why nobody can be asked by a ProvisioningRequest, and what helps; empty if that is possible."""
    why = snapshot.unwatched.get(KEY)
    if why is None:
        return ""
    return (
        f"ProvisioningRequests ({GROUP}/v1) cannot be read: {why}; install the CRD of Cluster Autoscaler, whose flag"
        " --enable-provisioning-requests has to be set, or choose another spec.provisioning.mode"
    )


def too_many_sets(group: Group) -> str:
    """Return why a gang cannot be described by one request; empty if it can."""
    kinds: list[tuple[object, ...]] = []
    for pod in group.waiting:
        kind = _kind(pod)
        if kind not in kinds:
            kinds.append(kind)
        # Those of one kind may have places of several kinds.
        if len(kinds) > MOST_POD_SETS // 2:
            return (
                f"its pods are of more than {MOST_POD_SETS // 2} kinds, and a {KIND} has at most {MOST_POD_SETS} sets"
                " of equal pods"
            )
    return ""


def failure(request: ProvisioningRequest, *, is_open: bool, runs: bool) -> str:
    """Return why a gang has to ask once more; empty if its request stands. is_open: whether a gate of it is open."""
    answers = request.answers
    if Answer.CAPACITY_REVOKED in answers:
        return f"{KIND} {request.meta.key}: the capacity was revoked ({answers[Answer.CAPACITY_REVOKED]})"
    if Answer.FAILED in answers and not runs:
        return f"{KIND} {request.meta.key} failed ({answers[Answer.FAILED]})"
    # From then on the nodes may be taken away or given to others. Pods that are let in may have bound meanwhile.
    if Answer.BOOKING_EXPIRED in answers and not is_open and not runs:
        return f"{KIND} {request.meta.key}: the booking expired ({answers[Answer.BOOKING_EXPIRED]})"
    return ""


def changed_shape(request: ProvisioningRequest, shapes: Mapping[str, NodeShape]) -> str | None:
    """Return a shape whose nodes have other labels now than a request has asked for; None if there is none."""
    try:
        asked_of = json.loads(request.meta.annotations.get(names.MATCHED_LABELS, "{}"))
    except (ValueError, RecursionError):
        return None  # somebody has changed it
    known = asked_of.items() if isinstance(asked_of, dict) else ()
    return next((name for name, labels in known if name in shapes and dict(shapes[name].matches) != labels), None)


def hold(placement: Placement, one: Asked, request: ProvisioningRequest | None, trouble: str) -> Hold | None:
    """Return why pods wait behind their gates; None once their capacity is there. trouble: of making the request."""
    is_leaving = request is not None and request.meta.deleted is not None
    if request is not None and Answer.PROVISIONED in request.answers and not is_leaving:
        return None
    key, nodes = one.key, placement_progress.asked_for(placement.seats[uid].as_asked for uid in one.pods)
    if request is None:
        state = f"could not be made yet: {trouble}" if trouble else "is being made"
    elif is_leaving:
        state = "is being deleted by somebody, and is made again when it is gone"
    elif Answer.ACCEPTED in request.answers:
        state = f"was accepted ({request.progress or request.answers[Answer.ACCEPTED]})"
    else:
        state = f"is not answered yet{f' ({request.progress})' if request.progress else ''}"
    message = f"nodes were asked for ({_listed(nodes)}): {KIND} {key} {state}; its quota is reserved"
    details: dict[str, Detail] = {"nodes": sum(nodes.values()), "provisioningRequest": key.partition("/")[2]}
    return Hold(HoldReason.NODES_NEEDED, message, details)


def hold_unread(asked_of: Mapping[str, int], name: str, why: str) -> Hold:
    """Return the hold of pods for nodes of a shape that cannot be read. asked_of: all nodes that were asked for."""
    message = f"nodes were asked for ({_listed(asked_of)}), but {why}; mend it. Until then its quota is reserved"
    return Hold(HoldReason.NODES_NEEDED, message, {"nodes": sum(asked_of.values()), "unread": name})


def _listed(nodes: Mapping[str, int]) -> str:
    return ", ".join(placement_progress.in_words(nodes))


def annotations(request: ProvisioningRequest) -> Mapping[str, str]:
    """Return the annotations of the pods that consume a request."""
    return {names.CONSUMED_REQUEST: request.meta.name, names.PROVISIONING_CLASS: request.provisioning_class}


def unneeded(
    requests: Iterable[ProvisioningRequest], placements: Iterable[Placement], snapshot: Snapshot
) -> list[ProvisioningRequest]:
    """Return the requests that Muster made for reservations that are over, or that ask in another way now.

    A request stays for which pods were let in, since Cluster Autoscaler overlooks those without their request.
    """
    own = [request for request in requests if request.is_ours]
    needed: set[str] = set()
    namespaces = {request.meta.namespace for request in own}
    for placement in placements if own else ():
        if placement.gang.partition("/")[0] not in namespaces:
            continue
        asks = asks_by_request(snapshot.queues.get(placement.queue))
        needed.update(one.key for one in asked(placement, snapshot) if asks or _consumed(placement, one.pods, snapshot))
    return [request for request in own if request.meta.key not in needed and request.meta.deleted is None]


def _consumed(placement: Placement, uids: Collection[Uid], snapshot: Snapshot) -> str | None:
    """Return the key of the request that some pods of a gang consume; None if none was let in with one."""
    pods = (snapshot.pods.get(uid) for uid in uids)
    found = (pod.meta.annotations.get(names.CONSUMED_REQUEST) for pod in pods if pod is not None and not pod.gated)
    name = next((one for one in found if one), None)
    return None if name is None else f"{placement.gang.partition('/')[0]}/{name}"


def _sets(pods: Iterable[tuple[Pod, NodeName]], shapes: Mapping[str, NodeShape]) -> Iterator[PodSet]:
    found: list[tuple[tuple[object, ...], Pod, Mapping[str, str]]] = []
    counts: list[int] = []
    for pod, node in pods:
        shape = shapes.get(names.shape_of(node) or "")
        kind = (*_kind(pod), shape.name if shape is not None else "")
        index = next((at for at, one in enumerate(found) if one[0] == kind), len(found))
        if index == len(found):
            found.append((kind, pod, shape.matches if shape is not None else {}))
            counts.append(0)
        counts[index] += 1
    for (_, pod, labels), count in zip(found, counts, strict=True):
        yield PodSet(pod=pod, count=count, labels=labels)


def _kind(pod: Pod) -> tuple[object, ...]:
    """Return what pods of one controller have to agree in to count as equal."""
    owner = pod.meta.controller
    return (
        owner.uid if owner is not None else "",
        pod.claims,
        pod.requests,
        pod.node_selector,
        pod.affinity,
        pod.tolerations,
        pod.runtime_class,
        pod.scheduler,
    )


def _owners(group: Group) -> tuple[Owner, ...]:
    workload = group.identity.workload
    if workload is not None and workload.uid:
        return (workload,)
    pods = [pod for pod in group.pods if not names.is_expected(pod.meta.uid)]
    return tuple(
        Owner(api_version="v1", kind="Pod", name=pod.meta.name, uid=pod.meta.uid) for pod in pods[:MOST_OWNERS]
    )
