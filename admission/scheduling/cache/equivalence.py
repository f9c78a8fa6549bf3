"""The equivalence of gangs: one question for gangs that differ only in names, and its answer in each gang's names.

The planner reads names only to write them, so it answers once for all equivalent gangs, with numbered names in the
order of the real ones: ties that the planner breaks by name are broken in the same way.
"""

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.pods import Pod
from admission.api.muster.gangs import PlannedClaim, PlannedPod
from admission.api.muster.ledger_entries import Holding
from admission.api.muster.queues import PlacementMode
from admission.api.values import names
from admission.api.values.names import Uid
from admission.api.values.reasons import Detail, Hold
from admission.dra.planner import pod_groups
from admission.dra.requests.gang_request import Plan, PodDemand, Topology
from admission.dra.state.cluster_state import ClusterState
from admission.filters import gang_rules

POD, CLAIM = "\ue000", "\ue001"
"""The first characters of numbered names, followed by digits: of Unicode's private use, so in no Kubernetes name."""

_GENERAL = re.compile(f"([{POD}{CLAIM}])([0-9]{{6}})")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GangEquivalence:
    """A gang's question without its names. key: equal for equivalent gangs. pods, claims: the real ones, by number."""

    key: Hashable
    pods: tuple[PodDemand, ...]
    claims: tuple[Claim, ...]
    labels: tuple[Mapping[str, str], ...]
    """The labels of the pods that rules between pods read."""

    @property
    def question(self) -> tuple[PodDemand, ...]:
        """Return the gang's demands in numbered names."""
        claims = {
            claim.meta.uid: replace(claim, meta=_meta(claim.meta, CLAIM, at)) for at, claim in enumerate(self.claims)
        }
        return tuple(
            PodDemand(
                pod=replace(one.pod, meta=replace(_meta(one.pod.meta, POD, at), labels=self.labels[at])),
                claims=tuple(claims[claim.meta.uid] for claim in one.claims),
                subgroup=one.subgroup,
                kept_to=one.kept_to,
            )
            for at, one in enumerate(self.pods)
        )

    def is_fresh(self, cluster: ClusterState) -> bool:
        """Return whether the claims are unallocated in a cluster state, and no other pod uses them."""
        return all(_is_fresh(claim, cluster) for claim in self.claims)

    def hold(self, hold: Hold) -> Hold:
        """Return a hold with the real names."""
        return Hold(hold.reason, self._text(hold.message), self._details(hold.details), hold.references)

    def plan(self, plan: Plan) -> Plan:
        """Return a plan with the real names."""
        return replace(
            plan,
            pods=tuple(map(self._planned, plan.pods)),
            holdings=tuple(map(self._holding, plan.holdings)),
            uses={self._claim(uid).uid: uses for uid, uses in plan.uses.items()},
            by_devices={self.pods[_number(uid)].pod.meta.uid: taken for uid, taken in plan.by_devices.items()},
        )

    def _planned(self, planned: PlannedPod) -> PlannedPod:
        meta = self.pods[_number(planned.uid)].pod.meta
        claims = tuple(
            PlannedClaim(uid=own.uid, claim=own.key, devices=one.devices)
            for one in planned.claims
            for own in (self._claim(one.uid),)
        )
        return PlannedPod(uid=meta.uid, pod=meta.key, node=planned.node, claims=claims)

    def _holding(self, holding: Holding) -> Holding:
        number = names.pod_of_resources_claim(holding.claim_uid)
        if number is not None:
            pod = self.pods[_number(number)].pod.meta
            return replace(holding, claim_uid=names.resources_claim(pod.uid or Uid(pod.key)), claim=pod.key)
        own = self._claim(holding.claim_uid)
        return replace(holding, claim_uid=own.uid, claim=own.key)

    def _claim(self, uid: Uid) -> Meta:
        return self.claims[_number(uid)].meta

    def _text(self, text: str) -> str:
        return _GENERAL.sub(self._name, text) if _is_general(text) else text

    def _name(self, found: re.Match[str]) -> str:
        number = int(found[2])
        return self.pods[number].pod.meta.name if found[1] == POD else self.claims[number].meta.name

    def _details(self, details: Mapping[str, Detail]) -> dict[str, Detail]:
        return {name: self._detail(value) for name, value in details.items()}

    def _detail(self, value: Detail) -> Detail:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, Sequence):
            return [self._text(one) for one in value] if _is_general("".join(value)) else value
        return value


def build(
    demands: Sequence[PodDemand], wanted: PlacementMode, cluster: ClusterState, topology: Topology | None = None
) -> GangEquivalence | None:
    """Return the question of a gang; None if it depends on particular objects.

    It does if a claim is allocated, planned or used already, or has no UID; if a pod requests extended resources that
    classes offer, or has volumes that are judged; or if the gang has to be in one domain with pods that run already.
    """
    if topology is not None and topology.colocated_with:
        return None
    claims = {claim.meta.uid: claim for one in demands for claim in one.claims}
    if any(one.extended for one in demands) or gang_rules.have_volumes((one.pod for one in demands), cluster.placed):
        return None
    if not all(_is_fresh(claim, cluster) for claim in claims.values()):
        return None
    ordered = tuple(sorted(demands, key=lambda one: pod_groups.natural(one.pod.meta.name)))
    named = tuple(sorted(claims.values(), key=lambda claim: (claim.meta.name, claim.meta.uid)))
    numbers = {claim.meta.uid: at for at, claim in enumerate(named)}
    specs: dict[str, int] = {}
    texts = [*map(claim_key, named)]
    asked = tuple(specs.setdefault(text, len(specs)) for text in texts)
    named_pods = gang_rules.named([one.pod for one in ordered], cluster.placed)
    nominated = bool(cluster.placed.nominated)
    pods = tuple(
        (
            pod_key(one.pod),
            rules,
            one.pod.priority if nominated else 0,
            one.subgroup,
            one.kept_to,
            tuple(numbers[claim.meta.uid] for claim in one.claims),
        )
        for one, (rules, _) in zip(ordered, named_pods, strict=True)
    )
    namespaces = tuple(sorted({one.pod.meta.namespace for one in demands}))
    return GangEquivalence(
        key=(wanted, topology, namespaces, asked, tuple(specs), pods),
        pods=ordered,
        claims=named,
        labels=tuple(labels for _, labels in named_pods),
    )


def _is_fresh(claim: Claim, cluster: ClusterState) -> bool:
    uid = claim.meta.uid
    is_known = uid in cluster.pinned or uid in cluster.users
    return bool(uid) and claim.allocation is None and not claim.reserved_for and not is_known


def _meta(meta: Meta, prefix: str, number: int) -> Meta:
    name = f"{prefix}{number:06}"
    return Meta(name=name, namespace=meta.namespace, uid=Uid(name))


def _is_general(text: str) -> bool:
    return POD in text or CLAIM in text


def _number(uid: Uid) -> int:
    return int(uid[1:])


def claim_key(claim: Claim) -> str:
    """Return all that the planner reads of an unallocated claim that no other pod uses."""
    return f"{claim.spec.equivalence_key} {claim.spec.config!r}"


def pod_key(pod: Pod) -> Hashable:
    """Return all that the planner reads of a pod without resources that classes offer, beside its claims and labels."""
    return (
        tuple(sorted(pod.requests.items())),
        tuple(sorted(pod.node_selector.items())),
        pod.affinity,
        pod.tolerations,
        pod.features,
        (pod.claimed.users, pod.claimed.level),
        replace(pod.rules, volumes=()) if pod.rules.concern_pods else None,
    )
