"""The order in which gangs are preferred as victims of preemption, as in Kueue, but that idle ones go first.

Source: `pkg/scheduler/preemption/common/ordering.go` of Kueue (2026).
"""

from collections.abc import Iterable

from admission.api.values.names import GangUid
from admission.quota.preemption_rules import Candidate, Rules


def rank(candidate: Candidate, rules: Rules) -> tuple[bool, bool, int, float, GangUid]:
    """Return the sort key: gangs of other queues, idle ones, then lower priority, then the youngest, then the UID.

    A gang of another queue is a candidate only while that queue borrows.
    """
    is_busy = not candidate.is_idle
    return (rules.is_own(candidate), is_busy, candidate.priority, -candidate.reserved_at.timestamp(), candidate.uid)


def in_order(candidates: Iterable[Candidate], rules: Rules) -> list[Candidate]:
    """Return the candidates that may go, the most preferred first; by shares, those of the largest share first."""
    ranked = sorted(filter(rules.is_eligible, candidates), key=lambda candidate: rank(candidate, rules))
    first = rules.by_shares(ranked) if rules.is_by_shares else []
    known = {candidate.uid for candidate in first}
    return [*first, *(candidate for candidate in ranked if candidate.uid not in known)]
