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
from admission.dra.requests.gang_request import Colocation, PartLabels, PodDemand, Topology
from admission.workloads import gangs
from admission.workloads.gangs import Group
from admission.workloads.kinds import catalog, labels, registry
from admission.workloads.kinds.registry import ExclusiveParts

GANG_KEYS = (names.TOPOLOGY, names.TOPOLOGY_PREFERRED)
SUBGROUP_KEYS = (names.SUBGROUP_TOPOLOGY, names.SUBGROUP_TOPOLOGY_PREFERRED)

KEYS = (*GANG_KEYS, *SUBGROUP_KEYS)
"""The keys of node labels that a pod may request; the first of each pair is required, the second preferred."""


IGNORED_BY_COUNT = "placement Count leaves the nodes to kube-scheduler, which does not look at domains"


def denial(group: Group) -> Denial | None:
    """Refuse a gang whose pods, or whose Gang, request different topologies."""
    declared = _declared(group)
    gang_conflict = _conflict(
        group, group.pods, GANG_KEYS, "of the gang", None if declared is None else _texts(declared.gang)
    )
    if gang_conflict is not None or not _has_subgroup_topology(group):
        return gang_conflict
    declared_texts = None if declared is None else _texts(declared.subgroups, SUBGROUP_KEYS)
    for pod in group.pods:
        requested = declared_texts or _requested(pod, SUBGROUP_KEYS)
        if requested and not gangs.subgroup_of(pod):
            message = (
                f"pod {pod.meta.name} is to be where its subgroup is ({_format(requested)}), and nothing says which"
                f" subgroup of the gang it is in; annotate it with {names.SUBGROUP}"
            )
            return _denial(pod, message)
    denials = (
        _conflict(group, pods, SUBGROUP_KEYS, f"of subgroup {name}", declared_texts)
        for name, pods in _subgroups(group.pods)
    )
    return next((conflict for conflict in denials if conflict is not None), None)


def _conflict(
    group: Group, pods: Sequence[Pod], keys: tuple[str, str], whose: str, declared: dict[str, str] | None
) -> Denial | None:
    """Refuse pods that request different topologies, or another one than their Gang, which is `declared`."""
    first = _requested(pods[0], keys) if pods else {}
    for pod in pods:
        requested = _requested(pod, keys)
        if declared is not None:
            if requested and requested != declared:
                message = (
                    f"pod {pod.meta.name} asks for {_format(requested, keys)}, and Gang {group.key} for"
                    f" {_format(declared, keys)} by spec.topology; leave it out of the pods, or write the same"
                )
                return _denial(pod, message)
        elif requested != first:
            message = (
                f"pod {pod.meta.name} asks for {_format(requested, keys)}, and pod {pods[0].meta.name} for"
                f" {_format(first, keys)}; give all pods {whose} the same {keys[0]}, or none"
            )
            return _denial(pod, message)
    return None


def request(group: Group) -> Topology | None:
    """Return the topology of a gang that passes `denial`, with the nodes of its placed pods.

    None if its pods may go anywhere.
    """
    gang_request, subgroups = _of_gang(group), _of_subgroups(group)
    parts, exclusive = _parts(group), _exclusive_parts(group)
    if not gang_request and not subgroups and not exclusive:
        return None
    found = {name: _colocation(request, _nodes(group, pods)) for name, (request, pods) in subgroups.items()}
    for name, (label, followers) in exclusive.items():
        found[name] = replace(found.get(name, Colocation()), exclusive=label, followers=followers)
    return Topology(
        gang=_colocation(gang_request, _nodes(group, group.pods)),
        subgroups=tuple(sorted(found.items(), key=lambda item: pod_groups.natural(item[0]))),
        labels=PartLabels(part=parts.label, index=parts.index) if exclusive and parts is not None else None,
    )


def plans_followers(group: Group) -> bool:
    """Return whether the pods that follow the first ones of exclusive Jobs or groups are planned with these.

    Not where the first pods belong to subgroups of another name that have a topology, nor where the kind's webhook did
    not write into them that their part is alone.
    """
    followers, parts = group.identity.followers, _parts(group)
    if not followers or parts is None:
        return False
    has_subgroups = _has_subgroup_topology(group)
    return all(
        parts.domain(pod) and not pod.group and (not has_subgroups or gangs.subgroup_of(pod) == parts.name(pod))
        for pod in group.pods
        if followers.get(parts.role(pod))
    )


def _parts(group: Group) -> ExclusiveParts | None:
    owner = group.identity.workload
    kind = catalog.OWNERS.get(registry.kind_of(owner)) if owner is not None else None
    return kind.exclusive if kind is not None else None


def _exclusive_parts(group: Group) -> dict[str, tuple[str, int]]:
    """Return the node label and the pods that follow, of each part whose first pod waits and is to be alone.

    Empty where no pods follow: then rules between pods say all.
    """
    parts = _parts(group)
    if parts is None or not plans_followers(group):
        return {}
    followers = group.identity.followers
    found = {
        parts.name(pod): (label, followers.get(parts.role(pod), 0))
        for pod in group.waiting
        if (label := parts.domain(pod))
    }
    return found if any(count for _, count in found.values()) else {}


def with_subgroups(demands: Iterable[PodDemand], topology: Topology | None, group: Group) -> tuple[PodDemand, ...]:
    """Return a gang's demands with their subgroups, for subgroups that have a topology."""
    names_ = {name for name, _ in topology.subgroups} if topology is not None else set()
    if not names_:
        return tuple(demands)
    parts = _parts(group) if topology is not None and topology.labels is not None else None
    name_of = gangs.subgroup_of if parts is None else parts.name
    pairs = ((one, name_of(one.pod)) for one in demands)
    return tuple(replace(one, subgroup=name) if name in names_ else one for one, name in pairs)


def hold_for_count(topology: Topology) -> Hold:
    """Hold a gang that requires a domain but has placement `Count`."""
    label = next(each.required for each in topology.each if each.required)
    return Hold(
        HoldReason.NOT_SIMULATED,
        f"{IGNORED_BY_COUNT} of {label}; ask for placement Auto or Pin, or for {names.TOPOLOGY_PREFERRED}",
        {"topology": label},
    )


def report(group: Group, nodes: Mapping[NodeName, Node]) -> TopologyReport | None:
    """Return the domains that a gang with a topology is in."""
    gang_request, subgroups = _of_gang(group), _of_subgroups(group)
    if not gang_request and not subgroups:
        return None
    return TopologyReport(
        gang=_reported(gang_request, _nodes(group, group.pods), nodes) if gang_request else None,
        subgroups=tuple(
            (name, _reported(request, _nodes(group, pods), nodes)) for name, (request, pods) in subgroups.items()
        ),
    )


def _of_gang(group: Group) -> DomainRequest:
    declared = _declared(group)
    if declared is not None:
        return declared.gang
    return _domain_request(group.pods[0], GANG_KEYS) if group.pods else DomainRequest()


def _of_subgroups(group: Group) -> dict[str, tuple[DomainRequest, list[Pod]]]:
    """Return the topology and the pods of each subgroup, by name."""
    if not _has_subgroup_topology(group):
        return {}
    declared = _declared(group)
    found = (
        (name, declared.subgroups if declared is not None else _domain_request(pods[0], SUBGROUP_KEYS), pods)
        for name, pods in _subgroups(group.pods)
    )
    return {name: (request, pods) for name, request, pods in found if request}


def _has_subgroup_topology(group: Group) -> bool:
    declared = _declared(group)
    if declared is not None:
        return bool(declared.subgroups)
    return any(labels.setting(pod, key) for pod in group.pods for key in SUBGROUP_KEYS)


def _subgroups(pods: Iterable[Pod]) -> list[tuple[str, list[Pod]]]:
    """Return the subgroups and their pods, by name; pods without a subgroup are left out."""
    found: dict[str, list[Pod]] = {}
    for pod in pods:
        name = gangs.subgroup_of(pod)
        if name:
            found.setdefault(name, []).append(pod)
    return sorted(found.items(), key=lambda item: pod_groups.natural(item[0]))


def _colocation(request: DomainRequest, nodes: Iterable[NodeName]) -> Colocation:
    return Colocation(
        required=request.required,
        preferred=request.preferred,
        colocated_with=frozenset(nodes) if request else frozenset(),
    )


def _reported(request: DomainRequest, own_nodes: Iterable[NodeName], nodes: Mapping[NodeName, Node]) -> DomainReport:
    labels = [nodes[name].meta.labels for name in own_nodes if name in nodes]

    def values(label: str) -> tuple[str, ...]:
        return tuple(sorted({node_labels[label] for node_labels in labels if label in node_labels}))

    preferred = values(request.preferred) if request.required and request.preferred else ()
    return DomainReport(request=request, domains=values(request.required or request.preferred), preferred=preferred)


def _declared(group: Group) -> TopologyRequest | None:
    record = group.record
    return record.topology if record is not None and record.written_by_user else None


def _domain_request(pod: Pod, keys: tuple[str, str]) -> DomainRequest:
    required, preferred = (labels.setting(pod, key) for key in keys)
    return DomainRequest(required=required, preferred=preferred)


def _requested(pod: Pod, keys: tuple[str, str]) -> dict[str, str]:
    return _texts(_domain_request(pod, keys), keys)


def _texts(request: DomainRequest, keys: tuple[str, str] = GANG_KEYS) -> dict[str, str]:
    return {key: label for key, label in zip(keys, (request.required, request.preferred), strict=True) if label}


def _format(texts: Mapping[str, str], keys: tuple[str, str] = GANG_KEYS) -> str:
    return " and ".join(f"{key} {label}" for key, label in texts.items()) or f"no {keys[0]}"


def _denial(pod: Pod, message: str) -> Denial:
    return Denial(DenyReason.POLICY_VIOLATION, message, {"pod": pod.meta.name})


def _nodes(group: Group, pods: Iterable[Pod]) -> Iterator[NodeName]:
    """Yield the pods' nodes: where they are bound, else where they are placed."""
    seats = group.placement.seats if group.placement is not None else {}
    for pod in pods:
        seat = seats.get(pod.meta.uid)
        node = pod.node or (seat.node if seat is not None else NodeName(""))
        if node:
            yield node
