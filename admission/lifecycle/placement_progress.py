"""The writes that remain for a gang with a reservation, and what prevents them: claims first, then gates.

The ledger has the devices of every claim before the cluster does, so this tells a controller what to do next, whether
it has just granted the gang or an earlier leader failed before the gang was placed.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from admission.accounting.books import Book
from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.devices import RequestDevice
from admission.api.kubernetes.pods import Pod
from admission.api.muster.gangs import Charge
from admission.api.muster.ledger_entries import Holding, Placement, Seat
from admission.api.values import names
from admission.api.values.names import NodeName, Uid
from admission.lifecycle.transitions import ObservedAllocations
from admission.workloads.gangs import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A claim without the devices that the ledger has for it, at this charge. node: where its pod is placed."""

    claim: Claim
    devices: tuple[RequestDevice, ...]
    node: NodeName
    charge: Charge


def holdings(group: Group, book: Book) -> list[Holding]:
    """Return the open holdings for the claims of a gang's seats, whichever gang is charged for them."""
    placement = group.placement
    claim_uids = {uid for seat in placement.seats.values() for uid in seat.claims} if placement is not None else set()
    return [holding for uid in sorted(claim_uids) if (holding := _holding(uid, book)) is not None]


def missing(group: Group, book: Book, observed: ObservedAllocations) -> list[Missing]:
    """Return the claims without devices of pods that are not bound yet, each once.

    Claims that kube-scheduler makes itself, what pods take of nodes without a claim, and claims of pods whose nodes are
    to come, are not included.
    """
    found: dict[Uid, Missing] = {}
    for _, seat in _unbound(group):
        for uid in () if awaits_node(seat, observed.snapshot.nodes) else _named_claims(seat):
            claim, holding = observed.claims.get(uid), _holding(uid, book)
            if claim is not None and claim.allocation is None and holding is not None and uid not in found:
                found[uid] = Missing(claim=claim, devices=holding.devices, node=seat.node, charge=holding.charge)
    return list(found.values())


def nodes_to_come(group: Group) -> Mapping[str, int]:
    """Return how many nodes of each NodeShape were asked for a gang, whether they have come or not."""
    seats = group.placement.seats.values() if group.placement is not None else ()
    return asked_for(seat.as_asked for seat in seats)


def asked_for(nodes: Iterable[NodeName]) -> Mapping[str, int]:
    """Return how many nodes of each shape are to come, of the nodes of seats."""
    return Counter(shape for node in set(nodes) if (shape := names.shape_of(node)) is not None)


def in_words(counts: Mapping[str, int]) -> list[str]:
    """Return how many nodes of each shape there are, one text for each in the order of their names."""
    return [f"{count} of shape {name}" for name, count in sorted(counts.items())]


def pods_to_come(group: Group) -> frozenset[Uid]:
    """Return the pods of a gang that have their places on nodes that were asked for, whether they have come or not."""
    seats = group.placement.seats if group.placement is not None else {}
    return frozenset(uid for uid, seat in seats.items() if names.shape_of(seat.as_asked) is not None)


def awaits_nodes(group: Group) -> bool:
    """Return whether nodes that were asked for a gang have not all come: a pod for one of them is on no node."""
    to_come = pods_to_come(group)
    return bool(to_come) and not to_come <= {pod.meta.uid for pod in group.pods if pod.node}


def awaits_node(seat: Seat, nodes: Container[NodeName]) -> bool:
    """Return whether the node of a place is to come, or has come and is gone again, so that the place is moved."""
    return names.shape_of(seat.node) is not None or has_lost_node(seat, nodes)


def has_lost_node(seat: Seat, nodes: Container[NodeName]) -> bool:
    """Return whether a place was moved to a node that had come for it and is gone."""
    return bool(seat.asked_as) and seat.node not in nodes


def is_to_move_again(seat: Seat, observed: ObservedAllocations) -> bool:
    """Return whether a place was moved to a node that is gone, and its pod is on no node."""
    pod = observed.snapshot.pods.get(seat.pod_uid)
    return has_lost_node(seat, observed.snapshot.nodes) and pod is not None and not pod.node


def nodes_asked_at(seat: Seat, placement: Placement) -> datetime | None:
    """Return when the node of a place was asked for; None for places on nodes that were there."""
    if names.shape_of(seat.as_asked) is None:
        return None
    return names.asked_at(seat.as_asked) or placement.reserved_at


def outstanding(group: Group, is_there: Callable[[Pod], bool]) -> frozenset[Uid]:
    """Return the pods with a place that are waited for, with all that depend on them; empty if all are there.

    A gang that starts does so whole, so all of its pods depend on those that are not there. Where as many are there as
    it needs, or where others had started before, these run on without the others.
    """
    seats = group.placement.seats if group.placement is not None else {}
    seated = [pod for pod in group.pods if pod.meta.uid in seats]
    absent = frozenset(pod.meta.uid for pod in seated if not is_there(pod))
    runs = len(seated) - len(absent) >= group.still_needed
    if not absent or runs or all(names.joined_at(seats[uid].as_asked) is not None for uid in absent):
        return absent
    return frozenset(seats)


def allocation_keys(group: Group, observed: ObservedAllocations, *, allocates: bool) -> dict[Uid, str]:
    """Return a text for each pod on no node for which kube-scheduler allocates claims.

    It is equal for pods that may be given devices in any order: whichever comes first gets what is planned for the
    first, so all of them get the same set, and the settlement says which pod has which. allocates: whether Muster
    allocates the claims that pods name.
    """
    keys: dict[Uid, str] = {}
    for pod, seat in _unbound(group):
        named = () if allocates else [observed.claims.get(uid) for uid in _named_claims(seat)]
        specs = [claim.spec.equivalence_key for claim in named if claim is not None and claim.allocation is None]
        extended = [repr(pod.containers)] if any(names.is_extended_claim(uid) for uid in seat.claims) else []
        if specs or extended:
            keys[pod.meta.uid] = "\n".join([*specs, *extended])
    return keys


def malformed_claim(group: Group, book: Book, observed: ObservedAllocations) -> str | None:
    """Return a malformed claim of a gang, which keeps the gang from being placed."""
    for holding in holdings(group, book):
        if holding.claim_uid not in observed.claims and observed.is_unreadable("ResourceClaim", holding.claim):
            return holding.claim
    return None


def start_problem(group: Group, book: Book, observed: ObservedAllocations) -> str | None:
    """Return why a gang cannot start as planned: its nodes, claims or devices have changed."""
    for pod, seat in _unbound(group):
        if awaits_node(seat, observed.snapshot.nodes):
            continue
        if seat.node and seat.node not in observed.snapshot.nodes:
            return f"node {seat.node}, where pod {pod.meta.key} was to go, is gone"
        recreated = _recreated(pod, seat, observed)
        if recreated is not None:
            return f"claim {recreated.meta.key} of pod {pod.meta.key} was made anew"
        for uid in _named_claims(seat):
            problem = _claim_problem(uid, pod, book, observed)
            if problem is not None:
                return problem
    return None


def _claim_problem(uid: Uid, pod: Pod, book: Book, observed: ObservedAllocations) -> str | None:
    claim, holding = observed.claims.get(uid), _holding(uid, book)
    if claim is None:
        claim_text = f"claim {holding.claim}" if holding is not None else f"a claim (UID {uid})"
        return f"{claim_text} of pod {pod.meta.key} is gone"
    if claim.meta.deleted is not None:
        return f"claim {claim.meta.key} of pod {pod.meta.key} is being deleted"
    if claim.allocation is None:
        return None if holding is not None else f"claim {claim.meta.key} of pod {pod.meta.key} has lost its devices"
    lost_device = next(
        (result.device for result in claim.allocation.devices if result.device not in observed.devices), None
    )
    if lost_device is not None and not claim.reserved_for:
        return f"device {lost_device} of claim {claim.meta.key} is gone"
    return None


def _unbound(group: Group) -> Iterator[tuple[Pod, Seat]]:
    """Yield the pods that have a place and are not bound yet."""
    seats = group.placement.seats if group.placement is not None else {}
    for pod in group.pods:
        if not pod.node and pod.meta.uid in seats:
            yield pod, seats[pod.meta.uid]


def _named_claims(seat: Seat) -> Iterator[Uid]:
    """Yield the claims that a pod names."""
    for uid in seat.claims:
        if not names.is_extended_claim(uid) and names.pod_of_resources_claim(uid) is None:
            yield uid


def _recreated(pod: Pod, seat: Seat, observed: ObservedAllocations) -> Claim | None:
    """Return a claim that the pod names and that is not the one in its seat."""
    for pod_claim in pod.claims:
        claim = observed.snapshot.claims.get(f"{pod.meta.namespace}/{pod.claim_name(pod_claim)}")
        if claim is not None and claim.meta.uid not in seat.claims:
            return claim
    return None


def _holding(uid: Uid, book: Book) -> Holding | None:
    gang = book.owners.get(uid)
    return book.placements[gang].holdings.get(uid) if gang is not None else None
