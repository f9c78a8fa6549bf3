"""Writes to many pods at a time, each of which may fail without the others."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from admission.api.kubernetes.pods import Pod
from admission.api.values.names import NodeName
from admission.cycle import events
from admission.cycle.state.leader import LeaderState
from admission.errors import FixError, GoneError, RetryError

T = TypeVar("T")

Write = Callable[[Pod], Awaitable[None]]


async def concurrently(desk: LeaderState, items: Iterable[T], write: Callable[[T], Awaitable[None]]) -> None:
    """Write every item, at most `writes` of them at a time."""
    limit = asyncio.Semaphore(desk.writes)

    async def run(item: T) -> None:
        async with limit:
            await write(item)

    async with asyncio.TaskGroup() as tasks:
        for item in items:
            tasks.create_task(run(item))


async def open_gates(desk: LeaderState, pairs: Iterable[tuple[Pod, NodeName]]) -> None:
    """Open gates, in order on each node and several nodes at a time. What fails is tried again by the next cycle.

    On one node the order counts: kube-scheduler gives devices to whom it sees first. A pod without a node goes where
    kube-scheduler puts it.
    """

    def opener(node: NodeName) -> Write:
        async def open_gate(pod: Pod) -> None:
            with desk.ports.traces.write("open gate", pod.meta.uid, pod.meta.key):
                await desk.ports.pods.open_gate(pod, node or None)
            desk.opened.add(pod.meta.uid)

        return open_gate

    lanes: dict[NodeName, list[tuple[Pod, Write]]] = {}
    for pod, node in pairs:
        if pod.meta.uid not in desk.opened:
            lanes.setdefault(node, []).append((pod, opener(node)))
    await in_lanes(desk, list(lanes.values()))


async def in_lanes(desk: LeaderState, lanes: Sequence[Sequence[tuple[Pod, Write]]]) -> list[Pod]:
    """Write the pods of each lane one after the other, `writes` lanes at a time.

    Return the pods for which it has to be tried again.
    """
    failed: list[Pod] = []

    async def run(lane: Sequence[tuple[Pod, Write]]) -> None:
        for pod, write in lane:
            try:
                await write(pod)
            except GoneError:
                continue  # the next cycle sees that the pod is gone, and what follows from it
            except (RetryError, FixError) as error:
                failed.append(pod)
                await events.gang_failed(desk.ports.reports, pod, error)

    await concurrently(desk, lanes, run)
    return failed
