"""Nodes on which gangs are being placed carry the autoscalers' annotations, and only those of Muster are removed."""

from dataclasses import replace
from typing import Any

import pytest

from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.nodes import Node
from admission.api.values import names
from admission.api.values.names import NodeName
from admission.errors import ForbiddenError
from admission.scheduling.capacity import scale_down
from admission.scheduling.capacity.scale_down import ANNOTATIONS
from tests.builders import ClusterBuilder, a_cluster
from tests.unit.cycle.autoscaled import PODS, Asking
from tests.unit.cycle.fences import MINUTE, KilledError

CA, KARPENTER = ANNOTATIONS


class Keeping(Asking):
    """Its port Nodes writes what the real one writes. lives: writes until the leader dies."""

    def __init__(self, builder: ClusterBuilder, **jobs: dict[str, Any]) -> None:
        self.lives = 10**6
        self.writes: list[str] = []
        self.fails: Exception | None = None
        super().__init__(builder, None, **jobs)

    def _prepare(self) -> None:
        super()._prepare()
        self.leader = replace(self.leader, ports=replace(self.leader.ports, nodes=self))

    async def keep(self, node: Node) -> None:
        self._write(node, {**node.meta.annotations, **scale_down.put(node)})

    async def release(self, node: Node) -> None:
        gone = scale_down.removed(node)
        self._write(node, {key: value for key, value in node.meta.annotations.items() if key not in gone})

    def _write(self, node: Node, annotations: dict[str, str]) -> None:
        self.lives -= 1
        if self.lives < 0:
            raise KilledError
        self.writes.append(node.name)
        if self.fails is not None:
            raise self.fails
        self.annotate(node.name, annotations)

    def annotate(self, name: str, annotations: dict[str, str]) -> None:
        rest = self.world._rest
        node = rest.nodes[NodeName(name)]
        changed = replace(node, reserved=False, meta=replace(node.meta, annotations=annotations))
        self.world._rest = replace(rest, nodes={**rest.nodes, node.name: changed})

    def kept(self) -> dict[str, list[str]]:
        """Return the autoscalers' annotations of each node that has any."""
        nodes = self.world._rest.nodes.values()
        found = {node.name: sorted(set(ANNOTATIONS) & node.meta.annotations.keys()) for node in nodes}
        return {name: keys for name, keys in found.items() if keys}


def asks(**shape: Any) -> ClusterBuilder:
    return a_cluster().queue("q", gpus=100, provisioning=PODS).shape("x8", gpus=8, **shape)


BOTH = sorted(ANNOTATIONS)


async def test_nodes_that_come_for_a_gang_are_kept_until_all_of_its_pods_run() -> None:
    play = Keeping(asks(), a={"pods": 2, "gpus": 8})
    await play.forget_changes()
    assert play.kept() == {}

    play.world.add("n1")
    await play.forget_changes()
    assert play.kept() == {"n1": BOTH}
    await play.forget_changes(2)
    assert play.writes == ["n1"], "once"

    play.world.add("n2")
    await play.forget_changes(3)
    assert len(play.world.bound()) == 2
    assert play.kept() == {}
    assert all(names.SCALE_DOWN not in node.meta.annotations for node in play.world._rest.nodes.values())


async def test_nodes_of_pods_that_run_are_let_go_though_others_of_their_elastic_gang_wait() -> None:
    job = {"pods": 3, "gpus": 8, "annotations": {names.GANG_MIN: "1"}}
    play = Keeping(a_cluster().queue("q", gpus=16, provisioning=PODS).shape("x8", gpus=8), a=job)
    await play.forget_changes()
    assert len(play.world.towards()) == 2
    play.world.add("n1")
    await play.forget_changes(2)
    assert play.kept() == {}, "what runs needs the others no more"
    play.world.add("n2", gpus=7)
    await play.forget_changes()
    assert play.kept() == {"n2": BOTH}, "a pod is to go there"

    play.world.now += 16 * MINUTE
    await play.forget_changes(2)

    assert play.world.bound() == {"a-0": "n1"}
    assert play.kept() == {}


async def test_nodes_of_pods_that_run_are_let_go_while_a_lost_one_is_replaced() -> None:
    play = Keeping(asks(), a={"pods": 2, "gpus": 8})
    await play.forget_changes()
    play.world.add("n1", "n2")
    await play.forget_changes(3)

    play.world.lose("n2")
    await play.forget_changes(3)

    assert play.world.towards().keys() == {"a-1"}
    assert play.kept() == {}
    play.world.add("n3", gpus=7)
    await play.forget_changes()
    assert play.kept() == {"n3": BOTH}


async def test_nodes_that_are_there_are_kept_while_a_gang_is_placed_on_them_and_no_node_without_a_shape() -> None:
    play = Keeping(asks().node("own", gpus=4), a={"pods": 3, "gpus": 4})
    play.world.add("n1", gpus=4)

    await play.forget_changes()

    assert play.world.bound().keys() == {"a-0", "a-1"}
    assert play.kept() == {"n1": BOTH}


async def test_a_gang_that_is_taken_back_or_deleted_lets_its_nodes_go() -> None:
    play = Keeping(asks(), a={"pods": 2, "gpus": 8})
    await play.forget_changes()
    play.world.add("n1")
    await play.forget_changes()
    assert play.kept() == {"n1": BOTH}

    play.world.delete_job("a")
    await play.forget_changes(2)

    assert play.kept() == {}


async def test_what_others_have_put_on_a_node_stays_there() -> None:
    play = Keeping(asks(), a={"pods": 2, "gpus": 8})
    await play.forget_changes()
    play.world.add("n1")
    play.annotate("n1", {CA: "true", "theirs": "kept"})
    await play.forget_changes()
    assert play.kept() == {"n1": BOTH}

    play.world.delete_job("a")
    await play.forget_changes(2)

    assert play.world._rest.nodes[NodeName("n1")].meta.annotations == {CA: "true", "theirs": "kept"}


async def test_a_node_that_others_keep_for_good_is_not_written() -> None:
    play = Keeping(asks(), a={"pods": 2, "gpus": 8})
    await play.forget_changes()
    play.world.add("n1")
    play.annotate("n1", {CA: "true", KARPENTER: "true"})

    await play.forget_changes(2)

    assert play.writes == []


async def test_where_writes_are_forbidden_nodes_are_left_alone_for_a_while_and_gangs_go_on() -> None:
    play = Keeping(asks(), a={"pods": 2, "gpus": 8})
    play.fails = ForbiddenError("patch nodes n1: muster may not")
    await play.forget_changes()
    play.world.add("n1")
    await play.forget_changes(3)
    assert play.writes == ["n1"]

    play.fails = None
    play.world.now += 6 * MINUTE
    await play.forget_changes()
    assert play.kept() == {"n1": BOTH}
    play.world.add("n2")
    await play.forget_changes(3)
    assert len(play.world.bound()) == 2


@pytest.mark.parametrize("lives", range(3))
async def test_killed_at_any_write_the_next_leader_leaves_no_annotation(lives: int) -> None:
    play = Keeping(asks(), a={"pods": 2, "gpus": 8})
    await play.forget_changes()
    play.world.add("n1")
    play.lives = lives
    await survive(play, 2)
    play.world.delete_job("a")
    await survive(play, 3)

    assert play.kept() == {}
    assert all(names.SCALE_DOWN not in node.meta.annotations for node in play.world._rest.nodes.values())


async def test_annotations_left_by_an_earlier_leader_go_although_no_shape_is_there_any_more() -> None:
    play = Keeping(a_cluster().queue("q", gpus=8).node("n", gpus=4))
    play.annotate("n", {CA: "true", KARPENTER: "true", names.SCALE_DOWN: CA})

    await play.forget_changes()

    assert play.kept() == {"n": [KARPENTER]}


async def survive(play: Keeping, cycles: int) -> None:
    """Run cycles; where the leader dies, another one takes over, which lives."""
    for _ in range(cycles):
        try:
            await play.forget_changes()
        except* KilledError:
            play.lives = 10**6
            await play.ledger.fence(play.epoch + 1)
            play.succeed()


@pytest.mark.parametrize("value", ["false", "muster must not"])
def test_an_annotation_that_somebody_has_changed_since_is_theirs(value: str) -> None:
    annotations = {CA: value, KARPENTER: "true", names.SCALE_DOWN: f"{CA},{KARPENTER}"}
    node = Node(meta=Meta(name="n", annotations=annotations))

    assert scale_down.removed(node) == {KARPENTER: None, names.SCALE_DOWN: None}
