"""The cluster's objects in the order in which pages show them: queues by parent, gangs by queue, devices by node.

A ClusterView is built from one frozen observation and never changes. `ClusterViews` builds a new one at most once per
second: with thousands of gangs one of them has always just changed, and the difference would not be visible.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import cached_property

from admission.api.muster import gang_references, queue_references
from admission.api.muster.gangs import Charge, Phase
from admission.api.muster.observed import ObservedGang, ObservedObjects, ObservedQueue
from admission.api.muster.queues import Queue
from admission.api.values import references
from admission.api.values.names import QueueName
from admission.dashboard.auth.rbac import VisibleNamespaces
from admission.dashboard.devices import capacity, inventory
from admission.dashboard.devices.capacity import ClassCapacity, ClassMembers
from admission.dashboard.devices.inventory import DeviceHolders, Holders, Inventory
from admission.dashboard.ports import View
from admission.dashboard.queue_tree import QueueTree
from admission.dra.metering import device_meters
from admission.status.queue_sums import STARTED

REFRESH_SECONDS = 1.0
"""Seconds for which a view is shown even if something has changed."""

WAITING = (Phase.PENDING, Phase.EVICTED)


class ClusterView:
    """One ordered view of the cluster."""

    def __init__(self, observed: ObservedObjects, previous: "ClusterView | None" = None) -> None:
        self.observed = observed
        self._inventory: Inventory | None = None
        self._device_holders = DeviceHolders()
        """The device holders when they were last computed."""
        self._members = ClassMembers()
        """The devices of each class when they were last computed."""
        if previous is not None:
            self._members = previous._members  # noqa: SLF001 - of this class
            self._device_holders = previous._device_holders  # noqa: SLF001 - of this class
            if previous.observed.slices is observed.slices:
                self._inventory = previous._inventory  # noqa: SLF001 - of this class

    @property
    def queues(self) -> Mapping[QueueName, ObservedQueue]:
        return self.observed.queues

    @cached_property
    def tree(self) -> QueueTree:
        """The queues by parent, and their sums."""
        return QueueTree(self.queues)

    @cached_property
    def gangs(self) -> Sequence[ObservedGang]:
        """All gangs: waiting ones, the longest first, then the others by name."""
        return sorted(self.observed.gangs.values(), key=_rank)

    @cached_property
    def by_queue(self) -> Mapping[str, Sequence[ObservedGang]]:
        """Gangs by queue: waiting ones in the order in which they will start, then the others."""
        found: dict[str, list[ObservedGang]] = {}
        for gang in self.gangs:
            found.setdefault(gang.report.queue, []).append(gang)
        for gangs in found.values():
            gangs.sort(key=lambda gang: (gang.report.phase not in WAITING, gang.report.position or _LAST))
        return found

    @cached_property
    def namespaces(self) -> frozenset[str]:
        """Namespaces that have gangs."""
        return frozenset(gang.report.namespace for gang in self.observed.gangs.values())

    @cached_property
    def keys_by_uid(self) -> Mapping[str, str]:
        """The names of gangs and claims by UID, which the statuses of gangs have of those of other namespaces."""
        found = {str(claim.meta.uid): key for key, claim in self.observed.claims.items()}
        return found | {str(gang.meta.uid): key for key, gang in self.observed.gangs.items()}

    @property
    def inventory(self) -> Inventory:
        """All devices by node. Kept from view to view while no slice changes."""
        if self._inventory is None:
            self._inventory = inventory.inventory(self.observed.slices.values())
        return self._inventory

    @cached_property
    def holders(self) -> Holders:
        """The holders of each device."""
        self._device_holders = self._device_holders.updated(self.observed.claims, self.observed.gangs)
        return self._device_holders.holders

    @cached_property
    def capacity(self) -> Sequence[ClassCapacity]:
        """The capacity of each device class, the largest first."""
        meters = self.observed.meters.values()
        counted = device_meters.classes_known(one.meter for one in meters)
        self._members = self._members.updated(self.observed.classes, self.observed.slices, self.inventory, counted)
        outside = {name: devices for one in meters for name, devices in one.outside.items()}
        return capacity.capacity(self._members, self.inventory, self.holders, self.observed.nodes, outside)


class ClusterViews:
    """The present view."""

    def __init__(self, view: View, clock: Callable[[], float]) -> None:
        self._view = view
        self._clock = clock
        self._built_at = 0.0
        self._cluster_view: ClusterView | None = None

    @property
    def synced(self) -> bool:
        return self._view.synced

    def now(self) -> ClusterView:
        """Return the view of the cluster, at most `REFRESH_SECONDS` seconds old."""
        at = self._clock()
        if self._cluster_view is None or at - self._built_at >= REFRESH_SECONDS:
            self._cluster_view = ClusterView(self._view.observe(), self._cluster_view)
            self._built_at = at
        return self._cluster_view


def resolved(gang: ObservedGang, cluster_view: ClusterView) -> ObservedGang:
    """Return a gang whose status names all that is there. Only for what decides about the names to be shown."""
    if not references.uids(gang_references.references_of(gang.report)):
        return gang
    return replace(gang, report=gang_references.resolved(gang.report, cluster_view.keys_by_uid))


def for_reader(gang: ObservedGang, cluster_view: ClusterView, visible: VisibleNamespaces) -> ObservedGang:
    """Return a gang that a visitor may see, with the names of others in its status that the visitor may see."""
    known = replace(visible, names=visible.names | {gang.report.namespace})
    return replace(gang, report=gang_references.for_reader(resolved(gang, cluster_view).report, known))


def queue_for_reader(
    observed_queue: ObservedQueue, cluster_view: ClusterView, visible: VisibleNamespaces
) -> ObservedQueue:
    """Return a queue with the names in its status that the visitor may see."""
    report = queue_references.resolved(observed_queue.report, cluster_view.keys_by_uid)
    return replace(observed_queue, report=queue_references.for_reader(report, visible))


def all_for_reader(
    gangs: Iterable[ObservedGang], cluster_view: ClusterView, visible: VisibleNamespaces
) -> list[ObservedGang]:
    """Return the same for several gangs."""
    return [for_reader(gang, cluster_view, visible) for gang in gangs]


NEVER_FITS = "NeverFits"
"""The state of a gang for which waiting does not help: the condition of that name holds."""
ALL_WAITING = "Waiting"
"""Any state of a gang that waits."""
STATES = (NEVER_FITS, *Phase)


def state(gang: ObservedGang) -> str:
    """Return the phase of a gang, or `NEVER_FITS`, which is none."""
    return NEVER_FITS if gang.report.never_fits else str(gang.report.phase)


def in_state(gang: ObservedGang, name: str) -> bool:
    """Return whether a gang is in a state, or in any of `ALL_WAITING`."""
    return gang.report.phase in WAITING if name == ALL_WAITING else state(gang) == name


def since(gang: ObservedGang) -> datetime:
    """Return when a gang began to wait, or else when it was created."""
    return gang.report.queued_since or gang.meta.created


def held_since(gang: ObservedGang) -> datetime:
    """Return since when a gang has waited for its present reason, or else waited or existed at all."""
    return gang.held_since or since(gang)


def expected_end(gang: ObservedGang, queue: Queue | None) -> datetime | None:
    """Return when a gang that runs should have ended: by its runtime, or its queue's default or limit; None if unknown.

    The controller's backfill expects the same, from the times of pods and of the reservation.
    """
    ends: list[datetime] = []
    if gang.report.phase not in STARTED:
        return None
    runtime = gang.runtime or (queue.default_runtime if queue is not None else None)
    for began, length in (
        (gang.running_since, runtime),
        (gang.admitted_since, queue.max_runtime if queue is not None else None),
    ):
        if began is not None and length is not None:
            with suppress(OverflowError):
                ends.append(began + length)
    return min(ends, default=None)


def charge_or_needed(gang: ObservedGang) -> Charge:
    """Return what a gang has; or while it waits, the least that it will cost, as far as it is known."""
    return gang.report.charges or gang.report.needed


def waiting(gangs: Iterable[ObservedGang]) -> list[ObservedGang]:
    """Return the waiting gangs."""
    return [gang for gang in gangs if gang.report.phase in WAITING]


_LAST = 1 << 62


def _rank(gang: ObservedGang) -> tuple[int, object, str]:
    phase = gang.report.phase
    if phase in WAITING:
        return 0, since(gang), gang.key
    return (1 if phase in STARTED else 2), _NEVER, gang.key


_NEVER = datetime.max.replace(tzinfo=datetime.fromisoformat("1970-01-01T00:00:00+00:00").tzinfo)
