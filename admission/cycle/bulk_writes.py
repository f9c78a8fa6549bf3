"""Concurrent writes to many objects, each of which may fail alone."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

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

Gate = tuple[Pod, NodeName]
"""A pod behind its gate, and its node: empty for one that kube-scheduler chooses."""

_Lane = tuple[str, str]
"""What the gates of a lane have in common, and its name."""

_OF_VOLUMES: _Lane = ("volumes", "")
"""The lane of the gates of pods that take volumes from each other."""


class _Step(NamedTuple):
    """Gates that may open at once. key: of a gang and of its equal pods; None for a pod that has a step of its own."""

    key: tuple[int, str] | None
    gates: list[Gate]


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

        await _all(run(item) for item in items)

    async def each_pod(self, pods: Iterable[Pod], write: Write) -> list[Pod]:
        """Write every pod; return those to be tried again."""
        return await self._in_order([[[pod]] for pod in pods], write)

    async def open_gates(
        self,
        gangs: Iterable[Sequence[Gate]],
        *,
        allocation_keys: Mapping[Uid, str],
        storage: Storage | None,
        shapes: Mapping[str, NodeShape],
        annotations: Mapping[Uid, Mapping[str, str]],
    ) -> None:
        """Open gates of gangs, those that depend on each other in order. The next cycle retries failed ones.

        For a pod without a node kube-scheduler chooses the node; for one whose node is to come, among those with the
        labels of its shape. allocation_keys: as `placement_progress.allocation_keys` has them. annotations: by pod,
        what pods get with the node that is to come.
        """
        closed = [[gate for gate in gang if gate[0].meta.uid not in self.in_flight.opened] for gang in gangs]
        nodes = {pod.meta.uid: node for gang in closed for pod, node in gang}

        async def open_gate(pod: Pod) -> None:
            with self.traces.write("open gate", pod.meta.uid, pod.meta.key):
                node = nodes[pod.meta.uid]
                shape = names.shape_of(node)
                if shape is None:
                    await self.pods.open_gate(pod, node or None)
                else:
                    await self.pods.open_gate_towards(
                        pod, shapes[shape].matches, annotations.get(pod.meta.uid, NO_ANNOTATIONS)
                    )
            self.in_flight.assume_opened(pod)

        lanes = _lanes(closed, allocation_keys, storage)
        await self._in_order([[[pod for pod, _ in step.gates] for step in lane] for lane in lanes], open_gate)

    async def _in_order(self, lanes: Iterable[Iterable[Iterable[Pod]]], write: Write) -> list[Pod]:
        """Write pods, the steps of each lane one after the other, and return those to be tried again."""
        failed: list[Pod] = []
        limit = asyncio.Semaphore(self.settings.writes)

        async def attempt(pod: Pod) -> None:
            async with limit:
                try:
                    await write(pod)
                except GoneError:
                    return  # the next cycle sees that the pod is gone, and acts on it
                except (RetryError, FixError) as error:
                    failed.append(pod)
                    if len(failed) <= events.MOST:
                        await events.pod_failed(self.reports, pod, error)

        async def run(lane: Iterable[Iterable[Pod]]) -> None:
            for step in lane:
                await _all(attempt(pod) for pod in step)

        await _all(run(lane) for lane in lanes)
        return failed


def _lanes(
    gangs: Iterable[Sequence[Gate]], allocation_keys: Mapping[Uid, str], storage: Storage | None
) -> list[list[_Step]]:
    """Return the gates of gangs in lanes, which may open beside each other, each a list of steps in order.

    kube-scheduler allocates for the pod that it sees first. So on one node gates follow each other where it allocates
    claims, those of equal pods of one gang in one step, since they get the same devices in any order. Where a pod of a
    gang has to be with another one, or is counted with others, all gates of the gang follow each other; and those of
    all gangs that wait for volumes which are there, one gang after the other.
    """
    found: dict[_Lane, list[_Step]] = {}
    for number, gates in enumerate(gangs):
        lane = ("gang", str(number)) if any(pod.rules.depend_on_order for pod, _ in gates) else None
        if storage is not None and any(volume_binding.takes_volumes(pod, storage) for pod, _ in gates):
            lane = _OF_VOLUMES
        for pod, node in gates:
            key = allocation_keys.get(pod.meta.uid)
            if lane is not None:
                found.setdefault(lane, []).append(_Step(None, [(pod, node)]))
            elif key is None or not node:
                found["pod", pod.meta.uid] = [_Step(None, [(pod, node)])]
            else:
                _append(found.setdefault(("node", node), []), _Step((number, key), [(pod, node)]))
    return list(found.values())


def _append(steps: list[_Step], step: _Step) -> None:
    """Append a step, or let its gates open with those of the last one, if their pods are equal."""
    if steps and steps[-1].key == step.key:
        steps[-1].gates.extend(step.gates)
    else:
        steps.append(step)


async def _all(writes: Iterable[Coroutine[None, None, None]]) -> None:
    """Run all of them at the same time, begun in their order."""
    async with asyncio.TaskGroup() as tasks:
        for write in writes:
            tasks.create_task(write)
