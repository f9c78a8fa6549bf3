"""Members of one queue in whole cycles: whose gang goes first, by what the books say that its member uses."""

from typing import Any

import pytest

from admission.api.muster.gangs import Phase
from tests.builders import NOON, ClusterBuilder, a_cluster
from tests.unit.cycle.test_budgets import add
from tests.unit.cycle.test_cycle import Cluster, Ledger, a_leader, gang, run
from tests.unit.cycle.test_fair_share import MINUTE
from tests.unit.cycle.test_node_resources import a_meter

BY_NAMESPACE = {"within": {"by": "Namespace"}}


def a_queue(*, gpus: int = 2, **spec: Any) -> ClusterBuilder:
    return a_cluster().node("a", gpus=gpus).queue("q", gpus=gpus, fairSharing=BY_NAMESPACE, **spec)


async def test_a_namespace_with_many_gangs_does_not_keep_another_waiting() -> None:
    builder = a_queue()
    for number in (1, 2, 3):
        builder.job(f"m{number}", queue="q", namespace="many")
    cluster = Cluster(builder.job("f1", queue="q", namespace="few"))

    result = await run(a_leader(cluster, Ledger()))

    assert [name for name, _ in cluster.opened] == ["m1-0", "f1-0"]
    assert (gang(result, "m2").position, gang(result, "m3").position) == (3, 4)


@pytest.mark.parametrize("strategy", ["BestEffortFIFO", "StrictFIFO"])
@pytest.mark.parametrize(("weight", "opened"), [("2", "m1 f1 m2"), ("0.5", "m1 f1 f2")])
async def test_members_take_turns_by_what_plans_are_charged_where_nothing_is_certain_before(
    strategy: str, weight: str, opened: str
) -> None:
    within = {"within": {"by": "Namespace", "weights": [{"name": "many", "weight": weight}]}}
    quotas = [{"meter": "credits", "nominal": "12"}]
    builder = a_cluster().node("a", gpus=8).queue("q", quotas=quotas, fairSharing=within, queueingStrategy=strategy)
    builder._meters[:] = [a_meter(price="4")]
    for name, namespace in (("m1", "many"), ("m2", "many"), ("m3", "many"), ("f1", "few"), ("f2", "few")):
        builder.job(name, queue="q", namespace=namespace)
    cluster = Cluster(builder)

    await run(a_leader(cluster, Ledger()))

    assert [name.removesuffix("-0") for name, _ in cluster.opened] == opened.split()


@pytest.mark.parametrize("strategy", ["BestEffortFIFO", "StrictFIFO"])
async def test_the_namespace_that_uses_least_goes_first_also_under_the_next_leader(strategy: str) -> None:
    builder = a_queue(gpus=4, queueingStrategy=strategy).job("m1", queue="q", gpus=2, namespace="many")
    cluster, ledger = Cluster(builder.job("f1", queue="q", gpus=1, namespace="few")), Ledger()
    leader = a_leader(cluster, ledger)
    await run(leader)
    cluster.schedule(leader.mirror.book)
    await run(leader, NOON + MINUTE)
    add(cluster, a_cluster().job("m2", queue="q", namespace="many").job("f2", queue="q", namespace="few"))
    opened = len(cluster.opened)

    result = await run(a_leader(cluster, ledger), NOON + 2 * MINUTE)

    assert [name for name, _ in cluster.opened[opened:]] == ["f2-0"]
    assert gang(result, "m2").position == 2


async def test_what_is_reserved_for_is_the_gang_of_the_member_that_uses_least() -> None:
    """The older gang of the other member is no head, so it passes only if it does not delay the first."""
    builder = a_queue(maxRuntime="2h").job("m1", queue="q", namespace="many")
    cluster, ledger = Cluster(builder), Ledger()
    leader = a_leader(cluster, ledger)
    await run(leader)
    cluster.schedule(leader.mirror.book)
    add(cluster, a_cluster().job("m2", queue="q", gpus=2, namespace="many"))
    await run(leader, NOON + MINUTE)
    assert "m2" in {uid.removeprefix("job-") for uid in leader.backfill.estimates}
    add(cluster, a_cluster().job("f1", queue="q", gpus=2, namespace="few"))

    result = await run(leader, NOON + 2 * MINUTE)

    assert {uid.removeprefix("job-") for uid in leader.backfill.estimates} == {"f1"}
    assert (gang(result, "f1").position, gang(result, "f1").phase) == (1, Phase.PENDING)


async def test_a_gang_that_ended_no_longer_counts_for_its_member() -> None:
    builder = a_queue(gpus=1).job("m1", queue="q", namespace="many")
    cluster, ledger = Cluster(builder), Ledger()
    leader = a_leader(cluster, ledger)
    await run(leader)
    started = cluster.schedule(leader.mirror.book)
    add(cluster, a_cluster().job("m2", queue="q", namespace="many").job("f1", queue="q", namespace="few"))
    result = await run(leader, NOON + MINUTE)
    assert (gang(result, "f1").position, gang(result, "m2").position) == (1, 2)
    cluster.finish(started)

    await run(leader, NOON + 2 * MINUTE)
    await run(leader, NOON + 3 * MINUTE)

    assert cluster.opened[-1][0] == "m2-0", "it has waited longer, and neither namespace uses anything"
