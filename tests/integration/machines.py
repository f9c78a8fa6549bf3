"""A state machine of controllers that die while they give gangs devices, and what holds whatever happens to them."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from functools import partial
from typing import Any, TypeVar, cast

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from admission.api.kubernetes.pods import Pod
from admission.api.values.names import QUEUE, QueueName
from admission.cycle import cycle
from admission.cycle.state.leader import Leader, Ports
from admission.dra.metering import device_meters
from admission.errors import LedgerUnavailableError, RetryError
from admission.lifecycle import reconciliation
from admission.lifecycle.transitions import ObservedAllocations
from admission.simulation import in_memory
from tests.builders import NOON, a_cluster
from tests.property.faulty_clusters import GPUS, Fault, Faults, Faulty
from tests.property.fenced_clusters import WRITES, Post, Village
from tests.unit.cycle.fences import KilledError

T = TypeVar("T")

SHAPES = st.sampled_from([(1, 1), (2, 1), (3, 1), (1, 2), (2, 2)])
SOME = st.integers(0, 20)


class Others(Enum):
    """What others do, before a cycle or between two calls of it."""

    DELETE_A_POD = "a pod is deleted"
    TAKE_DEVICES_AWAY = "a claim loses its devices"
    TOUCH_A_CLAIM = "somebody labels a claim"
    LOSE_A_DEVICE = "a device leaves its slice"
    FIND_IT_AGAIN = "it comes back"
    BIND = "kube-scheduler binds what it can"
    END = "a pod ends"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """What happens to the calls of a cycle, counted from 0: which of them goes wrong (-1: none) and how, and before
    which of them others do something, to the pod or claim of some number."""

    call: int = -1
    fault: Fault = Fault.REFUSED
    others: tuple[tuple[int, Others], ...] = ()
    which: int = 0


NONE = Trouble()
CALLS = st.integers(0, 12)
TROUBLES = st.builds(
    Trouble,
    call=st.one_of(st.just(-1), CALLS, CALLS),
    fault=st.sampled_from(Fault),
    others=st.lists(st.tuples(CALLS, st.sampled_from(Others)), max_size=2).map(tuple),
    which=SOME,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """A write that arrives late, and what happens until then. shared: whether the gang's pods have one claim together;
    fenced: whether a fence is asked for then; bound: whether kube-scheduler binds what it can before."""

    write: str = "allocate"
    shared: bool = False
    others: tuple[Others, ...] = ()
    which: int = 0
    fenced: bool = True
    bound: bool = False


LATE = st.builds(
    Late,
    write=st.sampled_from(sorted(WRITES)),
    shared=st.booleans(),
    others=st.lists(st.sampled_from(Others), max_size=2).map(tuple),
    which=SOME,
    fenced=st.sampled_from([True, True, False]),
    bound=st.booleans(),
)

MOST_WAITING = 20
"""Pods that wait at a time. At least one of them starts in every round that nothing disturbs."""

QUOTA = 5
TEAMS = [QueueName("east"), QueueName("west")]
LONG = timedelta(hours=3)
"""More than any start timeout and back-off of these queues."""


class Fire(RuleBasedStateMachine):
    """People, kube-scheduler, whoever sets fences, and controllers that die in the middle of their writes."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.now = NOON
        self.faults = Faults()
        self.epoch = 0
        self.names = 0
        builder = a_cluster().node("a", gpus=4).node("b", gpus=2)
        for team in TEAMS:
            builder.queue(team, gpus=QUOTA, startTimeout="5m", requeue={"max": "30m"})
        self.ledger = in_memory.Ledger()
        self.village = Village(builder, self.ledger)
        self.post = Post(self.village, self.faults, RetryError)
        self._succeed()

    def _succeed(self) -> None:
        """Have another controller take the lead. Of the one before, writes may be under way."""
        self.epoch += 1
        self.runner.run(self.ledger.fence(self.epoch))
        cluster = cast("Any", self.post)
        books = cast("Any", Faulty(self.ledger, self.faults, LedgerUnavailableError))
        ports = Ports(
            view=self.village,
            pods=cluster,
            claims=cluster,
            workloads=cluster,
            reports=self.village,
            ledger=books,
            fences=self.village.fences,
        )
        self.leader = Leader.build(ports=ports, actor=f"leader {self.epoch}", epoch=self.epoch)

    @initialize(fenced=st.sampled_from([True, True, False]))
    def begin(self, fenced: bool) -> None:
        if fenced:
            self.set_fence(wanted=True)
            self._undisturbed(3)

    # People, and Muster.

    @rule(queue=st.sampled_from(TEAMS), shape=SHAPES, trouble=TROUBLES)
    def a_gang_comes(self, queue: QueueName, shape: tuple[int, int], trouble: Trouble = NONE) -> None:
        """A Job of so many pods with so many GPUs each, no more than an empty cluster has."""
        self.names += 1
        pods, gpus = shape
        if self._has_room():
            self.village.submit(f"job{self.names}", queue, pods=pods, gpus=gpus)
        self.cycle(1, trouble)

    @rule(queue=st.sampled_from(TEAMS), shape=SHAPES, trouble=TROUBLES)
    def a_gang_with_one_claim_comes(self, queue: QueueName, shape: tuple[int, int], trouble: Trouble = NONE) -> None:
        """A Job whose pods share the devices of one claim, which outlives them."""
        self.names += 1
        pods, gpus = shape
        if self._has_room():
            self.village.submit_sharing(f"sharing{self.names}", queue, pods=pods, gpus=gpus)
        self.cycle(1, trouble)

    def _has_room(self) -> bool:
        """Whether not so many pods wait that the rounds in the end were too few for all of them."""
        return sum(pod.gated for pod in self.village.everybody()) < MOST_WAITING

    @rule(late=LATE, queue=st.sampled_from(TEAMS), shapes=st.tuples(SHAPES, SHAPES))
    def a_write_of_a_deposed_leader_is_late(
        self, late: Late, queue: QueueName, shapes: tuple[tuple[int, int], tuple[int, int]]
    ) -> None:
        """A leader dies while a write is under way; its successor takes back what others have spoilt meanwhile and
        gives the devices to the next gang; then the write arrives."""
        self.post.deadly = late.write
        come = self.a_gang_with_one_claim_comes if late.shared else self.a_gang_comes
        come(queue, shapes[0], NONE)
        self.post.deadly = ""
        for what in late.others:
            self._act(what, late.which)
        self.set_fence(wanted=late.fenced)
        self._undisturbed(2)
        self.a_gang_comes(_one(TEAMS, TEAMS.index(queue) + 1)[0], shapes[1], NONE)
        if late.bound:
            self._act(Others.BIND, 0)
        self.late_writes_arrive()

    @rule(gpus=st.integers(1, 2))
    def somebody_else_comes(self, gpus: int) -> None:
        self.names += 1
        self.village.submit_outside(f"alone{self.names}", gpus=gpus)

    @rule(wanted=st.booleans())
    def set_fence(self, wanted: bool) -> None:
        self.village.set_fence(self.now, wanted=wanted)

    @rule(seconds=st.integers(0, 400), trouble=TROUBLES)
    def cycle(self, seconds: int, trouble: Trouble = NONE) -> None:
        """Let the leader go on. In the middle of it others act, or a call goes wrong."""
        self.now += timedelta(seconds=seconds)
        self.faults.kind, self.faults.after = trouble.fault, trouble.call
        self.post.meanwhile = {at: partial(self._act, what, trouble.which) for at, what in trouble.others}
        died = self._dies()
        self.faults.never()
        self.post.meanwhile.clear()
        self.village.keep_fence(self.now)
        if died:
            self._succeed()

    def _act(self, what: Others, which: int) -> None:
        """Let somebody else act."""
        village = self.village
        acts: dict[Others, Callable[[], None]] = {
            Others.DELETE_A_POD: lambda: village.delete(_one(village.everybody(), which)),
            Others.TAKE_DEVICES_AWAY: lambda: village.rob(_one(village.unreserved(), which)),
            Others.TOUCH_A_CLAIM: lambda: village.touch(_one(village.unallocated(), which)),
            Others.LOSE_A_DEVICE: lambda: village.lose(which),
            Others.FIND_IT_AGAIN: village.find_again,
            Others.BIND: lambda: village.bind(village.pending()),
            Others.END: lambda: village.finish(_one(village.running(), which)),
        }
        acts[what]()

    @rule()
    def late_writes_arrive(self) -> None:
        self.runner.run(self.post.deliver())

    # Kubernetes.

    @rule()
    def kube_scheduler_binds(self) -> None:
        self._act(Others.BIND, 0)

    @rule(which=SOME)
    def kube_scheduler_binds_one(self, which: int) -> None:
        self.village.bind(_one(self.village.pending(), which))

    @rule(what=st.sampled_from(Others), which=SOME)
    def others_act(self, what: Others, which: int) -> None:
        self._act(what, which)

    @rule()
    def everything_that_runs_ends(self) -> None:
        self.village.finish(self.village.running())

    def _dies(self) -> bool:
        """Run one cycle; return whether the leader died in it."""
        died = False
        try:
            self.runner.run(cycle.run(self.leader, self.now))
        except* KilledError:
            died = True
        return died

    def _undisturbed(self, cycles: int) -> None:
        for _ in range(cycles):
            self.cycle(61)

    # What holds at any time.

    @invariant()
    def no_device_is_given_twice(self) -> None:
        twice = [str(device) for device, times in self.village.taken().items() if times > 1]
        assert not twice

    @invariant()
    def nobody_is_charged_beyond_the_quota(self) -> None:
        usage = self.ledger.book.usage()
        for team in TEAMS:
            assert sum(usage.get(team, {}).get(GPUS, (0, 0))) <= QUOTA

    def teardown(self) -> None:
        try:
            self._after_all()
        finally:
            self.runner.close()

    def _after_all(self) -> None:
        """Nothing goes wrong any more: every gang that is still whole starts whole, and the books are right."""
        self.runner.run(self.post.deliver())
        self.village.find_again()
        self.village.delete([pod for pod in self.village.everybody() if QUEUE not in pod.meta.labels])
        for _ in range(MOST_WAITING + 10):
            self._quiet_hours()
            self._check_whole()
            if not any(pod.gated for pod in self._whole()):
                break
            self.village.finish(self.village.running())
        assert not [pod.meta.key for pod in self._whole() if pod.gated], "a gang that fits has never started"
        sight = ObservedAllocations.from_snapshot(
            self.village.snapshot(), device_meters.compile_meters(self.village.snapshot().meters.values())
        )
        assert not reconciliation.differences(self.ledger.book, sight)

    def _quiet_hours(self) -> None:
        for _ in range(4):
            self._undisturbed(3)
            self.village.bind(self.village.pending())
        self.now += LONG
        self._undisturbed(1)

    def _check_whole(self) -> None:
        stuck = [pod.meta.key for pod in self.village.pending()]
        assert not stuck, f"{stuck} were let in and cannot start"
        kept = [claim.meta.key for claim in self.village.unreserved()]
        assert not kept, f"{kept} keep devices that no pod uses"
        for job in self.village.snapshot().jobs.values():
            mine = [pod for pod in self.village.everybody() if pod.meta.owners[0].uid == job.meta.uid]
            running = [pod for pod in mine if pod.phase == "Running"]
            assert not running or not any(pod.gated for pod in mine), f"gang {job.meta.key} runs in part"

    def _whole(self) -> list[Pod]:
        """Return the pods of gangs none of whose pods was deleted."""
        jobs = self.village.snapshot().jobs
        pods = [pod for pod in self.village.everybody() if pod.meta.owners]
        alive = Counter(pod.meta.owners[0].uid for pod in pods if not pod.finished)
        return [pod for pod in pods if alive[pod.meta.owners[0].uid] == jobs[pod.meta.owners[0].uid].parallelism]


def _one(things: Sequence[T], which: int) -> Sequence[T]:
    return [things[which % len(things)]] if things else []
