"""A store that is fed by watches of a fake API server, and kinds that this does not serve."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from admission.kube.cache import reflector, watched_resources
from admission.kube.cache.reflector import WatchTiming
from admission.kube.cache.store import Store
from admission.kube.cache.watched_resources import Kind
from admission.kube.client.connection import Connection
from tests.integration.kube.fake_api import FakeApi

RULES = watched_resources.TAINT_RULES.paths
TIMING = WatchTiming(page=2, shortest_watch=30, longest_watch=30, base=0.01, longest_pause=0.02)
SOON = replace(TIMING, absent=0.01)


@asynccontextmanager
async def watched(
    connection: Connection, *only: Kind, timing: WatchTiming = TIMING, synced: bool = True
) -> AsyncIterator[Store]:
    store = Store(only or (watched_resources.PODS, watched_resources.QUEUES))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(reflector.watch(connection, store, timing=timing), name="watch")
        if synced:
            await store.wait_synced(within=30)
        yield store
        task.cancel()


async def until(store: Store, true: Callable[[], bool]) -> None:
    """Wait for a change after which it is true."""
    async with asyncio.timeout(30):
        with store.subscribe() as changed:
            while not true():
                await changed.next()


def a_rule(name: str) -> dict[str, Any]:
    taint = {"key": "unhealthy", "effect": "NoSchedule"}
    return {"metadata": {"name": name}, "spec": {"deviceSelector": {"pool": "node-1"}, "taint": taint}}


def absent(api: FakeApi, *paths: str) -> None:
    """Let these paths be unknown until the answers are taken away."""
    for path in paths:
        for _ in range(1000):
            api.answer("GET", path, 404, "404 page not found")
