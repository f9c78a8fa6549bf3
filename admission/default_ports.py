"""Ports that a caller may leave out: the answers of a cluster that lacks what they are about, or does not change."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from admission.api.capacity.provisioning_requests import ProvisioningRequest
from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.nodes import Node
from admission.api.snapshot import Snapshot
from admission.dra import compatibility
from admission.dra.compatibility import SchedulerProfile
from admission.scheduling.capacity.capacity_requests import CapacityRequest
from admission.scheduling.placement.protection import Barriers
from admission.workloads.gangs import Group


class FrozenView:
    """The port View of a cluster in which nothing happens."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    @property
    def synced(self) -> bool:
        return True

    def snapshot(self) -> Snapshot:
        return self._snapshot


@dataclass(frozen=True, slots=True)
class FixedScheduler:
    """The port Scheduler of a kube-scheduler whose profile does not change."""

    profile: SchedulerProfile | None


NEWEST = FixedScheduler(compatibility.NEWEST)


class NoFences:
    """The port Fences of a cluster without fences, or with those that a test gives."""

    def __init__(self, barriers: Barriers | None = None) -> None:
        self.barriers = barriers or Barriers()
        self.wanted: frozenset[str] = frozenset()

    def observe(self) -> Barriers:
        return self.barriers

    def set_drivers(self, drivers: frozenset[str]) -> None:
        self.wanted = drivers


class NoQueueFinalizer:
    """The port Queues of a cluster in which no Queue is deleted."""

    async def keep(self, queue: Meta) -> None:
        """Do nothing."""

    async def release(self, queue: Meta) -> None:
        """Do nothing."""


NO_QUEUE_FINALIZER = NoQueueFinalizer()


class NoAutoscaler:
    """The ports CapacityRequests and Nodes of a cluster without autoscalers."""

    async def create(self, request: CapacityRequest) -> None: ...

    async def delete(self, request: ProvisioningRequest) -> None: ...

    async def delete_unused(self, kept: Collection[str]) -> Sequence[str]:  # noqa: ARG002 - the port's
        return ()

    async def keep(self, node: Node) -> None: ...

    async def release(self, node: Node) -> None: ...


class NoTraces:
    """The port Traces without traces, at no cost."""

    def cycle(self) -> AbstractContextManager[None]:
        return _NO_SPAN

    def step(self, name: str) -> AbstractContextManager[None]:  # noqa: ARG002 - the port's
        return _NO_SPAN

    def begin(self, gang: Group) -> None: ...

    def write(self, name: str, uid: str, key: str) -> AbstractContextManager[None]:  # noqa: ARG002 - the port's
        return _NO_SPAN


_NO_SPAN: AbstractContextManager[None] = nullcontext()
UNTRACED = NoTraces()


class FixedTemplates:
    """The port Templates with troubles that do not change; by default there are none."""

    def __init__(self, troubles: Mapping[str, tuple[str, ...]] | None = None) -> None:
        self._troubles = troubles or {}

    def troubles(self) -> Mapping[str, tuple[str, ...]]:
        return self._troubles
