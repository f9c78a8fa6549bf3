"""Whether a change of the cluster may help a gang that found no place: only then is it planned again.

A gang for which no plan exists, as was proved, has one after a change only if that plan puts a pod on a node that
changed. So the first of its pods that comes to such a node gets its devices there beside what is in use already: where
none of them would if it came alone, there is still no plan. This errs on one side only, towards planning again.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from admission.api.kubernetes.claims import EXACT_COUNT, Claim
from admission.api.values.names import NodeName
from admission.dra import compatibility
from admission.dra.allocator import node_allocator
from admission.dra.allocator.node_allocator import NotHere
from admission.dra.allocator.results import StepsEndedError
from admission.dra.inventory.selectors import Selectors
from admission.dra.requests.gang_request import PodDemand
from admission.dra.state import cluster_state
from admission.dra.state.cluster_state import ClusterState

MOST_NODES = 64
"""Nodes that are looked at one by one; a gang is planned again when more have changed."""

STEPS = 1_000
"""For one pod on one node."""


def changed(before: ClusterState, cluster: ClusterState) -> frozenset[NodeName] | None:
    """Return the nodes that take other pods than before, as far as can be told; None for all of them."""
    if (
        before.profile != cluster.profile
        or before.classes is not cluster.classes
        or before.is_simulated
        or cluster.is_simulated
    ):
        return None
    found = cluster_state.changed(before, cluster)
    if found is None:
        return None
    if before.nodes is not cluster.nodes:
        found |= {name for name, node in cluster.nodes.items() if before.nodes.get(name) is not node}
    return found & cluster.nodes.keys()


def may_help(
    pods: Sequence[PodDemand], nodes: Collection[NodeName] | None, cluster: ClusterState, *, selectors: Selectors
) -> bool:
    """Return whether one of a gang's pods may find devices on one of the nodes that changed. nodes: None for all."""
    if nodes is None or len(nodes) > MOST_NODES:
        return True
    shared = _shared(pods)
    claims_by_key: dict[tuple[str, ...], tuple[Claim, ...]] = {}
    for one in pods:
        own = tuple(claim for claim in one.claims if claim.meta.uid not in shared)
        claims_by_key.setdefault(tuple(claim.spec.equivalence_key for claim in own), own)
    seen = {cluster.profile: cluster, cluster.profile.with_known_bugs(compatibility.AS_OF_1_37): cluster}
    views = [known if known.profile == profile else replace(known, profile=profile) for profile, known in seen.items()]
    return any(
        not own or _is_for_administration(own) or not _is_rejected(own, node, view, selectors)
        for own in claims_by_key.values()
        for least in (_least(own),)
        for node in nodes
        if not own or _may_have(node, least, cluster)
        for view in views
    )


def _shared(pods: Sequence[PodDemand]) -> set[str]:
    """Return the claims of several pods: one that another pod has brought may be used here as well."""
    seen: set[str] = set()
    found: set[str] = set()
    for one in pods:
        for uid in {claim.meta.uid for claim in one.claims}:
            (found if uid in seen else seen).add(uid)
    return found


def _is_for_administration(claims: Sequence[Claim]) -> bool:
    """Return whether some request takes nothing from others: chosen freely it needs nothing to be left for it."""
    requests = (request for claim in claims for request in claim.spec.requests)
    return any(option.admin_access for request in requests for option in request.alternatives)


def _least(claims: Sequence[Claim]) -> int:
    """Return how many devices of their own claims take at least; 0 where that is not a plain number."""
    requests = [request for claim in claims for request in claim.spec.requests]
    options = [option for request in requests for option in request.alternatives]
    if len(options) != len(requests) or any(one.mode != EXACT_COUNT or one.admin_access for one in options):
        return 0
    return sum(option.count for option in options)


def _may_have(node: NodeName, least: int, cluster: ClusterState) -> bool:
    """Return whether a node has so many devices that nobody has. One that can be shared may do for many requests."""
    node_inventory = cluster.node_inventories.get(node) if least else None
    if node_inventory is None or not node_inventory.plain:
        return True
    free = 0
    for pool in node_inventory.pools:
        for listed in pool.listed_devices:
            if listed.device.allows_multiple:
                return True
            free += listed.id not in cluster.taken
    return free >= least


def _is_rejected(claims: Sequence[Claim], node: NodeName, cluster: ClusterState, selectors: Selectors) -> bool:
    try:
        answer = node_allocator.allocate(claims, node, cluster, selectors=selectors, steps=STEPS)
    except StepsEndedError:
        return False
    return isinstance(answer, NotHere)
