"""Until a new leader's view shows all that the one before it saw, nothing is concluded from what it lacks."""

from dataclasses import replace
from typing import Any

from admission.api.muster.gangs import Phase
from admission.api.muster.ledger_entries import Kind
from admission.api.snapshot import Snapshot
from admission.api.values.names import GANG_MIN
from admission.cycle import cycle
from admission.cycle.state.leader import Leader
from admission.scheduling.placement.protection import Barriers
from admission.simulation import in_memory
from tests.builders import NOON, ClusterBuilder, a_cluster
from tests.unit.cycle.fences import SECOND, Cluster, a_leader, cycles, kinds, report

NO_FENCE = Barriers()


class Behind(Cluster):
    """What has come to some gangs is not seen yet: neither their pods nor their claims."""

    unseen: tuple[str, ...] = ()

    def snapshot(self) -> Snapshot:
        seen = super().snapshot()
        return replace(seen, pods=self._seen(seen.pods), claims=self._seen(seen.claims))

    def _seen(self, objects: Any) -> Any:
        return {key: one for key, one in objects.items() if not one.meta.name.startswith(self.unseen or (" ",))}


def two_gangs() -> ClusterBuilder:
    builder = a_cluster().node("a", gpus=2).node("b", gpus=2).queue("q", gpus=8)
    return builder.job("old", queue="q", pods=2).job("new", queue="q", pods=2)


async def a_new_leader(
    builder: ClusterBuilder, barriers: Barriers = NO_FENCE
) -> tuple[Behind, in_memory.Ledger, Leader]:
    """Let one leader grant a gang, another gang come, and a second leader begin that has not seen the first gang."""
    cluster, ledger = Behind(builder), in_memory.Ledger()
    cluster.unseen = ("new",)
    first = await cycle.run(a_leader(cluster, ledger, barriers=barriers), NOON)
    assert report(first, "old").phase is Phase.RESERVED
    cluster.unseen = ("old",)
    leader = a_leader(cluster, ledger, barriers=barriers, epoch=2)
    leader.term.await_confirmation()
    return cluster, ledger, leader


async def test_before_the_view_catches_up_an_unseen_gang_is_not_released_and_others_are_admitted() -> None:
    cluster, ledger, leader = await a_new_leader(two_gangs())

    await cycles(leader, 2, NOON + SECOND)

    assert kinds(ledger) == [Kind.RESERVE, Kind.RESERVE]
    assert cluster.let_in() == ["new-0", "new-1", "old-0", "old-1"]


async def test_before_the_view_catches_up_no_gang_is_placed_on_a_node_of_an_unseen_gang() -> None:
    """What claims hold is in the books; what else the pods there need of the node is not known without them."""
    builder = a_cluster().node("a", gpus=4).node("b", gpus=4).queue("q", gpus=8)
    builder.job("old", queue="q", pods=2).job("new", queue="q", pods=2)
    _, _, leader = await a_new_leader(builder)

    await cycle.run(leader, NOON + SECOND)

    places = {
        gang.gang.rpartition("/")[2]: {seat.node for seat in gang.seats.values()}
        for gang in leader.mirror.book.placements.values()
    }
    (old, new) = (nodes for _, nodes in sorted(places.items(), reverse=True))
    assert old.isdisjoint(new)


async def test_before_the_view_catches_up_a_gang_may_be_placed_beside_one_whose_pods_are_seen() -> None:
    builder = a_cluster().node("a", gpus=4).queue("q", gpus=8)
    cluster, _, leader = await a_new_leader(builder.job("old", queue="q", pods=2).job("new", queue="q", pods=2))
    cluster.unseen = ()

    result = await cycle.run(leader, NOON + SECOND)

    assert report(result, "new").phase is Phase.RESERVED


async def test_before_the_view_catches_up_no_pod_joins_a_gang_of_the_ledger() -> None:
    builder = a_cluster().node("a", gpus=4).queue("q", gpus=8)
    builder.job("old", queue="q", pods=3, made=2, annotations={GANG_MIN: "1"})
    cluster, ledger = Cluster(builder), in_memory.Ledger()
    await cycle.run(a_leader(cluster, ledger, barriers=NO_FENCE), NOON)
    late = a_cluster().job("old", queue="q", pods=3, annotations={GANG_MIN: "1"}).snapshot()
    cluster._pods = {**late.pods, **cluster._pods}
    cluster._claims = {**late.claims, **cluster._claims}
    leader = a_leader(cluster, ledger, barriers=NO_FENCE, epoch=2)
    leader.term.await_confirmation()

    await cycle.run(leader, NOON + SECOND)
    assert cluster.let_in() == ["old-0", "old-1"]

    leader.term.confirm()
    await cycle.run(leader, NOON + 2 * SECOND)
    assert cluster.let_in() == ["old-0", "old-1", "old-2"]


async def test_before_the_view_catches_up_muster_allocates_no_claim() -> None:
    """Whether kube-scheduler is picking devices for somebody is read from pods."""
    builder = two_gangs()
    cluster, _, leader = await a_new_leader(builder, Barriers(fence=(), rules={}))
    fenced = a_leader(cluster, leader.ports.ledger, epoch=2)
    fenced.term.await_confirmation()

    await cycle.run(fenced, NOON + SECOND)
    assert not cluster.done("allocate")

    fenced.term.confirm()
    cluster.unseen = ()
    await cycles(fenced, 2, NOON + 2 * SECOND)
    assert cluster.done("allocate")


async def test_before_the_view_catches_up_no_status_is_reported() -> None:
    cluster, _, leader = await a_new_leader(two_gangs())
    known = dict(cluster.gangs)

    await cycles(leader, 2, NOON + SECOND)
    assert cluster.gangs == known

    cluster.unseen = ()
    leader.term.confirm()
    await cycles(leader, 2, NOON + SECOND)
    assert {gang.phase for gang in cluster.gangs.values()} == {Phase.ADMITTED}
    assert len(cluster.gangs) == 2


async def test_a_gang_that_is_missing_when_the_view_has_caught_up_is_released() -> None:
    _, ledger, leader = await a_new_leader(two_gangs())

    await cycle.run(leader, NOON + SECOND)
    leader.term.confirm()
    await cycle.run(leader, NOON + 2 * SECOND)

    assert kinds(ledger) == [Kind.RESERVE, Kind.RESERVE, Kind.RELEASE]
    assert [one.gang_uid for one in leader.mirror.book.placements.values()] == ["job-new"]
