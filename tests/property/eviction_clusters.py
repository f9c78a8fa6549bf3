"""A small cluster whose queues evict each other's gangs and whose controller dies, and what has to hold there.

`Mortal` is the cluster in which things happen by chance; `walk` lets them happen, cycle by cycle, and checks each time.
"""

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from admission.api.kubernetes.jobs import Job
from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.nodes import Namespace
from admission.api.kubernetes.pods import Pod
from admission.api.muster.meters import Meter
from admission.api.muster.queues import Reclaim, WithinQueue
from admission.api.values import names
from admission.api.values.names import QueueName
from tests.builders import CLASS, ClusterBuilder
from tests.property import owner_turns
from tests.property.mortal_jobs import MortalJobs, step
from tests.unit.cycle.jobs import Play
from tests.unit.cycle.test_node_resources import a_meter

MOST_JOBS = 9
QUIET = 60
"""Cycles within which everything comes to rest, if nothing else happens."""
PRICES = {"h100": 6, "a100": 4}
"""What a device of each kind costs in credits, beside 1 for each pod."""
GROUP = "group"
NAMESPACES = {"team": "red", "lab": "red", "shop": "blue"}
"""The value of the label `GROUP` of each namespace."""


class Mortal(MortalJobs):
    """A cluster whose controller dies in the middle of evictions and of opening gates, now and then.

    queues: to which jobs are submitted. namespaces: of the jobs. by_kind: whether quota is that of kinds of devices.
    is_open: whether some leave open how many devices or
    pods they get, so that only a plan says what they are charged. late: how many cycles late pods are at most.
    """

    def __init__(
        self,
        random: Random,
        builder: ClusterBuilder,
        *,
        queues: tuple[str, ...],
        namespaces: tuple[str, ...],
        is_open: bool = False,
        by_kind: bool = False,
        late: int = 0,
    ) -> None:
        super().__init__(builder, graceful=True, late=late)
        spaces = {name: Namespace(meta=Meta(name=name), labels={GROUP: group}) for name, group in NAMESPACES.items()}
        self._rest = replace(self._rest, namespaces=spaces)
        self.random = random
        self.places = queues, namespaces
        self.is_open = is_open
        self.by_kind = by_kind
        self.nominal = Counter[str]()
        """The quota of the whole tree, by meter."""
        for queue in self._rest.queues.values():
            self.nominal.update({quota.meter: quota.nominal for quota in queue.quotas})
        self.submitted: dict[str, str] = {}
        """The queue of every Job."""
        self.ranks: dict[str, int] = {}
        """The priority of every Job, of its pods or their class."""

    def lateness(self) -> int:
        return self.random.randint(0, self.delay) if self.delay else 0

    async def suspend(self, job: Job) -> None:
        self._count()
        await super().suspend(job)
        self._count()

    async def evict(self, pod: Pod, reason: str) -> None:
        self._count()
        await super().evict(pod, reason)

    # What happens.

    def happen(self) -> str:
        """Let one thing happen; return what."""
        what = self.random.choices(("arrive", "end", "delete", "grace", "die", "nothing"), weights=(6, 3, 1, 5, 1, 4))[
            0
        ]
        if what == "arrive" and len(self.made) < MOST_JOBS:
            self._arrive(f"j{len(self.submitted)}")
        elif what == "end" and (running := sorted(self.running())):
            self._forget(self.random.choice(running))
        elif what == "delete" and self.made:
            self._forget(self.random.choice(sorted(self.made)))
        elif what == "grace":
            self.end_grace()
        elif what == "die":
            self.lives_left = self.random.randint(0, 4)
        return what

    def _arrive(self, name: str) -> None:
        queues, namespaces = self.places
        queue = self.submitted[name] = self.random.choice(queues)
        pods, gpus = self.random.choice(((1, 1), (2, 1), (3, 1), (1, 2), (2, 2)))
        priority = self.ranks[name] = self.random.choice((0, 0, 1, 2))
        job = {"pods": pods, "gpus": gpus, "cpu": self.random.choice(("1", "1", "20")), **self._says()}
        spec = self._rest.queues[QueueName(queue)]
        if spec.priority_classes or len(namespaces) > 1:
            job["annotations"] = {**job["annotations"], names.USER: self.random.choice(("ann", "bob"))}
        if spec.priority_classes:
            job["annotations"][names.PRIORITY_CLASS] = f"class-{priority}"
            priority = 2 - priority
        if self.is_open:
            job |= self.random.choice(({}, {"pods": 1, "gpus": (4, 2)}, {"pods": 6, "gpus": 1}))
            if job["pods"] > 3:
                job["annotations"] = {**job["annotations"], names.GANG_MIN: "2"}
        if len(namespaces) > 1:
            job["namespace"] = self.random.choice(namespaces)
        self.submit(name, queue=queue, priority=priority, **job)

    def _says(self) -> dict[str, Any]:
        """What a job says of itself: how long it runs, so that others are beside what is reserved, or where."""
        runtime = {names.RUNTIME: self.random.choice(("5s", "30s", "10m"))}
        together = {names.TOPOLOGY: names.HOSTNAME}
        return {"annotations": self.random.choice(({}, runtime, runtime, together, {**runtime, **together}))}

    def _forget(self, name: str) -> None:
        self.delete_job(name)
        self._gangs = {
            key: gang for key, gang in self._gangs.items() if not key.partition("/")[2].startswith(f"{name}-")
        }


def check(play: Play) -> None:
    """Nobody has a device twice, no queue more than the tree has, and a gang runs whole or not at all."""
    cluster, ledger = play.cluster, play.ledger
    assert isinstance(cluster, Mortal)
    given = Counter(device for devices in cluster.devices().values() for device in devices)
    assert max(given.values(), default=0) <= 1
    used = Counter[str]()
    for meters in ledger.book.usage().values():
        used.update({meter: use.reserved + use.used for meter, use in meters.items()})
    assert used <= cluster.nominal
    for name, job in cluster.made.items():
        pods = [pod for pod in cluster._pods.values() if pod.meta.name.rpartition("-")[0] == name]
        alive = [pod for pod in pods if pod.meta.deleted is None]
        running = [pod for pod in alive if pod.phase == "Running"]
        assert len(running) in {0, job["pods"]} or names.GANG_MIN in job["annotations"], f"{name} runs in part"


def check_evictions(play: Play, known: int) -> None:
    """Who was evicted is one that the queue of the gang that asked may have evicted, by the priorities and the wait."""
    cluster = play.cluster
    assert isinstance(cluster, Mortal)
    for victim, reason, winner in play.evicted[known:]:
        if winner not in cluster.priorities or victim not in cluster.priorities:
            continue
        asked = cluster._rest.queues[QueueName(cluster.submitted[winner])].preemption
        lower = cluster.ranks[victim] < cluster.ranks[winner]
        if cluster.submitted[victim] == cluster.submitted[winner]:
            newer = cluster.ranks[victim] == cluster.ranks[winner] and int(victim[1:]) > int(winner[1:])
            assert reason == "Preempted"
            assert asked.within_queue is not WithinQueue.NEVER
            assert lower or (newer and asked.within_queue is WithinQueue.LOWER_OR_NEWER_EQUAL_PRIORITY)
        else:
            assert reason == "Reclaimed"
            assert asked.reclaim is not Reclaim.NEVER
            assert lower or asked.reclaim is Reclaim.ANY


def priced() -> Meter:
    """Return the meter `credits`, of which only a plan says all."""
    price = f"device.attributes['{CLASS}'].model == 'h100' ? {PRICES['h100']} : {PRICES['a100']}"
    return a_meter({"name": "pods"}, price=price)


async def rest(play: Play) -> None:
    """Let nothing happen any more but what follows, and see that it comes to an end."""
    calm = 0
    for _ in range(QUIET):
        before = len(play.evicted), play.ledger.book.sequence, frozenset(play.cluster.running())
        play.cluster.end_grace()
        await step(play)
        check(play)
        calm = (
            calm + 1
            if before == (len(play.evicted), play.ledger.book.sequence, frozenset(play.cluster.running()))
            else 0
        )
        if calm > 2 + (play.cluster.delay + 1 if play.cluster.delay else 0):
            assert not play.leader.nominations.by_gang
            assert not play.leader.evictions.ending
            return
    pytest.fail(f"{play.evicted[-10:]} goes on for ever")


async def walk(cluster: Mortal, steps: int) -> int:
    """Let one thing after the other happen, and check after each; now and then all comes to rest. Return evictions."""
    play = Play(cluster)
    kept: dict[str, object] = {}
    for number in range(steps):
        known = len(play.evicted)
        cluster.happen()
        before, running = owner_turns.used(play), cluster.running()
        promised = {*play.leader.nominations.by_gang}
        await step(play)
        # A new leader finds them on the way.
        promised |= play.leader.nominations.by_gang.keys()
        check(play)
        if not cluster.by_kind:
            dearest = max(PRICES.values()) if "credits" in cluster.nominal else 0
            running |= {play.name(uid) for uid in promised}
            assert owner_turns.passed(play, cluster.submitted, before, running, dearest) == []
        assert promised or owner_turns.kept_out(play, before) == []
        check_evictions(play, known)
        for key, report in cluster.gangs.items():
            name = key.partition("/")[2].rpartition("-")[0]
            assert name not in cluster.made or kept.setdefault(name, report.queued_since) == report.queued_since
        if number % 25 == 0:
            await rest(play)
    await rest(play)
    return len(play.evicted)
