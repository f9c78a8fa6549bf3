"""The gang planner against gangs of known feasibility; every plan is placed again pod by pod by the allocator."""

from collections import Counter
from collections.abc import Sequence

import pytest

from admission.api.claims import Claim
from admission.api.names import Uid
from admission.dra import allocating, planning, worlds
from admission.dra.allocating import Allocated
from admission.dra.plans import Plan, PodDemand
from admission.dra.selecting import Selectors
from admission.dra.worlds import Holder, World
from tests.conformance import corpus

pytestmark = pytest.mark.conformance

STEPS = 20_000


def test_gangs_are_judged_as_a_complete_search_judges_them() -> None:
    counts: Counter[str] = Counter()
    wrong = {}
    for record in corpus.records("gang"):
        pods, world = corpus.gang(record), corpus.world(record)
        answer = planning.plan(pods, world, selectors=Selectors(world.profile.cel), steps=STEPS)
        feasible = isinstance(answer, Plan)
        counts["feasible" if feasible else "infeasible"] += 1
        if feasible is not record["expect"]["feasible"]:
            wrong[record["id"]] = (answer, record["expect"]["reason"])
        if isinstance(answer, Plan):
            _replay(answer, pods, world)
    print("\ngangs: " + ", ".join(f"{what} {count}" for what, count in sorted(counts.items())))

    assert wrong == {}


def _replay(plan: Plan, pods: Sequence[PodDemand], world: World) -> None:
    """Place the pods in planned order: each must be given the very devices that the plan says."""
    demands = {demand.pod.meta.uid: demand for demand in pods}
    allocated: set[Uid] = set()
    assert len(plan.pods) == len(demands) == len({planned.uid for planned in plan.pods})
    for planned in plan.pods:
        fresh: list[Claim] = [c for c in demands[planned.uid].claims if c.meta.uid not in allocated]
        found = allocating.allocate(fresh, planned.node, world, selectors=Selectors(world.profile.cel), steps=STEPS)
        assert isinstance(found, Allocated)
        assert [claim.uid for claim in planned.claims] == [claim.meta.uid for claim in fresh]
        assert tuple(claim.devices for claim in planned.claims) == found.devices
        for claim, takings in zip(planned.claims, found.takings, strict=True):
            allocated.add(claim.uid)
            world = worlds.also(world, takings, Holder(claim=claim.claim))
