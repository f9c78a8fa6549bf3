"""The look at nodes that are not there: what held gangs need of them, and the grants with which queues ask for them.

Of gangs whose queues ask for no nodes it is only reported. `scheduling.capacity.node_needs` is what decides.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from admission.api.snapshot import Snapshot
from admission.api.values.names import GangUid
from admission.api.values.reasons import Hold
from admission.cycle.state.fences import FenceState
from admission.cycle.state.inputs import CycleInputs
from admission.cycle.state.ledger_mirror import LedgerMirror
from admission.cycle.state.scheduling_cache import SchedulingCache
from admission.cycle.state.status import StatusState
from admission.cycle.state.term import CycleSettings
from admission.cycle.steps.commit import GrantCommit
from admission.cycle.steps.schedule import Scheduling
from admission.quota.headroom import QueueUsage
from admission.scheduling import cycle
from admission.scheduling.capacity import node_needs, node_requests
from admission.scheduling.capacity.expected_nodes import ExpectedNodes
from admission.scheduling.capacity.node_needs import Assessment, Earlier
from admission.scheduling.checks import budget, faults
from admission.scheduling.checks.chain import Decision, Grant
from admission.scheduling.checks.faults import During
from admission.scheduling.preemption import nominations
from admission.scheduling.preemption.nominations import Nominations
from admission.status.node_shapes import ShapeStatus
from admission.status.nodes_needed import NodesNeededState
from admission.workloads.gangs import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNeedsCheck:
    """Finds out what held gangs need of nodes of the shapes."""

    settings: CycleSettings
    mirror: LedgerMirror
    fences: FenceState
    nominations: Nominations
    cache: SchedulingCache
    scheduling: Scheduling
    statuses: StatusState
    commit: GrantCommit
    expected_nodes: ExpectedNodes
    state: NodesNeededState
    shapes: ShapeStatus

    async def ask(self, inputs: CycleInputs, decided: Sequence[Decision]) -> Sequence[Decision]:
        """Commit the gangs that nodes are to be asked for, and let them in; return the decisions with theirs."""
        asked = self._askable(inputs, decided)
        balances = self.mirror.balances(inputs) if asked else None
        for one in asked.values():
            if balances is not None and isinstance(one.outcome, Grant):
                balances.charge(one.group.queue, one.outcome.plan.charge, budget.runtime_of(one.group))
        made = await self.commit.commit(inputs, [*asked.values()], balances) if asked else ()
        if any(not isinstance(one.outcome, Grant) for one in made):
            self.state.look_again()
        self.state.drop(one.group.uid for one in made)
        return [*(one for one in decided if one.group.uid not in asked), *made]

    def _askable(self, inputs: CycleInputs, decided: Sequence[Decision]) -> dict[GangUid, Decision]:
        """Return decisions with a grant for the gangs of which it was just found out what they need."""
        known = {**self.statuses.decisions, **{one.group.uid: one for one in decided}}
        found: dict[GangUid, Decision] = {}
        fresh = self.state.take_fresh()
        for uid, needed in fresh.items() if self.settings.node_needs.asks else ():
            queue = inputs.snapshot.queues.get(inputs.by_uid[uid].queue)
            if node_needs.asks_for_nodes(queue) and not needed.not_asked and needed.grant is not None:
                joins = inputs.by_uid[uid].started
                found[uid] = replace(
                    known[uid], outcome=node_requests.grant(needed, needed.grant, inputs.now, joins=joins)
                )
        return found

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
        basis = (*of_cluster, inputs.tree, inputs.meters, *self._closed(snapshot), *held.values())
        if not self.state.begin(held.keys(), basis, inputs.clock, bounds):
            return
        rules = self.scheduling.rules(inputs, self.mirror.balances(inputs))
        usage, nominated = self.cache.usage(book), self.nominations.by_gang.values()
        promised = [(one.group.queue, one.grant.plan.charge) for one in nominated]
        queue_usage = QueueUsage(inputs.tree, nominations.charged(usage, promised))
        for name, kept in self.cache.verdicts.kept_quota.items():
            queue_usage.keep(name, kept.charge)
        cluster = self.nominations.over(self.cache.predict_cluster(inputs, book, self.settings.steps), nominated)
        waiting = cycle.turns([*held.values()], partial(cycle.needed, rules=rules), rules, usage, queue_usage)
        asker = node_requests.Asker(snapshot=snapshot)
        expected = self.expected_nodes.find(snapshot, inputs.granted, inputs.groups)
        earlier = Earlier(expected.outstanding(snapshot.shapes), self.state.in_vain)
        find = partial(
            node_needs.assess, [*waiting], rules, cluster, queue_usage, bounds=bounds, earlier=earlier, asker=asker
        )
        found, in_vain = faults.guard(During.PLANNING, "", find, rules.workspace.defects) or Assessment()
        short = {uid: self.shapes.shortfall(needed.counts) for uid, needed in found.items()}
        needed = {uid: replace(one, shortfall=short[uid]) if short[uid] else one for uid, one in found.items()}
        self.state.keep(needed, in_vain)

    def _closed(self, snapshot: Snapshot) -> list[str]:
        """Return the drivers of shapes whose devices are behind a closed fence: the same strings while that is so."""
        drivers = dict.fromkeys(one.driver for shape in snapshot.shapes.values() for one in shape.slices)
        return [driver for driver in drivers if self.fences.protections.of_driver(driver).closed]

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
