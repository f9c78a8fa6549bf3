"""The placement of gangs that have to be in one domain, as a whole or in parts: which wishes are tried, in which order.

First everything required or preferred is tried. If no plan has all of it, preferences are given up: first that the
whole gang is in one domain, since pods of one subgroup communicate more, then that its subgroups are. Requirements are
never given up. A plan says in `apart` why it is not what was asked for. Every attempt has the full budget of steps; if
none has a plan, the answer of the last one is returned.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from admission.api.scheduling import exclusive_domains
from admission.api.values.names import NodeName
from admission.dra.equivalence.device_signature import DeviceSignatures
from admission.dra.planner.no_plan import NoPlan
from admission.dra.planner.pod_groups import Gang
from admission.dra.requests.gang_request import Colocation, Plan, Topology
from admission.dra.state.cluster_state import ClusterState
from admission.dra.topology import domains, subgroups
from admission.dra.topology.domains import Labels, Scope
from admission.dra.topology.subgroups import Searches


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The colocation tried at once. gang: that of all pods; None if they may be anywhere."""

    gang: Scope | None = None
    subgroups: tuple[Scope, ...] = field(default_factory=tuple)


def placed(
    topology: Topology, gang: Gang, cluster: ClusterState, known: DeviceSignatures, *, steps: int, searches: Searches
) -> Plan | NoPlan:
    """Place a gang with its preferences if possible, else with its requirements only."""
    first, *fewer = _attempts(topology)
    refused = answer = _attempt(first, gang, cluster, known, steps, searches)
    for attempt in fewer:
        if isinstance(answer, NoPlan):
            answer = _attempt(attempt, gang, cluster, known, steps, searches)
    if isinstance(answer, Plan) and isinstance(refused, NoPlan):
        return replace(answer, apart=refused.message)
    return answer


def needed(topology: Topology | None, answer: NoPlan) -> Topology | None:
    """Return what a gang waits for: its requirements, with the domain first that came nearest in an answer of `placed`.

    None if it waits for no domain. No gang waits for a preference.
    """
    if topology is None or not topology.binds:
        return None
    return replace(
        topology,
        gang=replace(topology.gang, preferred=""),
        subgroups=tuple((name, replace(own, preferred="")) for name, own in topology.subgroups),
        first="" if "subgroup" in answer.details else str(answer.details.get("domain", "")),
    )


def where(plan: Plan, topology: Topology, gang: Gang, cluster: ClusterState) -> tuple[str, Gang]:
    """Return the domains of a plan, for people, and the gang limited to their nodes."""
    (attempt,) = _attempts(topology)
    nodes_of = {planned.uid: planned.node for planned in plan.pods}
    reported: list[str] = []
    if attempt.gang is not None:
        value, nodes = _domain(attempt.gang.labels, plan.pods[0].node, cluster)
        gang = domains.within(gang, nodes)
        reported.append(value)
    homes: dict[str, frozenset[NodeName]] = {}
    for scope in attempt.subgroups:
        first_kinds = (kind for kind in gang.kinds if kind.subgroup == scope.subgroup and not kind.follows)
        kind = next(first_kinds, None)
        if kind is None:
            continue
        value, homes[scope.subgroup] = _domain(scope.labels, nodes_of[kind.members[0].pod.meta.uid], cluster)
        if attempt.gang is None:
            reported.append(f"{scope.subgroup} in {value}")
    kinds = tuple(replace(kind, nodes=kind.nodes & homes.get(kind.subgroup, kind.nodes)) for kind in gang.kinds)
    more = [f"and {len(reported) - SHOWN} more"] if len(reported) > SHOWN else []
    return ", ".join([*reported[:SHOWN], *more]), replace(gang, kinds=kinds)


SHOWN = 3
"""The most subgroups whose domains are named."""


def pending(busy: NoPlan, answer: NoPlan, topology: Topology, places: str) -> NoPlan:
    """Return why a gang waits for domains that would take it. busy: why it does not fit into these domains now."""
    details = {**busy.details, **{name: answer.details[name] for name in _ASKED if name in answer.details}}
    label = topology.gang.required
    if not label:
        lead = f"its subgroups do not all find a domain now; they could, {places}"
    elif topology.gang.colocated_with:
        lead = f"{label} {places}, where other pods of the gang are already, takes no more of them now"
    else:
        lead = f"no domain of {label} takes the whole gang now; {places} could, and has places for {busy.placed}"
    details |= {"domain": places, "placed": busy.placed}
    return replace(busy, message=f"{lead}: {busy.message}", details=details)


_ASKED = ("topology", "domains", "pods", "subgroups")


def _attempts(topology: Topology) -> Iterator[Attempt]:
    """Yield what to try, each once: with all preferences, without that of the whole gang, with requirements only."""
    known: list[Attempt] = []
    annotation = exclusive_domains.ANNOTATIONS.get(topology.labels.part, "") if topology.labels is not None else ""
    for whole, parts in ((True, True), (False, True), (False, False)):
        scopes = tuple(
            Scope(
                labels=labels,
                subgroup=name,
                colocated_with=own.colocated_with,
                is_exclusive=bool(own.exclusive),
                annotation=annotation if own.exclusive else "",
            )
            for name, own in topology.subgroups
            if (labels := own.labels(preferring=parts))
        )
        attempt = Attempt(gang=_gang_scope(topology, scopes, preferring=whole), subgroups=scopes)
        if attempt not in known:
            known.append(attempt)
            yield attempt


def _gang_scope(topology: Topology, scopes: tuple[Scope, ...], *, preferring: bool) -> Scope | None:
    own: Colocation = topology.gang
    labels = own.labels(preferring=preferring)
    if not labels:
        return None
    # A subgroup with pods on nodes already makes every domain different: a second, unknown label says so to `domains`.
    inner = {scope.labels for scope in scopes} | {(scope.subgroup,) for scope in scopes if scope.colocated_with}
    return Scope(labels=labels, inner=frozenset(inner), colocated_with=own.colocated_with, first=topology.first)


def _attempt(  # noqa: PLR0917 - the same
    attempt: Attempt, gang: Gang, cluster: ClusterState, known: DeviceSignatures, steps: int, searches: Searches
) -> Plan | NoPlan:
    present = {kind.subgroup for kind in gang.kinds}
    scopes = [scope for scope in attempt.subgroups if scope.subgroup in present]

    def search(gang: Gang, steps: int) -> Plan | NoPlan:
        if not scopes:
            return searches.full(gang, steps)
        return subgroups.arrange(scopes, gang, cluster, known, steps=steps, searches=searches)

    if attempt.gang is None:
        return search(gang, steps)
    return domains.search_in_one(attempt.gang, gang, cluster, known, steps=steps, search=search)


def _domain(labels: Labels, node: NodeName, cluster: ClusterState) -> tuple[str, frozenset[NodeName]]:
    """Return the domain of a node and all nodes in it."""
    value = domains.value_of(cluster.nodes[node], labels)
    nodes = (name for name, one in cluster.nodes.items() if domains.value_of(one, labels) == value)
    return value or "", frozenset(nodes)
