"""The shortage of a queue that may not take a charge: the first meter that is short, its numbers, and the borrowers."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, assert_never

from admission.api.muster.queues import BorrowPolicy, ByShares, Preemption, Reclaim, WithinQueue
from admission.api.values.names import MeterName, QueueName
from admission.api.values.reasons import Detail

MOST_NAMED = 3
"""The most borrowers or keepers that the message of a shortage names."""


class LoanReclaim(StrEnum):
    """Whether gangs of others are evicted for the gang that is short, by what its queue says and would use."""

    NEVER = "Never"
    """Its queue's `preemption.reclaim` is Never."""
    WOULD_BORROW = "WouldBorrow"
    """With this gang its queue, and those above it up to the lender, would use more than their own quota of a meter."""
    BY_SHARES = "ByShares"
    """From queues with a larger share, if evicting their gangs lets it start."""
    LOWER_PRIORITY = "LowerPriority"
    """From gangs of lower priority, if evicting them lets it start."""
    BORROW_WITHIN_COHORT = "BorrowWithinCohort"
    """The same though its queue would borrow, up to a priority, and of loans alone."""
    ANY = "Any"
    """If evicting gangs of the borrowers lets it start."""

    @classmethod
    def for_queue(cls, preemption: Preemption, *, is_own: bool) -> "LoanReclaim":
        """Return what a queue says of gangs of others. is_own: whether it stays within its own quota with the gang."""
        match preemption.reclaim:
            case Reclaim.NEVER:
                return cls.NEVER
            case _ if not is_own and preemption.by_shares is not ByShares.NEVER:
                return cls.BY_SHARES
            case _ if not is_own and preemption.borrow_within_cohort.policy is BorrowPolicy.NEVER:
                return cls.WOULD_BORROW
            case _ if not is_own:
                return cls.BORROW_WITHIN_COHORT
            case Reclaim.LOWER_PRIORITY:
                return cls.LOWER_PRIORITY
            case Reclaim.ANY:
                return cls.ANY


@dataclass(frozen=True, slots=True, kw_only=True)
class Loan:
    """An amount that a queue has lent to other queues under its parent, while it or a queue under it is short.

    quota: the lender's, with those under it. borrowers: the largest. others: how many more borrowers there are.
    is_rounded: whether the amount is a part, rounded up, of loans that others bear as well.
    """

    lender: QueueName
    amount: int
    quota: int
    borrowers: tuple[QueueName, ...]
    others: int = 0
    is_rounded: bool = False

    @property
    def message(self) -> str:
        """Return what is lent to which queues."""
        names = ", ".join(self.borrowers) + (f" and {self.others} more" if self.others else "")
        most = "up to " if self.is_rounded else ""
        return f"{most}{self.amount} of the {self.quota} of queue {self.lender} are lent to {names}"


class BorrowingLimit(NamedTuple):
    """The borrowing limit of a queue, or of one above it, without which it could take more now."""

    queue: QueueName
    amount: int

    @property
    def message(self) -> str:
        """Return which queue borrows no more than what, and by which field."""
        return f"queue {self.queue} borrows no more than {self.amount} (its borrowingLimit)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """Whether gangs of others are evicted for the gang of a queue that is short.

    borrowed: where its queue would borrow, the short meter of which, if it is not the one of the shortage. lower_only:
    whether its queue's `preemption.reclaim` spares gangs that are not of lower priority.
    """

    queue: QueueName
    reclaim: LoanReclaim
    borrowed: MeterName | None = None
    lower_only: bool = False

    @property
    def message(self) -> str:
        """Return who is evicted, who is not, and by which setting of which queue."""
        match self.reclaim:
            case LoanReclaim.NEVER:
                return (
                    "nobody of other queues is evicted for the gang, as preemption.reclaim of queue"
                    f" {self.queue} is Never"
                )
            case LoanReclaim.WOULD_BORROW:
                return (
                    f"nobody of other queues is evicted for the gang, as queue {self.queue} would {self._borrow}, too,"
                    " and its preemption has neither borrowWithinCohort nor byShares"
                )
            case LoanReclaim.BY_SHARES:
                lower = "of lower priority " if self.lower_only else ""
                return (
                    f"gangs {lower}of queues with a larger share are evicted for the gang where it could then start,"
                    f" and no others, as queue {self.queue} would {self._borrow}, too (its preemption.byShares)"
                )
            case LoanReclaim.BORROW_WITHIN_COHORT:
                return (
                    "gangs of lower priority, up to maxPriorityThreshold, whose queues keep their own quota are evicted"
                    " for the gang where it could then start, and no others, as queue"
                    f" {self.queue} would {self._borrow}, too (its preemption.borrowWithinCohort)"
                )
            case LoanReclaim.LOWER_PRIORITY:
                return (
                    "of the gangs that borrow those of lower priority are evicted for the gang where it could then"
                    f" start, and no others, as preemption.reclaim of queue {self.queue} is LowerPriority"
                )
            case LoanReclaim.ANY:
                return (
                    "gangs that borrow are evicted for the gang where it could then start"
                    f" (preemption.reclaim of queue {self.queue} is Any)"
                )
            case _:
                assert_never(self.reclaim)

    @property
    def _borrow(self) -> str:
        return f"borrow {self.borrowed}" if self.borrowed else "borrow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """A charge that does not fit, by the first meter (in order of names) that it exceeds.

    left: what the queue may still take now. used: by the queue itself. borrowed: usage under it beyond its subtree's
    quota. potential: what it could take if nothing were used. loan: the nearest loan that makes it short, if any; else
    limit: the borrowing limit that does.
    eviction: None if the queue could never take it, or if queues keep it. within_queue: which of its own gangs the
    queue evicts. meter: None if the queue is inactive or unknown, so that it may take nothing. is_named: whether its
    quotas name it. is_least: whether a plan may be charged more of the meter than is needed. has_started: whether the
    gang has, so that nobody is evicted for further pods of it.
    """

    queue: QueueName
    meter: MeterName | None
    needed: int = 0
    left: int = 0
    nominal: int = 0
    used: int = 0
    borrowed: int = 0
    potential: int = 0
    loan: Loan | None = None
    limit: BorrowingLimit | None = None
    eviction: Eviction | None = None
    within_queue: WithinQueue = WithinQueue.NEVER
    keepers: tuple[QueueName, ...] = ()
    is_named: bool = True
    is_least: bool = False
    has_started: bool = False

    @property
    def ever(self) -> bool:
        """Whether the charge would fit if nothing were used."""
        return self.meter is not None and self.needed <= self.potential

    @property
    def message(self) -> str:
        """Return in one sentence what is short, who has taken it, and whether gangs of these are evicted."""
        if self.meter is None:
            return f"queue {self.queue} is not active"
        if not (self.is_named or self.potential or self.used):
            return (
                f"queue {self.queue} has no quota of Meter {self.meter}, which its spec.quotas do not name, nor any to"
                f" borrow; {self._needs}"
            )
        use = f"used {self.used}" + (f", borrowed {self.borrowed}" if self.borrowed else "")
        others = f"; {self.loan.message}" if self.loan else self._kept or self._taken
        others += f"; {self.eviction.message}" if self.eviction and others and not self.has_started else ""
        others = f"; {self.limit.message}" if self.limit and not others else others
        return (
            f"queue {self.queue} has {self.left} {self.meter} left (nominal {self.nominal}, {use}),"
            f" {self._needs}"
            + (
                f"{others}{self._nobody if self.has_started else self._own}"
                if self.ever
                else f"; the queue can never have more than {self.potential}"
            )
        )

    @property
    def _needs(self) -> str:
        return f"the gang needs {'at least ' if self.is_least else ''}{self.needed}"

    @property
    def _taken(self) -> str:
        """Return how much of what the queue may borrow others use, without which it would have more left."""
        taken = self.potential - self.left - self.used
        if taken <= 0 or self.used + self.left < self.nominal:
            return ""
        return f"; {taken} more that it may borrow {'is' if taken == 1 else 'are'} taken by other queues"

    @property
    def _nobody(self) -> str:
        """Return that nobody is evicted, if others are for a gang that has not started."""
        is_said = (self.eviction and (self.loan or self._taken)) or self._own
        return "; nobody is evicted for further pods of a gang that has started" if is_said else ""

    @property
    def _own(self) -> str:
        """Return which of the queue's own gangs are evicted, if it says so and has any."""
        if not self.used or self.within_queue is WithinQueue.NEVER:
            return ""
        newer = "" if self.within_queue is WithinQueue.LOWER_PRIORITY else ", and newer ones of the same priority,"
        return (
            f"; of queue {self.queue}'s own gangs those of lower priority{newer} are evicted for the gang where it"
            f" could then start, and no others, as its preemption.withinQueue is {self.within_queue}"
        )

    @property
    def _kept(self) -> str:
        if not self.keepers:
            return ""
        named = ", ".join(self.keepers[:MOST_NAMED]) + (
            f" and {more} more" if (more := len(self.keepers) - MOST_NAMED) > 0 else ""
        )
        who = (
            "queue {} keeps its own quota for a gang of its own"
            if len(self.keepers) == 1
            else ("queues {} keep their own quota for gangs of their own")
        )
        return f"; the rest may not be borrowed now: {who.format(named)}"

    @property
    def details(self) -> Mapping[str, Detail]:
        """Return the numbers; amounts are decimal strings. Borrowed and lent amounts are left out if there are none."""
        if self.meter is None:
            return {"queue": self.queue}
        numbers = {name: str(getattr(self, name)) for name in ("needed", "left", "nominal", "used", "potential")}
        found: dict[str, Detail] = {"queue": self.queue, "meter": self.meter, **numbers}
        if self.borrowed:
            found["borrowed"] = str(self.borrowed)
        if self.keepers:
            found["keptBy"] = list[str](self.keepers[:MOST_NAMED])
        if self.loan:
            found |= {
                "lender": self.loan.lender,
                "lent": str(self.loan.amount),
                "borrowers": list[str](self.loan.borrowers),
            }
        elif self.limit:
            found |= {"limitedBy": self.limit.queue, "borrowingLimit": str(self.limit.amount)}
        if self.eviction and (self.loan or self._taken) and not self.has_started:
            found["reclaim"] = self.eviction.reclaim
        return found
