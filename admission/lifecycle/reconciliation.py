"""Reconciliation of the ledger with the cluster: the differences, and the entries that correct the ledger.

A leader posts most corrections in every cycle (`transitions`). This covers what it cannot see: pods and claims that ran
before its installation, charges at an outdated price, ledgers that were edited by hand, and times without a leader.
Quota is not checked here: whatever the cluster has allocated is charged.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from admission.accounting import books
from admission.accounting.books import Book
from admission.api.kubernetes import nodes
from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.devices import RequestDevice
from admission.api.kubernetes.pods import Pod
from admission.api.muster.gangs import Charge
from admission.api.muster.ledger_entries import Bucket, Entry, Holding, Kind, Placement, Seat
from admission.api.snapshot import Snapshot
from admission.api.values import names, quantities
from admission.api.values.names import MeterName, QueueName, Uid
from admission.dra.metering import holdings
from admission.dra.requests import extended_resources
from admission.lifecycle import transitions
from admission.lifecycle.transitions import ObservedAllocations
from admission.workloads import gangs
from admission.workloads.gangs import Group


class DifferenceKind(StrEnum):
    """The kinds of difference between the ledger and the cluster."""

    CLAIM_GONE = "ClaimGone"
    """The ledger holds devices for a claim that does not exist any more."""
    CLAIM_FREE = "ClaimFree"
    """The ledger holds devices for a claim that is not allocated, and whose pods have ended."""
    POD_GONE = "PodGone"
    """The ledger has a seat for a pod that has ended or does not exist any more."""
    NOT_SETTLED = "NotSettled"
    """A claim was allocated; the ledger has only the plan."""
    NOT_BOOKED = "NotBooked"
    """A claim of a pod in a queue is allocated, and the ledger does not have it."""
    NO_PRICE = "NoPrice"
    """The same, but today's meters cannot price it."""
    DEVICES = "DevicesDiffer"
    """A claim has other devices than the ledger."""
    CHARGE = "ChargeDiffers"
    """Today's meters price the devices differently than the ledger."""
    QUOTA = "QuotaDiffers"
    """The nominal quota in the ledger is not that of the Queue."""
    BALANCE = "BalanceDiffers"
    """A queue's balance differs from the charges of its open holdings: its rows were edited by hand."""


FIXES: Mapping[DifferenceKind, str] = {
    DifferenceKind.CLAIM_GONE: "release what is held for it",
    DifferenceKind.CLAIM_FREE: "release what is held for it",
    DifferenceKind.POD_GONE: "release its seat",
    DifferenceKind.NOT_SETTLED: "settle it",
    DifferenceKind.NOT_BOOKED: "charge it to the pod's queue",
    DifferenceKind.NO_PRICE: "nothing: mend the Meter or publish the device's slice first",
    DifferenceKind.DEVICES: "adjust the books to the devices it has",
    DifferenceKind.CHARGE: "adjust the charge",
    DifferenceKind.QUOTA: "grant the difference",
    DifferenceKind.BALANCE: "make balances and holdings anew from the chain of transactions",
}
"""The correction for each kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One difference between the ledger and the cluster.

    subject: `Kind namespace/name`. uid: of the pod or claim; "" for queues. gang and queue: those charged. books,
    cluster: what each of the two has.
    """

    kind: DifferenceKind
    subject: str
    books: str
    cluster: str
    queue: QueueName
    uid: Uid = Uid("")
    gang: str = ""
    meter: MeterName = MeterName("")

    @property
    def fix(self) -> str:
        """Return the correction that would be posted."""
        return FIXES[self.kind]

    @property
    def fixable(self) -> bool:
        """Whether an entry, or rebuilding the balances, can correct it."""
        return self.kind is not DifferenceKind.NO_PRICE


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """The time, author and reason of corrections."""

    at: datetime
    actor: str
    reason: str


def differences(book: Book, observed: ObservedAllocations) -> list[Difference]:
    """Return all differences between the ledger and the cluster, in a stable order."""
    in_use = transitions.claims_in_use(book.placements.values(), observed)
    found = [*_balances(book), *_quotas(book, observed.snapshot), *_missing_holdings(book, observed)]
    for placement in book.placements.values():
        found += _released(placement, observed, in_use)
        found += _unsettled(placement, observed)
        found += _changed_allocations(placement, observed)
    return sorted(found, key=lambda one: (one.queue, one.gang, one.kind, one.subject, one.uid, one.meter))


def corrections(
    book: Book, observed: ObservedAllocations, selected: Collection[Difference], author: Author
) -> list[Entry]:
    """Return the entries that correct the wanted ones of the differences between the ledger and the cluster.

    No entry corrects balances: the chain of transactions is right, but the sums derived from it are not.
    """
    uids_by_kind: defaultdict[DifferenceKind, set[Uid]] = defaultdict(set)
    for difference in selected:
        uids_by_kind[difference.kind].add(difference.uid)
    quotas = {
        (difference.queue, difference.meter) for difference in selected if difference.kind is DifferenceKind.QUOTA
    }
    entries: list[Entry | None] = [
        books.grant(queue, meter, delta, at=author.at, actor=author.actor, after=book.sequence)
        for (queue, meter), delta in _quota_changes(book, observed.snapshot).items()
        if (queue, meter) in quotas
    ]
    for placement in book.placements.values():
        entries += _placement_corrections(placement, observed, uids_by_kind, author)
    entries += _missing_entries(book, observed, uids_by_kind[DifferenceKind.NOT_BOOKED], author)
    return [replace(entry, reason=author.reason) for entry in entries if entry is not None]


def note(book: Book, author: Author) -> Entry:
    """Return the entry which records that balances and holdings were rebuilt from the chain; it moves nothing."""
    return Entry(
        kind=Kind.ADJUST,
        key=f"{Kind.ADJUST}:anew:{book.sequence}",
        at=author.at,
        actor=author.actor,
        reason=f"{author.reason}: balances and what is open were made anew from the chain",
        queue=QueueName(""),
    )


def _placement_corrections(
    placement: Placement,
    observed: ObservedAllocations,
    uids_by_kind: Mapping[DifferenceKind, Collection[Uid]],
    author: Author,
) -> Iterator[Entry | None]:
    at, actor = author.at, author.actor
    planned = transitions.allocated(placement, observed, settled=False)
    yield books.settle(placement, _only(planned, uids_by_kind[DifferenceKind.NOT_SETTLED]), at=at, actor=actor)
    allocated = transitions.allocated(placement, observed, settled=True)
    changed = {*uids_by_kind[DifferenceKind.DEVICES], *uids_by_kind[DifferenceKind.CHARGE]}
    yield books.readjust(placement, _only(allocated, changed), at=at, actor=actor)
    claims = {*uids_by_kind[DifferenceKind.CLAIM_GONE], *uids_by_kind[DifferenceKind.CLAIM_FREE]}
    pods = uids_by_kind[DifferenceKind.POD_GONE]
    yield books.release(placement, pods=pods, claims=claims, at=at, actor=actor, reason=author.reason)


def _only(allocated: Mapping[Uid, books.Allocated], uids: Collection[Uid]) -> dict[Uid, books.Allocated]:
    return {uid: one for uid, one in allocated.items() if uid in uids}


# Open holdings that differ from the cluster.


def _released(placement: Placement, observed: ObservedAllocations, in_use: frozenset[Uid]) -> Iterator[Difference]:
    entry = transitions.release(placement, observed, in_use, at=placement.reserved_at, actor="")
    for uid in entry.closes if entry else ():
        seat = placement.seats.get(uid)
        if seat is not None:
            ended = "it has ended" if uid in observed.snapshot.pods else "it does not exist"
            yield _difference(
                placement,
                DifferenceKind.POD_GONE,
                uid,
                f"Pod {seat.pod}",
                f"a seat on {names.for_people(seat.node)}",
                ended,
            )
            continue
        holding = placement.holdings[uid]
        exists = uid in observed.claims
        kind = DifferenceKind.CLAIM_FREE if exists else DifferenceKind.CLAIM_GONE
        state = "it is not allocated, and its pods have ended" if exists else "it does not exist"
        yield _difference(placement, kind, uid, _subject(uid, holding.claim), _format_holding(holding), state)


def _unsettled(placement: Placement, observed: ObservedAllocations) -> Iterator[Difference]:
    for uid, allocated in transitions.allocated(placement, observed, settled=False).items():
        holding = placement.holdings[uid]
        planned = f"a plan: {_format_holding(holding)}"
        yield _difference(
            placement,
            DifferenceKind.NOT_SETTLED,
            uid,
            _subject(uid, holding.claim),
            planned,
            _format_held(uid, allocated.devices, allocated.classes, allocated.charge),
        )


def _changed_allocations(placement: Placement, observed: ObservedAllocations) -> Iterator[Difference]:
    for uid, allocated in transitions.allocated(placement, observed, settled=True).items():
        holding = placement.holdings[uid]
        devices_differ = sorted(holding.devices) != sorted(allocated.devices)
        if devices_differ or _format_charge(holding.charge) != _format_charge(allocated.charge):
            kind = DifferenceKind.DEVICES if devices_differ else DifferenceKind.CHARGE
            yield _difference(
                placement,
                kind,
                uid,
                _subject(uid, holding.claim),
                _format_holding(holding),
                _format_held(uid, allocated.devices, allocated.classes, allocated.charge),
            )


def _difference(  # noqa: PLR0917 - a line of the report
    placement: Placement, kind: DifferenceKind, uid: Uid, subject: str, booked: str, description: str
) -> Difference:
    return Difference(
        kind=kind,
        subject=subject,
        books=booked,
        cluster=description,
        queue=placement.queue,
        uid=uid,
        gang=placement.gang,
    )


# Allocations in the cluster without a holding.


@dataclass(frozen=True, slots=True, kw_only=True)
class _MissingHolding:
    """An allocation of a bound pod that the ledger lacks. holding: the missing one; None without a price."""

    uid: Uid
    subject: str
    pod: Pod
    description: str
    holding: Holding | None


def _missing_holdings(book: Book, observed: ObservedAllocations) -> Iterator[Difference]:
    for group in gangs.groups(observed.snapshot, book.placements):
        for one in _missing_of(group, book, observed):
            yield Difference(
                kind=DifferenceKind.NO_PRICE if one.holding is None else DifferenceKind.NOT_BOOKED,
                subject=one.subject,
                books="nothing",
                cluster=f"{one.description}, for pod {one.pod.meta.key}",
                queue=_queue_of(group),
                uid=one.uid,
                gang=_gang_of(group),
            )


def _missing_entries(
    book: Book, observed: ObservedAllocations, only: Collection[Uid], author: Author
) -> Iterator[Entry]:
    """Yield an entry for each gang that adds missing holdings, with the seats of pods that have none."""
    entered: set[Uid] = set()
    for group in gangs.groups(observed.snapshot, book.placements):
        missing = [one for one in _missing_of(group, book, observed) if one.uid in only and one.uid not in entered]
        entered.update(one.uid for one in missing)
        if missing:
            yield _entry_for_missing(group, missing, book, observed, author)


def _missing_of(group: Group, book: Book, observed: ObservedAllocations) -> Iterator[_MissingHolding]:
    """Yield the allocated claims of a gang's bound pods, and what they take of nodes, that the ledger lacks."""
    seen: set[Uid] = set()
    for pod in group.pods if any(pod.node for pod in group.pods) else ():
        for one in (*_missing_claims(pod, observed), *_missing_resources(pod, observed)) if pod.node else ():
            if one.uid not in book.owners and one.uid not in seen:
                seen.add(one.uid)
                yield one


def _missing_claims(pod: Pod, observed: ObservedAllocations) -> Iterator[_MissingHolding]:
    for uid, claim in _claims_of(pod, observed).items():
        if claim.allocation is None:
            continue
        charge = transitions.price(claim, observed)
        devices = tuple(result.given for result in claim.allocation.devices)
        results = ((result.given, result.admin_access) for result in claim.allocation.devices)
        holding = Holding(
            claim_uid=uid,
            claim=claim.meta.key,
            devices=devices,
            charge=charge or {},
            classes=holdings.classes(observed.meters, claim.spec, results),
        )
        description = _format_held(uid, devices, {}, charge or {})
        yield _MissingHolding(
            uid=uid,
            subject=_subject(uid, claim.meta.key),
            pod=pod,
            description=description,
            holding=None if charge is None else holding,
        )


def _missing_resources(pod: Pod, observed: ObservedAllocations) -> Iterator[_MissingHolding]:
    claim = observed.claims.get(names.extended_claim(pod.meta.uid))
    by_devices = () if claim is None else extended_resources.by_resource(claim.spec, pod.containers)
    holding = holdings.of_pod(observed.meters, pod.meta.uid, pod.meta.key, holdings.of_node(pod.taken, by_devices))
    if holding is not None:
        yield _MissingHolding(
            uid=holding.claim_uid,
            subject=f"Pod {pod.meta.key}",
            pod=pod,
            description=_format_holding(holding),
            holding=holding,
        )


def _claims_of(pod: Pod, observed: ObservedAllocations) -> dict[Uid, Claim]:
    """Return the claims that the pod names, and the claim that kube-scheduler made for its extended resources."""
    keys = (f"{pod.meta.namespace}/{pod.claim_name(pod_claim)}" for pod_claim in pod.claims)
    found = {claim.meta.uid: claim for key in keys if (claim := observed.snapshot.claims.get(key)) is not None}
    extended_uid = names.extended_claim(pod.meta.uid)
    return found | ({extended_uid: observed.claims[extended_uid]} if extended_uid in observed.claims else {})


def _queue_of(group: Group) -> QueueName:
    """Return the queue to charge: that of the gang's placement, if it has one."""
    return group.placement.queue if group.placement else group.queue


def _gang_of(group: Group) -> str:
    return group.placement.gang if group.placement else group.key


def _entry_for_missing(
    group: Group, missing: Iterable[_MissingHolding], book: Book, observed: ObservedAllocations, author: Author
) -> Entry:
    workload = group.identity.workload
    priced = [one for one in missing if one.holding is not None]
    unseated = {one.pod.meta.uid: one.pod for one in priced if one.pod.meta.uid not in book.owners}
    reservation = books.reserve(
        gang_uid=group.uid,
        gang=_gang_of(group),
        queue=_queue_of(group),
        seats=[_seat(pod, observed) for pod in unseated.values()],
        holdings=[one.holding for one in priced if one.holding is not None],
        at=author.at,
        actor=author.actor,
        reason=author.reason,
        on_behalf_of=f"{workload.kind} {group.identity.namespace}/{workload.name}" if workload else group.key,
        user=group.placement.user if group.placement else priced[0].pod.user,
    )
    return books.adjust(reservation)


def _seat(pod: Pod, observed: ObservedAllocations) -> Seat:
    return Seat(pod_uid=pod.meta.uid, pod=pod.meta.key, node=pod.node, claims=tuple(_claims_of(pod, observed)))


# Queues.


def _quotas(book: Book, snapshot: Snapshot) -> Iterator[Difference]:
    for (queue, meter), delta in _quota_changes(book, snapshot).items():
        nominal = book.nominal(queue, meter)
        yield Difference(
            kind=DifferenceKind.QUOTA,
            subject=f"Queue {queue}",
            books=f"nominal {meter} {quantities.render(nominal)}",
            cluster=f"nominal {meter} {quantities.render(nominal + delta)}",
            queue=queue,
            meter=meter,
        )


def _quota_changes(book: Book, snapshot: Snapshot) -> dict[tuple[QueueName, MeterName], int]:
    """Return the difference of each nominal quota from the ledger's; the whole quota for a Queue that is gone."""
    nominal = {(name, quota.meter): quota.nominal for name, queue in snapshot.queues.items() for quota in queue.quotas}
    accounts = {(account.queue, account.meter) for account in book.balances}
    deltas = {key: nominal.get(key, 0) - book.nominal(*key) for key in sorted({*nominal, *accounts})}
    return {key: delta for key, delta in deltas.items() if delta and ("Queue", key[0]) not in snapshot.malformed}


def _balances(book: Book) -> Iterator[Difference]:
    """Yield the accounts whose balance differs from the charges of open holdings."""
    expected: defaultdict[tuple[QueueName, MeterName, Bucket], int] = defaultdict(int)
    for placement in book.placements.values():
        for holding in placement.holdings.values():
            for meter, amount in holding.charge.items():
                expected[placement.queue, meter, Bucket.USED if holding.settled else Bucket.RESERVED] += amount
    accounts = {(account.queue, account.meter) for account in book.balances} | {
        (queue, meter) for queue, meter, _ in expected
    }
    for queue, meter in sorted(accounts):
        for bucket in (Bucket.RESERVED, Bucket.USED):
            actual, charged = book.balance(queue, meter, bucket), expected[queue, meter, bucket]
            if actual != charged:
                yield _balance(queue, meter, f"{bucket} {meter} {actual}", f"its open holdings cost {charged}")
        total = sum(book.balance(queue, meter, bucket) for bucket in _OF_QUOTA)
        if total:
            yield _balance(queue, meter, f"accounts of {meter} that sum to {total}", "they sum to 0 by their making")


_OF_QUOTA = (Bucket.ENTITLEMENT, Bucket.FREE, Bucket.RESERVED, Bucket.USED)


def _balance(queue: QueueName, meter: MeterName, actual: str, expected: str) -> Difference:
    return Difference(
        kind=DifferenceKind.BALANCE, subject=f"Queue {queue}", books=actual, cluster=expected, queue=queue, meter=meter
    )


# Wording.


def _subject(uid: Uid, key: str) -> str:
    """Return the name of what holds something: a claim, or a pod that takes it of its node."""
    return f"Pod {key}" if names.pod_of_resources_claim(uid) else f"ResourceClaim {key}"


def _format_holding(holding: Holding) -> str:
    return _format_held(holding.claim_uid, holding.devices, holding.classes, holding.charge)


def _format_held(uid: Uid, devices: Iterable[RequestDevice], classes: Mapping[str, int], charge: Charge) -> str:
    """Return what a claim holds, or a pod of its node, and for what charge."""
    listed = ", ".join(str(one.device) for one in sorted(devices))
    if names.pod_of_resources_claim(uid) is not None:
        listed = nodes.render_resources(classes)
    return f"{listed or 'no device'} for {_format_charge(charge) or 'nothing'}"


def _format_charge(charge: Charge) -> str:
    return ", ".join(f"{meter} {quantities.render(amount)}" for meter, amount in sorted(charge.items()) if amount)
