"""Plans that kube-scheduler did not carry out: they are not tried again unchanged."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from admission.api.kubernetes.pods import Pod
from admission.api.muster.ledger_entries import Seat
from admission.api.values import names
from admission.api.values.names import NodeName, Uid
from admission.api.values.reasons import HoldReason
from admission.cycle import cycle
from admission.cycle.outcome import Outcome
from admission.cycle.state.leader import Leader
from admission.cycle.state.result import CycleResult
from admission.scheduling.placement.protection import Barriers
from admission.simulation import in_memory
from tests.builders import NOON, ClusterBuilder, a_cluster, running
from tests.unit.cycle.fences import Cluster, a_leader

MINUTE = timedelta(minutes=1)
LATE = NOON + 2 * MINUTE
AGAIN = NOON + 5 * MINUTE
MESSAGE = "0/2 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."


class Refusing(Cluster):
    """Its kube-scheduler takes so many pods of queues on each node, for a reason that Muster does not see."""

    def __init__(self, pods: int, **most: int) -> None:
        super().__init__(two_nodes(pods))
        self.pods = pods
        self.lives = 0
        self.ledger = in_memory.Ledger()
        self.most = most
        for node in most:
            self._pods[Uid(f"on-{node}")] = _other(node)

    def planned(self) -> list[str]:
        """Return the nodes of the pods that were let in, in the order of their names."""
        return [seat.node for seat in sorted(self._seats(), key=lambda seat: seat.pod)]

    def _seats(self) -> Iterator[Seat]:
        return (seat for one in self.ledger.book.placements.values() for seat in one.seats.values())

    def try_to_bind(self) -> None:
        """Bind the pods that were let in, as far as their nodes take them."""
        left, planned = dict(self.most), {seat.pod_uid: seat.node for seat in self._seats()}
        for uid, pod in sorted(self._pods.items()):
            if pod.queue and not pod.gated:
                node = planned[uid]
                left[node] -= 1
                self._pods[uid] = running(pod, node) if left[node] >= 0 else replace(pod, unschedulable=MESSAGE)

    async def tried_and_taken_back(self, leader: Leader, at: datetime, *, judged: bool = True) -> list[str]:
        """Have the gang let in, refused, taken back and made again; return where it was planned."""
        await cycle.run(leader, at)
        planned = self.planned()
        if judged:
            self.try_to_bind()
        await cycle.run(leader, at + 2 * MINUTE)
        assert planned
        assert not self.planned()
        self.lives += 1
        again = two_nodes(self.pods, self.lives).snapshot()
        self._pods |= again.pods
        self._claims |= again.claims
        return planned

    def end_other(self, node: str) -> None:
        del self._pods[Uid(f"on-{node}")]

    def change_node(self, name: str, **labels: str) -> None:
        """Have the kubelet report the node again, with more labels if there are any."""
        node = self._rest.nodes[NodeName(name)]
        meta = replace(node.meta, resource_version="99", labels={**node.meta.labels, **labels})
        self._rest = replace(self._rest, nodes={**self._rest.nodes, NodeName(name): replace(node, meta=meta)})


def _other(node: str) -> Pod:
    (pod,) = a_cluster().pod(f"on-{node}", queue="", gpus=0).snapshot().pods.values()
    return running(pod, node)


def two_nodes(pods: int, lives: int = 0) -> ClusterBuilder:
    """A gang, and two nodes that would have devices for all of it."""
    requeue = {"base": "1m", "max": "1m"}
    builder = a_cluster().node("a", gpus=4).node("b", gpus=4).queue("q", gpus=8, startTimeout="1m", requeue=requeue)
    for at in range(pods):
        builder.pod(f"p{lives}-{at}", labels={names.GANG: "g"}, annotations={names.GANG_SIZE: str(pods)})
    return builder


def leader_of(cluster: Refusing, *, fenced: bool = False, epoch: int = 1) -> Leader:
    return a_leader(cluster, cluster.ledger, barriers=None if fenced else Barriers(), epoch=epoch)


def other_than(node: str) -> str:
    return "b" if node == "a" else "a"


def hold_of(result: CycleResult) -> Outcome:
    (decision,) = result.decisions
    return decision


@pytest.mark.parametrize("fenced", [False, True], ids=["Pin", "Allocate"])
async def test_a_gang_whose_pod_was_refused_on_a_node_is_planned_on_another(fenced: bool) -> None:
    cluster = Refusing(1, a=0, b=0)
    leader = leader_of(cluster, fenced=fenced)
    first = await cluster.tried_and_taken_back(leader, NOON)

    waiting = hold_of(await cycle.run(leader, LATE + MINUTE / 2))
    await cycle.run(leader, AGAIN)

    (node,) = first
    assert waiting.reason is HoldReason.START_TIMED_OUT
    assert waiting.message.startswith(
        f"did not start in time: kube-scheduler refused pod p0-0 on node {node} ({MESSAGE}) (once so far); it is tried"
    )
    assert waiting.details["refusedOn"] == [node]
    assert cluster.planned() == [other_than(node)]


async def test_the_events_and_the_ledger_say_why_kube_scheduler_refused_a_pod() -> None:
    cluster = Refusing(1, a=0, b=0)

    first = await cluster.tried_and_taken_back(leader_of(cluster), NOON)

    why = f"kube-scheduler refused pod p0-0 on node {first[0]} ({MESSAGE})"
    assert any(why in notice.message for notice in cluster.notices)
    assert any(why in entry.reason for entry in cluster.ledger.entries)


async def test_a_gang_that_every_node_refused_waits_until_something_changes_on_one() -> None:
    cluster = Refusing(1, a=0, b=0)
    leader = leader_of(cluster)
    await cluster.tried_and_taken_back(leader, NOON)
    await cluster.tried_and_taken_back(leader, AGAIN)

    held = hold_of(await cycle.run(leader, AGAIN + 10 * MINUTE))
    cluster.change_node("a")
    await cycle.run(leader, AGAIN + 11 * MINUTE)
    assert not cluster.planned(), "a kubelet reports its node every few minutes"
    cluster.end_other("b")
    await cycle.run(leader, AGAIN + 12 * MINUTE)

    assert held.reason is HoldReason.NO_FEASIBLE_PLACEMENT
    assert "; left out until something there changes: kube-scheduler refused pod p0-0 on node " in held.message
    assert held.message.endswith(", and pods on 1 more node")
    assert sorted(held.details["refusedOn"]) == ["a", "b"]  # type: ignore[arg-type]
    assert cluster.planned() == ["b"]


@pytest.mark.parametrize("change", ["label", "time"])
async def test_a_node_is_tried_again_once_it_has_changed_or_an_hour_is_over(change: str) -> None:
    cluster = Refusing(1, a=0, b=0)
    leader = leader_of(cluster)
    await cluster.tried_and_taken_back(leader, NOON)
    (last,) = await cluster.tried_and_taken_back(leader, AGAIN)
    await cycle.run(leader, AGAIN + 10 * MINUTE)
    assert not cluster.planned()

    if change == "label":
        cluster.change_node(last, zone="z")
    await cycle.run(leader, AGAIN + (20 if change == "label" else 63) * MINUTE)

    assert cluster.planned() == [last if change == "label" else other_than(last)]


async def test_as_many_pods_as_a_node_took_are_planned_there_again() -> None:
    """As where pods of a gang keep each other off, by a rule of their own."""
    cluster = Refusing(2, a=1, b=1)
    leader = leader_of(cluster)
    first = await cluster.tried_and_taken_back(leader, NOON)
    second = await cluster.tried_and_taken_back(leader, AGAIN)
    assert [first, second] == [["a", "a"], ["b", "b"]], "both fit on one node, for all that is seen"

    await cycle.run(leader, AGAIN + 10 * MINUTE)

    assert sorted(cluster.planned()) == ["a", "b"]


async def test_pods_that_kube_scheduler_has_not_judged_are_planned_as_before() -> None:
    cluster = Refusing(1, a=0, b=0)
    leader = leader_of(cluster)
    first = await cluster.tried_and_taken_back(leader, NOON, judged=False)

    await cycle.run(leader, AGAIN)

    assert cluster.planned() == first


async def test_a_new_leader_leaves_out_what_the_gangs_status_says_until_something_changes_there() -> None:
    cluster = Refusing(1, a=0, b=0)
    (first,) = await cluster.tried_and_taken_back(leader_of(cluster), NOON)

    second = await cluster.tried_and_taken_back(leader_of(cluster, epoch=2), AGAIN)
    third = leader_of(cluster, epoch=3)
    await cycle.run(third, AGAIN + 10 * MINUTE)
    assert not cluster.planned(), "both nodes are left out"
    cluster.end_other(first)
    await cycle.run(third, AGAIN + 11 * MINUTE)

    assert second == [other_than(first)]
    assert cluster.planned() == [first]
