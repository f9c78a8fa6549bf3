"""Which reservations bind a gang, by the order of the queues: who borrows never comes before who does not.

So the reservation of a gang that does not borrow binds those that do, also of a better rank: Kueue (2026), too,
reserves quota for a head within its nominal quota before it tries heads that borrow, whatever their priority.

It is the order of `quota.queue_order` without shares. Two queues are compared where their paths meet, by the two queues
below that: the one of the gang as it is used now, with the gang; that of a reservation as it is used when it begins,
with what is reserved. Otherwise, and within one queue, between roots, and with a queue above, rank decides.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from admission.api.muster.gangs import Charge
from admission.api.values.names import QueueName
from admission.dra.requests.gang_request import Shortfall
from admission.quota.headroom import QueueUsage
from admission.quota.queue_order import Order
from admission.scheduling.backfill.reservations import Reservation
from admission.scheduling.cache.plan_cache import PlanCache
from admission.scheduling.cache.queue_cache import Premise
from admission.scheduling.cache.verdict_cache import Verdict
from admission.scheduling.checks import preference, runtime
from admission.scheduling.checks.chain import Inputs
from admission.workloads.gangs import Group


def passes(queue: QueueName, charge: Charge, queue_usage: QueueUsage, one: Reservation) -> bool:
    """Return whether a gang of a queue is not bound by a reservation, as it does not borrow and that does."""
    return loan_order(queue, charge, queue_usage, one) < 0


def binding(
    made: Iterable[Reservation], group: Group, charge: Charge, queue_usage: QueueUsage, order: Order
) -> list[Reservation]:
    """Return those of the reservations that come before a gang: those of owners if it borrows, else by rank.

    charge: of the gang. queue_usage: when it starts.
    """
    own, found = order.rank(group), list[Reservation]()
    for one in made:
        by_loans = loan_order(group.queue, charge, queue_usage, one)
        if by_loans > 0 or (by_loans == 0 and order.rank(one.group) < own):
            found.append(one)
    return found


def is_behind_a_loan(
    made: Iterable[Reservation], group: Group, charge: Charge, queue_usage: QueueUsage, order: Order
) -> bool:
    """Return whether a gang and a reservation would both borrow from each other's queues, and the gang ranks lower."""
    own = order.rank(group)
    for one in made:
        branches = queue_usage.tree.branches(group.queue, one.group.queue)
        is_lower = branches is not None and branches[1] in one.loans and order.rank(one.group) < own
        if branches is not None and is_lower and queue_usage.borrows(branches[0], group.queue, charge):
            return True
    return False


def without_loans(inputs: Inputs, bound: Iterable[Reservation]) -> Inputs | None:
    """Return the inputs of a gang that keep its charge to what is not bound by reservations for borrowers.

    So an elastic gang, say, starts with the pods for which its queue need not borrow. None if no such ones bind it.
    """
    queue, usage = inputs.queue.name, inputs.queue_usage
    loans = [one for one in bound if passes(queue, {}, usage, one)]

    def allows(charge: Charge) -> Shortfall | None:
        is_free = all(passes(queue, charge, usage, one) for one in loans)
        return inputs.allows(charge) if is_free else preference.WouldBorrow(queue)

    workspace = replace(inputs.rules.workspace, plans=PlanCache())
    rules = replace(inputs.rules, workspace=workspace, mute=True)
    return replace(inputs, rules=rules, allows=allows, known=None) if loans else None


def behind_in_rank(bound: Iterable[Reservation], group: Group, order: Order) -> tuple[Reservation, ...]:
    """Return those of the reservations that bind a gang only since it borrows: it has the better rank."""
    own = order.rank(group)
    return tuple(one for one in bound if own < order.rank(one.group))


def still_bind(held: Verdict | Premise, queue: QueueName, queue_usage: QueueUsage, order: Order) -> bool:
    """Return whether the reservations that bound a gang of a queue would all come before it again."""
    for one in held.bound:
        by_loans = loan_order(queue, held.needed, queue_usage, one)
        if by_loans < 0 or (by_loans == 0 and one in held.bound_by_loan):
            return False
        if by_loans == 0 and isinstance(held, Verdict) and order.rank(held.group) < order.rank(one.group):
            return False
    return True


def may_bind(inputs: Inputs, charge: Charge, head: QueueName) -> bool:
    """Return whether a gang with this charge borrows where its queue and that of a head meet: then rank is not all."""
    branches = inputs.queue_usage.tree.branches(inputs.queue.name, head)
    return branches is not None and inputs.queue_usage.borrows(branches[0], inputs.queue.name, charge)


def require_proofs(made: Iterable[Reservation], new: Reservation) -> None:
    """Have those reservations proved again that come after a new one, though their gangs may rank higher."""
    for one in made:
        if passes(new.group.queue, new.plan.charge, new.queue_usage, one):
            one.is_proved = False


def loan_order(queue: QueueName, charge: Charge, queue_usage: QueueUsage, one: Reservation) -> int:
    """Return -1 if only the reservation borrows, 1 if only the gang does, 0 if rank decides.

    charge: of the gang, or a lower bound on it: then it may borrow though it seems not to.
    """
    branches = queue_usage.tree.branches(queue, one.group.queue)
    if branches is None:
        return 0
    own, other = branches
    return queue_usage.borrows(own, queue, charge) - (other in one.loans)


def reaches(end: datetime | None, reservation: Reservation) -> bool:
    """Return whether a gang that ends then, or nobody knows when, runs when a reservation begins."""
    return end is None or runtime.floor_to_second(end) > reservation.at
