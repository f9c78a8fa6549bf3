"""Nodes that are asked for behind a fence: kube-scheduler gives their devices to nobody, Muster to whole gangs."""

from dataclasses import replace
from typing import Any

import pytest

from admission.api.capacity.provisioning_requests import Answer
from admission.api.muster.ledger_entries import Kind, Posted
from admission.api.muster.queues import PlacementMode
from admission.api.values import names
from admission.api.values.names import GANG_MIN, TOPOLOGY, MeterName, NodeName
from admission.errors import LedgerUnavailableError, RetryError
from admission.simulation import in_memory
from tests.builders import a_cluster
from tests.property.test_cycles import counting
from tests.unit.cycle.autoscaled import PODS, AskingBehindFence
from tests.unit.cycle.fences import MINUTE, KilledError, Q, kinds, report
from tests.unit.cycle.requesting import REQUEST, Requesting
from tests.unit.cycle.test_node_requests import JOB, asks, charged

X8 = {"type": "x8"}


def asking(gpus: int = 100, *, job: dict[str, Any] | None = None, **queue: Any) -> AskingBehindFence:
    return AskingBehindFence(asks(gpus, **queue).shape("x8", gpus=8), a=job or {})


def given(play: AskingBehindFence) -> list[str]:
    """Return the devices that claims have, each once for each claim."""
    return sorted(device for devices in play.world.devices().values() for device in devices)


def refused(play: AskingBehindFence) -> dict[str, Exception]:
    """Return that no claim that is there can be allocated."""
    return {f"allocate {claim.meta.name}": RetryError("not now") for claim in play.world._claims.values()}


async def test_a_gang_on_an_empty_cluster_is_let_in_towards_the_shape_and_given_devices_whole_when_nodes_came() -> None:
    play = asking()
    result = await play.forget_changes()
    assert play.world.towards() == {f"a-{index}": X8 for index in range(4)}
    assert charged(play) == 16
    found = report(result, "a")
    assert (found.phase, found.hold) == ("Reserved", None)
    assert "nodes were asked for (2 of shape x8)" in found.placement_reason

    play.world.add("n1", "n2")
    result = await play.forget_changes(3)

    assert sorted(play.world.bound().values()) == ["n1", "n1", "n2", "n2"]
    assert len(set(given(play))) == 16
    assert charged(play) == 16
    assert kinds(play.ledger) == [Kind.RESERVE, Kind.ADJUST, Kind.SETTLE]
    found = report(result, "a")
    assert (found.phase, found.placement) == ("Running", PlacementMode.ALLOCATE)
    assert found.placement_reason.startswith("nodes were asked for (2 of shape x8); driver gpu.example.com: ")
    assert {pod.node for pod in found.plan} == {"n1", "n2"}


async def test_the_seats_are_moved_before_a_claim_is_written() -> None:
    play = asking()
    await play.forget_changes()
    play.world.add("n1", "n2")
    play.world.fails = refused(play)

    await play.forget_changes()

    assert given(play) == []
    (placement,) = play.ledger.book.placements.values()
    seats = placement.seats.values()
    assert {seat.node for seat in seats} == {"n1", "n2"}
    assert {names.for_people(seat.asked_as) for seat in seats} == {"nodeshape/x8/1", "nodeshape/x8/2"}
    booked = [one.device for holding in placement.holdings.values() for one in holding.devices]
    assert len(set(booked)) == len(booked) == 16


@pytest.mark.parametrize("come", [{"n1": 8}, {"n1": 8, "n2": 7}], ids=["too few nodes", "too few devices"])
async def test_nothing_is_given_while_not_all_pods_fit_and_the_timeout_takes_the_gang_back(
    come: dict[str, int],
) -> None:
    play = asking()
    await play.forget_changes()
    for name, gpus in come.items():
        play.world.add(name, gpus=gpus)

    await play.forget_changes(3)

    assert (given(play), play.world.bound(), charged(play)) == ([], {}, 16)
    assert kinds(play.ledger) == [Kind.RESERVE]
    play.world.now += 16 * MINUTE
    result = await play.forget_changes(3)
    assert (given(play), play.world.bound(), charged(play)) == ([], {}, 0)
    assert "did not come within 15m, or have no room for its pods" in str(report(result, "a").hold)


async def test_the_nodes_of_a_shape_may_come_one_after_the_other() -> None:
    play = asking()
    await play.forget_changes()

    for name in ("n1", "n2"):
        assert play.world.bound() == {}
        play.world.add(name)
        await play.forget_changes(3)

    assert sorted(play.world.bound().values()) == ["n1", "n1", "n2", "n2"]


async def test_an_autoscaler_that_nominates_the_pods_for_the_nodes_that_came_keeps_these_from_nobody_of_them() -> None:
    play = asking()
    await play.forget_changes()
    for pod in play.world.pending():
        play.world._pods[pod.meta.uid] = replace(pod, nominated=NodeName("n1"), requests={"cpu": 30_000})

    play.world.add("n1", "n2")
    await play.forget_changes(3)

    assert sorted(play.world.bound().values()) == ["n1", "n1", "n2", "n2"]


async def test_of_two_gangs_each_starts_whole_on_nodes_that_came() -> None:
    play = AskingBehindFence(asks().shape("x8", gpus=8), a=JOB, b={"pods": 1, "gpus": 8})
    await play.forget_changes()
    assert len(play.world.towards()) == 3

    play.world.add("n1")
    await play.forget_changes(2)
    assert play.world.bound() == {"b-0": "n1"}
    play.world.add("n2")
    await play.forget_changes(2)
    assert play.world.bound() == {"b-0": "n1"}
    play.world.add("n3")
    await play.forget_changes(3)

    assert play.world.bound().keys() == {"a-0", "a-1", "b-0"}
    assert len(set(given(play))) == 24
    assert charged(play) == 24


async def test_pods_with_room_on_nodes_that_are_there_get_their_devices_at_once() -> None:
    play = AskingBehindFence(asks().node("n", gpus=4).shape("x8", gpus=8), a={"pods": 3})
    await play.forget_changes(2)
    assert play.world.bound() == {"a-0": "n"}
    assert play.world.towards() == {"a-1": X8, "a-2": X8}

    play.world.add("m")
    await play.forget_changes(3)

    assert sorted(play.world.bound().values()) == ["m", "m", "n"]
    assert len(set(given(play))) == 12


async def test_a_gang_takes_what_becomes_free_on_an_older_node_of_the_shape() -> None:
    builder = asks().node("old", gpus=8, labels=X8).shape("x8", gpus=8)
    play = AskingBehindFence(builder, b={"pods": 1, "gpus": 8})
    await play.forget_changes(2)
    play.world.submit("a", queue="q", pods=1, gpus=8)
    await play.forget_changes(2)
    assert play.world.towards() == {"a-0": X8}

    play.world.delete_job("b")
    await play.forget_changes(3)

    assert play.world.bound() == {"a-0": "old"}


async def test_the_fence_is_lifted_while_a_gang_waits() -> None:
    play = asking()
    await play.forget_changes()

    play.put_up(None)
    play.world.add("n1", "n2")
    await play.forget_changes(3)

    assert sorted(play.world.bound().values()) == ["n1", "n1", "n2", "n2"]
    assert play.world.done("allocate") == []
    assert kinds(play.ledger) == [Kind.RESERVE, Kind.SETTLE]


async def test_a_fence_is_put_up_while_a_gang_waits() -> None:
    play = asking()
    play.put_up(None)
    await play.forget_changes()
    assert len(play.world.towards()) == 4

    play.put_up(play.world.now)
    play.world.add("n1", "n2")
    await play.forget_changes(20)
    assert given(play) == [], "kube-scheduler may have chosen devices before it saw the fence"
    play.world.now += MINUTE
    await play.forget_changes(3)

    assert sorted(play.world.bound().values()) == ["n1", "n1", "n2", "n2"]
    assert len(set(given(play))) == 16
    assert charged(play) == 16


async def test_the_fence_is_lifted_after_the_seats_were_moved() -> None:
    play = asking()
    await play.forget_changes()
    play.world.add("n1", "n2")
    play.world.fails = refused(play)
    await play.forget_changes()

    play.put_up(None)
    await play.forget_changes(3)

    assert sorted(play.world.bound().values()) == ["n1", "n1", "n2", "n2"]
    assert charged(play) == 16


@pytest.mark.parametrize("topology", [{}, {TOPOLOGY: "type"}], ids=["anywhere", "in one domain"])
async def test_nodes_that_are_full_are_beside_those_that_came(topology: dict[str, str]) -> None:
    play = AskingBehindFence(asks().node("full", gpus=8, labels=X8).shape("x8", gpus=8), b={"pods": 1, "gpus": 8})
    await play.forget_changes(2)
    play.world.submit("a", **{"queue": "q", **JOB, "annotations": topology})
    await play.forget_changes(2)
    assert play.world.bound() == {"b-0": "full"}
    assert play.world.towards() == {"a-0": X8, "a-1": X8}

    play.world.add("n1", "n2")
    await play.forget_changes(3)

    assert sorted(play.world.bound().values()) == ["full", "n1", "n2"]
    assert len(set(given(play))) == 24


@pytest.mark.parametrize(
    ("come", "charges"),
    [
        ({"n1": "h100", "n2": "h100"}, {"h100": 16}),
        ({"n1": "h100", "n2": "a100", "n3": "a100"}, {"a100": 16}),
    ],
    ids=["none as the shape says", "some as the shape says"],
)
async def test_the_gang_is_charged_what_it_gets_and_gets_what_was_reserved_if_it_can(
    come: dict[str, str], charges: dict[str, int]
) -> None:
    builder = a_cluster().shape("x8", gpus=8)
    builder._meters += [*map(counting, ("a100", "h100"))]
    quotas = [{"meter": meter, "nominal": "100"} for meter in ("claims", "gpus", "a100")]
    builder.queue("q", quotas=[*quotas, {"meter": "h100", "nominal": "0"}], provisioning=PODS)
    play = AskingBehindFence(builder, a={})
    await play.forget_changes()
    assert charged_for(play) == {"a100": 16}

    for name, model in come.items():
        play.world.add(name, model=model)
    await play.forget_changes(3)

    assert len(play.world.bound()) == 4
    assert charged_for(play) == charges
    assert sum(play.ledger.book.usage()[Q][MeterName("gpus")]) == 16


def charged_for(play: AskingBehindFence) -> dict[str, int]:
    """Return what is charged by model of devices."""
    return {str(meter): sum(use) for meter, use in play.ledger.book.usage()[Q].items() if meter in {"a100", "h100"}}


async def running() -> AskingBehindFence:
    play = asking(job=JOB, requeue={"base": "1m"})
    await play.forget_changes()
    play.world.add("n1", "n2")
    await play.forget_changes(3)
    assert sorted(play.world.bound().values()) == ["n1", "n2"]
    return play


@pytest.mark.parametrize("succeeded", [True, False])
async def test_a_running_gang_that_loses_a_node_is_given_the_devices_of_another_one(succeeded: bool) -> None:
    play = await running()
    play.world.lose("n2")
    await play.forget_changes(2)
    (lost,) = play.world.towards()
    if succeeded:
        await play.ledger.fence(2)
        play.succeed()

    play.world.add("n3")
    result = await play.forget_changes(3)

    assert play.world.bound()[lost] == "n3"
    assert (report(result, "a").phase, charged(play), len(set(given(play)))) == ("Running", 16, 16)


async def test_of_a_running_gang_only_the_late_pod_is_taken_back_whose_claim_cannot_be_written() -> None:
    play = await running()
    play.world.lose("n2")
    await play.forget_changes(2)
    (lost,) = play.world.towards()
    play.world.fails = refused(play)
    play.world.add("n3")
    await play.forget_changes(2)
    (placement,) = play.ledger.book.placements.values()
    assert {seat.node for seat in placement.seats.values()} == {"n1", "n3"} or lost == "a-0"

    play.world.now += 16 * MINUTE
    await play.forget_changes()

    assert len(play.world.bound()) == 1
    assert charged(play) == 8


async def test_an_elastic_gang_grows_on_nodes_that_came() -> None:
    play = asking(job={"pods": 3, "gpus": 8, "annotations": {GANG_MIN: "1"}})
    await play.forget_changes()
    asked = len(play.world.towards())

    for index in range(3):
        play.world.add(f"n{index}")
        await play.forget_changes(4)

    assert asked
    assert sorted(play.world.bound().values()) == ["n0", "n1", "n2"]
    assert charged(play) == 24


class Away(in_memory.Ledger):
    """A ledger that is away for one entry of a kind. carries_out: whether only its answer is lost."""

    def __init__(self, *, carries_out: bool) -> None:
        super().__init__()
        self.carries_out = carries_out
        self.away = 0

    async def post_all(self, entries: Any, **options: Any) -> list[Posted]:
        if self.away and any(entry.kind is Kind.ADJUST for entry in entries):
            self.away -= 1
            if self.carries_out:
                await super().post_all(entries, **options)
            raise LedgerUnavailableError("away")
        return await super().post_all(entries, **options)


@pytest.mark.parametrize("carries_out", [True, False], ids=["the answer is lost", "it is away"])
@pytest.mark.parametrize("succeeded", [True, False])
async def test_no_claim_is_written_before_the_books_have_the_move(carries_out: bool, succeeded: bool) -> None:
    ledger = Away(carries_out=carries_out)
    play = AskingBehindFence(asks().shape("x8", gpus=8), ledger, a={})
    await play.forget_changes()
    play.world.add("n1", "n2")
    ledger.away = 1

    await play.forget_changes()

    assert given(play) == []
    if succeeded:
        await ledger.fence(2)
        play.succeed()
    await play.forget_changes(3)
    assert sorted(play.world.bound().values()) == ["n1", "n1", "n2", "n2"]
    assert (charged(play), len(set(given(play)))) == (16, 16)
    assert kinds(ledger).count(Kind.ADJUST) == 1


@pytest.mark.parametrize("lives", range(12))
@pytest.mark.parametrize("after", [True, False])
async def test_the_next_leader_goes_on_wherever_the_last_one_was_killed(lives: int, after: bool) -> None:
    play = asking()
    left = lives

    def live(what: str, name: str, *, call: Any = play.world._call) -> None:
        nonlocal left
        left -= 1
        if left < 0 or (left == 0 and not after):
            raise KilledError
        call(what, name)

    play.world._call = live  # type: ignore[method-assign]
    towards = play.world.open_gate_towards

    async def open_towards(pod: Any, *where: Any) -> None:
        live("open", pod.meta.name)
        await towards(pod, *where)

    play.world.open_gate_towards = open_towards  # type: ignore[method-assign, assignment]
    for turn in range(10):
        try:
            await play.forget_changes()
        except* KilledError:
            left = 10**6
            await play.ledger.fence(play.epoch + 1)
            play.succeed()
        if turn == 3:
            play.world.add("n1", "n2")

    assert sorted(play.world.bound().values()) == ["n1", "n1", "n2", "n2"]
    assert (charged(play), len(set(given(play)))) == (16, 16)
    play.world.delete_job("a")
    await play.forget_changes(3)
    assert (charged(play), play.ledger.book.placements) == (0, {})


class RequestingBehindFence(Requesting, AskingBehindFence):
    """Asks by ProvisioningRequests for nodes whose devices are behind a fence."""


async def test_by_a_provisioning_request_devices_are_given_once_it_is_provisioned_and_nodes_are_there() -> None:
    builder = a_cluster().queue("q", gpus=100, provisioning=REQUEST).shape("x8", gpus=8)
    play = RequestingBehindFence(builder, a={})
    await play.forget_changes()
    play.world.add("n1", "n2")
    await play.forget_changes(2)
    assert (given(play), play.world.towards(), kinds(play.ledger)) == ([], {}, [Kind.RESERVE])

    play.requests.answer(Answer.PROVISIONED)
    await play.forget_changes(4)

    assert sorted(play.world.bound().values()) == ["n1", "n1", "n2", "n2"]
    assert len(play.requests.there) == 1, "it is needed as long as the gang runs"
    play.requests.answer(Answer.CAPACITY_REVOKED)
    await play.forget_changes(2)
    assert (play.world.bound(), charged(play)) == ({}, 0)


async def test_a_pod_that_joins_by_a_provisioning_request_of_its_own_is_given_its_devices() -> None:
    builder = a_cluster().queue("q", gpus=100, provisioning=REQUEST).shape("x8", gpus=8)
    play = RequestingBehindFence(builder, a=JOB)
    await play.forget_changes()
    play.requests.answer(Answer.PROVISIONED)
    play.world.add("n1", "n2")
    await play.forget_changes(4)
    assert len(play.world.bound()) == 2
    (first,) = play.requests.there

    play.world.lose("n2")
    await play.forget_changes(2)
    (second,) = [one for one in play.requests.there if one.meta.name != first.meta.name]
    play.requests.answer(Answer.PROVISIONED, of=second.meta.name)
    await play.forget_changes(2)
    assert (len(play.world.bound()), len(play.world.towards()), charged(play)) == (1, 1, 16)
    play.world.add("n3")
    await play.forget_changes(4)

    assert sorted(play.world.bound().values()) == ["n1", "n3"]
    assert len(play.requests.there) == 2
