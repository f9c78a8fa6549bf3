"""Grants that wait for their turn in the order of queues, since their plans are charged more than was known before.

A gang has its place by a lower bound on its charge (`checks.demand.at_least`), in which nothing is that depends on the
devices it gets: prices, capacities, and kinds that its claims leave open; of an elastic gang it is that of the fewest
pods. If its queue, or one above it, comes later with the charge of the plan, the gang is entered again with that
charge, so that who borrows never comes before who does not. Where the charge is certain, this costs a comparison for
each grant. A plan is searched again only if something has been granted or kept since.

An *owner* is a gang that waits so since its queue would borrow for the plan, and that has another plan, with fewer pods
or other devices, for which it would not. No gang that has its turn meanwhile takes the quota of that other plan, so
what is left when the owner has its turn is at least that. Kueue (2026, `getInitialAssignments`), which tries fewer pods
only if all of them do not fit, has it borrow first, and tries again with fewer when others have taken what it would.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic

from admission.api.muster.gangs import Charge
from admission.api.values.names import GangUid, QueueName
from admission.api.values.reasons import Detail
from admission.dra.requests.gang_request import Affordable, Shortfall
from admission.quota.headroom import QueueUsage
from admission.quota.queue_order import Tournament, W
from admission.scheduling.cache.plan_cache import PlanCache
from admission.scheduling.cache.verdict_cache import Verdict, VerdictCache
from admission.scheduling.checks import chain, preference
from admission.scheduling.checks.chain import Grant, Inputs

Decide = Callable[[Inputs], Verdict]


@dataclass(slots=True, eq=False)
class _Owner(Generic[W]):
    """A gang that waits for its turn as a borrower. own: what it is charged without a loan, once that was asked.

    own: None if there is no such plan.
    """

    gang: W
    inputs: Inputs
    own: Charge | None = None
    is_asked: bool = False


@dataclass(frozen=True, slots=True)
class OwnersFirst:
    """The shortfall of a queue that would borrow what others start with of their own."""

    queue: QueueName
    owners: tuple[QueueName, ...]

    @property
    def message(self) -> str:
        return (
            f"queue {self.queue} would have to borrow for it what {', '.join(self.owners)} may use of"
            " their own quota for gangs that are ahead of it"
        )

    @property
    def details(self) -> Mapping[str, Detail]:
        return {"queue": self.queue, "keptBy": [*self.owners]}


@dataclass(slots=True)
class PostponedGrants(Generic[W]):
    """The grants found since the last change in one cycle, and which of them were postponed."""

    _changes: int = 0
    _grants: dict[tuple[GangUid, str], Verdict] = field(default_factory=dict)
    """By gang, and the one ahead of it that blocks it."""
    _postponed: dict[GangUid, int] = field(default_factory=dict)
    """By gang, the number of changes when it was entered again."""
    _owners: dict[GangUid, _Owner[W]] = field(default_factory=dict)
    """The gangs that wait for their turn as borrowers."""

    def decide(self, inputs: Inputs) -> Verdict:
        """Decide about a gang as `chain.decide` does; a grant is found again without a search until the next change."""
        key = inputs.group.uid, inputs.blocked_by
        found = self._grants.get(key)
        if found is None:
            found = chain.decide(inputs)
            if isinstance(found.outcome, Grant):
                self._grants[key] = found
        return found

    def note_change(self) -> None:
        """Record that cluster state or usage have changed, what queues keep included."""
        self._changes += 1
        self._grants.clear()

    def postpone(self, contest: Tournament[W], gang: W, verdict: Verdict, inputs: Inputs) -> bool:
        """Enter a gang again if it is granted and comes later with the charge of its plan; return whether it is so.

        At most once between two changes, so that a cycle ends.
        """
        uid = verdict.group.uid
        self._owners.pop(uid, None)
        if not isinstance(verdict.outcome, Grant) or self._postponed.get(uid) == self._changes:
            return False
        charge = verdict.outcome.plan.charge
        if not contest.comes_later(gang, charge):
            return False
        self._postponed[uid] = self._changes
        if contest.borrows_more(gang, charge):
            self._owners[uid] = _Owner(gang, inputs)
        contest.enter(gang, charge)
        return True

    def beside_owners(self, contest: Tournament[W], verdict: Verdict, inputs: Inputs, decide: Decide) -> Verdict:
        """Return the verdict on a gang that has its turn, with which owners have left what is their own.

        It is the verdict itself if that is no grant, or takes nothing of it.
        """
        if not self._owners or not isinstance(verdict.outcome, Grant):
            return verdict
        spared = self._spared(contest, inputs, decide)
        if not spared:
            return verdict
        queue, free = inputs.queue.name, inputs.queue_usage.copy()
        free.release_all()

        def allows(charge: Charge) -> Shortfall | None:
            owners = _short(free, [(queue, charge), *spared])
            return OwnersFirst(queue, owners) if owners else inputs.allows(charge)

        return verdict if allows(verdict.outcome.plan.charge) is None else decide(with_condition(inputs, allows))

    def _spared(self, contest: Tournament[W], inputs: Inputs, decide: Decide) -> list[tuple[QueueName, Charge]]:
        """Return by queue what owners under the same root are charged within their own quota, as far as it is free."""
        tree, free = inputs.queue_usage.tree, inputs.queue_usage.copy()
        root, found = tree.path(inputs.queue.name)[-1], list[tuple[QueueName, Charge]]()
        free.release_all()
        for owner in self._owners.values():
            queue = owner.inputs.queue.name
            if tree.path(queue)[-1] != root:
                continue
            if not owner.is_asked:
                owner.own, owner.is_asked = _own(contest, owner, inputs, decide), True
            if owner.own is not None and free.fits(queue, owner.own):
                free.charge(queue, owner.own)
                found.append((queue, owner.own))
        return found


def _own(contest: Tournament[W], owner: _Owner[W], now: Inputs, decide: Decide) -> Charge | None:
    """Return what an owner is charged for a plan without a loan; None if there is none. now: inputs as they are."""

    def allows(charge: Charge) -> Shortfall | None:
        borrows = contest.borrows_more(owner.gang, charge)
        return preference.WouldBorrow(owner.inputs.queue.name) if borrows else owner.inputs.allows(charge)

    asked = replace(owner.inputs, cluster=now.cluster, queue_usage=now.queue_usage)
    found = decide(with_condition(asked, allows))
    return found.outcome.plan.charge if isinstance(found.outcome, Grant) else None


def with_condition(inputs: Inputs, allows: Affordable) -> Inputs:
    """Return inputs with another condition on the charge, of which nothing is remembered."""
    workspace = replace(inputs.rules.workspace, plans=PlanCache(), verdicts=VerdictCache())
    return replace(inputs, rules=replace(inputs.rules, workspace=workspace), allows=allows, known=None)


def _short(free: QueueUsage, charges: list[tuple[QueueName, Charge]]) -> tuple[QueueName, ...]:
    """Return the queues, but the first, that may not take their charges one after the other."""
    taken, short = list[tuple[QueueName, Charge]](), list[QueueName]()
    for number, (queue, charge) in enumerate(charges):
        if number and not free.fits(queue, charge):
            short.append(queue)
            continue
        free.charge(queue, charge)
        taken.append((queue, charge))
    for queue, charge in taken:
        free.give_back(queue, charge)
    return tuple(dict.fromkeys(short))
