"""A small cluster whose controller dies, whose database goes away and whose API server refuses, at any call.

The cluster is in memory, the ledger is a real one. `Town` is the cluster with those who work in it, `Faults` decides
which of a cycle's calls goes wrong and how, and `Leader` runs cycles until it is killed or deposed.
"""

import inspect
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Any, cast

from admission.accounting.books import Book
from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.pods import Pod
from admission.api.muster import queues
from admission.api.values.names import MeterName, NodeName, QueueName, Uid
from admission.cycle import cycle
from admission.cycle.state.leader import Leader, Ports
from admission.cycle.state.result import CycleResult
from admission.errors import LedgerUnavailableError, RetryError
from admission.ledger.sql_ledger import SqlLedger
from admission.lifecycle import transitions
from admission.simulation import in_memory
from tests.builders import ClusterBuilder, a_cluster
from tests.unit.cycle.fences import KilledError

GPUS = MeterName("gpus")
NODES = {"a": 4, "b": 4, "c": 2}


class Fault(Enum):
    """What goes wrong with a call."""

    DIES_BEFORE = "the controller dies before the call"
    DIES_AFTER = "the controller dies when the call was carried out"
    REFUSED = "the call is refused, or the database does not answer"
    ANSWER_LOST = "the call was carried out, and its answer is lost"


@dataclass(slots=True)
class Faults:
    """The fault that the n-th call from now on meets; none while `after` is negative.

    away: for how many cycles more the database does not answer at all.
    """

    kind: Fault = Fault.REFUSED
    after: int = -1
    away: int = 0

    def next(self) -> Fault | None:
        """Count one call."""
        self.after -= 1
        return self.kind if self.after == -1 else None

    def never(self) -> None:
        """Note that a cycle is over."""
        self.after = -1
        self.away = max(0, self.away - 1)


class Faulty:
    """A port some of whose calls go wrong."""

    def __init__(self, port: object, faults: Faults, error: type[Exception]) -> None:
        self._port = port
        self._faults = faults
        self._error = error

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._port, name)
        if not inspect.iscoroutinefunction(call):
            return call

        async def called(*arguments: Any, **named: Any) -> Any:
            fault = self._faults.next()
            if self._faults.away and self._error is LedgerUnavailableError:
                raise self._error("away")
            if fault is Fault.DIES_BEFORE:
                raise KilledError
            if fault is Fault.REFUSED:
                raise self._error("refused")
            result = await call(*arguments, **named)
            if fault is Fault.DIES_AFTER:
                raise KilledError
            if fault is Fault.ANSWER_LOST:
                raise self._error("lost")
            return result

        return called


class Town(in_memory.Cluster):
    """A cluster that people submit Jobs to. No gate may open in it without a row in the ledger."""

    def __init__(self, builder: ClusterBuilder, ledger: SqlLedger) -> None:
        super().__init__(builder.snapshot())
        self._ledger = ledger

    async def open_gate(self, pod: Pod, node: NodeName | None) -> None:
        book = await self._ledger.load()
        assert pod.meta.uid in book.owners, f"the gate of {pod.meta.key} opens without a row"
        if pod.meta.uid in self._pods:
            await super().open_gate(pod, node)

    def submit(self, name: str, queue: str, *, pods: int, gpus: int, priority: int = 0) -> None:
        more = a_cluster().job(name, queue=queue, pods=pods, gpus=gpus).snapshot()
        self._pods |= {uid: replace(pod, priority=priority) for uid, pod in more.pods.items()}
        self._claims |= more.claims
        self._jobs |= more.jobs

    def edit(self, queue: queues.Queue) -> None:
        """Change a Queue, as its owner does with kubectl."""
        self._rest = replace(self._rest, queues={**self._rest.queues, queue.name: queue})

    async def release(self, queue: Meta) -> None:
        book = await self._ledger.load()
        for placement in book.placements.values():
            assert queue.name not in self._path(placement.queue), (
                f"{placement.gang} still holds devices in {queue.name}"
            )
        await super().release(queue)

    def _path(self, name: QueueName) -> list[QueueName]:
        parent = self._rest.queues[name].parent
        return [name, *(self._path(parent) if parent is not None else ())]

    def make_anew(self, declared: Iterable[queues.Queue]) -> None:
        """Create those queues again that are gone, as they are declared."""
        for queue in declared:
            if queue.name not in self._rest.queues:
                self.edit(replace(queue, meta=Meta(name=queue.name)))

    def queue_of(self, name: str) -> queues.Queue:
        return self._rest.queues[QueueName(name)]

    def let_in(self, book: Book) -> list[Pod]:
        """Return the pods that wait for kube-scheduler, in order of names."""
        ready = [pod for uid, pod in self._pods.items() if uid in book.owners]
        return sorted((p for p in ready if not (p.gates or p.node or p.finished)), key=lambda pod: pod.meta.key)

    def bind(self, pod: Pod, book: Book, *, otherwise: bool) -> None:
        """Let kube-scheduler bind a pod; `otherwise`: with other free devices of its node than were planned."""
        placement = book.placements[book.owners[pod.meta.uid]]
        node = placement.seats[pod.meta.uid].node
        holdings = dict(placement.holdings)
        for uid in placement.seats[pod.meta.uid].claims:
            if otherwise and uid in holdings and (others := self._others(node, len(holdings[uid].devices))):
                holdings[uid] = replace(holdings[uid], devices=others)
        self._allocate(pod, node, holdings, transitions.index_devices(self._rest))
        self._pods[pod.meta.uid] = replace(pod, node=node, phase="Running", ready=True)

    def _others(self, node: NodeName, count: int) -> tuple[RequestDevice, ...] | None:
        taken = {
            given.device
            for claim in self._claims.values()
            for given in (claim.allocation.devices if claim.allocation else ())
        }
        devices = transitions.index_devices(self._rest)
        free = sorted((d for d in devices if d.pool == node and d not in taken), reverse=True)
        return tuple(_given(device) for device in free[:count]) if len(free) >= count else None

    def running(self) -> list[Pod]:
        return sorted((p for p in self._pods.values() if p.phase == "Running"), key=lambda pod: pod.meta.key)

    def everybody(self) -> list[Pod]:
        return sorted(self._pods.values(), key=lambda pod: pod.meta.key)

    def delete(self, pods: Iterable[Pod]) -> None:
        """Delete pods, and with them the claims that were made for them."""
        removed = [self._pods.pop(pod.meta.uid) for pod in pods if pod.meta.uid in self._pods]
        self._release_claims(removed)

    def take_away(self, uid: Uid) -> None:
        """Take a claim's allocation away, as somebody does who may write its status."""
        for key, claim in self._claims.items():
            if claim.meta.uid == uid:
                self._claims[key] = replace(claim, allocation=None, reserved_for=())

    def allocated(self) -> list[Uid]:
        return sorted(claim.meta.uid for claim in self._claims.values() if claim.allocation is not None)


def _given(device: DeviceId) -> RequestDevice:
    return RequestDevice(request="gpus", device=device)


class Controller:
    """One controller's term."""

    def __init__(self, town: Town, ledger: SqlLedger, faults: Faults, *, epoch: int) -> None:
        cluster = cast("Any", Faulty(town, faults, RetryError))
        books = cast("Any", Faulty(ledger, faults, LedgerUnavailableError))
        ports = Ports(
            view=town, pods=cluster, claims=cluster, workloads=cluster, queues=cluster, reports=town, ledger=books
        )
        self.leader = Leader.build(ports=ports, actor=f"leader {epoch}", epoch=epoch)
        self._ledger = ledger

    async def begin(self) -> None:
        await self._ledger.fence(self.leader.term.epoch)

    async def cycle(self, now: datetime) -> CycleResult | None:
        """Run one cycle; None when the leader died in it."""
        died = False
        result = None
        try:
            result = await cycle.run(self.leader, now)
        except* KilledError:
            died = True
        return None if died else result
