"""The database is really stopped while gangs run: what happens is booked with the time at which it was seen."""

from datetime import timedelta

from admission.api.muster.ledger_entries import Entry, Kind
from admission.api.values.reasons import HoldReason
from admission.cycle.state.leader import Leader, Ports
from admission.ledger.journal import read
from admission.ledger.sql_ledger import SqlLedger
from tests.builders import NOON, a_cluster
from tests.integration import ledgers
from tests.postgres import Server
from tests.unit.cycle.test_budgets import add
from tests.unit.cycle.test_cycle import Cluster, gang, run

SECOND = timedelta(seconds=1)


async def test_a_release_during_an_outage_is_booked_to_the_second_and_in_order(durable_postgres: Server) -> None:
    with ledgers.dropped(durable_postgres) as made:
        url = made(ledgers.template_in(durable_postgres))
        async with SqlLedger.open(url, ledgers.CLUSTER) as ledger:
            cluster = Cluster(a_cluster().node("a", gpus=4).queue("q", gpus=4).job("train", queue="q", pods=2))
            ports = Ports(view=cluster, pods=cluster, claims=cluster, workloads=cluster, reports=cluster, ledger=ledger)
            leader = Leader.build(ports=ports, actor="test", epoch=1)
            await run(leader)
            started = cluster.schedule(leader.mirror.book)
            await run(leader, NOON + 10 * SECOND)

            durable_postgres.stop()
            try:
                cluster.finish(started)
                add(cluster, a_cluster().job("next", queue="q"))
                result = await run(leader, NOON + 73 * SECOND)
                hold = gang(result, "next").hold
                assert hold is not None
                assert hold.reason == HoldReason.LEDGER_UNAVAILABLE
                assert result.unposted == 1
                await run(leader, NOON + 80 * SECOND)
            finally:
                durable_postgres.start()
            result = await run(leader, NOON + 95 * SECOND)

            assert len(result.granted) == 1
            entries = await _entries(ledger)
            times = [(entry.kind, entry.at - NOON) for entry in entries if entry.kind is not Kind.GRANT]
            assert times == [
                (Kind.RESERVE, 0 * SECOND),
                (Kind.SETTLE, 10 * SECOND),
                (Kind.RELEASE, 73 * SECOND),
                (Kind.RESERVE, 95 * SECOND),
            ]
            assert await ledger.load() == leader.mirror.book
            assert (await ledger.verify()).finding is None


async def _entries(ledger: SqlLedger) -> list[Entry]:
    async with ledger.snapshot() as connection:
        return [record.entry for record in await read.records(connection, ledgers.CLUSTER, after=0, limit=100)]
