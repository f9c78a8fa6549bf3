"""The budget check of a gang: what it draws from the budgets of its queues, and the shortage that holds it.

A gang draws for its declared run time: `spec.runtime` of a Gang that a user wrote, else the longest
`muster.dev/runtime` of its pods.
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta

from admission.api.kubernetes.pods import Pod
from admission.api.muster.gangs import Charge
from admission.api.muster.status_reports import BudgetUse
from admission.api.values import durations, names
from admission.api.values.names import GangUid, MeterName, QueueName
from admission.api.values.reasons import Hold, HoldReason
from admission.errors import Share
from admission.quota.budgets import Balance, Balances, BudgetShortage
from admission.quota.tree import Tree
from admission.workloads.gangs import Group
from admission.workloads.kinds import labels


def runtime_of(group: Group) -> timedelta | None:
    """Return the declared run time of a gang; None if it declares none."""
    record = group.record
    if record is not None and record.written_by_user and record.runtime is not None:
        return record.runtime
    return max((stated for pod in group.pods if (stated := _stated(pod)) is not None), default=None)


def runtimes(groups: Iterable[Group]) -> dict[GangUid, timedelta]:
    """Return the run times of the gangs that declare one."""
    return {group.uid: stated for group in groups if (stated := runtime_of(group)) is not None}


def may_run_out(tree: Tree, queue: QueueName) -> bool:
    """Return whether a queue, or one above it, has a budget."""
    return any(tree.queues[name].budgets for name in tree.path(queue) if name in tree.queues)


def shortage(balances: Balances | None, group: Group, charge: Charge) -> BudgetShortage | None:
    """Return the shortage of a budget that cannot pay for a gang's run time. balances: None if they are unknown."""
    return None if balances is None else balances.shortage(group.queue, charge, runtime_of(group))


def warnings(balances: Balances | None, group: Group, charge: Charge) -> tuple[str, ...]:
    """Return the messages of a gang's shortages in budgets that only warn."""
    found = balances.warnings(group.queue, charge, runtime_of(group)) if balances is not None else ()
    return tuple(one.message for one in found)


def hold(shortage: BudgetShortage) -> Hold:
    """Return the hold of a gang that a budget cannot pay for."""
    return Hold(HoldReason.BUDGET_EXHAUSTED, shortage.message, shortage.details)


def is_same_hold(before: object, now: object) -> bool:
    """Return whether two outcomes are holds by the same budget, which differ at most in numbers."""
    holds = [one for one in (before, now) if isinstance(one, Hold) and one.reason is HoldReason.BUDGET_EXHAUSTED]
    return len(holds) == len((before, now)) and len({_budget_in(hold) for hold in holds}) == 1


def _budget_in(hold: Hold) -> tuple[str, ...]:
    return tuple(str(hold.details.get(name)) for name in ("queue", "meter", "hours", "start", "end"))


def draws_on(tree: Tree, share: Share, queue: QueueName, charge: Charge) -> bool:
    """Return whether a shared budget pays for a gang of a queue."""
    return bool(charge.get(MeterName(share.meter))) and share.queue in tree.path(queue)


def uses(tree: Tree, balances: Balances) -> Mapping[QueueName, tuple[BudgetUse, ...]]:
    """Return the use of budgets for the status of their queues, without windows that are not open."""
    return {name: tuple(map(_use, balances.of_queue(name))) for name, queue in tree.queues.items() if queue.budgets}


def _use(balance: Balance) -> BudgetUse:
    budget = balance.budget
    return BudgetUse(
        meter=budget.meter,
        limit=budget.seconds,
        spent=balance.spent,
        promised=balance.committed,
        elsewhere=balance.elsewhere,
        period=budget.period or "",
        start=balance.span.start,
        end=balance.span.end,
        scope=budget.scope,
        on_exhausted=budget.on_exhausted,
    )


def _stated(pod: Pod) -> timedelta | None:
    """Return `muster.dev/runtime`; None if it is absent or no duration, which the webhook refuses."""
    text = labels.setting(pod, names.RUNTIME)
    try:
        return durations.parse_positive(text) if text else None
    except ValueError:
        return None
