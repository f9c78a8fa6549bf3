"""Whom nodes are asked for first, and how many, where not all that wait can have some."""

from dataclasses import replace
from typing import Any

import pytest

from admission.api.capacity.node_pools import NodePool
from admission.api.kubernetes.meta import Meta
from admission.api.values import names
from admission.api.values.names import QueueName
from tests.unit.cycle.autoscaled import PODS, Asking
from tests.unit.cycle.fences import GPUS, MINUTE, Q, report
from tests.unit.cycle.test_node_requests import JOB, asks, charged

IN_FRONT: dict[str, dict[str, Any]] = {
    "that nobody is asked for": {"pods": 2, "gpus": 4, "annotations": {names.TOPOLOGY: names.HOSTNAME}},
    "that no node of a shape has room for": {"pods": 1, "gpus": 9},
}


@pytest.mark.parametrize("job", IN_FRONT.values(), ids=IN_FRONT)
async def test_many_gangs_in_front_keep_nobody_from_nodes(job: dict[str, Any]) -> None:
    """Each is another question, since it asks for another number of devices or in another domain."""
    in_front = {f"a{number:03}": {**job, "gpus": job["gpus"] + number * (job["gpus"] > 8)} for number in range(70)}
    play = Asking(asks(gpus=100_000).shape("x8", gpus=8, most=200), None, **in_front, z={"pods": 1, "gpus": 8})

    await play.forget_changes(3)

    assert {name for name in play.world.towards() if name.startswith("z")} == {"z-0"}


async def test_two_shapes_of_one_node_pool_have_its_limits_together() -> None:
    builder = asks().queue("other", gpus=100, provisioning=PODS)
    builder.shape("x8", gpus=8, most=10, pool="gpu").shape("y4", gpus=4, most=10, pool="gpu")
    play = Asking(builder, a=JOB, b={"pods": 2, "gpus": 4, "queue": "other"})
    pool = NodePool(meta=Meta(name="gpu"), ready=True, limits={"nodes": 2})
    play.world._rest = replace(play.world._rest, node_pools={"gpu": pool})

    await play.forget_changes(4)

    assert len(play.world.towards()) == 2, "of one of the gangs"
    assert charged(play) + sum(play.ledger.book.usage().get(QueueName("other"), {}).get(GPUS, (0, 0))) in (8, 16)


async def test_gangs_that_got_a_part_of_their_nodes_each_are_tried_one_after_the_other() -> None:
    builder = asks().queue("other", gpus=100, provisioning=PODS).shape("x8", gpus=8, most=4)
    play = Asking(builder, a=JOB, b={**JOB, "queue": "other"})
    await play.forget_changes()
    assert len(play.world.towards()) == 4
    play.world._pods = dict(sorted(play.world._pods.items(), key=lambda item: item[1].meta.name[::-1]))
    play.world.add("n1", "n2")
    await play.forget_changes(2)
    assert sorted(play.world.bound()) == ["a-0", "b-0"]

    play.world.now += 16 * MINUTE
    await play.forget_changes(3)
    play.world.lose("n1")
    play.world.lose("n2")
    assert charged(play) == 0
    play.world.now += 10 * MINUTE
    result = await play.forget_changes(2)

    assert len(play.world.towards()) == 2, "of one of them"
    holds = [hold for name in ("a", "b") if (hold := report(result, name).hold) is not None]
    assert [hold.reason for hold in holds] == ["NodesNeeded"]
    assert "when the nodes of these shapes that others wait for have come" in holds[0].message
    play.world.add("m1", "m2")
    await play.forget_changes(2)
    assert len(play.world.bound()) == 2
    await play.forget_changes(2)
    assert len(play.world.towards()) == 2, "of the other one"
    assert Q in play.ledger.book.usage()
