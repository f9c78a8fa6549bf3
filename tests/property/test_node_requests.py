"""Random walks of a queue that asks for nodes: nodes come late, in part, with too few devices, or not at all, and go.

Laws: nothing is let in that is not charged; no more nodes come than may; no device is used twice; a gang that was let
in runs whole in time or is taken back; and when all is gone nothing stays charged.
"""

import random

import pytest

from admission.api.kubernetes.nodes import Node
from admission.api.values import names
from tests.builders import a_cluster
from tests.unit.cycle.autoscaled import PODS, Asking
from tests.unit.cycle.fences import MINUTE

MOST = 4
STEPS = 25


class Walk:
    """One cluster with one shape, whose nodes have eight GPUs, and what happens to it by chance."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)  # noqa: S311 - the same walk each time
        builder = a_cluster().queue("q", gpus=24, provisioning=PODS, requeue={"base": "1s", "max": "1m"})
        self.play = Asking(builder.node("old", gpus=4).shape("x8", gpus=8, most=MOST))
        self.world = self.play.world
        self.made = 0

    async def step(self) -> None:
        do = self.draw.choice([self.submit, self.submit, self.launch, self.launch, self.launch, self.wait, self.end])
        do()
        if self.draw.random() < 0.1:
            await self.play.ledger.fence(self.play.epoch + 1)
            self.play.succeed()
        await self.play.forget_changes()
        self.check()

    def submit(self) -> None:
        self.made += 1
        pods, gpus = self.draw.choice([(1, 1), (1, 8), (2, 4), (2, 8), (3, 3), (4, 4)])
        self.world.submit(f"job{self.made}", queue="q", pods=pods, gpus=gpus)

    def launch(self) -> None:
        """Start a node for the pods that are pending, as an autoscaler would that packs them; rarely a poor one."""
        wanted = sum(self.world._wanted(pod) for pod in self.world.pending() if pod.node_selector == {"type": "x8"})
        free = sum(len(self.world._free(node.name)) for node in self.nodes())
        if wanted > free:
            self.made += 1
            self.world.add(f"n{self.made}", gpus=self.draw.choice([8, 8, 8, 8, 2]))

    def wait(self) -> None:
        self.world.now += self.draw.choice([1, 5, 20]) * MINUTE

    def end(self) -> None:
        """End a gang, and take away nodes that nobody uses."""
        if self.world.made:
            self.world.delete_job(self.draw.choice([*self.world.made]))
        used = self.world.bound().values()
        for node in [node for node in self.nodes() if node.name not in used and self.draw.random() < 0.5]:
            self.world.without(node=node.name)

    def nodes(self) -> list[Node]:
        return [node for node in self.world._rest.nodes.values() if node.meta.labels.get("type") == "x8"]

    def check(self) -> None:
        book = self.play.ledger.book
        pods = [pod for pod in self.world._pods.values() if not pod.finished and pod.meta.deleted is None]
        assert all(pod.meta.uid in book.owners for pod in pods if not pod.gated), "let in and not charged"
        assert len(self.nodes()) <= MOST
        given = [device for devices in self.world.devices().values() for device in devices]
        assert len(given) == len(set(given))
        for placement in book.placements.values():
            late = self.world.now - placement.reserved_at > 16 * MINUTE
            waits = [uid for uid in placement.seats if not self.world._pods[uid].node]
            assert not (waits and late), f"{placement.gang} waits since {placement.reserved_at}"
        asked = {
            (uid, seat.node)
            for uid, one in book.placements.items()
            for seat in one.seats.values()
            if seat.pod_uid in self.world._pods
            and not self.world._pods[seat.pod_uid].node
            and names.shape_of(seat.node) is not None
        }
        assert len(asked) <= MOST

    async def finish(self) -> None:
        for name in [*self.world.made]:
            self.world.delete_job(name)
        await self.play.forget_changes(3)
        assert self.play.ledger.book.placements == {}
        assert all(sum(use) == 0 for uses in self.play.ledger.book.usage().values() for use in uses.values())


@pytest.mark.parametrize("seed", range(12))
async def test_whatever_becomes_of_the_nodes_that_were_asked_for(seed: int) -> None:
    walk = Walk(seed)

    for _ in range(STEPS):
        await walk.step()

    assert walk.made
    await walk.finish()
