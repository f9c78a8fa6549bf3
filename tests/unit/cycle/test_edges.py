"""Gangs that were granted and cannot be placed as planned: taken back whole, planned anew, and not for ever at once."""

from dataclasses import replace
from typing import Any

import pytest

from admission import default_ports
from admission.accounting.books import Book
from admission.api.kubernetes import claims
from admission.api.kubernetes.pods import PodClaim
from admission.api.muster.gangs import Phase
from admission.api.muster.ledger_entries import Kind
from admission.api.values import names
from admission.api.values.names import GangUid
from admission.api.values.reasons import HoldReason
from admission.cycle import cycle
from admission.cycle.state.leader import Leader
from admission.errors import ForbiddenError, RetryError
from admission.simulation import in_memory
from tests.builders import CLASS, NOON, a_cluster, claim_manifest
from tests.unit.cycle.fences import MINUTE, SECOND, Cluster, a_gang, a_leader, cycles, everything_runs, kinds, report


def unprotected(cluster: Cluster, ledger: in_memory.Ledger) -> Leader:
    """The leader of a successor that has no fence."""
    leader = a_leader(cluster, ledger, epoch=2)
    return replace(leader, ports=replace(leader.ports, fences=default_ports.NoFences()))


def a_choosy_pair(*, choosy: str) -> Cluster:
    """Two pods and two devices, of which one pod can have the first only, and the other any."""
    labels, size = {names.GANG: "pair"}, {names.GANG_SIZE: "2"}
    builder = a_cluster().node("a", gpus=2).queue("q", gpus=8)
    for name in ("one", "two"):
        builder.pod(name, labels=labels, annotations=size)
    cluster = Cluster(builder)
    (key, piece), *_ = cluster._rest.slices.items()
    first, second = piece.devices
    first = replace(first, attributes={**first.attributes, "only": True})
    cluster._rest = replace(cluster._rest, slices={key: replace(piece, devices=(first, second))})
    manifest = claim_manifest(f"{choosy}-gpus", 1, owner=f"pod-{choosy}")
    has_it = f'"only" in device.attributes["{CLASS}"]'
    manifest["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = [{"cel": {"expression": has_it}}]
    cluster._claims[f"team/{choosy}-gpus"] = claims.decode(manifest)
    return cluster


@pytest.mark.parametrize(("choosy", "updated"), [("two", True), ("one", False)], ids=["it would not", "it would"])
async def test_a_freely_planned_gang_is_pinned_only_if_kube_scheduler_would_choose_the_same_devices(
    choosy: str, *, updated: bool
) -> None:
    """The leader died before it had written the first claim, and the fence is gone."""
    cluster, ledger = a_choosy_pair(choosy=choosy), in_memory.Ledger()
    cluster.fails = {f"allocate {name}-gpus": RetryError("it died") for name in ("one", "two")}
    await cycle.run(a_leader(cluster, ledger), NOON)
    assert cluster.devices() == {}
    await ledger.fence(2)

    await cycles(unprotected(cluster, ledger), 2, NOON + SECOND)

    assert cluster.done("open") == (["two", "one"] if updated else ["one", "two"])
    print([(e.kind, e.at, e.reason) for e in ledger.entries])
    assert kinds(ledger) == ([Kind.RESERVE, Kind.EVICT, Kind.RESERVE] if updated else [Kind.RESERVE])
    everything_runs(cluster, ledger, 2)


async def test_devices_of_a_gang_requeued_for_another_plan_go_to_no_gang_behind() -> None:
    cluster, ledger = a_choosy_pair(choosy="two"), in_memory.Ledger()
    cluster.fails = {f"allocate {name}-gpus": RetryError("it died") for name in ("one", "two")}
    await cycle.run(a_leader(cluster, ledger), NOON)
    await ledger.fence(2)
    later = a_cluster().pod("later").snapshot()
    cluster._pods |= {
        uid: replace(pod, meta=replace(pod.meta, created=NOON + SECOND)) for uid, pod in later.pods.items()
    }
    cluster._claims |= later.claims
    leader = unprotected(cluster, ledger)

    given_back = await cycle.run(leader, NOON + SECOND)
    assert kinds(ledger) == [Kind.RESERVE, Kind.EVICT]
    assert given_back.next_try == NOON + SECOND

    planned_anew = await cycle.run(leader, NOON + 2 * SECOND)

    assert cluster.done("open") == ["two", "one"]
    phases = {gang.name.partition("-")[0]: gang.phase for gang in (*given_back.gangs, *planned_anew.gangs)}
    assert phases == {"pair": Phase.RESERVED, "later": Phase.PENDING}


def a_hopeless_gang() -> Cluster:
    """A claim that others had allocated before has lost its device: every plan is right, and none can start."""
    cluster = Cluster(a_gang(pods=1, requeue={"base": "10m"}))
    pod = cluster.pod("train-0")
    cluster._pods[pod.meta.uid] = replace(pod, claims=(*pod.claims, PodClaim(name="old", claim="old")))
    given = claims.decode_allocation(
        {"devices": {"results": [{"request": "gpus", "driver": CLASS, "pool": "a", "device": "gone"}]}}
    )
    old = claims.decode(claim_manifest("old", 1, owner="-"))
    cluster._claims["team/old"] = replace(old, meta=replace(old.meta, owners=()), allocation=given)
    return cluster


async def test_a_gang_that_repeatedly_cannot_be_placed_as_planned_backs_off() -> None:
    cluster, ledger = a_hopeless_gang(), in_memory.Ledger()
    leader = a_leader(cluster, ledger)

    for seconds in range(20):
        await cycle.run(leader, NOON + seconds * SECOND)

    hold = report(await cycle.run(leader, NOON + MINUTE)).hold
    assert hold is not None
    assert hold.reason is HoldReason.PLACEMENT_FAILED
    assert "device gpu.example.com/a/gone of claim team/old is gone" in hold.message
    assert str(hold.details["nextTry"]) > "2026-11-21T12:10:00Z"
    assert kinds(ledger) == [Kind.RESERVE, Kind.EVICT] * 4
    assert cluster.devices() == {"old": ["a/gone"]}


async def test_repeated_grants_and_evictions_are_each_booked_while_the_clock_is_behind() -> None:
    """Were the time the same each time, the second reservation would pass for the first one, posted once more."""
    ledger = in_memory.Ledger()
    leader = a_leader(a_hopeless_gang(), ledger)
    await cycle.run(leader, NOON)

    for seconds in range(20):
        await cycle.run(leader, NOON - MINUTE + seconds * SECOND)

    assert kinds(ledger) == [Kind.RESERVE, Kind.EVICT] * 4
    assert leader.mirror.book == ledger.book == Book.replay(ledger.entries)


async def test_after_a_write_that_was_refused_the_hold_says_so() -> None:
    cluster, ledger = Cluster(a_gang(requeue={"base": "1m"})), in_memory.Ledger()
    cluster.fails["allocate train-1-gpus"] = ForbiddenError("grant verb patch on resource resourceclaims/binding")
    leader = a_leader(cluster, ledger)

    hold = report(await cycles(leader, 2)).hold

    assert hold is not None
    assert hold.reason is HoldReason.PLACEMENT_FAILED
    assert hold.message == (
        "it could not be placed: grant verb patch on resource resourceclaims/binding (once so far);"
        " it is tried again at 2026-11-21T12:01:00Z"
    )


async def test_a_gang_that_did_not_start_in_time_has_no_failure_in_its_back_off() -> None:
    cluster, ledger = Cluster(a_gang(startTimeout="1m", requeue={"base": "1h", "limit": 0})), in_memory.Ledger()
    cluster.fails["allocate train-1-gpus"] = RetryError("the API server does not answer")
    leader = a_leader(cluster, ledger)
    await cycle.run(leader, NOON)
    result = await cycles(leader, 2, NOON + MINUTE)

    assert [one.evictions for one in result.gangs] == [1]
    assert leader.evictions.backoffs[GangUid("job-train")].failure == ""


async def test_while_a_reserved_gang_cannot_be_placed_its_status_says_why() -> None:
    cluster, ledger = Cluster(a_gang()), in_memory.Ledger()
    cluster.fails["allocate train-1-gpus"] = RetryError("the API server does not answer")
    leader = a_leader(cluster, ledger)

    for _ in range(2):
        hold = report(await cycle.run(leader, NOON)).hold
        assert hold is not None
        assert "the API server does not answer" in hold.message
    cluster.fails.clear()

    assert report(await cycle.run(leader, NOON)).hold is None


@pytest.mark.parametrize("protected", [True, False])
async def test_a_pod_deleted_before_its_gang_runs_requeues_the_whole_gang(*, protected: bool) -> None:
    """Its finalizer keeps it there; without it the others would run as a part of their gang."""
    cluster, ledger = Cluster(a_gang()), in_memory.Ledger()
    cluster.fails = {f"{what} train-{n}": RetryError("busy") for what in ("open",) for n in range(3)}
    leader = a_leader(cluster, ledger) if protected else unprotected(cluster, ledger)
    await cycle.run(leader, NOON)
    pod = cluster.pod("train-1")
    cluster._pods[pod.meta.uid] = replace(pod, meta=replace(pod.meta, deleted=NOON, finalizers=("example.org/keep",)))
    cluster.fails.clear()

    result = await cycles(leader, 3)

    assert cluster.done("open") == []
    assert cluster.devices() == {}
    assert ledger.book.usage() == {}
    hold = next(iter(result.gangs)).hold
    assert hold is None or hold.reason is HoldReason.GANG_INCOMPLETE


HUGE: dict[str, dict[str, Any]] = {
    "start timeout": {"startTimeout": "99999999h"},
    "back-off": {"startTimeout": "1m", "requeue": {"base": "99999999h", "max": "99999999h"}},
}


@pytest.mark.parametrize("spec", HUGE.values(), ids=HUGE)
async def test_times_beyond_the_calendar_end_nothing(spec: dict[str, Any]) -> None:
    cluster, ledger = Cluster(a_gang(**spec)), in_memory.Ledger()
    leader = a_leader(cluster, ledger)
    await cycle.run(leader, NOON)

    result = await cycle.run(leader, NOON + 2 * MINUTE)

    assert result.next_try is not None


async def test_a_runtime_beyond_the_calendar_ends_nothing() -> None:
    builder = (
        a_cluster().node("a", gpus=1).queue("q", gpus=8, budgets=[{"meter": "gpus", "hours": "100", "period": "Month"}])
    )
    builder.job("train", queue="q", annotations={names.RUNTIME: "99999999h"}).job("good", queue="q")
    cluster, ledger = Cluster(builder), in_memory.Ledger()

    result = await cycle.run(a_leader(cluster, ledger), NOON)

    hold = report(result).hold
    assert hold is not None
    assert hold.reason is HoldReason.BUDGET_EXHAUSTED
    assert cluster.let_in() == ["good-0"]
