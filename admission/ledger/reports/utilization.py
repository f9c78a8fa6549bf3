"""What allocated devices did: the sums of measured use by group, beside the allocated hours of `usage_report`.

A row of measured use counts if its time lies wholly within the time of the report, so what is measured never exceeds
what is allocated. Reports of adjacent times add up where they meet at the end of a recorded time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from sqlalchemy.ext.asyncio import AsyncConnection

from admission.api.muster.ledger_entries import MeasuredUsage
from admission.api.values import quantities
from admission.ledger.journal import measured_usage
from admission.ledger.journal.base import Window
from admission.ledger.reports.memory_asked import MemoryAsked
from admission.ledger.reports.usage_report import UNKNOWN, Key

MICRO = 1_000_000


@dataclass(slots=True)
class Utilization:
    """What the devices of a group did, as far as it was measured; None is not measured, and never 0.

    measured: device-seconds of which the utilization is known; used: device-seconds in use in them, times a million.
    memory_peak: the most on one device, in bytes. memory_over: the most by which a peak exceeds what was asked for,
    where that is compared. powered: device-seconds of which the power is known; energy: what was consumed in them, in
    millijoules.
    """

    measured: int = 0
    used: int | None = None
    memory_peak: int | None = None
    memory_over: int | None = None
    powered: int = 0
    energy: int | None = None

    def add(self, row: MeasuredUsage, memory_over: int | None = None) -> None:
        """Add a row. Raises AmountError when a sum is too large."""
        self.measured += row.measured_seconds
        self.used = _sum(self.used, row.used_microseconds)
        self.powered += row.powered_seconds
        self.energy = _sum(self.energy, row.energy)
        self.memory_peak = _most(self.memory_peak, row.memory_peak)
        self.memory_over = _most(self.memory_over, memory_over)

    def join(self, other: "Utilization") -> None:
        """Add what the devices of another group did. Raises AmountError when a sum is too large."""
        self.measured += other.measured
        self.used = _sum(self.used, other.used)
        self.powered += other.powered
        self.energy = _sum(self.energy, other.energy)
        self.memory_peak = _most(self.memory_peak, other.memory_peak)
        self.memory_over = _most(self.memory_over, other.memory_over)

    @property
    def idle(self) -> int | None:
        """The measured device-seconds that were not in use, times a million."""
        return None if self.used is None else self.measured * MICRO - self.used


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The utilization in a time, by the values of the keys, and of all together.

    compares_memory: whether memory in use is compared with what was asked for.
    """

    rows: Mapping[tuple[str, ...], Utilization] = field(default_factory=dict)
    total: Utilization = field(default_factory=Utilization)
    compares_memory: bool = False

    def of(self, group: tuple[str, ...]) -> Utilization:
        """Return what the devices of a group did; nothing is measured of one without a row."""
        return self.rows.get(group) or Utilization()


async def measured(
    connection: AsyncConnection,
    clusters: Sequence[str],
    keys: Sequence[Key],
    window: Window,
    asked: Mapping[str, MemoryAsked] = MappingProxyType({}),
) -> Measured:
    """Return the measured use of clusters in a time. keys: without Key.CLASS, by which nothing is measured.

    asked: by cluster, with which the memory in use is compared; of others it is not.
    """
    groups, total = dict[tuple[str, ...], Utilization](), Utilization()
    for cluster in clusters:
        async for row in measured_usage.within(connection, cluster, window):
            over = asked[cluster].over(row) if cluster in asked else None
            total.add(row, over)
            group = tuple(_VALUES[key](cluster, row) or UNKNOWN for key in keys)
            groups.setdefault(group, Utilization()).add(row, over)
    return Measured(rows=groups, total=total, compares_memory=bool(asked))


async def by_claim(connection: AsyncConnection, cluster: str, window: Window) -> dict[str, Utilization]:
    """Return the measured use in a time by the UID of the claim."""
    found: dict[str, Utilization] = {}
    async for row in measured_usage.within(connection, cluster, window):
        found.setdefault(row.claim_uid, Utilization()).add(row)
    return found


def _most(so_far: int | None, more: int | None) -> int | None:
    return so_far if more is None else max(so_far or 0, more)


def _sum(so_far: int | None, more: int | None) -> int | None:
    return so_far if more is None else quantities.checked((so_far or 0) + more)


_VALUES: Mapping[Key, Callable[[str, MeasuredUsage], str]] = {
    Key.CLUSTER: lambda cluster, _: cluster,
    Key.QUEUE: lambda _, row: row.queue,
    Key.NAMESPACE: lambda _, row: row.claim.partition("/")[0],
    Key.USER: lambda _, row: row.user,
    Key.GANG: lambda _, row: row.gang,
}
