"""The limits on a new leader before its view is confirmed to show all that the last leader observed.

Confirming reads the versions of all pods and claims, which takes seconds in a large cluster. Until then a gang is
admitted only if nothing that the view may lack concerns it: it is not in the ledger, and its pods go to nodes on which
every pod with a slot is observed. During that time `state.fences` lets no protection of devices count.
"""

from dataclasses import replace

from admission.accounting.books import Book
from admission.api.values import names
from admission.api.values.names import NodeName
from admission.api.values.reasons import Hold, HoldReason
from admission.cycle.state.inputs import CycleInputs
from admission.cycle.state.term import UNCONFIRMED, Term


def without_unconfirmed(term: Term, book: Book, inputs: CycleInputs) -> CycleInputs:
    """Return the inputs without what may be outdated; unchanged once the view is confirmed."""
    if term.is_confirmed:
        return inputs
    hold = Hold(HoldReason.WAITING_FOR_CLAIMS, UNCONFIRMED)
    booked = (group.uid for group in inputs.groups if group.waiting and group.placement is not None)
    inputs = replace(inputs, unready={**inputs.unready, **dict.fromkeys(booked, hold)})
    unconfirmed = _unconfirmed_nodes(book, inputs)
    if not unconfirmed:
        return inputs
    nodes = {
        name: replace(node, unschedulable=True) if name in unconfirmed else node
        for name, node in inputs.snapshot.nodes.items()
    }
    return replace(inputs, snapshot=replace(inputs.snapshot, nodes=nodes))


def _unconfirmed_nodes(book: Book, inputs: CycleInputs) -> set[NodeName]:
    """Return the nodes with a slot whose pod is not observed: it may exist, or be deleted."""
    pods = inputs.snapshot.pods
    return {
        seat.node
        for placement in book.placements.values()
        for uid, seat in placement.seats.items()
        if seat.node and uid not in pods and not names.is_expected(uid)
    }
