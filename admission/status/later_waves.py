"""Why pods that workloads make later never fit, as far as it is known: which are to be looked at, and the answers.

Controllers of JobSets, MPIJobs and LeaderWorkerSets make some pods only when others run, or have ended
(`Parent.later`). Their gang is only there when its turn comes, maybe after hours; whether it would fit an empty cluster
can be known before.

An answer depends on the workload's later waves, and on everything that planning reads. It is looked for again when the
waves change, and for all workloads when something else does, at most once in `RETRY`. So it may be late, never costly:
once in `PACE` a cycle looks at `MOST` workloads with new questions, and at some of which it is known that they fit.
"""

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Protocol

from admission.api.kubernetes.meta import EPOCH
from admission.api.kubernetes.owners import Parent
from admission.api.kubernetes.pods import Pod
from admission.api.snapshot import Snapshot, changed
from admission.api.values.names import GangUid
from admission.api.values.reasons import Detail
from admission.incremental import are_same
from admission.workloads.kinds import catalog, jobset, registry

RETRY = timedelta(minutes=1)
"""How long answers stand whatever changes, but for their own waves."""

PACE = timedelta(seconds=1)
"""How long until a cycle goes on that has left workloads to be looked at."""

MOST, MOST_KNOWN = 2, 256
"""How many workloads a cycle looks at: with questions that have no answer yet, and in all."""

MOST_SAID = 16
"""The most sentences about a workload, as many as the status of a Gang has."""

MOST_FITTING = 10_000
"""How many questions are remembered of which it is known that all fits."""

Sentences = tuple[str, ...]


def sentence(roles: Sequence[str], running_roles: Sequence[str], why: str) -> str:
    """Return what is said of pods of some roles that never fit, beside those that run when they are made."""
    named = " and ".join(role.removesuffix(jobset.FOLLOWERS) for role in roles)
    who = f"followers of {named}" if any(role.endswith(jobset.FOLLOWERS) for role in roles) else named
    return (
        f"may start, but its {who} never fit{' beside ' if running_roles else ''}{' and '.join(running_roles)}: {why}"
    )


class Refused(Protocol):
    """A gang that is not let in, or its hold."""

    @property
    def message(self) -> str: ...

    @property
    def details(self) -> Mapping[str, Detail]: ...


def reason(refused: Refused, snapshot: Snapshot, running_roles: Collection[str]) -> str:
    """Return why a wave never fits; where a pod beside which it runs has no place, that the wave leaves none to it.

    A search begins with the pods that are hardest to place, whichever are made first. snapshot: with all of these.
    """
    pod = next((one for one in snapshot.pods.values() if one.meta.name == refused.details.get("pod")), None)
    if pod is None or _role(pod, snapshot.parents) not in running_roles:
        return refused.message
    return f"they leave no place to {pod.meta.name}, which runs by then: {refused.message}"


def _role(pod: Pod, parents: Mapping[str, Mapping[str, Parent]]) -> str:
    """Return the role of a pod in the workload that owns it; "" if it has none."""
    for owner in pod.meta.owners:
        kind = catalog.OWNERS.get(registry.kind_of(owner))
        parent = parents.get(kind.key, NO_PARENTS).get(owner.uid) if kind is not None else None
        if kind is not None and parent is not None:
            return kind.exclusive.role(pod) if kind.exclusive is not None else kind.join(pod, (), parent).role
    return ""


@dataclass(slots=True)
class LaterWaves:
    """The workloads with later waves, and why these never fit. One per leader.

    Rule: `begin` follows the workloads and what answers depend on; `answer` alone takes a workload off the list of
    those that are due. What answers depend on is compared by identity, but not in every cycle, so this is no value over
    `admission.incremental`.
    """

    _sources: Mapping[str, Mapping[str, Parent]] = field(default_factory=dict)
    """The workloads of each kind, as they were at the last `begin`."""
    _known: dict[str, Parent] = field(default_factory=dict)
    """Those with later waves."""
    _due: dict[str, None] = field(default_factory=dict)
    _answers: dict[GangUid, Sentences] = field(default_factory=dict)
    _basis: tuple[object, ...] = ()
    _basis_at: datetime = EPOCH
    _examined_at: datetime = EPOCH
    _fitting: set[Hashable] = field(default_factory=set)
    """The questions of which it is known that all fits."""

    @property
    def answers(self) -> Mapping[GangUid, Sentences]:
        """Return why later waves never fit, by the gang of the first wave of a workload; without those that may fit."""
        return self._answers

    @property
    def has_more(self) -> bool:
        """Return whether workloads are left to be looked at."""
        return bool(self._due)

    def begin(
        self, parents: Mapping[str, Mapping[str, Parent]], basis: tuple[object, ...], now: datetime
    ) -> tuple[Parent, ...]:
        """Follow the workloads, and return those to be looked at now. basis: all else that answers depend on."""
        for kind in {**self._sources, **parents}:
            found = parents.get(kind, NO_PARENTS)
            for uid in changed(self._sources.get(kind, NO_PARENTS), found):
                self._follow(uid, found.get(uid))
        self._sources = parents
        if now - self._basis_at >= RETRY and not are_same(self._basis, basis):
            self._basis, self._basis_at = basis, now
            self._fitting.clear()
            self._due |= dict.fromkeys(self._known)
        if not self._due or now - self._examined_at < PACE:
            return ()
        self._examined_at = now
        return tuple(self._known[uid] for uid in islice(self._due, MOST_KNOWN))

    def is_fitting(self, question: Hashable) -> bool:
        """Return whether it is known that all pods of a question fit."""
        return question in self._fitting

    def answer(self, parent: Parent, question: Hashable, sentences: Sentences | None) -> None:
        """Keep why later waves of a workload never fit: nothing if they may, None if it could not be found out."""
        uid = parent.meta.uid
        self._due.pop(uid, None)
        self._answers.pop(GangUid(uid), None)
        if sentences:
            self._answers[GangUid(uid)] = sentences
        elif sentences is not None:
            if len(self._fitting) >= MOST_FITTING:
                self._fitting.clear()
            self._fitting.add(question)

    def postpone(self, parent: Parent) -> None:
        """Have a workload looked at after all others."""
        self._due.pop(parent.meta.uid, None)
        self._due[parent.meta.uid] = None

    def _follow(self, uid: str, parent: Parent | None) -> None:
        before = self._known.pop(uid, None)
        if parent is None or not parent.later or parent.meta.deleted is not None:
            self._due.pop(uid, None)
            self._answers.pop(GangUid(uid), None)
            return
        self._known[uid] = parent
        if before is None or before.later != parent.later:
            self._due[uid] = None


NO_PARENTS: Mapping[str, Parent] = {}
