"""Keeping Queues while they are in use: the finalizer that a leader puts on each, and takes away when nothing is open.

It comes before anything is granted, so that a queue that is deleted afterwards stays until its gangs have ended, also
under the next leader. One that cannot be kept is used nevertheless: `lifecycle.deleted_queues` says what that means.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta

from admission.api.kubernetes.meta import Meta
from admission.api.values.names import QueueName
from admission.cycle import events
from admission.cycle.bulk_writes import concurrently
from admission.cycle.state.leader import CycleInputs, LeaderState
from admission.errors import FixError, GoneError, RetryError
from admission.lifecycle import deleted_queues
from admission.lifecycle.deleted_queues import Refusal

Write = Callable[[Meta], Awaitable[None]]

ASK_AGAIN = timedelta(seconds=30)
"""After how long it is tried again to take a finalizer away that Muster was not allowed to."""


@dataclass(slots=True)
class _Failures:
    """Names of the queues that could not be written: those for which it may succeed later, and why others refuse."""

    later: set[str] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)


async def keep(desk: LeaderState, facts: CycleInputs) -> None:
    """Put the finalizer on queues that lack it. One that takes none is tried again when it has changed."""
    desk.kept = {name: version for name, version in desk.kept.items() if name in facts.snapshot.queues}
    unkept = {QueueName(meta.name): meta for meta in deleted_queues.unkept(facts.snapshot)}
    wanted = {name: meta for name, meta in unkept.items() if desk.kept.get(name) != meta.resource_version}
    failures = await _each(desk, desk.ports.queues.keep, wanted.values())
    desk.kept |= {name: meta.resource_version for name, meta in wanted.items() if name not in failures.later}


async def let_go(desk: LeaderState, facts: CycleInputs) -> None:
    """Take the finalizer from queues that are being deleted and have nothing open, as far as the ledger knows.

    That it is refused is told once, in an Event, and stands in the queue's condition as long as it is so.
    """
    if not desk.loaded or desk.away or desk.unposted:
        return
    unused = deleted_queues.unused(facts.snapshot, facts.tree.queues, desk.book.placements.values())
    names = {queue.name for queue in unused}
    desk.refused = {name: refusal for name, refusal in desk.refused.items() if name in names}
    due = [queue for queue in unused if _is_due(desk, queue, facts)]
    failures = await _each(desk, desk.ports.queues.let_go, due)
    for queue in due:
        before = desk.refused.pop(queue.name, None)
        if queue.name in failures.refused:
            refusal = desk.refused[queue.name] = Refusal(failures.refused[queue.name], facts.now + ASK_AGAIN)
            if before is None or before.why != refusal.why:
                await events.queues_kept(desk.ports.reports, queue, refusal.message)


def _is_due(desk: LeaderState, queue: Meta, facts: CycleInputs) -> bool:
    refusal = desk.refused.get(queue.name)
    return refusal is None or facts.now >= refusal.until


async def _each(desk: LeaderState, write: Write, queues: Iterable[Meta]) -> _Failures:
    """Write to every queue, `writes` at a time; return those for which it failed."""
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

    await concurrently(desk, queues, run)
    return failures
