"""The step that keeps autoscalers from taking away nodes on which gangs are being placed, and lets them again."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

from admission.api.kubernetes.nodes import Node
from admission.cycle.bulk_writes import BulkWriter
from admission.cycle.state.in_flight import ScaleDownState
from admission.cycle.state.inputs import CycleInputs
from admission.errors import FixError, GoneError, RetryError
from admission.ports import Nodes
from admission.scheduling.capacity import scale_down
from admission.scheduling.preemption.nominations import Nominations

REFUSED_FOR = timedelta(minutes=5)
"""How long nothing is tried after the API server has refused a write, as without the permission."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleDown:
    """Writes the annotations. Where that fails, nodes may be taken away, and the gangs there are taken back in time."""

    nodes: Nodes
    nominations: Nominations
    writer: BulkWriter
    state: ScaleDownState

    async def update(self, inputs: CycleInputs) -> None:
        """Put the annotations on nodes that have to stay, and remove them from others. Failures are tried again."""
        snapshot, state = inputs.snapshot, self.state
        state.marked.update(snapshot.nodes)
        marked = state.marked.values
        if not (snapshot.shapes or marked) or (state.refused_until is not None and inputs.clock < state.refused_until):
            return
        nominated = self.nominations.by_gang.values()
        planned = {pod.node for one in nominated for pod in one.grant.plan.pods}
        needed = scale_down.needed(inputs.granted, planned, snapshot)
        changes = scale_down.changes(needed, marked, snapshot)
        state.refused_until = None
        if changes.any:
            await self._each(inputs, self.nodes.keep, changes.keep)
            await self._each(inputs, self.nodes.release, changes.release)

    async def _each(
        self, inputs: CycleInputs, write: Callable[[Node], Awaitable[None]], nodes: tuple[Node, ...]
    ) -> None:
        async def run(node: Node) -> None:
            try:
                await write(node)
            except (GoneError, RetryError):
                return  # the next cycle sees what is left to do
            except FixError:
                self.state.refused_until = inputs.clock + REFUSED_FOR

        await self.writer.each(nodes, run)
