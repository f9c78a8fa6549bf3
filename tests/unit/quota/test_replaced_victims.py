"""A victim that would have a gang of its own queue evicted in turn: then both go, so that one goes at once instead."""

import pytest

from admission.api.values.names import GangUid, QueueName
from admission.quota import preemption
from admission.quota.headroom import QueueUsage
from admission.quota.preemption import Victims
from admission.quota.preemption_rules import Incoming
from tests.unit.quota.test_preemption import BOTH, NOON, Scene
from tests.unit.quota.trees import GPU, a_tree

LOWER, NEWER = "LowerPriority", "LowerOrNewerEqualPriority"


@pytest.mark.parametrize(
    ("within", "nominal", "gangs", "expected"),
    [
        (LOWER, 3, [("high", 2, 1, 9), ("low", 3, 0, 9)], "low"),
        (None, 3, [("high", 2, 1, 9), ("low", 3, 0, 9)], "high"),
        (LOWER, 1, [("high", 2, 1, 9), ("low", 1, 0, 9)], "high"),
        (NEWER, 3, [("old", 2, 0, 9), ("new", 3, 0, 5)], "new"),
        (LOWER, 3, [("old", 2, 0, 9), ("new", 3, 0, 5)], "old"),
        (NEWER, 3, [("new", 2, 0, 5), ("old", 3, 0, 9)], "new"),
        (LOWER, 7, [("high", 2, 2, 9), ("middle", 3, 1, 9), ("low", 4, 0, 9)], "low"),
    ],
    ids=[
        "lower priority",
        "its queue evicts nobody",
        "the other gives back less",
        "a newer one",
        "a newer one, where priority decides alone",
        "an older one",
        "one that would be replaced itself",
    ],
)
def test_a_loan_is_taken_from(
    within: str | None, nominal: int, gangs: list[tuple[str, int, int, int]], expected: str
) -> None:
    builder = a_tree().queue("root", 0).queue("a", 2, parent="root").queue("b", nominal, parent="root", within=within)
    scene = Scene(builder)
    for uid, gpus, priority, age in gangs:
        scene.gang(uid, "b", gpus, priority=priority, age=age)

    assert chosen(scene, bool) == (expected,)


def test_no_gang_of_the_own_queue_goes_for_it() -> None:
    builder = a_tree().queue("root", 0).queue("a", 3, parent="root").queue("b", 2, parent="root", within=LOWER)
    scene = Scene(builder).gang("high", "b", 2, priority=1).gang("low", "b", 2).gang("own", "a", 1)

    assert chosen(scene, lambda gone: not gone.isdisjoint({"high", "own"})) == ("high",)


def chosen(scene: Scene, fits: preemption.Fits) -> tuple[GangUid, ...]:
    queue_usage = QueueUsage(scene.builder.tree, scene.builder.usage)
    incoming = Incoming(queue=QueueName("a"), queued_since=NOON, priority=10, charge={GPU: 2}, preemption=BOTH)
    found = preemption.choose_fewest(queue_usage, incoming, scene.gangs, fits)
    assert isinstance(found, Victims)
    return found.gangs
