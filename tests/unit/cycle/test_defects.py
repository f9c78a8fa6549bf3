"""What Muster itself fails of in one gang is told, and stops no other."""

from collections.abc import Callable
from typing import Any

import pytest

from admission.api.values.reasons import HoldReason
from admission.cycle import cycle
from admission.cycle.state.leader import Leader
from admission.dra.allocator import prescribed
from admission.lifecycle import placement_progress, start_timeout, transitions
from admission.scheduling.checks import demand, faults
from admission.scheduling.checks.faults import During
from admission.simulation import in_memory
from admission.status import gang
from tests.builders import NOON, a_cluster
from tests.unit.cycle.fences import MINUTE, Cluster, a_leader, report


def two_jobs() -> Cluster:
    return Cluster(a_cluster().node("a", gpus=4).queue("q", gpus=8).job("bad", queue="q").job("good", queue="q"))


def of_bad(one: Any) -> bool:
    """Whether something is about the gang called bad: a group, a placement, a claim or a pod."""
    name = getattr(one, "gang", "") or getattr(one, "key", "") or (one.meta.key if hasattr(one, "meta") else "")
    return str(name).startswith("team/bad")


def failing(call: Callable[..., Any]) -> Callable[..., Any]:
    def fails(first: Any, *others: Any, **named: Any) -> Any:
        if of_bad(first):
            raise ZeroDivisionError("nobody expected this")
        return call(first, *others, **named)

    return fails


MOMENTS: dict[str, tuple[Any, str, During]] = {
    "its demands are gathered": (demand, "demands", During.PLANNING),
    "what it costs is bounded": (demand, "at_least", During.PLANNING),
    "it is seen whether it must be taken back": (start_timeout, "eviction", During.FOLLOWING),
    "what was allocated is settled": (transitions, "settlement", During.FOLLOWING),
    "what was allocated anew is settled": (transitions, "adjustment", During.FOLLOWING),
    "what is gone is released": (transitions, "release", During.FOLLOWING),
    "it is seen what is left to do": (placement_progress, "missing", During.PLACING),
    "an allocation is written down": (prescribed, "prescribed_allocation", During.PLACING),
    "its status is made": (gang, "gang", During.REPORTING),
}


def break_it(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> None:
    call = getattr(module, name)
    if name == "at_least":
        monkeypatch.setattr(module, name, lambda pods, *others: failing(lambda _: call(pods, *others))(pods[0].pod))
    else:
        monkeypatch.setattr(module, name, failing(call))


async def lives(leader: Leader, cluster: Cluster, ledger: in_memory.Ledger) -> list[set[During]]:
    """Let all that starts run and end, cycle by cycle. Return what Muster failed of in each."""
    found = []
    for minutes in range(4):
        result = await cycle.run(leader, NOON + minutes * MINUTE)
        assert {one.gang.partition("-")[0] for one in result.defects} <= {"team/bad"}
        found.append({one.during for one in result.defects})
        started = cluster.schedule(ledger.book)
        if minutes:
            cluster.finish([pod for pod in cluster.snapshot().pods.values() if pod.phase == "Running"])
        assert started or minutes
    return found


@pytest.mark.parametrize(("module", "name", "during"), MOMENTS.values(), ids=MOMENTS)
async def test_a_defect_while_deciding_about_a_gang_stops_no_other_gang(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, during: During
) -> None:
    break_it(monkeypatch, module, name)
    cluster, ledger = two_jobs(), in_memory.Ledger()

    found = await lives(a_leader(cluster, ledger), cluster, ledger)

    assert set().union(*found) == {during}
    assert cluster.pod("good-0").phase == "Succeeded"
    assert [one.gang for one in ledger.book.placements.values() if "good" in one.gang] == []


@pytest.mark.parametrize("moment", ["its demands are gathered", "it is seen what is left to do"])
async def test_a_gang_held_by_a_defect_starts_once_the_defect_is_fixed(
    monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    module, name, during = MOMENTS[moment]
    cluster, ledger = two_jobs(), in_memory.Ledger()
    leader = a_leader(cluster, ledger)
    with monkeypatch.context() as broken:
        break_it(broken, module, name)
        result = await cycle.run(leader, NOON)

    hold = report(result, "bad").hold
    assert hold is not None
    assert hold.reason is HoldReason.INTERNAL_ERROR
    assert f"{during}: ZeroDivisionError; please" in hold.message
    assert "nobody expected this" not in hold.message, "which may name anything, and is in the log"
    assert cluster.let_in() == ["good-0"]
    await cycle.run(leader, NOON + MINUTE)
    assert cluster.let_in() == ["bad-0", "good-0"]


async def test_a_settlement_that_a_defect_prevented_is_booked_once_the_defect_is_fixed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, ledger = two_jobs(), in_memory.Ledger()
    leader = a_leader(cluster, ledger)
    await cycle.run(leader, NOON)
    cluster.schedule(ledger.book)
    with monkeypatch.context() as broken:
        break_it(broken, transitions, "settlement")
        await cycle.run(leader, NOON + MINUTE)
    assert [one.settled for one in ledger.book.placements.values() if "bad" in one.gang] == [False]

    await cycle.run(leader, NOON + 2 * MINUTE)

    assert [one.settled for one in ledger.book.placements.values() if "bad" in one.gang] == [True]


def test_a_lack_of_memory_is_no_gangs_fault() -> None:
    found: list[faults.Defect] = []

    def compute() -> int:
        raise MemoryError

    with pytest.raises(MemoryError):
        faults.guard(During.PLANNING, "team/bad", compute, found)

    assert found == []
