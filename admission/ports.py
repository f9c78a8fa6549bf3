"""What the use cases need from the outside: small Protocols, each with a real adapter and a twin in memory.

Real: `kube` (View, Fences, Pods, Reports, EntryStore), `ledger` (Ledger, Chain, HeadSink). In memory:
`simulation.in_memory`, for `muster simulate` and tests.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from admission.accounting.accruals import QueueMeter
from admission.accounting.books import Book
from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.jobs import Job, Suspendable
from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.pods import Pod
from admission.api.muster.gangs import GangReport
from admission.api.muster.ledger_entries import BudgetShare, ChainEnd, Entry, MemberUsageInterval, Posted, UsageInterval
from admission.api.muster.status_reports import ConditionReport, Notice, QueueReport
from admission.api.snapshot import Snapshot
from admission.api.values.decoding import Json
from admission.api.values.names import NodeName
from admission.dra import compatibility
from admission.dra.compatibility import Release, SchedulerProfile
from admission.heads.signed_head import SignedHead
from admission.scheduling.placement.protection import Barriers
from admission.workloads.gangs import Group


class View(Protocol):
    """The cluster as it was last seen, in memory."""

    @property
    def synced(self) -> bool:
        """Whether every kind has been listed; nothing is decided before."""
        ...

    def snapshot(self) -> Snapshot:
        """Freeze what is known now. Cheap: no I/O."""
        ...


class Scheduler(Protocol):
    """Which kube-scheduler decides in the cluster."""

    @property
    def profile(self) -> SchedulerProfile | None:
        """How it decides; None for one that nothing is predicted for. May change when the cluster is upgraded."""
        ...


class Fences(Protocol):
    """What keeps kube-scheduler off the devices that are Muster's to give."""

    def observe(self) -> Barriers:
        """Return what stands now. Cheap: no I/O."""
        ...

    def set_drivers(self, drivers: frozenset[str]) -> None:
        """Have the rules of these drivers' fences stand from now on, and no others. Returns at once: no I/O."""
        ...


class Traces(Protocol):
    """Is told how long what a leader does takes, and for which gangs it is done."""

    def cycle(self) -> AbstractContextManager[None]:
        """Tell that the block is a cycle."""
        ...

    def step(self, name: str) -> AbstractContextManager[None]:
        """Tell that the block is a step of the cycle."""
        ...

    def begin(self, gang: Group) -> None:
        """Tell that a gang is admitted from now on, until the cycle ends. Harmless when it was told already."""
        ...

    def write(self, name: str, uid: str, key: str) -> AbstractContextManager[None]:
        """Tell that the block writes something for a gang. uid: the gang's or a pod's; key: `namespace/name`."""
        ...


class Pods(Protocol):
    """Changes of pods."""

    async def open_gate(self, pod: Pod, node: NodeName | None) -> None:
        """Remove Muster's gate and pin the pod to a node (None: leave it free), in one write.

        Harmless when the gate is gone already. Raises GoneError when the pod is no longer there, ForbiddenError,
        FixError when the API server finds the change invalid, RetryError when it may succeed later.
        """
        ...

    async def close_gate(self, pod: Pod) -> bool:
        """Make sure that the gate stays shut: no `open_gate` of this version of the pod can have an effect later.

        Return False when it is open already. Harmless when the pod is gone.
        """
        ...

    async def evict(self, pod: Pod, reason: str) -> None:
        """Delete the pod, provided it is still the same one. Harmless when it is gone."""
        ...


class Claims(Protocol):
    """Changes of claims, by whoever picks their devices instead of kube-scheduler."""

    async def allocate(self, claim: Claim, allocation: Json) -> Claim:
        """Give an unallocated claim its devices: status.allocation, complete. Return the claim as it is then.

        Raises ConflictError when the claim is not as it was seen any more (unless it has these very devices), GoneError
        when it is no longer there, ForbiddenError, FixError when the API server finds the allocation invalid, and
        RetryError, when the outcome may not be known.
        """
        ...

    async def deallocate(self, claim: Claim) -> Claim | None:
        """Take its devices back, unless pods have reserved it, so that no earlier `allocate` can have an effect later.

        Return the claim as it is then, allocated still where it is reserved; None when it is gone.
        """
        ...


class Workloads(Protocol):
    """What makes pods, where it has to be told that they are taken back."""

    async def suspend(self, job: Job) -> None:
        """Have a Job delete its pods without counting them as failures, marked so that it is resumed afterwards."""
        ...

    async def resume(self, job: Job) -> None:
        """Let a Job that was suspended so make its pods again. Harmless when it is gone or was resumed."""
        ...

    async def hold(self, workload: Suspendable) -> None:
        """Suspend a workload as a whole and mark it as held, so that it makes no pods, and its pods end.

        Harmless when it is so already. Raises GoneError when it is no longer there, FixError, RetryError.
        """
        ...

    async def start(self, workload: Suspendable) -> None:
        """Resume a workload that was held so, and mark it as started, in one write. Raises as `hold`."""
        ...


class Templates(Protocol):
    """The ResourceClaimTemplates that ClaimPolicies provide, as far as they are kept."""

    def troubles(self) -> Mapping[str, tuple[str, ...]]:
        """Return which templates are not as the policies want them, and why, by the name of the policy."""
        ...


class Queues(Protocol):
    """The finalizer `muster.dev/in-use`, which keeps a Queue that is deleted until its gangs have ended."""

    async def keep(self, queue: Meta) -> None:
        """Put the finalizer on a Queue. Harmless when it is there, or when the queue is being deleted or gone.

        Raises RetryError when it may succeed later, FixError (ForbiddenError, say) when it will not.
        """
        ...

    async def release(self, queue: Meta) -> None:
        """Take the finalizer from a Queue that is being deleted; raises as `keep`. Harmless when it is gone."""
        ...


class Reports(Protocol):
    """What people see: status of Muster's objects, and Events."""

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
        """Publish an Event. Repetitions may be dropped."""
        ...

    async def flush(self) -> None:
        """Write what was handed in and waits, before returning."""
        ...


class Ledger(Protocol):
    """The books. Every write carries the leader's epoch."""

    async def load(self) -> Book:
        """Return what is open, and every balance."""
        ...

    async def sequence(self) -> int:
        """Return the number of the latest entry of any writer; 0 if there is none. Raises LedgerUnavailableError."""
        ...

    async def since(self, sequence: int, *, most: int) -> Sequence[Entry] | None:
        """Return the entries after a number, in order, which lead from the book as it was then to what it is now.

        None where the book has to be read again: there are more than `most` of them, or fewer than there were, or
        something was written that no entry says. Raises LedgerUnavailableError.
        """
        ...

    async def fence(self, epoch: int) -> None:
        """Refuse all writers of an earlier epoch from now on. Raises DeposedError when a later one has written."""
        ...

    async def post_all(
        self, entries: Sequence[Entry], *, epoch: int, shares: Sequence[BudgetShare] = ()
    ) -> Sequence[Posted]:
        """Record entries in order, all or none, each once, and with them what this cluster takes of shared budgets.

        Raises DeposedError, LedgerUnavailableError when the outcome is unknown, and ConflictError when an entry was
        made for another book than the ledger's (or is older than its latest): load it again. Raises BudgetTakenError
        when all clusters' shares together would exceed a limit; then nothing is written.
        """
        ...

    async def spent(self, since: datetime) -> Mapping[QueueMeter, int]:
        """Return the meter-seconds used from `since` (cut to the second) up to the latest mark, by queue and meter.

        Exact also where `since` lies between two marks. What is zero is left out. Raises LedgerUnavailableError.
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
        """Write down what this cluster has taken of shared budgets, also where that is over the limit.

        Of periods that begin after `now` it has taken nothing any more where no share is stated.
        Return the same shares in their order, with `seconds` as what all clusters together have taken. Raises
        DeposedError and LedgerUnavailableError.
        """
        ...


class Chain(Protocol):
    """The ledger's chain of hashes, as a leader checks it before it signs its end. Raises LedgerUnavailableError."""

    async def end(self) -> ChainEnd:
        """Return the end of the chain as it is stored."""
        ...

    async def digests(self, sequences: Collection[int]) -> Mapping[int, str]:
        """Return the digests at these places; what is not there, or was archived, is left out."""
        ...

    async def entries(self, first: int, last: int) -> Sequence[tuple[int, Entry]]:
        """Return the entries from a place through another, with their places."""
        ...

    async def first_of(self, epoch: int, *, after: int) -> int | None:
        """Return the first place after one that was written under this epoch or a later one; None if none was."""
        ...


class EntryStore(Protocol):
    """A few named texts in one object of the cluster, which several processes share."""

    async def read(self) -> tuple[Mapping[str, bytes], str] | None:
        """Return the texts and their version; None if the object does not exist."""
        ...

    async def write(self, entries: Mapping[str, bytes], version: str | None) -> None:
        """Create the object, or replace the texts of a version. Raises ConflictError when it has another version."""
        ...


class HeadSink(Protocol):
    """A place outside of the database where signed heads are published."""

    async def publish(self, heads: Sequence[SignedHead]) -> None:
        """Publish heads, which may have been published before, in their order. Raises MusterError."""
        ...


# Twins of the ports that a caller may leave out.


class FrozenView:
    """The port View of a cluster in which nothing happens."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    @property
    def synced(self) -> bool:
        return True

    def snapshot(self) -> Snapshot:
        return self._snapshot


@dataclass(frozen=True, slots=True)
class FixedScheduler:
    """The port Scheduler of a kube-scheduler that stays what it is."""

    profile: SchedulerProfile | None


NEWEST = FixedScheduler(compatibility.profile(Release.V1_37))


class NoFences:
    """The port Fences of a cluster in which nothing is fenced but what a test says."""

    def __init__(self, barriers: Barriers | None = None) -> None:
        self.barriers = barriers or Barriers()
        self.wanted: frozenset[str] = frozenset()

    def observe(self) -> Barriers:
        return self.barriers

    def set_drivers(self, drivers: frozenset[str]) -> None:
        self.wanted = drivers


class NoQueueFinalizer:
    """The port Queues where nobody deletes one."""

    async def keep(self, queue: Meta) -> None:
        """Do nothing."""

    async def release(self, queue: Meta) -> None:
        """Do nothing."""


NO_QUEUE_FINALIZER = NoQueueFinalizer()


class NoTraces:
    """Nobody traces: the port Traces, at no cost."""

    def cycle(self) -> AbstractContextManager[None]:
        return _NO_SPAN

    def step(self, name: str) -> AbstractContextManager[None]:  # noqa: ARG002 - the port's
        return _NO_SPAN

    def begin(self, gang: Group) -> None: ...

    def write(self, name: str, uid: str, key: str) -> AbstractContextManager[None]:  # noqa: ARG002 - the port's
        return _NO_SPAN


_NO_SPAN: AbstractContextManager[None] = nullcontext()
UNTRACED = NoTraces()


class FixedTemplates:
    """The port Templates where all are as they should be, or as was said at the beginning."""

    def __init__(self, troubles: Mapping[str, tuple[str, ...]] | None = None) -> None:
        self._troubles = troubles or {}

    def troubles(self) -> Mapping[str, tuple[str, ...]]:
        return self._troubles
