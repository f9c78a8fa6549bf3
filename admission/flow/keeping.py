"""Keeping Queues while they are in use: the finalizer that a leader puts on each, and takes away when nothing is open.

It comes before anything is granted, so that a queue that is deleted afterwards stays until its gangs have ended, also
under the next leader. One that cannot be kept is used nevertheless: `policy.lingering` says what that means.
"""

from collections.abc import Awaitable, Callable, Iterable

from admission.api.meta import Meta
from admission.api.names import QueueName
from admission.errors import GoneError, MendError, RetryError
from admission.flow.desks import Desk, Facts
from admission.flow.writing import several
from admission.policy import lingering

Write = Callable[[Meta], Awaitable[None]]


async def keep(desk: Desk, facts: Facts) -> None:
    """Put the finalizer on queues that lack it. One that takes none is tried again when it has changed."""
    desk.kept = {name: version for name, version in desk.kept.items() if name in facts.snapshot.queues}
    unkept = {QueueName(meta.name): meta for meta in lingering.unkept(facts.snapshot)}
    wanted = {name: meta for name, meta in unkept.items() if desk.kept.get(name) != meta.resource_version}
    again = await _each(desk, desk.ports.queues.keep, wanted.values())
    desk.kept |= {name: meta.resource_version for name, meta in wanted.items() if name not in again}


async def let_go(desk: Desk, facts: Facts) -> None:
    """Take the finalizer from queues that are being deleted and have nothing open, as far as the ledger knows."""
    if not desk.loaded or desk.away or desk.unposted:
        return
    placements = desk.book.placements.values()
    await _each(desk, desk.ports.queues.let_go, lingering.unused(facts.snapshot, facts.tree.queues, placements))


async def _each(desk: Desk, write: Write, queues: Iterable[Meta]) -> set[str]:
    """Write to every queue, `writes` at a time; return the names of those for which it may succeed later."""
    failed: set[str] = set()

    async def run(queue: Meta) -> None:
        try:
            await write(queue)
        except RetryError:
            failed.add(queue.name)
        except (GoneError, MendError):
            return

    await several(desk, queues, run)
    return failed
