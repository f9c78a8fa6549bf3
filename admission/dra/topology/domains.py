"""Domains of a topology: the nodes that have one value of a label, as those of a rack, a zone or an NVLink domain.

A gang that shall be together is searched for in one domain after the other. Of domains that nothing tells apart one is
enough. The budget goes round: every domain has a small part of it before one has more, so that a domain that is hard to
judge does not keep the search from one that is easy. `subgroups` sees to what parts of the gang ask for.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from admission.api.kubernetes.nodes import Node
from admission.api.values.names import NodeName
from admission.api.values.reasons import Detail
from admission.dra.equivalence.device_signature import DeviceSignatures
from admission.dra.planner.no_plan import Kind, NoPlan
from admission.dra.planner.node_groups import NodeState, SearchState
from admission.dra.planner.pod_groups import Gang
from admission.dra.requests.gang_request import Plan
from admission.dra.state.cluster_state import ClusterState

Search = Callable[[Gang, int], Plan | NoPlan]
"""Places a gang, in so many steps at most."""

Labels = tuple[str, ...]
"""Of nodes: a domain has one value of each of them. None at all make the cluster one domain."""


@dataclass(frozen=True, slots=True)
class CandidateNode:
    """A node to which some pod may go. likeness: equal for nodes that nothing tells apart."""

    name: NodeName
    signature: NodeState
    likeness: Hashable


PARTS = (64, 8, 1)
"""What part of the budget a domain has in the first round, in the second one, in the last one."""

_REPORT_ORDER = (Kind.FATAL, Kind.INFEASIBLE, Kind.UNPRICED, Kind.POOL_INCOMPLETE, Kind.OVER_QUOTA, Kind.NO_DOMAIN)
"""Of what is found in several domains the last of these is told: what may still change, before what is proved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """Nodes with one value of the labels, to which some pod may go. likeness: equal where all is equal."""

    labels: Labels
    value: str
    nodes: frozenset[NodeName]
    free: int
    likeness: Hashable


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Who is to be together: all pods of a gang, or of its subgroup of that name.

    inner: the labels of which parts of them have to be in one domain. colocated_with: the nodes of others of them.
    first: the domain to look at before the others.
    """

    labels: Labels
    subgroup: str = ""
    inner: Collection[Labels] = field(default_factory=frozenset)
    colocated_with: frozenset[NodeName] = frozenset()
    first: str = ""

    @property
    def label(self) -> str:
        """Return the labels, for people."""
        return " and ".join(self.labels)

    @property
    def pods_text(self) -> str:
        """Return who they are, for people."""
        return f"subgroup {self.subgroup}" if self.subgroup else "the gang"


def candidate_nodes(gang: Gang, cluster: ClusterState, *known: DeviceSignatures) -> list[CandidateNode]:
    """Return the nodes to which pods of a gang may go. known: all that they are searched by."""
    states = [SearchState(gang, cluster, device_signatures) for device_signatures in dict.fromkeys(known)]
    signatures = zip(*(state.signatures for state in states), strict=True)
    return [CandidateNode(name, own[0], own) for name, own in zip(states[0].names, signatures, strict=True)]


def build(scope: Scope, nodes: Iterable[CandidateNode], cluster: ClusterState) -> list[Domain]:
    """Return the domains among some nodes, those with the fewest free devices first: large ones are kept whole."""
    members: dict[str, list[CandidateNode]] = {}
    for node in nodes:
        value = value_of(cluster.nodes[node.name], scope.labels)
        if value is not None:
            members.setdefault(value, []).append(node)
    domains = [
        Domain(
            labels=scope.labels,
            value=value,
            nodes=frozenset(node.name for node in members_),
            free=sum(node.signature.free for node in members_),
            likeness=_likeness(members_, scope.inner, cluster),
        )
        for value, members_ in members.items()
    ]
    return sorted(domains, key=lambda domain: (domain.free, domain.value))


def value_of(node: Node, labels: Labels) -> str | None:
    """Return the domain of a node; None where it lacks one of the labels."""
    values = [node.meta.labels.get(label) for label in labels]
    known = [value for value in values if value is not None]
    return "/".join(known) if len(known) == len(values) else None


def _likeness(nodes: Sequence[CandidateNode], inner: Collection[Labels], cluster: ClusterState) -> Hashable:
    """Return what is equal for domains that nothing tells apart.

    Where parts of them matter, it is how many parts of which sort there are. Parts of several sorts may overlap in any
    way, so that then every domain stands for itself.
    """
    if not inner:
        return multiset(node.likeness for node in nodes)
    if len(inner) > 1:
        return frozenset(node.name for node in nodes)
    (labels,) = inner
    parts: dict[str | None, list[Hashable]] = {}
    for node in nodes:
        parts.setdefault(value_of(cluster.nodes[node.name], labels), []).append(node.likeness)
    return multiset((value is not None, multiset(likenesses)) for value, likenesses in parts.items())


def multiset(things: Iterable[Hashable]) -> Hashable:
    """Return things and how many there are of each, in no order."""
    return frozenset(Counter(things).items())


def within(gang: Gang, nodes: frozenset[NodeName]) -> Gang:
    """Return the gang as it is where it may go to these nodes only."""
    return replace(gang, kinds=tuple(replace(kind, nodes=kind.nodes & nodes) for kind in gang.kinds))


def search_in_one(
    scope: Scope, gang: Gang, cluster: ClusterState, known: DeviceSignatures, *, steps: int, search: Search
) -> Plan | NoPlan:
    """Place all pods in one domain, or say why none takes them.

    Where others of them have a node already it is their domain.
    """
    found = build(scope, candidate_nodes(gang, cluster, known), cluster)
    colocation = _colocation(scope, cluster)
    return no_domain(scope, gang.size, found, cluster) or _search_each(scope, gang, found, colocation, steps, search)


def colocated(scope: Scope, found: Sequence[Domain], cluster: ClusterState) -> list[Domain]:
    """Return the domains that are left where others of them have a node already."""
    colocation = _colocation(scope, cluster)
    return [domain for domain in found if not colocation or domain.value in colocation]


Colocation = Mapping[str | None, Sequence[NodeName]]
"""By domain, the nodes where others of the gang are already; None for nodes without the label."""


def _colocation(scope: Scope, cluster: ClusterState) -> Colocation:
    """Return where others of them are. A node that is gone takes its pods along, and binds nobody."""
    colocation: dict[str | None, list[NodeName]] = {}
    for name in sorted(scope.colocated_with):
        if name in cluster.nodes:
            colocation.setdefault(value_of(cluster.nodes[name], scope.labels), []).append(name)
    return colocation


def no_domain(scope: Scope, pods: int, found: Sequence[Domain], cluster: ClusterState) -> NoPlan | None:
    """Return why there is no domain to look at; None where there is one."""
    label, pods_text, colocation = scope.label, scope.pods_text, _colocation(scope, cluster)
    missing = next((name for name in scope.labels if not _is_known(name, cluster)), None)
    if len(colocation) > 1 or None in colocation:
        where = " and ".join(_domain_text(value, nodes[0]) for value, nodes in sorted(colocation.items(), key=str))
        message = (
            f"other pods of {pods_text} are already in {where}, so that nobody can be in one domain of {label} with all"
            " of them; mend the label, or let the gang end and start anew"
        )
    elif missing is not None:
        message = f"no node has the label {missing}; label the nodes, or name a label that they have"
    elif not found:
        message = f"no node where a pod of {pods_text} may go has the label {label}"
    elif colocation and not any(domain.value in colocation for domain in found):
        (value,) = colocation
        message = (
            f"other pods of {pods_text} are already in {label} {value}, and no pod that waits may go to a node there"
        )
    else:
        return None
    return NoPlan(kind=Kind.NO_DOMAIN, message=message, details=_details(scope, len(found), pods))


def _is_known(label: str, cluster: ClusterState) -> bool:
    return any(label in node.meta.labels for node in cluster.nodes.values())


def _details(scope: Scope, domains: int, pods: int) -> dict[str, Detail]:
    reported: dict[str, Detail] = {"topology": scope.label, "domains": domains, "pods": pods}
    return reported | ({"subgroup": scope.subgroup} if scope.subgroup else {})


def _domain_text(value: str | None, node: NodeName) -> str:
    return f"{value} (node {node})" if value is not None else f"none (node {node}, which lacks the label)"


def _search_each(  # noqa: PLR0917 - the same
    scope: Scope, gang: Gang, found: Sequence[Domain], colocation: Colocation, steps: int, search: Search
) -> Plan | NoPlan:
    """Search one domain after the other."""
    allowed = [domain for domain in found if not colocation or domain.value in colocation]
    allowed.sort(key=lambda domain: domain.value != scope.first)
    representatives: dict[Hashable, Domain] = {}
    for domain in allowed:
        representatives.setdefault(domain.likeness, domain)
    unfinished, answers, spent = list(representatives.values()), dict[str, NoPlan](), 0
    for part in PARTS:
        share = max(2 * gang.size, steps // part)
        for domain in unfinished:
            if spent < steps:
                answer = search(within(gang, domain.nodes), min(share, steps - spent))
                spent += answer.steps
                if isinstance(answer, Plan):
                    return replace(answer, steps=spent)
                answers[domain.value] = answer
        unfinished = [
            domain for domain in unfinished if domain.value not in answers or _has_ended(answers[domain.value])
        ]
    reported = _Explanation(scope=scope, domains=len(allowed), pods=gang.size, is_colocated=bool(colocation))
    return replace(reported.ended(steps) if unfinished else reported.nearest(answers), steps=spent)


def _has_ended(answer: NoPlan) -> bool:
    return answer.kind is Kind.STEPS_ENDED


@dataclass(frozen=True, slots=True, kw_only=True)
class _Explanation:
    """What was searched: so many domains, or the one where others of them are, for so many pods."""

    scope: Scope
    domains: int
    pods: int
    is_colocated: bool

    @property
    def pods_text(self) -> str:
        if self.scope.subgroup:
            return f"{self.scope.pods_text} as a whole, {self.pods} pod{'' if self.pods == 1 else 's'}"
        return "its pod" if self.pods == 1 else f"all {self.pods} pods together"

    def nearest(self, answers: Mapping[str, NoPlan]) -> NoPlan:
        """Tell what was found in the domain that comes nearest."""
        _, value, reported = max(
            ((_REPORT_ORDER.index(one.kind), one.placed, at), value, one)
            for at, (value, one) in enumerate(answers.items())
        )
        label = self.scope.label
        details = {**reported.details, **_details(self.scope, self.domains, self.pods), "domain": value}
        if reported.kind is Kind.OVER_QUOTA:
            # Who asked what is affordable knows it by its sentence.
            return replace(reported, details=details)
        if self.is_colocated:
            more = "one more pod" if self.pods == 1 else f"{self.pods} more pods"
            message = f"{label} {value}, where other pods of {self.scope.pods_text} are already, does not take {more}"
        elif self.domains == 1:
            message = f"the only domain of {label}, {value}, does not take {self.pods_text}"
        else:
            near = f"{value} comes nearest, with places for {reported.placed}"
            message = f"none of {self.domains} domains of {label} takes {self.pods_text}; {near}"
        return replace(
            reported, message=f"{message}: {reported.message}", details={**details, "placed": reported.placed}
        )

    def ended(self, steps: int) -> NoPlan:
        """Tell that some domains were not searched to the end."""
        message = (
            f"neither a domain of {self.scope.label} that takes {self.pods_text} nor a proof that there is none was"
            f" found in {steps} steps"
        )
        details = _details(self.scope, self.domains, self.pods)
        return NoPlan(kind=Kind.STEPS_ENDED, message=message, details={**details, "steps": steps})
