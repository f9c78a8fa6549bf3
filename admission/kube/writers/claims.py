"""Allocation and deallocation of claims: the real `ports.Claims`.

A claim is allocated in two writes, as by kube-scheduler: the finalizer, then the allocation. Both require exactly the
version of the claim that was seen, so they fail after any change since: another allocation, a deletion, or a
deallocation by a later leader. For that, deallocating changes every claim, even one that is not allocated yet: a
delayed write, by a leader that does not know of its successor or one whose answer was lost, finds another version.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import structlog

from admission.api.kubernetes import claims
from admission.api.kubernetes.claims import FINALIZER, Allocation, Claim
from admission.api.kubernetes.devices import RequestDevice
from admission.api.values import names
from admission.api.values.decoding import Json
from admission.errors import ConflictError, GoneError
from admission.kube.client import backoff, paths
from admission.kube.client.connection import Connection, PatchKind

log = structlog.get_logger(__name__)

TRIES = 4
"""How often a deallocation is tried, each time with the claim's present version."""

ALLOCATED, WITHDRAWN = "allocated", "withdrawn"
"""The beginnings of the annotation `names.PLACEMENT`."""


def _now() -> datetime:
    return datetime.now(UTC)


class ClaimWriter:
    """Allocates and deallocates. clock: the time in the annotation; it must not return the same time twice."""

    def __init__(self, connection: Connection, *, clock: Callable[[], datetime] = _now) -> None:
        self._connection = connection
        self._clock = clock

    async def allocate(self, claim: Claim, allocation: Json) -> Claim:
        """Give an unallocated claim a complete status.allocation. Return the allocated claim.

        Raises ConflictError when the claim has changed since it was seen, unless it has exactly these devices.
        """
        try:
            protected = await self._mark(claim, ALLOCATED, finalizers=[FINALIZER])
            return await self._write(protected, allocation)
        except ConflictError:
            # The answer to an earlier try of this write may have been lost, or this process's cache was behind.
            fresh = await self._refetch(claim)
            if _devices(fresh.allocation) != _devices(claims.decode_allocation(allocation)):
                raise
            return fresh

    async def deallocate(self, claim: Claim) -> Claim | None:
        """Remove a claim's allocation, unless pods have reserved it, and make delayed writes to the claim fail.

        Return the resulting claim, still allocated if pods have reserved it; None when it is gone.
        """
        for attempt in range(1, TRIES):
            try:
                return await self._deallocate_once(claim)
            except ConflictError:
                await asyncio.sleep(backoff.backoff(attempt, base=0.05, longest=1.0))
        return await self._deallocate_once(claim)

    async def _deallocate_once(self, claim: Claim) -> Claim | None:
        try:
            fresh = await self._refetch(claim)
            if fresh.reserved_for:
                return fresh
            if fresh.allocation is None:
                return await self._mark(fresh, WITHDRAWN)
            log.info("take the claim's devices back", claim=claim.meta.key, uid=claim.meta.uid)
            return await self._write(fresh, None)
        except GoneError:
            return None

    async def _mark(self, claim: Claim, operation: str, **metadata: Any) -> Claim:
        """Annotate the claim with the operation, which changes its version."""
        annotation = f"{operation} {self._clock().isoformat(timespec='microseconds')}"
        body = {"metadata": {**_version(claim), "annotations": {names.PLACEMENT: annotation}, **metadata}}
        return claims.decode(await self._connection.patch(_path(claim), body, PatchKind.STRATEGIC))

    async def _write(self, claim: Claim, allocation: Json | None) -> Claim:
        body = {"metadata": _version(claim), "status": {"allocation": allocation}}
        return claims.decode(await self._connection.patch(f"{_path(claim)}/status", body, PatchKind.MERGE))

    async def _refetch(self, claim: Claim) -> Claim:
        """Return the claim's present state. Raises GoneError when another claim has its name."""
        fresh = claims.decode(await self._connection.get(_path(claim)))
        if fresh.meta.uid != claim.meta.uid:
            raise GoneError(f"claim {claim.meta.key} with UID {claim.meta.uid} is gone; another has its name")
        return fresh


def _version(claim: Claim) -> dict[str, Any]:
    return {"uid": claim.meta.uid, "resourceVersion": claim.meta.resource_version}


def _devices(allocation: Allocation | None) -> list[RequestDevice]:
    return sorted(device.given for device in allocation.devices) if allocation else []


def _path(claim: Claim) -> str:
    return paths.within("/apis/resource.k8s.io/v1", claim.meta.namespace, "resourceclaims", claim.meta.name)
