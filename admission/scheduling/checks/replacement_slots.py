"""The slots that pods of a running gang have left: replacements go to the same nodes if they can.

A replacement may find data there that was loaded or written before. The nodes are not reserved, and a leader knows only
slots that were left in its term.
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
"""The most slots kept per gang; the latest are kept."""


class ReplacementSlot(NamedTuple):
    """A node that a pod has left. pod: `namespace/name`."""

    pod: str
    node: NodeName


Vacancies = Mapping[GangUid, tuple[ReplacementSlot, ...]]
"""The vacant slots by gang, in the order in which they were left."""


def after(known: Vacancies, placements: Mapping[GangUid, Placement], entries: Iterable[Entry]) -> Vacancies:
    """Return the vacant slots after these ledger entries. placements: those before the entries."""
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
    """Return the slots that are still vacant after these pods were admitted, whichever nodes they went to."""
    removed = _by_pod(pods, places).values()
    return tuple(place for place in places if place not in removed)


def reassigned(
    found: Verdict, places: Sequence[ReplacementSlot], nodes: Container[NodeName], decide: Decide
) -> Verdict:
    """Return the grant in which replacements go to the nodes of the pods that they replace, if there is one.

    found: the verdict on the gang; returned unchanged if it is no grant. nodes: all existing ones.
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
    return replace(pinned, group=group)


def _by_pod(pods: Iterable[Pod], places: Sequence[ReplacementSlot]) -> dict[Uid, ReplacementSlot]:
    """Return the slot of each replacement: that of a pod of the same name, else of one with a similar name."""
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
    """Return whether names differ only in the last part, a random suffix; a Job's index comes before it."""
    return pod.meta.key.rpartition("-")[0] == place.pod.rpartition("-")[0]


def _pinned(group: Group, places: Mapping[Uid, ReplacementSlot]) -> Group:
    pods = (_pinned_to(pod, places[pod.meta.uid].node) if pod.meta.uid in places else pod for pod in group.pods)
    return replace(group, pods=tuple(pods))


def _pinned_to(pod: Pod, node: NodeName) -> Pod:
    """Return the pod bound to one node by its affinity."""
    here = Requirement(key="metadata.name", operator="In", values=(node,))
    terms = pod.affinity.terms if pod.affinity is not None else (NodeTerm(),)
    known = [term for term in terms if pod.affinity is None or term.expressions or term.fields]
    return replace(
        pod, affinity=NodeSelector(terms=tuple(replace(term, fields=(*term.fields, here)) for term in known))
    )
