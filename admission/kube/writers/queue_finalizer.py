"""The finalizer of Queues that are in use: the real `ports.Queues`.

A merge patch replaces a list as a whole. So each write contains the list as it was read, and names the version that it
was read at: a concurrent change makes the write fail, and it is retried.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from admission.api.kubernetes import meta
from admission.api.kubernetes.meta import Meta
from admission.api.values import names
from admission.api.values.decoding import Reader
from admission.errors import ConflictError, FixError, GoneError
from admission.kube.cache import watched_resources
from admission.kube.client import backoff, paths
from admission.kube.client.connection import Connection, PatchKind

log = structlog.get_logger(__name__)

TRIES = 4
"""How often a write is tried, each time with the queue's present version."""


class QueueFinalizerWriter:
    """Adds the finalizer to Queues and removes it. Writes name the UID, so they never affect a later Queue."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def keep(self, queue: Meta) -> None:
        """Add the finalizer to a Queue. A no-op when the Queue has it, is being deleted, or is gone."""
        try:
            await self._change(queue, _with_finalizer)
        except FixError as error:
            log.warning(
                "the queue does not take the finalizer; if it is deleted while its gangs run, the next leader does not"
                " know where what they use counts",
                queue=queue.name,
                error=str(error),
            )
            raise

    async def release(self, queue: Meta) -> None:
        """Remove the finalizer from a Queue. A no-op when the Queue lacks it, or is gone."""
        await self._change(queue, _without_finalizer)
        if queue.deleted is not None:  # else Muster is taken away, whatever uses the queue
            log.info("the queue is deleted and nothing uses it any more", queue=queue.name, uid=queue.uid)

    async def _change(self, queue: Meta, wanted: Callable[[Meta], tuple[str, ...]]) -> None:
        for attempt in range(1, TRIES + 1):
            finalizers = wanted(queue)
            if finalizers == queue.finalizers:
                return
            body: dict[str, Any] = {
                "metadata": {
                    "uid": queue.uid,
                    "resourceVersion": queue.resource_version,
                    "finalizers": list(finalizers),
                }
            }
            try:
                await self._connection.patch(_path(queue), body, PatchKind.MERGE)
            except GoneError:
                return
            except ConflictError:
                if attempt == TRIES:
                    raise
            else:
                return
            await asyncio.sleep(backoff.backoff(attempt, base=0.05, longest=1.0))
            fresh = await self._refetch(queue)
            if fresh is None:
                return
            queue = fresh

    async def _refetch(self, queue: Meta) -> Meta | None:
        """Return the queue's present metadata; None when it is gone, or another queue has its name."""
        try:
            fresh = meta.decode(Reader(await self._connection.get(_path(queue))))
        except GoneError:
            return None
        return fresh if fresh.uid == queue.uid else None


def _with_finalizer(queue: Meta) -> tuple[str, ...]:
    if queue.deleted is not None or names.IN_USE in queue.finalizers:
        return queue.finalizers
    return (*queue.finalizers, names.IN_USE)


def _without_finalizer(queue: Meta) -> tuple[str, ...]:
    return tuple(name for name in queue.finalizers if name != names.IN_USE)


def _path(queue: Meta) -> str:
    return paths.join(watched_resources.QUEUES.path, queue.name)
