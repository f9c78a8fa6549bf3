"""Workloads that are restarted: their gangs before are nobody's any more, and nothing is said of these."""

from admission.api.muster.gangs import Phase
from tests.unit.cycle.jobs import Play
from tests.unit.cycle.test_unread_kinds import Narrowed, told


async def test_the_gang_object_of_a_restarted_workload_replaces_the_earlier_gang_object() -> None:
    cluster = Narrowed()
    play = Play(cluster)
    cluster.lead()
    before = {group.key: group for group in told(await play.forget_changes(3))}
    assert set(cluster.gangs) == set(before)

    cluster.end_pods()
    removed = told(await play.forget_changes(2))
    assert {group.key for group in removed} == set(before), "they are kept while nothing has come in their stead"
    assert {group.phase for group in removed} == {Phase.FINISHED}

    cluster.life = "-again"
    cluster.lead()
    after = told(await play.forget_changes(3))
    assert [group.phase for group in after] == [Phase.RUNNING] * 2
    assert set(cluster.gangs) == {group.key for group in after}
    assert set(cluster.gangs).isdisjoint(before)
