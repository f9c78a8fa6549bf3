"""What a controller that died half-way leaves behind, and what has changed by the time a gang could start."""

import contextlib
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest

from admission import default_ports
from admission.api.muster.ledger_entries import Kind
from admission.api.values.reasons import HoldReason
from admission.cycle import cycle
from admission.errors import RetryError
from admission.simulation import in_memory
from tests.builders import NOON
from tests.unit.cycle.fences import MINUTE, Cluster, Mortal, a_gang, a_leader, cycles, everything_runs, kinds, report


async def killed(
    lives: int, ends: AbstractContextManager[object], *, after: bool = False
) -> tuple[Mortal, in_memory.Ledger]:
    """Return what a controller leaves that dies at one of its writes, made one by one; its successor lives long."""
    cluster, ledger = Mortal(a_gang(), lives=lives, after=after), in_memory.Ledger()
    leader = a_leader(cluster, ledger)
    leader.settings.update(steps=leader.settings.steps, writes=1, strands_least=True)
    with ends:
        await cycle.run(leader, NOON)
    cluster.lives = 10**6
    return cluster, ledger


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("lives", range(1, 7))
async def test_killed_at_any_write_the_successor_finishes(lives: int, after: bool) -> None:
    cluster, ledger = await killed(lives, contextlib.suppress(ExceptionGroup), after=after)
    await ledger.fence(2)
    await cycle.run(a_leader(cluster, ledger, epoch=2), NOON + MINUTE)

    everything_runs(cluster, ledger, 3)
    assert kinds(ledger).count(Kind.RESERVE) == 1


@pytest.mark.parametrize("lives", range(1, 7))
async def test_killed_at_any_write_the_successor_without_a_fence_lets_whole_gangs_in_only(lives: int) -> None:
    """What was allocated in part is taken back, and kube-scheduler gets the gang whole."""
    cluster, ledger = await killed(lives, pytest.raises(ExceptionGroup))
    await ledger.fence(2)
    successor = a_leader(cluster, ledger, epoch=2)
    successor = replace(successor, ports=replace(successor.ports, fences=default_ports.NoFences()))
    await cycles(successor, 3, NOON + MINUTE)

    everything_runs(cluster, ledger, 3)


CHANGES: dict[str, tuple[str, dict[str, str]]] = {
    "its node is gone": ("without", {"node": "a"}),
    "a device has left its slice": ("without", {"device": "gpu-0"}),
}


@pytest.mark.parametrize("lives", [1, 2, 3, 4])
@pytest.mark.parametrize(("change", "what"), CHANGES.values(), ids=CHANGES)
async def test_an_object_deleted_between_plan_and_start_requeues_the_whole_gang(
    change: str, what: dict[str, str], lives: int
) -> None:
    cluster, ledger = await killed(lives, pytest.raises(ExceptionGroup))
    getattr(cluster, change)(**what)
    successor = a_leader(cluster, ledger, epoch=2)
    result = await cycles(successor, 3, NOON + MINUTE)

    assert cluster.let_in() == []
    assert cluster.devices() == {}
    assert ledger.book.usage() == {}
    hold = report(result).hold
    assert hold is not None
    assert hold.reason is HoldReason.NO_FEASIBLE_PLACEMENT


async def test_a_claim_that_is_deleted_before_its_gate_opens_takes_the_gang_back() -> None:
    cluster, ledger = Cluster(a_gang()), in_memory.Ledger()
    cluster.fails = {f"open train-{n}": RetryError("busy") for n in range(3)}
    leader = a_leader(cluster, ledger)
    await cycle.run(leader, NOON)

    cluster.remove_claim("train-1-gpus")
    result = await cycles(leader, 2)

    hold = report(result).hold
    assert hold is not None
    assert hold.reason is HoldReason.WAITING_FOR_CLAIMS
    assert ledger.book.usage() == {}
    assert cluster.devices() == {}


async def test_a_claim_that_is_deallocated_behind_our_back_gets_its_devices_again() -> None:
    """Before its gate opens, or afterwards: behind a fence kube-scheduler would find none."""
    cluster, ledger = Cluster(a_gang()), in_memory.Ledger()
    leader = a_leader(cluster, ledger)
    await cycle.run(leader, NOON)
    before = cluster.devices()

    cluster.change_claim("train-1-gpus", allocation=None)
    await cycle.run(leader, NOON)

    assert cluster.devices() == before
    everything_runs(cluster, ledger, 3)


async def test_an_admitted_gang_that_cannot_get_its_devices_again_is_evicted_whole() -> None:
    cluster, ledger = Cluster(a_gang(requeue={"base": "10m"})), in_memory.Ledger()
    leader = a_leader(cluster, ledger)
    await cycle.run(leader, NOON)
    lost = cluster.devices()["train-1-gpus"][0].partition("/")[2]

    cluster.change_claim("train-1-gpus", allocation=None)
    cluster.without(device=lost)
    await cycles(leader, 3)

    assert cluster.let_in() == []
    assert cluster.devices() == {}
    assert ledger.book.usage() == {}
    assert Kind.EVICT in kinds(ledger)
