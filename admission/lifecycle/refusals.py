"""Refusals: kube-scheduler did not bind a pod where it was planned, for a reason that Muster does not see.

A plan that did not start is not tried again unchanged: pods of the same shape are planned elsewhere until something on
the node has changed. What counts as a change there: the node's labels, taints, cordon and allocatable resources, or
another Node of its name; a pod of others that was on it is gone; a ResourceSlice of it was written again or is gone. A
pod that comes frees nothing and does not count. What a node does not show may change as well, a volume for one, so a
refusal lapses after `LASTS`. The latest refusals are in the status of their Gang (`written`), from which a new leader
has them again (`restored`); changes of a node count for it from when it took over.
"""

import dataclasses
import hashlib
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from admission.api.kubernetes.devices import Slice
from admission.api.kubernetes.nodes import Node
from admission.api.kubernetes.pods import Pod
from admission.api.muster.gangs import RefusedPod
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import NodeName, Uid
from admission.api.values.reasons import Detail, Hold
from admission.api.values.selectors import NodeSelector, NodeTerm, Requirement
from admission.dra.requests.gang_request import PodDemand
from admission.workloads.gangs import Group

LASTS = timedelta(hours=1)
MOST = 64
"""The most refusals that are kept of one gang; the oldest go first."""

MOST_WRITTEN = 16
"""The most of them that are in the status of its Gang."""

_NAME = "metadata.name"
_OF_ANY_NODE = re.compile(r"nodes are available: (?!\d|node\(s\))")
"""In a message that names no nodes after this, what is refused is the pod, wherever it would go: a volume that is
missing. Reasons of nodes have their numbers (pkg/scheduler/framework/types.go, FitError)."""


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """What was on a node: the Node, the pods of others that were bound there, and its ResourceSlices by key."""

    node: Node | None
    pods: frozenset[Uid]
    slices: Mapping[str, Slice]

    def has_changed(self, name: NodeName, snapshot: Snapshot) -> bool:
        """Return whether something on the node has changed that may let a pod in."""
        if _filtered_by(self.node) != _filtered_by(snapshot.nodes.get(name)):
            return True
        if any(_is_gone(snapshot.pods.get(uid)) for uid in self.pods):
            return True
        now = ((piece, snapshot.slices.get(key)) for key, piece in self.slices.items())
        return any(found is not piece and found != piece for piece, found in now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The refusal of a gang's pods on a node.

    shape: what the pods ask for, as in `shape`. pod: the name of one. bound: how many of the gang's pods of this shape
    were bound there; as many may go there again. message: kube-scheduler's. since: the ledger's time.
    """

    shape: str
    pod: str
    node: NodeName
    bound: int
    message: str
    since: datetime
    site: Site

    @property
    def is_of_node(self) -> bool:
        """Whether the pod may do better on another node."""
        return _OF_ANY_NODE.search(self.message) is None


Refusals = tuple[Refusal, ...]


def shape(pod: Pod) -> str:
    """Return a digest of what a pod asks of kube-scheduler, equal for the pods that its controller makes in its place.

    Without what ties it to one node: Muster pins pods that it lets in. The same in every process of one release.
    """
    return _digest(_asked(pod))


def _digest(asked: Hashable) -> str:
    return hashlib.sha256(_canonical(asked).encode()).hexdigest()[:16]


def _canonical(value: Any) -> str:
    """Return the text of a value of the API, with sets and mappings in order."""
    if dataclasses.is_dataclass(value):
        parts = [_canonical(getattr(value, one.name)) for one in dataclasses.fields(value) if one.compare]
    elif isinstance(value, Mapping):
        parts = sorted(f"{_canonical(key)}:{_canonical(one)}" for key, one in value.items())
    elif isinstance(value, frozenset):
        parts = sorted(map(_canonical, value))
    elif isinstance(value, tuple):
        parts = [*map(_canonical, value)]
    else:
        return repr(value.value if isinstance(value, Enum) else value)
    return f"{type(value).__name__}({','.join(parts)})"


def _asked(pod: Pod) -> Hashable:
    terms = pod.affinity.terms if pod.affinity is not None else ()
    unpinned = tuple(replace(term, fields=tuple(one for one in term.fields if not _is_pin(one))) for term in terms)
    return (
        tuple(sorted(pod.requests.items())),
        tuple(sorted((key, value) for key, value in pod.node_selector.items() if key != names.HOSTNAME)),
        tuple(term for term in unpinned if term.expressions or term.fields),
        pod.tolerations,
        tuple((claim.name, claim.template) for claim in pod.claims),
        pod.containers,
        pod.features,
        pod.rules,
        pod.scheduler,
        pod.service_account,
    )


def found(group: Group, snapshot: Snapshot, now: datetime) -> Refusals:
    """Return the nodes where pods of an admitted gang were planned and kube-scheduler has not bound them."""
    seats = group.placement.seats if group.placement is not None else {}
    bound: dict[tuple[str, NodeName], int] = {}
    refused: dict[tuple[str, NodeName], Pod] = {}
    shapes = _Shapes()
    for pod in group.pods:
        seat = seats.get(pod.meta.uid)
        if seat is None or seat.node not in snapshot.nodes:
            continue
        key = shapes.of(pod), seat.node
        if pod.node == seat.node:
            bound[key] = bound.get(key, 0) + 1
        elif not pod.node and pod.unschedulable:
            refused.setdefault(key, pod)
    sites = _sites({node for _, node in refused}, group, snapshot)
    return tuple(
        Refusal(
            shape=key[0],
            pod=pod.meta.name,
            node=key[1],
            bound=bound.get(key, 0),
            message=pod.unschedulable,
            since=now,
            site=sites[key[1]],
        )
        for key, pod in refused.items()
    )


class _Shapes:
    """The shapes of pods, digested once for all that ask the same."""

    def __init__(self) -> None:
        self._known: dict[Hashable, str] = {}

    def of(self, pod: Pod) -> str:
        asked = _asked(pod)
        found = self._known.get(asked)
        if found is None:
            found = self._known[asked] = _digest(asked)
        return found


def written(refusals: Refusals) -> tuple[RefusedPod, ...]:
    """Return the latest refusals as the status of their Gang has them."""
    return tuple(
        RefusedPod(shape=one.shape, pod=one.pod, node=one.node, bound=one.bound, message=one.message, at=one.since)
        for one in refusals[-MOST_WRITTEN:]
    )


def restored(found: Sequence[RefusedPod], group: Group, snapshot: Snapshot) -> Refusals:
    """Return the refusals that an earlier leader wrote, with their nodes as they are now."""
    sites = _sites({one.node for one in found}, group, snapshot)
    return tuple(
        Refusal(
            shape=one.shape,
            pod=one.pod,
            node=one.node,
            bound=one.bound,
            message=one.message,
            since=one.at,
            site=sites[one.node],
        )
        for one in found
    )


def merged(before: Refusals, new: Refusals) -> Refusals:
    """Return the refusals of several tries; of one shape and node the newest."""
    again = {(one.shape, one.node) for one in new}
    return (*(one for one in before if (one.shape, one.node) not in again), *new)[-MOST:]


def valid(refusals: Refusals, snapshot: Snapshot, now: datetime) -> Refusals:
    """Return those that still count: nothing has changed on their node, and they are not too old."""
    return tuple(one for one in refusals if now - one.since < LASTS and not one.site.has_changed(one.node, snapshot))


def avoiding(demands: Sequence[PodDemand], refusals: Refusals) -> tuple[PodDemand, ...]:
    """Return the demands of pods that may not go where pods of their shape were refused."""
    if not refusals:
        return tuple(demands)
    avoided: dict[int, list[NodeName]] = {}
    by_shape: dict[str, list[int]] = {}
    shapes = _Shapes()
    for at, demand in enumerate(demands):
        by_shape.setdefault(shapes.of(demand.pod), []).append(at)
    placed: dict[str, int] = {}
    for one in refusals:
        if not one.is_of_node:
            continue
        # As many pods as were bound there may go there again, others than may return to another node.
        first = placed.get(one.shape, 0)
        placed[one.shape] = first + one.bound
        pods = by_shape.get(one.shape, [])
        for at in (*pods[:first], *pods[first + one.bound :]):
            avoided.setdefault(at, []).append(one.node)
    return tuple(
        replace(demand, pod=_kept_off(demand.pod, avoided[at])) if at in avoided else demand
        for at, demand in enumerate(demands)
    )


def text(refusals: Refusals) -> str:
    """Return the refusals in words: the first with kube-scheduler's message, the others counted."""
    first = refusals[0]
    others = len({one.node for one in refusals} - {first.node})
    more = f", and pods on {others} more {'node' if others == 1 else 'nodes'}" if others else ""
    where = f" on node {first.node}" if first.is_of_node else ""
    return f"kube-scheduler refused pod {first.pod}{where} ({first.message}){more}"


def explained(hold: Hold, refusals: Refusals) -> Hold:
    """Return the hold of a gang for which the planner found no place, with the nodes that were left out."""
    refusals = tuple(one for one in refusals if one.is_of_node)
    if not refusals:
        return hold
    details: dict[str, Detail] = {**hold.details, "refusedOn": nodes(refusals)}
    return replace(
        hold, message=f"{hold.message}; left out until something there changes: {text(refusals)}", details=details
    )


def nodes(refusals: Refusals) -> list[str]:
    """Return the nodes that are left out, each once."""
    return list(dict.fromkeys(one.node for one in refusals if one.is_of_node))


def _sites(nodes: set[NodeName], group: Group, snapshot: Snapshot) -> dict[NodeName, Site]:
    if not nodes:
        return {}
    own = {pod.meta.uid for pod in group.pods}
    pods: dict[NodeName, set[Uid]] = {node: set() for node in nodes}
    for uid, pod in snapshot.pods.items():
        if pod.node in nodes and uid not in own and not _is_gone(pod):
            pods[pod.node].add(uid)
    slices: dict[NodeName, dict[str, Slice]] = {node: {} for node in nodes}
    for key, piece in snapshot.slices.items():
        if piece.node_name in nodes:
            slices[piece.node_name][key] = piece
    return {node: Site(snapshot.nodes.get(node), frozenset(pods[node]), slices[node]) for node in nodes}


def _is_gone(pod: Pod | None) -> bool:
    return pod is None or pod.finished


def _filtered_by(node: Node | None) -> tuple[object, ...] | None:
    """Return what filters read of a node; not its version, which the kubelet's reports change."""
    if node is None:
        return None
    return node.meta.uid, node.meta.labels, node.taints, node.unschedulable, node.allocatable


def _is_pin(requirement: Requirement) -> bool:
    return requirement.key == _NAME and requirement.operator == "In"


def _kept_off(pod: Pod, avoided: Iterable[NodeName]) -> Pod:
    """Return the pod with an affinity that names the nodes where it may not go."""
    out = tuple(Requirement(key=_NAME, operator="NotIn", values=(node,)) for node in avoided)
    terms = pod.affinity.terms if pod.affinity is not None else (NodeTerm(),)
    known = (term for term in terms if pod.affinity is None or term.expressions or term.fields)
    return replace(
        pod, affinity=NodeSelector(terms=tuple(replace(term, fields=(*term.fields, *out)) for term in known))
    )
