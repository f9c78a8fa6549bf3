"""Wherever a controller dies while it gives gangs devices: no gang starts in part, and no device is given twice."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.pods import Pod
from admission.api.muster.ledger_entries import Holding
from admission.cycle.steps import deallocate
from admission.cycle.steps.deallocate import Deallocation
from admission.cycle.steps.evict import GangEviction
from admission.simulation import in_memory
from tests import soaking
from tests.integration.machines import TEAMS, Fire, Late, Others

EAST, WEST = TEAMS


@pytest.mark.timeout(7200)
def test_gangs_start_whole_wherever_their_controller_dies() -> None:
    few = settings(
        max_examples=soaking.examples(15),
        deadline=None,
        stateful_step_count=60,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    run_state_machine_as_test(Fire, settings=few)


# What the machine would notice.


def play(story: Callable[[Fire], None], *, fenced: bool) -> None:
    """Have a machine go through one story, and judge it as hypothesis would."""
    machine = Fire()
    try:
        machine.begin(fenced)
        story(machine)
        machine.no_device_is_given_twice()
        machine.nobody_is_charged_beyond_the_quota()
    finally:
        machine.teardown()


def late_claim(machine: Fire, *, pods: int, fenced: bool = True) -> None:
    """A claim that outlives its pods gets devices by a late write, after others were given them."""
    late = Late(write="allocate", shared=True, others=(Others.DELETE_A_POD,), fenced=fenced, bound=not fenced)
    machine.a_write_of_a_deposed_leader_is_late(late, EAST, ((pods, 2), (1, 2)))


def late_gate(machine: Fire) -> None:
    """A gate is opened by a late write, after others took the devices and the gang was given back behind a fence."""
    machine.post.deadly = "open_gate"
    machine.a_gang_comes(EAST, (2, 2))
    machine.post.deadly = ""
    for _ in range(3):
        machine.somebody_else_comes(2)
    machine.others_act(Others.BIND, 0)
    machine.set_fence(wanted=True)
    for _ in range(3):
        machine.cycle(61)
    machine.late_writes_arrive()


def left_behind(machine: Fire) -> None:
    """A claim that outlives its pods has devices, and its pods go before any of them is bound."""
    machine.a_gang_with_one_claim_comes(EAST, (1, 2))
    machine.cycle(1)
    machine.others_act(Others.DELETE_A_POD, 0)
    machine.cycle(1)


STORIES: dict[str, tuple[bool, Callable[[Fire], None]]] = {
    "a late write to a claim whose only pod went": (True, lambda machine: late_claim(machine, pods=1)),
    "a late write to a claim of a gang that lost a pod": (True, lambda machine: late_claim(machine, pods=2)),
    "a late write after the fence fell": (True, lambda machine: late_claim(machine, pods=1, fenced=False)),
    "a late write to a gang after the fence fell": (True, lambda machine: late_claim(machine, pods=2, fenced=False)),
    "a late gate": (False, late_gate),
    "a claim that is left behind": (True, left_behind),
}


@pytest.mark.parametrize(("fenced", "story"), STORIES.values(), ids=STORIES)
def test_every_scripted_story_of_failures_ends_with_whole_gangs(fenced: bool, story: Callable[[Fire], None]) -> None:
    play(story, fenced=fenced)


async def deallocates_without_a_mark(cluster: in_memory.Cluster, claim: Claim) -> Claim | None:
    known = cluster._claims.get(claim.meta.key)
    if known is None or known.allocation is None or known.reserved_for:
        return known
    return cluster._put_claim(replace(known, allocation=None), "withdrawn")


async def shuts_without_a_mark(cluster: in_memory.Cluster, pod: Pod) -> bool:
    known = cluster._pods.get(pod.meta.uid)
    return known is None or known.gated


def only_what_is_allocated(inputs: Any, holdings: Iterable[Holding]) -> list[Claim]:
    claims = (inputs.observed.claims.get(holding.claim_uid) for holding in holdings)
    return [claim for claim in claims if claim is not None and claim.allocation is not None and not claim.reserved_for]


async def withdraws_nothing(step: Any, inputs: Any, placement: Any, *, keep: Collection[Any]) -> bool:
    return True


async def secures_nothing(step: Any, inputs: Any, releases: Any) -> Any:
    return list(releases)


async def collects_nothing(step: Any, inputs: Any) -> Any:
    return inputs


async def shuts_nothing(step: Any, pods: Any) -> bool:
    return True


MISSING: dict[str, tuple[Any, str, Callable[..., Any], str]] = {
    "the mark on a claim": (
        in_memory.Cluster,
        "deallocate",
        deallocates_without_a_mark,
        "a late write to a claim whose only pod went",
    ),
    "the mark on a pod": (in_memory.Cluster, "close_gate", shuts_without_a_mark, "a late gate"),
    "to take back what is not allocated yet": (
        deallocate,
        "_revocable",
        only_what_is_allocated,
        "a late write after the fence fell",
    ),
    "withdrawal": (
        Deallocation,
        "withdraw",
        withdraws_nothing,
        "a late write to a claim of a gang that lost a pod",
    ),
    "to secure releases": (
        Deallocation,
        "safe_releases",
        secures_nothing,
        "a late write to a claim whose only pod went",
    ),
    "to collect orphans": (Deallocation, "collect", collects_nothing, "a claim that is left behind"),
    "to shut gates": (GangEviction, "_keep_gates_closed", shuts_nothing, "a late gate"),
}


@pytest.mark.parametrize(("owner", "name", "instead", "story"), MISSING.values(), ids=MISSING)
def test_a_story_fails_when_a_safeguard_is_removed(
    owner: Any, name: str, instead: Callable[..., Any], story: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, instead)
    fenced, tell = STORIES[story]

    with pytest.raises(AssertionError):
        play(tell, fenced=fenced)
