"""Keeps the tables of a store equal to the cluster: one watcher for each kind, for as long as the process runs.

A watcher lists in pages of one moment, then watches from there. When the connection is lost it resumes from the last
version that it saw; when that is too old, or the API server refuses, it lists again, and removes objects that are
missing from the list. The table of an optional kind is empty where the kind is not served, and the watcher tries again
from time to time. This mirrors the reflector of client-go (tools/cache/reflector.go, v0.37), without streaming lists.
"""

import asyncio
import gc
import json
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import msgspec
import structlog

from admission import heap
from admission.api.kubernetes.owners import UNSERVED
from admission.errors import ClusterUnavailableError, ForbiddenError, MusterError, RetryError
from admission.kube.cache.indexer import Table
from admission.kube.cache.store import Store
from admission.kube.cache.watched_resources import Kind
from admission.kube.client import backoff, errors
from admission.kube.client.connection import Connection, ParsedFields

log = structlog.get_logger(__name__)

BEHIND_SECONDS = 0.2
"""Seconds between two checks whether the watches have caught up."""

IDENTITIES_PER_PAGE = 2_000
"""Objects per page when only their versions are read."""

SYNC_WARNING = 30.0
"""Seconds between warnings of a start that waits for kinds to be listed."""

REFUSALS_UNTIL_LOST = 4
"""Refusals in a row after which the permission for a kind that was readable counts as lost: an API server that has just
started refuses every request until it has read its roles."""

DECODED_AT_ONCE = 50
"""Objects decoded before the watcher yields to other tasks: 50 pods take about 5 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchTiming:
    """The timing of a watcher, in seconds. page: objects per page of a list."""

    page: int = 500
    shortest_watch: float = 240.0
    longest_watch: float = 480.0
    quiet: float = 150.0
    """A watch without even a bookmark for this long counts as dead; the API server sends one about every minute."""
    grace: float = 15.0
    base: float = 0.5
    longest_pause: float = 10.0
    absent: float = 60.0
    """Until a kind that is not served is tried again; the longest pause for a kind that may not be read."""


async def watch(connection: Connection, store: Store, *, timing: WatchTiming | None = None) -> None:
    """Keep all tables of the store up to date until cancelled."""
    async with asyncio.TaskGroup() as group:
        for kind, table in store.tables.items():
            watcher = Watcher(connection, store, table, timing=timing or WatchTiming())
            group.create_task(watcher.run(), name=f"watch {kind}")


class Watcher:
    """Watches one kind."""

    def __init__(self, connection: Connection, store: Store, table: Table, *, timing: WatchTiming) -> None:
        self._connection = connection
        self._store = store
        self._table = table
        self._timing = timing
        self._version = ""
        """resourceVersion of the table; empty when the kind has to be listed."""
        self._path = table.kind.path
        """The path of the API version in which the kind is served."""
        self._failed = 0
        self._expired = 0
        self._absent = False
        self._refused = 0

    async def run(self) -> None:
        """List, then watch, and list again when needed, until cancelled."""
        while True:
            try:
                if not self._version:
                    await self._list()
                if self._absent:
                    await asyncio.sleep(self._timing.absent)
                    continue
                await self._watch()
            except errors.ExpiredError:
                # The API server answered, so the back-off of earlier failures restarts. A restarted API server answers
                # so for nearly every version, since its watch cache begins with the present.
                self._version = ""
                self._expired += 1
                self._failed = self._expired - 1
                self._fail("the watch fell behind and lists again")
            except RetryError as error:
                self._fail(str(error))
            except ForbiddenError as error:
                self._version = ""
                self._fail(str(error))
                self._refused += 1
                if self._kind.may_be_forbidden and (
                    self._refused >= REFUSALS_UNTIL_LOST or not self._table.lists or self._table.unavailable
                ):
                    self._treat_as_empty(str(error))
                    await asyncio.sleep(
                        backoff.backoff(self._refused, base=self._timing.base, longest=self._timing.absent)
                    )
                    continue
            except MusterError as error:
                # Refused, as without a role or a CRD. Either may be created later, and then a list is needed.
                self._version = ""
                self._fail(str(error))
            if self._failed:
                await asyncio.sleep(
                    backoff.backoff(self._failed, base=self._timing.base, longest=self._timing.longest_pause)
                )

    async def _list(self) -> None:
        """Make the table equal to the cluster at one moment; empty where the API server does not serve the kind."""
        found = await self._read()
        # Not logged for workload kinds: most clusters serve few of them.
        if found is None and not self._absent and not self._kind.workload_kind:
            log.info("the API server does not serve this kind", kind=str(self._kind), again=self._timing.absent)
        self._absent = found is None
        self._refused = 0
        if self._absent:
            self._failed = self._expired = 0
        self._set_unavailable(UNSERVED if self._absent else "")
        self._version, keys = found or ("", set[str]())
        self._table.keep_only(keys)
        self._table.trouble = ""
        self._table.lists += 1
        self._table.record_answer()
        self._store.note_listed()

    def _treat_as_empty(self, why: str) -> None:
        """Treat a kind that may not be read as empty; `unavailable` has the reason, for gangs of a workload kind."""
        self._table.record_answer()
        self._set_unavailable(why)
        self._table.keep_only(set())
        self._store.note_listed()

    def _set_unavailable(self, reason: str) -> None:
        if self._table.unavailable != reason:
            self._table.unavailable = reason
            self._store.note_availability(self._kind)

    async def _read(self) -> tuple[str, set[str]] | None:
        """Read all objects in the best served version; None where no version of an optional kind is served."""
        for path in self._kind.paths:
            self._path = path
            try:
                return await self._read_all()
            except errors.AbsentEndpointError:
                if not self._kind.optional:
                    raise
        return None

    async def _read_all(self) -> tuple[str, set[str]]:
        try:
            return await self._read_pages(self._timing.page)
        except errors.ExpiredError:
            # The moment of the pages was compacted during the list: read all in one page, as client-go does.
            return await self._read_pages(0)

    async def _read_pages(self, limit: int) -> tuple[str, set[str]]:
        version, keys = "", set[str]()
        parsed_fields = ParsedFields.ALL if self._kind.all_fields else ParsedFields.DECODED
        async with aclosing(self._connection.pages(self._path, limit=limit, parsed_fields=parsed_fields)) as pages:
            async for page in pages:
                version = str(page["metadata"]["resourceVersion"])
                self._table.record_answer()
                for number, item in enumerate(page.get("items") or (), start=1):
                    keys.add(self._table.put(item))
                    if number % DECODED_AT_ONCE == 0:
                        await asyncio.sleep(0)
        return version, keys

    async def _watch(self) -> None:
        """Follow changes until the API server ends the watch, as it does every few minutes."""
        seconds = round(backoff.spread(self._timing.shortest_watch, self._timing.longest_watch))
        params: dict[str, str | int | bool] = {
            "watch": True,
            "allowWatchBookmarks": True,
            "resourceVersion": self._version,
            "timeoutSeconds": seconds,
        }
        began = asyncio.get_running_loop().time()
        events = 0
        stream = self._connection.lines(
            self._path, params, quiet=self._timing.quiet, total=seconds + self._timing.grace
        )
        async with aclosing(stream) as lines:
            async for line in lines:
                self._table.trouble = ""
                self._table.record_answer()
                if not line:
                    continue
                self._apply(line)
                # Only a received event counts as success. If a list did, a watch that is always refused would list
                # everything again and again without back-off.
                self._failed = self._expired = 0
                events += 1
                if events % DECODED_AT_ONCE == 0:
                    await asyncio.sleep(0)
        if not events and asyncio.get_running_loop().time() - began < 1:
            self._fail("the API server ended the watch at once")
        else:
            self._failed = self._expired = 0

    def _apply(self, line: bytes) -> None:
        """Apply one event."""
        event = _parsed(line)
        self._table.events += 1
        obj = event.get("object") or {}
        match event.get("type"):
            case "ADDED" | "MODIFIED":
                self._table.put(obj)
            case "DELETED":
                self._table.drop(obj)
            case "BOOKMARK":
                pass
            case _:
                raise self._event_error(obj, line)
        version = (obj.get("metadata") or {}).get("resourceVersion")
        self._version = str(version or self._version)

    def _event_error(self, status: Any, line: bytes) -> MusterError:
        """Return the error of an ERROR event, and have the kind listed again, since its version may be the cause."""
        self._version = ""
        call = errors.target("GET", self._path, watch=True)
        code = status.get("code") if isinstance(status, dict) else None
        return errors.translate(call, code if isinstance(code, int) else 500, json.dumps(status) if code else line)

    def _fail(self, trouble: str) -> None:
        self._failed += 1
        self._table.trouble = trouble
        # Each of a dozen watchers warns only after 1, 2, 4, 8 … failures, so as not to fill the log.
        log_failure = log.warning if self._failed.bit_count() == 1 else log.debug
        log_failure("the watch failed", kind=str(self._kind), failures=self._failed, error=trouble)

    @property
    def _kind(self) -> Kind:
        return self._table.kind


def _parsed(line: bytes) -> dict[str, Any]:
    """Return an event. Raises RetryError for a line that is not JSON, since a lost connection cut it off."""
    try:
        event = msgspec.json.decode(line)
    except ValueError as error:
        raise RetryError(f"a watch event is not JSON: {errors.cut(line)}") from error
    if not isinstance(event, dict):
        raise RetryError(f"a watch event is not an object: {errors.cut(line)}")
    return event


async def until_synced(store: Store) -> None:
    """Wait until the store is synced, with a log line now and then; then exempt its objects from garbage collection.

    A full collection would stop the event loop while it visits tens of thousands of objects that are never garbage.
    """
    with heap.rare_collections():
        while not store.synced:
            try:
                await store.wait_synced(SYNC_WARNING)
            except ClusterUnavailableError as error:
                log.warning("waiting for the cluster's objects", error=str(error))
    gc.collect()
    gc.freeze()
    heap.trim()


async def caught_up(connection: Connection, store: Store, kinds: Iterable[Kind], *, within: float = 30.0) -> None:
    """Wait until the store has every object of these kinds in the API server's present version or a later one.

    A new leader does so before it concludes that an object is gone, since its watches may be behind what its
    predecessor saw. The collection is listed again in each round, since an object that was deleted meanwhile never
    appears in the store. Raises ClusterUnavailableError after `within` seconds.
    """
    try:
        async with asyncio.timeout(within):
            for kind in kinds:
                while behind := await _objects_behind(connection, store.tables[kind]):
                    log.info("the watch is behind", kind=str(kind), objects=behind)
                    await asyncio.sleep(BEHIND_SECONDS)
    except TimeoutError:
        raise ClusterUnavailableError(f"after {within} s the watches still do not show all that there is") from None


async def _objects_behind(connection: Connection, table: Table) -> int:
    """Return the number of the API server's objects that the table lacks, or has in an older version.

    The first served version of the kind is read; an optional kind that is not served has none.
    """
    for path in table.kind.paths:
        try:
            return await _objects_behind_at(connection, table, path)
        except errors.AbsentEndpointError:
            if not table.kind.optional:
                raise
    return 0


async def _objects_behind_at(connection: Connection, table: Table, path: str) -> int:
    behind = 0
    async with aclosing(
        connection.pages(path, limit=IDENTITIES_PER_PAGE, parsed_fields=ParsedFields.IDENTITY)
    ) as pages:
        async for page in pages:
            behind += sum(map(table.is_behind, page.get("items") or ()))
    return behind
