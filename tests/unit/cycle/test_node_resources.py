"""What pods request of nodes through whole cycles: pods without claims are gangs like any other on such meters."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from admission.accounting.books import Book
from admission.api.kubernetes import pods as kubernetes_pods
from admission.api.muster import meters
from admission.api.muster.ledger_entries import Holding, Kind
from admission.api.muster.meters import Meter
from admission.api.muster.queues import PlacementMode
from admission.api.values import names
from admission.api.values.names import GangUid, MeterName, QueueName, Uid
from admission.api.values.reasons import HoldReason
from admission.cycle.state import pending_pods
from admission.dra.metering import device_meters
from admission.lifecycle import reconciliation, transitions
from admission.lifecycle.reconciliation import Author, DifferenceKind
from admission.simulation import opening_balance
from admission.workloads import gangs
from tests.builders import CLASS, NOON, ClusterBuilder, running
from tests.unit.cycle.jobs import Jobs, Play
from tests.unit.cycle.suspended import a_play
from tests.unit.cycle.test_cycle import Cluster, Ledger, a_leader, gang, kinds, run
from tests.unit.simulation.simulated import node, teams
from tests.unit.simulation.test_replay import play, row, starts, town

Q, CREDITS = QueueName("q"), MeterName("credits")
GIB = 1 << 30


def a_meter(*resources: dict[str, Any], price: str = "") -> Meter:
    """Return the meter `credits`; price: what a device costs on it as well."""
    sources = [{"deviceClasses": [CLASS], "expression": {"cel": price}}] if price else []
    spec = {"resources": list(resources), "sources": sources}
    return meters.decode({"metadata": {"name": "credits", "generation": 1}, "spec": spec})


CORES, HALF = {"name": "cpu"}, {"name": "memory", "per": "8Gi"}


class Team(ClusterBuilder):
    """A queue with a quota of credits, and Jobs whose pods request resources of nodes."""

    def __init__(self, credits_: int, *resources: dict[str, Any], price: str = "", **spec: Any) -> None:
        super().__init__()
        self._meters.append(a_meter(*(resources or (CORES,)), price=price))
        quotas = [{"meter": name, "nominal": "100"} for name in ("claims", "gpus")]
        self.queue("q", quotas=[*quotas, {"meter": "credits", "nominal": str(credits_)}], **spec)

    def asking(self, name: str, *, pods: int = 1, gpus: int = 0, spec: Any = None, **requests: str) -> "Team":
        self.job(name, queue="q", pods=pods, gpus=gpus)
        wanted = {"containers": [{"name": "main", "resources": {"requests": requests}}], **(spec or {})}
        asked = kubernetes_pods.decode({"metadata": {"name": "-"}, "spec": wanted})
        for at, pod in enumerate(self._pods):
            if pod.meta.name.rpartition("-")[0] == name:
                self._pods[at] = replace(pod, requests=asked.requests, containers=asked.containers)
        return self


def usage(ledger: Ledger) -> tuple[int, int]:
    return ledger.book.usage().get(Q, {}).get(CREDITS, (0, 0))


async def test_pods_without_claims_are_reserved_settled_at_their_binding_and_released_with_their_end() -> None:
    builder = Team(4).node("a").asking("train", pods=2, cpu="2").asking("next", cpu="1")
    cluster, ledger = Cluster(builder), Ledger()
    leader = a_leader(cluster, ledger)

    first = await run(leader)
    assert usage(ledger) == (4, 0)
    assert gang(first, "train").charges == {"credits": 4}
    hold = gang(first, "next").hold
    assert hold is not None
    assert hold.reason == HoldReason.QUOTA_EXCEEDED
    assert (hold.details["left"], hold.details["needed"]) == ("0", "1")

    started = cluster.schedule(ledger.book)
    await run(leader)
    assert usage(ledger) == (0, 4)
    uid = names.resources_claim(Uid("pod-train-0"))
    assert ledger.book.placements[GangUid("job-train")].holdings[uid] == Holding(
        claim_uid=uid, claim="team/train-0", devices=(), charge={CREDITS: 2}, settled=True, classes={"cpu": 2000}
    )
    cluster.finish(started[:1])
    await run(leader)

    assert usage(ledger) == (1, 2)
    assert kinds(ledger) == [Kind.RESERVE, Kind.SETTLE, Kind.RELEASE, Kind.RESERVE]


CHARGES: dict[str, tuple[tuple[dict[str, Any], ...], dict[str, Any], int]] = {
    "cores": ((CORES,), {"cpu": "3"}, 3),
    "thousandths of a core": (({"name": "cpu", "per": "1m"},), {"cpu": "1500m"}, 1500),
    "a part of a core is a whole one": ((CORES,), {"cpu": "1500m"}, 2),
    "the sum is rounded up, not its parts": ((CORES, HALF), {"cpu": "500m", "memory": "4Gi"}, 1),
    "a factor": (({"name": "cpu", "per": 2, "factor": 3},), {"cpu": "4"}, 6),
    "every pod": (({"name": "pods"},), {"cpu": "4"}, 1),
    "memory by the byte": (({"name": "memory"},), {"memory": "1Gi"}, GIB),
    "huge pages": (({"name": "hugepages-2Mi", "per": "2Mi"},), {"hugepages-2Mi": "8Mi", "memory": "1"}, 4),
    "disks": (({"name": "ephemeral-storage", "per": "1Gi"},), {"ephemeral-storage": "10G"}, 10),
    "what nothing counts is free": ((HALF,), {"cpu": "4"}, 0),
    "an init container that needs more": (
        (CORES,),
        {"cpu": "1", "spec": {"initContainers": [{"name": "i", "resources": {"requests": {"cpu": "5"}}}]}},
        5,
    ),
    "a sidecar beside": (
        (CORES,),
        {
            "cpu": "1",
            "spec": {
                "initContainers": [{"name": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "5"}}}]
            },
        },
        6,
    ),
    "requests of the pod instead, and overhead": (
        (CORES,),
        {"cpu": "1", "spec": {"resources": {"requests": {"cpu": "2"}}, "overhead": {"cpu": "1"}}},
        3,
    ),
}


@pytest.mark.parametrize(("resources", "asked", "charge"), CHARGES.values(), ids=CHARGES)
@pytest.mark.parametrize("placement", [PlacementMode.AUTO, PlacementMode.COUNT])
async def test_a_pod_is_charged_what_kube_scheduler_counts_at_the_rates_of_the_meter(
    resources: tuple[dict[str, Any], ...], asked: dict[str, Any], charge: int, placement: PlacementMode
) -> None:
    builder = Team(2 * GIB, *resources, placement=str(placement)).node("a").asking("train", pods=2, **asked)
    more = {"hugepages-2Mi": GIB, "ephemeral-storage": 1000 * GIB}
    builder._nodes = [replace(one, allocatable={**(one.allocatable or {}), **more}) for one in builder._nodes]
    cluster, ledger = Cluster(builder), Ledger()

    result = await run(a_leader(cluster, ledger))

    assert gang(result, "train").charges == ({"credits": 2 * charge} if charge else {})
    assert len(cluster.opened) == 2


async def test_devices_and_resources_draw_on_one_quota() -> None:
    builder = Team(20, CORES, price="4").node("a", gpus=8)
    builder.asking("large", gpus=3, cpu="2").asking("small", gpus=1, cpu="3").asking("plain", cpu="1")
    cluster, ledger = Cluster(builder), Ledger()

    result = await run(a_leader(cluster, ledger))

    assert gang(result, "large").charges[CREDITS] == 14
    hold = gang(result, "small").hold
    assert hold is not None
    assert (hold.details["left"], hold.details["needed"]) == ("6", "7")
    assert gang(result, "plain").charges == {"credits": 1}
    assert usage(ledger) == (15, 0)


async def test_a_gang_without_claims_waits_for_room_on_nodes_but_under_placement_count() -> None:
    def scene(placement: str) -> tuple[Cluster, Ledger]:
        builder = Team(100, placement=placement).node("a", cpu="4").node("b", cpu="1")
        return Cluster(builder.asking("train", pods=2, cpu="3")), Ledger()

    cluster, ledger = scene("Auto")
    hold = gang(await run(a_leader(cluster, ledger)), "train").hold
    assert hold is not None
    assert hold.reason == HoldReason.NO_FEASIBLE_PLACEMENT
    assert "needs 3000m cpu; the most that is left on a node where it may go is 1000m" in hold.message
    assert "after train-0 went to a" in hold.message
    assert cluster.opened == []

    cluster, ledger = scene("Count")
    await run(a_leader(cluster, ledger))
    assert usage(ledger) == (6, 0)
    assert sorted(cluster.opened) == [("train-0", None), ("train-1", None)]


async def test_a_meter_that_does_not_exist_may_count_cpu_so_gangs_without_claims_wait_for_it() -> None:
    builder = Team(4).node("a").asking("train", cpu="1")
    builder._meters.pop()

    hold = gang(await run(a_leader(Cluster(builder), Ledger())), "train").hold

    assert hold is not None
    assert (hold.reason, hold.details["meter"]) == (HoldReason.QUEUE_INACTIVE, "credits")


async def test_a_pod_is_settled_as_it_was_stored_when_it_was_bound() -> None:
    """A gated pod may be resized, and the plan be made just before."""
    cluster, ledger = Cluster(Team(8).node("a").asking("train", cpu="2")), Ledger()
    leader = a_leader(cluster, ledger)
    await run(leader)
    cluster.schedule(ledger.book)
    uid = Uid("pod-train-0")
    cluster._pods[uid] = replace(cluster._pods[uid], requests={"cpu": 5000, "pods": 1})

    await run(leader)

    assert usage(ledger) == (0, 5)


async def test_a_bound_pod_that_takes_more_is_adjusted_and_one_whose_meter_changed_is_not() -> None:
    cluster, ledger = Cluster(Team(8).node("a").asking("train", cpu="2").asking("other", cpu="1")), Ledger()
    leader = a_leader(cluster, ledger)
    await run(leader)
    cluster.schedule(ledger.book)
    await run(leader)
    assert usage(ledger) == (0, 3)

    cluster._rest = replace(cluster._rest, meters={**cluster._rest.meters, CREDITS: a_meter({**CORES, "factor": 10})})
    await run(leader)
    assert usage(ledger) == (0, 3), "what was settled at another rate stays so"
    uid = Uid("pod-train-0")
    cluster._pods[uid] = replace(cluster._pods[uid], requests={"cpu": 3000, "pods": 1})
    await run(leader)

    assert usage(ledger) == (0, 31)
    assert kinds(ledger)[-1] is Kind.ADJUST


def test_the_opening_balance_charges_running_pods_without_claims() -> None:
    snapshot = Team(8).node("a").asking("train", pods=2, cpu="2").snapshot()
    snapshot = replace(snapshot, pods={uid: running(pod, "a") for uid, pod in snapshot.pods.items()})

    book = Book.replay(opening_balance.entries(gangs.groups(snapshot, {}), snapshot, at=NOON, actor="test"))

    assert book.usage()[Q][CREDITS] == (0, 4)


def test_reconciliation_finds_pods_that_ran_before_the_meter_counted_them_and_books_them() -> None:
    snapshot = Team(8).node("a").asking("train", pods=2, cpu="2", memory="1Gi").snapshot()
    snapshot = replace(snapshot, pods={uid: running(pod, "a") for uid, pod in snapshot.pods.items()})
    compiled = device_meters.compile_meters(snapshot.meters.values())
    observed = transitions.ObservedAllocations.from_snapshot(snapshot, compiled)
    unbooked = [one for one in reconciliation.differences(Book(), observed) if one.kind is DifferenceKind.NOT_BOOKED]

    assert [(one.subject, one.books, one.cluster) for one in unbooked] == [
        (f"Pod team/train-{at}", "nothing", f"2 cpu for credits 2, for pod team/train-{at}") for at in range(2)
    ]
    author = Author(at=NOON, actor="ops", reason="a new meter")
    book = Book.replay(reconciliation.corrections(Book(), observed, unbooked, author))
    assert book.usage()[Q][CREDITS] == (0, 4)
    again = reconciliation.differences(book, observed)
    assert [one.kind for one in again] == [DifferenceKind.QUOTA] * 3


async def test_a_resize_in_place_is_charged_when_the_kubelet_gives_it_and_given_back_in_the_same_way() -> None:
    cluster, ledger = Cluster(Team(3).node("a").asking("train", cpu="2")), Ledger()
    leader, uid = a_leader(cluster, ledger), Uid("pod-train-0")
    await run(leader)
    cluster.schedule(ledger.book)
    await run(leader)

    async def seen(wanted: int, given: int) -> tuple[int, int]:
        taken = {"cpu": given, "pods": 1}
        cluster._pods[uid] = replace(cluster._pods[uid], requests={"cpu": wanted, "pods": 1}, given=taken)
        await run(leader)
        return usage(ledger)

    assert await seen(5000, 2000) == (0, 2)
    assert await seen(5000, 5000) == (0, 5), "what a pod has is charged, whatever the quota"
    assert await seen(5000, 1000) == (0, 1)
    assert [kind for kind in kinds(ledger) if kind is Kind.ADJUST] == [Kind.ADJUST] * 2


@pytest.mark.parametrize("quota", [4, 100], ids=["for quota", "for room on nodes"])
async def test_a_gang_without_claims_of_higher_priority_evicts_one_of_lower(quota: int) -> None:
    cluster = Jobs(Team(quota, preemption={"withinQueue": "LowerPriority"}).node("a", cpu="4"))
    made = Play(cluster)
    cluster.submit("low", queue="q", pods=2, gpus=0, cpu="2")
    await made.forget_changes(2)
    assert cluster.running() == {"low"}

    cluster.submit("high", queue="q", gpus=0, cpu="3", priority=10)
    await made.forget_changes()
    assert made.evicted == [("low", "Preempted", "high")]
    await made.forget_changes(4)

    assert cluster.running() == {"high"}
    assert made.ledger.book.usage()[Q][CREDITS] == (0, 3)


async def test_an_evicted_gang_without_claims_is_charged_until_its_pods_are_gone_after_their_grace() -> None:
    cluster = Jobs(Team(4, preemption={"withinQueue": "LowerPriority"}).node("a", cpu="8"), graceful=True)
    made = Play(cluster)
    cluster.submit("low", queue="q", pods=2, gpus=0, cpu="2")
    await made.forget_changes(2)
    cluster.submit("high", queue="q", gpus=0, cpu="3", priority=10)
    await made.forget_changes(4)
    assert made.evicted == [("low", "Preempted", "high")]
    assert made.ledger.book.usage()[Q][CREDITS] == (0, 4)

    cluster.end_grace()
    await made.forget_changes(3)

    assert made.ledger.book.usage()[Q][CREDITS] == (0, 3)


async def test_gangs_without_claims_borrow_of_what_others_leave_idle() -> None:
    builder = Team(1, parent="top").queue("top", quotas=[]).node("a")
    builder.queue("other", parent="top", quotas=[{"meter": "credits", "nominal": "4", "lendingLimit": "2"}])
    cluster, ledger = Cluster(builder.asking("small", pods=3, cpu="1").asking("more", cpu="1")), Ledger()

    result = await run(a_leader(cluster, ledger))

    assert usage(ledger) == (3, 0)
    hold = gang(result, "more").hold
    assert hold is not None
    assert (hold.reason, hold.details["potential"]) == (HoldReason.QUOTA_EXCEEDED, "3")


async def test_a_budget_pays_for_cores_over_time() -> None:
    budget = {"meter": "credits", "hours": "3", "period": "Day"}
    builder = Team(8, budgets=[budget], defaultRuntime="1h").node("a")
    cluster, ledger = Cluster(builder.asking("large", pods=2, cpu="2").asking("small", pods=2, cpu="1")), Ledger()
    leader = a_leader(cluster, ledger)

    hold = gang(await run(leader), "large").hold
    assert hold is not None
    assert (hold.reason, hold.details["left"], hold.details["needed"]) == (HoldReason.BUDGET_EXHAUSTED, "3", "4")
    cluster.schedule(ledger.book)
    await run(leader)
    await run(leader, NOON + timedelta(hours=1))

    assert [entry for entry in ledger.entries if entry.kind is Kind.USAGE][-1].postings[1].amount == 2 * 3600


@pytest.mark.parametrize(("stored", "charge"), [("1", 2), ("2", 4)], ids=["as planned", "with more by a LimitRange"])
async def test_a_held_workload_without_claims_is_charged_once_and_as_its_pods_are_stored(
    stored: str, charge: int
) -> None:
    cluster, made = a_play(Team(4, holdAt="Workload").node("a"))
    cluster.submit_held("train", queue="q", pods=2, gpus=0)
    await made.forget_changes()
    assert made.ledger.book.usage()[Q][CREDITS] == (2, 0)
    cluster.made["train"]["cpu"] = stored
    cluster.make_pods()

    await made.forget_changes(4)

    assert cluster.running() == {"train"}
    assert made.ledger.book.usage()[Q][CREDITS] == (0, charge)
    classes = [one.classes for one in made.ledger.book.placements[GangUid("job-train")].holdings.values()]
    assert classes == [{"cpu": int(stored) * 1000}] * 2


def test_a_trace_of_jobs_without_claims_is_played_on_the_same_quota() -> None:
    rate = {"unit": "core", "resources": [{"name": "cpu"}]}
    meter = {"apiVersion": "muster.dev/v1alpha1", "kind": "Meter", "metadata": {"name": "gpus"}, "spec": rate}
    place = town([one for one in teams(4) if one["kind"] != "Meter"], [meter], node("one", 0))
    asked = {"first": (0, 10, "2"), "head": (1, 10, "3500m"), "short": (2, 8, "2"), "long": (3, 9, "2")}
    rows = [
        row(name, arrival, runtime, claims=[], requests={"cpu": cpu}) for name, (arrival, runtime, cpu) in asked.items()
    ]

    assert starts(play(place, *rows)) == {"first": 0, "head": 10, "short": 2, "long": 20}, "the head is not delayed"


@pytest.mark.parametrize(("phase", "uses"), [("Running", True), ("Failed", False), ("", False)])
async def test_a_workload_is_not_planned_again_while_pods_of_an_earlier_life_take_cores(phase: str, uses: bool) -> None:
    cluster, ledger = Cluster(Team(4).node("a").asking("train", cpu="2")), Ledger()
    leader = a_leader(cluster, ledger)
    await run(leader)
    cluster.schedule(ledger.book)
    await run(leader)
    (placement,) = ledger.book.placements.values()
    snapshot = cluster.snapshot()
    pods = {uid: replace(pod, phase=phase) for uid, pod in snapshot.pods.items() if phase}

    assert pending_pods._is_used(replace(placement, seats={}), replace(snapshot, pods=pods)) is uses
