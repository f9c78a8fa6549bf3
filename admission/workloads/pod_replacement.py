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
from admission.workloads import gangs
from admission.workloads.gangs import Group
from admission.workloads.kinds import catalog

FEWER = "how many pods it still makes, since some of a Job have succeeded,"
"""The difference if some pods of a Job have succeeded, which its template does not show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """A pod that differs from the plan."""

    pod: str
    differs: str

    @property
    def message(self) -> str:
        return (
            f"pod {self.pod} is not what the template of its workload said when it was planned: {self.differs} differs,"
            " by another webhook or a default of the namespace; it is planned anew with the pods as they are"
        )


def expected(group: Group) -> list[Pod]:
    """Return the expected pods of a gang, which have a place but do not exist yet, by name."""
    seats = group.placement.seats if group.placement is not None else {}
    if not any(map(names.is_expected, seats)):
        return []
    found = [pod for pod in group.pods if pod.meta.uid in seats and names.is_expected(pod.meta.uid)]
    return sorted(found, key=lambda pod: pod_groups.natural(pod.meta.name))


def succession(group: Group, snapshot: Snapshot, *, at: datetime, actor: str) -> Entry | Mismatch | None:
    """Return the entry by which pods take the granted places; None while some pods or claims are missing."""
    placement, before = group.placement, expected(group)
    came = [pod for pod in group.waiting if not names.is_expected(pod.meta.uid)]
    if placement is None or not before or not came or not _have_claims(came, snapshot):
        return None
    if len(came) < len(before):
        return Mismatch(pod=came[0].meta.name, differs=FEWER) if _are_what_is_left(came, group) else None
    came.sort(key=lambda pod: pod_groups.natural(pod.meta.name))
    pairs: list[tuple[Pod, Pod]] = []
    left, parts = [(pod, gangs.recognize(pod)) for pod in came], _Parts()
    for pod in before:
        part = gangs.recognize(pod)
        found = (at for at, (one, own) in enumerate(left) if parts.agree(part, own))
        heir = next((at for at in found if _differs(pod, left[at][0], snapshot) is None), None)
        if heir is None and len(came) < group.identity.size - group.over:
            return None  # elastic: enough pods have come, and the one for this place may come last
        if heir is None:
            first, _ = left[0]
            return Mismatch(pod=first.meta.name, differs=_differs(pod, first, snapshot) or "the part of its gang")
        one, own = left.pop(heir)
        parts.join(part, own)
        pairs.append((pod, one))
    return _entry(placement, pairs, snapshot, at=at, actor=actor)


def mismatched(awaiting: Sequence[Group], groups: Iterable[Group]) -> dict[GangUid, list[Pod]]:
    """Return pods that wait in another gang than the one that was granted places for their workload, by the latter.

    They will never take those places. awaiting: gangs with expected pods. groups: all gangs.
    """
    kept = {names.workload_of(pod.meta.uid): group for group in awaiting for pod in expected(group)}
    found: dict[GangUid, list[Pod]] = {}
    for group in groups if kept else ():
        # The last one is the latest: without this test, thousands of gangs with only expected pods would be searched.
        is_there = group.waiting and not names.is_expected(group.waiting[-1].meta.uid)
        for pod in group.waiting if is_there else ():
            own = kept.get(pod.meta.controller.uid) if pod.meta.controller is not None else None
            if own is None or own.uid == group.uid or names.is_expected(pod.meta.uid):
                continue
            if pod.meta.namespace == own.identity.namespace:
                found.setdefault(own.uid, []).append(pod)
    return found


def _are_what_is_left(came: Sequence[Pod], group: Group) -> bool:
    """Whether no more pods come, since all others have succeeded. Ended pods that are being deleted prove nothing."""
    kept_place = all(pod.meta.deleted is None for pod in group.ended)
    return kept_place and group.over > 0 and len(came) >= group.identity.size - group.over


class _Parts:
    """A mapping of planned subgroups to actual ones, so that pods planned together stay together.

    A controller may name a subgroup otherwise than expected, or not at all; a pod without a subgroup fits any place.
    """

    def __init__(self) -> None:
        self._heirs: dict[str, str] = {}
        self._taken: dict[str, str] = {}

    def agree(self, part: str, heir: str) -> bool:
        if not part or not heir:
            return True
        return self._heirs.get(part, heir) == heir and self._taken.get(heir, part) == part

    def join(self, part: str, heir: str) -> None:
        if part and heir:
            self._heirs[part], self._taken[heir] = heir, part


def _have_claims(came: Sequence[Pod], snapshot: Snapshot) -> bool:
    """Whether the claims of all pods exist."""
    named = ((pod, pod.claim_name(claim)) for pod in came for claim in pod.claims)
    return all(name is not None and f"{pod.meta.namespace}/{name}" in snapshot.claims for pod, name in named)


def _differs(pod: Pod, heir: Pod, snapshot: Snapshot) -> str | None:
    """Return how a pod differs from the plan; None if it fits the place.

    Additional tolerations do not count: the API server adds some to every pod, and they exclude no node.
    """
    for key in catalog.TEMPLATES:
        planned, own = pod.meta.labels.get(key, "").lower(), heir.meta.labels.get(key, "").lower()
        if planned and own and planned != own:
            return f"the template that it is made of ({key})"
    asked, requested = _requested(pod), _requested(heir)
    wrong = next((what for what, value in asked.items() if requested[what] != value), None)
    if wrong is not None:
        return wrong
    if not set(pod.tolerations) <= set(heir.tolerations):
        return "spec.tolerations"
    specs = zip(_specs(pod, snapshot), _specs(heir, snapshot), strict=True)
    return None if all(one == other for one, other in specs) else "the spec of a claim"


def _requested(pod: Pod) -> dict[str, Hashable]:
    return {
        names.QUEUE: pod.queue,
        "spec.resourceClaims": tuple((one.name, one.claim, one.template) for one in pod.claims),
        "what its containers request": (tuple(sorted(pod.requests.items())), pod.containers),
        "spec.nodeSelector": tuple(sorted(pod.node_selector.items())),
        "spec.affinity": pod.affinity,
    }


def _specs(pod: Pod, snapshot: Snapshot) -> Iterator[object]:
    for claim in pod.claims:
        known = snapshot.claims.get(f"{pod.meta.namespace}/{pod.claim_name(claim)}")
        yield known.spec if known is not None else None


def _entry(
    placement: Placement, pairs: Sequence[tuple[Pod, Pod]], snapshot: Snapshot, *, at: datetime, actor: str
) -> Entry:
    seats: list[Seat] = []
    holdings: list[Holding] = []
    for pod, heir in pairs:
        heirs = _heirs(pod, heir, snapshot)
        before = placement.seats[pod.meta.uid]
        claims = tuple(heirs[uid][0] if uid in heirs else uid for uid in before.claims)
        seats.append(Seat(pod_uid=heir.meta.uid, pod=heir.meta.key, node=before.node, claims=claims))
        for uid, (other, key) in heirs.items():
            held = placement.holdings.get(uid)
            if held is not None:
                holdings.append(replace(held, claim_uid=other, claim=key))
    removed = [uid for uid in (*placement.seats, *placement.holdings) if names.is_expected(uid)]
    return seat_transfer.inherit(placement, gone=removed, seats=seats, holdings=holdings, at=at, actor=actor)


def _heirs(pod: Pod, heir: Pod, snapshot: Snapshot) -> Mapping[Uid, tuple[Uid, str]]:
    """Return the UID and name of the claim that replaces each claim of an expected pod."""
    found: dict[Uid, tuple[Uid, str]] = {}
    for named in pod.claims:
        old, new = _claim(pod, named.name, snapshot), _claim(heir, named.name, snapshot)
        if old is not None and new is not None and names.is_expected(old.meta.uid):
            found[old.meta.uid] = new.meta.uid, new.meta.key
    for stand_in in (names.extended_claim, names.plugin_claim):
        found[stand_in(pod.meta.uid)] = stand_in(heir.meta.uid), heir.meta.key
    return found


def _claim(pod: Pod, name: str, snapshot: Snapshot) -> Claim | None:
    named = next((claim for claim in pod.claims if claim.name == name), None)
    return snapshot.claims.get(f"{pod.meta.namespace}/{pod.claim_name(named)}") if named is not None else None
