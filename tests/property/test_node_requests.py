"""Random walks of queues that ask for nodes: these come late, in part, with too few devices, or not at all, and go.

One queue shows its pods to an autoscaler, one asks by ProvisioningRequests, one asks nobody, and each may change its
mind. Gangs are whole or elastic, or such that nobody is asked for them; two shapes match one kind of node.

Laws: nothing is let in that is not charged; no more nodes are asked for than may come; no device is used twice; no node
came for two shapes; a pod that was let in runs in time or is taken back, and no pod that runs is taken back alone;
requests and annotations are there only as long as something needs them; and when all is gone nothing stays charged.
Under fire the ledger is away now and then, or its answers are lost, and leaders are killed between two writes; all laws
hold, but for the time.
"""

import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from admission.accounting.books import Book
from admission.api.capacity.provisioning_requests import Answer
from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.nodes import Node
from admission.api.kubernetes.pods import Pod
from admission.api.values import names
from admission.api.values.decoding import Json
from admission.api.values.names import NodeName
from admission.errors import LedgerUnavailableError
from admission.lifecycle import placement_progress
from admission.scheduling.capacity import expected_nodes, scale_down
from admission.simulation import in_memory
from tests.builders import ClusterBuilder, a_cluster
from tests.unit.cycle.autoscaled import PODS, AskingBehindFence
from tests.unit.cycle.fences import MINUTE, KilledError
from tests.unit.cycle.requesting import REQUEST, Requesting

MOST = {"x8": 4, "y2": 3, "z2": 2}
GPUS = {"x8": 8, "y2": 2, "z2": 2}
LABELS = {"x8": {"type": "x8"}, "y2": {"type": "y2"}, "z2": {"type": "y2", "zone": "z"}}
"""Nodes of z2 are nodes of y2, too."""
QUEUES = {"q": PODS, "requests": REQUEST, "nobody": {"mode": "None", "timeout": "15m"}}
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


class UnderFire(Requesting):
    """Leaders that are killed after so many writes towards nodes: `lives`. They put annotations on nodes, too."""

    ledger: Ledger

    def __init__(self, builder: ClusterBuilder) -> None:
        self.lives = NEVER
        super().__init__(builder)
        self.ledger = Ledger()
        super().succeed()
        self._open, self.world.open_gate_towards = self.world.open_gate_towards, self._dies  # type: ignore[method-assign, assignment]
        self._evict, self.world.evict = self.world.evict, self._evicts  # type: ignore[method-assign]
        self._create, self.requests.create = self.requests.create, self._creates  # type: ignore[method-assign]
        self._delete, self.requests.delete = self.requests.delete, self._deletes  # type: ignore[method-assign]
        self.taken: list[Pod] = []
        """Running pods that were evicted."""

    def _prepare(self) -> None:
        super()._prepare()
        self.leader = replace(self.leader, ports=replace(self.leader.ports, nodes=self))
        settings = self.leader.settings
        settings.update(steps=settings.steps, writes=1, strands_least=settings.strands_least)

    def _live(self) -> None:
        self.lives -= 1
        if self.lives < 0:
            raise KilledError

    async def _dies(self, pod: Pod, *where: Any) -> None:
        self._live()
        await self._open(pod, *where)

    async def _evicts(self, pod: Pod, reason: str) -> None:
        self._live()
        stored = self.world._pods.get(pod.meta.uid)
        if stored is not None and stored.phase == "Running":
            self.taken.append(stored)
        await self._evict(pod, reason)

    async def _creates(self, request: Any) -> None:
        self._live()
        await self._create(request)

    async def _deletes(self, request: Any) -> None:
        self._live()
        await self._delete(request)

    async def keep(self, node: Node) -> None:
        self._annotate(node, {**node.meta.annotations, **scale_down.put(node)})

    async def release(self, node: Node) -> None:
        gone = scale_down.removed(node)
        self._annotate(node, {key: value for key, value in node.meta.annotations.items() if key not in gone})

    def _annotate(self, node: Node, annotations: dict[str, str]) -> None:
        self._live()
        rest = self.world._rest
        stored = rest.nodes.get(node.name)
        if stored is not None:
            changed = replace(stored, meta=replace(stored.meta, annotations=annotations))
            self.world._rest = replace(rest, nodes={**rest.nodes, node.name: changed})


class BehindFence(UnderFire, AskingBehindFence):
    """The same behind a fence, where leaders give the devices; they are killed between two claims, too."""

    def __init__(self, builder: ClusterBuilder) -> None:
        super().__init__(builder)
        self._allocate, self.world.allocate = self.world.allocate, self._allocates  # type: ignore[method-assign]

    async def _allocates(self, claim: Claim, allocation: Json) -> Claim:
        self._live()
        return await self._allocate(claim, allocation)


class Walk:
    """A cluster with three shapes, and what happens to it by chance. under_fire: whether Muster and its ledger die.

    fenced: whether a fence keeps kube-scheduler off the devices.
    """

    def __init__(self, seed: int, *, under_fire: bool = False, fenced: bool = False) -> None:
        self.draw = random.Random(seed)  # noqa: S311 - the same walk each time
        self.under_fire = under_fire
        builder = a_cluster().node("old", gpus=4)
        for name, provisioning in QUEUES.items():
            builder.queue(name, gpus=24, provisioning=provisioning, requeue={"base": "1s", "max": "1m"})
        for name, most in MOST.items():
            builder.shape(name, gpus=GPUS[name], most=most, matches=LABELS[name])
        self.play = BehindFence(builder) if fenced else UnderFire(builder)
        self.world, self.ledger = self.play.world, self.play.ledger
        # A Job controller takes its time, so that a gang is looked at that has lost pods.
        self.world.slow = bool(seed % 2)
        self.made = self.killed = self.failed = self.joined = self.moved = 0
        self.unstarted: dict[str, set[str]] = {}
        """By gang with pods that have a place and do not run, the nodes of its places, when the last cycle ended."""
        self.used: set[str] = set()
        """All of these."""
        self._schedule, self.world.schedule = self.world.schedule, self._note_unstarted  # type: ignore[method-assign]

    async def step(self) -> None:
        happens = [self.submit, self.launch, self.wait, self.end, self.lose, self.answer, self.change]
        (do,) = self.draw.choices(happens, weights=[4, 6, 3, 2, 2, 5, 1])
        do()
        self.world.replace_lost()
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

    def _note_unstarted(self, book: Book) -> tuple[Pod, ...]:
        self.unstarted = {}
        for uid, placement in book.placements.items():
            pods = [self.world._pods.get(pod) for pod in placement.seats]
            if any(pod is not None and pod.phase != "Running" for pod in pods):
                nodes = {pod.node for pod in pods if pod is not None and pod.node}
                self.unstarted[uid] = {str(node) for node in (*nodes, *(one.node for one in placement.seats.values()))}
        return self._schedule(book)

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
        annotations = self.draw.choice(
            [{}, {}, {names.GANG_MIN: str((pods + 1) // 2)}, {names.TOPOLOGY: names.HOSTNAME}]
        )
        queue = self.draw.choice(["q", "q", "requests", "requests", "nobody"])
        self.world.submit(f"job{self.made}", queue=queue, pods=pods, gpus=gpus, annotations=annotations)

    def launch(self) -> None:
        """Start a node for the pods that are pending, as an autoscaler would that packs them; rarely a poor one."""
        for shape, gpus in GPUS.items():
            labels = LABELS[shape]
            wanted = sum(self.world._wanted(pod) for pod in self.world.pending() if pod.node_selector == labels)
            free = sum(len(self.world._free(node.name)) for node in self.nodes(shape) if not node.leaving)
            if wanted > free:
                self.made += 1
                come = self.draw.choice([gpus] * 4 + [gpus // 4])
                self.world.add(f"n{self.made}", labels=labels, gpus=come)

    def answer(self) -> None:
        """Have Cluster Autoscaler answer a request; it starts the nodes when the pods are there."""
        open_ = [one for one in self.play.requests.there if Answer.PROVISIONED not in one.answers]
        if open_:
            answer = self.draw.choice([Answer.ACCEPTED, *[Answer.PROVISIONED] * 4, Answer.FAILED])
            self.play.requests.answer(answer, of=self.draw.choice(open_).meta.name)
        elif self.play.requests.there and self.draw.random() < 0.2:
            self.play.requests.answer(
                self.draw.choice([Answer.CAPACITY_REVOKED, Answer.BOOKING_EXPIRED]),
                of=self.draw.choice(self.play.requests.there).meta.name,
            )

    def change(self) -> None:
        """Have a queue ask in another way."""
        rest = self.world._rest
        queue = self.draw.choice([*rest.queues.values()])
        of = self.draw.choice([*QUEUES])
        other = a_cluster().queue(queue.name, provisioning=QUEUES[of]).snapshot().queues[queue.name]
        changed = replace(queue, provisioning=other.provisioning)
        self.world._rest = replace(rest, queues={**rest.queues, queue.name: changed})

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

    def lose(self) -> None:
        """Have a node go, or begin to go, with what runs there."""
        nodes = [node for shape in MOST for node in self.nodes(shape)]
        if nodes:
            node = self.draw.choice(nodes)
            if node.leaving or self.draw.random() < 0.6:
                self.world.lose(node.name)
            else:
                self.world.disrupt(node.name)

    def nodes(self, shape: str) -> list[Node]:
        found = self.world._rest.shapes[shape]
        return [node for node in self.world._rest.nodes.values() if found.is_shape_of(node)]

    def check(self, *, is_disturbed: bool) -> None:
        book = self.play.ledger.book
        pods = [pod for pod in self.world._pods.values() if not pod.finished and pod.meta.deleted is None]
        assert all(pod.meta.uid in book.owners for pod in pods if not pod.gated), "let in and not charged"
        given = [device for devices in self.world.devices().values() for device in devices]
        assert len(given) == len(set(given))
        for placement in book.placements.values():
            for seat in placement.seats.values():
                pod = self.world._pods.get(seat.pod_uid)
                since = placement_progress.nodes_asked_at(seat, placement) or placement.reserved_at
                late = self.world.now - since > 16 * MINUTE
                if pod is not None and not pod.node and late:
                    assert is_disturbed, f"{seat.pod} waits since {since}"
                self.joined += names.joined_at(seat.as_asked) is not None
                self.moved += bool(seat.asked_as)
        self.check_counts()
        self.check_requests(is_disturbed=is_disturbed)
        assert not self.play.taken, "pods that run were evicted one by one"

    def check_counts(self) -> None:
        """Check that no more nodes are asked for than may come, and that no node came for two shapes."""
        granted = [group for group in self.play.leader.gangs.granted if group.placement is not None]
        snapshot = self.world.snapshot()
        every = [*self.play.leader.gangs.by_uid.values()]
        found = expected_nodes.ExpectedNodes().find(snapshot, granted, (*every,))
        missing = found.outstanding(snapshot.shapes)
        for shape, most in MOST.items():
            is_exceeded = len(self.nodes(shape)) + missing.get(shape, 0) > most
            # An autoscaler starts others for pods that a poor node has no room for, or whose node was taken away.
            assert not is_exceeded or missing.get(shape, 0) <= most, f"{missing} of {shape} are asked for"
        come = [*found.come.values()]
        assert sum(map(len, come)) == len(frozenset[NodeName]().union(*come))

    def check_requests(self, *, is_disturbed: bool) -> None:
        """Check that every request is some gang's, and that nodes are kept only for gangs that are being placed."""
        if is_disturbed:
            self.used |= {node for nodes in self.unstarted.values() for node in nodes}
            return
        placements = self.play.ledger.book.placements
        for request in self.play.requests.there:
            of = [one for one in placements.values() if one.gang.partition("/")[0] == request.meta.namespace]
            assert of, f"{request.meta.name} is nobody's"
        # Which nodes came for a gang is judged when a cycle begins.
        before, self.used = self.used, {node for nodes in self.unstarted.values() for node in nodes}
        used = before | self.used
        asked = {names.shape_of(NodeName(node)) for node in used}
        for node in self.world._rest.nodes.values():
            shapes = {name for name, shape in self.world._rest.shapes.items() if shape.is_shape_of(node)}
            is_needed = node.name in used or shapes & asked
            assert is_needed or not scale_down.is_marked(node), f"{node.name} is kept for nobody"

    async def finish(self) -> None:
        for name in [*self.world.made]:
            self.world.delete_job(name)
        await self.play.forget_changes(3)
        assert self.play.ledger.book.placements == {}
        assert all(sum(use) == 0 for uses in self.play.ledger.book.usage().values() for use in uses.values())
        assert self.play.requests.there == []
        assert not any(scale_down.is_marked(node) for node in self.world._rest.nodes.values())


@pytest.mark.parametrize("seed", range(12))
async def test_whatever_becomes_of_the_nodes_that_were_asked_for(seed: int) -> None:
    walk = Walk(seed)

    for _ in range(STEPS):
        await walk.step()

    assert walk.made
    await walk.finish()


@pytest.mark.parametrize("fenced", [False, True], ids=["pinned", "behind a fence"])
async def test_whatever_becomes_of_the_nodes_of_the_ledger_and_of_those_who_asked(fenced: bool) -> None:
    killed = failed = joined = moved = 0
    for seed in range(100, 110):
        walk = Walk(seed, under_fire=True, fenced=fenced)

        for _ in range(STEPS):
            await walk.step()

        await walk.finish()
        killed += walk.killed
        failed += walk.failed
        joined += walk.joined
        moved += walk.moved
    assert killed
    assert failed
    assert joined
    assert bool(moved) is fenced
