"""A queue that asks for nodes: the gang is charged and let in towards a shape, and nodes that come are its own."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from admission.api.capacity.node_pools import NodePool
from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.pods import Pod
from admission.api.muster.ledger_entries import BudgetShare, Entry, Kind, Posted
from admission.api.values import names
from admission.api.values.reasons import Hold
from admission.cycle.state.result import CycleResult
from admission.errors import LedgerUnavailableError
from admission.simulation import in_memory
from tests.builders import ClusterBuilder, a_cluster
from tests.unit.cycle.autoscaled import PODS, Asking
from tests.unit.cycle.fences import GPUS, MINUTE, KilledError, Q, a_leader, kinds, report

HOUR = {"meter": "gpus", "hours": "1", "period": "Day"}
JOB: dict[str, Any] = {"pods": 2, "gpus": 8}


def asks(gpus: int = 100, **queue: Any) -> ClusterBuilder:
    return a_cluster().queue("q", gpus=gpus, provisioning=PODS, **queue)


def charged(play: Asking) -> int:
    return sum(play.ledger.book.usage().get(Q, {}).get(GPUS, (0, 0)))


def reason(result: CycleResult, name: str) -> str:
    hold = report(result, name).hold
    return "" if hold is None else str(hold.reason)


async def test_a_gang_on_an_empty_cluster_is_charged_let_in_towards_the_shape_and_starts_whole() -> None:
    play = Asking(asks().shape("x8", gpus=8), a={})

    result = await play.forget_changes()

    assert play.world.towards() == {f"a-{index}": {"type": "x8"} for index in range(4)}
    assert charged(play) == 16
    found = report(result, "a")
    assert (found.phase, found.hold) == ("Reserved", None)
    assert {pod.node for pod in found.plan} == {"nodeshape/x8/1", "nodeshape/x8/2"}
    assert "nodes were asked for (2 of shape x8)" in found.placement_reason
    assert "nodes are asked for (2 of shape x8)" in next(
        notice.message for notice in play.world.notices if notice.reason == "Admitted"
    )

    play.world.add("n1", "n2")
    await play.forget_changes(2)

    assert sorted(play.world.bound().values()) == ["n1", "n1", "n2", "n2"]
    assert charged(play) == 16
    assert kinds(play.ledger) == [Kind.RESERVE, Kind.SETTLE]


async def test_pods_with_room_on_nodes_that_are_there_are_let_in_there_beside_those_that_wait_for_nodes() -> None:
    play = Asking(asks().node("n", gpus=4).shape("x8", gpus=8), a={"pods": 3})

    await play.forget_changes()

    assert play.world.bound() == {"a-0": "n"}
    assert play.world.towards() == {"a-1": {"type": "x8"}, "a-2": {"type": "x8"}}
    play.world.add("m")
    await play.forget_changes(2)
    assert sorted(play.world.bound().values()) == ["m", "m", "n"]


NO_NODES: dict[str, tuple[ClusterBuilder, str]] = {
    "over quota": (asks(gpus=15).shape("x8", gpus=8), "QuotaExceeded"),
    "over budget": (asks(budgets=[HOUR]).shape("x8", gpus=8), "BudgetExhausted"),
    "with too few nodes that may come": (asks().shape("x8", gpus=8, most=1), "NoFeasiblePlacement"),
    "in a queue that asks for none": (a_cluster().queue("q", gpus=100).shape("x8", gpus=8), "NodesNeeded"),
}


@pytest.mark.parametrize(("builder", "why"), NO_NODES.values(), ids=NO_NODES)
async def test_no_node_is_asked_for_a_gang(builder: ClusterBuilder, why: str) -> None:
    play = Asking(builder, a={})

    result = await play.forget_changes(2)

    assert reason(result, "a") == why
    assert play.world.towards() == {}
    assert kinds(play.ledger) == []


async def test_no_node_is_asked_for_while_the_node_pool_of_a_shape_is_not_there() -> None:
    play = Asking(asks().shape("x8", gpus=8, pool="gpu"), a={})

    result = await play.forget_changes(2)

    assert reason(result, "a") == "NoFeasiblePlacement"
    assert play.world.towards() == {}
    pool = NodePool(meta=Meta(name="gpu"), ready=True)
    play.world._rest = replace(play.world._rest, node_pools={"gpu": pool})
    await play.forget_changes(2)
    assert set(map(str, play.world.towards().values())) == {str({"type": "x8", "karpenter.sh/nodepool": "gpu"})}


NOT_ASKED: dict[str, tuple[dict[str, Any], str]] = {
    "in one domain of a label that nodes get when they come": (
        {"annotations": {names.TOPOLOGY: names.HOSTNAME}, "gpus": 4},
        f"in one domain of {names.HOSTNAME}: to which those of NodeShape x8 come is not known, unless spec.matchLabels",
    ),
}


@pytest.mark.parametrize(("job", "why"), NOT_ASKED.values(), ids=NOT_ASKED)
async def test_a_gang_is_told_why_nobody_is_asked_for_its_nodes(job: dict[str, Any], why: str) -> None:
    play = Asking(asks().shape("x8", gpus=8), a={"pods": 2, **job})

    hold = report(await play.forget_changes(), "a").hold

    assert isinstance(hold, Hold)
    assert hold.reason == "NodesNeeded"
    assert why in hold.message
    assert play.world.towards() == {}


async def test_nodes_are_asked_for_a_gang_that_asks_to_be_pinned_as_soon_as_the_fence_is_lifted() -> None:
    play = Asking(asks(placement="Pin").shape("x8", gpus=8), a=JOB)
    without = play.leader.ports
    play.leader = replace(play.leader, ports=a_leader(play.world, play.ledger).ports)
    await play.forget_changes(2)
    assert play.world.towards() == {}

    play.leader = replace(play.leader, ports=without)
    await play.forget_changes(2)

    assert play.world.towards().keys() == {"a-0", "a-1"}


async def test_a_gang_for_which_nobody_is_asked_keeps_no_nodes_from_those_behind_it() -> None:
    in_one_domain = {"pods": 2, "gpus": 4, "annotations": {names.TOPOLOGY: names.HOSTNAME}}
    play = Asking(asks().shape("x8", gpus=8, most=1), a=in_one_domain, b={"pods": 1, "gpus": 8})

    result = await play.forget_changes(2)

    assert play.world.towards() == {"b-0": {"type": "x8"}}
    assert reason(result, "a") == "NoFeasiblePlacement"


async def test_of_gangs_for_which_nobody_is_asked_it_is_said_what_they_need_of_what_the_others_leave() -> None:
    in_one_domain = {"pods": 2, "gpus": 4, "annotations": {names.TOPOLOGY: names.HOSTNAME}}
    play = Asking(asks().shape("x8", gpus=8, most=2), a=in_one_domain, b={"pods": 1, "gpus": 8}, c=in_one_domain)

    result = await play.forget_changes()

    assert play.world.towards() == {"b-0": {"type": "x8"}}
    assert [reason(result, name) for name in "ac"] == ["NodesNeeded", "NoFeasiblePlacement"]


async def test_nodes_of_one_domain_are_asked_for_a_gang_that_has_to_be_in_one() -> None:
    """Its label is one of `matchLabels`, by which pods are kept to the shape: two of one type, not one of each."""
    builder = asks().shape("x8", gpus=8, most=1, price="1").shape("y8", gpus=8, most=2, price="2")
    play = Asking(builder, a={**JOB, "annotations": {names.TOPOLOGY: "type"}})

    await play.forget_changes()

    assert play.world.towards() == {"a-0": {"type": "y8"}, "a-1": {"type": "y8"}}
    play.world.add("n1", "n2", shape="y8")
    result = await play.forget_changes(2)
    assert play.world.bound().keys() == {"a-0", "a-1"}
    topology = report(result, "a").topology
    assert topology is not None
    assert topology.gang is not None
    assert topology.gang.domains == ("y8",)


async def test_a_gang_in_one_domain_with_nodes_that_are_there_asks_for_those_beside_them() -> None:
    builder = asks().node("n", gpus=8, labels={"type": "x8"}).shape("x8", gpus=8).shape("y8", gpus=8, most=1)
    play = Asking(builder, a={**JOB, "annotations": {names.TOPOLOGY: "type"}})

    await play.forget_changes()

    assert play.world.bound() == {"a-0": "n"}
    assert play.world.towards() == {"a-1": {"type": "x8"}}


async def test_a_launch_that_never_comes_gives_everything_back_and_the_gang_waits_with_the_reason() -> None:
    play = Asking(asks(startTimeout="1m").shape("x8", gpus=8), a={})
    result = await play.forget_changes()
    assert result.next_try == play.world.now + 15 * MINUTE

    play.world.now += 14 * MINUTE
    await play.forget_changes()
    assert charged(play) == 16

    play.world.now += 2 * MINUTE
    result = await play.forget_changes(3)

    assert charged(play) == 0
    assert play.world.towards() == {}
    hold = report(result, "a").hold
    assert isinstance(hold, Hold)
    assert hold.reason == "PlacementFailed"
    assert "nodes that were asked for (2 of shape x8) did not come within 15m" in hold.message

    play.world.now += 2 * MINUTE
    await play.forget_changes()
    assert len(play.world.towards()) == 4


async def test_nodes_that_come_with_fewer_devices_than_the_shape_says_give_everything_back() -> None:
    play = Asking(asks().shape("x8", gpus=8), a=JOB)
    await play.forget_changes()

    play.world.add("n1", gpus=8)
    play.world.add("n2", gpus=7)
    await play.forget_changes(2)
    assert len(play.world.bound()) == 1
    play.world.now += 16 * MINUTE
    await play.forget_changes(3)

    assert play.world.bound() == {}
    assert charged(play) == 0


async def test_no_two_gangs_count_on_the_same_nodes_nor_on_more_than_may_come() -> None:
    play = Asking(asks().shape("x8", gpus=8, most=3), a=JOB, b={"pods": 1, "gpus": 8}, c={"pods": 1, "gpus": 1})

    result = await play.forget_changes(2)

    assert play.world.towards().keys() == {"a-0", "a-1", "b-0"}
    assert reason(result, "c") == "NoFeasiblePlacement"
    play.world.add("n1")
    await play.forget_changes(2)
    assert len(play.world.bound()) == 1
    play.world.add("n2", "n3")
    await play.forget_changes(3)
    assert play.world.bound().keys() == {"a-0", "a-1", "b-0"}


async def test_a_node_that_came_for_a_gang_is_no_other_gangs_until_all_of_its_pods_are_bound() -> None:
    play = Asking(asks().shape("x8", gpus=8, most=2), a={"pods": 3})
    await play.forget_changes()
    play.world.add("n1")
    await play.forget_changes()
    play.world.submit("small", queue="q", pods=1, gpus=1)
    play.world.add("n2", gpus=3)

    result = await play.forget_changes(2)

    assert play.world.bound().keys() == {"a-0", "a-1"}
    hold = report(result, "small").hold
    assert isinstance(hold, Hold)
    assert "n1 and n2 each came for a gang whose pods are not all bound yet" in hold.message
    play.succeed()
    await play.forget_changes(2)
    assert "small-0" not in play.world.bound()


async def test_a_node_that_came_counts_once_though_pods_still_wait_for_others() -> None:
    play = Asking(asks().shape("x8", gpus=8, most=4), a=JOB)
    await play.forget_changes()
    play.world.add("n1")
    play.world.add("n2", gpus=7)
    await play.forget_changes(2)
    assert len(play.world.bound()) == 1

    play.world.submit("b", queue="q", pods=2, gpus=8)
    await play.forget_changes(2)

    assert {"b-0", "b-1"} <= play.world.towards().keys()


SAME = {"type": "x8"}


async def test_no_more_nodes_are_asked_for_than_each_of_two_shapes_allows_whose_nodes_are_the_same() -> None:
    builder = asks().shape("x8", gpus=8, most=2).shape("y8", gpus=8, most=2, matches=SAME)
    play = Asking(builder, a={"pods": 1, "gpus": 8}, b={"pods": 1, "gpus": 8}, c={"pods": 1, "gpus": 8})

    result = await play.forget_changes(2)

    assert play.world.towards().keys() == {"a-0", "b-0"}
    assert reason(result, "c") == "NoFeasiblePlacement"


async def test_one_gang_is_asked_for_no_more_nodes_than_each_of_two_shapes_allows_whose_nodes_are_the_same() -> None:
    builder = asks().shape("x8", gpus=8, most=1).shape("y8", gpus=8, most=1, matches=SAME)
    play = Asking(builder, a=JOB, b={"pods": 1, "gpus": 8})

    result = await play.forget_changes(2)

    assert play.world.towards().keys() == {"b-0"}
    assert reason(result, "a") == "NoFeasiblePlacement"


async def test_two_gangs_that_ask_by_two_shapes_count_on_two_nodes_though_each_node_is_of_both() -> None:
    wide = {"type": "x8", "zone": "1"}
    builder = asks().queue("other", gpus=100).shape("x8", gpus=8, most=2, price="2")
    builder.shape("y8", gpus=8, most=1, price="1", matches=wide)
    play = Asking(builder, a={"pods": 1, "gpus": 8}, b={"pods": 1, "gpus": 8})
    await play.forget_changes()
    assert play.world.towards() == {"a-0": wide, "b-0": {"type": "x8"}}

    for name in ("n1", "n2"):
        play.world.add(name, gpus=7, labels=wide)
    play.world.submit("small", queue="other", pods=1, gpus=1)
    await play.forget_changes(3)

    assert play.world.bound() == {}


async def test_a_node_that_came_and_is_being_taken_away_is_not_the_one_that_was_asked_for() -> None:
    play = Asking(asks().queue("other", gpus=100).shape("x8", gpus=8), a={"pods": 1, "gpus": 8})
    await play.forget_changes()
    play.world.add("n1", gpus=7)
    play.world.disrupt("n1")
    await play.forget_changes()

    play.world.add("n2", gpus=7)
    play.world.submit("small", queue="other", pods=1, gpus=1)
    await play.forget_changes(2)

    assert play.world.bound() == {}


async def test_nodes_beyond_those_that_were_asked_for_are_anybodys() -> None:
    play = Asking(asks().shape("x8", gpus=8), a={"pods": 1, "gpus": 8})
    await play.forget_changes()
    play.world.submit("small", queue="q", pods=1, gpus=1)
    play.world.add("n1", gpus=7)
    play.world.add("n2", gpus=7)

    await play.forget_changes(2)

    assert play.world.bound() == {"small-0": "n2"}


async def test_a_gang_that_waits_for_nodes_holds_no_other_up() -> None:
    play = Asking(asks().node("n", gpus=4).shape("x8", gpus=8), large={"pods": 2, "gpus": 8}, small={"pods": 1})

    await play.forget_changes(2)

    assert play.world.bound() == {"small-0": "n"}
    assert play.world.towards().keys() == {"large-0", "large-1"}


async def test_gangs_whose_queues_ask_for_nobody_keep_no_nodes_from_others() -> None:
    builder = a_cluster().queue("q", gpus=100).queue("asks", gpus=100, provisioning=PODS).shape("x8", gpus=8, most=2)
    play = Asking(builder, a=JOB, b={**JOB, "queue": "asks"})

    result = await play.forget_changes()

    assert play.world.towards().keys() == {"b-0", "b-1"}
    assert reason(result, "a") == "NoFeasiblePlacement"


async def test_a_gang_that_is_deleted_while_its_nodes_come_leaves_nothing() -> None:
    play = Asking(asks().shape("x8", gpus=8), a={})
    await play.forget_changes()

    play.world.delete_job("a")
    await play.forget_changes(2)

    assert play.ledger.book.placements == {}
    assert charged(play) == 0


class Away(in_memory.Ledger):
    """Its database does not answer when a gang is to be charged."""

    is_away = True

    async def post_all(
        self, entries: Sequence[Entry], *, epoch: int, shares: Sequence[BudgetShare] = ()
    ) -> list[Posted]:
        if self.is_away and any(entry.kind is Kind.RESERVE for entry in entries):
            raise LedgerUnavailableError("away")
        return await super().post_all(entries, epoch=epoch, shares=shares)


async def test_while_the_ledger_is_away_nobody_is_asked_and_afterwards_it_is_asked_though_nothing_else_changed() -> (
    None
):
    ledger = Away()
    play = Asking(asks().shape("x8", gpus=8), ledger, a={})

    result = await play.forget_changes()

    assert reason(result, "a") == "LedgerUnavailable"
    assert play.world.towards() == {}
    ledger.is_away = False
    play.world.now += MINUTE
    await play.forget_changes(2)
    assert len(play.world.towards()) == 4


class Deadly(Asking):
    """Its leader dies at the n-th write; the next one lives."""

    def __init__(self, builder: ClusterBuilder, lives: int, **jobs: dict[str, Any]) -> None:
        super().__init__(builder, None, **jobs)
        self.lives = lives
        self.open, self.world.open_gate_towards = self.world.open_gate_towards, self._dies  # type: ignore[method-assign, assignment]
        self.leader.settings.update(steps=self.leader.settings.steps, writes=1, strands_least=True)

    def succeed(self) -> None:
        super().succeed()
        self.lives = 10**6

    async def _dies(self, pod: Pod, *where: Any) -> None:
        self.lives -= 1
        if self.lives <= 0:
            raise KilledError
        await self.open(pod, *where)


@pytest.mark.parametrize("lives", range(1, 6))
@pytest.mark.parametrize("comes", [True, False], ids=["nodes come", "no node comes"])
async def test_killed_at_any_write_the_next_leader_asks_on_and_nothing_stays_charged(lives: int, comes: bool) -> None:
    play = Deadly(asks().shape("x8", gpus=8), lives, a={})
    with contextlib.suppress(ExceptionGroup):
        await play.forget_changes()
    assert charged(play) == 16
    assert len(play.world.towards()) == min(lives - 1, 4)

    await play.ledger.fence(2)
    play.succeed()
    await play.forget_changes()

    assert len(play.world.towards()) == 4
    assert kinds(play.ledger) == [Kind.RESERVE]
    if comes:
        play.world.add("n1", "n2")
        await play.forget_changes(2)
        assert len(play.world.bound()) == 4
        play.world.delete_job("a")
    else:
        play.world.now += 16 * MINUTE
    await play.forget_changes(2)
    assert charged(play) == 0


async def test_a_shape_that_is_gone_before_the_gates_open_gives_everything_back() -> None:
    play = Deadly(asks().shape("x8", gpus=8), 1, a={})
    with contextlib.suppress(ExceptionGroup):
        await play.forget_changes()
    play.world._rest = replace(play.world._rest, shapes={})

    await play.ledger.fence(2)
    play.succeed()
    result = await play.forget_changes(2)

    assert charged(play) == 0
    assert play.world.towards() == {}
    assert reason(result, "a") == "NoFeasiblePlacement"


async def test_nodes_on_which_a_gang_has_started_do_not_count_as_those_that_came_for_another_one() -> None:
    play = Asking(asks().shape("x8", gpus=8, most=4), a=JOB, b=JOB)
    await play.forget_changes()
    assert len(play.world.towards()) == 4

    play.world.add("n1", "n2")
    await play.forget_changes(3)
    assert play.world.bound().keys() == {"a-0", "a-1"}
    play.world.submit("c", **{"queue": "q", **JOB})
    result = await play.forget_changes(2)

    assert play.world.towards().keys() == {"b-0", "b-1"}, "four may come, two are there and two are expected"
    assert reason(result, "c") == "DevicesBusy"
