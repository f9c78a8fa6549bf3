"""Giving claims their devices and taking them back: the real `flow.ports.Claims`.

A claim is allocated in two writes, as kube-scheduler does it: the finalizer, then the allocation. Both are made for
exactly the version of the claim that was seen, so whatever happened to it since makes them fail: another's allocation,
its deletion, or a later leader that took the claim back. For that, taking back changes a claim in any case, also one
that was not allocated yet: a write that is still under way, of a leader that does not know of its successor or one
whose answer was lost, finds another version.
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
"""How often a claim is taken back again from what it has become meanwhile."""

ALLOCATED, WITHDRAWN = "allocated", "withdrawn"
"""How the annotation `names.PLACEMENT` begins."""


def _now() -> datetime:
    return datetime.now(UTC)


class ClaimWriter:
    """Allocates and deallocates. clock: the time that stands in the annotation; it must not say the same twice."""

    def __init__(self, connection: Connection, *, clock: Callable[[], datetime] = _now) -> None:
        self._connection = connection
        self._clock = clock

    async def allocate(self, claim: Claim, allocation: Json) -> Claim:
        """Give an unallocated claim these devices: status.allocation, complete. Return the claim as it is then.

        Raises ConflictError when the claim is not what was seen any more, unless it has these very devices.
        """
        try:
            protected = await self._mark(claim, ALLOCATED, finalizers=[FINALIZER])
            return await self._write(protected, allocation)
        except ConflictError:
            # The answer to the same write may have been lost, or it was this process's view that was late.
            fresh = await self._again(claim)
            if _given(fresh.allocation) != _given(claims.decode_allocation(allocation)):
                raise
            return fresh

    async def deallocate(self, claim: Claim) -> Claim | None:
        """Take a claim's devices back, unless it is reserved, and make every write fail that is still under way.

        Return the claim as it is then, allocated still where pods have reserved it; None when it is gone.
        """
        for attempt in range(1, TRIES):
            try:
                return await self._taken_back(claim)
            except ConflictError:
                await asyncio.sleep(backoff.backoff(attempt, base=0.05, longest=1.0))
        return await self._taken_back(claim)

    async def _taken_back(self, claim: Claim) -> Claim | None:
        try:
            fresh = await self._again(claim)
            if fresh.reserved_for:
                return fresh
            if fresh.allocation is None:
                return await self._mark(fresh, WITHDRAWN)
            log.info("take the claim's devices back", claim=claim.meta.key, uid=claim.meta.uid)
            return await self._write(fresh, None)
        except GoneError:
            return None

    async def _mark(self, claim: Claim, what: str, **more: Any) -> Claim:
        """Write what happens to the claim, which makes it another version."""
        logged = f"{what} {self._clock().isoformat(timespec='microseconds')}"
        body = {"metadata": {**_version(claim), "annotations": {names.PLACEMENT: logged}, **more}}
        return claims.decode(await self._connection.patch(_path(claim), body, PatchKind.STRATEGIC))

    async def _write(self, claim: Claim, allocation: Json | None) -> Claim:
        body = {"metadata": _version(claim), "status": {"allocation": allocation}}
        return claims.decode(await self._connection.patch(f"{_path(claim)}/status", body, PatchKind.MERGE))

    async def _again(self, claim: Claim) -> Claim:
        """Read the claim as it is now. Raises GoneError when another has its name."""
        fresh = claims.decode(await self._connection.get(_path(claim)))
        if fresh.meta.uid != claim.meta.uid:
            raise GoneError(f"claim {claim.meta.key} with UID {claim.meta.uid} is gone; another has its name")
        return fresh


def _version(claim: Claim) -> dict[str, Any]:
    return {"uid": claim.meta.uid, "resourceVersion": claim.meta.resource_version}


def _given(allocation: Allocation | None) -> list[RequestDevice]:
    return sorted(device.given for device in allocation.devices) if allocation else []


def _path(claim: Claim) -> str:
    return paths.within("/apis/resource.k8s.io/v1", claim.meta.namespace, "resourceclaims", claim.meta.name)
