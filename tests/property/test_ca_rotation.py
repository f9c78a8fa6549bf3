"""A law of certificates: at every moment of a year, each leaf that is shown is trusted by the caBundle of then."""

import random

import pytest

from admission.webhook.tls.ca_rotation import Lifetimes
from tests.unit.webhook.test_ca_rotation import DAY, NOW, Fleet


@pytest.mark.parametrize(("seed", "days", "part"), [(1, 60, 1.0), (2, 90, 0.26), (3, 200, 0.3)])
async def test_for_a_year_each_leaf_is_trusted_by_the_bundle_of_its_moment(seed: int, days: int, part: float) -> None:
    """Processes look when they get to it: now and then one is silent for most of the time that authorities settle."""
    chance = random.Random(seed)  # noqa: S311 - it plans a test
    authority = days * DAY
    terms = Lifetimes(authority=authority, leaf=(authority / 3 - authority / 30) * part)
    fleet = Fleet(terms)
    for _ in range(3):
        await fleet.start()
    due = [fleet.clock.now] * 3
    most, renewed = 0, 0
    while fleet.clock.now < NOW + 365 * DAY:
        number = due.index(min(due))
        fleet.clock.now = due[number]
        before = fleet.shown[number]
        await fleet.current(number)
        renewed += fleet.shown[number] != before
        most = max(most, fleet.check())
        steps = chance.choice([4, 4, 4, 7])
        due[number] += terms.check_interval * steps

    assert most == 2
    assert renewed >= 3 * (365 * DAY / terms.leaf - 1)
    assert fleet.vault.writes >= 365 / days
