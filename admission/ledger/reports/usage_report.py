"""Reports of use: device-hours and meter-hours between two times, by queue, namespace, user, class or gang.

Use is counted from settled allocations, to the second: a claim counts from the entry that settled it to the entry that
closed it, with both times cut to the whole second, so that reports of adjacent times add up. Memory holds the open
claims and the groups of the result, not the history.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from sqlalchemy.ext.asyncio import AsyncConnection

from admission.accounting import accruals
from admission.api.values.names import MeterName
from admission.ledger.journal.base import Window
from admission.ledger.reports import allocation_intervals
from admission.ledger.reports.allocation_intervals import AllocationInterval, Progress

UNKNOWN = "unknown"
"""The user or class of allocations from before the books recorded it."""


class Key(StrEnum):
    """A property by which use is grouped."""

    CLUSTER = "cluster"
    QUEUE = "queue"
    NAMESPACE = "namespace"
    """The claim's namespace."""
    USER = "user"
    """The user who created the workload."""
    CLASS = "class"
    """DeviceClass, or extended resource of a device plugin."""
    GANG = "gang"


@dataclass(slots=True)
class Use:
    """The use of a group. devices: device-seconds. meters: meter-seconds, in the meter's base unit."""

    devices: int = 0
    meters: dict[MeterName, int] = field(default_factory=dict)

    def add(self, devices: int, charge: Mapping[MeterName, int], seconds: int) -> None:
        """Add a number of devices and a charge over some seconds."""
        self.devices += devices * seconds
        for meter, amount in charge.items():
            self.meters[meter] = self.meters.get(meter, 0) + amount * seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Use in a time of whole seconds. rows: by the values of the keys, sorted, without rows of zero use.

    A charge is for a whole claim, whose devices may be of several classes, so rows by class have no meters. The total
    has them.
    """

    keys: Sequence[Key]
    window: Window
    rows: Mapping[tuple[str, ...], Use]
    total: Use


async def report(
    connection: AsyncConnection, clusters: Sequence[str], keys: Sequence[Key], window: Window, progress: Progress
) -> Report:
    """Return the use of clusters in a time, with its start and end cut to the whole second.

    Raises FixError when the start lies in a closed period, LedgerCorruptError when a row cannot be read.
    """
    whole_seconds = Window(*map(accruals.floor_to_second, window))
    groups, total = dict[tuple[str, ...], Use](), Use()
    for cluster in clusters:
        async for interval in allocation_intervals.between(connection, cluster, whole_seconds, progress):
            if seconds := interval.seconds(whole_seconds):
                total.add(sum(interval.classes.values()), interval.holding.charge, seconds)
                for group, devices, charge in shares(interval, keys):
                    groups.setdefault(group, Use()).add(devices, charge, seconds)
    rows = {group: use for group, use in sorted(groups.items()) if use.devices or any(use.meters.values())}
    return Report(keys=keys, window=whole_seconds, rows=rows, total=total)


def shares(
    interval: AllocationInterval, keys: Sequence[Key]
) -> Iterator[tuple[tuple[str, ...], int, Mapping[MeterName, int]]]:
    """Yield the groups of an interval, each with the number of devices and the charge that it adds."""
    if Key.CLASS not in keys:
        yield _group(interval, keys, ""), sum(interval.classes.values()), interval.holding.charge
        return
    for name, devices in interval.classes.items():
        yield _group(interval, keys, name), devices, {}


def _group(interval: AllocationInterval, keys: Sequence[Key], name: str) -> tuple[str, ...]:
    return tuple((name if key is Key.CLASS else _VALUES[key](interval)) or UNKNOWN for key in keys)


_VALUES: Mapping[Key, Callable[[AllocationInterval], str]] = {
    Key.CLUSTER: lambda interval: interval.cluster,
    Key.QUEUE: lambda interval: interval.queue,
    Key.NAMESPACE: lambda interval: interval.namespace,
    Key.USER: lambda interval: interval.user,
    Key.GANG: lambda interval: interval.gang,
}
