"""In-memory ports, but for signed heads (`in_memory_chain`): a cluster and a ledger for `muster simulate` and tests.

`Cluster` stands for the API server and for the other controllers: `schedule` is kube-scheduler and the kubelets,
`finish` is the end of pods, with what the garbage collector and the claim controller do then. Callers pass the time.
"""

import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from admission.accounting import accruals
from admission.accounting.accruals import QueueMeter
from admission.accounting.books import Book
from admission.api.kubernetes import claims
from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.devices import Device, DeviceId, Slice
from admission.api.kubernetes.jobs import Job, Suspendable
from admission.api.kubernetes.meta import EPOCH, Meta, Owner
from admission.api.kubernetes.nodes import Node
from admission.api.kubernetes.pods import Pod
from admission.api.muster.gangs import Gang, GangReport, RecordedHold
from admission.api.muster.ledger_entries import (
    Bucket,
    BudgetShare,
    Entry,
    Holding,
    Kind,
    MemberUsageInterval,
    Placement,
    Posted,
    UsageInterval,
)
from admission.api.muster.queues import Queue
from admission.api.muster.status_reports import ConditionReport, Notice, QueueReport
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.decoding import Json
from admission.api.values.names import Held, MeterName, NodeName, QueueName, Uid
from admission.dra.requests import extended_resources
from admission.errors import BudgetTakenError, ConflictError, DeposedError, GoneError
from admission.lifecycle import transitions
from admission.ports import NO_ANNOTATIONS
from admission.simulation import fake_allocation

_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, names.GROUP)


def uid_of(kind: str, key: str) -> Uid:
    """Return a UID for an object without one, always the same for the same kind, namespace and name."""
    return Uid(str(uuid.uuid5(_NAMESPACE, f"{kind}/{key}")))


UNKNOWN_NODE = NodeName("(a node of kube-scheduler's choice)")
"""The node of pods that were placed by counting only."""

Labels = Mapping[str, str]
K = TypeVar("K")
V = TypeVar("V")


def _as_seen(seen: Mapping[K, V], now: Mapping[K, V]) -> Mapping[K, V]:
    """Return a copy of a mapping; the one seen before if no object of it has changed, as informers do."""
    is_same = seen.keys() == now.keys() and all(seen[key] is one for key, one in now.items())
    return seen if is_same else dict(now)


class Cluster:
    """A cluster in memory: the ports View, Pods, Claims, Workloads, Queues and Reports over successive cycles."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._rest = snapshot
        self._pods = dict(snapshot.pods)
        self._claims = dict(snapshot.claims)
        self._jobs = dict(snapshot.jobs)
        self._gangs = dict(snapshot.gangs)
        self._version = 10**6
        self._last = snapshot
        self.gangs: dict[str, GangReport] = {}
        self.queues: dict[QueueName, QueueReport] = {}
        self.condition_reports: list[ConditionReport] = []
        self.notices: list[Notice] = []

    # View

    @property
    def synced(self) -> bool:
        return True

    def snapshot(self) -> Snapshot:
        seen = self._last
        self._last = replace(
            self._rest,
            pods=_as_seen(seen.pods, self._pods),
            claims=_as_seen(seen.claims, self._claims),
            jobs=_as_seen(seen.jobs, self._jobs),
            gangs=_as_seen(seen.gangs, self._gangs),
        )
        return self._last

    def add_nodes(self, nodes: Iterable[Node], slices: Iterable[Slice]) -> None:
        """Have nodes come, with what their drivers publish."""
        rest = self._rest
        self._rest = replace(
            rest,
            nodes={**rest.nodes, **{node.name: node for node in nodes}},
            slices={**rest.slices, **{slice_.meta.key: slice_ for slice_ in slices}},
        )

    # Pods

    async def open_gate(self, pod: Pod, node: NodeName | None) -> None:
        await self.open_gate_towards(pod, {} if node is None else {names.HOSTNAME: node})

    async def open_gate_towards(self, pod: Pod, labels: Labels, annotations: Labels = NO_ANNOTATIONS) -> None:
        stored = self._pods.get(pod.meta.uid)
        if stored is None:
            raise GoneError(f"pod {pod.meta.key} is gone")
        if stored.meta.annotations.get(names.PLACEMENT) != pod.meta.annotations.get(names.PLACEMENT):
            raise ConflictError(f"pod {pod.meta.key} was taken back since it was seen")
        gates = tuple(gate for gate in stored.gates if gate != names.GATE)
        meta, selector = stored.meta, {**stored.node_selector, **labels}
        meta = replace(meta, annotations={**meta.annotations, **annotations}) if annotations else meta
        self._pods[pod.meta.uid] = replace(stored, meta=meta, gates=gates, node_selector=selector)

    async def close_gate(self, pod: Pod) -> bool:
        stored = self._pods.get(pod.meta.uid)
        if stored is None:
            return True
        if stored.gated:
            self._pods[pod.meta.uid] = replace(stored, meta=self._marked(stored.meta, "withdrawn"))
        return stored.gated

    async def evict(self, pod: Pod, reason: str) -> None:  # noqa: ARG002 - a port
        removed = self._pods.pop(pod.meta.uid, None)
        if removed is not None:
            self._release_claims([removed])

    # Claims

    async def allocate(self, claim: Claim, allocation: Json) -> Claim:
        stored, decoded = self._claims.get(claim.meta.key), claims.decode_allocation(allocation)
        if stored is None or stored.meta.uid != claim.meta.uid:
            raise GoneError(f"claim {claim.meta.key} is gone")
        if stored.allocation is not None and stored.allocation.devices == decoded.devices:
            return stored
        if stored.allocation is not None or stored.meta.resource_version != claim.meta.resource_version:
            raise ConflictError(f"claim {claim.meta.key} has changed since it was seen")
        return self._put_claim(replace(stored, allocation=decoded), "allocated")

    async def deallocate(self, claim: Claim) -> Claim | None:
        stored = self._claims.get(claim.meta.key)
        if stored is None or stored.meta.uid != claim.meta.uid:
            return None
        return stored if stored.reserved_for else self._put_claim(replace(stored, allocation=None), "withdrawn")

    def _put_claim(self, claim: Claim, what: str) -> Claim:
        written = replace(claim, meta=self._marked(claim.meta, what))
        self._claims[claim.meta.key] = written
        return written

    def _marked(self, meta: Meta, what: str) -> Meta:
        """Return the metadata of the next version, with a note of Muster's action."""
        self._version += 1
        annotations = {**meta.annotations, names.PLACEMENT: f"{what} {self._version}"}
        return replace(meta, resource_version=str(self._version), annotations=annotations)

    # Workloads

    async def suspend(self, job: Job) -> None:
        self._remove_pods(job)
        marked = replace(job.meta, annotations={**job.meta.annotations, names.REQUEUED: "true"})
        self._jobs[job.meta.uid] = replace(job, suspended=True, meta=marked)

    async def resume(self, job: Job) -> None:
        annotations = {key: value for key, value in job.meta.annotations.items() if key != names.REQUEUED}
        self._jobs[job.meta.uid] = replace(job, suspended=False, meta=replace(job.meta, annotations=annotations))

    async def hold(self, workload: Suspendable) -> None:
        self._remove_pods(self._held(workload, Held.WAITING, suspended=True))

    async def start(self, workload: Suspendable) -> None:
        self._held(workload, Held.STARTED, suspended=False)

    def _held(self, workload: Suspendable, mark: Held, *, suspended: bool) -> Job:
        job = self._jobs.get(workload.meta.uid)
        if job is None:
            raise GoneError(f"{workload.plural} {workload.meta.key} is gone")
        job_meta = replace(job.meta, annotations={**job.meta.annotations, names.HELD: mark})
        updated = self._jobs[job.meta.uid] = replace(job, suspended=suspended, meta=job_meta)
        return updated

    def _remove_pods(self, job: Job) -> None:
        removed = [pod for pod in self._pods.values() if _is_made_by(pod, job) and not pod.finished]
        self._pods = {uid: pod for uid, pod in self._pods.items() if pod not in removed}
        self._release_claims(removed)

    # Queues

    async def keep(self, queue: Meta) -> None:
        stored = self._rest.queues.get(QueueName(queue.name))
        if stored is not None and stored.meta.deleted is None and names.IN_USE not in stored.meta.finalizers:
            self._put_queue(stored, finalizers=(*stored.meta.finalizers, names.IN_USE))

    async def release(self, queue: Meta) -> None:
        stored = self._rest.queues.get(QueueName(queue.name))
        if stored is not None:
            self._put_queue(stored, finalizers=tuple(name for name in stored.meta.finalizers if name != names.IN_USE))

    def delete_queue(self, name: QueueName, at: datetime) -> None:
        """Delete a queue as the API server does: it disappears when it has no finalizers left."""
        self._put_queue(self._rest.queues[name], deleted=at)

    def _put_queue(self, queue: Queue, **changes: Any) -> None:
        changed = replace(queue, meta=replace(queue.meta, **changes))
        queues = {**self._rest.queues, queue.name: changed}
        if changed.meta.deleted is not None and not changed.meta.finalizers:
            del queues[queue.name]
        self._rest = replace(self._rest, queues=queues)

    # Reports

    async def gang(self, report: GangReport) -> None:
        if report.over:
            self.gangs.pop(report.key, None)
            self._gangs.pop(report.key, None)
            return
        previous = self.gangs.get(report.key)
        if (previous is report or previous == report) and report.key in self._gangs:
            return
        self.gangs[report.key] = report
        record = self._gangs.get(report.key)
        kept = {at: getattr(record, at) for at in ("min_count", "placement", "topology", "request")} if record else {}
        self._gangs[report.key] = Gang(
            meta=record.meta if record else _meta_of(report),
            queue=report.queue,
            size=record.size if record is not None and record.written_by_user else report.size,
            idle=report.idle,
            memory=report.memory,
            **kept,
            priority=report.priority,
            workload=report.workload,
            phase=report.phase,
            evictions=report.evictions,
            evicted=report.evicted,
            answered=report.answered,
            queued_since=report.queued_since,
            next_try=report.next_try,
            refused=report.refused,
            recorded_hold=RecordedHold(str(report.hold.reason), report.queued_since or EPOCH) if report.hold else None,
        )

    async def queue(self, report: QueueReport) -> None:
        self.queues[report.name] = report

    async def conditions(self, report: ConditionReport) -> None:
        self.condition_reports.append(report)

    async def notify(self, notice: Notice) -> None:
        self.notices.append(notice)

    async def flush(self) -> None:
        """Do nothing, since writes are immediate."""

    # Other controllers.

    def schedule(self, book: Book) -> tuple[Pod, ...]:
        """Bind and start every ungated pod, on the node and with the devices of the ledger.

        Pods whose nodes are to come wait.
        """
        ready = [(pod, book.placements[book.owners[uid]]) for uid, pod in self._pods.items() if uid in book.owners]
        ready = [(pod, placement) for pod, placement in ready if not (pod.gates or pod.node or pod.finished)]
        devices = transitions.index_devices(self._rest) if ready else {}
        ready = [one for one in ready if names.shape_of(one[1].seats[one[0].meta.uid].node) is None]
        for pod, placement in ready:
            node = placement.seats[pod.meta.uid].node or UNKNOWN_NODE
            self._allocate(pod, node, placement.holdings, devices)
            self._pods[pod.meta.uid] = replace(pod, node=node, phase="Running", ready=True)
        return tuple(self._pods[pod.meta.uid] for pod, _ in ready)

    def _allocate(
        self, pod: Pod, node: NodeName, holdings: Mapping[Uid, Holding], devices: Mapping[DeviceId, Device]
    ) -> None:
        keys = [f"{pod.meta.namespace}/{pod.claim_name(claim)}" for claim in pod.claims]
        for key in keys:
            claim = self._claims.get(key)
            if claim is None:
                continue
            allocation = claim.allocation
            # For a gang placed by counting only, the devices are unknown here.
            if allocation is None and claim.meta.uid in holdings and holdings[claim.meta.uid].devices:
                allocation = fake_allocation.allocation(claim, holdings[claim.meta.uid], node, devices)
            consumers = (*claim.reserved_for, pod.meta.uid)
            self._claims[key] = replace(claim, allocation=allocation, reserved_for=consumers)
        offered = extended_resources.resources_of(pod.containers, self._rest.classes)
        plugged = extended_resources.plugged(self._rest.nodes.get(node), offered)
        extended_claim = extended_resources.claim_of(pod, self._rest.classes, plugged)
        if (
            extended_claim is not None
            and extended_claim.meta.uid in holdings
            and holdings[extended_claim.meta.uid].devices
        ):
            allocation = fake_allocation.allocation(extended_claim, holdings[extended_claim.meta.uid], node, devices)
            claim = replace(extended_claim, allocation=allocation, reserved_for=(pod.meta.uid,))
            self._claims[extended_claim.meta.key] = replace(claim, meta=_made_for(pod, extended_claim.meta))

    def finish(self, pods: Collection[Pod]) -> None:
        """Let pods and their Jobs succeed; claims made for the pods are deleted, others lose them as consumers."""
        ended = [self._pods[pod.meta.uid] for pod in pods if pod.meta.uid in self._pods]
        for pod in ended:
            self._pods[pod.meta.uid] = replace(pod, phase="Succeeded", ready=False)
            owner = pod.meta.controller
            job = self._jobs.get(owner.uid) if owner else None
            if job is not None:
                self._jobs[job.meta.uid] = replace(job, finished=True, succeeded=job.succeeded + 1)
        self._release_claims(ended)

    def _release_claims(self, pods: Collection[Pod]) -> None:
        removed = {pod.meta.uid for pod in pods}
        for key, claim in list(self._claims.items()):
            if any(owner.uid in removed for owner in claim.meta.owners):
                del self._claims[key]
            elif removed & set(claim.reserved_for):
                self._claims[key] = _without_consumers(claim, removed)


def _made_for(pod: Pod, claim_meta: Meta) -> Meta:
    """Return the metadata of the claim that kube-scheduler makes for a pod's extended resources."""
    owner = Owner(api_version="v1", kind="Pod", name=pod.meta.name, uid=pod.meta.uid, controller=True)
    return replace(claim_meta, uid=uid_of("ResourceClaim", claim_meta.key), owners=(owner,))


def _is_made_by(pod: Pod, job: Job) -> bool:
    return pod.meta.controller is not None and pod.meta.controller.uid == job.meta.uid


def _without_consumers(claim: Claim, removed: Collection[Uid]) -> Claim:
    remaining = tuple(uid for uid in claim.reserved_for if uid not in removed)
    return replace(claim, reserved_for=remaining, allocation=claim.allocation if remaining else None)


def _meta_of(report: GangReport) -> Meta:
    return Meta(
        name=report.name,
        namespace=report.namespace,
        uid=uid_of("Gang", report.key),
        labels={names.MANAGED_BY: names.FIELD_MANAGER},
        annotations={names.POSITION_KEY: report.position_key} if report.position_key else {},
    )


Shares = dict[tuple[QueueName, MeterName, datetime, datetime], dict[str, int]]
"""The share that each cluster has taken of shared budgets, by queue, meter, start and end; periods may begin
together."""


class Ledger:
    """A ledger in memory: the port Ledger with the same rules, but without a hash chain.

    shares: if given to the ledgers of several clusters, these share their budgets.
    """

    def __init__(self, book: Book | None = None, *, cluster: str = "", shares: Shares | None = None) -> None:
        self.book = book or Book()
        self.entries: list[Entry] = []
        self.shares: Shares = {} if shares is None else shares
        self._cluster = cluster
        self._posted: dict[str, Posted] = {}
        self._epoch = 0

    async def load(self) -> Book:
        return self.book

    async def sequence(self) -> int:
        return self.book.sequence

    async def since(self, sequence: int, *, most: int) -> list[Entry] | None:
        entries = self.entries[len(self.entries) - (self.book.sequence - sequence) :]
        return entries if 0 <= self.book.sequence - sequence == len(entries) <= most else None

    async def fence(self, epoch: int) -> None:
        self._check(epoch)
        self._epoch = epoch

    async def post_all(
        self, entries: Sequence[Entry], *, epoch: int, shares: Sequence[BudgetShare] = ()
    ) -> list[Posted]:
        self._check(epoch)
        book = self.book
        posted: dict[str, Posted] = {}
        for entry in entries:
            if entry.key not in self._posted:
                if book.at is not None and entry.at < book.at:
                    raise ConflictError(f"entry {entry.key} is older than the latest one of the books")
                book = book.apply(entry)
                posted[entry.key] = Posted(sequence=book.sequence, digest="")
        for share in shares:
            taken_by_cluster = self.shares.get(_budget(share), {})
            own_seconds = taken_by_cluster.get(self._cluster, 0)
            if (
                share.seconds > own_seconds
                and sum(taken_by_cluster.values()) - own_seconds + share.seconds > share.limit
            ):
                raise BudgetTakenError(share)
        self._put(shares)
        self.book = book
        self.entries += [entry for entry in entries if entry.key in posted]
        repeated = {key: replace(known, repeated=True) for key, known in self._posted.items()}
        self._posted |= posted
        return [posted.get(entry.key) or repeated[entry.key] for entry in entries]

    async def spent(self, since: datetime) -> dict[QueueMeter, int]:
        total: dict[QueueMeter, int] = {}
        for part in await self.usage(since):
            key = (part.queue, part.meter)
            total[key] = total.get(key, 0) + part.seconds
        return total

    async def usage(self, since: datetime) -> list[UsageInterval]:
        start = accruals.floor_to_second(since)
        accrued_before: Mapping[QueueMeter, int] | None = None
        """The usage in the first interval that accrued before `since`."""
        last_mark: datetime | None = None
        found: list[UsageInterval] = []
        for at, entry in enumerate(self.entries):
            if accrued_before is None and entry.at > start:
                accrued_before = Book.replay(self.entries[:at]).accrued(start)
            if entry.kind is Kind.USAGE:
                if accrued_before is not None:
                    found += _intervals(
                        entry, max(start, last_mark or accruals.floor_to_second(self.entries[0].at)), accrued_before
                    )
                    accrued_before = {}
                last_mark = entry.at
        return found

    async def member_usage(self, since: datetime, until: datetime, step: timedelta) -> list[MemberUsageInterval]:  # noqa: ARG002
        """Return the use from entry to entry, whatever the step."""
        found: list[MemberUsageInterval] = []
        start, end = accruals.floor_to_second(since), accruals.floor_to_second(until)
        book = Book()
        # Not strict: a ledger without entries has none that follows either.
        for entry, following in zip(self.entries, [*self.entries[1:], None], strict=False):
            book = book.apply(entry)
            begun = max(start, accruals.floor_to_second(entry.at))
            ended = end if following is None else min(end, accruals.floor_to_second(following.at))
            for placement in book.placements.values() if begun < ended else ():
                for meter, amount in _settled(placement).items():
                    found.append(
                        MemberUsageInterval(
                            queue=placement.queue,
                            namespace=placement.gang.partition("/")[0],
                            user=placement.user,
                            meter=meter,
                            start=begun,
                            end=ended,
                            seconds=amount * accruals.between(begun, ended),
                        )
                    )
        return found

    async def write_shares(self, shares: Sequence[BudgetShare], *, epoch: int, now: datetime) -> list[BudgetShare]:
        self._check(epoch)
        for key in self.shares.keys() - {_budget(share) for share in shares}:
            if key[2] > now:
                self.shares[key].pop(self._cluster, None)
        self._put(shares)
        return [replace(share, seconds=sum(self.shares[_budget(share)].values())) for share in shares]

    def _put(self, shares: Sequence[BudgetShare]) -> None:
        for share in shares:
            self.shares.setdefault(_budget(share), {})[self._cluster] = share.seconds

    def _check(self, epoch: int) -> None:
        if epoch < self._epoch:
            raise DeposedError(f"the ledger is at epoch {self._epoch}, this writer has {epoch}")


def _settled(placement: Placement) -> Counter[MeterName]:
    """Return what a gang is charged for the claims that are settled."""
    charged = Counter[MeterName]()
    for holding in placement.holdings.values():
        charged.update(holding.charge if holding.settled else {})
    return charged


def _budget(share: BudgetShare) -> tuple[QueueName, MeterName, datetime, datetime]:
    return share.queue, share.meter, share.start, share.end


def _intervals(mark: Entry, start: datetime, accrued_before: Mapping[QueueMeter, int]) -> Iterator[UsageInterval]:
    """Yield the usage in a mark, less what accrued before `since`."""
    for posting in mark.postings:
        seconds = posting.amount - accrued_before.get((posting.queue, posting.meter), 0)
        if posting.bucket is Bucket.SPENT and seconds:
            yield UsageInterval(queue=posting.queue, meter=posting.meter, start=start, end=mark.at, seconds=seconds)
