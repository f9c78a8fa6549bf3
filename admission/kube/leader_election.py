"""Leader election: at most one holder at a time of a Lease (coordination.k8s.io/v1).

Only the local clock is trusted, and only for differences: a lease counts as expired when its record has not changed for
its lease duration, counted from when this process saw the change (client-go, tools/leaderelection/leaderelection.go,
v0.37). A holder counts from before it sent its last successful renewal, and gives up after a shorter time, so it stops
before another may begin. A holder that was paused too long to notice is fenced off by the ledger: every term has a
larger epoch than those before it, and the ledger refuses writes of older epochs.
"""

import asyncio
import contextlib
import os
import socket
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import structlog

from admission.api.values.decoding import Json
from admission.errors import ConflictError, GoneError, MusterError
from admission.kube.client import backoff, errors, paths
from admission.kube.client.connection import Connection, PatchKind, RetryPolicy
from admission.kube.client.errors import ExistsError

log = structlog.get_logger(__name__)

CHECKS = 4
"""How often a standby reads the lease per retry time: it counts from when it sees the last renewal, so a late read
delays a failover by as much."""

FIRST_EPOCH_AT = datetime(2025, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """Seconds; retry < renew < lease.

    lease: a standby waits so long after the last renewal. renew: the holder gives up so long after it. retry: between
    two renewals; a standby reads the lease CHECKS times as often.
    """

    lease: float = 15.0
    renew: float = 10.0
    retry: float = 2.0


@dataclass(slots=True, kw_only=True)
class Term:
    """One term as leader. epoch: larger than that of every earlier term of any process."""

    epoch: int
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    deadline: float
    """When the term ends unless it is renewed, on the loop's clock."""
    version: str

    @property
    def leads(self) -> bool:
        """Whether this process leads now, correct even if the loop was too busy to set `lost`."""
        return not self.lost.is_set() and asyncio.get_running_loop().time() < self.deadline


@dataclass(slots=True)
class _Observed:
    """Another holder's record, as last seen."""

    version: str = ""
    until: float = 0.0
    """When the lease counts as expired unless the record changes, on the loop's clock."""


class Lease:
    """This process's candidacy for one Lease."""

    def __init__(
        self,
        connection: Connection,
        *,
        namespace: str,
        name: str = "muster-controller",
        durations: Durations | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.identity = f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4().hex[:8]}"
        self._connection = connection
        self._collection = paths.within("/apis/coordination.k8s.io/v1", namespace, "leases")
        self._name = name
        self._durations = durations or Durations()
        self._clock = clock
        self._observed = _Observed()
        self._last_epoch = 0
        # One slow request must leave time for another renewal before the deadline.
        self._retry_policy = RetryPolicy(tries=1, timeout=max(0.1, self._durations.renew / 2))

    @asynccontextmanager
    async def lead(self) -> AsyncGenerator[Term]:
        """Wait for the leadership, renew the lease while the block runs, and release it at the end.

        When `term.lost` is set, another process may lead soon: leave the block, and call `lead` again.
        """
        term = await self._acquire()
        failure: Exception | None = None
        try:
            async with asyncio.TaskGroup() as group:
                renewing = group.create_task(self._keep(term), name=f"renew the lease {self._name}")
                try:
                    yield term
                except Exception as error:  # noqa: BLE001 - raised below, where the TaskGroup does not wrap it
                    failure = error
                finally:
                    renewing.cancel()
        finally:
            await self._release(term)
        if failure is not None:
            raise failure

    async def _acquire(self) -> Term:
        while True:
            try:
                term = await self._try_to_acquire()
            except MusterError as error:
                log.warning("the lease cannot be read or taken", lease=self._name, error=str(error))
                term = None
            if term is not None:
                log.info("the lease is ours", lease=self._name, identity=self.identity, epoch=term.epoch)
                return term
            await asyncio.sleep(self._pause())

    def _pause(self) -> float:
        """Return the seconds until the next try: at most until the holder's lease expires, with some jitter."""
        usual = backoff.spread(self._durations.retry, self._durations.retry * 1.2) / CHECKS
        left = self._observed.until - self._now()
        return min(usual, left + backoff.spread(0.0, self._durations.retry / 20)) if left > 0 else usual

    async def _try_to_acquire(self) -> Term | None:
        """Acquire the lease if it does not exist, was released, or has expired; None otherwise."""
        try:
            found = await self._connection.get(self._path, retry_policy=self._retry_policy, urgent=True)
        except errors.AbsentEndpointError:
            raise
        except GoneError:
            return await self._create()
        if not self._may_acquire(found):
            return None
        transitions = _transitions(found) + 1
        return await self._try_acquire(found["metadata"]["resourceVersion"], transitions)

    async def _create(self) -> Term | None:
        """Create the lease; None when another process was first.

        Its transitions do not begin at 0: an earlier lease may have been deleted, and the ledger would refuse every
        epoch smaller than that lease's last. They begin at the seconds since 2025, which exceed any count of takeovers.
        """
        began = self._now()
        transitions = max(self._last_epoch, int((self._clock() - FIRST_EPOCH_AT).total_seconds()))
        body = record(self.identity, self._durations, at=self._clock(), transitions=transitions, name=self._name)
        try:
            made = await self._connection.post(self._collection, body, retry_policy=self._retry_policy, urgent=True)
        except errors.ExistsError:
            return None
        return self._term(made, began)

    async def _try_acquire(self, version: str, transitions: int) -> Term | None:
        began = self._now()
        body = record(self.identity, self._durations, at=self._clock(), transitions=transitions, version=version)
        try:
            holder_changed = await self._patch(body)
        except ConflictError:
            return None
        return self._term(holder_changed, began)

    def _may_acquire(self, found: Json) -> bool:
        spec = found.get("spec") or {}
        version = str(found["metadata"]["resourceVersion"])
        if version != self._observed.version:
            seconds = float(spec.get("leaseDurationSeconds") or self._durations.lease)
            self._observed = _Observed(version, self._now() + seconds)
        if spec.get("holderIdentity") in (None, "", self.identity):
            return True
        return self._now() >= self._observed.until

    def _term(self, written: Json, began: float) -> Term:
        self._last_epoch = _transitions(written) + 1
        return Term(
            epoch=self._last_epoch,
            deadline=began + self._durations.renew,
            version=str(written["metadata"]["resourceVersion"]),
        )

    async def _keep(self, term: Term) -> None:
        """Renew the lease until renewals fail for too long, then set `term.lost`."""
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(term.deadline) as limit:
                    # `expired` is checked since aiohttp may turn our cancellation into its own timeout, when a request
                    # times out at the same moment.
                    while not limit.expired():
                        await asyncio.sleep(self._durations.retry)
                        began = self._now()
                        if await self._renew(term) and not limit.expired():
                            term.deadline = began + self._durations.renew
                            limit.reschedule(term.deadline)
            log.warning("the lease could not be renewed in time", lease=self._name, epoch=term.epoch)
        except GoneError as error:
            log.warning("the lease was taken away", lease=self._name, epoch=term.epoch, error=str(error))
        term.lost.set()

    async def _renew(self, term: Term) -> bool:
        """Renew the lease; return whether that succeeded. Raises GoneError when another holds it, or it is gone."""
        body = renewal(at=self._clock(), version=term.version)
        try:
            written = await self._patch(body)
        except ConflictError:
            # Another client changed the record, or the answer to our last renewal was lost.
            term.version = await self._still_ours(term)
            return False
        except GoneError:
            raise
        except MusterError as error:
            log.warning("the lease was not renewed", lease=self._name, error=str(error))
            return False
        term.version = str(written["metadata"]["resourceVersion"])
        return True

    async def _still_ours(self, term: Term) -> str:
        """Return the version to renew from; the old one if the record cannot be read. Raises GoneError if not ours."""
        try:
            found = await self._connection.get(self._path, retry_policy=self._retry_policy, urgent=True)
        except GoneError:
            raise
        except MusterError:
            return term.version
        holder = (found.get("spec") or {}).get("holderIdentity")
        if holder != self.identity:
            raise GoneError(f"{holder or 'nobody'} holds the lease now")
        return str(found["metadata"]["resourceVersion"])

    async def _release(self, term: Term) -> None:
        """Release the lease, so that the next leader need not wait. Only while this process surely holds it."""
        if not term.leads:
            return
        term.lost.set()
        try:
            try:
                await self._patch(release(at=self._clock(), version=term.version))
            except ConflictError:
                # A renewal was under way when the block ended.
                await self._patch(release(at=self._clock(), version=await self._still_ours(term)))
        except MusterError as error:
            log.info("the lease was not given back", lease=self._name, error=str(error))
        else:
            log.info("the lease was given back", lease=self._name, epoch=term.epoch)

    async def _patch(self, body: dict[str, Any]) -> Json:
        return await self._connection.patch(
            self._path, body, PatchKind.MERGE, retry_policy=self._retry_policy, urgent=True
        )

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    @property
    def _path(self) -> str:
        return paths.join(self._collection, self._name)


def record(
    holder: str, durations: Durations, *, at: datetime, transitions: int, version: str = "", name: str = ""
) -> dict[str, Any]:
    """Return the Lease of a new holder. With a version, the API server refuses the write if the Lease has changed."""
    meta = {"name": name} if name else {"resourceVersion": version}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": meta,
        "spec": {
            "holderIdentity": holder,
            # The API has only whole seconds; rounding up makes the standbys wait long enough.
            "leaseDurationSeconds": max(1, -int(-durations.lease // 1)),
            "acquireTime": _micro_time(at),
            "renewTime": _micro_time(at),
            "leaseTransitions": transitions,
        },
    }


def renewal(*, at: datetime, version: str) -> dict[str, Any]:
    """Return the patch by which the holder renews its Lease.

    It needs the version: without it, the write would succeed although another process holds the lease.
    """
    return {"metadata": {"resourceVersion": version}, "spec": {"renewTime": _micro_time(at)}}


def release(*, at: datetime, version: str) -> dict[str, Any]:
    """Return the patch by which the holder releases its Lease; the transitions stay, for the next epoch."""
    spec = {"holderIdentity": None, "leaseDurationSeconds": 1, "renewTime": _micro_time(at)}
    return {"metadata": {"resourceVersion": version}, "spec": spec}


async def latest_epoch(connection: Connection, namespace: str, name: str) -> int | None:
    """Return the largest epoch that a Lease has given; None if there is no such Lease."""
    try:
        found = await connection.get(
            paths.join(paths.within("/apis/coordination.k8s.io/v1", namespace, "leases"), name)
        )
    except errors.AbsentEndpointError:
        raise
    except GoneError:
        return None
    return _transitions(found) + 1


def _transitions(lease: Json) -> int:
    return int((lease.get("spec") or {}).get("leaseTransitions") or 0)


async def ensure(connection: Connection, name: str) -> None:
    """Create Muster's own namespace, in which its lease lives, unless it exists.

    Raises ForbiddenError, which names the permission, when that is refused.
    """
    try:
        await connection.get(paths.join("/api/v1/namespaces", name))
    except GoneError:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        with contextlib.suppress(ExistsError):
            await connection.post("/api/v1/namespaces", body)


def _micro_time(moment: datetime) -> str:
    """Return a time as metav1.MicroTime."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
