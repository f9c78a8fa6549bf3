"""Places that pods of a running gang have left: their replacements go there if they can.

A replacement may find there what was loaded or written before. The places are not kept free, and a leader knows only
those that it has seen being left.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from admission.api.kubernetes.pods import Pod
from admission.api.muster.ledger_entries import Entry, Kind, Placement
from admission.api.values.names import GangUid, NodeName, Uid
from admission.api.values.selectors import NodeSelector, NodeTerm, Requirement
from admission.scheduling.cache.verdict_cache import Verdict
from admission.scheduling.checks import elastic
from admission.scheduling.checks.elastic import Decide
from admission.workloads.gangs import Group

MOST = 64
"""Places of one gang that are remembered, the latest."""


class ReplacementSlot(NamedTuple):
    """A place that a pod has left. pod: `namespace/name`."""

    pod: str
    node: NodeName


Vacancies = Mapping[GangUid, tuple[ReplacementSlot, ...]]
"""By gang, in the order in which they were left."""


def after(known: Vacancies, placements: Mapping[GangUid, Placement], entries: Iterable[Entry]) -> Vacancies:
    """Return what is vacant after some entries were made. placements: those before them."""
    found = {uid: places for uid, places in known.items() if uid in placements}
    for entry in entries:
        placement = placements.get(entry.gang_uid)
        if placement is None or entry.kind is not Kind.RELEASE:
            continue
        seats = (placement.seats[uid] for uid in entry.closes if uid in placement.seats)
        left = [ReplacementSlot(seat.pod, seat.node) for seat in seats if seat.node]
        if left:
            found[entry.gang_uid] = (*found.get(entry.gang_uid, ()), *left)[-MOST:]
    return found


def without_filled(places: Sequence[ReplacementSlot], pods: Iterable[Pod]) -> tuple[ReplacementSlot, ...]:
    """Return what is still vacant when some pods were admitted, wherever they went."""
    removed = _by_pod(pods, places).values()
    return tuple(place for place in places if place not in removed)


def reassigned(
    found: Verdict, places: Sequence[ReplacementSlot], nodes: Container[NodeName], decide: Decide
) -> Verdict:
    """Return the grant that has pods go where those before them were, if there is one.

    found: what was found of a gang. Only if pods of it may start at all does it matter where. nodes: those there are.
    """
    group, places = found.group, [place for place in places if place.node in nodes]
    if not places or not group.started or not elastic.is_granted(found):
        return found
    planned = {one.uid: one.node for one in found.outcome.plan.pods}
    slots = _by_pod((pod for pod in group.waiting if pod.meta.uid in planned), places)
    if all(planned[uid] == place.node for uid, place in slots.items()):
        return found
    others = [pod for pod in group.waiting if pod.meta.uid not in planned]
    pinned = decide(_pinned(group.without(others), slots))
    if not elastic.is_granted(pinned):
        return found
    pinned.group = group
    return pinned


def _by_pod(pods: Iterable[Pod], places: Sequence[ReplacementSlot]) -> dict[Uid, ReplacementSlot]:
    """Return the place of each pod that comes in place of another: of the same name, or else of one alike."""
    unassigned, new, found = list(reversed(places)), list(pods), dict[Uid, ReplacementSlot]()
    for matches in (_has_same_name, _has_similar_name):
        for pod in (pod for pod in new if pod.meta.uid not in found):
            place = next((place for place in unassigned if matches(pod, place)), None)
            if place is not None:
                unassigned.remove(place)
                found[pod.meta.uid] = place
    return found


def _has_same_name(pod: Pod, place: ReplacementSlot) -> bool:
    return pod.meta.key == place.pod


def _has_similar_name(pod: Pod, place: ReplacementSlot) -> bool:
    """Whether names differ in their last part alone, which controllers draw by lot; a Job's index stands before it."""
    return pod.meta.key.rpartition("-")[0] == place.pod.rpartition("-")[0]


def _pinned(group: Group, places: Mapping[Uid, ReplacementSlot]) -> Group:
    pods = (_pinned_to(pod, places[pod.meta.uid].node) if pod.meta.uid in places else pod for pod in group.pods)
    return replace(group, pods=tuple(pods))


def _pinned_to(pod: Pod, node: NodeName) -> Pod:
    """Return a pod that goes to no other node."""
    here = Requirement(key="metadata.name", operator="In", values=(node,))
    terms = pod.affinity.terms if pod.affinity is not None else (NodeTerm(),)
    known = [term for term in terms if pod.affinity is None or term.expressions or term.fields]
    return replace(
        pod, affinity=NodeSelector(terms=tuple(replace(term, fields=(*term.fields, here)) for term in known))
    )
