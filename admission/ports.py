"""The ports of the use cases: small Protocols, each with a real adapter and an implementation in memory.

Real: `kube` (View, Fences, Pods, Reports, EntryStore), `ledger` (Ledger, Chain, HeadSink). In memory:
`simulation.in_memory`, for `muster simulate` and tests; `default_ports`, where a caller leaves one out.
"""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Protocol

from admission.accounting.accruals import QueueMeter
from admission.accounting.books import Book
from admission.accounting.device_samples import Quantity, Samples
from admission.api.capacity.provisioning_requests import ProvisioningRequest
from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.jobs import Job, Suspendable
from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.nodes import Node
from admission.api.kubernetes.pods import Pod
from admission.api.muster.gangs import GangReport
from admission.api.muster.ledger_entries import (
    Allocation,
    BudgetShare,
    ChainEnd,
    Entry,
    MeasuredPage,
    MeasuredUsage,
    MemberUsageInterval,
    Posted,
    UsageInterval,
    Waited,
)
from admission.api.muster.status_reports import ConditionReport, Notice, QueueReport
from admission.api.snapshot import Snapshot
from admission.api.values.decoding import Json
from admission.api.values.names import NodeName, QueueName
from admission.dra.compatibility import SchedulerProfile
from admission.heads.signed_head import SignedHead
from admission.scheduling.capacity.capacity_requests import CapacityRequest
from admission.scheduling.placement.protection import Barriers
from admission.workloads.gangs import Group

NO_ANNOTATIONS: Mapping[str, str] = MappingProxyType({})


class View(Protocol):
    """The cluster as it was last seen, in memory."""

    @property
    def synced(self) -> bool:
        """Whether every kind has been listed; nothing is decided before."""
        ...

    def snapshot(self) -> Snapshot:
        """Return what is known now, frozen. Cheap: no I/O."""
        ...


class Scheduler(Protocol):
    """Which kube-scheduler decides in the cluster."""

    @property
    def profile(self) -> SchedulerProfile | None:
        """How it decides; None if its decisions cannot be predicted. May change when the cluster is upgraded."""
        ...


class Fences(Protocol):
    """The fences: DeviceTaintRules that keep kube-scheduler from allocating devices that Muster allocates."""

    def observe(self) -> Barriers:
        """Return the state of the fences as last observed. Cheap: no I/O."""
        ...

    def set_drivers(self, drivers: frozenset[str]) -> None:
        """Request fences for these drivers and no others. Returns at once: no I/O."""
        ...


class Traces(Protocol):
    """The traces of a leader: a span for each cycle, step and write, and which gangs they are for."""

    def cycle(self) -> AbstractContextManager[None]:
        """Return a context in which a cycle runs."""
        ...

    def step(self, name: str) -> AbstractContextManager[None]:
        """Return a context in which a step of the cycle runs."""
        ...

    def begin(self, gang: Group) -> None:
        """Record that a gang is admitted from now until the cycle ends. Does nothing if that is recorded already."""
        ...

    def write(self, name: str, uid: str, key: str) -> AbstractContextManager[None]:
        """Return a context in which a gang's object is written. uid: the gang's or a pod's; key: `namespace/name`."""
        ...


class Pods(Protocol):
    """Changes of pods."""

    async def open_gate(self, pod: Pod, node: NodeName | None) -> None:
        """Remove Muster's gate and pin the pod to a node (None: leave it free), in one write.

        Does nothing if the gate is gone already. Raises GoneError if the pod no longer exists, ForbiddenError,
        FixError if the API server finds the change invalid, RetryError if it may succeed later.
        """
        ...

    async def open_gate_towards(
        self, pod: Pod, labels: Mapping[str, str], annotations: Mapping[str, str] = NO_ANNOTATIONS
    ) -> None:
        """Remove Muster's gate and keep the pod to nodes with these labels, in one write; as `open_gate` otherwise.

        annotations: those that it gets with it.
        """
        ...

    async def close_gate(self, pod: Pod) -> bool:
        """Make sure that the gate stays closed: no `open_gate` of this version of the pod can take effect later.

        Return False if it is open already. Does nothing if the pod is gone.
        """
        ...

    async def evict(self, pod: Pod, reason: str) -> None:
        """Delete the pod, if it is still the same one. Does nothing if it is gone."""
        ...


class Claims(Protocol):
    """Changes of claims whose devices Muster allocates instead of kube-scheduler."""

    async def allocate(self, claim: Claim, allocation: Json) -> Claim:
        """Write the complete status.allocation of a claim without devices. Return the claim as it is afterwards.

        Raises ConflictError if the claim has changed since it was read (unless to these very devices), GoneError if it
        no longer exists, ForbiddenError, FixError if the API server finds the allocation invalid, and RetryError, after
        which the outcome may be unknown.
        """
        ...

    async def deallocate(self, claim: Claim) -> Claim | None:
        """Deallocate a claim unless pods have reserved it, so that no earlier `allocate` can take effect later.

        Return the claim as it is afterwards, still allocated if it is reserved; None if it no longer exists.
        """
        ...


class Workloads(Protocol):
    """Changes of the workloads that create pods: Jobs and others that can be suspended."""

    async def suspend(self, job: Job) -> None:
        """Suspend a Job, which deletes its pods without counting them as failures; mark it to be resumed afterwards."""
        ...

    async def resume(self, job: Job) -> None:
        """Resume a Job that `suspend` suspended. Does nothing if it is gone or was resumed."""
        ...

    async def hold(self, workload: Suspendable) -> None:
        """Suspend a whole workload and mark it as held: it creates no pods, and those that it has are deleted.

        Does nothing if it is suspended and marked already. Raises GoneError if it is gone, FixError, RetryError.
        """
        ...

    async def start(self, workload: Suspendable) -> None:
        """Resume a workload that `hold` suspended, and mark it as started, in one write. Raises as `hold`."""
        ...


class CapacityRequests(Protocol):
    """The ProvisioningRequests by which Cluster Autoscaler is asked for nodes."""

    async def create(self, request: CapacityRequest) -> None:
        """Create a ProvisioningRequest with its PodTemplates. Does nothing if it exists.

        Raises GoneError if the kind is not served or a pod is gone, FixError if it is refused, and RetryError.
        """
        ...

    async def delete(self, request: ProvisioningRequest) -> None:
        """Delete a ProvisioningRequest and its PodTemplates; raises as `create`. Does nothing if they are gone."""
        ...

    async def delete_unused(self, kept: Collection[str]) -> Sequence[str]:
        """Delete the PodTemplates that Muster made for other requests than these; return what was deleted.

        kept: `namespace/name` of requests that are there or still to be made. Raises as `create`.
        """
        ...


class Nodes(Protocol):
    """The annotations of nodes that keep autoscalers from taking them away."""

    async def keep(self, node: Node) -> None:
        """Put them on a node, but for those that others have put there. Raises GoneError, FixError, RetryError."""
        ...

    async def release(self, node: Node) -> None:
        """Remove those that Muster has put on a node; raises as `keep`."""
        ...


class Templates(Protocol):
    """The ResourceClaimTemplates that Muster writes for ClaimPolicies."""

    def troubles(self) -> Mapping[str, tuple[str, ...]]:
        """Return, by the name of the policy, which of its templates differ from what it says, and why."""
        ...


class Queues(Protocol):
    """The finalizer `muster.dev/in-use`, which keeps a deleted Queue until its gangs have ended."""

    async def keep(self, queue: Meta) -> None:
        """Add the finalizer to a Queue. Does nothing if it is there, or if the queue is being deleted or gone.

        Raises RetryError if it may succeed later, FixError (such as ForbiddenError) if it will not.
        """
        ...

    async def release(self, queue: Meta) -> None:
        """Remove the finalizer from a Queue that is being deleted; raises as `keep`. Does nothing if it is gone."""
        ...


class Reports(Protocol):
    """What people see of decisions: the status of Muster's objects, and Events."""

    async def gang(self, report: GangReport) -> None:
        """Create or update a Gang object and its status."""
        ...

    async def queue(self, report: QueueReport) -> None:
        """Update a Queue's status."""
        ...

    async def conditions(self, report: ConditionReport) -> None:
        """Update the conditions of a Meter or ClaimPolicy."""
        ...

    async def notify(self, notice: Notice) -> None:
        """Emit an Event. Repetitions may be dropped."""
        ...

    async def flush(self) -> None:
        """Return once everything that was handed in is written."""
        ...


class Ledger(Protocol):
    """The books. Every write carries the leader's epoch."""

    async def load(self) -> Book:
        """Return the book: the open placements, and every balance."""
        ...

    async def sequence(self) -> int:
        """Return the number of the latest entry of any writer; 0 if there is none. Raises LedgerUnavailableError."""
        ...

    async def since(self, sequence: int, *, most: int) -> Sequence[Entry] | None:
        """Return the entries after a number, in order, by which the book of that number becomes the current one.

        None if the book has to be loaded again: there are more than `most` entries, or they do not explain every change
        since, as after a restore from a backup. Raises LedgerUnavailableError.
        """
        ...

    async def fence(self, epoch: int) -> None:
        """Refuse all writers of an earlier epoch from now on. Raises DeposedError if a later one has written."""
        ...

    async def post_all(
        self, entries: Sequence[Entry], *, epoch: int, shares: Sequence[BudgetShare] = ()
    ) -> Sequence[Posted]:
        """Post entries in order, all or none, each once, together with this cluster's use of shared budgets.

        Raises DeposedError, LedgerUnavailableError if the outcome is unknown, and ConflictError if an entry was made
        for another book than the ledger's (or is older than its latest entry): load the book again. Raises
        BudgetTakenError if the use of all clusters together would exceed a limit; then nothing is written.
        """
        ...

    async def spent(self, since: datetime) -> Mapping[QueueMeter, int]:
        """Return the meter-seconds used from `since` (cut to the second) up to the latest mark, by queue and meter.

        Exact even if `since` lies between two marks. Zeros are left out. Raises LedgerUnavailableError.
        """
        ...

    async def usage(self, since: datetime) -> Sequence[UsageInterval]:
        """Return the same, interval by interval between marks, oldest first. Raises LedgerUnavailableError."""
        ...

    async def member_usage(self, since: datetime, until: datetime, step: timedelta) -> Sequence[MemberUsageInterval]:
        """Return the use of a time by namespace and creator, step by step, oldest first, as far as it is not closed.

        Raises LedgerUnavailableError.
        """
        ...

    async def write_shares(self, shares: Sequence[BudgetShare], *, epoch: int, now: datetime) -> Sequence[BudgetShare]:
        """Write this cluster's use of shared budgets, even if that is over the limit.

        A share of a period that begins after `now` becomes zero unless it is among `shares`. Returns the same shares in
        their order, with the sum over all clusters as `seconds`. Raises DeposedError and LedgerUnavailableError.
        """
        ...


class WaitingLog(Protocol):
    """How long gangs have waited in each queue, by hour, and by day and what they ask for, kept beside the books."""

    async def waiting(self, start: datetime, end: datetime) -> Waited:
        """Return the hours and days that begin in a time. Raises LedgerUnavailableError."""
        ...

    async def write_waiting(self, waited: Waited, *, epoch: int, keep_from: datetime) -> None:
        """Replace all that is known of these hours and days, and remove those before `keep_from`.

        Raises DeposedError and LedgerUnavailableError.
        """
        ...


class MeasuredLog(Protocol):
    """What allocated devices did, kept beside the books."""

    async def measured(self) -> MeasuredPage | None:
        """Return the page of allocations that was measured last; None if none was. Raises LedgerUnavailableError."""
        ...

    async def allocations(self, start: datetime, end: datetime) -> Sequence[Allocation]:
        """Return the allocations of devices in a time of whole seconds, always in one order.

        Raises LedgerUnavailableError.
        """
        ...

    def recorded(self, start: datetime, end: datetime, queues: Collection[QueueName]) -> AsyncIterator[MeasuredUsage]:
        """Yield the rows of queues in times within a time, oldest first. Raises LedgerUnavailableError."""
        ...

    async def write_measured(self, entry: Entry, rows: Sequence[MeasuredUsage], *, epoch: int) -> Sequence[Posted]:
        """Record a measure entry with its rows, together or not at all; if its key is stored, nothing changes.

        Raises DeposedError and LedgerUnavailableError.
        """
        ...


class DeviceMeter(Protocol):
    """Measures what devices did."""

    async def samples(
        self, quantity: Quantity, devices: Mapping[str, Collection[str]], start: datetime, end: datetime
    ) -> Mapping[tuple[str, str], Samples]:
        """Return the samples of a time, by driver and UUID. devices: the UUIDs to ask for, by driver.

        A device of which nothing is known is left out. Raises RetryError, and FixError for what somebody has to mend.
        """
        ...


class Chain(Protocol):
    """The ledger's chain of hashes, which a leader checks before it signs its end. Raises LedgerUnavailableError."""

    async def end(self) -> ChainEnd:
        """Return the end of the chain as it is stored."""
        ...

    async def digests(self, sequences: Collection[int]) -> Mapping[int, str]:
        """Return the digests with these numbers; those that do not exist or were archived are left out."""
        ...

    async def entries(self, first: int, last: int) -> Sequence[tuple[int, Entry]]:
        """Return the entries from one number to another, inclusive, with their numbers."""
        ...

    async def first_of(self, epoch: int, *, after: int) -> int | None:
        """Return the number of the first entry after `after` with this epoch or a later one; None if there is none."""
        ...


class EntryStore(Protocol):
    """A few named texts in one object of the cluster, which several processes share."""

    async def read(self) -> tuple[Mapping[str, bytes], str] | None:
        """Return the texts and their version; None if the object does not exist."""
        ...

    async def write(self, entries: Mapping[str, bytes], version: str | None) -> None:
        """Create the object, or replace its texts. Raises ConflictError if its version is not `version` any more."""
        ...


class HeadSink(Protocol):
    """A place outside of the database where signed heads are published."""

    async def publish(self, heads: Sequence[SignedHead]) -> None:
        """Publish heads, which may have been published before, in their order. Raises MusterError."""
        ...
