"""A gang ready to be searched: its pods grouped into kinds, its claims parsed.

Pods of one kind are interchangeable: equal claims, resources, tolerations and node constraints. Only the names of their
own claims may differ.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from admission.api.kubernetes.claims import MAX_CONSUMERS, Claim
from admission.api.kubernetes.pods import Pod
from admission.api.values.names import NodeName, Uid
from admission.dra.allocator.allocation import AllocatedRequest
from admission.dra.equivalence.device_signature import DeviceSignature
from admission.dra.inventory.pools import InventoryDevice
from admission.dra.planner import node_filters
from admission.dra.requests import extended_resources, node_resources, requests
from admission.dra.requests.gang_request import PodDemand, Shortfall
from admission.dra.requests.node_resources import OfClaim
from admission.dra.requests.requests import Fatal, Option, ParsedClaim, ParsedRequest, RequestRefusal
from admission.dra.state.cluster_state import ClusterState, key_of
from admission.filters import gang_rules
from admission.filters.gang_rules import GangRules


@dataclass(frozen=True, slots=True)
class ClaimToAllocate:
    """A claim that has to be allocated for a pod. shared: its number among the gang's shared claims, if it is one."""

    claim: Claim
    parsed: ParsedClaim
    shared: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PodKind:
    """Pods that are interchangeable.

    wanted: per member, the claims to allocate, in the pod's order. wants: resources per pod. nodes: those whose filters
    pass the pods. rules: their number in the gang's rules. likeness: all that they request, equal for kinds that differ
    only in their subgroup. claim_users: per wanted claim, how often each container names it. bound: what the devices of
    claims that are allocated already take of a node. Both are empty where no device takes any.
    """

    members: tuple[PodDemand, ...]
    wanted: tuple[tuple[ClaimToAllocate, ...], ...]
    wants: Mapping[str, int]
    nodes: frozenset[NodeName]
    likeness: Hashable
    rules: int = 0
    claim_users: tuple[tuple[int, ...], ...] = ()
    bound: tuple[OfClaim, ...] = ()

    @property
    def subgroup(self) -> str:
        """Return the subgroup of the gang that the pods are in."""
        return self.members[0].subgroup

    @property
    def follows(self) -> bool:
        """Return whether the pods are made once all others are bound."""
        return self.members[0].follows

    @property
    def parsed_requests(self) -> tuple[ParsedClaim, ...]:
        return tuple(wanted.parsed for wanted in self.wanted[0])

    @property
    def shared(self) -> tuple[int | None, ...]:
        """Return for every claim its number among the gang's shared claims."""
        return tuple(wanted.shared for wanted in self.wanted[0])

    @property
    def devices(self) -> int:
        """Return how many devices one pod takes at least."""
        return sum(request.least for claim in self.parsed_requests for request in claim.requests)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gang:
    """The kinds of a gang, those that are hardest to place first, and how many shared claims are to be allocated.

    rules: those between pods; None if none applies.
    """

    kinds: tuple[PodKind, ...]
    shared: int
    rules: GangRules | None = None

    @property
    def claims(self) -> tuple[ParsedClaim, ...]:
        return tuple(parsed for kind in self.kinds for parsed in kind.parsed_requests)

    @property
    def size(self) -> int:
        """Return how many pods are to be placed."""
        return sum(len(kind.members) for kind in self.kinds)

    @property
    def coupled(self) -> GangRules | None:
        """Return the rules if they change with the gang's own pods, so that a search has to heed them."""
        return self.rules if self.rules is not None and self.rules.effects else None


@dataclass(frozen=True, slots=True)
class Refused:
    """A pod that is refused before any search, and why."""

    pod: str
    refusal: RequestRefusal


def compile_gang(demands: Sequence[PodDemand], cluster: ClusterState) -> Gang | Refused:
    """Group pods into kinds; return a Refused for the first pod that cannot be searched for."""
    numbers, numbers_of_users = _shared(demands, cluster), _users(demands, cluster)
    rules, rules_of = _rules(demands, cluster)
    grouped: dict[tuple[str, bool, Hashable, int], list[tuple[PodDemand, tuple[ClaimToAllocate, ...]]]] = {}
    parsed_requests: dict[Hashable, ParsedClaim | RequestRefusal] = {}
    for demand in sorted(demands, key=lambda demand: natural(demand.pod.meta.name)):
        if refusal := _refusal(demand, numbers_of_users, cluster):
            return Refused(demand.pod.meta.name, refusal)
        wanted: list[ClaimToAllocate] = []
        for claim in _open(demand, cluster):
            found = _parsed(claim, cluster, parsed_requests)
            if not isinstance(found, ParsedClaim):
                return Refused(demand.pod.meta.name, found)
            wanted.append(ClaimToAllocate(claim, found, numbers.get(key_of(claim))))
        equal = demand.subgroup, demand.follows, _likeness(demand, wanted, cluster), rules_of.get(id(demand), 0)
        grouped.setdefault(equal, []).append((demand, tuple(wanted)))
    equal_nodes: dict[frozenset[NodeName], frozenset[NodeName]] = {}
    kinds = [
        _kind(members, likeness, cluster, number, rules, equal_nodes=equal_nodes)
        for (_, _, likeness, number), members in grouped.items()
    ]
    kinds.sort(key=lambda kind: (len(kind.nodes), -kind.devices))
    return Gang(kinds=tuple(kinds), shared=len(numbers), rules=rules)


def _rules(demands: Sequence[PodDemand], cluster: ClusterState) -> tuple[GangRules | None, dict[int, int]]:
    """Return the rules between pods, and their number for each demand, by its identity; None if none applies."""
    pods = [demand.pod for demand in demands]
    if not gang_rules.may_apply(pods, cluster.placed):
        return None, {}
    placed = cluster.placed.left
    numbers, firsts = gang_rules.numbers(pods, placed, cluster.nodes)
    counts = Counter(numbers)
    split = {number: demand.split for number, demand in zip(numbers, demands, strict=True) if demand.split is not None}
    found = gang_rules.compiled(
        [split[number].rest if number in split else pod for number, pod in enumerate(firsts)],
        [counts[number] for number in range(len(firsts))],
        placed,
        cluster.nodes,
        shared=gang_rules.shared_volumes(pods, placed),
        excluding={number: one.domain for number, one in split.items()},
    )
    if found is None:
        return None, {}
    return found, {id(demand): number for demand, number in zip(demands, numbers, strict=True)}


def _users(demands: Iterable[PodDemand], cluster: ClusterState) -> dict[Uid, int]:
    """Count the consumers that every claim will have: those it has, pods booked to use it, and these pods."""
    users: dict[Uid, set[str]] = {}
    for demand in demands:
        for claim in demand.claims:
            key = key_of(claim)
            known = {*claim.reserved_for, *cluster.users.get(key, ())}
            users.setdefault(key, known).add(demand.pod.meta.uid or demand.pod.meta.key)
    return {key: len(found) for key, found in users.items()}


def _refusal(demand: PodDemand, users: Mapping[Uid, int], cluster: ClusterState) -> Fatal | None:
    """Return why kube-scheduler would never bind the pod, or why its devices cannot be predicted; else None."""
    for claim in demand.claims:
        if users[key_of(claim)] > MAX_CONSUMERS:
            return Fatal(
                f"claim {claim.meta.name} would have {users[key_of(claim)]} consumers, and status.reservedFor holds"
                f" {MAX_CONSUMERS} at most; let the pods share several claims"
            )
        if claim.allocation is None and sum(key_of(other) == key_of(claim) for other in demand.claims) > 1:
            return Fatal(
                f"claim {claim.meta.name} is named more than once in the pod's resourceClaims, and kube-scheduler looks"
                " for its devices once for each name; name it once, and use that name in every container"
            )
        if _takes(cluster) and _is_anothers(claim, demand.pod, cluster):
            return Fatal(node_resources.exclusive(claim.meta.name))
    for resource in demand.extended:
        offers = extended_resources.offering(resource, cluster.classes)
        if len(offers) > 1:
            return Fatal(
                f"resource {resource} is offered by device classes {', '.join(offers)}, and which of them"
                " kube-scheduler takes cannot be told; let only one have that extendedResourceName"
            )
    return None


def _is_anothers(claim: Claim, pod: Pod, cluster: ClusterState) -> bool:
    """Return whether another pod has a claim that no two pods may share, since it has a resource of its node itself.

    1.36 knows it only by the status of the other pod.
    """
    if claim.allocation is None or cluster.slices is None:
        return False
    if cluster.profile.release.before_1_37:
        there = ((uid, one) for pods in cluster.placed.by_node.values() for uid, one in pods.items())
        own, place = pod.meta.uid, (claim.meta.namespace, claim.meta.name)
        return any(uid != own and (one.namespace, name) == place for uid, one in there for name in one.device_claims)
    found = node_resources.of_claim(node_resources.of_allocation(claim.allocation, cluster.slices), (), claim)
    is_mapped = isinstance(found, OfClaim) and found.mapped is not None
    return is_mapped and not {*claim.reserved_for} <= {pod.meta.uid}


def _open(demand: PodDemand, cluster: ClusterState) -> Iterable[Claim]:
    """Return the claims that are neither allocated nor planned, each once, in order."""
    unique = {key_of(claim): claim for claim in demand.claims}
    return [claim for claim in unique.values() if claim.allocation is None and key_of(claim) not in cluster.pinned]


def _shared(demands: Iterable[PodDemand], cluster: ClusterState) -> dict[Uid, int]:
    """Number the unallocated claims that several pods use."""
    users = Counter(key_of(claim) for demand in demands for claim in _open(demand, cluster))
    return {key: number for number, key in enumerate(key for key, pods in users.items() if pods > 1)}


def _parsed(
    claim: Claim, cluster: ClusterState, known: dict[Hashable, ParsedClaim | RequestRefusal]
) -> ParsedClaim | RequestRefusal:
    """Parse a claim; claims with the same requests and constraints, as a template makes them, only once."""
    key = claim.spec.equivalence_key
    if key not in known:
        known[key] = requests.parse(claim.spec, cluster.classes, f"claim {claim.meta.name}", cluster.profile)
    return known[key]


def _likeness(demand: PodDemand, wanted: Iterable[ClaimToAllocate], cluster: ClusterState) -> Hashable:
    pod = demand.pod
    bound = tuple(
        (claim.allocation.node_selector if claim.allocation is not None else None, cluster.pinned.get(key_of(claim)))
        for claim in demand.claims
        if claim.allocation is not None or key_of(claim) in cluster.pinned
    )
    by_devices = (pod.claimed.users, pod.claimed.level, _bound(demand, cluster)) if _takes(cluster) else ()
    return (
        tuple((one.parsed, one.shared) for one in wanted),
        tuple(sorted(pod.requests.items())),
        tuple(sorted(pod.node_selector.items())),
        pod.affinity,
        pod.tolerations,
        pod.features,
        demand.extended,
        demand.kept_to,
        bound,
        by_devices,
    )


def _takes(cluster: ClusterState) -> bool:
    """Return whether there are devices that take resources of their nodes."""
    return cluster.slices is not None and cluster.slices.takes_of_nodes


def _bound(demand: PodDemand, cluster: ClusterState) -> tuple[OfClaim, ...]:
    """Return what the devices of claims that are allocated already take of the pod's node; 1.36 counts none of it."""
    if cluster.slices is None or cluster.profile.release.before_1_37:
        return ()
    found = []
    for claim in demand.claims:
        if claim.allocation is not None:
            users = node_resources.users_of(demand.pod, demand.own_names(claim))
            one = node_resources.of_claim(node_resources.of_allocation(claim.allocation, cluster.slices), users, claim)
            found += [one] if isinstance(one, OfClaim) else []
    return tuple(found)


def _kind(
    members: Sequence[tuple[PodDemand, tuple[ClaimToAllocate, ...]]],
    likeness: Hashable,
    cluster: ClusterState,
    number: int,
    rules: GangRules | None,
    *,
    equal_nodes: dict[frozenset[NodeName], frozenset[NodeName]],
) -> PodKind:
    """Return a kind. equal_nodes: one object for equal sets of nodes, which are compared often as part of likeness."""
    first = members[0][0]
    nodes = node_filters.passed(first, cluster)
    if rules is not None and rules.may_exclude(number):
        nodes = frozenset(name for name in nodes if rules.excludes(number, cluster.nodes[name]) is None)
    if rules is not None:
        likeness = (
            likeness,
            rules.representatives[number],
            equal_nodes.setdefault(nodes, nodes) if number in rules.excluding else None,
        )
    return PodKind(
        members=tuple(demand for demand, _ in members),
        wanted=tuple(wanted for _, wanted in members),
        wants=node_filters.wants(first),
        nodes=nodes,
        likeness=(likeness, first.follows),
        rules=number,
        claim_users=tuple(node_resources.users_of(first.pod, first.own_names(wanted.claim)) for wanted in members[0][1])
        if _takes(cluster)
        else (),
        bound=_bound(first, cluster) if _takes(cluster) else (),
    )


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """Return a sort key by which train-2 comes before train-10."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in _parts(name))


def _parts(name: str) -> list[str]:
    parts: list[str] = []
    for letter in name:
        if parts and parts[-1][-1].isdecimal() == letter.isdecimal():
            parts[-1] += letter
        else:
            parts.append(letter)
    return parts


@dataclass(frozen=True, slots=True)
class Placed:
    """A placed pod: its kind, its number among the members, its node, and the devices of each claim.

    by_devices: what these take of the node beside the pod's requests.
    """

    kind: int
    member: int
    node: int
    claims: tuple[tuple[ClaimToAllocate, tuple[AllocatedRequest, ...]], ...]
    by_devices: Mapping[str, int] = field(default_factory=dict)


def given(
    option: Option, listed: InventoryDevice, signature: DeviceSignature, parsed_requests: Mapping[ParsedRequest, int]
) -> AllocatedRequest:
    """Return a device that a search has found, as allocated. parsed_requests: their numbers in the signatures."""
    if not signature.shared:
        return AllocatedRequest(option, listed)
    return AllocatedRequest(option, listed, shared=True, consumed=signature.consumed(parsed_requests[option.parsed]))


@dataclass(slots=True)
class Outcome:
    """The outcome of the search over pods and nodes: where it has put them, and what it met.

    names: of the nodes, by number. placed: the plan when `done`; in a greedy search, how far it came. dead_end: the
    last kind that fitted nowhere. shortfall: the first charge that was not affordable. refusals: what stopped a search
    for devices, with the kind and the place of its claim, in the order met.
    """

    names: list[NodeName]
    done: bool = False
    placed: list[Placed] = field(default_factory=list)
    dead_end: int | None = None
    shortfall: Shortfall | None = None
    refusals: dict[RequestRefusal, tuple[int, int | None]] = field(default_factory=dict)
