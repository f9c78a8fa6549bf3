"""A queue that is deleted, or cannot be read any more, while its gangs run: nobody may take what they have."""

from dataclasses import replace
from datetime import timedelta

import pytest

from admission.api.values.names import QueueName
from admission.api.values.reasons import Hold, HoldReason
from admission.errors import MalformedObjectError, Problem
from tests.builders import NOON, ClusterBuilder, a_cluster
from tests.unit.cycle.test_cycle import GPUS, Cluster, Ledger, a_leader, gang, run

HOUR = timedelta(hours=1)
X = QueueName("x")


def a_lab(budget: str = "1000") -> ClusterBuilder:
    budgets = [{"meter": "gpus", "hours": budget, "period": "Day"}]
    builder = a_cluster().node("a", gpus=8).queue("lab", gpus=4, budgets=budgets)
    return builder.queue("x", gpus=0, parent="lab").queue("y", gpus=0, parent="lab")


def drop(cluster: Cluster, name: QueueName, *, unread: bool = False) -> None:
    rest = cluster._rest
    queues = {known: queue for known, queue in rest.queues.items() if known != name}
    error = MalformedObjectError("Queue", name, (Problem("spec.quotas[0].nominal", "'-1' is negative"),))
    cluster._rest = replace(rest, queues=queues, malformed={("Queue", name): error} if unread else {})


@pytest.mark.parametrize("unread", [False, True], ids=["deleted", "cannot be read"])
async def test_quota_borrowed_by_gangs_of_a_lost_queue_stays_taken_until_the_gangs_end(*, unread: bool) -> None:
    cluster = Cluster(a_lab().job("one", queue="x", pods=4).job("two", queue="y", pods=4))
    leader = a_leader(cluster, Ledger())
    await run(leader)
    started = cluster.schedule(leader.mirror.book)
    await run(leader, NOON + HOUR)
    drop(cluster, X, unread=unread)

    hold = gang(await run(leader, NOON + 2 * HOUR), "two").hold
    assert isinstance(hold, Hold)
    assert (hold.reason, hold.details["left"]) == (HoldReason.QUOTA_EXCEEDED, "0")

    cluster.finish(started)
    assert len((await run(leader, NOON + 3 * HOUR)).granted) == 1


async def test_the_budget_use_of_a_lost_queue_stays_spent_at_its_parent() -> None:
    cluster = Cluster(a_lab("10").job("one", queue="x", pods=4))
    leader = a_leader(cluster, Ledger())
    await run(leader)
    started = cluster.schedule(leader.mirror.book)
    await run(leader, NOON)
    cluster.finish(started)
    await run(leader, NOON + 2 * HOUR)
    drop(cluster, X)

    result = await run(leader, NOON + 3 * HOUR)

    (lab,) = [report for report in result.queues if report.name == "lab"]
    assert [budget.spent for budget in lab.budgets] == [4 * 2 * 3600]
    assert {report.name for report in result.queues} == {"lab", "y"}


async def test_children_of_a_deleted_queue_have_the_condition_that_their_parent_is_missing() -> None:
    cluster = Cluster(a_lab())
    leader = a_leader(cluster, Ledger())
    await run(leader)
    drop(cluster, QueueName("lab"))

    result = await run(leader, NOON + HOUR)

    assert {report.conditions[0].reason for report in result.queues} == {"ParentMissing"}


async def test_the_quota_of_a_deleted_queue_is_gone_until_the_queue_is_created_again() -> None:
    builder = a_cluster().node("a", gpus=8).queue("lab", gpus=0).queue("x", gpus=4, parent="lab")
    cluster = Cluster(builder.queue("y", gpus=0, parent="lab").job("two", queue="y", pods=4))
    cluster._pods, pods = {}, cluster._pods
    before = cluster._rest
    leader = a_leader(cluster, ledger := Ledger())
    await run(leader)
    drop(cluster, X)
    cluster._pods = pods

    assert gang(await run(leader, NOON + HOUR), "two").hold is not None
    assert ledger.book.nominal(X, GPUS) == 0
    cluster._rest = before
    assert len((await run(leader, NOON + 2 * HOUR)).granted) == 1
    assert ledger.book.nominal(X, GPUS) == 4
