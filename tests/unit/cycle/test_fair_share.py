"""Fair shares in whole cycles: who has used little goes first, by what the books say of the time before."""

from datetime import datetime, timedelta

from admission.api.muster.ledger_entries import Kind, UsageInterval
from tests.builders import NOON, ClusterBuilder, a_cluster
from tests.unit.cycle.test_budgets import add
from tests.unit.cycle.test_cycle import Cluster, Ledger, a_leader, gang, run

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
FAIR = {"weight": "1", "halfLife": "24h"}


def a_town(*, gpus: int = 2) -> ClusterBuilder:
    builder = a_cluster().node("a", gpus=gpus).queue("top", gpus=gpus)
    return builder.queue("p", gpus=0, parent="top", fairSharing=FAIR).queue("q", gpus=0, parent="top")


async def test_a_grant_raises_the_fair_share_for_the_next_gang_of_the_cycle() -> None:
    builder = a_town().job("p1", queue="p").job("p2", queue="p").job("q1", queue="q")
    cluster = Cluster(builder)

    result = await run(a_leader(cluster, Ledger()))

    assert [name for name, _ in cluster.opened] == ["p1-0", "q1-0"]
    assert gang(result, "p2").position == 2


async def test_owners_are_let_in_before_an_older_gang_that_would_borrow() -> None:
    builder = a_cluster().node("a", gpus=2).queue("top", gpus=0).queue("p", gpus=2, parent="top")
    builder.queue("q", gpus=0, parent="top").job("q1", queue="q").job("p1", queue="p").job("p2", queue="p")
    cluster = Cluster(builder)

    await run(a_leader(cluster, Ledger()))

    assert [name for name, _ in cluster.opened] == ["p1-0", "p2-0"]


async def test_the_queue_with_more_past_usage_goes_last_also_under_the_next_leader() -> None:
    builder = a_town(gpus=1).job("long", queue="p")
    cluster, ledger = Cluster(builder), Ledger()
    leader = a_leader(cluster, ledger)
    await run(leader)
    started = cluster.schedule(leader.mirror.book)
    for minutes in (1, 61, 121):
        await run(leader, NOON + minutes * MINUTE)
    cluster.finish(started)
    await run(leader, NOON + 122 * MINUTE)
    add(cluster, a_cluster().job("p1", queue="p").job("q1", queue="q"))
    opened = len(cluster.opened)

    await run(a_leader(cluster, ledger), NOON + 123 * MINUTE)

    assert [name for name, _ in cluster.opened[opened:]] == ["q1-0"]


async def test_a_leader_keeps_its_usage_history_in_step_with_its_marks_without_reading_again() -> None:
    asked = []

    class Asked(Ledger):
        async def usage(self, since: datetime) -> list[UsageInterval]:
            asked.append(since)
            return await super().usage(since)

    cluster, ledger = Cluster(a_town(gpus=1).job("long", queue="p")), Asked()
    leader = a_leader(cluster, ledger)
    for minutes in (0, 1, 61, 121, 181):
        await run(leader, NOON + minutes * MINUTE)
        cluster.schedule(leader.mirror.book)

    fresh = a_leader(cluster, ledger)
    await run(fresh, NOON + 182 * MINUTE)
    assert [entry.kind for entry in ledger.entries].count(Kind.USAGE) == 3
    assert len(asked) == 3, "once at the start, once after the first mark, and once by the other leader"
    assert leader.mirror._usage._past is not None
    assert fresh.mirror._usage._past is not None
    assert {key: round(use, 9) for key, use in leader.mirror._usage._past.use.items()} == {
        key: round(use, 9) for key, use in fresh.mirror._usage._past.use.items()
    }
