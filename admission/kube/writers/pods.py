"""Writes to pods: the real `ports.Pods`.

Every write names the pod's UID, so it never affects a later pod of the same name. A delayed write of a leader that does
not know of its successor fails, since withdrawing a pod's placement marks the pod, which changes its version.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import structlog

from admission.api.kubernetes import pods
from admission.api.kubernetes.pods import Pod
from admission.api.values import names
from admission.api.values.names import NodeName
from admission.errors import ConflictError, FixError, ForbiddenError, GoneError
from admission.kube.client import backoff, errors, paths
from admission.kube.client.connection import Connection, PatchKind, RetryPolicy
from admission.kube.writers import pod_patch
from admission.kube.writers.pod_patch import Where
from admission.ports import NO_ANNOTATIONS

log = structlog.get_logger(__name__)

TRIES = 4
"""How often a write is tried, each time with the pod's present version."""

EVICTION_RETRIES = RetryPolicy(tries=3, longest=2.0)
"""Few tries: a disruption budget may refuse for hours, so the caller retries later instead of waiting here."""


class PodWriter:
    """Opens gates of pods, marks them and evicts them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def open_gate(self, pod: Pod, node: NodeName | None) -> None:
        """Remove Muster's gate and pin the pod to a node (None: leave it free), in one write."""
        await self._open(pod, () if node is None else (pod_patch.on_node(node),))

    async def open_gate_towards(
        self, pod: Pod, labels: Mapping[str, str], annotations: Mapping[str, str] = NO_ANNOTATIONS
    ) -> None:
        """Remove Muster's gate and keep the pod to nodes with these labels, in one write; annotate it with that."""
        await self._open(pod, pod_patch.with_labels(labels), annotations)

    async def _open(self, pod: Pod, where: Sequence[Where], annotations: Mapping[str, str] = NO_ANNOTATIONS) -> None:
        for attempt in range(1, TRIES + 1):
            if not pod.gated:
                return
            try:
                await self._connection.set(_path(pod), pod_patch.opened(pod, where, annotations), PatchKind.STRATEGIC)
            except ForbiddenError:
                raise
            except (ConflictError, FixError) as error:
                # An invalid patch (FixError) is permanent, unless the pod has changed since it was seen.
                fresh = await self._refetch(pod)
                if _mark(fresh) != _mark(pod):
                    raise ConflictError(f"the place of pod {pod.meta.key} was taken back since it was seen") from error
                if attempt == TRIES or (isinstance(error, FixError) and _same_start(pod, fresh)):
                    raise
                pod = fresh
            else:
                return
            await asyncio.sleep(backoff.backoff(attempt, base=0.05, longest=1.0))

    async def close_gate(self, pod: Pod) -> bool:
        """Mark the pod, so that earlier patches no longer open its gate. Return False when the gate is open already."""
        for attempt in range(1, TRIES):
            try:
                return await self._close_gate_once(pod)
            except ConflictError:
                await asyncio.sleep(backoff.backoff(attempt, base=0.05, longest=1.0))
        return await self._close_gate_once(pod)

    async def _close_gate_once(self, pod: Pod) -> bool:
        try:
            fresh = await self._refetch(pod)
            if not fresh.gated:
                return False
            annotation = f"withdrawn {datetime.now(UTC).isoformat(timespec='microseconds')}"
            version = {"uid": fresh.meta.uid, "resourceVersion": fresh.meta.resource_version}
            body = {"metadata": {**version, "annotations": {names.PLACEMENT: annotation}}}
            await self._connection.set(_path(pod), body, PatchKind.MERGE)
        except GoneError:
            return True
        return True

    async def evict(self, pod: Pod, reason: str) -> None:
        """Evict exactly this pod. A no-op when it is gone or ending.

        Raises RetryError while a disruption budget forbids it.
        """
        for attempt in range(1, TRIES + 1):
            # Read first: for an eviction with another pod's UID, the API server retries for ten seconds before it
            # answers with a conflict (pkg/registry/core/pod/storage/eviction.go, v1.37).
            if await self._is_ending(pod):
                return
            try:
                await self._evict(pod)
            except GoneError:
                return
            except ConflictError:
                if attempt == TRIES:
                    raise
            else:
                log.info("the pod is evicted", pod=pod.meta.key, uid=pod.meta.uid, reason=reason)
                return
            await asyncio.sleep(backoff.backoff(attempt, base=0.05, longest=1.0))

    async def _evict(self, pod: Pod) -> None:
        """Create the Eviction; delete the pod where the API server does not serve evictions."""
        options = {"preconditions": {"uid": pod.meta.uid}}
        try:
            await self._connection.post(f"{_path(pod)}/eviction", eviction(pod), retry_policy=EVICTION_RETRIES)
        except (errors.AbsentEndpointError, errors.RefusedMethodError):
            await self._connection.delete(_path(pod), {"apiVersion": "v1", "kind": "DeleteOptions", **options})

    async def _refetch(self, pod: Pod) -> Pod:
        """Return the pod's present state. Raises GoneError when another pod has its name."""
        fresh = pods.decode(await self._connection.get(_path(pod)))
        if fresh.meta.uid != pod.meta.uid:
            raise GoneError(f"pod {pod.meta.key} with UID {pod.meta.uid} is gone; another has its name")
        return fresh

    async def _is_ending(self, pod: Pod) -> bool:
        try:
            fresh = await self._refetch(pod)
        except GoneError:
            return True
        return fresh.meta.deleted is not None


def eviction(pod: Pod) -> dict[str, Any]:
    """Return the Eviction of exactly this pod."""
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.meta.name, "namespace": pod.meta.namespace},
        "deleteOptions": {"preconditions": {"uid": pod.meta.uid}},
    }


def _same_start(tried: Pod, pod: Pod) -> bool:
    """Return whether both states of the pod would give the same patch."""
    return (tried.affinity, tried.gates) == (pod.affinity, pod.gates)


def _mark(pod: Pod) -> str | None:
    return pod.meta.annotations.get(names.PLACEMENT)


def _path(pod: Pod) -> str:
    return paths.within("/api/v1", pod.meta.namespace, "pods", pod.meta.name)
