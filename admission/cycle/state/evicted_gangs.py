"""The evicted gangs that come back: what they had, and until when other gangs that run leave their queues' own alone.

A gang makes room for another one as a whole, and its controller makes its pods again only once the old ones are gone.
Should the other one grow meanwhile on quota that is the evicted gang's own, this would take that back by evicting the
other as a whole, and so in turn for ever (`quota.evicted_usage`).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from admission.api.kubernetes.meta import EPOCH
from admission.api.muster.gangs import Charge, Evicted
from admission.api.muster.ledger_entries import Placement
from admission.api.muster.queues import Queue
from admission.api.values.names import GangUid, MeterName, QueueName
from admission.api.values.reasons import EvictionReason
from admission.cycle.state.inputs import CycleInputs
from admission.quota.evicted_usage import EvictedUsage
from admission.workloads.gangs import Group

MAKE_ROOM = frozenset({EvictionReason.PREEMPTED, EvictionReason.RECLAIMED})
"""The causes after which a gang may evict others in turn."""


@dataclass(slots=True)
class _Evicted:
    """A gang that comes back. key: `namespace/name`. charge: what it had; None if that is not known.

    gone: when its last pod is gone, its grace period included. uid: None if no pod of it was seen since this leader
    began.
    """

    key: str
    queue: QueueName
    charge: Charge | None
    gone: datetime
    uid: GangUid | None
    position_key: str


@dataclass(slots=True)
class EvictedGangs:
    """The gangs that were evicted for others and have not run again. One per leader.

    Rule: a gang is in it from `note`, or the first `follow` of a leader who finds it in the status of Gangs, until it
    runs again, nobody makes it any more, or its pods are late by its queue's `startTimeout`.
    """

    _gangs: dict[str, _Evicted] = field(default_factory=dict)
    _has_read: bool = False

    def note(self, group: Group, cause: EvictionReason | None, now: datetime) -> None:
        """Record the eviction of a gang that holds a place."""
        controllers = [pod.meta.controller for pod in group.pods if pod.meta.controller is not None]
        if cause not in MAKE_ROOM or group.placement is None or not controllers:
            return
        self._gangs[group.key] = _Evicted(
            group.key, group.queue, _charge(group.placement), now, group.uid, group.identity.position_key
        )

    def follow(
        self,
        inputs: CycleInputs,
        placements: Mapping[GangUid, Placement],
        evicted: Mapping[GangUid, Evicted],
        positions: Collection[str],
    ) -> None:
        """Forget those that run again or will not come.

        evicted: the gangs that were evicted and have not run again. positions: those kept for gangs that their
        controllers make again as other ones.
        """
        if not self._has_read:
            self._read(inputs, placements)
            self._has_read = True
        for one in self._gangs.values():
            seats = placements[one.uid].seats if one.uid is not None and one.uid in placements else {}
            pods = (inputs.snapshot.pods.get(uid) for uid in seats)
            one.gone = max(one.gone, *(pod.meta.deleted for pod in pods if pod is not None and pod.meta.deleted), EPOCH)
        over = [key for key, one in self._gangs.items() if self._is_over(one, inputs, evicted, positions)]
        for key in over:
            del self._gangs[key]

    def usage(self, queues: Mapping[QueueName, Queue]) -> tuple[EvictedUsage, ...]:
        """Return what each of them had, and until when its pods are waited for. queues: all."""
        known = ((one, queues.get(one.queue)) for one in self._gangs.values())
        return tuple(
            EvictedUsage(queue=one.queue, charge=one.charge, until=one.gone + queue.start_timeout)
            for one, queue in known
            if queue is not None
        )

    def _read(self, inputs: CycleInputs, placements: Mapping[GangUid, Placement]) -> None:
        uids = {placement.gang: uid for uid, placement in placements.items()}
        for key, record in inputs.snapshot.gangs.items():
            if record.evicted is None or record.evicted.reason not in MAKE_ROOM or key in self._gangs:
                continue
            charge, uid = record.charges or None, uids.get(key)
            at, position_key = record.evicted.at, record.position_key
            self._gangs[key] = _Evicted(key, record.queue, charge, at, uid, position_key)

    def _is_over(
        self,
        one: _Evicted,
        inputs: CycleInputs,
        evicted: Mapping[GangUid, Evicted],
        positions: Collection[str],
    ) -> bool:
        queue, record = inputs.snapshot.queues.get(one.queue), inputs.snapshot.gangs.get(one.key)
        if queue is None or inputs.now >= one.gone + queue.start_timeout:
            return True
        if one.uid is not None and one.uid not in evicted:
            return True
        if record is None:
            return one.uid not in inputs.by_uid
        # A successor under another UID has taken its position, and runs.
        is_succeeded = bool(one.position_key) and one.position_key not in positions
        return is_succeeded if one.uid is not None else record.evicted is None


def _charge(placement: Placement) -> Charge:
    total: dict[MeterName, int] = {}
    for holding in placement.holdings.values():
        for meter, amount in holding.charge.items():
            total[meter] = total.get(meter, 0) + amount
    return total
