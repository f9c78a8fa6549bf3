"""The cache of verdicts on pending gangs, each kept while its inputs are the same.

A verdict names its source: a check whose inputs are known, or a proof that there is no plan. It stands while the gang,
its claims and the inputs of all checks are the same, and its queue's quota still suffices, or is short by the same
amount. Every other hold (a back-off, a budget, a search that reached its bound) is recomputed in every cycle.

A verdict on quota stands under other usage if the shortage is the same, which identity of inputs cannot say, so this is
no declaration over `admission.incremental`. The law is tested in `tests/property/test_cycles.py`.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.meta import Meta
from admission.api.muster.gangs import Charge
from admission.api.muster.queues import Queue
from admission.api.snapshot import Snapshot, changed
from admission.api.values.names import GangUid, MeterName, QueueName
from admission.api.values.reasons import Hold
from admission.dra.requests.gang_request import PodDemand
from admission.quota.queue_order import Order
from admission.scheduling.cache.equivalence import GangEquivalence
from admission.scheduling.cache.plan_cache import InfeasibilityProof
from admission.scheduling.cache.queue_cache import Holds, Premise, QueueCache, ShortOf
from admission.workloads.gangs import Group

PROOF, ORDER, QUOTA, RESERVED = "proof", "order_is_kept", "quota_may_suffice", "reserved"

KINDS = "kinds"
"""A hold for the reasons of several kinds of devices, each a proof or a shortage; else it is not kept."""

STEADY = frozenset(
    {
        "queue_is_active",
        "queue_is_not_stopped",
        "pods_agree",
        "gang_is_complete",
        "claims_exist",
        "meters_are_known",
        "classes_are_metered",
        "classes_exist",
        "scheduler_is_known",
    }
)
"""Checks whose answer depends only on the gang, its claims and the shared inputs."""

MOST_OWN_CHARGES = 1_000
"""The most charges of plans within the own quota that are remembered; if there are more, all are dropped."""

ShortageOf = Callable[[QueueName, Charge, ShortOf], Hold | None]
"""Returns why a queue may not take a charge now, of which that of some meters may be more."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Verdict:
    """The outcome for a gang. by: its source, see above; empty if the verdict is not kept.

    needed: a lower bound on the gang's charge. ahead: the gang that blocked it in a strict queue. proof: of equivalent
    gangs, if `by` is a proof. bound: the reservations of gangs ahead of it that it would delay; the proof is then one
    beside these or, without a proof, quota is short beside them. bound_by_loan: those of them whose gangs have a worse
    rank, and which bind it only since it borrows.
    """

    group: Group
    outcome: Any
    needed: Charge = field(default_factory=dict)
    by: str = ""
    ahead: str = ""
    demands: tuple[PodDemand, ...] = ()
    equivalent: GangEquivalence | None = None
    proof: InfeasibilityProof | None = None
    bound: tuple[Any, ...] = ()
    bound_by_loan: tuple[Any, ...] = ()
    parts: "tuple[Verdict, ...]" = ()
    """The verdicts on the kinds of devices, if `by` is KINDS and all of them can be kept."""
    inventories: object = None
    """The devices of nodes from which the kinds that may serve it were computed."""
    open_meters: frozenset[MeterName] = frozenset()
    """If `by` is QUOTA, those of which a plan may be charged more than is needed."""

    @property
    def is_kept(self) -> bool:
        is_by_kinds = self.by == KINDS and bool(self.parts)
        return is_by_kinds or self.by in STEADY or self.by in {PROOF, ORDER, QUOTA, RESERVED}

    @property
    def premises(self) -> "Iterator[Premise]":
        """Yield the inputs that the verdict depends on, beside its gang and the shared inputs."""
        for part in self.parts or (self,):
            shortage = part.outcome if part.by == QUOTA else None
            yield Premise(
                part.needed,
                shortage,
                part.equivalent,
                part.proof,
                part.bound,
                part.bound_by_loan,
                self.inventories,
                ShortOf(part.open_meters, self.group.started),
            )


@dataclass(frozen=True, slots=True)
class KeptFor:
    """A gang for which its queue keeps its own quota, and the charge for which it does."""

    uid: GangUid
    charge: Charge


@dataclass(slots=True)
class VerdictCache:
    """Verdicts by gang, and their inputs. One per leader; `begin` is called in every cycle.

    Rule: only this class changes its fields. A verdict never changes; one with another hold or proof replaces it. The
    verdicts of a queue stand as a whole only while each of them is kept; `forget_queue` ends that.
    """

    _inputs: tuple[object, ...] = ()
    _queues: Mapping[QueueName, Queue] = field(default_factory=dict)
    _verdicts: dict[GangUid, Verdict] = field(default_factory=dict)
    _claims: Mapping[str, Claim] = field(default_factory=dict)
    _named: dict[str, set[GangUid]] = field(default_factory=dict)
    """By claim, `namespace/name`, the gangs with a kept verdict whose pods name it."""
    _shortages: dict[Hashable, Hold | None] = field(default_factory=dict)
    _last_shortages: dict[Hashable, Hold | None] = field(default_factory=dict)
    """The shortages of queues in this cycle, and the last ones of earlier cycles, to keep equal objects."""
    cleared: int = 0
    """Grows when the shared inputs have changed."""
    _kept_quota: Mapping[QueueName, KeptFor] = field(default_factory=dict)
    _own_charges: dict[tuple[GangUid, str | None], tuple[Group, object, Charge | None]] = field(default_factory=dict)
    """By gang and kind of devices, the charge of a plan within its queue's own quota, and what it was planned on."""
    _quota_basis: tuple[object, ...] | None = None
    """The quotas, usage and what queues keep by which the verdicts of all queues in `_queue_cache` were found to hold;
    None if not all were asked."""
    _queue_cache: QueueCache = field(default_factory=QueueCache)
    """The queues whose verdicts may all still stand."""

    @property
    def kept_quota(self) -> Mapping[QueueName, KeptFor]:
        """Return by queue the gang for which it keeps its own quota since an earlier cycle."""
        return self._kept_quota

    def keep_for(self, kept_quota: Mapping[QueueName, KeptFor]) -> None:
        """Record for which gangs queues keep their own quota until the next cycle."""
        self._kept_quota = kept_quota

    def own_charge(
        self, group: Group, kind: str | None, cluster: object, find: Callable[[], Charge | None]
    ) -> Charge | None:
        """Return what a gang is charged for a plan within its queue's own quota; None if there is none.

        It is found again if gang or cluster state have changed.
        """
        key = group.uid, kind
        if len(self._own_charges) > MOST_OWN_CHARGES:
            self._own_charges.clear()
        known = self._own_charges.get(key)
        if known is None or known[0] is not group or known[1] is not cluster:
            known = self._own_charges[key] = group, cluster, find()
        return known[2]

    def begin(self, snapshot: Snapshot, queues: Mapping[QueueName, Queue], *inputs: object) -> None:
        """Start a cycle: drop verdicts whose inputs have changed. queues: all that are placed in the tree."""
        now = (snapshot.meters, snapshot.classes, snapshot.templates, snapshot.malformed, *inputs)
        same = len(now) == len(self._inputs) and all(map(_same, now, self._inputs))
        if not same or any(
            _without_status(self._queues.get(name)) != _without_status(queues.get(name))
            for name in changed(self._queues, queues)
        ):
            self.cleared += 1
            self._verdicts.clear()
            self._named.clear()
            self._last_shortages.clear()
            self._own_charges.clear()
            self._queue_cache.clear()
        self._inputs, self._queues = now, queues
        for key in changed(self._claims, snapshot.claims):
            for uid in self._named.pop(key, ()):
                dropped = self._verdicts.pop(uid, None)
                if dropped is not None:
                    self._queue_cache.drop(dropped.group.queue)
        self._claims = snapshot.claims
        self.recount()

    def recount(self) -> None:
        """Compute shortages again, since the usage of queues has changed."""
        self._last_shortages |= self._shortages
        self._shortages.clear()

    def lookup(self, group: Group, ahead: str, shortage_of: ShortageOf) -> Verdict | None:
        """Return the verdict that still stands for a gang. ahead: the gang that blocks it in a strict queue."""
        found = self._verdicts.get(group.uid)
        if found is None or found.group is not group:
            return None
        if found.by in STEADY:
            return found
        if ahead or found.ahead:
            return found if ahead == found.ahead else None
        shortage = self._shortage(group.queue, found.needed, ShortOf(found.open_meters, group.started), shortage_of)
        if found.by != QUOTA:
            return found if shortage is None else None
        if shortage is None:
            return None
        if found.outcome is not shortage:
            found = self._verdicts[group.uid] = replace(found, outcome=shortage)
        return found

    def needed(self, group: Group) -> Charge | None:
        """Return the lower bound on a gang's charge of its kept verdict; None if it has none."""
        found = self._verdicts.get(group.uid)
        return found.needed if found is not None and found.group is group else None

    def keep(self, verdict: Verdict) -> None:
        """Keep a verdict if it is of a kind that may stand; else drop an earlier one."""
        uid = verdict.group.uid
        if not verdict.is_kept:
            self._verdicts.pop(uid, None)
            return
        self._verdicts[uid] = verdict
        for key in _claims_of(verdict.group):
            self._named.setdefault(key, set()).add(uid)

    def keep_only(self, groups: Sequence[Group]) -> None:
        """Drop the verdicts of gangs that no longer exist, once there are many."""
        if len(self._verdicts) > 2 * len(groups):
            alive = {group.uid for group in groups}
            self._verdicts = {uid: found for uid, found in self._verdicts.items() if uid in alive}

    def is_kept(self, verdict: Verdict) -> bool:
        """Return whether this verdict is kept."""
        return self._verdicts.get(verdict.group.uid) is verdict

    def follow(self, groups: tuple[Group, ...], by_uid: Mapping[GangUid, Group]) -> None:
        """Follow the gangs to those of this cycle. by_uid: the same, as a version that knows what differs."""
        self._queue_cache.follow(groups, by_uid)

    def waiting(self, groups: tuple[Group, ...]) -> Mapping[QueueName, tuple[Group, ...]]:
        """Return the pending gangs, by queue."""
        return self._queue_cache.waiting(groups)

    def waiting_uids(self, groups: tuple[Group, ...]) -> Collection[GangUid]:
        """Return the pending gangs."""
        return self._queue_cache.waiting_uids(groups)

    def changed_queues(
        self, groups: tuple[Group, ...], holds: Holds, unsteady: Collection[GangUid], order: Order
    ) -> Iterator[tuple[QueueName, tuple[Group, ...]]]:
        """Yield and forget the queues whose gangs have to be decided again, as `QueueCache.changed`."""
        for queue, waiting in self._queue_cache.changed(groups, holds, unsteady, order):
            self._queue_cache.drop(queue)
            yield queue, waiting

    def begin_quota(self, basis: tuple[object, ...]) -> bool:
        """Return whether no shortage can differ from when the verdicts of all queues were last found to hold.

        basis: all that shortages depend on. Once `changed_queues` has asked all queues by it, `end_quota` follows.
        """
        is_same, self._quota_basis = self._quota_basis == basis, None
        return is_same

    def end_quota(self, basis: tuple[object, ...]) -> None:
        """Record that the verdicts of all queues hold by this basis."""
        self._quota_basis = basis

    def keep_queue(
        self, queue: QueueName, groups: tuple[Group, ...], verdicts: Sequence[Verdict], order: Order
    ) -> None:
        """Keep the verdicts of a queue as a whole if each of them is kept."""
        if all(map(self.is_kept, verdicts)):
            self._queue_cache.keep(queue, groups, self._premises(verdicts), order)

    def forget_queue(self, queue: QueueName) -> None:
        """Have all gangs of a queue decided again."""
        self._queue_cache.drop(queue)

    def forget_queues(self) -> None:
        """Have the gangs of all queues decided again."""
        self._queue_cache.clear()

    def _premises(self, verdicts: Iterable[Verdict]) -> list[Premise]:
        """Return the inputs of one queue's verdicts, beside the gangs and the shared inputs, each once."""
        found: dict[Hashable, Premise] = {}
        for one in verdicts:
            for premise in one.premises if one.by in {PROOF, QUOTA, RESERVED, KINDS} else ():
                bound = premise.bound, premise.bound_by_loan
                needed = tuple(sorted(premise.needed.items())), premise.of
                key = one.by, *needed, id(premise.proof), *bound
                found.setdefault(key, premise)
        return list(found.values())

    def stands(self, queue: QueueName, basis: Premise, shortage_of: ShortageOf) -> bool:
        """Return whether a queue's shortage for the charge is unchanged."""
        return self._shortage(queue, basis.needed, basis.of, shortage_of) == basis.shortage

    def _shortage(self, queue: QueueName, needed: Charge, of: ShortOf, shortage_of: ShortageOf) -> Hold | None:
        """Return why a queue may not take a charge; the same object as before if it is equal."""
        key = queue, tuple(sorted(needed.items())), of
        if key not in self._shortages:
            found, before = shortage_of(queue, needed, of), self._last_shortages.get(key)
            self._shortages[key] = before if before == found else found
        return self._shortages[key]


def _same(left: object, right: object) -> bool:
    return left is right or left == right


def _without_status(queue: Queue | None) -> Queue | None:
    """Return a queue without what Muster's own status writes change: of the metadata, name and deletion stay."""
    return None if queue is None else replace(queue, meta=Meta(name=queue.name, deleted=queue.meta.deleted))


def _claims_of(group: Group) -> Iterator[str]:
    for pod in group.pods:
        for claim in pod.claims:
            name = pod.claim_name(claim)
            if name is not None:
                yield f"{pod.meta.namespace}/{name}"
