"""Elastic gangs: started with as many pods as fit, joined by the others, and none the worse for what comes and goes."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from admission.api.muster.gangs import GangReport
from admission.api.muster.ledger_entries import Kind
from admission.api.muster.queues import QueueingStrategy
from admission.api.values.names import GANG, GANG_MIN, GANG_SIZE, RUNTIME, NodeName, QueueName, Uid
from admission.api.values.reasons import HoldReason
from admission.api.values.selectors import Taint, Toleration
from admission.cycle import cycle
from admission.cycle.state.leader import Leader
from admission.cycle.state.result import CycleResult
from admission.dra import gang_planner
from admission.dra.requests.gang_request import PodDemand
from admission.simulation import in_memory
from tests.builders import NOON, ClusterBuilder, a_cluster
from tests.unit.cycle.fences import Cluster, a_leader, kinds

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)


def elastic(pods: int, least: int, *, made: int | None = None, gpus: int = 1) -> dict[str, Any]:
    return {"queue": "q", "pods": pods, "gpus": gpus, "made": made, "annotations": {GANG_MIN: str(least)}}


class Town(Cluster):
    """A cluster to which more is added, and the leader of its leader."""

    def __init__(self, builder: ClusterBuilder) -> None:
        super().__init__(builder)
        self.ledger = in_memory.Ledger()
        self.leader: Leader = a_leader(self, self.ledger)
        self.now = NOON

    def add(self, builder: ClusterBuilder) -> None:
        """Take over what is there beside what was; what was stays as it is."""
        more = builder.snapshot()
        self._pods = {**more.pods, **self._pods}
        self._claims = {**more.claims, **self._claims}
        self._jobs = {**more.jobs, **self._jobs}
        nodes, slices = {**more.nodes, **self._rest.nodes}, {**more.slices, **self._rest.slices}
        self._rest = replace(self._rest, nodes=nodes, slices=slices)

    async def turn(self, after: timedelta = SECOND) -> CycleResult:
        """One cycle, after which who was let in runs."""
        self.now += after
        result = await cycle.run(self.leader, self.now)
        self.schedule(self.ledger.book)
        return result

    async def settle(self) -> GangReport:
        """Cycles until nothing more happens; return the only gang."""
        for _ in range(3):
            await self.turn()
        (found,) = (await self.turn()).gangs
        return found

    def add_pods(self, builder: ClusterBuilder, *names: str) -> None:
        """Take over some of the pods only."""
        more = builder.snapshot()
        self._pods |= {uid: pod for uid, pod in more.pods.items() if pod.meta.name in names}
        self._claims = {**more.claims, **self._claims}

    def where(self) -> dict[str, str]:
        return {pod.meta.name: pod.node for pod in self._pods.values()}

    def runs(self) -> list[str]:
        return sorted(pod.meta.name for pod in self._pods.values() if pod.phase == "Running")


async def test_a_gang_starts_with_as_many_as_fit_and_the_others_join_when_they_fit() -> None:
    town = Town(a_cluster().node("a", gpus=3).queue("q", gpus=8).job("train", **elastic(5, 2)))

    first = await town.turn()

    assert sorted(town.let_in()) == ["train-0", "train-1", "train-2"]
    assert first.gangs[0].charges == {"claims": 3, "gpus": 3}
    held = await town.settle()
    assert held.hold is not None
    assert held.hold.reason == HoldReason.DEVICES_BUSY

    town.add(a_cluster().node("b", gpus=1))
    assert (await town.settle()).charges == {"claims": 4, "gpus": 4}
    town.add(a_cluster().node("c", gpus=4))
    assert (await town.settle()).hold is None
    assert town.runs() == [f"train-{at}" for at in range(5)]
    assert Kind.EVICT not in kinds(town.ledger)


async def test_an_elastic_gang_is_held_until_its_least_size_fits() -> None:
    town = Town(a_cluster().node("a", gpus=1).queue("q", gpus=8).job("train", **elastic(4, 2)))

    held = await town.settle()

    assert town.let_in() == []
    assert held.hold is not None
    assert held.hold.reason == HoldReason.NO_FEASIBLE_PLACEMENT
    assert "train-1" in held.hold.message

    town.add(a_cluster().node("b", gpus=1))
    await town.settle()
    assert town.runs() == ["train-0", "train-1"]


async def test_quota_is_filled_up_to_the_last_pod() -> None:
    town = Town(a_cluster().node("a", gpus=8).queue("q", gpus=3).job("train", **elastic(5, 2)))

    held = await town.settle()

    assert town.runs() == ["train-0", "train-1", "train-2"]
    assert held.hold is not None
    assert (held.hold.reason, held.hold.details["needed"]) == (HoldReason.QUOTA_EXCEEDED, "1")


async def test_a_gang_starts_before_all_of_its_pods_exist() -> None:
    builder = a_cluster().node("a", gpus=8).queue("q", gpus=8)
    town = Town(builder.job("train", **elastic(4, 2, made=1)))
    held = await town.settle()
    assert held.hold is not None
    assert held.hold.message.startswith(
        f"1 of 4 pods exist; the gang starts with 2 ({GANG_MIN} of its pods says how many); 1 missing"
    )

    town.add(a_cluster().job("train", **elastic(4, 2, made=2)))
    await town.settle()
    assert town.runs() == ["train-0", "train-1"]
    town.add(a_cluster().job("train", **elastic(4, 2)))
    await town.settle()
    assert len(town.runs()) == 4


async def test_a_gang_that_scales_down_gives_back_and_goes_on() -> None:
    town = Town(a_cluster().node("a", gpus=4).queue("q", gpus=4).job("train", **elastic(4, 2)))
    await town.settle()

    town.remove_pod("train-3")
    town.remove_pod("train-1")

    assert (await town.settle()).charges == {"claims": 2, "gpus": 2}
    assert town.runs() == ["train-0", "train-2"]
    assert Kind.EVICT not in kinds(town.ledger)


async def test_pods_that_go_before_any_runs_are_missed_only_below_the_least() -> None:
    town = Town(a_cluster().node("a", gpus=4).queue("q", gpus=4).job("train", **elastic(4, 2)))
    await cycle.run(town.leader, NOON)
    town.remove_pod("train-3")
    await cycle.run(town.leader, NOON + SECOND)
    assert town.let_in() == ["train-0", "train-1", "train-2"]

    town.remove_pod("train-2")
    town.remove_pod("train-1")
    await cycle.run(town.leader, NOON + 2 * SECOND)
    assert Kind.EVICT in kinds(town.ledger)
    assert town.let_in() == []


LATE: dict[str, tuple[dict[str, str], list[str]]] = {
    "two of three are enough": ({GANG_SIZE: "3", GANG_MIN: "2"}, ["p-0", "p-1", "p-2"]),
    "it is one more than the gang has": ({GANG_SIZE: "2"}, ["p-0", "p-1", "p-2"]),
    "all three are needed": ({GANG_SIZE: "3"}, []),
}


@pytest.mark.parametrize(("said", "left"), LATE.values(), ids=LATE)
async def test_a_pod_that_does_not_start_in_time_requeues_its_elastic_gang_only_below_the_least_size(
    said: dict[str, str], left: list[str]
) -> None:
    """Of three pods the third never runs."""
    builder = a_cluster().node("a", gpus=4).queue("q", gpus=4, startTimeout="1m")
    for at in range(3):
        builder.pod(f"p-{at}", labels={GANG: "g"}, annotations=said)
    town = Town(builder)
    await cycle.run(town.leader, NOON)
    late = town.pod("p-2")
    town.schedule(town.ledger.book)
    town._pods[Uid("pod-p-2")] = late

    await cycle.run(town.leader, NOON + timedelta(minutes=2))

    assert town.let_in() == left


async def test_an_ended_pod_of_an_elastic_gang_gives_back_its_devices_and_a_new_pod_joins() -> None:
    town = Town(a_cluster().node("a", gpus=3).queue("q", gpus=3).job("train", **elastic(4, 2)))
    await town.settle()
    failed = town.pod("train-1")
    town._release_claims([failed])
    town._pods[failed.meta.uid] = replace(failed, phase="Failed", ready=False)

    after = await town.settle()

    assert after.charges == {"claims": 3, "gpus": 3}
    assert town.runs() == ["train-0", "train-2", "train-3"]
    assert Kind.EVICT not in kinds(town.ledger)


async def test_a_gang_that_is_not_elastic_is_joined_by_as_many_as_fit() -> None:
    """Two of its pods were lost and made anew, and a device is broken meanwhile."""
    town = Town(a_cluster().node("a", gpus=4).queue("q", gpus=4).job("train", queue="q", pods=4))
    await town.settle()
    town.remove_pod("train-1")
    town.remove_pod("train-2")
    town.without(device="gpu-1")
    town.add(a_cluster().job("train", queue="q", pods=4))

    await town.settle()

    assert len(town.runs()) == 3


def five() -> ClusterBuilder:
    return a_cluster().node("a", gpus=4).node("b", gpus=4).queue("q", gpus=8).job("train", queue="q", pods=5)


@pytest.mark.parametrize("number", range(5))
async def test_a_replacement_pod_goes_to_the_node_of_the_pod_that_it_replaces(number: int) -> None:
    """Four of five are on one node. With two gone there is room for each on both; one of them is made anew."""
    town = Town(five())
    await town.settle()
    before, name = town.where(), f"train-{number}"
    town.remove_pod(name)
    town.remove_pod(f"train-{(number + 1) % 5}")
    await town.turn()

    town.add_pods(five(), name)
    await town.settle()

    assert town.where()[name] == before[name] != ""


async def test_a_pod_whose_place_is_taken_or_gone_goes_elsewhere() -> None:
    town = Town(five())
    await town.settle()
    before = town.where()
    lost = next(name for name, node in before.items() if list(before.values()).count(node) == 1)
    town.remove_pod(lost)
    await town.turn()
    town.without(node=before[lost])
    town.add(a_cluster().node("c", gpus=1))

    town.add_pods(five(), lost)
    await town.settle()
    assert town.where()[lost] == "c"

    # The next one in its stead goes to where this one was, and not to where the first was.
    town.remove_pod(lost)
    await town.turn()
    town.add(a_cluster().node(before[lost], gpus=4))
    town.add_pods(five(), lost)
    await town.settle()
    assert town.where()[lost] == "c"


@pytest.mark.parametrize(("least", "others"), [("1", True), ("3", False)])
async def test_gangs_wait_behind_an_elastic_head_of_a_strict_queue_only_below_its_least_size(
    least: str, *, others: bool
) -> None:
    builder = a_cluster().node("a", gpus=2).node("b", gpus=1, cpu="1").queue("q", gpus=8)
    builder.job("train", **{**elastic(3, 1, gpus=2), "annotations": {GANG_MIN: least}}).job("small", queue="q")
    town = Town(builder)
    queue = town._rest.queues[QueueName("q")]
    town._rest = replace(town._rest, queues={queue.name: replace(queue, strategy=QueueingStrategy.STRICT_FIFO)})

    for _ in range(3):
        await town.turn()

    assert ("small-0" in town.runs()) is others
    assert ("train-0" in town.runs()) is others


async def test_a_large_gang_that_none_but_a_few_fit_of_is_planned_a_few_times_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    town = Town(a_cluster().node("a", gpus=9).queue("q", gpus=100).job("train", **elastic(40, 1)))
    planned: list[int] = []
    plan = gang_planner.plan

    def counted(pods: Sequence[PodDemand], *rest: Any, **more: Any) -> Any:
        planned.append(len(pods))
        return plan(pods, *rest, **more)

    monkeypatch.setattr(gang_planner, "plan", counted)

    await cycle.run(town.leader, NOON)

    assert len(town.let_in()) == 9
    assert len(set(planned)) <= 8


async def test_pods_that_say_different_least_sizes_are_refused() -> None:
    builder = a_cluster().node("a", gpus=4).queue("q", gpus=4)
    for at in range(3):
        builder.pod(f"p-{at}", labels={GANG: "g"}, annotations={GANG_SIZE: "3", GANG_MIN: str(1 + at % 2)})

    refused = await Town(builder).settle()

    assert refused.hold is not None
    assert refused.hold.message == f"its pods say different least sizes (1, 2); give all of them the same {GANG_MIN}"


def named(gang: str, *names: str, size: int, least: int, runtime: str, created: timedelta) -> ClusterBuilder:
    """Pods of one named gang, made some time after noon."""
    builder = a_cluster()
    said = {GANG_SIZE: str(size), GANG_MIN: str(least), RUNTIME: runtime}
    for name in names:
        builder.pod(name, labels={GANG: gang}, annotations=said, created=(NOON + created).isoformat())
    return builder


async def test_pods_that_scale_up_a_running_gang_queue_behind_earlier_gangs() -> None:
    """The head needs what ends in ten minutes; the pods that came five minutes after it would keep it for days."""
    minute = timedelta(minutes=1)
    town = Town(a_cluster().node("a", gpus=4).queue("q", gpus=20))
    town.add(named("old", "old-0", "old-1", size=4, least=1, runtime="100h", created=-minute))
    town.add(named("ends", "ends-0", "ends-1", size=2, least=2, runtime="10m", created=-minute))
    for _ in range(3):
        await town.turn()
    town.add(named("head", "head-0", "head-1", size=2, least=2, runtime="10m", created=minute))
    await town.turn(2 * minute)
    town.add(named("old", "old-2", "old-3", size=4, least=1, runtime="100h", created=5 * minute))

    found = {gang.name: gang for gang in (await town.turn(5 * minute)).gangs}
    for name in ("ends-0", "ends-1"):
        town.remove_pod(name)
    for _ in range(3):
        await town.turn()

    assert (found["head"].position, found["old"].position) == (1, 2)
    assert found["old"].queued_since == NOON - minute, "its place, should it be taken back"
    assert found["head"].start_estimate is not None
    assert found["head"].start_estimate < NOON + 20 * minute
    assert town.runs() == ["head-0", "head-1", "old-0", "old-1"]


async def test_a_replacement_for_a_needed_pod_keeps_the_queue_position_of_its_gang() -> None:
    town = Town(a_cluster().node("a", gpus=3).queue("q", gpus=8).job("train", queue="q", pods=3))
    await town.settle()
    town.add(a_cluster().pod("other", gpus=3))
    town.remove_pod("train-1")
    town.without(device="gpu-1")
    await town.turn()
    town.add(a_cluster().pod("train-1", owner="job-train", job="train", created=(NOON + HOUR).isoformat()))

    waiting = {gang.name.rpartition("-")[0]: gang.position for gang in (await town.turn(HOUR)).gangs}

    assert waiting == {"train": 1, "other": 2}


async def test_late_pods_give_a_gang_no_more_time_to_run() -> None:
    """One of its pods is lost and made anew every fifty minutes."""

    def gang() -> ClusterBuilder:
        return a_cluster().node("a", gpus=4).queue("q", gpus=4, maxRuntime="1h").job("train", queue="q", pods=3)

    town = Town(gang())
    await town.settle()
    town.remove_pod("train-1")
    await town.turn(timedelta(minutes=50))
    town.add_pods(gang(), "train-1")
    await town.turn()
    assert len(town.runs()) == 3

    await town.turn(timedelta(minutes=10))

    assert town.runs() == []
    assert [entry.reason for entry in town.ledger.entries if entry.kind is Kind.EVICT] == [
        "RuntimeExceeded: it ran for longer than 1h, the maxRuntime of queue q"
    ]


async def test_a_pod_joins_that_differs_from_those_that_do_not_fit_in_its_tolerations_alone() -> None:
    """Nothing is left but a tainted node, and the first of those that wait does not tolerate that."""
    said: dict[str, Any] = {"labels": {GANG: "g"}, "annotations": {GANG_SIZE: "3", GANG_MIN: "1"}}
    builder = a_cluster().node("a", gpus=1).queue("q", gpus=8)
    for at in range(3):
        builder.pod(f"p-{at}", **said)
    town = Town(builder)
    tolerant = town.pod("p-2")
    town._pods[tolerant.meta.uid] = replace(tolerant, tolerations=(Toleration(key="odd", operator="Exists"),))
    await town.settle()
    assert town.runs() == ["p-0"]

    town.add(a_cluster().node("b", gpus=1))
    odd = town._rest.nodes[NodeName("b")]
    taints = (Taint(key="odd", effect="NoSchedule"),)
    town._rest = replace(town._rest, nodes={**town._rest.nodes, odd.name: replace(odd, taints=taints)})
    await town.settle()

    assert town.runs() == ["p-0", "p-2"]


async def test_a_scaled_up_gang_runs_on_though_a_joining_pod_does_not_start_in_time() -> None:
    town = Town(a_cluster().node("a", gpus=3).queue("q", gpus=4, startTimeout="1m").job("train", queue="q", pods=2))
    await town.settle()
    uid = Uid("job-train")
    town._jobs[uid] = replace(town._jobs[uid], parallelism=4, completions=4)
    town.add_pods(a_cluster().job("train", queue="q", pods=4), "train-2", "train-3")
    town.now += SECOND
    await cycle.run(town.leader, town.now)
    late = town.pod("train-2")
    assert not late.gated

    town.schedule(town.ledger.book)
    town._pods[late.meta.uid] = late
    await town.turn(after=HOUR)
    assert town.let_in() == ["train-0", "train-1", "train-2"]

    # One of the two is lost: those that are left can do nothing until another one has come in its stead.
    town.remove_pod("train-0")
    town.add_pods(a_cluster().job("train", queue="q", pods=4), "train-0")
    town.remove_pod("train-2")
    town.now += SECOND
    await cycle.run(town.leader, town.now)
    await cycle.run(town.leader, town.now + HOUR)
    assert town.let_in() == []
