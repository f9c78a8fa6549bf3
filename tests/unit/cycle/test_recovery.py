"""What goes wrong between a grant and the end of a gang, and that no promise breaks by it.

Each of these was once wrong.
"""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from admission.accounting import books
from admission.api.kubernetes import claims
from admission.api.kubernetes.claims import AllocatedDevice, Allocation
from admission.api.kubernetes.pods import Pod, PodClaim
from admission.api.muster.ledger_entries import Entry, Kind, Posted
from admission.api.values.names import GANG, GANG_SIZE, GATE, NodeName, QueueName, Uid
from admission.errors import ConflictError, GoneError, MalformedObjectError, Problem, RetryError
from tests.builders import NOON, ClusterBuilder, a_cluster, claim_manifest
from tests.unit.cycle.fences import KilledError
from tests.unit.cycle.test_cycle import GPUS, Cluster, Ledger, a_leader, gang, kinds, run

MINUTE = timedelta(minutes=1)
Q = QueueName("q")


def add(cluster: Cluster, builder: ClusterBuilder) -> None:
    """Put what a builder has into a cluster that runs."""
    more = builder.snapshot()
    cluster._pods |= more.pods
    cluster._claims |= more.claims


def share(cluster: Cluster, *pods: str) -> None:
    """Let these pods use one claim S, which is nobody's own."""
    for name in pods:
        uid = Uid(f"pod-{name}")
        cluster._pods[uid] = replace(cluster._pods[uid], claims=(PodClaim(name="s", claim="S"),))
    shared = claims.decode(claim_manifest("S", 1, owner="-"))
    cluster._claims.setdefault("team/S", replace(shared, meta=replace(shared.meta, owners=())))


def opened(cluster: Cluster) -> list[str]:
    return [name for name, _ in cluster.opened]


def let_in(cluster: Cluster) -> list[str]:
    return sorted(pod.meta.name for pod in cluster._pods.values() if not pod.gated)


class Refusing(Cluster):
    """Its disruption budget forbids every eviction, and its Jobs cannot be changed."""

    async def evict(self, pod: Pod, reason: str) -> None:  # noqa: ARG002 - a port
        raise RetryError("disruption budget")

    async def suspend(self, job: Any) -> None:  # noqa: ARG002 - a port
        raise RetryError("busy")


async def test_a_gang_that_lost_a_pod_while_the_controller_was_dead_is_requeued() -> None:
    cluster, ledger = (
        Cluster(a_cluster().node("a", gpus=4).queue("q", gpus=4).job("train", queue="q", pods=3)),
        Ledger(),
    )
    cluster.kill_after = 1
    with pytest.raises(ExceptionGroup):
        await run(a_leader(cluster, ledger))
    lost = next(pod for pod in cluster._pods.values() if pod.gated)
    del cluster._pods[lost.meta.uid]

    cluster.kill_after = 10**6
    await run(a_leader(cluster, ledger))

    assert len(cluster.opened) == 1
    assert Kind.EVICT in kinds(ledger)


async def test_a_pod_deleted_before_its_gate_opens_requeues_its_gang() -> None:
    class Losing(Cluster):
        async def open_gate(self, pod: Pod, node: NodeName | None) -> None:
            if pod.meta.name == "train-2":
                self._pods.pop(pod.meta.uid, None)
                self._claims.pop("team/train-2-gpus", None)
                raise GoneError("gone")
            await super().open_gate(pod, node)

    cluster, ledger = Losing(a_cluster().node("a", gpus=4).queue("q", gpus=4).job("train", queue="q", pods=3)), Ledger()
    leader = a_leader(cluster, ledger)

    for _ in range(3):
        await run(leader)

    assert let_in(cluster) == []
    assert ledger.book.usage() == {}


async def test_no_gate_opens_of_a_gang_that_has_just_been_evicted() -> None:
    builder = a_cluster().node("a", gpus=4).queue("q", gpus=4, startTimeout="1m", requeue={"base": "10m"})
    cluster, ledger = Cluster(builder.job("train", queue="q", pods=2)), Ledger()
    cluster.refuse = {"train-1"}
    leader = a_leader(cluster, ledger)
    await run(leader)

    cluster.refuse = set()
    await run(leader, NOON + MINUTE)

    assert kinds(ledger) == [Kind.RESERVE, Kind.EVICT]
    assert opened(cluster) == ["train-0"]


async def test_no_gate_opens_of_a_gang_whose_eviction_is_refused_and_the_loop_does_not_spin() -> None:
    builder = a_cluster().node("a", gpus=4).queue("q", gpus=4, startTimeout="1m").job("train", queue="q", pods=2)
    cluster, ledger = Refusing(builder), Ledger()
    cluster.refuse = {"train-1"}
    leader = a_leader(cluster, ledger)
    await run(leader)

    cluster.refuse = set()
    at = NOON + 2 * MINUTE
    result = await run(leader, at)

    assert opened(cluster) == ["train-0"]
    assert result.next_try is None or result.next_try > at
    assert gang(result, "train").evictions == 1
    assert gang(await run(leader, at + timedelta(seconds=1)), "train").evictions == 1, "it is still the same eviction"


async def test_a_pending_pod_that_cannot_end_does_not_make_the_loop_spin() -> None:
    builder = a_cluster().node("a", gpus=4).queue("q", gpus=4, startTimeout="1m").job("train", queue="q")
    cluster, ledger = Cluster(builder), Ledger()
    leader = a_leader(cluster, ledger)
    await run(leader)
    pod = cluster._pods[Uid("pod-train-0")]
    cluster._pods[pod.meta.uid] = replace(pod, meta=replace(pod.meta, deleted=NOON))

    at = NOON + 2 * MINUTE
    result = await run(leader, at)

    assert result.next_try is None or result.next_try > at


async def test_the_rest_of_a_gang_with_evicted_pods_is_not_admitted_pod_by_pod() -> None:
    """The view shows evicted pods for a moment as if nothing had happened; without a back-off that moment counts."""
    builder = a_cluster().node("a", gpus=4).queue("q", gpus=4, startTimeout="1m", requeue={"base": "0s"})
    cluster, ledger = Cluster(builder.job("train", queue="q", pods=3)), Ledger()
    cluster.refuse = {"train-1"}
    leader = a_leader(cluster, ledger)
    await run(leader)

    await run(leader, NOON + MINUTE)

    assert kinds(ledger) == [Kind.RESERVE, Kind.EVICT]


async def test_a_gang_named_as_an_earlier_gang_of_another_queue_is_held_and_stops_no_other() -> None:
    labels = {GANG: "g"}
    builder = a_cluster().node("a", gpus=8).queue("q", gpus=8).queue("r", gpus=8)
    cluster, ledger = Cluster(builder.pod("old", labels={**labels, GANG_SIZE: "1"})), Ledger()
    leader = a_leader(cluster, ledger)
    await run(leader)
    cluster.schedule(ledger.book)
    old = cluster._pods[Uid("pod-old")]
    cluster._pods[old.meta.uid] = replace(old, meta=replace(old.meta, deleted=NOON))
    add(cluster, a_cluster().pod("new", queue="r", labels={**labels, GANG_SIZE: "1"}).pod("innocent"))

    result = await run(leader)

    assert "innocent" in opened(cluster)
    holds = {report.name: report.hold for report in result.gangs}
    assert holds["g"] is not None
    assert "queue q" in holds["g"].message


async def test_an_entry_that_the_ledger_refuses_holds_its_own_gang_alone() -> None:
    class Picky(Ledger):
        async def post_all(self, entries: Any, **options: Any) -> list[Posted]:
            wrong = [e for e in entries if _reserves(e, "job-bad")]
            if wrong:
                raise ConflictError("made for another book")
            return await super().post_all(entries, **options)

    builder = a_cluster().node("a", gpus=8).queue("q", gpus=8).job("bad", queue="q").job("good", queue="q")
    cluster, ledger = Cluster(builder), Picky()

    result = await run(a_leader(cluster, ledger))

    assert opened(cluster) == ["good-0"]
    hold = gang(result, "bad").hold
    assert hold is not None
    assert hold.reason == "WaitingForClaims"


async def test_a_shared_claim_stays_charged_and_taken_while_a_pod_waits_for_the_claim() -> None:
    cluster = Cluster(a_cluster().node("a", gpus=1).queue("q", gpus=8).pod("one", gpus=0).pod("two", gpus=0))
    ledger = Ledger()
    share(cluster, "one", "two")
    leader = a_leader(cluster, ledger)
    await run(leader)
    assert ledger.book.usage()[Q][GPUS] == (1, 0)

    del cluster._pods[Uid("pod-one")]
    add(cluster, a_cluster().pod("three"))
    await run(leader)
    await run(leader)

    assert ledger.book.usage()[Q][GPUS] == (1, 0)
    assert "three" not in opened(cluster)

    del cluster._pods[Uid("pod-two")]
    await run(leader)
    await run(leader)
    assert "three" in opened(cluster)


async def test_an_eviction_leaves_the_claims_alone_that_others_wait_for() -> None:
    builder = a_cluster().node("a", gpus=1).queue("q", gpus=8, startTimeout="1m").queue("r", gpus=8)
    cluster, ledger = Cluster(builder.pod("one", gpus=0).pod("two", queue="r", gpus=0)), Ledger()
    share(cluster, "one", "two")
    leader = a_leader(cluster, ledger)
    await run(leader)

    await run(leader, NOON + MINUTE)

    assert Kind.EVICT in kinds(ledger)
    assert ledger.book.usage()[Q][GPUS] == (1, 0)


async def test_a_settled_claim_that_is_deallocated_under_a_waiting_pod_is_not_planned_again() -> None:
    """The first pod of a Job ends, the next was granted while the claim was allocated; then it is deallocated."""
    cluster = Cluster(a_cluster().node("a", gpus=1).queue("q", gpus=8).job("j", queue="q", gpus=0))
    ledger = Ledger()
    share(cluster, "j-0")
    cluster._jobs = {uid: replace(job, completions=3) for uid, job in cluster._jobs.items()}
    leader = a_leader(cluster, ledger)
    await run(leader)
    cluster.schedule(ledger.book)
    await run(leader)
    first = cluster._pods[Uid("pod-j-0")]
    cluster._pods[first.meta.uid] = replace(first, phase="Succeeded")
    later = replace(
        first,
        gates=(GATE,),
        node=NodeName(""),
        phase="Pending",
        meta=replace(first.meta, name="j-1", uid=Uid("pod-j-1")),
    )
    cluster._pods[later.meta.uid] = later
    await run(leader)
    assert "j-1" in opened(cluster)

    cluster._claims["team/S"] = replace(cluster._claims["team/S"], allocation=None, reserved_for=())
    add(cluster, a_cluster().pod("other"))
    await run(leader)
    await run(leader)

    assert "other" not in opened(cluster)


async def test_a_claim_allocated_again_is_booked_with_its_new_devices() -> None:
    cluster, ledger = Cluster(a_cluster().node("a", gpus=4).queue("q", gpus=4).job("train", queue="q")), Ledger()
    leader = a_leader(cluster, ledger)
    await run(leader)
    cluster.schedule(ledger.book)
    await run(leader)
    claim = cluster._claims["team/train-0-gpus"]
    assert claim.allocation is not None
    given = claim.allocation.devices[0].given
    other = replace(given, device=given.device._replace(device="gpu-3"))
    cluster._claims["team/train-0-gpus"] = replace(
        claim, allocation=Allocation(devices=(AllocatedDevice(given=other),))
    )

    await run(leader)
    await run(leader)

    (placement,) = ledger.book.placements.values()
    (holding,) = placement.holdings.values()
    assert holding.devices == (other,)
    assert kinds(ledger) == [Kind.RESERVE, Kind.SETTLE, Kind.ADJUST]
    assert ledger.book.usage()[Q][GPUS] == (0, 1)


async def test_a_named_gang_made_again_larger_waits_for_all_of_its_pods() -> None:
    two, four = ({GANG: "g", GANG_SIZE: size} for size in ("2", "4"))
    builder = a_cluster().node("a", gpus=8).queue("q", gpus=8).pod("a0", labels=two).pod("a1", labels=two)
    cluster, ledger = Cluster(builder), Ledger()
    leader = a_leader(cluster, ledger)
    await run(leader)
    cluster._pods.clear()
    cluster._claims.clear()
    await run(leader)
    add(cluster, a_cluster().pod("b0", labels=four).pod("b1", labels=four))

    await run(leader)

    assert sorted(opened(cluster)) == ["a0", "a1"]


SIZES = {
    "sizes that differ": ({GANG: "g", GANG_SIZE: "1"}, {GANG: "g", GANG_SIZE: "4"}, "different sizes (1, 4)"),
    "a size on one pod only": ({GANG: "g"}, {GANG: "g", GANG_SIZE: "2"}, "different sizes (none, 2)"),
    "no size at all": ({GANG: "g"}, {GANG: "g"}, "how large"),
}


@pytest.mark.parametrize(("one", "other", "said"), SIZES.values(), ids=SIZES)
async def test_a_named_gang_that_does_not_say_its_size_does_not_start(
    one: dict[str, str], other: dict[str, str], said: str
) -> None:
    builder = a_cluster().node("a", gpus=8).queue("q", gpus=8).pod("x", labels=one).pod("y", labels=other)
    cluster = Cluster(builder)

    result = await run(a_leader(cluster, Ledger()))

    assert cluster.opened == []
    (report,) = result.gangs
    assert report.hold is not None
    assert said in report.hold.message


async def test_a_claim_that_cannot_be_read_any_more_stays_charged_and_its_device_taken() -> None:
    cluster, ledger = Cluster(a_cluster().node("a", gpus=1).queue("q", gpus=1).pod("one").pod("two")), Ledger()
    leader = a_leader(cluster, ledger)
    await run(leader)
    cluster.schedule(ledger.book)
    await run(leader)
    key = f"team/{cluster.opened[0][0]}-gpus"
    del cluster._claims[key]
    error = MalformedObjectError("ResourceClaim", key, (Problem("status.allocation", "odd"),))
    cluster._rest = replace(cluster._rest, malformed={("ResourceClaim", key): error})

    await run(leader)
    await run(leader)

    assert len(cluster.opened) == 1
    assert ledger.book.usage()[Q][GPUS] == (0, 1)


async def test_the_message_of_a_back_off_does_not_change_with_every_second() -> None:
    builder = a_cluster().node("a", gpus=4).queue("q", gpus=4, startTimeout="1m", requeue={"base": "10m"})
    cluster, ledger = Cluster(builder.job("train", queue="q")), Ledger()
    leader = a_leader(cluster, ledger)
    await run(leader)
    await run(leader, NOON + MINUTE)
    cluster.make_again(builder)

    messages = set()
    for seconds in range(5):
        hold = gang(await run(leader, NOON + MINUTE + timedelta(seconds=seconds)), "train").hold
        assert hold is not None
        messages.add(hold.message)

    assert len(messages) == 1


async def test_gates_on_one_node_open_in_planned_order() -> None:
    class Slow(Cluster):
        async def open_gate(self, pod: Pod, node: NodeName | None) -> None:
            await asyncio.sleep(0.01 if not self.opened else 0)
            await super().open_gate(pod, node)

    cluster = Slow(a_cluster().node("a", gpus=4).queue("q", gpus=4).job("train", queue="q", pods=4))

    await run(a_leader(cluster, Ledger()))

    assert opened(cluster) == [f"train-{index}" for index in range(4)]


async def test_a_gang_that_is_refused_for_good_does_not_block_a_strict_queue() -> None:
    builder = a_cluster().node("a", gpus=4).queue("q", gpus=4, queueingStrategy="StrictFIFO")
    cluster = Cluster(builder.job("bad", queue="q").job("good", queue="q"))
    claim = cluster._claims["team/bad-0-gpus"]
    (request,) = claim.spec.requests
    unknown = tuple(replace(option, device_class="nobody.counts") for option in request.alternatives)
    spec = replace(claim.spec, requests=(replace(request, alternatives=unknown),))
    cluster._claims["team/bad-0-gpus"] = replace(claim, spec=spec)

    await run(a_leader(cluster, Ledger()))

    assert opened(cluster) == ["good-0"]


async def test_a_back_off_is_written_down_before_anything_is_deleted() -> None:
    """Killed when the eviction is posted: the successor neither forgets it nor counts it as never begun."""

    class Dying(Ledger):
        async def post_all(self, entries: Any, **options: Any) -> list[Posted]:
            if any(entry.kind is Kind.EVICT for entry in entries):
                raise KilledError
            return await super().post_all(entries, **options)

    builder = a_cluster().node("a", gpus=4).queue("q", gpus=4, startTimeout="1m", requeue={"base": "10m"})
    cluster, ledger = Cluster(builder.job("train", queue="q")), Dying()
    leader = a_leader(cluster, ledger)
    await run(leader)
    with pytest.raises(KilledError):
        await run(leader, NOON + MINUTE)
    cluster.make_again(builder)
    before = len(cluster.opened)

    result = await run(a_leader(cluster, ledger), NOON + MINUTE + timedelta(seconds=5))

    assert len(cluster.opened) == before
    hold = gang(result, "train").hold
    assert hold is not None
    assert hold.reason == "StartTimedOut"


async def test_a_requeued_job_is_suspended_and_resumed_when_its_pods_are_gone() -> None:
    builder = a_cluster().node("a", gpus=4).queue("q", gpus=4, startTimeout="1m").job("train", queue="q", pods=2)
    cluster, ledger = Cluster(builder), Ledger()
    leader = a_leader(cluster, ledger)
    await run(leader)
    ending = {uid: replace(pod, meta=replace(pod.meta, deleted=NOON + MINUTE)) for uid, pod in cluster._pods.items()}

    await run(leader, NOON + MINUTE)
    cluster._pods |= ending
    await run(leader, NOON + MINUTE)
    (job,) = cluster._jobs.values()
    assert job.suspended

    cluster._pods.clear()
    await run(leader, NOON + MINUTE)

    (job,) = cluster._jobs.values()
    assert not job.suspended
    assert job.meta.annotations == {}


async def test_the_evictions_of_a_recreated_gang_are_forgotten_once_the_gang_runs() -> None:
    builder = a_cluster().node("a", gpus=4).queue("q", gpus=4, startTimeout="1m", requeue={"base": "1s", "limit": 1})
    cluster, ledger = Cluster(builder.job("train", queue="q")), Ledger()
    leader = a_leader(cluster, ledger)
    await run(leader)
    await run(leader, NOON + MINUTE)
    cluster.make_again(builder)
    await run(leader, NOON + 2 * MINUTE)
    cluster.schedule(ledger.book)

    result = await run(leader, NOON + 2 * MINUTE)

    assert gang(result, "train").evictions == 0


async def test_while_the_ledger_is_away_no_gate_opens_from_a_book_that_may_be_out_of_date() -> None:
    builder = a_cluster().node("a", gpus=4).queue("q", gpus=4).job("train", queue="q", pods=2)
    cluster, ledger = Cluster(builder), Ledger()
    cluster.refuse = {"train-1"}
    leader = a_leader(cluster, ledger)
    await run(leader)
    (placement,) = ledger.book.placements.values()
    await ledger.post_all([books.evict(placement, at=NOON, actor="the successor", reason="-")], epoch=1)
    ledger.away = True
    cluster.refuse = set()
    cluster._rest = replace(cluster._rest, queues=a_cluster().queue("q", gpus=5).snapshot().queues)

    await run(leader)

    assert opened(cluster) == ["train-0"]


async def test_many_gangs_are_granted_in_portions_so_that_the_first_need_not_wait_for_the_last() -> None:
    builder = a_cluster().queue("q", gpus=1000, claims=1000)
    for number in range(20):
        builder.node(f"n{number}", gpus=8)
    for number in range(100):
        builder.job(f"j{number:03}", queue="q")
    cluster, ledger = Cluster(builder), Ledger()
    leader = a_leader(cluster, ledger)

    first = await run(leader)
    assert 0 < len(first.granted) < 100
    assert first.next_try == NOON
    second = await run(leader)

    assert len(first.granted) + len(second.granted) == 100
    assert second.next_try != NOON


def _reserves(entry: Entry, gang_uid: str) -> bool:
    return entry.kind is Kind.RESERVE and entry.gang_uid == gang_uid
