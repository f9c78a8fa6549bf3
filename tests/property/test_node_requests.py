"""Random walks of a queue that asks for nodes: nodes come late, in part, with too few devices, or not at all, and go.

Laws: nothing is let in that is not charged; no more nodes come than may; no device is used twice; a gang that was let
in runs whole in time or is taken back; and when all is gone nothing stays charged. Under fire the ledger is away now
and then, or its answers are lost, and leaders are killed between two writes; all laws hold, but for the time.
"""

import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from admission.accounting.books import Book
from admission.api.kubernetes.nodes import Node
from admission.api.kubernetes.pods import Pod
from admission.api.values import names
from admission.errors import LedgerUnavailableError
from admission.simulation import in_memory
from tests.builders import ClusterBuilder, a_cluster
from tests.unit.cycle.autoscaled import PODS, Asking
from tests.unit.cycle.fences import MINUTE, KilledError

MOST = {"x8": 4, "y2": 3}
GPUS = {"x8": 8, "y2": 2}
STEPS = 25
NEVER = 10**6


class Ledger(in_memory.Ledger):
    """A ledger that is away for some calls. carries_out: whether only its answers are lost."""

    def __init__(self) -> None:
        super().__init__()
        self.away = 0
        self.carries_out = False

    async def load(self) -> Book:
        book: Book = await self._called(super().load)
        return book

    async def post_all(self, entries: Any, **options: Any) -> Any:
        return await self._called(lambda: in_memory.Ledger.post_all(self, entries, **options))

    async def _called(self, call: Callable[[], Awaitable[Any]]) -> Any:
        if not self.away:
            return await call()
        self.away -= 1
        if self.carries_out:
            await call()
        raise LedgerUnavailableError("away")


class UnderFire(Asking):
    """Leaders that are killed when they have opened so many gates towards shapes: `lives`."""

    ledger: Ledger

    def __init__(self, builder: ClusterBuilder) -> None:
        super().__init__(builder, Ledger())
        self.lives = NEVER
        self._open, self.world.open_gate_towards = self.world.open_gate_towards, self._dies  # type: ignore[method-assign, assignment]

    def _prepare(self) -> None:
        super()._prepare()
        settings = self.leader.settings
        settings.update(steps=settings.steps, writes=1, strands_least=settings.strands_least)

    async def _dies(self, pod: Pod, *where: Any) -> None:
        self.lives -= 1
        if self.lives < 0:
            raise KilledError
        await self._open(pod, *where)


class Walk:
    """One cluster with two shapes, and what happens to it by chance. under_fire: whether Muster and its ledger die."""

    def __init__(self, seed: int, *, under_fire: bool = False) -> None:
        self.draw = random.Random(seed)  # noqa: S311 - the same walk each time
        self.under_fire = under_fire
        builder = a_cluster().queue("q", gpus=24, provisioning=PODS, requeue={"base": "1s", "max": "1m"})
        builder.node("old", gpus=4)
        for name, most in MOST.items():
            builder.shape(name, gpus=GPUS[name], most=most)
        self.play = UnderFire(builder)
        self.world, self.ledger = self.play.world, self.play.ledger
        self.made = self.killed = self.failed = 0
        self.poor: set[str] = set()
        """The shapes of which a node came with fewer devices: its autoscaler starts others for the pods that wait."""

    async def step(self) -> None:
        do = self.draw.choice([self.submit, self.submit, self.launch, self.launch, self.launch, self.wait, self.end])
        do()
        if self.draw.random() < 0.1:
            await self.succeed()
        if self.under_fire:
            self.light()
        away = self.ledger.away
        try:
            await self.play.forget_changes()
        except* KilledError:
            self.killed += 1
            await self.succeed()
        is_disturbed = self.play.lives < 0 or away > 0
        self.failed += away - self.ledger.away
        self.ledger.away, self.play.lives = 0, NEVER
        self.check(is_disturbed=is_disturbed)

    async def succeed(self) -> None:
        await self.ledger.fence(self.play.epoch + 1)
        self.play.succeed()

    def light(self) -> None:
        """Have the ledger be away for some calls, or the leader die at some write, in the next cycle."""
        self.ledger.away = self.draw.choice([0, 0, 0, 1, 2])
        self.ledger.carries_out = self.draw.random() < 0.5
        self.play.lives = self.draw.choice([NEVER, NEVER, 0, 1, 2])

    def submit(self) -> None:
        self.made += 1
        pods, gpus = self.draw.choice([(1, 1), (1, 8), (2, 4), (2, 8), (3, 3), (4, 4)])
        self.world.submit(f"job{self.made}", queue="q", pods=pods, gpus=gpus)

    def launch(self) -> None:
        """Start a node for the pods that are pending, as an autoscaler would that packs them; rarely a poor one."""
        for shape, gpus in GPUS.items():
            wanted = sum(
                self.world._wanted(pod) for pod in self.world.pending() if pod.node_selector == {"type": shape}
            )
            free = sum(len(self.world._free(node.name)) for node in self.nodes(shape))
            if wanted > free:
                self.made += 1
                come = self.draw.choice([gpus] * 4 + [gpus // 4])
                if come < gpus:
                    self.poor.add(shape)
                self.world.add(f"n{self.made}", shape=shape, gpus=come)

    def wait(self) -> None:
        self.world.now += self.draw.choice([1, 5, 20]) * MINUTE

    def end(self) -> None:
        """End a gang, and take away nodes that nobody uses."""
        if self.world.made:
            self.world.delete_job(self.draw.choice([*self.world.made]))
        used = self.world.bound().values()
        nodes = [node for shape in MOST for node in self.nodes(shape)]
        for node in [node for node in nodes if node.name not in used and self.draw.random() < 0.5]:
            self.world.without(node=node.name)

    def nodes(self, shape: str) -> list[Node]:
        return [node for node in self.world._rest.nodes.values() if node.meta.labels.get("type") == shape]

    def check(self, *, is_disturbed: bool) -> None:
        book = self.play.ledger.book
        pods = [pod for pod in self.world._pods.values() if not pod.finished and pod.meta.deleted is None]
        assert all(pod.meta.uid in book.owners for pod in pods if not pod.gated), "let in and not charged"
        assert all(len(self.nodes(shape)) <= most for shape, most in MOST.items() if shape not in self.poor)
        given = [device for devices in self.world.devices().values() for device in devices]
        assert len(given) == len(set(given))
        for placement in book.placements.values():
            late = self.world.now - placement.reserved_at > 16 * MINUTE
            known = (self.world._pods.get(uid) for uid in placement.seats)
            waits = [pod for pod in known if pod is not None and not pod.node]
            assert is_disturbed or not (waits and late), f"{placement.gang} waits since {placement.reserved_at}"
        asked = {
            (uid, seat.node)
            for uid, one in book.placements.items()
            for seat in one.seats.values()
            if seat.pod_uid in self.world._pods
            and not self.world._pods[seat.pod_uid].node
            and names.shape_of(seat.node) is not None
        }
        for shape, most in MOST.items():
            assert sum(names.shape_of(node) == shape for _, node in asked) <= most

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


async def test_whatever_becomes_of_the_nodes_of_the_ledger_and_of_those_who_asked() -> None:
    killed = failed = 0
    for seed in range(100, 110):
        walk = Walk(seed, under_fire=True)

        for _ in range(STEPS):
            await walk.step()

        await walk.finish()
        killed += walk.killed
        failed += walk.failed
    assert killed
    assert failed
