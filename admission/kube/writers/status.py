"""Reports of Muster's decisions in the cluster, as statuses and Events: the real `ports.Reports`.

Statuses are applied on the server side, so that Muster owns its fields and those that it no longer sets are removed.
The last applied status of each object is cached, and an equal one is not written again unless the watch shows that
somebody else has written the object since: a leader that was deposed in the middle of a write, or a user.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import structlog

from admission.api.kubernetes.meta import Owner
from admission.api.muster.gangs import GangReport
from admission.api.muster.status_reports import ConditionReport, Notice, QueueReport
from admission.api.values import names
from admission.api.values.decoding import Json
from admission.api.values.names import Uid
from admission.errors import ConflictError, FixError, GoneError, MusterError
from admission.kube.cache import watched_resources
from admission.kube.cache.store import Store
from admission.kube.cache.watched_resources import Kind
from admission.kube.client import errors, paths
from admission.kube.client.connection import ONCE, Connection, PatchKind
from admission.kube.writers import events, status_encoding

log = structlog.get_logger(__name__)

MOST_REMEMBERED = 50_000

_REPORTED = {
    kind.plural: kind for kind in (watched_resources.METERS, watched_resources.POLICIES, watched_resources.SHAPES)
}


@dataclass(frozen=True, slots=True)
class CachedObject:
    """An object in the state that Muster last read or wrote."""

    uid: str
    version: str
    """The resourceVersion."""
    labels: Json
    owners: tuple[str, ...]
    spec: Json
    status: Json

    @property
    def ours(self) -> bool:
        """Whether Muster created it; otherwise Muster does not write its spec."""
        return self.labels.get(names.MANAGED_BY) == names.FIELD_MANAGER

    def is_of(self, workload: Owner | None) -> bool:
        """Return whether it belongs to this workload, not to an earlier one of the same name."""
        return workload is None or workload.uid in self.owners


def _owners(workload: Owner | None) -> tuple[str, ...]:
    return () if workload is None else (workload.uid,)


class Reporter:
    """Writes reports. With a store, it notices a deleted, recreated or changed object before it writes to it."""

    def __init__(
        self,
        connection: Connection,
        store: Store | None = None,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._connection = connection
        self._store = store
        self._clock = clock
        self._cache: dict[str, CachedObject] = {}
        self._event_filter = events.EventFilter()
        self._instance = f"{socket.gethostname()}-{os.getpid()}"

    async def gang(self, report: GangReport) -> None:
        """Create or update a Gang object and its status. A Gang that a user created keeps its spec.

        No object is created for a gang without pods, since a user may have deleted it; but for one whose pods went
        before its object was made. The object of a gang that is
        over is removed, unless another owner was added to it, whose garbage collection will remove it.
        """
        path = paths.within(f"/apis/{names.API_VERSION}", report.namespace, "gangs", report.name)
        is_made = report.has_or_had_pods
        # What the watch does not show of a gang that is over is gone: Kubernetes removes it with its workload.
        if not is_made and self._is_known_absent(watched_resources.GANGS, report.key):
            self._cache.pop(path, None)
            return
        cached = await self._stored(watched_resources.GANGS, report.key, path)
        if report.over:
            if cached is not None and cached.ours and cached.owners == _owners(report.workload):
                await self._remove(path, cached)
            return
        if cached is not None and cached.ours and not cached.is_of(report.workload):
            await self._remove(path, cached)
            cached = None
        wanted = status_encoding.gang(report)
        try:
            if cached is None and is_made:
                cached = self._remember(path, await self._connection.post(path.rpartition("/")[0], wanted))
            elif cached is not None and cached.ours and not wanted["spec"].items() <= cached.spec.items():
                cached = self._remember(path, await self._connection.apply(path, wanted))
        except errors.ExistsError:
            # The object was created, and the watch has yet to deliver it.
            self._remember(path, await self._connection.get(path))
            await self.gang(report)
            return
        except errors.EndingError:
            log.info("no gang is made in a namespace that ends", gang=report.key, gang_uid=report.uid)
            return
        if cached is None:
            return

        status = status_encoding.gang_status(report, cached.status, now=self._clock())
        body = status_encoding.applied(names.API_VERSION, "Gang", report.name, status, namespace=report.namespace)
        await self._write(path, cached, body)

    async def queue(self, report: QueueReport) -> None:
        """Update a Queue's status. A no-op when the queue is gone."""
        path = paths.join(watched_resources.QUEUES.path, report.name)
        cached = await self._stored(watched_resources.QUEUES, report.name, path)
        if cached is not None:
            status = status_encoding.queue_status(report, cached.status, now=self._clock())
            await self._write(path, cached, status_encoding.applied(names.API_VERSION, "Queue", report.name, status))

    async def conditions(self, report: ConditionReport) -> None:
        """Update the conditions of a Meter, ClaimPolicy or NodeShape. A no-op when it is gone."""
        kind = _REPORTED.get(report.plural)
        if kind is None:
            raise FixError(f"conditions are reported of {', '.join(_REPORTED)}, not of {report.plural}")
        path = paths.join(kind.path, report.name)
        cached = await self._stored(kind, report.name, path)
        if cached is not None:
            status = status_encoding.condition_status(report, cached.status, now=self._clock())
            await self._write(path, cached, status_encoding.applied(names.API_VERSION, kind.name, report.name, status))

    async def notify(self, notice: Notice) -> None:
        """Publish an Event, unless it repeats a recent one. Never raises: a lost Event must not stop a decision."""
        found = self._with_uid(notice) if notice.awaits_gang else notice
        if found is None:
            return
        notice, now, at = found, asyncio.get_running_loop().time(), self._clock()
        recent = self._event_filter.admit(notice, now=now, at=at)
        if recent is None:
            return
        try:
            await self._publish(notice, recent, now, at)
        except MusterError as error:
            log.warning("an Event was not published", reason=notice.reason, object=notice.name, error=str(error))

    async def flush(self) -> None:
        """Do nothing: every report is written before its call returns."""

    def _with_uid(self, notice: Notice) -> Notice | None:
        """Return a notice about a Gang with the UID of its object, as last written; None if it has no object."""
        path = paths.within(f"/apis/{names.API_VERSION}", notice.namespace, "gangs", notice.name)
        cached = self._cache.get(path)
        return replace(notice, uid=Uid(cached.uid)) if cached is not None else None

    async def _publish(self, notice: Notice, recent: events.RecentEvent, now: float, at: datetime) -> None:
        collection = paths.within("/api/v1", events.namespace(notice), "events")
        if recent.count > 1:
            try:
                change = events.repetition(notice, recent.count, at=at)
                await self._connection.patch(
                    paths.join(collection, recent.name), change, PatchKind.MERGE, retry_policy=ONCE
                )
            except GoneError:
                recent = self._event_filter.restart_series(notice, now=now, at=at)
            else:
                return
        body = events.event(notice, recent.name, instance=self._instance, at=at)
        await self._connection.post(collection, body, retry_policy=ONCE)

    async def _stored(self, kind: Kind, key: str, path: str) -> CachedObject | None:
        """Return the object as last seen; read it if it is not cached or may be otherwise now. None if there is none.

        An object that is neither cached nor in the synced store is not read, since it almost certainly does not exist.
        """
        cached = self._cache.get(path)
        if cached is not None and self._is_current(kind, key, cached):
            return cached
        if cached is None and self._is_known_absent(kind, key):
            return None
        try:
            return self._remember(path, await self._connection.get(path))
        except GoneError:
            self._cache.pop(path, None)
            return None

    def _is_current(self, kind: Kind, key: str, cached: CachedObject) -> bool:
        """Return whether the watch shows this object, and no later write than ours."""
        if self._store is None or kind not in self._store.tables:
            return True
        is_same = self._store.uid_of(kind, key) == cached.uid
        return is_same and not self._store.tables[kind].has_newer(key, cached.version)

    def _is_known_absent(self, kind: Kind, key: str) -> bool:
        table = self._store.tables.get(kind) if self._store is not None else None
        return table is not None and table.listed and not table.knows(key)

    async def _remove(self, path: str, cached: CachedObject) -> None:
        """Delete a Gang whose workload or pods are gone. A no-op if the garbage collector was first."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": cached.uid}}
        self._cache.pop(path, None)
        try:
            await self._connection.delete(path, options)
        except (GoneError, ConflictError):
            log.debug("the gang was gone already", path=path)

    async def _write(self, path: str, cached: CachedObject, body: dict[str, Any]) -> None:
        """Apply a status that differs; drop a deleted object from the cache, so that the next report reads again."""
        if body["status"] == cached.status:
            return
        try:
            answer = await self._connection.apply(f"{path}/status", body)
        except GoneError:
            self._cache.pop(path, None)
            log.info("the object of a report is gone", path=path)
        else:
            # Cache the sent status, not the returned one: fields written by a newer Muster would always differ.
            self._remember(path, answer | {"status": body["status"]})

    def _remember(self, path: str, obj: Json) -> CachedObject:
        meta = obj.get("metadata") or {}
        owners = tuple(str(owner.get("uid")) for owner in meta.get("ownerReferences") or ())
        cached = CachedObject(
            uid=str(meta.get("uid", "")),
            version=str(meta.get("resourceVersion", "")),
            labels=meta.get("labels") or {},
            owners=owners,
            spec=obj.get("spec") or {},
            status=obj.get("status") or {},
        )
        self._cache.pop(path, None)
        self._cache[path] = cached
        if len(self._cache) > MOST_REMEMBERED:
            del self._cache[next(iter(self._cache))]
        return cached
