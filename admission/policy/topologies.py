"""Gangs that stay together: what their pods or their Gang ask for, where they are, and what is told of it.

All pods of a gang ask for the same, or a Gang that a user wrote does so for all of them. Pods that have a node bind
those that come later; that is read from the pods and the ledger, so that the next leader sees the same.
"""

from collections.abc import Iterator, Mapping

from admission.api import names
from admission.api.gangs import TopologyReport, TopologyWish
from admission.api.names import NodeName
from admission.api.nodes import Node
from admission.api.pods import Pod
from admission.api.reasons import Denial, DenyReason, Hold, HoldReason
from admission.dra.plans import Topology
from admission.policy.families import sayings
from admission.policy.recognition import Group

KEYS: Mapping[str, bool] = {names.TOPOLOGY: True, names.TOPOLOGY_PREFERRED: False}
"""What a pod may say, and whether it is required then."""


UNCOUNTED = "placement Count leaves the nodes to kube-scheduler, which does not look at domains"


def denial(group: Group) -> Denial | None:
    """Refuse a gang whose pods, or its Gang, ask for different things."""
    written = _written(group)
    first = _said(group.pods[0]) if group.pods else {}
    for pod in group.pods:
        own = _said(pod)
        if len(own) > 1:
            return _refused(pod, f"pod {pod.meta.name} asks for {_shown(own)}; keep one of the two")
        if written is not None:
            wanted = _texts(written)
            if own and own != wanted:
                message = (
                    f"pod {pod.meta.name} asks for {_shown(own)}, and Gang {group.key} for {_shown(wanted)} by"
                    " spec.topology; leave it out of the pods, or write the same"
                )
                return _refused(pod, message)
        elif own != first:
            message = (
                f"pod {pod.meta.name} asks for {_shown(own)}, and pod {group.pods[0].meta.name} for {_shown(first)};"
                f" give all pods of the gang the same {names.TOPOLOGY}, or none"
            )
            return _refused(pod, message)
    return None


def wish(group: Group) -> TopologyWish | None:
    """Return what a gang asks for that `denial` has nothing against; None where its pods may go anywhere."""
    written = _written(group)
    if written is not None:
        return written
    for key, required in KEYS.items():
        label = sayings.setting(group.pods[0], key) if group.pods else ""
        if label:
            return TopologyWish(label=label, required=required)
    return None


def question(group: Group) -> Topology | None:
    """Return the same for the planner, with the nodes where other pods of the gang are."""
    wanted = wish(group)
    if wanted is None:
        return None
    return Topology(label=wanted.label, required=wanted.required, beside=frozenset(_nodes(group)))


def uncounted(topology: Topology) -> Hold:
    """Hold a gang that has to be together, and is placed by `Count`."""
    return Hold(
        HoldReason.NOT_SIMULATED,
        f"{UNCOUNTED} of {topology.label}; ask for placement Auto or Pin, or for {names.TOPOLOGY_PREFERRED}",
        {"topology": topology.label},
    )


def report(group: Group, nodes: Mapping[NodeName, Node]) -> TopologyReport | None:
    """Return what became of a gang's wish."""
    wanted = wish(group)
    if wanted is None:
        return None
    labels = (nodes[name].meta.labels.get(wanted.label) for name in _nodes(group) if name in nodes)
    return TopologyReport(wish=wanted, domains=tuple(sorted({value for value in labels if value is not None})))


def _written(group: Group) -> TopologyWish | None:
    record = group.record
    return record.topology if record is not None and record.written_by_user else None


def _said(pod: Pod) -> dict[str, str]:
    return {key: label for key in KEYS if (label := sayings.setting(pod, key))}


def _texts(wanted: TopologyWish) -> dict[str, str]:
    return {key: wanted.label for key, required in KEYS.items() if required is wanted.required}


def _shown(said: Mapping[str, str]) -> str:
    return " and ".join(f"{key} {label}" for key, label in said.items()) or f"no {names.TOPOLOGY}"


def _refused(pod: Pod, message: str) -> Denial:
    return Denial(DenyReason.POLICY_VIOLATION, message, {"pod": pod.meta.name})


def _nodes(group: Group) -> Iterator[NodeName]:
    """Yield the nodes of the pods that have one: where they are bound, else where they are going."""
    seats = group.placement.seats if group.placement is not None else {}
    for pod in group.pods:
        seat = seats.get(pod.meta.uid)
        node = pod.node or (seat.node if seat is not None else NodeName(""))
        if node:
            yield node
