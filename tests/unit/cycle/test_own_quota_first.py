"""A gang that may start with less starts within its queue's quota before borrowers take that, however old they are.

It may start with fewer pods, with another alternative, or with cheaper devices.
"""

from typing import Any

import pytest

from admission.api.values.names import RUNTIME
from tests.builders import ClusterBuilder, a_cluster
from tests.unit.cycle.jobs import Jobs, Play
from tests.unit.cycle.test_preemption_charges import elastic, used

FAIR: dict[str, Any] = {"fairSharing": {"weight": "1"}}
BRANCHES = {"own": "left", "other": "right", "left": "top", "right": "top"}


def a_tree(top: int, own: int, parents: dict[str, str] | None = None, **spec: Any) -> ClusterBuilder:
    """Queues `own`, with a quota, and `other`, with none; the quota of `own` is that of its parent, if it has one."""
    builder = a_cluster().node("n", gpus=40).queue("top", gpus=top)
    for name, parent in sorted((parents or {"own": "top", "other": "top"}).items(), key=lambda one: one[1] != "top"):
        builder.queue(name, gpus=own if name == ("left" if parents else "own") else 0, parent=parent, **spec)
    return builder


async def played(queues: ClusterBuilder, owner: dict[str, Any], *borrowers: dict[str, Any]) -> dict[str, int]:
    """Return what each queue uses when a younger owner has come after borrowers."""
    play = Play(Jobs(queues))
    for number, one in enumerate(borrowers):
        play.cluster.submit(f"b{number}", queue="other", **one)
    play.cluster.submit("own", queue="own", at=play.cluster.now.replace(second=1), **owner)

    await play.forget_changes(8)

    assert not play.evicted
    return {queue: gpus for queue, gpus in used(play).items() if gpus}


FOUR: dict[str, Any] = {"gpus": 4}
TWO: dict[str, Any] = {"gpus": 2}
EITHER: dict[str, Any] = {"gpus": (4, 2)}


@pytest.mark.parametrize(
    ("queues", "owner", "borrowers", "gpus"),
    [
        (a_tree(0, 4), elastic(2, 6), [FOUR], {"own": 4}),
        (a_tree(0, 4, **FAIR), elastic(2, 10), [FOUR], {"own": 4}),
        (a_tree(0, 4), elastic(2, 6), [{**FOUR, "priority": 9}], {"own": 4}),
        (a_tree(0, 4), elastic(2, 6), [TWO, TWO, TWO], {"own": 4}),
        (a_tree(2, 4), elastic(2, 6), [FOUR], {"own": 6}),
        (a_tree(2, 4), elastic(2, 6), [TWO], {"own": 4, "other": 2}),
        (a_tree(4, 4), elastic(2, 6), [TWO], {"own": 6, "other": 2}),
        (a_tree(0, 4, BRANCHES), elastic(2, 6), [FOUR], {"own": 4}),
        (a_tree(2, 4, BRANCHES), elastic(2, 6), [TWO], {"own": 4, "other": 2}),
        (a_tree(2, 2), EITHER, [FOUR], {"own": 4}),
        (a_tree(2, 2), EITHER, [TWO], {"own": 2, "other": 2}),
        (a_tree(4, 2), EITHER, [TWO], {"own": 4, "other": 2}),
        (a_tree(2, 2), elastic(3, 4), [FOUR], {"other": 4}),
    ],
    ids=[
        "elastic",
        "elastic, by shares",
        "elastic, of lower priority",
        "elastic, beside many",
        "elastic, what the borrower cannot have",
        "elastic, the borrower first with what is shared",
        "elastic, with enough for both",
        "elastic, by branches",
        "elastic, by branches, with something shared",
        "firstAvailable, what the borrower cannot have",
        "firstAvailable, the borrower first with what is shared",
        "firstAvailable, with enough for both",
        "elastic, of which the least borrows as well",
    ],
)
async def test_an_owner_starts_with_what_is_its_own_before_a_borrower_takes_it(
    queues: ClusterBuilder, owner: dict[str, Any], borrowers: list[dict[str, Any]], gpus: dict[str, int]
) -> None:
    assert await played(queues, owner, *borrowers) == gpus


HOUR: dict[str, Any] = {"annotations": {RUNTIME: "1h"}}


@pytest.mark.parametrize(
    ("reclaim", "running", "evicted"), [("Never", 1, []), ("Any", 4, ["k"])], ids=["what is free", "what is lent"]
)
async def test_an_owner_starts_with_what_is_its_own_beside_a_start_that_is_reserved_for_a_borrower(
    reclaim: str, running: int, evicted: list[str]
) -> None:
    builder = a_cluster().node("n", gpus=4).queue("top", gpus=2).queue("other", gpus=0, parent="top")
    play = Play(Jobs(builder.queue("own", gpus=2, parent="top", preemption={"reclaim": reclaim})))
    play.cluster.submit("k", queue="other", gpus=running, **HOUR)
    await play.forget_changes(3)
    play.cluster.submit("h", queue="other", gpus=4, priority=9)
    await play.forget_changes(2)
    assert play.leader.backfill.estimates, "h is to start when k ends"

    play.cluster.submit("w", queue="own", **elastic(2, 4))
    await play.forget_changes(8)

    assert [gang for gang, _, _ in play.evicted] == evicted
    assert "w" in play.cluster.running()


async def test_a_gang_for_which_others_go_borrows_nothing_in_their_stead_while_an_owner_waits() -> None:
    queues = a_cluster().node("n", gpus=40).queue("top", gpus=0)
    for name in ("own", "other"):
        queues.queue(name, gpus=2, parent="top", preemption={"withinQueue": "LowerPriority"})
    play = Play(Jobs(queues, graceful=True))
    play.cluster.submit("low", queue="other", **TWO)
    play.cluster.submit("first", queue="own", **TWO)
    await play.forget_changes(3)
    play.cluster.submit("next", queue="own", **TWO)
    play.cluster.submit("high", queue="other", priority=1, **TWO)
    await play.forget_changes(2)
    assert play.evicted == [("low", "Preempted", "high")]

    play.cluster.finish_job("first")
    await play.forget_changes(2)

    assert play.cluster.running() == {"next"}

    play.cluster.end_grace()
    await play.forget_changes(2)

    assert play.cluster.running() == {"next", "high"}


async def test_a_new_leader_keeps_for_an_owner_first_what_others_are_evicted_for() -> None:
    queues = a_cluster().node("n", gpus=2).node("m", gpus=3, cpu="4").queue("top", gpus=0)
    for name, gpus in (("own", 2), ("other", 0), ("lender", 2)):
        queues.queue(name, gpus=gpus, parent="top", preemption={"withinQueue": "LowerPriority"})
    play = Play(Jobs(queues, graceful=True))
    for name, queue, cpu in (("old", "own", "10"), ("older", "other", "1")):
        play.cluster.submit(name, queue=queue, cpu=cpu, **TWO)
        await play.forget_changes(2)
    play.cluster.submit("borrower", queue="other", priority=1, **TWO)
    play.cluster.submit("owner", queue="own", priority=1, cpu="10", at=play.cluster.now.replace(second=50), **TWO)
    await play.forget_changes()
    assert play.evicted == [("older", "Preempted", "borrower"), ("old", "Preempted", "owner")]

    play.succeed()
    await play.forget_changes()
    play.cluster.end_grace()
    await play.forget_changes(2)

    assert play.cluster.running() == {"owner", "borrower"}


async def test_a_loan_is_taken_back_from_the_gang_that_would_go_in_the_end_for_the_one_that_has_it() -> None:
    queues = a_cluster().node("n", gpus=40).queue("top", gpus=0)
    queues.queue("own", gpus=2, parent="top", preemption={"reclaim": "Any"})
    queues.queue("other", gpus=3, parent="top", preemption={"withinQueue": "LowerPriority"})
    play = Play(Jobs(queues))
    play.cluster.submit("low", queue="other", gpus=3)
    play.cluster.submit("high", queue="other", priority=1, **TWO)
    await play.forget_changes(3)
    assert play.cluster.running() == {"low", "high"}

    play.cluster.submit("owner", queue="own", **TWO)
    await play.forget_changes(8)

    assert play.evicted == [("low", "Reclaimed", "owner")]
    assert play.cluster.running() == {"high", "owner"}
