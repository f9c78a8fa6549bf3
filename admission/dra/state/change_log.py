"""The log of changed nodes over successive cluster states, so that two states need not be compared in full."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from admission.api.values.names import NodeName

MOST_TRUNKS = 16
"""The most logs that a log keeps of those from which it branched."""


class ChangeLog:
    """The steps from cluster state to cluster state, each with the nodes that changed in it.

    Cluster states that follow from one another share one log and have a *place* in it. What changed between two of them
    are the nodes of all steps after the earlier place. Of a node only its last step is kept, so a query costs a step
    per node in the answer, and the log is never longer than the number of nodes. A second cluster state that follows
    from one place gets a branch, which knows the first log up to that place.
    """

    __slots__ = ("_last", "_trunks", "steps", "token")

    def __init__(
        self,
        steps: int = 0,
        last: Mapping[NodeName, int] = MappingProxyType({}),
        trunks: Sequence[tuple[object, int]] = (),
    ) -> None:
        self.token = object()
        self.steps = steps
        """The place of the last cluster state."""
        self._last = dict(last)
        """The last step of each node, in ascending order of steps."""
        self._trunks = tuple(trunks)[-MOST_TRUNKS:]
        """The logs from which this one branched, oldest first: their tokens, and the places of the branches."""

    def add(self, nodes: Iterable[NodeName]) -> None:
        """Add a step that changes these nodes."""
        self.steps += 1
        for node in nodes:
            self._last.pop(node, None)
            self._last[node] = self.steps

    def branch(self, place: int) -> "ChangeLog":
        """Return a new log for cluster states that follow from a place.

        A node that changed after the place has lost its earlier step, so it counts as changed at the place.
        """
        later = {*self.since(place)}
        last = {node: step for node, step in self._last.items() if node not in later}
        return ChangeLog(place, {**last, **dict.fromkeys(later, place)}, (*self._trunks, (self.token, place)))

    def since(self, place: int) -> Iterator[NodeName]:
        """Yield the nodes that changed in any step after a place."""
        for node in reversed(self._last):
            if self._last[node] <= place:
                return
            yield node

    def knows(self, other: "ChangeLog", place: int) -> bool:
        """Return whether a place of another log is also one of this log."""
        return any(token is other.token and place <= end for token, end in self._trunks)
