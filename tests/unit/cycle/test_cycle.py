"""Whole cycles with ports in memory: what is granted, in which order things happen, and what a crash leaves behind."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from admission.accounting.books import Book
from admission.api.kubernetes.claims import AllocatedDevice, Allocation
from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.pods import Pod
from admission.api.muster import gangs, meters
from admission.api.muster.claim_policies import ClaimPolicy
from admission.api.muster.gangs import GangReport, Phase
from admission.api.muster.ledger_entries import Entry, Kind, Posted
from admission.api.muster.queues import QueueingStrategy
from admission.api.values.names import MeterName, NodeName, QueueName, Uid
from admission.api.values.reasons import Hold, HoldReason
from admission.cycle import cycle
from admission.cycle.state.leader import Leader, Ports
from admission.cycle.state.result import CycleResult
from admission.cycle.state.term import CycleSettings
from admission.dra import gang_planner
from admission.errors import DeposedError, LedgerUnavailableError, RetryError
from admission.simulation import in_memory
from admission.status.queue import QueueStatusCache
from tests.builders import CLASS, NOON, ClusterBuilder, a_cluster, pod_of
from tests.unit.cycle.fences import KilledError

GPUS = MeterName("gpus")


class Cluster(in_memory.Cluster):
    """Notes what is done to pods, and can be killed or made to refuse."""

    def __init__(self, builder: ClusterBuilder) -> None:
        super().__init__(builder.snapshot())
        self.opened: list[tuple[str, str | None]] = []
        self.kill_after = 10**6
        self.refuse: set[str] = set()

    async def open_gate(self, pod: Pod, node: NodeName | None) -> None:
        if len(self.opened) >= self.kill_after:
            raise KilledError
        if pod.meta.name in self.refuse:
            raise RetryError("busy")
        self.opened.append((pod.meta.name, node))
        await super().open_gate(pod, node)

    def make_again(self, builder: ClusterBuilder) -> None:
        """Let Jobs make their pods once more, each with claims of its own."""
        again = builder.snapshot()
        self._pods = {Uid(f"{uid}-2"): reborn(pod) for uid, pod in again.pods.items()}
        self._claims = {key: replace(claim, meta=owned_again(claim.meta)) for key, claim in again.claims.items()}


class Ledger(in_memory.Ledger):
    """Can be away, or die at a kind of entry."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False
        self.opened_at_post: list[int] = []
        self.cluster: Cluster | None = None

    async def load(self) -> Book:
        if self.away:
            raise LedgerUnavailableError("away")
        return await super().load()

    async def post_all(self, entries: Sequence[Entry], **options: Any) -> list[Posted]:
        if self.away:
            raise LedgerUnavailableError("away")
        if any(entry.kind is Kind.RESERVE for entry in entries) and self.cluster is not None:
            self.opened_at_post.append(len(self.cluster.opened))
        return await super().post_all(entries, **options)


def a_leader(cluster: Cluster, ledger: in_memory.Ledger, **options: Any) -> Leader:
    if isinstance(ledger, Ledger):
        ledger.cluster = cluster
    ports = Ports(
        view=cluster, pods=cluster, claims=cluster, workloads=cluster, reports=cluster, ledger=ledger, queues=cluster
    )
    return Leader.build(ports=ports, actor="test", epoch=1, settings=CycleSettings(**options))


def gang(result: CycleResult, name: str) -> GangReport:
    """A gang's report by the name of its workload."""
    (found,) = [g for g in result.gangs if g.workload is not None and g.workload.name == name]
    return found


def hold_of(result: CycleResult, name: str) -> Hold:
    """Why a gang waits, by the name of its workload."""
    hold = gang(result, name).hold
    assert isinstance(hold, Hold)
    return hold


def kinds(ledger: Ledger) -> list[Kind]:
    return [entry.kind for entry in ledger.entries if entry.kind is not Kind.GRANT]


async def run(leader: Leader, at: datetime = NOON) -> CycleResult:
    return await cycle.run(leader, at)


async def test_a_gang_that_fits_is_reserved_first_and_then_admitted_whole() -> None:
    cluster, ledger = (
        Cluster(a_cluster().node("a", gpus=4).queue("q", gpus=4).job("train", queue="q", pods=2)),
        Ledger(),
    )

    result = await run(a_leader(cluster, ledger))

    assert kinds(ledger) == [Kind.RESERVE]
    assert ledger.opened_at_post == [0]
    assert sorted(cluster.opened) == [("train-0", "a"), ("train-1", "a")]
    assert gang(result, "train").charges == {"claims": 2, "gpus": 2}


async def test_a_gang_over_its_quota_waits_with_the_numbers_and_none_of_its_gates_opens() -> None:
    cluster, ledger = Cluster(a_cluster().node("a", gpus=8).queue("q", gpus=3).job("big", queue="q", pods=4)), Ledger()

    result = await run(a_leader(cluster, ledger))

    hold = gang(result, "big").hold
    assert hold is not None
    assert hold.reason == HoldReason.QUOTA_EXCEEDED
    assert (hold.details["left"], hold.details["needed"]) == ("3", "4")
    assert cluster.opened == []
    assert kinds(ledger) == []


async def test_a_gang_inside_its_quota_that_cannot_be_allocated_together_waits_as_a_whole() -> None:
    builder = a_cluster().node("a", gpus=4).node("b", gpus=1).queue("q", gpus=100)
    cluster, ledger = Cluster(builder.job("split", queue="q", pods=2, gpus=3)), Ledger()

    result = await run(a_leader(cluster, ledger))

    hold = gang(result, "split").hold
    assert hold is not None
    assert hold.reason == HoldReason.NO_FEASIBLE_PLACEMENT
    assert cluster.opened == []


async def test_a_gang_that_waits_is_admitted_whole_when_the_one_before_it_ends() -> None:
    builder = a_cluster().node("a", gpus=4).node("b", gpus=4).queue("q", gpus=100)
    cluster = Cluster(builder.job("first", queue="q", pods=1, gpus=3).job("then", queue="q", pods=2, gpus=3))
    ledger = Ledger()
    leader = a_leader(cluster, ledger)

    result = await run(leader)
    started = cluster.schedule(ledger.book)
    hold = gang(result, "then").hold
    assert hold is not None
    assert hold.reason == HoldReason.DEVICES_BUSY
    cluster.finish(started)
    await run(leader)
    result = await run(leader)

    assert {name for name, _ in cluster.opened} == {"first-0", "then-0", "then-1"}
    assert gang(result, "first").phase is Phase.FINISHED
    assert Kind.RELEASE in kinds(ledger)


async def test_an_allocated_claim_is_settled_and_its_charge_ends_with_the_claim() -> None:
    cluster, ledger = (
        Cluster(a_cluster().node("a", gpus=4).queue("q", gpus=4).job("train", queue="q", pods=2)),
        Ledger(),
    )
    leader = a_leader(cluster, ledger)

    await run(leader)
    started = cluster.schedule(ledger.book)
    await run(leader)
    assert ledger.book.usage()[QueueName("q")][GPUS] == (0, 2)
    cluster.finish(started)
    await run(leader)

    assert kinds(ledger) == [Kind.RESERVE, Kind.SETTLE, Kind.RELEASE]
    assert ledger.book.usage() == {}
    assert ledger.book.placements == {}


async def test_an_incomplete_gang_waits_for_its_last_pod() -> None:
    cluster = Cluster(a_cluster().node("a", gpus=4).queue("q", gpus=4).job("train", queue="q", pods=3, made=2))

    result = await run(a_leader(cluster, Ledger()))

    hold = gang(result, "train").hold
    assert hold is not None
    assert hold.reason == HoldReason.GANG_INCOMPLETE
    assert hold.details == {"pods": 2, "size": 3, "missing": 1, "due": "2026-11-21T11:06:00Z"}


async def test_a_missing_template_is_named() -> None:
    builder = a_cluster().node("a", gpus=4).queue("q", gpus=4).job("train", queue="q", claim=False)

    result = await run(a_leader(Cluster(builder), Ledger()))

    hold = gang(result, "train").hold
    assert hold is not None
    assert hold.reason == HoldReason.WAITING_FOR_CLAIMS
    assert "ResourceClaimTemplate team/x1 does not exist" in hold.message


async def test_a_gang_starts_once_the_claim_that_it_waited_for_is_there() -> None:
    cluster, ledger = Cluster(a_cluster().node("a", gpus=4).queue("q", gpus=4).job("train", queue="q")), Ledger()
    leader = a_leader(cluster, ledger)
    late = cluster._claims.pop("team/train-0-gpus")
    for _ in range(3):
        hold = gang(await run(leader), "train").hold
        assert hold is not None
        assert hold.reason == HoldReason.WAITING_FOR_CLAIMS

    cluster._claims |= {late.meta.key: late}
    await run(leader)

    assert cluster.opened == [("train-0", "a")]


STOPPED: dict[str, dict[str, Any]] = {
    "a stopped queue": {"stopPolicy": "Hold"},
    "a queue that is also drained": {"stopPolicy": "HoldAndDrain"},
}


@pytest.mark.parametrize("spec", STOPPED.values(), ids=STOPPED)
async def test_a_stopped_queue_admits_nothing(spec: dict[str, Any]) -> None:
    cluster = Cluster(a_cluster().node("a", gpus=4).queue("q", gpus=4, **spec).job("train", queue="q"))

    result = await run(a_leader(cluster, Ledger()))

    hold = gang(result, "train").hold
    assert hold is not None
    assert hold.reason == HoldReason.QUEUE_STOPPED


async def test_a_queue_in_a_cycle_is_inactive_and_its_condition_says_so() -> None:
    builder = (
        a_cluster().node("a", gpus=4).queue("q", gpus=4, parent="p").queue("p", parent="q").job("train", queue="q")
    )

    result = await run(a_leader(Cluster(builder), Ledger()))

    hold = gang(result, "train").hold
    assert hold is not None
    assert hold.reason == HoldReason.QUEUE_INACTIVE
    conditions = {report.name: report.conditions[0] for report in result.queues}
    assert conditions[QueueName("q")].status == "False"
    assert "its own ancestor" in conditions[QueueName("q")].message


async def test_a_strict_queue_does_not_let_a_small_gang_pass() -> None:
    builder = a_cluster().node("a", gpus=4).queue("q", gpus=3, queueingStrategy=QueueingStrategy.STRICT_FIFO.value)
    cluster = Cluster(builder.job("big", queue="q", pods=4).job("small", queue="q"))

    result = await run(a_leader(cluster, Ledger()))

    hold = gang(result, "small").hold
    assert hold is not None
    assert hold.reason == HoldReason.BEHIND_IN_ORDER
    assert [report.position for report in (gang(result, "big"), gang(result, "small"))] == [1, 2]


async def test_a_best_effort_queue_lets_a_small_gang_pass_a_held_gang() -> None:
    builder = a_cluster().node("a", gpus=4).queue("q", gpus=3).job("big", queue="q", pods=4).job("small", queue="q")
    cluster = Cluster(builder)

    await run(a_leader(cluster, Ledger()))

    assert cluster.opened == [("small-0", "a")]


async def test_two_gangs_of_one_cycle_do_not_get_the_same_devices() -> None:
    builder = (
        a_cluster().node("a", gpus=2).queue("q", gpus=4).job("one", queue="q", pods=2).job("two", queue="q", pods=2)
    )
    ledger = Ledger()

    result = await run(a_leader(Cluster(builder), ledger))

    assert len(result.granted) == 1
    hold = gang(result, "two").hold
    assert hold is not None
    assert hold.reason == HoldReason.DEVICES_BUSY


@pytest.mark.parametrize("opened", [0, 1, 2])
async def test_a_controller_killed_between_reservation_and_gates_is_finished_by_the_next(opened: int) -> None:
    builder = a_cluster().node("a", gpus=4).queue("q", gpus=4).job("train", queue="q", pods=3)
    cluster, ledger = Cluster(builder), Ledger()
    cluster.kill_after = opened
    with pytest.raises(ExceptionGroup):
        await run(a_leader(cluster, ledger, writes=1))
    assert kinds(ledger) == [Kind.RESERVE]

    cluster.kill_after = 10**6
    successor = a_leader(cluster, ledger)
    successor.term.begin(2)
    await ledger.fence(2)
    await run(successor)

    assert sorted(name for name, _ in cluster.opened) == ["train-0", "train-1", "train-2"]
    assert kinds(ledger) == [Kind.RESERVE]


async def test_a_deposed_leader_grants_nothing() -> None:
    cluster, ledger = Cluster(a_cluster().node("a", gpus=4).queue("q", gpus=4).job("train", queue="q")), Ledger()
    await ledger.fence(2)

    with pytest.raises(DeposedError):
        await run(a_leader(cluster, ledger))

    assert cluster.opened == []


async def test_while_the_ledger_is_away_nothing_is_granted_and_the_hold_says_so() -> None:
    cluster, ledger = Cluster(a_cluster().node("a", gpus=4).queue("q", gpus=4).job("train", queue="q")), Ledger()
    ledger.away = True
    leader = a_leader(cluster, ledger)

    result = await run(leader)
    hold = gang(result, "train").hold
    assert hold is not None
    assert hold.reason == HoldReason.LEDGER_UNAVAILABLE
    assert cluster.opened == []

    ledger.away = False
    await run(leader)
    assert cluster.opened == [("train-0", "a")]


async def test_a_gate_that_could_not_be_opened_is_opened_by_the_next_cycle() -> None:
    cluster, ledger = (
        Cluster(a_cluster().node("a", gpus=4).queue("q", gpus=4).job("train", queue="q", pods=2)),
        Ledger(),
    )
    cluster.refuse = {"train-1"}
    leader = a_leader(cluster, ledger)

    await run(leader)
    cluster.refuse = set()
    await run(leader)

    assert sorted(name for name, _ in cluster.opened) == ["train-0", "train-1"]
    assert kinds(ledger) == [Kind.RESERVE]


async def test_the_next_cycle_is_due_when_a_start_timeout_ends_of_a_gang_that_has_not_started() -> None:
    builder = a_cluster().node("a", gpus=4).queue("q", gpus=4, startTimeout="3m").job("train", queue="q", pods=2)
    cluster = Cluster(builder)
    leader = a_leader(cluster, Ledger())
    first = await run(leader)

    second = await run(leader, NOON + timedelta(minutes=1))
    late = await run(leader, NOON + timedelta(minutes=2))
    cluster.schedule(leader.mirror.book)
    await run(leader, NOON + timedelta(minutes=2, seconds=1))
    running = await run(leader, NOON + timedelta(minutes=2, seconds=2))

    assert first.granted
    assert second.next_try == late.next_try == NOON + timedelta(minutes=3)
    assert running.next_try != NOON + timedelta(minutes=3)


async def test_a_gang_that_does_not_start_is_evicted_whole_and_waits_out_its_back_off() -> None:
    builder = a_cluster().node("a", gpus=4).queue("q", gpus=4, startTimeout="1m", requeue={"base": "2m"})
    cluster, ledger = Cluster(builder.job("train", queue="q", pods=2)), Ledger()
    leader = a_leader(cluster, ledger)
    await run(leader)

    result = await run(leader, NOON + timedelta(minutes=1))
    assert kinds(ledger) == [Kind.RESERVE, Kind.EVICT]
    assert ledger.book.usage() == {}
    assert not cluster.snapshot().pods
    assert (await run(leader, NOON + timedelta(minutes=1))).gangs[0].phase is Phase.EVICTED
    assert result.next_try == NOON + timedelta(minutes=3)

    cluster.make_again(builder)
    result = await run(leader, NOON + timedelta(minutes=2))
    hold = gang(result, "train").hold
    assert hold is not None
    assert hold.reason == HoldReason.START_TIMED_OUT
    assert gang(result, "train").evictions == 1

    opened = len(cluster.opened)
    await run(leader, NOON + timedelta(minutes=3))
    assert len(cluster.opened) == opened + 2


async def test_the_next_leader_keeps_to_the_back_off() -> None:
    builder = a_cluster().node("a", gpus=4).queue("q", gpus=4, startTimeout="1m", requeue={"base": "2m"})
    cluster, ledger = Cluster(builder.job("train", queue="q", pods=1)), Ledger()
    leader = a_leader(cluster, ledger)
    await run(leader)
    await run(leader, NOON + timedelta(minutes=1))
    cluster.make_again(builder)
    await run(leader, NOON + timedelta(minutes=1))

    result = await run(a_leader(cluster, ledger), NOON + timedelta(minutes=2))

    hold = gang(result, "train").hold
    assert hold is not None
    assert hold.reason == HoldReason.START_TIMED_OUT


async def test_a_pod_that_comes_late_joins_its_started_gang() -> None:
    builder = a_cluster().node("a", gpus=4).queue("q", gpus=4).job("train", queue="q", pods=2)
    cluster, ledger = Cluster(builder), Ledger()
    leader = a_leader(cluster, ledger)
    await run(leader)
    cluster.schedule(ledger.book)
    await run(leader)

    late = builder.pod("train-2", queue="q", owner="job-train", job="train").snapshot()
    cluster._pods[Uid("pod-train-2")] = pod_of(late, "train-2")
    cluster._claims["team/train-2-gpus"] = late.claims["team/train-2-gpus"]
    await run(leader)

    assert cluster.opened[-1] == ("train-2", "a")
    assert kinds(ledger) == [Kind.RESERVE, Kind.SETTLE, Kind.RESERVE]


async def test_changed_quotas_become_grants_and_a_queue_that_is_gone_gives_its_quota_back() -> None:
    cluster, ledger = Cluster(a_cluster().queue("q", gpus=4, claims=10)), Ledger()
    leader = a_leader(cluster, ledger)
    await run(leader)
    assert ledger.book.nominal(QueueName("q"), GPUS) == 4

    cluster._rest = a_cluster().queue("q", gpus=6, claims=10).snapshot()
    await run(leader)
    assert ledger.book.nominal(QueueName("q"), GPUS) == 6

    cluster._rest = a_cluster().snapshot()
    await run(leader)
    assert ledger.book.nominal(QueueName("q"), GPUS) == 0


async def test_pods_that_name_different_queues_for_one_gang_are_refused() -> None:
    labels = {"muster.dev/gang": "pair"}
    builder = a_cluster().node("a", gpus=4).queue("q", gpus=4).queue("r", gpus=4)
    builder.pod("a", queue="q", labels=labels).pod("b", queue="r", labels=labels)

    result = await run(a_leader(Cluster(builder), Ledger()))

    (report,) = result.gangs
    assert report.hold is not None
    assert report.hold.reason == "PolicyViolation"


async def test_a_cycle_without_news_writes_nothing() -> None:
    cluster, ledger = Cluster(a_cluster().node("a", gpus=4).queue("q", gpus=4).job("train", queue="q")), Ledger()
    leader = a_leader(cluster, ledger)
    await run(leader)
    cluster.schedule(ledger.book)
    await run(leader)
    entries, opened = len(ledger.entries), len(cluster.opened)

    await run(leader)

    assert (len(ledger.entries), len(cluster.opened)) == (entries, opened)


def reborn(pod: Pod) -> Pod:
    """The pod as its Job makes it again."""
    return replace(pod, meta=replace(pod.meta, uid=Uid(f"{pod.meta.uid}-2")))


def owned_again(meta: Meta) -> Meta:
    """The metadata of a claim that is made for such a pod."""
    return replace(meta, owners=tuple(replace(owner, uid=Uid(f"{owner.uid}-2")) for owner in meta.owners))


async def test_a_gang_object_without_pods_is_held_as_incomplete_and_finished_once_its_pods_are_gone() -> None:
    cluster, ledger = Cluster(a_cluster().node("a", gpus=4).queue("q", gpus=4).job("train", queue="q")), Ledger()
    written = gangs.decode({"metadata": {"name": "soon", "namespace": "team"}, "spec": {"queue": "q", "size": 3}})
    cluster._gangs[written.meta.key] = written
    leader = a_leader(cluster, ledger)

    first = {report.name: report for report in (await run(leader)).gangs}
    hold = first["soon"].hold
    assert hold is not None
    assert (hold.reason, hold.details) == (HoldReason.GANG_INCOMPLETE, {"pods": 0, "size": 3})

    cluster._pods, cluster._claims, cluster._jobs = {}, {}, {}
    await run(leader)
    last = {report.workload.name: report for report in (await run(leader)).gangs if report.workload is not None}
    assert last["train"].phase is Phase.FINISHED


async def test_a_claim_policy_says_whether_it_is_applied() -> None:
    cluster = Cluster(a_cluster())
    cluster._rest = replace(cluster._rest, policies={"p": ClaimPolicy(meta=Meta(name="p", generation=2))})

    result = await run(a_leader(cluster, Ledger()))

    (report,) = [report for report in result.conditions if report.plural == "claimpolicies"]
    assert (report.generation, report.conditions[0].reason) == (2, "Applied")


async def test_a_gang_is_planned_again_only_when_something_has_changed_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = a_cluster().node("a", gpus=2).queue("q", gpus=100)
    builder.job("first", queue="q", pods=2).job("then", queue="q", pods=2).job("too", queue="q", pods=2)
    cluster, ledger = Cluster(builder), Ledger()
    leader = a_leader(cluster, ledger)
    asked: list[int] = []
    real = gang_planner.plan

    def plan(demands: Any, *arguments: Any, **options: Any) -> Any:
        asked.append(len(demands))
        return real(demands, *arguments, **options)

    monkeypatch.setattr(gang_planner, "plan", plan)
    await run(leader)
    started = cluster.schedule(ledger.book)
    await run(leader)
    asked.clear()

    result = await run(leader)
    assert asked == []
    assert {report.hold.reason for report in result.gangs if report.hold} == {HoldReason.DEVICES_BUSY}

    cluster.finish(started)
    await run(leader)
    await run(leader)
    assert asked
    assert {name for name, _ in cluster.opened} == {"first-0", "first-1", "then-0", "then-1"}


async def test_a_pod_that_lost_its_planned_device_to_another_still_takes_one() -> None:
    """kube-scheduler took the second pod first and gave it the first one's device. Seen when 200 pods were packed."""
    builder = a_cluster().node("a", gpus=4).queue("q", gpus=100).job("pair", queue="q", pods=2)
    cluster, ledger = Cluster(builder), Ledger()
    leader = a_leader(cluster, ledger)
    await run(leader)
    holdings = {h.claim: h for p in ledger.book.placements.values() for h in p.holdings.values()}
    late, early = holdings["team/pair-0-gpus"], holdings["team/pair-1-gpus"]
    assert late.devices != early.devices
    allocation = Allocation(devices=tuple(AllocatedDevice(given=given) for given in late.devices))
    cluster._claims[early.claim] = replace(cluster._claims[early.claim], allocation=allocation)

    three = builder.job("three", queue="q", pods=3).job("two", queue="q", pods=2).snapshot()
    cluster._pods |= {uid: pod for uid, pod in three.pods.items() if uid not in cluster._pods}
    cluster._claims |= {key: claim for key, claim in three.claims.items() if key not in cluster._claims}
    cluster._jobs |= three.jobs
    result = await run(leader)

    hold = gang(result, "three").hold
    assert hold is not None
    assert hold.reason == HoldReason.DEVICES_BUSY
    assert gang(result, "two").hold is None


async def test_a_meter_whose_cel_fails_on_a_device_says_so_in_its_condition() -> None:
    cluster = Cluster(a_cluster().node("a", gpus=2).queue("q", gpus=4))
    source = {"deviceClasses": [CLASS], "expression": {"cel": "device.attributes['gpu.example.com'].price"}}
    priced = meters.decode({"metadata": {"name": "cost"}, "spec": {"sources": [source]}})
    cluster._rest = replace(cluster._rest, meters={**cluster._rest.meters, priced.name: priced})

    result = await run(a_leader(cluster, Ledger()))

    (condition,) = [report.conditions[0] for report in result.conditions if report.name == "cost"]
    assert (condition.status, condition.reason) == ("False", "FailsOnDevices")
    assert "gpu-0" in condition.message


@pytest.mark.usefixtures("thread")
async def test_statuses_are_made_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a thousand queues they take a good part of a second, in which probes and the lease would not be served."""
    made_by: list[threading.Thread] = []
    made = QueueStatusCache.refresh

    def noted(*arguments: Any) -> Any:
        made_by.append(threading.current_thread())
        return made(*arguments)

    monkeypatch.setattr(QueueStatusCache, "refresh", noted)
    await run(a_leader(Cluster(a_cluster().queue("q", gpus=4)), Ledger()))

    assert made_by
    assert threading.current_thread() not in made_by
