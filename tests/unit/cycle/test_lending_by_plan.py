"""A queue keeps its own quota also for a gang of which only a plan says what it is charged."""

from typing import Any

import pytest

from tests.builders import ClusterBuilder, a_cluster
from tests.property.test_cycles import PREFERENCES, counting
from tests.unit.cycle.fences import report
from tests.unit.cycle.jobs import Jobs, Play
from tests.unit.cycle.test_node_resources import a_meter
from tests.unit.cycle.test_preemption_charges import elastic

CORE: dict[str, Any] = {"name": "cpu"}
LOANS = ("b0", "b1", "b2", "b3")


def a_lender(meters: dict[str, int], builder: ClusterBuilder | None = None, **spec: Any) -> ClusterBuilder:
    """Return a cluster with two queues, of which `lender` has all quota of these meters."""
    builder = builder or a_cluster().node("n", gpus=8)
    plenty = {"claims": 100, "gpus": 100}
    for name, part in {"top": 0, "borrower": 0, "lender": 1}.items():
        quotas = [
            {"meter": meter, "nominal": str(amount * part if meter in meters else amount)}
            for meter, amount in {**plenty, **meters}.items()
        ]
        more: dict[str, Any] = {**({} if name == "top" else {"parent": "top"}), **(spec if part else {})}
        builder.queue(name, quotas=quotas, **more)
    return builder


def priced(credits_: int, *resources: dict[str, Any]) -> ClusterBuilder:
    builder = a_cluster().node("n", gpus=8)
    builder._meters.append(a_meter(*resources, price="4"))
    return a_lender({"credits": credits_}, builder)


def of_kinds() -> ClusterBuilder:
    builder = a_cluster().node("n", gpus=4).node("m", gpus=4, model="h100")
    builder._meters += [*map(counting, ("a100", "h100"))]
    return a_lender({"a100": 4, "h100": 0}, builder, preferences=PREFERENCES)


SCENES: dict[str, tuple[ClusterBuilder, dict[str, Any], str]] = {
    "a certain charge": (a_lender({"gpus": 4}), {"gpus": 4}, "needs 4"),
    "a price": (priced(16), {"gpus": 4}, "needs 16"),
    "a price beside what pods request": (priced(20, CORE), {"pods": 4}, "needs at least 4"),
    "firstAvailable": (a_lender({"gpus": 4}), {"gpus": (8, 4)}, "needs at least 4"),
    "elastic": (a_lender({"gpus": 4}), elastic(4, 6), "needs at least 4"),
    "kinds": (of_kinds(), {"gpus": 4}, "needs 4"),
}
"""Queues, the owner's gang, and what its hold says that it needs: no more than is known is said to be certain."""


@pytest.mark.parametrize(("queues", "owner", "needs"), SCENES.values(), ids=SCENES)
async def test_quota_is_kept_for_what_a_plan_needs(queues: ClusterBuilder, owner: dict[str, Any], needs: str) -> None:
    play = Play(Jobs(queues))
    for name in LOANS:
        play.cluster.submit(name, queue="borrower")
        await play.forget_changes(2)
    assert play.cluster.running() == {*LOANS}
    for name in ("m0", "m1", "m2", "m3"):
        play.cluster.submit(name, queue="borrower", priority=9)
    play.cluster.submit("own", queue="lender", **owner)
    hold = report(await play.forget_changes(3), "own").hold
    assert hold is not None
    assert f", the gang {needs};" in hold.message

    for left in range(4):
        assert play.cluster.running() == {*LOANS[left:]}, "nobody borrows what the owner waits for"
        play.cluster.finish_job(LOANS[left])
        await play.forget_changes(4)

    assert play.cluster.running() == {"own"}, "nothing is left of the quota"
    assert not play.evicted


async def test_a_gang_for_which_the_own_quota_would_never_do_keeps_nothing() -> None:
    play = Play(Jobs(priced(16)))
    play.cluster.submit("b0", queue="borrower")
    await play.forget_changes(2)
    play.cluster.submit("own", queue="lender", gpus=5)
    play.cluster.submit("m0", queue="borrower", gpus=3)

    await play.forget_changes(4)

    assert play.cluster.running() == {"b0", "m0"}


async def test_no_more_is_kept_than_a_plan_is_charged() -> None:
    play = Play(Jobs(priced(16)))
    play.cluster.submit("b0", queue="borrower", gpus=3)
    await play.forget_changes(2)
    play.cluster.submit("own", queue="lender", gpus=2)
    await play.forget_changes(2)
    play.cluster.finish_job("b0")
    play.cluster.submit("m0", queue="borrower", gpus=2)
    play.cluster.submit("m1", queue="borrower")

    result = await play.forget_changes(4)

    assert play.cluster.running() == {"own", "m0"}
    assert report(result, "m1").hold is not None
