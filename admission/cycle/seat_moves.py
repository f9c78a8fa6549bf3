"""The step that gives gangs places on the nodes that came for them, where a fence leaves the devices to Muster.

Which moves are possible is decided by `scheduling.capacity.seat_moves`, which does no I/O; here they are committed to
the books.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from admission.cycle.executor import BackgroundExecutor
from admission.cycle.state.fences import FenceState
from admission.cycle.state.inputs import CycleInputs
from admission.cycle.state.ledger_mirror import LedgerMirror
from admission.cycle.state.scheduling_cache import SchedulingCache
from admission.cycle.state.term import CycleSettings
from admission.cycle.steps.schedule import Scheduling
from admission.errors import LedgerUnavailableError
from admission.quota.headroom import QueueUsage
from admission.scheduling.capacity import seat_moves
from admission.scheduling.capacity.expected_nodes import ExpectedNodes
from admission.scheduling.capacity.seat_moves import SeatMove, Turns, Waiting
from admission.scheduling.preemption.nominations import Nominations


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatMoves:
    """Commits the moves of seats."""

    settings: CycleSettings
    executor: BackgroundExecutor
    mirror: LedgerMirror
    fences: FenceState
    nominations: Nominations
    cache: SchedulingCache
    scheduling: Scheduling
    expected_nodes: ExpectedNodes
    turns: Turns

    async def commit(self, inputs: CycleInputs) -> None:
        """Commit the moves that are possible now. Their claims are allocated with those of all granted gangs."""
        if not self.fences.protections.closed or self.mirror.is_down:
            self.turns.end()
            return
        granted = (group for group in inputs.granted if group.uid not in inputs.taken_back)
        gangs = seat_moves.waiting(granted, self.mirror.book, inputs.observed)
        if not gangs:
            self.turns.end()
            return
        at, actor = inputs.now, self.mirror.actor
        found = await self.executor.run(self._find, inputs, gangs)
        entries = [seat_moves.entry(move, self.mirror.book, at=at, actor=actor) for move in found]
        with contextlib.suppress(LedgerUnavailableError):
            await self.mirror.reserve([entry for entry in entries if entry is not None])

    def _find(self, inputs: CycleInputs, gangs: Sequence[Waiting]) -> list[SeatMove]:
        book, nominated = self.mirror.book, self.nominations.by_gang.values()
        # They are planned in every cycle, so with the steps with which a plan for nodes to come was found.
        steps = max(self.settings.steps // self.settings.node_needs.share, 1)
        rules = replace(self.scheduling.rules(inputs, None), steps=steps)
        cluster = self.nominations.over(self.cache.predict_cluster(inputs, book, self.settings.steps), nominated)
        come = self.expected_nodes.find(inputs.snapshot, inputs.granted, inputs.groups).come
        usage = QueueUsage(inputs.tree, self.cache.usage(book))
        return [*seat_moves.moves(gangs, rules, cluster, usage, come, self.turns)]
