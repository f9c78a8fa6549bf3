"""The gang planner against gangs of known feasibility; every plan is carried out pod by pod. None may differ."""

import pytest

from admission.dra.compatibility import Release
from admission.dra.requests.gang_request import Choice
from tests.conformance import corpus, gangs

pytestmark = pytest.mark.conformance


@pytest.mark.parametrize("release", corpus.RELEASES)
@pytest.mark.parametrize("choice", list(Choice))
def test_gangs_are_judged_as_a_complete_search_judges_them(choice: Choice, release: Release) -> None:
    records = list(corpus.records("gang"))
    feasible = sum(gangs.is_feasible(record, choice) for record in records)
    found = {record["id"]: gangs.difference(record, release, choice) for record in records}
    print(f"\ngangs, {choice}, {release}: {feasible} feasible, {len(records) - feasible} infeasible")

    assert {name: difference for name, difference in found.items() if difference is not None} == {}
    assert 0 < feasible < len(records)
