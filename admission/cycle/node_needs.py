"""The look at nodes that are not there: what held gangs would need of them. It changes no decision."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import partial

from admission.api.values.names import GangUid
from admission.api.values.reasons import Hold
from admission.cycle.state import scheduling_cache
from admission.cycle.state.inputs import CycleInputs
from admission.cycle.state.ledger_mirror import LedgerMirror
from admission.cycle.state.scheduling_cache import SchedulingCache
from admission.cycle.state.status import StatusState
from admission.cycle.state.term import CycleSettings
from admission.cycle.steps.schedule import Scheduling
from admission.quota.headroom import QueueUsage
from admission.scheduling.capacity import node_needs
from admission.scheduling.checks import faults
from admission.scheduling.checks.chain import Decision, Grant
from admission.scheduling.checks.faults import During
from admission.scheduling.preemption.nominations import Nominations
from admission.status.nodes_needed import NodesNeededState
from admission.workloads.gangs import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNeedsCheck:
    """Finds out what held gangs need of nodes of the shapes."""

    settings: CycleSettings
    mirror: LedgerMirror
    nominations: Nominations
    cache: SchedulingCache
    scheduling: Scheduling
    statuses: StatusState
    state: NodesNeededState

    def examine(self, inputs: CycleInputs, decided: Collection[Decision]) -> None:
        """Find out what gangs need that are held for want of devices. decided: the decisions of this cycle."""
        snapshot, bounds = inputs.snapshot, self.settings.node_needs
        if not snapshot.shapes:
            self.state.keep({})
            return
        if not bounds.pace and any(isinstance(one.outcome, Grant) for one in decided):
            return
        held = self._held(inputs, {**self.statuses.decisions, **{one.group.uid: one for one in decided}}.values())
        book = self.mirror.book
        of_cluster = (snapshot.shapes, self.cache.cluster, book.placements, inputs.profile)
        basis = (*of_cluster, inputs.tree, inputs.meters, *held.values())
        if not self.state.begin(held.keys(), basis, inputs.clock, bounds):
            return
        cluster = self.cache.predict_cluster(inputs, book, self.settings.steps)
        rules = self.scheduling.rules(inputs, self.mirror.balances(inputs))
        usage = QueueUsage(inputs.tree, scheduling_cache.usage(book))
        find = partial(node_needs.assess, held.values(), rules, cluster, usage, bounds)
        self.state.keep(faults.guard(During.PLANNING, "", find, rules.workspace.defects) or {})

    def _held(self, inputs: CycleInputs, decided: Iterable[Decision]) -> dict[GangUid, Group]:
        """Return the gangs that more nodes may help; those for which others are being evicted need none."""
        return {
            decision.group.uid: group
            for decision in decided
            if isinstance(decision.outcome, Hold)
            and decision.outcome.reason in node_needs.HELPED
            and decision.group.uid not in self.nominations.by_gang
            and (group := inputs.by_uid.get(decision.group.uid)) is not None
        }
