"""Which nodes changed when, over states that follow each other, so that nobody has to compare two of them in full."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from admission.api.values.names import NodeName

MOST_TRUNKS = 16
"""Journals that one knows of those from which it goes out."""


class ChangeLog:
    """The steps from cluster state to cluster state, each with the nodes that changed in it.

    Cluster states that came from one another write into one journal and have a *place* in it. What changed between two
    of them are the nodes of all steps after the earlier place. Of a node only its last step is kept, so a question
    costs a step for every node in the answer, and the journal is never longer than there are nodes. A second cluster
    state that goes out from one place has a journal of its own, which knows that one up to there.
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
        """The last step of each node, in the order of steps."""
        self._trunks = tuple(trunks)[-MOST_TRUNKS:]
        """The journals from which this one goes out, one from the other, by their tokens, and the places there."""

    def add(self, nodes: Iterable[NodeName]) -> None:
        """Note a step that changes some nodes."""
        self.steps += 1
        for node in nodes:
            self._last.pop(node, None)
            self._last[node] = self.steps

    def branch(self, place: int) -> "ChangeLog":
        """Return a journal of its own for cluster states that go out from a place.

        Nodes that have changed since may have changed before, too, which is not known any more.
        """
        later = {*self.since(place)}
        last = {node: step for node, step in self._last.items() if node not in later}
        return ChangeLog(place, {**last, **dict.fromkeys(later, place)}, (*self._trunks, (self.token, place)))

    def since(self, place: int) -> Iterator[NodeName]:
        """Yield the nodes that some step after a place has changed."""
        for node in reversed(self._last):
            if self._last[node] <= place:
                return
            yield node

    def knows(self, other: "ChangeLog", place: int) -> bool:
        """Return whether a place of another journal is one of this one, too."""
        return any(token is other.token and place <= end for token, end in self._trunks)
