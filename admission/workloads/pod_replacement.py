"""Replacement of expected pods: the pods of a workload take the places granted to it before they existed.

A workload that is held as a whole is granted a plan for the pods that its templates would yield. When it is resumed and
its pods exist, each takes the place and the devices of an expected pod. One ledger entry closes the old holdings and
opens the new ones, so nothing is charged twice, and at no moment could another gang take what was granted. This
requires that the pods request what was planned. Pods that differ, because another webhook changed them for example, are
a gang of their own and wait.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from admission.accounting import seat_transfer
from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.pods import Pod
from admission.api.muster.ledger_entries import Entry, Holding, Placement, Seat
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import GangUid, Uid
from admission.dra.planner import pod_groups
from admission.filters import gang_rules
from admission.workloads import gangs
from admission.workloads.gangs import Group
from admission.workloads.kinds import catalog

FEWER_PODS = "how many pods it still makes, since some of a Job have succeeded,"
"""The difference if some pods of a Job have succeeded, which its template does not show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """A pod that differs from the plan."""

    pod: str
    difference: str

    @property
    def message(self) -> str:
        return (
            f"pod {self.pod} is not what the template of its workload said when it was planned: {self.difference}"
            " differs, by another webhook or a default of the namespace; it is planned anew with the pods as they are"
        )


def expected(group: Group) -> list[Pod]:
    """Return the expected pods of a gang, which have a place but do not exist yet, by name."""
    seats = group.placement.seats if group.placement is not None else {}
    if not any(map(names.is_expected, seats)):
        return []
    found = [pod for pod in group.pods if pod.meta.uid in seats and names.is_expected(pod.meta.uid)]
    return sorted(found, key=lambda pod: pod_groups.natural(pod.meta.name))


def replacement_entry(group: Group, snapshot: Snapshot, *, at: datetime, actor: str) -> Entry | Mismatch | None:
    """Return the entry by which pods take the granted places; None while some pods or claims are missing."""
    placement, expected_pods = group.placement, expected(group)
    arrived = [pod for pod in group.waiting if not names.is_expected(pod.meta.uid)]
    if placement is None or not expected_pods or not arrived or not _have_claims(arrived, snapshot):
        return None
    if len(arrived) < len(expected_pods):
        return Mismatch(pod=arrived[0].meta.name, difference=FEWER_PODS) if _are_all_remaining(arrived, group) else None
    arrived.sort(key=lambda pod: pod_groups.natural(pod.meta.name))
    pairs: list[tuple[Pod, Pod]] = []
    read_labels = gang_rules.own_labels(expected_pods)
    unmatched, subgroups = [(pod, gangs.subgroup_of(pod)) for pod in arrived], _SubgroupMapping()
    for pod in expected_pods:
        subgroup = gangs.subgroup_of(pod)
        found = (at for at, (one, own_subgroup) in enumerate(unmatched) if subgroups.allows(subgroup, own_subgroup))
        replacement = next(
            (at for at in found if _difference(pod, unmatched[at][0], snapshot, read_labels) is None), None
        )
        if replacement is None and len(arrived) < group.identity.size - group.done_count:
            return None  # elastic: enough pods have come, and the one for this place may come last
        if replacement is None:
            first, _ = unmatched[0]
            difference = _difference(pod, first, snapshot, read_labels) or "the part of its gang"
            return Mismatch(pod=first.meta.name, difference=difference)
        one, own_subgroup = unmatched.pop(replacement)
        subgroups.add(subgroup, own_subgroup)
        pairs.append((pod, one))
    return _entry(placement, pairs, snapshot, at=at, actor=actor)


def mismatched(awaiting: Sequence[Group], groups: Iterable[Group]) -> dict[GangUid, list[Pod]]:
    """Return pods that wait in another gang than the one that was granted places for their workload, by the latter.

    They will never take those places. awaiting: gangs with expected pods. groups: all gangs.
    """
    waiting_for = {names.workload_of(pod.meta.uid): group for group in awaiting for pod in expected(group)}
    found: dict[GangUid, list[Pod]] = {}
    for group in groups if waiting_for else ():
        # The last one is the latest: without this test, thousands of gangs with only expected pods would be searched.
        has_real_pods = group.waiting and not names.is_expected(group.waiting[-1].meta.uid)
        for pod in group.waiting if has_real_pods else ():
            awaiting_gang = waiting_for.get(pod.meta.controller.uid) if pod.meta.controller is not None else None
            if awaiting_gang is None or awaiting_gang.uid == group.uid or names.is_expected(pod.meta.uid):
                continue
            if pod.meta.namespace == awaiting_gang.identity.namespace:
                found.setdefault(awaiting_gang.uid, []).append(pod)
    return found


def _are_all_remaining(arrived: Sequence[Pod], group: Group) -> bool:
    """Whether no more pods come, since all others have succeeded. Ended pods that are being deleted prove nothing."""
    kept_place = all(pod.meta.deleted is None for pod in group.ended)
    return kept_place and group.done_count > 0 and len(arrived) >= group.identity.size - group.done_count


class _SubgroupMapping:
    """A mapping of planned subgroups to actual ones, so that pods planned together stay together.

    A controller may name a subgroup otherwise than expected, or not at all; a pod without a subgroup fits any place.
    """

    def __init__(self) -> None:
        self._replacements: dict[str, str] = {}
        self._expected: dict[str, str] = {}

    def allows(self, subgroup: str, replacement: str) -> bool:
        if not subgroup or not replacement:
            return True
        return (
            self._replacements.get(subgroup, replacement) == replacement
            and self._expected.get(replacement, subgroup) == subgroup
        )

    def add(self, subgroup: str, replacement: str) -> None:
        if subgroup and replacement:
            self._replacements[subgroup], self._expected[replacement] = replacement, subgroup


def _have_claims(arrived: Sequence[Pod], snapshot: Snapshot) -> bool:
    """Whether the claims of all pods exist."""
    named = ((pod, pod.claim_name(claim)) for pod in arrived for claim in pod.claims)
    return all(name is not None and f"{pod.meta.namespace}/{name}" in snapshot.claims for pod, name in named)


def _difference(pod: Pod, replacement: Pod, snapshot: Snapshot, read_labels: frozenset[str]) -> str | None:
    """Return how a pod differs from the plan; None if it fits the place.

    read_labels: those of pods that the gang's rules read, on which its plan depends. Additional tolerations do not
    count: the API server adds some to every pod, and they exclude no node.
    """
    for key in catalog.TEMPLATES:
        planned, actual = pod.meta.labels.get(key, "").lower(), replacement.meta.labels.get(key, "").lower()
        if planned and actual and planned != actual:
            return f"the template that it is made of ({key})"
    planned_fields, actual_fields = _compared_fields(pod), _compared_fields(replacement)
    differing = next((what for what, value in planned_fields.items() if actual_fields[what] != value), None)
    if differing is not None:
        return differing
    for key in sorted(read_labels):
        if pod.meta.labels.get(key) != replacement.meta.labels.get(key):
            return f"the label {key}, which what pods demand of each other reads,"
    if not set(pod.tolerations) <= set(replacement.tolerations):
        return "spec.tolerations"
    specs = zip(_specs(pod, snapshot), _specs(replacement, snapshot), strict=True)
    return None if all(one == other for one, other in specs) else "the spec of a claim"


def _compared_fields(pod: Pod) -> dict[str, Hashable]:
    return {
        names.QUEUE: pod.queue,
        "spec.resourceClaims": tuple((one.name, one.claim, one.template) for one in pod.claims),
        "what its containers request": (tuple(sorted(pod.requests.items())), pod.containers),
        "spec.nodeSelector": tuple(sorted(pod.node_selector.items())),
        "spec.affinity": pod.affinity,
        "spec.volumes": tuple(sorted(map(str, pod.rules.volumes))),
        "what it demands of other pods": (
            *(pod.rules.affinity, pod.rules.anti_affinity, pod.rules.spread, pod.rules.ports),
        ),
    }


def _specs(pod: Pod, snapshot: Snapshot) -> Iterator[object]:
    for claim in pod.claims:
        found = snapshot.claims.get(f"{pod.meta.namespace}/{pod.claim_name(claim)}")
        yield found.spec if found is not None else None


def _entry(
    placement: Placement, pairs: Sequence[tuple[Pod, Pod]], snapshot: Snapshot, *, at: datetime, actor: str
) -> Entry:
    seats: list[Seat] = []
    holdings: list[Holding] = []
    for pod, replacement in pairs:
        replacements = _replacements(pod, replacement, snapshot)
        seat = placement.seats[pod.meta.uid]
        claims = tuple(replacements[uid][0] if uid in replacements else uid for uid in seat.claims)
        seats.append(Seat(pod_uid=replacement.meta.uid, pod=replacement.meta.key, node=seat.node, claims=claims))
        for uid, (other, key) in replacements.items():
            held = placement.holdings.get(uid)
            if held is not None:
                holdings.append(replace(held, claim_uid=other, claim=key))
    removed = [uid for uid in (*placement.seats, *placement.holdings) if names.is_expected(uid)]
    return seat_transfer.inherit(placement, gone=removed, seats=seats, holdings=holdings, at=at, actor=actor)


def _replacements(pod: Pod, replacement: Pod, snapshot: Snapshot) -> Mapping[Uid, tuple[Uid, str]]:
    """Return the UID and name of the claim that replaces each claim of an expected pod."""
    found: dict[Uid, tuple[Uid, str]] = {}
    for pod_claim in pod.claims:
        old, new = _claim(pod, pod_claim.name, snapshot), _claim(replacement, pod_claim.name, snapshot)
        if old is not None and new is not None and names.is_expected(old.meta.uid):
            found[old.meta.uid] = new.meta.uid, new.meta.key
    for synthetic_claim in (names.extended_claim, names.resources_claim):
        found[synthetic_claim(pod.meta.uid)] = synthetic_claim(replacement.meta.uid), replacement.meta.key
    return found


def _claim(pod: Pod, name: str, snapshot: Snapshot) -> Claim | None:
    pod_claim = next((claim for claim in pod.claims if claim.name == name), None)
    return snapshot.claims.get(f"{pod.meta.namespace}/{pod.claim_name(pod_claim)}") if pod_claim is not None else None
