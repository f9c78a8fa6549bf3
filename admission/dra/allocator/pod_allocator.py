"""An allocator for single pods in one world: which nodes take a pod's claims, and what it gets there.

It remembers what it was asked, so that after one device, slice or claim has changed only the nodes which see that are
looked at again. `fork` lays a "what if" over it, to be committed or dropped. The planner asks the same boards about
whole gangs; this is for single pods, where Muster allocates for them itself.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from admission.api.kubernetes.claims import Claim
from admission.api.values.names import NodeName
from admission.dra.allocator import node_allocator
from admission.dra.allocator.node_allocator import Outcome, Seen
from admission.dra.allocator.results import Budget, DeadEnd, Match
from admission.dra.allocator.search import search
from admission.dra.equivalence import device_signature, node_signature
from admission.dra.equivalence.node_signature import NodeSignature, NodeSignatureCache
from admission.dra.equivalence.usage_overlay import AllocatedOverlay
from admission.dra.inventory.selectors import Selectors
from admission.dra.requests import requests
from admission.dra.requests.device_use import DeviceUse
from admission.dra.requests.requests import Fatal, Mode, ParsedClaim, Refusal
from admission.dra.state.cluster_state import ClusterState


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """The unallocated claims of one pod, compiled; it may be asked of every allocator with the same selectors.

    answers: for every face that was asked about, what a search on it found.
    """

    claims: tuple[Claim, ...]
    asked: tuple[ParsedClaim, ...]
    board: NodeSignatureCache
    answers: dict[NodeSignature, Match | DeadEnd | Refusal] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fitting:
    """Which nodes take a pod. fatal: nodes on whose devices kube-scheduler would give up, and why on the first."""

    nodes: frozenset[NodeName]
    fatal: frozenset[NodeName] = frozenset()
    error: str = ""


class Allocator:
    """Answers for one world. steps: for every search; a search that needs more raises StepsEndedError."""

    def __init__(self, cluster: ClusterState, *, selectors: Selectors, steps: int) -> None:
        self._cluster = cluster
        self._selectors = selectors
        self._steps = steps
        self.below: Allocator | None = None
        """The allocator that this one is a fork of."""
        self._usage = AllocatedOverlay(cluster)
        self.given: list[DeviceUse] = []
        """What was taken here and in the forks that were committed to this allocator."""

    def ask(self, claims: Sequence[Claim]) -> Question | Fatal:
        """Compile the unallocated claims of a pod."""
        asked = node_allocator.compile_claims(claims, self._cluster)
        if isinstance(asked, Fatal):
            return asked
        need = device_signature.Need(requests.asks(asked), requests.attributes(asked), profile=self._cluster.profile)
        shows_taken = any(option.admin or option.mode is Mode.ALL for option in requests.options(asked))
        board = node_signature.build(
            device_signature.build(need, self._selectors), self._cluster, shows_taken=shows_taken
        )
        return Question(tuple(claims), asked, board)

    def nodes(self, question: Question) -> Fitting:
        """Return the nodes that take the pod's claims. Raises StepsEndedError."""
        board = question.board
        board.update(self._cluster)
        changed = {name: board.face(name, self._usage, self._cluster) for name in self._touched(board)}
        fitting: set[NodeName] = set()
        fatal: dict[NodeName, Refusal] = {}
        for face, names in board.groups.items():
            self._sort(question, face, names, fitting, fatal)
        fitting -= changed.keys()
        fatal = {name: why for name, why in fatal.items() if name not in changed}
        for name, face in changed.items():
            self._sort(question, face, (name,), fitting, fatal)
        error = str(fatal[min(fatal)]) if fatal else ""
        return Fitting(frozenset(fitting), frozenset(fatal), error)

    def allocate(self, question: Question, node: NodeName) -> Outcome:
        """Return what the pod gets on a node; nothing is taken by that.

        Raises StepsEndedError, and KeyError for a node that is not there.
        """
        board = question.board
        board.update(self._cluster)
        if node not in self._cluster.nodes:
            raise KeyError(node)
        face = self._face(board, node)
        seen = Seen(self._cluster, node, board.device_signatures, self._usage, board.shown(node, self._usage))
        return node_allocator.outcome(self._found(question, face), question.claims, question.asked, seen)

    def take(self, given: Iterable[DeviceUse]) -> None:
        """Use devices, as those of an allocation."""
        given = tuple(given)
        self._usage.add(given)
        self.given += given

    def fork(self) -> "Allocator":
        """Return an allocator over this one, for a "what if"; while it lives, this one must not change."""
        found = Allocator(self._cluster, selectors=self._selectors, steps=self._steps)
        found.below, found._usage = self, AllocatedOverlay(self._usage)
        return found

    def commit(self) -> None:
        """Take in the allocator below what was taken in this fork, which is as new after that."""
        assert self.below is not None  # noqa: S101 - only a fork can be committed
        self._usage.commit()
        self.below.given += self.given
        self.given.clear()

    def _touched(self, board: NodeSignatureCache) -> set[NodeName]:
        """Return the nodes whose faces differ from those in the world."""
        found: set[NodeName] = set()
        layer: Allocator | None = self
        while layer is not None:
            found.update(*(board.nodes_of(use.device) for use in layer.given))
            layer = layer.below
        return found

    def _sort(
        self,
        question: Question,
        face: NodeSignature,
        names: Iterable[NodeName],
        fitting: set[NodeName],
        fatal: dict[NodeName, Refusal],
    ) -> None:
        found = self._found(question, face)
        if isinstance(found, Match):
            fitting.update(names)
        elif isinstance(found, Refusal):
            fatal.update(dict.fromkeys(names, found))

    def _face(self, board: NodeSignatureCache, node: NodeName) -> NodeSignature:
        """Return what a node has here: that of the world, unless it was touched."""
        return board.face(node, self._usage, self._cluster) if self._usage.has_any else board.faces[node]

    def _found(self, question: Question, face: NodeSignature) -> Match | DeadEnd | Refusal:
        known = question.answers.get(face)
        if known is None:
            units, budget = question.board.units, Budget(self._steps)
            known = search(question.asked, face.contents, units, self._cluster.profile, budget)
            question.answers[face] = known
        return known
