"""The hint whether a change of the cluster may help a gang that has no plan: only then is it planned again.

A gang that was proved to have no plan has one after a change only if that plan puts a pod on a node that changed. The
first of its pods on such a node then gets its devices beside those in use already. So if no pod of the gang would get
devices alone on any changed node, there is still no plan. The hint errs on one side only, towards planning again, as it
does for gangs to which rules between pods apply: there other nodes may take them too.
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
from admission.filters import gang_rules

MOST_NODES = 64
"""Changed nodes that are searched one by one; a gang is planned again if more have changed."""

STEPS = 1_000
"""For one pod on one node."""


def changed(before: ClusterState, cluster: ClusterState) -> frozenset[NodeName] | None:
    """Return the nodes that may take other pods than before; None for all of them."""
    if (
        before.profile != cluster.profile
        or before.classes is not cluster.classes
        or before.placed.namespaces is not cluster.placed.namespaces
        or before.is_what_if
        or cluster.is_what_if
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
    """Return whether one of a gang's pods may get devices on one of the nodes that changed. nodes: None for all."""
    if nodes is None or len(nodes) > MOST_NODES:
        return True
    if nodes and gang_rules.are_named([one.pod for one in pods]):
        # A pod that comes or goes on one node may let a pod of the gang go to another one.
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


def may_help_volumes(before: ClusterState, cluster: ClusterState, pods: Sequence[PodDemand]) -> bool:
    """Return whether storage has changed, and one of a gang's pods has volumes."""
    is_other = before.placed.storage is not cluster.placed.storage
    return is_other and any(one.pod.rules.volumes for one in pods)


def _shared(pods: Sequence[PodDemand]) -> set[str]:
    """Return the claims of several pods: another pod may bring them, so they are not required here."""
    seen: set[str] = set()
    found: set[str] = set()
    for one in pods:
        for uid in {claim.meta.uid for claim in one.claims}:
            (found if uid in seen else seen).add(uid)
    return found


def _is_for_administration(claims: Sequence[Claim]) -> bool:
    """Return whether some request has admin access: where devices are chosen freely it needs nothing to be free."""
    requests = (request for claim in claims for request in claim.spec.requests)
    return any(option.admin_access for request in requests for option in request.alternatives)


def _least(claims: Sequence[Claim]) -> int:
    """Return how many devices the claims take at least; 0 where that is not a fixed number."""
    requests = [request for claim in claims for request in claim.spec.requests]
    options = [option for request in requests for option in request.alternatives]
    if len(options) != len(requests) or any(one.mode != EXACT_COUNT or one.admin_access for one in options):
        return 0
    return sum(option.count for option in options)


def _may_have(node: NodeName, least: int, cluster: ClusterState) -> bool:
    """Return whether a node has so many free devices. A device that can be shared may serve any number of requests."""
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
