"""What a new leader leaves alone in its first cycle, before its view is known to show all that the one before it saw.

That reads which versions of all pods and claims there are, which takes seconds in a large cluster. Until then a gang is
let in only where nothing that may be missing in the view speaks of it: it is not in the books, and its pods go to nodes
of which every pod is seen that was granted a place there. `protection` lets no protection of devices count so long.
"""

from dataclasses import replace

from admission.api.values import names
from admission.api.values.names import NodeName
from admission.api.values.reasons import Hold, HoldReason
from admission.cycle.state.leader import CycleInputs, LeaderState

LOOKING = "a new leader first makes sure that it sees all that the one before it saw"


def without_unconfirmed(desk: LeaderState, facts: CycleInputs) -> CycleInputs:
    """Return the facts without what may be otherwise; the same once the view has caught up."""
    if desk.caught_up:
        return facts
    hold = Hold(HoldReason.WAITING_FOR_CLAIMS, LOOKING)
    booked = (group.uid for group in facts.groups if group.waiting and group.placement is not None)
    facts = replace(facts, unready={**facts.unready, **dict.fromkeys(booked, hold)})
    doubtful = _doubtful(desk, facts)
    if not doubtful:
        return facts
    nodes = {
        name: replace(node, unschedulable=True) if name in doubtful else node
        for name, node in facts.snapshot.nodes.items()
    }
    return replace(facts, snapshot=replace(facts.snapshot, nodes=nodes))


def _doubtful(desk: LeaderState, facts: CycleInputs) -> set[NodeName]:
    """Return the nodes on which a pod was granted a place that is not seen: it may be there, or be gone."""
    pods = facts.snapshot.pods
    return {
        seat.node
        for placement in desk.book.placements.values()
        for uid, seat in placement.seats.items()
        if seat.node and uid not in pods and not names.is_expected(uid)
    }
