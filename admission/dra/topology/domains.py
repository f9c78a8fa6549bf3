"""The domains of a topology: nodes with the same value of a label, as those of a rack, a zone or an NVLink domain.

The search tries one domain after the other: the one that came nearest before, then those with the fewest free devices.
Of domains with equal nodes only the first is searched, since the others have a plan if and only if it has.

Bounded by the budget, which goes round: every domain has a 64th of it, then those without an answer an eighth, then all
that is left; so a domain that is hard to search does not keep the search from an easy one. If a domain has no answer in
the end, the answer is STEPS_ENDED; else every domain is proved to have no plan. `subgroups` places parts of the gang.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from admission.api.kubernetes.nodes import Node
from admission.api.values.names import NodeName
from admission.api.values.reasons import Detail
from admission.dra.equivalence.device_signature import DeviceSignatures
from admission.dra.planner import node_filters
from admission.dra.planner.no_plan import Kind, NoPlan
from admission.dra.planner.node_groups import NodeState, SearchState
from admission.dra.planner.pod_groups import Gang
from admission.dra.requests.gang_request import Plan
from admission.dra.state.cluster_state import ClusterState

Search = Callable[[Gang, int], Plan | NoPlan]
"""Places a gang in at most so many steps."""

Labels = tuple[str, ...]
"""Node labels: a domain has one value of each. Without labels the cluster is one domain."""


@dataclass(frozen=True, slots=True)
class CandidateNode:
    """A node to which some pod may go. likeness: equal for nodes that nothing the searches read tells apart."""

    name: NodeName
    signature: NodeState
    likeness: Hashable


PARTS = (64, 8, 1)
"""Divisors of the budget for one domain: in the first round, the second one and the last one."""

_REPORT_ORDER = (Kind.FATAL, Kind.INFEASIBLE, Kind.UNPRICED, Kind.POOL_INCOMPLETE, Kind.OVER_QUOTA, Kind.NO_DOMAIN)
"""Kinds of answers by rank: of the answers of several domains the one of the highest rank is reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """Nodes with one value of the labels, to which some pod may go. likeness: equal for equal domains."""

    labels: Labels
    value: str
    nodes: frozenset[NodeName]
    free: int
    likeness: Hashable

    @property
    def outermost(self) -> tuple[str, str]:
        """Return the first label with its value, which no two exclusive subgroups may share."""
        # The value of a label has no slash (`value_of`).
        return self.labels[0], self.value.partition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The pods that have to be in one domain: all of a gang, or of its subgroup of that name.

    inner: the labels in whose domains parts of these pods have to be. colocated_with: the nodes where other pods of the
    gang or subgroup are already. first: the domain to search before the others. is_exclusive: whether no other subgroup
    for which it is true may be in the same domain of the first label. annotation: by which the user asked for that.
    """

    labels: Labels
    subgroup: str = ""
    inner: Collection[Labels] = field(default_factory=frozenset)
    colocated_with: frozenset[NodeName] = frozenset()
    first: str = ""
    is_exclusive: bool = False
    annotation: str = ""

    @property
    def label(self) -> str:
        """Return the labels, for people."""
        return " and ".join(self.labels)

    @property
    def pods_text(self) -> str:
        """Return the name of the gang or subgroup in messages."""
        return f"subgroup {self.subgroup}" if self.subgroup else "the gang"


def candidate_nodes(gang: Gang, cluster: ClusterState, *known: DeviceSignatures) -> list[CandidateNode]:
    """Return the nodes to which pods of a gang may go. known: the device signatures of all searches over them."""
    states = [SearchState(gang, cluster, device_signatures) for device_signatures in dict.fromkeys(known)]
    signatures = zip(*(state.signatures for state in states), strict=True)
    return [CandidateNode(name, own[0], own) for name, own in zip(states[0].names, signatures, strict=True)]


def build(scope: Scope, nodes: Iterable[CandidateNode], cluster: ClusterState) -> list[Domain]:
    """Return the domains among some nodes, those with the fewest free devices first, so that large ones stay whole."""
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
    """Return the domain of a node; None if it lacks one of the labels."""
    values = [node.meta.labels.get(label) for label in labels]
    known = [value for value in values if value is not None]
    return "/".join(known) if len(known) == len(values) else None


def _likeness(nodes: Sequence[CandidateNode], inner: Collection[Labels], cluster: ClusterState) -> Hashable:
    """Return a key that is equal for equal domains.

    Without inner labels it counts the domain's nodes by likeness; with one, its inner domains by their counted nodes.
    Inner domains of several labels may overlap in any way, so then no two domains are equal.
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
    """Return how many there are of each thing, in no order."""
    return frozenset(Counter(things).items())


def within(gang: Gang, nodes: frozenset[NodeName]) -> Gang:
    """Return the gang limited to these nodes."""
    return replace(gang, kinds=tuple(replace(kind, nodes=kind.nodes & nodes) for kind in gang.kinds))


def search_in_one(
    scope: Scope, gang: Gang, cluster: ClusterState, known: DeviceSignatures, *, steps: int, search: Search
) -> Plan | NoPlan:
    """Place all pods in one domain, or return why none takes them.

    If other pods of the scope have nodes already, only the domain of these nodes is tried.
    """
    found = build(scope, candidate_nodes(gang, cluster, known), cluster)
    colocation = _colocation(scope, cluster)
    return no_domain(scope, gang, found, cluster) or _search_each(scope, gang, found, colocation, steps, search)


def colocated(scope: Scope, found: Sequence[Domain], cluster: ClusterState) -> list[Domain]:
    """Return the domains where the other pods of the scope are; all domains if no other pod has a node."""
    colocation = _colocation(scope, cluster)
    return [domain for domain in found if not colocation or domain.value in colocation]


Colocation = Mapping[str | None, Sequence[NodeName]]
"""By domain, the nodes where other pods of the scope are already; None for nodes without the label."""


def _colocation(scope: Scope, cluster: ClusterState) -> Colocation:
    """Return where other pods of the scope are. A deleted node is left out, since its pods are gone as well."""
    colocation: dict[str | None, list[NodeName]] = {}
    for name in sorted(scope.colocated_with):
        if name in cluster.nodes:
            colocation.setdefault(value_of(cluster.nodes[name], scope.labels), []).append(name)
    return colocation


def no_domain(scope: Scope, gang: Gang, found: Sequence[Domain], cluster: ClusterState) -> NoPlan | None:
    """Return why there is no domain to search; None if there is one. gang: the pods of the scope."""
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
        message = f"no node where a pod of {pods_text} may go has the label {label}{_kept_off(scope, gang, cluster)}"
    elif colocation and not any(domain.value in colocation for domain in found):
        (value,) = colocation
        place = _named(scope, value)
        message = f"other pods of {pods_text} are already in {place}, and no pod that waits may go to a node there"
    else:
        return None
    return NoPlan(kind=Kind.NO_DOMAIN, message=message, details=_details(scope, len(found), gang.size))


def _kept_off(scope: Scope, gang: Gang, cluster: ClusterState) -> str:
    """Return what keeps a pod off the first node by name that has the labels, to be added; empty if none has all."""
    demand = gang.kinds[0].members[0]
    for name, node in sorted(cluster.nodes.items()):
        refused = node_filters.refuses(demand, node, cluster) if value_of(node, scope.labels) is not None else None
        if refused is not None:
            return f"; {name} has it, but pod {demand.pod.meta.name} may not go there: {name} {refused.why}"
    return ""


def _named(scope: Scope, value: str | None, *, alone: bool = False) -> str:
    """Return a domain for people. alone: without the label, unless its value is the empty text."""
    if value == "":
        return f'{scope.label}=""'
    return f"{value}" if alone else f"{scope.label} {value}"


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
    """Search one domain after the other, in rounds with growing parts of the budget."""
    allowed = [domain for domain in found if not colocation or domain.value in colocation]
    allowed.sort(key=lambda domain: domain.value != scope.first)
    # Of equal domains one is enough: the gang is limited to the domain's nodes, and these are equal.
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
    """Explains a search that found no plan.

    is_colocated: whether only the domain of the scope's other pods was tried.
    """

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
        """Return the answer of the domain that came nearest: by rank of its kind, then by pods placed."""
        _, value, reported = max(
            ((_REPORT_ORDER.index(one.kind), one.placed, at), value, one)
            for at, (value, one) in enumerate(answers.items())
        )
        label = self.scope.label
        details = {**reported.details, **_details(self.scope, self.domains, self.pods), "domain": value}
        if reported.kind is Kind.OVER_QUOTA:
            # The caller recognizes a shortfall by its message, so that stays unchanged.
            return replace(reported, details=details)
        if self.is_colocated:
            more = "one more pod" if self.pods == 1 else f"{self.pods} more pods"
            place = _named(self.scope, value)
            message = f"{place}, where other pods of {self.scope.pods_text} are already, does not take {more}"
        elif self.domains == 1:
            message = (
                f"the only domain of {label}, {_named(self.scope, value, alone=True)}, does not take {self.pods_text}"
            )
        else:
            near = f"{_named(self.scope, value, alone=True)} comes nearest, with places for {reported.placed}"
            message = f"none of {self.domains} domains of {label} takes {self.pods_text}; {near}"
        return replace(
            reported, message=f"{message}: {reported.message}", details={**details, "placed": reported.placed}
        )

    def ended(self, steps: int) -> NoPlan:
        """Return that some domains were not searched to the end."""
        message = (
            f"neither a domain of {self.scope.label} that takes {self.pods_text} nor a proof that there is none was"
            f" found in {steps} steps"
        )
        details = _details(self.scope, self.domains, self.pods)
        return NoPlan(kind=Kind.STEPS_ENDED, message=message, details={**details, "steps": steps})
