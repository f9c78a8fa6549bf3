"""What gangs that run may not borrow since evicted gangs of other queues come back to it."""

import pytest

from admission.api.values.names import QueueName
from admission.quota import evicted_usage
from admission.quota.evicted_usage import EvictedUsage
from admission.quota.headroom import QueueUsage
from tests.builders import NOON
from tests.unit.quota.trees import GPU, TreeBuilder, a_pair, a_tree


def branches(**used: int) -> TreeBuilder:
    """Two branches under a root: of `west` only the branch itself has quota."""
    return (
        a_tree()
        .queue("root", 1)
        .queue("east", parent="root")
        .queue("a", 2, parent="east", used=used.get("a", 0))
        .queue("c", 2, parent="east")
        .queue("west", 4, parent="root")
        .queue("b", parent="west", used=used.get("b", 0))
    )


ALL = None
CASES = {
    "what its queue has left is kept": (a_pair().queue("b", 6, parent="root"), "b", ALL, "a", 2),
    "of that no more than the gang had": (a_pair().queue("b", 6, parent="root"), "b", 5, "a", 3),
    "a queue that uses its own keeps nothing": (a_pair().queue("b", 6, parent="root", used=6), "b", 5, "a", 2),
    "what a queue does not lend is kept anyway": (
        a_tree().queue("root", 3).queue("a", 0, parent="root").queue("b", 6, parent="root", lends=2),
        "b",
        5,
        "a",
        4,
    ),
    "a branch keeps its quota for a queue that has none": (branches(), "b", 4, "a", 5),
    "of which those beside it use some": (branches(b=3), "b", 4, "a", 5),
    "a queue in the same branch keeps its own alone": (branches(), "c", 9, "a", 7),
    "a queue above keeps its own quota": (branches(), "root", 9, "a", 8),
    "a queue below keeps its own quota": (branches(), "a", 9, "east", 7),
    "the own queue keeps nothing from itself": (branches(), "a", 9, "a", 9),
    "another tree keeps nothing": (branches().queue("z", 9), "z", 9, "a", 9),
}


@pytest.mark.parametrize(("builder", "evicted", "had", "queue", "most"), CASES.values(), ids=CASES)
def test_what_evicted_gangs_had_is_not_borrowed_by_gangs_that_grow(
    builder: TreeBuilder, evicted: str, had: int | None, queue: str, most: int
) -> None:
    queue_usage = QueueUsage(builder.tree, builder.usage)
    coming = [EvictedUsage(queue=QueueName(evicted), charge=None if had is None else {GPU: had}, until=NOON)]
    before = {name: queue_usage.usage(name, GPU) for name in builder.tree.order}

    found = [
        amount
        for amount in range(12)
        if queue_usage.fits(QueueName(queue), {GPU: amount})
        and evicted_usage.shortfall(queue_usage, QueueName(queue), {GPU: amount}, coming) is None
    ]

    assert max(found) == most
    assert {name: queue_usage.usage(name, GPU) for name in builder.tree.order} == before
