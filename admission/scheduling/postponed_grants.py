"""Grants that wait for their turn in the order of queues, since their plans are charged more than was known before.

A gang has its place by a lower bound on its charge (`checks.demand.at_least`), in which nothing is that depends on the
devices it gets: prices, capacities, and kinds that its claims leave open. If its queue, or one above it, comes later
with the charge of the plan, the gang is entered again with that charge, so that who borrows never comes before who does
not. Where the charge is certain, this costs a comparison for each grant. A plan is searched again only if something has
been granted or kept since.
"""

from dataclasses import dataclass, field

from admission.api.muster.gangs import Charge
from admission.api.values.names import GangUid
from admission.quota.queue_order import Tournament, W
from admission.scheduling.cache.verdict_cache import Verdict
from admission.scheduling.checks import chain
from admission.scheduling.checks.chain import Grant, Inputs


@dataclass(slots=True)
class PostponedGrants:
    """The grants found since the last change in one cycle, and which of them were postponed."""

    _changes: int = 0
    _grants: dict[tuple[GangUid, str], Verdict] = field(default_factory=dict)
    """By gang, and the one ahead of it that blocks it."""
    _postponed: dict[GangUid, int] = field(default_factory=dict)
    """By gang, the number of changes when it was entered again."""

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

    def postpone(self, contest: Tournament[W], gang: W, uid: GangUid, charge: Charge) -> bool:
        """Enter a gang again if it comes later with this charge; return whether it does.

        At most once between two changes, so that a cycle ends.
        """
        if self._postponed.get(uid) == self._changes or not contest.comes_later(gang, charge):
            return False
        self._postponed[uid] = self._changes
        contest.enter(gang, charge)
        return True
