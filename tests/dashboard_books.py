"""The books that tests of the dashboard read, in memory."""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime

from admission.accounting.books import Book
from admission.api.muster.ledger_entries import Entry
from admission.api.values.names import QueueName
from admission.dashboard.ledger_queries import (
    DoneBy,
    Extent,
    GangSearch,
    Grouping,
    Search,
    Statement,
    Step,
    Transaction,
    Use,
    UsedHours,
    UsedReport,
    WaitedShape,
    Window,
)


class Books:
    """The twin of the port `Ledger`: entries in memory. It keeps no statements and no use; SQL is tested with SQL."""

    def __init__(self, entries: Iterable[Entry] = (), *, start: datetime | None = None) -> None:
        self.entries = [Transaction(number, entry) for number, entry in enumerate(entries, start=1)]
        self.start = start
        self.error: Exception | None = None
        self.wanted: Search | None = None
        self.waited_read: list[tuple[Window, int]] = []

    async def extent(self) -> Extent:
        if self.error is not None:
            raise self.error
        return Extent(self.start, self.entries[-1].entry.at if self.entries else None)

    async def search(self, search: Search) -> Sequence[Transaction]:
        self.wanted = search
        found = [one for one in self.entries if _matches(one, search)]
        return found[::-1][: search.limit]

    async def of_gang(self, search: GangSearch) -> Sequence[Transaction]:
        if self.error is not None:
            raise self.error
        found = [one for one in self.entries if one.entry.gang_uid == search.uid]
        named = [one for one in self.entries if one.entry.gang == search.gang and one.entry.at >= search.since]
        return (found or named)[::-1][: search.limit]

    async def statement(self, queue: QueueName, window: Window) -> Statement:
        return Statement(queue=queue, window=window, opening={}, lines=[], closing={})

    async def use(self, grouping: Grouping, window: Window, step: Step, queue: str) -> Use:  # noqa: ARG002 - a port
        return Use(periods=[window], amounts={"vision": [7200], "research": [3600]})

    async def waiting(self, window: Window, step: Step, queue: str) -> Use:  # noqa: ARG002 - a port
        return Use(periods=[window], amounts={"research": [10_800]})

    async def waited(self, window: Window, *, most: int) -> Sequence[WaitedShape]:
        self.waited_read.append((window, most))
        claim = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 4}}]}}
        more = {
            "devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}]}
        }
        shapes = {"production": (2, claim), "research": (1, more)}
        return [
            WaitedShape(
                QueueName(queue),
                json.dumps([{"count": pods, "requests": {}, "claims": [spec]}]),
                7200 * pods,
            )
            for queue, (pods, spec) in shapes.items()
        ]

    async def used(self, by: DoneBy, window: Window, queue: str, *, most: int, most_empty: int) -> UsedReport:  # noqa: ARG002 - a port
        hour = 3600
        groups = [
            UsedHours(
                name=name,
                allocated=10 * hour,
                measured=8 * hour,
                used=used * hour * 1_000_000,
                idle=(8 - used) * hour * 1_000_000,
                memory_peak=4 << 30,
            )
            for name, used in {"team-a/train": 6, "team-b/sleep": 0}.items()
        ]
        dark = UsedHours(name="team-c/dark", allocated=5 * hour)
        total = UsedHours(
            allocated=25 * hour, measured=16 * hour, used=6 * hour * 1_000_000, idle=10 * hour * 1_000_000
        )
        return UsedReport(groups=[*groups, dark], left_out=2, emptiest=groups[::-1][:most_empty], total=total)

    async def at(self, moment: datetime) -> Book:
        return Book.replay(one.entry for one in self.entries if one.entry.at <= moment)


def _matches(one: Transaction, search: Search) -> bool:
    entry = one.entry
    return (
        search.window.start <= entry.at < search.window.end
        and search.queue in ("", entry.queue)
        and search.gang_uid in ("", entry.gang_uid)
        and search.user in ("", entry.user)
        and search.kind in (None, entry.kind)
        and search.gang in entry.gang
        and entry.gang.startswith(f"{search.namespace}/" if search.namespace else "")
        and (search.before is None or one.sequence < search.before)
    )
