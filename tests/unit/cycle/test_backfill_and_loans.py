"""Reservations between queues that lend each other: an owner's binds borrowers, a borrower's binds no owner."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from admission.api.values.reasons import HoldReason
from admission.simulation.replay.arrivals import Waiting
from admission.simulation.replay.cluster import Clock
from admission.simulation.replay.queue import Muster
from tests import readers
from tests.builders import NOON, a_cluster
from tests.property.test_replay import Controlled
from tests.unit.cycle.fences import report
from tests.unit.cycle.jobs import Jobs, Play
from tests.unit.simulation.simulated import Objects, expand, node, teams
from tests.unit.simulation.test_replay import play, queue, row, starts, town, trace

TOP = {"parent": "top"}


def parts(gpus: int = 8, borrower: int = 0, **owner: Any) -> list[Objects]:
    """One node, an owner of 8 devices, and beside it a queue of less."""
    beside = [queue("borrower", borrower, **TOP), queue("owner", 8, **TOP, **owner)]
    return [teams(0), queue("top", 0), *beside, node("one", gpus)]


K = row("k", 0, 50, queue="borrower")
H = row("h", 1, 50, queue="borrower", gpus=8)
"""What runs on a loan, and who waits for a larger one until that ends."""


def owned(gpus: int) -> dict[str, Any]:
    return row("w", 2, 100, queue="owner", gpus=gpus)


@pytest.mark.parametrize("owner", [{}, {"preemption": {"reclaim": "Any"}}, {"lending": "Always"}], ids=str)
def test_an_owner_starts_on_its_own_quota_though_that_is_reserved_for_a_borrower(owner: dict[str, Any]) -> None:
    rows = [K, H, owned(1)]

    assert starts(play(town(*parts(**owner)), *rows)) == {"k": 0, "h": 102, "w": 2}
    found = asyncio.run(Controlled(expand(*parts(**owner))).starts(trace(rows)))
    assert found == {"k": 0, "h": 102, "w": 2}


@pytest.mark.parametrize("priority", [0, 9])
def test_an_owner_takes_back_what_is_lent_though_a_borrower_waits_for_more(priority: int) -> None:
    place = town(*parts(preemption={"reclaim": "Any"}))

    found = starts(play(place, K, {**H, "priority": priority}, owned(8)))

    assert found["w"] == 2


async def test_a_borrower_of_a_higher_priority_is_told_why_an_owner_is_ahead_of_it() -> None:
    builder = a_cluster().node("n", gpus=4).queue("top", gpus=0).queue("borrower", gpus=0, parent="top")
    cluster = Jobs(builder.queue("owner", gpus=2, parent="top"))
    run = Play(cluster)
    cluster.submit("u", queue="owner", annotations={"muster.dev/runtime": "1h"})
    await run.forget_changes(3)
    cluster.submit("w", queue="owner", gpus=2)
    await run.forget_changes(2)

    cluster.submit("b", queue="borrower", priority=9)
    hold = readers.report_in_full(report(await run.forget_changes(), "b")).hold

    assert hold is not None
    assert hold.reason is HoldReason.BEHIND_IN_ORDER
    assert "is ahead of it, since it stays within its own quota where this borrows, and is to start at" in hold.message


async def test_the_controller_evicts_a_borrower_though_another_one_has_a_reservation() -> None:
    builder = a_cluster().node("n", gpus=2).queue("top", gpus=0).queue("borrower", gpus=0, parent="top")
    cluster = Jobs(builder.queue("owner", gpus=2, parent="top", preemption={"reclaim": "Any"}))
    run = Play(cluster)
    cluster.submit("k", queue="borrower", annotations={"muster.dev/runtime": "1h"})
    await run.forget_changes(3)
    cluster.submit("h", queue="borrower", gpus=2, priority=9)
    await run.forget_changes(2)
    assert run.leader.backfill.estimates, "h is to start when k ends"

    cluster.submit("w", queue="owner", gpus=2)
    await run.forget_changes(6)

    assert cluster.running() == {"w"}


def test_a_borrower_waits_behind_a_borrowers_reservation() -> None:
    found = starts(play(town(*parts()), K, H, {**owned(1), "queue": "borrower"}))

    assert found == {"k": 0, "h": 50, "w": 100}


@pytest.mark.parametrize("owner", [{}, {"preemption": {"reclaim": "Any"}}, {"lending": "Always"}], ids=str)
@pytest.mark.parametrize("gpus", [8, 20])
def test_a_borrower_waits_behind_an_owners_reservation_whatever_its_priority(owner: dict[str, Any], gpus: int) -> None:
    """As in Kueue, where quota is reserved for a head within its nominal quota before those that borrow are tried."""
    rows = [
        row("u", 0, 50, queue="owner", gpus=4),
        row("w", 1, 50, queue="owner", gpus=8),
        row("b", 2, 200, queue="borrower", gpus=4, priority=9),
        row("c", 3, 20, queue="borrower", gpus=4, priority=9),
    ]
    place = parts(gpus, **owner)

    assert starts(play(town(*place), *rows)) == {"u": 0, "w": 50, "b": 100, "c": 3}
    found = asyncio.run(Controlled(expand(*place)).starts(trace(rows)))
    assert found == {"u": 0, "w": 50, "b": 100, "c": 3}


@pytest.mark.parametrize("is_cached", [True, False])
def test_a_borrower_of_a_better_rank_is_bound_no_more_when_it_would_borrow_no_more(is_cached: bool) -> None:
    """Its queue has room of its own again when x ends, which the verdict of before did not know."""
    rows = [
        row("u", 0, 90, queue="owner", gpus=4),
        row("x", 0, 30, queue="borrower", gpus=4, declared=300),
        row("w", 1, 50, queue="owner", gpus=8),
        *([row("a", 2, 200, queue="borrower", gpus=4, priority=9)] if is_cached else []),
        row("b", 3, 200, queue="borrower", gpus=4, priority=9),
    ]
    place = parts(20, borrower=4)

    found = starts(play(town(*place), *rows))

    assert found == {"u": 0, "x": 0, "w": 90, **({"a": 30, "b": 140} if is_cached else {"b": 30})}
    assert asyncio.run(Controlled(expand(*place)).starts(trace(rows))) == found


def test_an_owner_that_would_borrow_waits_behind_a_borrowers_reservation() -> None:
    objects = [*parts(gpus=12), queue("third", 4, **TOP)]
    rows = [K, row("l", 0, 200, queue="owner", gpus=8), row("h", 1, 50, queue="borrower", gpus=4), owned(1)]

    assert starts(play(town(*objects), *rows)) == {"k": 0, "l": 0, "h": 50, "w": 100}


def test_an_owner_waits_behind_a_head_that_will_be_within_its_quota_when_it_starts() -> None:
    rows = [row("k", 0, 50, queue="borrower", gpus=4), row("h", 1, 50, queue="borrower", gpus=8), owned(1)]

    assert starts(play(town(*parts(borrower=8)), *rows)) == {"k": 0, "h": 50, "w": 100}


@pytest.mark.parametrize("later", ["head", "want"])
def test_a_start_is_reserved_for_an_owner_before_one_for_a_borrower(later: str) -> None:
    """Both wait for k's device; the borrower has the better rank, and either comes first."""
    loans = [queue("borrower", 4, **TOP), queue("owner", 2, **TOP)]
    stage = Clock(town(teams(0), queue("top", 0), *loans, node("one", 12)))
    head = row("head", 1, 30, queue="borrower", gpus=2, priority=9)
    want = row("want", 1, 20, queue="owner", gpus=2)
    first, second = (want, head) if later == "head" else (head, want)
    rows = [row("k", 0, 60, queue="borrower"), row("u", 0, 600, queue="borrower", gpus=4), first, second]
    decider, begun = Muster(stage), stage.time
    for at, arrival in enumerate(trace(rows)):
        stage.now = arrival.at
        decider.arrive(Waiting(arrival, begun + arrival.at + timedelta(milliseconds=at)))
        decider.settle(freed=False)

    found = {key.rpartition("/")[2]: one.at for key, one in stage.backfill.estimates.items()}

    assert found == {"want": begun + timedelta(seconds=60), "head": begun + timedelta(seconds=80)}


MINUTE = {"muster.dev/runtime": "60s"}
NOISE: dict[str, Any] = {"queue": "other", "gpus": 0, "annotations": {"muster.dev/runtime": "2s"}}
QUEUES: dict[str, tuple[int, dict[str, Any]]] = {
    "top": (0, {}),
    "borrower": (4, TOP),
    "owner": (2, TOP),
    "other": (8, {}),
}


async def beside_kept_quota(gpus: int, *jobs: dict[str, Any]) -> tuple[Jobs, Play]:
    """Let the first job run for a minute and others without end, then let two wait: head for a loan, and want.

    gpus: of head.
    """
    builder = a_cluster().node("n", gpus=16)
    for name, (nominal, spec) in QUEUES.items():
        builder.queue(name, gpus=nominal, **spec)
    cluster = Jobs(builder)
    run = Play(cluster)
    cluster.submit("k", queue="borrower", annotations=MINUTE)
    for number, job in enumerate(jobs):
        cluster.submit(f"endless{number}", **job)
    await run.forget_changes(3)
    cluster.submit("head", queue="borrower", gpus=gpus, priority=9)
    await run.forget_changes(2)
    cluster.submit("want", queue="owner", gpus=2)
    return cluster, run


async def estimates(cluster: Jobs, run: Play, *, is_noisy: bool) -> list[tuple[dict[str, int], int]]:
    """Return after each of some cycles the starts reserved, in seconds, and how many were dropped meanwhile."""
    found = []
    for number in range(6):
        if is_noisy:
            cluster.submit(f"noise{number}", **NOISE)
        await run.forget_changes(1)
        heads = run.leader.backfill.estimates.items()
        starts = {uid.removeprefix("job-"): (one.at - NOON).seconds for uid, one in heads if one.at is not None}
        found.append((starts, run.leader.backfill.revision))
    return found


@pytest.mark.parametrize("is_noisy", [False, True], ids=["quiet", "noisy"])
async def test_no_start_is_reserved_on_what_an_owner_keeps_for_a_gang_without_one(is_noisy: bool) -> None:
    """The endless job has borrowed from the owner: k's end gives back too little for want, and enough for head."""
    cluster, run = await beside_kept_quota(1, {"queue": "borrower", "gpus": 5})

    found = await estimates(cluster, run, is_noisy=is_noisy)

    assert [starts.get("head") for starts, _ in found] == [None] * 6
    cluster.finish_job("k")
    await run.forget_changes(2)
    assert not {"head", "want"} & cluster.running()


@pytest.mark.parametrize("is_noisy", [False, True], ids=["quiet", "noisy"])
async def test_a_reserved_start_stands_before_one_that_would_borrow_as_well_and_ranks_lower(is_noisy: bool) -> None:
    """Either could start when k ends, with one of its own and one of the other's."""
    endless: list[dict[str, Any]] = [{"queue": "borrower", "gpus": 3}, {"queue": "owner"}]
    cluster, run = await beside_kept_quota(2, *endless)

    found = await estimates(cluster, run, is_noisy=is_noisy)

    assert [starts.get("head") for starts, _ in found] == [61] * 6
    assert len({revision for _, revision in found}) == 1, "none is made again"
    cluster.finish_job("k")
    await run.forget_changes(2)
    assert {"head", "want"} & cluster.running() == {"head"}
