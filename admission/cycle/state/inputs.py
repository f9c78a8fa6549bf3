"""The frozen inputs of one cycle; a step that changes something returns new inputs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from admission.api.device_use.idle import IdleDevices
from admission.api.snapshot import Snapshot
from admission.api.values.names import GangUid
from admission.api.values.reasons import Hold
from admission.dra.compatibility import SchedulerProfile
from admission.dra.metering.device_meters import Meters
from admission.lifecycle.transitions import ObservedAllocations
from admission.quota.tree import Tree
from admission.workloads.gangs import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleInputs:
    """The inputs of one cycle.

    now: the ledger's time, which never goes back. clock: the wall clock, by which back-offs and retries end.
    profile: of the kube-scheduler whose decisions are predicted; None if nothing is predicted.
    groups: all gangs. by_uid: the same, as a version that knows what differs from earlier ones. granted: those of them
    that have a place and do not run in full (`GangCache.granted`). requested: those with a user's request. noted: those
    of which the status says what their devices do.
    idle: those whose devices are in less use than their queues allow.
    taken_back: gangs that this cycle evicts or tried to evict. unready: by gang that is not planned in this cycle, the
    hold: it was just requeued, or its claims could not be deallocated. first_in_next: those of them that the next cycle
    plans before any gang that ranks lower, so that these do not get what was given back.
    """

    snapshot: Snapshot
    observed: ObservedAllocations
    tree: Tree
    meters: Meters
    now: datetime
    clock: datetime
    profile: SchedulerProfile | None = None
    groups: tuple[Group, ...] = ()
    by_uid: Mapping[GangUid, Group] = field(default_factory=dict)
    granted: tuple[Group, ...] = ()
    requested: tuple[Group, ...] = ()
    noted: Mapping[GangUid, Group] = field(default_factory=dict)
    idle: Mapping[GangUid, IdleDevices] = field(default_factory=dict)
    taken_back: frozenset[GangUid] = frozenset()
    unready: Mapping[GangUid, Hold] = field(default_factory=dict)
    first_in_next: frozenset[GangUid] = frozenset()
