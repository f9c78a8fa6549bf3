"""The watched objects of the cluster in memory: the real `ports.View`.

`reflector` feeds it, one table for each kind. Everything runs on one event loop and no method awaits between reading
and writing, so a snapshot is of one moment for each kind. Between kinds there is no order, as in any Kubernetes client:
a pod may be seen before its claim.
"""

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from admission.api.kubernetes.pods import Pod
from admission.api.muster.claim_policies import ClaimPolicy
from admission.api.snapshot import Snapshot, changed
from admission.api.storage.storage import Storage
from admission.api.values.names import Uid
from admission.errors import ClusterUnavailableError
from admission.kube.cache import watched_resources
from admission.kube.cache.indexer import Table
from admission.kube.cache.watched_resources import Kind

Changes = Mapping[Kind, frozenset[str]]
"""Kind → keys of the objects that were added, changed or removed."""


class Store:
    """All watched kinds. A kind that is not watched is empty in every snapshot and does not delay `synced`."""

    def __init__(self, watched: Iterable[Kind] = watched_resources.ALL) -> None:
        self.tables: Mapping[Kind, Table] = {kind: Table(kind, self._changed) for kind in watched}
        self._subscriptions: list[Subscription] = []
        self._snapshot: Snapshot | None = None
        self._storage_tables = {kind.storage: table for kind, table in self.tables.items() if kind.storage}
        self._storage: Storage | None = None
        self._pods: Mapping[Uid, Pod] = {}
        self._claimants: set[Uid] = set()
        """The pods that wait behind their gate and have volumes, as of the last snapshot."""
        self._synced = asyncio.Event()

    @property
    def synced(self) -> bool:
        """Whether every watched kind has been listed once; no decision is made before."""
        return self._synced.is_set()

    @property
    def policies(self) -> Mapping[str, ClaimPolicy]:
        """ClaimPolicies by name."""
        table = self.tables.get(watched_resources.POLICIES)
        return table.freeze() if table else {}

    def snapshot(self) -> Snapshot:
        """Return a frozen snapshot; the same object as before when nothing has changed since."""
        if self._snapshot is None:
            snapshot_tables = (
                (kind, table) for kind, table in self.tables.items() if kind.field and not kind.workload_kind
            )
            fields: dict[str, Any] = {kind.field: table.freeze() for kind, table in snapshot_tables}
            workload_tables = [(kind.workload_kind, table) for kind, table in self.tables.items() if kind.workload_kind]
            fields["parents"] = {workload_kind: table.freeze() for workload_kind, table in workload_tables}
            fields["unwatched"] = {
                kind.unwatched_key: table.unavailable
                for kind, table in self.tables.items()
                if kind.unwatched_key and table.unavailable
            }
            malformed = {key: error for table in self.tables.values() for key, error in table.malformed().items()}
            queues = self.tables.get(watched_resources.QUEUES)
            fields["unread_queues"] = queues.unreadable() if queues else {}
            fields["storage"] = self._frozen_storage(fields.get("pods", {}))
            self._snapshot = Snapshot(**fields, malformed=malformed)
        return self._snapshot

    def _frozen_storage(self, pods: Mapping[Uid, Pod]) -> Storage | None:
        """Return the storage objects, the same as before if none has changed; None while no waiting pod has volumes.

        A pod waits behind its gate, and then until it is bound. Also None if one of the kinds may not be read, since
        volumes are not judged by a part of these objects.
        """
        for uid in changed(self._pods, pods) if self._storage_tables else ():
            pod = pods.get(uid)
            if pod is None or not pod.rules.volumes or pod.node or pod.finished:
                self._claimants.discard(uid)
            elif pod.gated:
                self._claimants.add(uid)
        self._pods = pods
        if not self._claimants or any(table.unavailable for table in self._storage_tables.values()):
            self._storage = None
            return None
        parts: dict[str, Any] = {name: table.freeze() for name, table in self._storage_tables.items()}
        if self._storage is None or any(getattr(self._storage, name) is not part for name, part in parts.items()):
            self._storage = Storage(**parts)
        return self._storage

    def uid_of(self, kind: Kind, key: str) -> str | None:
        """Return the UID of an object; None when it is not known. Does not freeze the table."""
        found = self.tables[kind].find(key)
        return None if found is None else str(getattr(found, "meta", found).uid)

    def troubles(self) -> dict[str, str]:
        """Return why kinds may be out of date, by `plural.group`; empty when all are current. For readiness, doctor."""
        return {str(kind): table.trouble for kind, table in self.tables.items() if table.trouble}

    def watch_statistics(self) -> Iterator[tuple[str, int, int, int, float]]:
        """Yield for each kind: `plural.group`, numbers of objects, events and lists, seconds since the last answer."""
        now = time.monotonic()
        for kind, table in self.tables.items():
            yield str(kind), len(table), table.events, table.lists, now - table.last_answer

    def subscribe(self, *watched: Kind) -> "Subscription":
        """Return a subscription to changes of these kinds, of all when none is named; active within its `with`."""
        return Subscription(self._subscriptions, frozenset(watched))

    async def wait_synced(self, within: float | None = None) -> None:
        """Wait until every watched kind has been listed. Raises ClusterUnavailableError after `within` seconds."""
        try:
            async with asyncio.timeout(within):
                await self._synced.wait()
        except TimeoutError:
            missing = (f"{kind} ({table.trouble})" for kind, table in self.tables.items() if not table.listed)
            message = f"after {within} s these kinds are not listed: {'; '.join(missing)}"
            raise ClusterUnavailableError(message) from None

    def note_listed(self) -> None:
        """Record that a table was listed; the last one makes the store synced."""
        if not self.synced and all(table.listed for table in self.tables.values()):
            self._synced.set()
            for subscription in self._subscriptions:
                subscription.wake()

    def note_availability(self, kind: Kind) -> None:
        """Record that a kind has become readable, or unreadable."""
        self._changed(kind, "", content_changed=True)

    def _changed(self, kind: Kind, key: str, *, content_changed: bool) -> None:
        if kind.storage and not self._claimants:
            # Nobody reads it, so nobody is woken: storage changes often where nobody asks Muster for any.
            return
        self._snapshot = None
        for subscription in self._subscriptions if content_changed else ():
            subscription.note(kind, key)


class Subscription:
    """The changes since a reader's last call: `with store.subscribe() as changed: await changed.next()`.

    A change of fields that are not decoded, such as the heartbeat in a node's status, does not wake the reader.
    """

    def __init__(self, subscriptions: "list[Subscription]", watched: frozenset[Kind]) -> None:
        self._subscriptions = subscriptions
        self._watched = watched
        self._pending: dict[Kind, set[str]] = {}
        self._event = asyncio.Event()

    def __enter__(self) -> Self:
        self._subscriptions.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._subscriptions.remove(self)

    async def next(self) -> Changes:
        """Wait for a change, then return all of them since the last call. Empty when the store has just synced."""
        await self._event.wait()
        self._event.clear()
        pending, self._pending = self._pending, {}
        return {kind: frozenset(keys) for kind, keys in pending.items()}

    async def wait(self) -> None:
        """Wait for a change, and discard which it was: the port `controller.admission_loop.Changes`."""
        await self.next()

    def note(self, kind: Kind, key: str) -> None:
        """Remember a change and wake the reader."""
        if not self._watched or kind in self._watched:
            self._pending.setdefault(kind, set()).add(key)
            self.wake()

    def wake(self) -> None:
        """Wake the reader, whether or not there is a change."""
        self._event.set()
