"""The topology of a gang: the domains that its pods or its Gang request, its present nodes, and its status report.

All pods of a gang request the same topology, and so do all pods of a subgroup; or a Gang that a user wrote declares it
for all of them. Pods that have a node bind those that come later; the nodes are read from the pods and the ledger, so
that the next leader decides the same.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from admission.api.kubernetes.nodes import Node
from admission.api.kubernetes.pods import Pod
from admission.api.muster.gangs import DomainReport, DomainRequest, TopologyReport, TopologyRequest
from admission.api.values import names
from admission.api.values.names import NodeName
from admission.api.values.reasons import Denial, DenyReason, Hold, HoldReason
from admission.dra.planner import pod_groups
from admission.dra.requests.gang_request import Colocation, PodDemand, Topology
from admission.workloads import gangs
from admission.workloads.gangs import Group
from admission.workloads.kinds import labels

GANG_KEYS = (names.TOPOLOGY, names.TOPOLOGY_PREFERRED)
SUBGROUP_KEYS = (names.SUBGROUP_TOPOLOGY, names.SUBGROUP_TOPOLOGY_PREFERRED)

KEYS = (*GANG_KEYS, *SUBGROUP_KEYS)
"""The keys of node labels that a pod may request; the first of each pair is required, the second preferred."""


UNCOUNTED = "placement Count leaves the nodes to kube-scheduler, which does not look at domains"


def denial(group: Group) -> Denial | None:
    """Refuse a gang whose pods, or whose Gang, request different topologies."""
    written = _written(group)
    whole = _at_odds(group, group.pods, GANG_KEYS, "of the gang", None if written is None else _texts(written.gang))
    if whole is not None or not _are_subgroups_wanted(group):
        return whole
    wanted = None if written is None else _texts(written.subgroups, SUBGROUP_KEYS)
    for pod in group.pods:
        said = wanted or _said(pod, SUBGROUP_KEYS)
        if said and not gangs.recognize(pod):
            message = (
                f"pod {pod.meta.name} is to be where its subgroup is ({_shown(said)}), and nothing says which subgroup"
                f" of the gang it is in; annotate it with {names.SUBGROUP}"
            )
            return _refused(pod, message)
    denials = (_at_odds(group, pods, SUBGROUP_KEYS, f"of subgroup {name}", wanted) for name, pods in _parts(group.pods))
    return next((found for found in denials if found is not None), None)


def _at_odds(
    group: Group, pods: Sequence[Pod], keys: tuple[str, str], whose: str, written: dict[str, str] | None
) -> Denial | None:
    """Refuse pods that request different topologies, or another one than their Gang, which is `written`."""
    first = _said(pods[0], keys) if pods else {}
    for pod in pods:
        own = _said(pod, keys)
        if written is not None:
            if own and own != written:
                message = (
                    f"pod {pod.meta.name} asks for {_shown(own, keys)}, and Gang {group.key} for"
                    f" {_shown(written, keys)} by spec.topology; leave it out of the pods, or write the same"
                )
                return _refused(pod, message)
        elif own != first:
            message = (
                f"pod {pod.meta.name} asks for {_shown(own, keys)}, and pod {pods[0].meta.name} for"
                f" {_shown(first, keys)}; give all pods {whose} the same {keys[0]}, or none"
            )
            return _refused(pod, message)
    return None


def question(group: Group) -> Topology | None:
    """Return the topology of a gang that passes `denial`, with the nodes of its placed pods.

    None if its pods may go anywhere.
    """
    whole, parts = _of_gang(group), _of_subgroups(group)
    if not whole and not parts:
        return None
    return Topology(
        gang=_together(whole, _nodes(group, group.pods)),
        subgroups=tuple((name, _together(request, _nodes(group, pods))) for name, (request, pods) in parts.items()),
    )


def parted(demands: Iterable[PodDemand], topology: Topology | None) -> tuple[PodDemand, ...]:
    """Return demands with their subgroups, for subgroups that have a topology."""
    known = {name for name, _ in topology.subgroups} if topology is not None else set()
    if not known:
        return tuple(demands)
    named = ((one, gangs.recognize(one.pod)) for one in demands)
    return tuple(replace(one, subgroup=name) if name in known else one for one, name in named)


def uncounted(topology: Topology) -> Hold:
    """Hold a gang that requires a domain but has placement `Count`."""
    label = next(each.required for each in topology.each if each.required)
    return Hold(
        HoldReason.NOT_SIMULATED,
        f"{UNCOUNTED} of {label}; ask for placement Auto or Pin, or for {names.TOPOLOGY_PREFERRED}",
        {"topology": label},
    )


def report(group: Group, nodes: Mapping[NodeName, Node]) -> TopologyReport | None:
    """Return the domains that a gang with a topology is in."""
    whole, parts = _of_gang(group), _of_subgroups(group)
    if not whole and not parts:
        return None
    return TopologyReport(
        gang=_reported(whole, _nodes(group, group.pods), nodes) if whole else None,
        subgroups=tuple(
            (name, _reported(request, _nodes(group, pods), nodes)) for name, (request, pods) in parts.items()
        ),
    )


def _of_gang(group: Group) -> DomainRequest:
    written = _written(group)
    if written is not None:
        return written.gang
    return _domain_request(group.pods[0], GANG_KEYS) if group.pods else DomainRequest()


def _of_subgroups(group: Group) -> dict[str, tuple[DomainRequest, list[Pod]]]:
    """Return the topology and the pods of each subgroup, by name."""
    if not _are_subgroups_wanted(group):
        return {}
    written = _written(group)
    wished = (
        (name, written.subgroups if written is not None else _domain_request(pods[0], SUBGROUP_KEYS), pods)
        for name, pods in _parts(group.pods)
    )
    return {name: (request, pods) for name, request, pods in wished if request}


def _are_subgroups_wanted(group: Group) -> bool:
    written = _written(group)
    if written is not None:
        return bool(written.subgroups)
    return any(labels.setting(pod, key) for pod in group.pods for key in SUBGROUP_KEYS)


def _parts(pods: Iterable[Pod]) -> list[tuple[str, list[Pod]]]:
    """Return the subgroups and their pods, by name; pods without a subgroup are left out."""
    found: dict[str, list[Pod]] = {}
    for pod in pods:
        name = gangs.recognize(pod)
        if name:
            found.setdefault(name, []).append(pod)
    return sorted(found.items(), key=lambda part: pod_groups.natural(part[0]))


def _together(request: DomainRequest, nodes: Iterable[NodeName]) -> Colocation:
    return Colocation(
        required=request.required,
        preferred=request.preferred,
        colocated_with=frozenset(nodes) if request else frozenset(),
    )


def _reported(request: DomainRequest, own: Iterable[NodeName], nodes: Mapping[NodeName, Node]) -> DomainReport:
    labels = [nodes[name].meta.labels for name in own if name in nodes]

    def values(label: str) -> tuple[str, ...]:
        return tuple(sorted({each[label] for each in labels if label in each}))

    rather = values(request.preferred) if request.required and request.preferred else ()
    return DomainReport(request=request, domains=values(request.required or request.preferred), preferred=rather)


def _written(group: Group) -> TopologyRequest | None:
    record = group.record
    return record.topology if record is not None and record.written_by_user else None


def _domain_request(pod: Pod, keys: tuple[str, str]) -> DomainRequest:
    required, preferred = (labels.setting(pod, key) for key in keys)
    return DomainRequest(required=required, preferred=preferred)


def _said(pod: Pod, keys: tuple[str, str]) -> dict[str, str]:
    return _texts(_domain_request(pod, keys), keys)


def _texts(request: DomainRequest, keys: tuple[str, str] = GANG_KEYS) -> dict[str, str]:
    return {key: label for key, label in zip(keys, (request.required, request.preferred), strict=True) if label}


def _shown(said: Mapping[str, str], keys: tuple[str, str] = GANG_KEYS) -> str:
    return " and ".join(f"{key} {label}" for key, label in said.items()) or f"no {keys[0]}"


def _refused(pod: Pod, message: str) -> Denial:
    return Denial(DenyReason.POLICY_VIOLATION, message, {"pod": pod.meta.name})


def _nodes(group: Group, pods: Iterable[Pod]) -> Iterator[NodeName]:
    """Yield the pods' nodes: where they are bound, else where they are placed."""
    seats = group.placement.seats if group.placement is not None else {}
    for pod in pods:
        seat = seats.get(pod.meta.uid)
        node = pod.node or (seat.node if seat is not None else NodeName(""))
        if node:
            yield node
