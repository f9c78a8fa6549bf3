"""Short lives of gangs, written by hand, and histories that laws are tried on, posted for a cluster of their own."""

import itertools
from collections.abc import Sequence
from datetime import datetime, timedelta

from hypothesis import HealthCheck, settings, strategies as st

from admission.accounting import books
from admission.accounting.books import Allocated, Book
from admission.api.muster.ledger_entries import Entry
from admission.api.values.names import GangUid
from admission.ledger.sql_ledger import SqlLedger
from tests import soaking
from tests.builders import NOON
from tests.integration.ledgers import a_gang, a_grant, minutes
from tests.property.histories import START
from tests.unit.cycle.test_cycle import Cluster, Ledger, a_leader, run
from tests.unit.cycle.test_node_resources import Team

HISTORIES = settings(
    max_examples=soaking.examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
"""How a law is tried of which each example posts a history: in all kinds of databases, and a tenth of a second each."""

moments = st.integers(0, 4 * 3600).map(lambda seconds: START + timedelta(seconds=seconds))

_numbers = itertools.count()


async def posted(url: str, history: Sequence[Entry]) -> str:
    """Post a history for a cluster of its own, beside those of other examples, and return the cluster."""
    cluster = f"cluster-{next(_numbers)}"
    async with SqlLedger.open(url, cluster) as ledger:
        await ledger.post_all(history, epoch=1)
    return cluster


def settled(gang: str, history: Sequence[Entry], at: datetime) -> Entry:
    """Return the settlement of all claims of a gang, each of which holds two devices of class `gpu`."""
    placement = Book.replay(history).placements[GangUid(gang)]
    real = {uid: Allocated(held.devices, held.charge, {"gpu": 2}) for uid, held in placement.holdings.items()}
    entry = books.settle(placement, real, at=at, actor="muster")
    assert entry is not None
    return entry


def released(gang: str, history: Sequence[Entry], at: datetime) -> Entry:
    placement = Book.replay(history).placements[GangUid(gang)]
    entry = books.release(
        placement, pods=list(placement.seats), claims=list(placement.holdings), at=at, actor="muster", reason="done"
    )
    assert entry is not None
    return entry


def a_long_life() -> list[Entry]:
    """Return a gang that runs from the 10th to the 50th minute, among others that come and go around it."""
    entries = [a_grant(), a_gang("long", at=minutes(1))]
    entries.append(settled("long", entries, minutes(10)))
    entries.append(a_gang("early", at=minutes(11)))
    entries.append(settled("early", entries, minutes(12)))
    entries.append(released("early", entries, minutes(13)))
    entries.append(a_gang("late", at=minutes(30)))
    entries.append(settled("late", entries, minutes(31)))
    return [*entries, released("long", entries, minutes(50))]


async def without_claims() -> list[Entry]:
    """Return what whole cycles write of pods of a core and a half and 4Gi each, without claims, in queue `q` of 40.

    On its meter `credits` a core costs 2 and 8Gi cost 1, so a pod is charged 3.5, which is 4 in whole units. The two
    pods of `train` run from the 10th minute after noon, one of them for an hour.
    """
    builder = Team(40, {"name": "cpu", "factor": 2}, {"name": "memory", "per": "8Gi"}).node("a")
    cluster, ledger = Cluster(builder.asking("train", pods=2, cpu="1500m", memory="4Gi")), Ledger()
    leader = a_leader(cluster, ledger)
    await run(leader, NOON)
    started = cluster.schedule(ledger.book)
    await run(leader, NOON + timedelta(minutes=10))
    cluster.finish(started[:1])
    await run(leader, NOON + timedelta(minutes=70))
    return ledger.entries
