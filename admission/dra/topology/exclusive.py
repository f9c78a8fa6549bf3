"""Parts of a gang that are each alone in a domain, and the pods that follow the first one of a part into its domain.

A part's first pod has rules that keep other parts out of its domain, and its domain decides where the others go. So a
search places all of them, the first pods of all parts before the others: it is a search for subgroups with a domain
each (`subgroups`), and the plan has the first pods.

The domains of the search imply the rules of the first pods, but for the domains that placed pods occupy already. So
the search leaves these rules out (`SplitRules`), and equal parts are equal to it. It evaluates them like all other
rules where a pod outside the exclusive parts has the label that names the parts, where another rule reads that label,
where parts have domains of several labels, and where a first pod has pod affinity of its own: only pods count for that
which all of its terms are about, that of its part included.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.meta import Owner
from admission.api.kubernetes.pods import Pod
from admission.api.scheduling import exclusive_domains
from admission.api.scheduling.exclusive_domains import ExclusiveDomain
from admission.api.scheduling.scheduling_rules import NO_RULES, SchedulingRules
from admission.api.storage.persistent_volumes import VolumeClaim
from admission.api.values import names
from admission.api.values.names import Uid
from admission.dra.requests import extended_resources
from admission.dra.requests.gang_request import Colocation, PartLabels, PodDemand, SplitRules, Topology
from admission.dra.state.cluster_state import ClusterState


def with_followers(
    demands: Sequence[PodDemand], topology: Topology | None, cluster: ClusterState
) -> Sequence[PodDemand]:
    """Return the demands with those of the pods that will follow; the same ones without exclusive domains."""
    if topology is None or topology.labels is None:
        return demands
    colocations = {name: own for name, own in topology.subgroups if own.exclusive}
    found: list[PodDemand] = []
    for demand in demands:
        found.append(demand)
        own = colocations.get(demand.subgroup)
        if own is not None:
            found += _followers(demand, own, topology.labels, cluster)
    if not _are_split(found, colocations.values(), topology.labels):
        return found
    return [_split(demand, topology.labels) if demand.subgroup in colocations else demand for demand in found]


def with_volume_claims(demands: Sequence[PodDemand], cluster: ClusterState) -> ClusterState:
    """Return the cluster with the claims of ephemeral volumes that will be made for pods that follow.

    Each as that of the first pod of its part, where this one waits for its pod: of a volume that is made at once nobody
    knows where it will be.
    """
    storage = cluster.placed.storage
    if storage is None:
        return cluster
    firsts = {demand.subgroup: demand.pod for demand in demands if not demand.follows}
    made: dict[str, VolumeClaim] = {}
    for pod, first in ((demand.pod, firsts[demand.subgroup]) for demand in demands if demand.follows):
        for volume in pod.rules.volumes:
            key = f"{first.meta.namespace}/{volume.claim_of(first.meta.name)}"
            found = storage.claims.get(key) if volume.is_ephemeral else None
            if found is not None and not found.is_bound and not found.volume:
                claim = _volume_claim(found, pod, volume.claim_of(pod.meta.name))
                made[claim.meta.key] = claim
    if not made:
        return cluster
    stored = replace(storage, claims={**storage.claims, **made})
    return replace(cluster, placed=cluster.placed.stored(stored))


def _volume_claim(found: VolumeClaim, pod: Pod, name: str) -> VolumeClaim:
    owner = Owner(api_version="v1", kind="Pod", name=pod.meta.name, uid=pod.meta.uid, controller=True)
    made = replace(found.meta, name=name, uid=Uid(f"{pod.meta.uid}/{name}"), owners=(owner,))
    return replace(found, meta=made, selected_node=None)


def _followers(demand: PodDemand, own: Colocation, labels: PartLabels, cluster: ClusterState) -> Iterator[PodDemand]:
    """Yield the pods that follow the first pod of a part, and are not there yet."""
    pod = demand.pod
    exclusive = _exclusive(pod, labels)
    if exclusive is None:
        return
    there = sum(cluster.placed.left.matching(exclusive.rules.affinity).values())
    for number in range(1, own.followers - there + 1):
        yield _follower(demand, _within(exclusive.others, own.exclusive), number, labels, cluster)


def _within(rules: SchedulingRules, label: str) -> SchedulingRules:
    """Return the rules of a pod that its controller will bind to its domain by a node selector."""
    spread = tuple(replace(one, within=label) if one.honors_affinity else one for one in rules.spread)
    return replace(rules, spread=spread) if spread else rules


def _follower(
    demand: PodDemand, rules: SchedulingRules, number: int, labels: PartLabels, cluster: ClusterState
) -> PodDemand:
    """Return a pod that follows the first one of its part: as that one, but for the rules of a first pod."""
    first = demand.pod
    given = first.meta.labels
    own_labels = {**given, labels.index: str(number)} if labels.index in given else given
    name, uid = f"{first.meta.name} (follower {number})", names.expected_pod(first.meta.uid, number)
    pod = replace(first, meta=replace(first.meta, name=name, uid=uid, labels=own_labels), rules=rules)
    extended = extended_resources.claim_of(pod, cluster.classes, demand.plugged) if demand.by_devices else None
    given_claims = demand.claims[:-1] if demand.by_devices else demand.claims
    claims = (*(_own_claim(claim, demand, number) for claim in given_claims), *filter(None, (extended,)))
    return replace(demand, pod=pod, claims=claims, follows=True)


def _own_claim(claim: Claim, demand: PodDemand, number: int) -> Claim:
    """Return the claim of a follower for one of the first pod: its own if a template makes it, else the same one."""
    pairs = zip(demand.pod.claims, demand.claims, strict=False)
    if not any(one is claim and named.template is not None for named, one in pairs):
        return claim
    meta = claim.meta
    made = replace(meta, name=f"{meta.name} (follower {number})", uid=Uid(f"{meta.uid or meta.key}/{number}"))
    return Claim(meta=made, spec=claim.spec)


def _are_split(demands: Iterable[PodDemand], colocations: Iterable[Colocation], labels: PartLabels) -> bool:
    """Return whether the domains stand for the rules of the first pods, among the pods of the gang."""
    several = {(own.exclusive, own.required, own.preferred) for own in colocations}
    return len(several) == 1 and not any(_reads_parts(demand, labels) for demand in demands)


def _reads_parts(demand: PodDemand, labels: PartLabels) -> bool:
    """Return whether a pod's other rules read the label of parts, or the pod has the label and is in no such part.

    Affinity of a first pod does, since its terms are judged together (`podMatchesAllAffinityTerms`).
    """
    pod = demand.pod
    exclusive = _exclusive(pod, labels)
    if exclusive is not None and exclusive.others.affinity:
        return True
    is_in_part = demand.follows or exclusive is not None
    others = pod.rules if exclusive is None else exclusive.others
    return exclusive_domains.read(others, labels.part) or (not is_in_part and labels.part in pod.meta.labels)


def _split(demand: PodDemand, labels: PartLabels) -> PodDemand:
    pod = demand.pod
    exclusive = _exclusive(pod, labels)
    own, others = (NO_RULES, pod.rules) if exclusive is None else (exclusive.rules, exclusive.others)
    shown = {key: value for key, value in pod.meta.labels.items() if key != labels.part}
    rest = replace(pod, rules=others, meta=replace(pod.meta, labels=shown))
    return replace(demand, split=SplitRules(domain=replace(pod, rules=own), rest=rest))


def _exclusive(pod: Pod, labels: PartLabels) -> ExclusiveDomain | None:
    return exclusive_domains.find(pod.rules, labels.part, pod.meta.labels.get(labels.part, ""))
