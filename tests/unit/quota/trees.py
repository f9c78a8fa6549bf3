"""Trees of queues for tests: `a_tree().queue("a", 8, used=3).queue("b", 2, parent="a")`, all of one meter."""

from typing import Any, Self

from admission.api.muster import queues
from admission.api.values.names import MeterName, QueueName
from admission.quota.tree import Tree
from tests.unit.quota import available

GPU = MeterName("gpu")
MEMORY = MeterName("memory")


class TreeBuilder:
    """Collects queues and what they use."""

    def __init__(self) -> None:
        self._queues: list[queues.Queue] = []
        self._gone: set[str] = set()
        self.usage: dict[QueueName, dict[MeterName, int]] = {}

    def queue(
        self,
        name: str,
        nominal: int | None = None,
        *,
        parent: str | None = None,
        borrows: int | None = None,
        lends: int | None = None,
        used: int = 0,
        deleted: bool = False,
        reclaim: str | None = None,
        within: str | None = None,
        weight: str | None = None,
        by_shares: str | None = None,
        borrow_within: str | None = None,
        memory: int | None = None,
    ) -> Self:
        quota: dict[str, Any] = {"meter": GPU, "nominal": str(nominal)}
        if borrows is not None:
            quota["borrowingLimit"] = str(borrows)
        if lends is not None:
            quota["lendingLimit"] = str(lends)
        spec: dict[str, Any] = {"quotas": [] if nominal is None else [quota]}
        if memory is not None:
            spec["quotas"].append({"meter": MEMORY, "nominal": str(memory)})
        if parent is not None:
            spec["parent"] = parent
        if reclaim is not None:
            spec["preemption"] = {"reclaim": reclaim, **({"byShares": by_shares} if by_shares is not None else {})}
            if borrow_within is not None:
                spec["preemption"]["borrowWithinCohort"] = {"policy": borrow_within}
        if within is not None:
            spec["preemption"] = {"withinQueue": within}
        if weight is not None:
            spec["fairSharing"] = {"weight": weight}
        meta = {"name": name, **({"deletionTimestamp": "2026-11-21T12:00:00Z"} if deleted else {})}
        self._queues.append(queues.decode({"metadata": meta, "spec": spec}))
        self.usage[QueueName(name)] = {GPU: used}
        return self

    def gone(self, name: str) -> Self:
        """Let a queue be gone but keep its place."""
        self._gone.add(name)
        return self

    @property
    def tree(self) -> Tree:
        return Tree.build(
            [queue for queue in self._queues if queue.name not in self._gone],
            [queue for queue in self._queues if queue.name in self._gone],
        )

    def left(self, name: str) -> int:
        return available.available(self.tree, self.usage, QueueName(name), GPU)

    def potential(self, name: str) -> int:
        return available.potential(self.tree, QueueName(name), GPU)

    def borrowed(self, name: str) -> int:
        return available.Loans(self.tree, self.usage, GPU).borrowed(QueueName(name))

    def lent(self, name: str) -> int:
        return available.Loans(self.tree, self.usage, GPU).lent(QueueName(name))


def a_tree() -> TreeBuilder:
    return TreeBuilder()


def a_pair(**first: Any) -> TreeBuilder:
    """Return queues a and b under a root without quota of its own; a has 2, b has 6."""
    return a_tree().queue("root").queue("a", 2, parent="root", **first)
