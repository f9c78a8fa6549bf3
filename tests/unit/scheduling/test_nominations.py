"""Gangs that were promised what others give back: what is said of them, and how long a promise stands."""

from typing import cast

import pytest

from admission.api.values import reasons, references
from admission.api.values.reasons import Hold, HoldReason
from admission.api.values.references import EVERYWHERE, Kind, Referent
from admission.scheduling.checks.chain import Grant
from admission.scheduling.preemption.nominations import Nomination
from admission.workloads.gangs import Group
from tests.builders import NOON

NAMED = [f"team/g{at}" for at in range(references.MOST_NAMED + 2)]
SAID = {
    1: "gang team/g0 is",
    2: "gangs team/g0 and team/g1 are",
    3: "gangs team/g0, team/g1 and team/g2 are",
    4: "gangs team/g0, team/g1, team/g2 and 1 more are",
    5: "gangs team/g0, team/g1, team/g2 and 2 more are",
}


@pytest.mark.parametrize(("count", "said"), SAID.items())
def test_the_hold_of_a_nominated_gang_names_its_victims(count: int, said: str) -> None:
    nomination = Nomination(
        group=cast("Group", None),
        grant=cast("Grant", None),
        victims={},
        named=tuple(Referent(kind=Kind.GANG, key=key, queue="team") for key in NAMED[:count]),
        pods=frozenset(),
        since=NOON,
    )

    plain = nomination.explained(Hold(HoldReason.DEVICES_BUSY, "needs 2", {"needed": 2}))
    hold = reasons.for_reader(plain, EVERYWHERE)

    assert hold.message == f"needs 2; {said} evicted for it, and it starts when their devices are free"
    assert hold.details == {"needed": 2, "evicted": NAMED[:count]}
