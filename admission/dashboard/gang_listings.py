"""The pods of a gang and the Events about it, read when a page asks, and kept for some seconds for all who look.

Readers must have been allowed to list pods, or Events, in the namespace: what is kept does not depend on who asked.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Generic, NamedTuple, TypeVar

from admission.api.listings import EventList, ObjectEvent, PodList, PodRow
from admission.dashboard.devices import inventory
from admission.dashboard.ports import ListingReader
from admission.dashboard.ttl_cache import TtlCache
from admission.errors import FixError, RetryError
from admission.workloads.pod_selectors import PodSelector

KEPT_SECONDS = 5.0
MOST_KEPT = 16
"""Lists of each kind that are kept; the longest have some MB."""

MOST_PODS = 5_000
MOST_EVENTS = 2_000
"""The most Events of one object, and of all pods of a namespace."""

CONCURRENT_READS = 4

POD = "Pod"

T = TypeVar("T")


class Involved(NamedTuple):
    """Objects that Events are about. name: "" for all of the kind."""

    kind: str
    name: str = ""


class PodsKey(NamedTuple):
    """All on which a list of pods depends."""

    namespace: str
    labels: str
    fields: str


class EventsKey(NamedTuple):
    """All on which a list of Events depends."""

    namespace: str
    involved: Involved


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(Generic[T]):
    """A list that was read. trouble: why it could not be read; then it is empty."""

    found: T
    trouble: str = ""


@dataclass(slots=True)
class _Slot(Generic[T]):
    """One list: whoever comes while it is being read waits for it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    listing: Listing[T] | None = None


class GangListings:
    """Reads lists by a reader; each at most once in `KEPT_SECONDS`, also one that fails."""

    def __init__(self, reader: ListingReader, clock: Callable[[], float]) -> None:
        self._reader = reader
        self._reading = asyncio.Semaphore(CONCURRENT_READS)
        self._pods: TtlCache[PodsKey, _Slot[PodList]] = TtlCache(seconds=KEPT_SECONDS, most=MOST_KEPT, clock=clock)
        self._events: TtlCache[EventsKey, _Slot[EventList]] = TtlCache(
            seconds=KEPT_SECONDS, most=MOST_KEPT, clock=clock
        )

    async def pods(self, namespace: str, selector: PodSelector) -> Listing[PodList]:
        """Return the pods that a selector finds: those that wait or fail first, those that are done last."""
        key = PodsKey(namespace, selector.labels, selector.fields)
        slot = _slot(self._pods, key)
        return await self._fill(
            slot,
            lambda: self._read_pods(key),
            PodList(),
        )

    async def _read_pods(self, key: PodsKey) -> PodList:
        found = await self._reader.pods(key.namespace, labels=key.labels, fields=key.fields, limit=MOST_PODS)
        # Once for all who look: thousands of names take a while.
        return replace(found, rows=await asyncio.to_thread(sorted, found.rows, key=_rank))

    async def events(self, namespace: str, involved: Sequence[Involved]) -> Listing[Sequence[ObjectEvent]]:
        """Return the Events about objects of a namespace, the latest first."""
        lists = await asyncio.gather(*(self._events_about(EventsKey(namespace, one)) for one in involved))
        troubles = dict.fromkeys(one.trouble for one in lists if one.trouble)
        if not all(one.found.complete for one in lists):
            troubles["there are too many Events in the namespace to look through all of them"] = None
        found = [event for one in lists for event in one.found.events]
        return Listing(
            found=sorted(found, key=lambda event: event.at or _EARLIEST, reverse=True), trouble="; ".join(troubles)
        )

    async def _events_about(self, key: EventsKey) -> Listing[EventList]:
        kind, name = key.involved
        fields = f"involvedObject.kind={kind}" + (f",involvedObject.name={name}" if name else "")
        slot = _slot(self._events, key)
        return await self._fill(
            slot, lambda: self._reader.events(key.namespace, fields=fields, limit=MOST_EVENTS), EventList()
        )

    async def _fill(self, slot: _Slot[T], read: Callable[[], Awaitable[T]], nothing: T) -> Listing[T]:
        async with slot.lock:
            if slot.listing is None:
                try:
                    async with self._reading:
                        slot.listing = Listing(found=await read())
                except (FixError, RetryError) as error:
                    slot.listing = Listing(found=nothing, trouble=str(error))
            return slot.listing


RUNNING, COMPLETED = "Running", "Completed"


def _rank(row: PodRow) -> tuple[int, str, object]:
    """Return the place of a pod: those that wait or fail, then those that are not ready, that run, that are done."""
    ready, _, wanted = row.ready.partition("/")
    if row.status == COMPLETED:
        return 3, "", inventory.natural(row.name)
    if row.status == RUNNING:
        return (2 if ready == wanted else 1), "", inventory.natural(row.name)
    return 0, row.status, inventory.natural(row.name)


_EARLIEST = datetime.min.replace(tzinfo=UTC)

K = TypeVar("K")


def _slot(kept: TtlCache[K, _Slot[T]], key: K) -> _Slot[T]:
    found = kept.get(key)
    if found is None:
        found = _Slot()
        kept.put(key, found)
    return found
