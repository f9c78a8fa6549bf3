"""The annotations of nodes that keep autoscalers from taking them away: the real `ports.Nodes`."""

import asyncio
from collections.abc import Callable, Mapping

import structlog

from admission.api.kubernetes import nodes
from admission.api.kubernetes.nodes import Node
from admission.errors import ConflictError, FixError, GoneError
from admission.kube.client import backoff, paths
from admission.kube.client.connection import Connection, PatchKind
from admission.scheduling.capacity import scale_down

log = structlog.get_logger(__name__)

TRIES = 4
"""How often a write is tried, each time with the node's present version."""


class NodeWriter:
    """Puts annotations on nodes and removes them. Writes name UID and version, so no change of others is lost."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def keep(self, node: Node) -> None:
        """Put on a node what it lacks of the annotations."""
        await self._change(node, scale_down.put)

    async def release(self, node: Node) -> None:
        """Remove from a node what Muster has put on it."""
        await self._change(node, scale_down.removed)

    async def _change(self, node: Node, wanted: Callable[[Node], Mapping[str, str | None]]) -> None:
        path = paths.join("/api/v1/nodes", node.name)
        for attempt in range(1, TRIES + 1):
            fresh = nodes.decode(await self._connection.get(path))
            if fresh.meta.uid != node.meta.uid:
                raise GoneError(f"node {node.name} with UID {node.meta.uid} is gone; another has its name")
            annotations = wanted(fresh)
            if not annotations or (wanted is scale_down.put and scale_down.is_marked(fresh)):
                return
            version = {"uid": fresh.meta.uid, "resourceVersion": fresh.meta.resource_version}
            try:
                await self._connection.set(
                    path, {"metadata": {**version, "annotations": dict(annotations)}}, PatchKind.MERGE
                )
            except ConflictError:
                if attempt == TRIES:
                    raise
            except FixError as error:
                log.warning("autoscalers cannot be kept from taking a node away", node=node.name, error=str(error))
                raise
            else:
                log.info(
                    "a node's annotations for autoscalers are changed", node=node.name, changed=sorted(annotations)
                )
                return
            await asyncio.sleep(backoff.backoff(attempt, base=0.05, longest=1.0))
