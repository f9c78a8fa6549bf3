"""The law that no borrower takes in a cycle what an owner within its quota could have started with in the same one.

Two queues are compared where their paths meet, as their order is, and of each queue the first gang counts, by which it
has its turn. The law is asked of jobs of which is known what they need at most to start with the fewest pods, in worlds
whose quotas count no kinds of devices.

A branch competes with those beside it by one gang, that which comes first in it. Where that one makes the branch a
borrower, an owner behind it in the branch may come after a borrower of another one. So it is in Kueue with fair sharing
(`runTournament`: each cohort nominates one workload, and is judged with it), and the law is not asked there. Nor is it
asked without fair sharing of an owner whose own queue borrows inside its branch, as that may be behind one that makes
the branch borrow, too: to rank both by how far up they borrow, as Kueue's classical order does, all places in a branch
would have to be found anew with each grant in it (docs/tasks/kueue.md, `parentName`). Who stays within the quota of its
own queue is no borrower on any level without fair sharing, and always first: of it the law is always asked.

Besides, an owner within its quota is never held for what another queue keeps for a gang of its own (`kept_out`).
"""

from collections import Counter
from typing import Any

from admission.api.values import names
from admission.api.values.names import GangUid, MeterName, QueueName
from admission.api.values.reasons import Hold, HoldReason
from admission.quota.fair_share import Rules
from admission.quota.headroom import QueueUsage
from admission.quota.tree import Tree
from tests.unit.cycle.jobs import Play

Usage = dict[QueueName, dict[MeterName, int]]


def used(play: Play) -> Usage:
    book = play.ledger.book.usage()
    return {queue: {meter: one.reserved + one.used for meter, one in found.items()} for queue, found in book.items()}


def passed(play: Play, queues: dict[str, str], before: Usage, running: set[str], dearest: int) -> list[str]:
    """Return whom a borrower has passed in the last cycle. queues: by job. dearest: the price of a device.

    before, running: what was used before the cycle, and which jobs ran, or had others evicted for them: these have the
    quota for which they were planned before all others, and may start in the stead of victims that take their time.
    """
    cluster, after, found = play.cluster, used(play), list[str]()
    tree = Tree.build(cluster._rest.queues.values())
    started = [name for name in cluster.running() - running if name in queues and name in cluster.made]
    first = {queue: (name, hold) for queue, (name, hold) in _first(play).items() if name in cluster.made}
    held = [name for name, hold in first.values() if name in queues and hold.reason is HoldReason.QUOTA_EXCEEDED]
    for name, owner in ((name, owner) for name in started for owner in held):
        branches = tree.branches(QueueName(queues[owner]), QueueName(queues[name]))
        need = _most(cluster.made[owner], dearest)
        if branches is None or need is None:
            continue
        other, own = QueueName(queues[name]), QueueName(queues[owner])
        loan = {meter: now - before.get(other, {}).get(meter, 0) for meter, now in after.get(other, {}).items()}
        now, without = QueueUsage(tree, after), _without(tree, after, other, loan)
        is_lent = any(now.borrowed(branches[1], meter) for meter, amount in loan.items() if amount > 0)
        is_robbed = without.fits(own, need) and not now.fits(own, need)
        turns = [(queue, _most(cluster.made[one], dearest)) for queue, (one, _) in first.items()]
        may_borrow = any(
            most is None or without.borrows(branches[0], queue, most)
            for queue, most in turns
            if branches[0] in tree.path(queue)
        )
        may_borrow = may_borrow and not _is_always_first(without, own, branches[0], need)
        if is_lent and is_robbed and not may_borrow and _has_room(play, owner, name):
            found.append(f"{owner} of {own}, which needs {need}, has been passed by {name} of {other}")
    return found


def _is_always_first(usage: QueueUsage, own: QueueName, branch: QueueName, need: dict[MeterName, int]) -> bool:
    """Return whether a queue stays within its own quota, and no shares matter above it, up to the branch."""
    path, weights = usage.tree.path(own), Rules.from_tree(usage.tree).weights
    return not usage.borrows(own, own, need) and not any(one in weights for one in path[1 : path.index(branch) + 1])


def _first(play: Play) -> dict[QueueName, tuple[str, Hold]]:
    """Return the job and hold of the first gang that waits of each queue, by which this has its turn."""
    first: dict[QueueName, tuple[int, GangUid, Hold]] = {}
    for one in play.leader.statuses.decisions.values():
        if isinstance(one.outcome, Hold) and one.group.waiting and not one.group.started:
            known, found = first.get(one.group.queue), (one.position, one.group.uid, one.outcome)
            first[one.group.queue] = found if known is None else min(known, found, key=lambda two: two[:2])
    return {queue: (play.name(uid), hold) for queue, (_, uid, hold) in first.items()}


def kept_out(play: Play, before: Usage) -> list[str]:
    """Return who is held for what queues keep for gangs of theirs, though it would not borrow where it meets them.

    It would borrow if its queue and all queues above it, up to where the paths meet, do so in the usage before the
    cycle or after it. Not to be asked while gangs have others evicted for them: they count, too, in the end.
    """
    after, tree = used(play), Tree.build(play.cluster._rest.queues.values())
    states = [QueueUsage(tree, before), QueueUsage(tree, after)]
    found = list[str]()
    for one in play.leader.statuses.decisions.values():
        hold = one.outcome
        if not isinstance(hold, Hold) or not {"keptBy", "meter"} <= hold.details.keys():
            continue
        own, meter = one.group.queue, MeterName(str(hold.details["meter"]))
        charge = {meter: int(str(hold.details["needed"]))}
        found += [
            f"{play.name(one.group.uid)} of {own}, which needs {charge}, is kept out by {keeper}"
            for keeper in _names(hold.details["keptBy"])
            if not any(_borrows_beside(state, own, QueueName(keeper), charge) for state in states)
        ]
    return found


def _names(value: object) -> list[str]:
    assert isinstance(value, list)
    return [*map(str, value)]


def _borrows_beside(state: QueueUsage, own: QueueName, keeper: QueueName, charge: dict[MeterName, int]) -> bool:
    """Return whether all queues on a path borrow for a charge, up to where it meets that of a keeper."""
    above = {*state.tree.path(keeper)}
    below = [queue for queue in state.tree.path(own) if queue not in above]
    nominal = {meter: quota.nominal for meter, quota in state.tree.quotas[own].items()}
    is_own = all(state.own(own, meter) + needed <= nominal.get(meter, 0) for meter, needed in charge.items())
    return not is_own and all(state.borrows(queue, own, charge) for queue in below)


def _most(job: dict[str, Any], dearest: int) -> dict[MeterName, int] | None:
    """Return the most that a job may be charged when it starts with what is enough for it."""
    pods = int(job.get("annotations", {}).get(names.GANG_MIN, job["pods"]))
    gpus = job["gpus"] if isinstance(job["gpus"], int) else min(job["gpus"])
    amounts = {"claims": pods, "gpus": pods * gpus, "credits": pods * (1 + gpus * dearest) if dearest else 0}
    return {MeterName(meter): amount for meter, amount in amounts.items() if amount}


def _without(tree: Tree, usage: Usage, queue: QueueName, charge: dict[MeterName, int]) -> QueueUsage:
    left = {meter: amount - charge.get(meter, 0) for meter, amount in usage[queue].items()}
    return QueueUsage(tree, {**usage, queue: left})


def _has_room(play: Play, owner: str, other: str) -> bool:
    """Return whether all devices that the owner needs would be free on one node without the other job."""
    job, cluster = play.cluster.made[owner], play.cluster
    taken = Counter[str]()
    for claim, devices in cluster.devices().items():
        if claim.split("-")[0] != other:
            taken.update(device.split("/")[0] for device in devices)
    need = (_most(job, 0) or {}).get(MeterName("gpus"), 0)
    sizes = Counter(one.pool for one in cluster._rest.slices.values() for _ in one.devices)
    return job.get("cpu", "1") == "1" and any(sizes[pool] - taken[pool] >= need for pool in sizes)
