"""Random steps of two queues that evict each other's gangs: whole ones, by the rules, and never for ever."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

import pytest

from admission.accounting.books import Use
from admission.api.kubernetes.jobs import Job
from admission.api.kubernetes.pods import Pod
from admission.api.muster.queues import QueueingStrategy
from admission.api.values import names
from admission.api.values.names import MeterName
from tests import soaking
from tests.builders import a_cluster
from tests.unit.cycle.fences import KilledError
from tests.unit.cycle.jobs import Jobs, Play

QUEUES = ("left", "right")
PREEMPTION: dict[str, Any] = {"withinQueue": "LowerPriority", "reclaim": "Any"}
BORROWING = {"policy": "LowerPriority", "maxPriorityThreshold": 1}
NEWER = {"withinQueue": "LowerOrNewerEqualPriority", "reclaim": "Any", "borrowWithinCohort": BORROWING}
OPTIONS: dict[str, dict[str, Any]] = {
    "usual": {"preemption": PREEMPTION},
    "all that evicts": {"preemption": NEWER, "fairSharing": {"weight": "1"}},
    "by shares": {
        "preemption": {**NEWER, "byShares": "LessThanInitialShare"},
        "fairSharing": {"weight": "1"},
        "gpus": 1,
    },
    "by final shares": {
        "preemption": {**PREEMPTION, "byShares": "LessThanOrEqualToFinalShare"},
        "fairSharing": {"weight": "1", "within": {"by": "Namespace"}},
        "gpus": 0,
    },
    "what is kept, and all else": {
        "preemption": {**NEWER, "reclaim": "LowerPriority", "byShares": "LessThanInitialShare"},
        "fairSharing": {"weight": "1", "within": {"by": "User"}},
        "priorityClasses": [{"name": f"class-{value}", "value": value} for value in range(3)],
        "gpus": 2,
        "claims": 1,
    },
}
"""What the queues say. gpus and claims: the nominal quota of each; what is missing is their parent's, so that of claims
one is borrowed with almost any gang. By default queues keep quota that they cannot take back (`lending`)."""
MOST_JOBS = 9
GPUS = 6
QUIET = 60
"""Cycles within which everything comes to rest, if nothing else happens."""
STEPS = 1_000 if soaking.is_on() else 250


class Mortal(Jobs):
    """A cluster whose controller dies in the middle of evictions and of opening gates, now and then."""

    def __init__(self, random: Random, strategy: QueueingStrategy, *, gpus: int = 3, **spec: Any) -> None:
        builder = a_cluster().node("a", gpus=4).node("b", gpus=2).queue("top", gpus=GPUS - 2 * gpus)
        self.has_classes = "priorityClasses" in spec
        for name in QUEUES:
            builder.queue(name, gpus=gpus, parent="top", queueingStrategy=strategy, **spec)
        super().__init__(builder, graceful=True)
        self.is_newer_evicted = "Newer" in spec["preemption"]["withinQueue"]
        self.random = random
        self.lives_left = 10**9
        self.submitted: dict[str, str] = {}
        """The queue of every Job."""
        self.ranks: dict[str, int] = {}
        """The priority of every Job, of its pods or their class."""

    async def suspend(self, job: Job) -> None:
        self._count()
        await super().suspend(job)
        self._count()

    async def evict(self, pod: Pod, reason: str) -> None:
        self._count()
        await super().evict(pod, reason)

    def _call(self, what: str, name: str) -> None:
        self._count()
        super()._call(what, name)

    def _count(self) -> None:
        self.lives_left -= 1
        if self.lives_left < 0:
            raise KilledError

    # What happens.

    def happen(self) -> str:
        """Let one thing happen; return what."""
        what = self.random.choices(("arrive", "end", "delete", "grace", "die", "nothing"), weights=(6, 3, 1, 5, 1, 4))[
            0
        ]
        if what == "arrive" and len(self.made) < MOST_JOBS:
            name = f"j{len(self.submitted)}"
            self.submitted[name] = self.random.choice(QUEUES)
            pods, gpus = self.random.choice(((1, 1), (2, 1), (3, 1), (1, 2), (2, 2)))
            priority = self.random.choice((0, 0, 1, 2))
            job = {"pods": pods, "gpus": gpus, "cpu": self.random.choice(("1", "1", "20")), **self._says()}
            self.ranks[name] = priority
            if self.has_classes:
                named = {names.PRIORITY_CLASS: f"class-{priority}", names.USER: self.random.choice(("ann", "bob"))}
                job["annotations"], priority = {**job["annotations"], **named}, 2 - priority
            self.submit(name, queue=self.submitted[name], priority=priority, **job)
        elif what == "end" and (running := sorted(self.running())):
            self._forget(self.random.choice(running))
        elif what == "delete" and self.made:
            self._forget(self.random.choice(sorted(self.made)))
        elif what == "grace":
            self.end_grace()
        elif what == "die":
            self.lives_left = self.random.randint(0, 4)
        return what

    def _says(self) -> dict[str, Any]:
        """What a job says of itself: how long it runs, so that others are beside what is reserved, or where."""
        runtime = {names.RUNTIME: self.random.choice(("5s", "30s", "10m"))}
        together = {names.TOPOLOGY: names.HOSTNAME}
        return {"annotations": self.random.choice(({}, runtime, runtime, together, {**runtime, **together}))}

    def _forget(self, name: str) -> None:
        self.delete_job(name)
        self._gangs = {key: gang for key, gang in self._gangs.items() if not key.startswith(f"team/{name}-")}


async def step(play: Play) -> None:
    """Run a cycle; where its leader dies, another one takes over."""
    try:
        await play.forget_changes()
    except (KilledError, ExceptionGroup):
        assert isinstance(play.cluster, Mortal)
        play.cluster.lives_left = 10**9
        play.succeed()


def check(play: Play) -> None:
    """Nobody has a device twice, no queue more than the tree has, and a gang runs whole or not at all."""
    cluster, ledger = play.cluster, play.ledger
    given = Counter(device for devices in cluster.devices().values() for device in devices)
    assert max(given.values(), default=0) <= 1
    assert sum(use.reserved + use.used for meters in ledger.book.usage().values() for use in _of(meters)) <= GPUS
    for name, job in cluster.made.items():
        pods = [pod for pod in cluster._pods.values() if pod.meta.name.rpartition("-")[0] == name]
        alive = [pod for pod in pods if pod.meta.deleted is None]
        running = [pod for pod in alive if pod.phase == "Running"]
        assert len(running) in {0, job["pods"]}, f"{name} runs in part"


def _of(meters: Mapping[MeterName, Use]) -> Iterator[Use]:
    """What is used of GPUs."""
    return (use for meter, use in meters.items() if meter == "gpus")


def check_evictions(play: Play, known: int) -> None:
    """Who was evicted had a lower priority in its queue, or the same and was queued later, or was of the other one."""
    cluster = play.cluster
    assert isinstance(cluster, Mortal)
    for victim, reason, winner in play.evicted[known:]:
        if winner not in cluster.priorities or victim not in cluster.priorities:
            continue
        same = cluster.submitted[victim] == cluster.submitted[winner]
        assert reason == ("Preempted" if same else "Reclaimed")
        later = int(victim[1:]) > int(winner[1:]) and cluster.is_newer_evicted
        assert not same or cluster.ranks[victim] < cluster.ranks[winner] + later


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
        if calm > 2:
            assert not play.leader.nominations.by_gang
            assert not play.leader.evictions.ending
            return
    pytest.fail(f"{play.evicted[-10:]} goes on for ever")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("options", list(OPTIONS))
@pytest.mark.parametrize("strategy", list(QueueingStrategy))
def test_random_evictions_livelock_no_gang(strategy: QueueingStrategy, options: str) -> None:
    async def live() -> int:
        seed = f"{strategy}" if options == "usual" else f"{strategy}, {options}"
        cluster = Mortal(Random(seed), strategy, **OPTIONS[options])  # noqa: S311 - not for secrets
        play = Play(cluster)
        kept: dict[str, object] = {}
        for number in range(STEPS):
            known = len(play.evicted)
            cluster.happen()
            await step(play)
            check(play)
            check_evictions(play, known)
            for key, report in cluster.gangs.items():
                name = key.removeprefix("team/").rpartition("-")[0]
                assert name not in cluster.made or kept.setdefault(name, report.queued_since) == report.queued_since
            if number % 25 == 0:
                await rest(play)
        await rest(play)
        return len(play.evicted)

    assert asyncio.run(live()) > STEPS // 50, "it is about evictions"
