"""Gangs that were promised what others give back: what is said of them, and how long a promise stands."""

from typing import cast

import pytest

from admission.api.values.reasons import Hold, HoldReason
from admission.scheduling.checks.chain import Grant
from admission.scheduling.preemption import nominations
from admission.scheduling.preemption.nominations import Nomination
from admission.workloads.gangs import Group
from tests.builders import NOON

NAMED = [f"team/g{at}" for at in range(nominations.MOST_NAMED + 2)]
SAID = {
    1: "gang team/g0 is",
    2: "gangs team/g0, team/g1 are",
    4: "gangs team/g0, team/g1, team/g2, team/g3 are",
    5: "gangs team/g0, team/g1, team/g2, team/g3 and 1 more are",
    6: "gangs team/g0, team/g1, team/g2, team/g3 and 2 more are",
}


@pytest.mark.parametrize(("count", "said"), SAID.items())
def test_the_hold_of_a_nominated_gang_names_its_victims(count: int, said: str) -> None:
    nomination = Nomination(
        group=cast("Group", None),
        grant=cast("Grant", None),
        victims={},
        names=tuple(NAMED[:count]),
        pods=frozenset(),
        since=NOON,
    )

    hold = nomination.explained(Hold(HoldReason.DEVICES_BUSY, "needs 2", {"needed": 2}))

    assert hold.message == f"needs 2; {said} evicted for it, and it starts when their devices are free"
    assert hold.details == {"needed": 2, "evicted": NAMED[:count]}
