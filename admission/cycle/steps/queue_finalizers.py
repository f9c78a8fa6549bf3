"""The finalizer of Queues in use: a leader adds it to each queue, and removes it when nothing is open in the ledger.

It is added before anything is granted, so that a queue that is deleted afterwards exists until its gangs have ended,
also under the next leader. A queue that cannot get it is used nevertheless: see `lifecycle.deleted_queues`.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from admission.api.kubernetes.meta import Meta
from admission.cycle import events
from admission.cycle.bulk_writes import BulkWriter
from admission.cycle.state.inputs import CycleInputs
from admission.cycle.state.ledger_mirror import LedgerMirror
from admission.cycle.state.queues import QueueRegistry
from admission.errors import FixError, GoneError, RetryError
from admission.lifecycle import deleted_queues
from admission.ports import Queues, Reports

Write = Callable[[Meta], Awaitable[None]]


@dataclass(slots=True)
class _Failures:
    """The queues that could not be written: names of those to retry, and by name why others were refused."""

    later: set[str] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFinalizers:
    """Adds and removes the finalizer."""

    port: Queues
    reports: Reports
    mirror: LedgerMirror
    queues: QueueRegistry
    writer: BulkWriter

    async def add(self, inputs: CycleInputs) -> None:
        """Add the finalizer to queues that lack it. After a refusal a queue is tried again only when it has changed."""
        missing = self.queues.without_finalizer(inputs.snapshot)
        failures = await self._each(self.port.keep, missing.values())
        self.queues.note_finalizers(missing, failed=failures.later)

    async def remove(self, inputs: CycleInputs) -> None:
        """Remove the finalizer from queues that are being deleted and have nothing open in the ledger.

        A refusal is emitted once as an Event, and is in the queue's condition while it stands.
        """
        if not self.mirror.is_current:
            return
        placements = self.mirror.book.placements.values()
        unused = deleted_queues.removable(inputs.snapshot, inputs.tree.queues, placements)
        due = self.queues.removable(unused, inputs.now)
        failures = await self._each(self.port.release, due)
        for queue in due:
            refusal = self.queues.note_removal(queue, failures.refused.get(queue.name), inputs.now)
            if refusal is not None:
                await events.queues_kept(self.reports, queue, refusal.message)

    async def _each(self, write: Write, queues: Iterable[Meta]) -> _Failures:
        """Write every queue; return the failures."""
        failures = _Failures()

        async def run(queue: Meta) -> None:
            try:
                await write(queue)
            except RetryError:
                failures.later.add(queue.name)
            except GoneError:
                return
            except FixError as error:
                failures.refused[queue.name] = str(error)

        await self.writer.each(queues, run)
        return failures
