"""The nodes that came for gangs are looked for again where gangs, nodes or shapes have changed, and only then."""

from dataclasses import replace

from admission.api.snapshot import Snapshot
from admission.api.values.names import NodeName
from admission.scheduling.capacity.expected_nodes import Expectations, ExpectedNodes
from tests.builders import a_cluster
from tests.unit.cycle.autoscaled import PODS, Asking


class Seen:
    """What is expected for a gang that asked for two nodes, of which one has come."""

    def __init__(self, play: Asking) -> None:
        gangs = play.leader.gangs
        self.expected, self.snapshot = ExpectedNodes(), play.world.snapshot()
        self.granted, self.groups = gangs.granted, tuple(gangs.by_uid.values())

    def find(self, snapshot: Snapshot | None = None) -> Expectations:
        return self.expected.find(snapshot or self.snapshot, self.granted, self.groups)

    def mark(self) -> Snapshot:
        return self.expected.mark(self.snapshot, self.granted, self.groups)


async def seen() -> Seen:
    builder = a_cluster().queue("q", gpus=16, provisioning=PODS).shape("x8", gpus=8)
    play = Asking(builder, a={"pods": 2, "gpus": 8})
    await play.forget_changes()
    play.world.add("n1")
    return Seen(play)


async def test_nodes_that_came_are_looked_for_once_though_they_are_marked_meanwhile() -> None:
    one = await seen()

    first, marked = one.find(), one.mark()

    assert first.come == {"x8": {NodeName("n1")}}
    assert first.outstanding(one.snapshot.shapes) == {"x8": 1}
    assert [name for name, node in marked.nodes.items() if node.reserved] == ["n1"]
    assert one.find(marked) is first


async def test_nodes_that_came_are_looked_for_again_when_nodes_gangs_or_shapes_have_changed() -> None:
    one = await seen()
    one.mark()

    assert one.find(replace(one.snapshot, nodes={})).come == {}
    assert one.find(replace(one.snapshot, shapes={})).come == {}
    one.granted, one.groups = (), ()
    assert one.find().expected == {}
