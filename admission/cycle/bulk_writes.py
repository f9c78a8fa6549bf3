"""Concurrent writes to many objects, each of which may fail alone."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

from admission.api.capacity.node_shapes import NodeShape
from admission.api.kubernetes.pods import Pod
from admission.api.storage.storage import Storage
from admission.api.values import names
from admission.api.values.names import NodeName, Uid
from admission.cycle import events
from admission.cycle.state.in_flight import InFlight
from admission.cycle.state.term import CycleSettings
from admission.errors import FixError, GoneError, RetryError
from admission.filters import volume_binding
from admission.ports import NO_ANNOTATIONS, Pods, Reports, Traces

T = TypeVar("T")

Write = Callable[[Pod], Awaitable[None]]

_OF_VOLUMES = -1
"""The lane of the gates of pods that take volumes from each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkWriter:
    """Writes at most `settings.writes` objects at a time."""

    settings: CycleSettings
    pods: Pods
    reports: Reports
    traces: Traces
    in_flight: InFlight

    async def each(self, items: Iterable[T], write: Callable[[T], Awaitable[None]]) -> None:
        """Write every item."""
        limit = asyncio.Semaphore(self.settings.writes)

        async def run(item: T) -> None:
            async with limit:
                await write(item)

        async with asyncio.TaskGroup() as tasks:
            for item in items:
                tasks.create_task(run(item))

    async def each_pod(self, pods: Iterable[Pod], write: Write) -> list[Pod]:
        """Write every pod; return those to be tried again."""
        return await self._lanes([[(pod, write)] for pod in pods])

    async def open_gates(
        self,
        gangs: Iterable[Sequence[tuple[Pod, NodeName]]],
        storage: Storage | None = None,
        shapes: Mapping[str, NodeShape] = MappingProxyType({}),
        annotations: Mapping[Uid, Mapping[str, str]] = MappingProxyType({}),
    ) -> None:
        """Open gates of gangs, in order on each node and several nodes at a time. The next cycle retries failed ones.

        On one node the order matters: kube-scheduler allocates to the pod that it sees first. Where a pod of a gang has
        to be with another one, or is counted with others, all gates of the gang are opened in order; and those of all
        gangs that wait for volumes which are there, one gang after the other. For a pod without a node kube-scheduler
        chooses the node; for one whose node is to come, among those with the labels of its shape. annotations: by pod,
        what such pods get with it.
        """

        def opener(node: NodeName) -> Write:
            async def open_gate(pod: Pod) -> None:
                with self.traces.write("open gate", pod.meta.uid, pod.meta.key):
                    shape = names.shape_of(node)
                    if shape is None:
                        await self.pods.open_gate(pod, node or None)
                    else:
                        await self.pods.open_gate_towards(
                            pod, shapes[shape].matches, annotations.get(pod.meta.uid, NO_ANNOTATIONS)
                        )
                self.in_flight.assume_opened(pod)

            return open_gate

        lanes: dict[NodeName | int, list[tuple[Pod, Write]]] = {}
        for number, pairs in enumerate(gangs):
            lane: int | None = number if any(pod.rules.depend_on_order for pod, _ in pairs) else None
            if storage is not None and any(volume_binding.takes_volumes(pod, storage) for pod, _ in pairs):
                lane = _OF_VOLUMES
            for pod, node in pairs:
                if pod.meta.uid not in self.in_flight.opened:
                    lanes.setdefault(node if lane is None else lane, []).append((pod, opener(node)))
        await self._lanes(list(lanes.values()))

    async def _lanes(self, lanes: Sequence[Sequence[tuple[Pod, Write]]]) -> list[Pod]:
        """Write the pods of each lane in order, several lanes at a time; return those to be tried again."""
        failed: list[Pod] = []

        async def run(lane: Sequence[tuple[Pod, Write]]) -> None:
            for pod, write in lane:
                try:
                    await write(pod)
                except GoneError:
                    continue  # the next cycle sees that the pod is gone, and acts on it
                except (RetryError, FixError) as error:
                    failed.append(pod)
                    if len(failed) <= events.MOST:
                        await events.pod_failed(self.reports, pod, error)

        await self.each(lanes, run)
        return failed
