"""An allocator for single pods in one cluster state: which nodes satisfy a pod's claims, and what it gets there.

It keeps its answers, so that after a change of one device, slice or claim only the nodes that see it are evaluated
again. `fork` puts a copy on write over it, to be committed or dropped. The planner uses the same signature caches for
whole gangs; this allocator is for single pods for which Muster allocates itself.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from admission.api.kubernetes.claims import Claim
from admission.api.values.names import NodeName
from admission.dra.allocator import node_allocator
from admission.dra.allocator.node_allocator import NodeView, Outcome
from admission.dra.allocator.results import Budget, DeadEnd, Match
from admission.dra.allocator.search import search
from admission.dra.equivalence import device_signature, node_signature
from admission.dra.equivalence.node_signature import NodeSignature, NodeSignatureCache
from admission.dra.equivalence.usage_overlay import AllocatedOverlay
from admission.dra.inventory.selectors import Selectors
from admission.dra.requests import requests
from admission.dra.requests.device_use import DeviceUse
from admission.dra.requests.requests import Fatal, Mode, ParsedClaim, RequestRefusal
from admission.dra.state.cluster_state import ClusterState


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """The unallocated claims of one pod, compiled, for every allocator with the same selectors.

    answers: what the search found, by node signature.
    """

    claims: tuple[Claim, ...]
    parsed_claims: tuple[ParsedClaim, ...]
    signatures_by_node: NodeSignatureCache
    answers: dict[NodeSignature, Match | DeadEnd | RequestRefusal] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fitting:
    """Which nodes take a pod. fatal: nodes on whose devices kube-scheduler would give up; error: why on the first."""

    nodes: frozenset[NodeName]
    fatal: frozenset[NodeName] = frozenset()
    error: str = ""


class Allocator:
    """Allocates in one cluster state. steps: for every search; a search that needs more raises StepsEndedError."""

    def __init__(self, cluster: ClusterState, *, selectors: Selectors, steps: int) -> None:
        self._cluster = cluster
        self._selectors = selectors
        self._steps = steps
        self.below: Allocator | None = None
        """The allocator that this one is a fork of."""
        self._usage = AllocatedOverlay(cluster)
        self.given: list[DeviceUse] = []
        """The devices taken here and in the forks that were committed to this allocator."""

    def parsed(self, claims: Sequence[Claim]) -> Question | Fatal:
        """Compile the unallocated claims of a pod."""
        parsed_claims = node_allocator.compile_claims(claims, self._cluster)
        if isinstance(parsed_claims, Fatal):
            return parsed_claims
        need = device_signature.Need(
            requests.parsed_requests(parsed_claims), requests.attributes(parsed_claims), profile=self._cluster.profile
        )
        includes_taken = any(option.admin or option.mode is Mode.ALL for option in requests.options(parsed_claims))
        signatures_by_node = node_signature.build(
            device_signature.build(need, self._selectors), self._cluster, includes_taken=includes_taken
        )
        return Question(tuple(claims), parsed_claims, signatures_by_node)

    def nodes(self, question: Question) -> Fitting:
        """Return the nodes that take the pod's claims. Raises StepsEndedError."""
        signatures_by_node = question.signatures_by_node
        signatures_by_node.update(self._cluster)
        changed = {
            name: signatures_by_node.node_sig(name, self._usage, self._cluster)
            for name in self._touched(signatures_by_node)
        }
        fitting: set[NodeName] = set()
        fatal: dict[NodeName, RequestRefusal] = {}
        for node_sig, names in signatures_by_node.groups.items():
            self._sort(question, node_sig, names, fitting, fatal)
        fitting -= changed.keys()
        fatal = {name: why for name, why in fatal.items() if name not in changed}
        for name, node_sig in changed.items():
            self._sort(question, node_sig, (name,), fitting, fatal)
        error = str(fatal[min(fatal)]) if fatal else ""
        return Fitting(frozenset(fitting), frozenset(fatal), error)

    def allocate(self, question: Question, node: NodeName) -> Outcome:
        """Return what the pod gets on a node, without taking it.

        Raises StepsEndedError, and KeyError for an unknown node.
        """
        signatures_by_node = question.signatures_by_node
        signatures_by_node.update(self._cluster)
        if node not in self._cluster.nodes:
            raise KeyError(node)
        node_sig = self._node_sig(signatures_by_node, node)
        view = NodeView(
            self._cluster,
            node,
            signatures_by_node.device_signatures,
            self._usage,
            signatures_by_node.shown(node, self._usage),
        )
        return node_allocator.outcome(self._found(question, node_sig), question.claims, question.parsed_claims, view)

    def assume(self, given: Iterable[DeviceUse]) -> None:
        """Take the devices of an allocation."""
        given = tuple(given)
        self._usage.add(given)
        self.given += given

    def fork(self) -> "Allocator":
        """Return an allocator over this one, to try something; while it is in use, this one must not change."""
        found = Allocator(self._cluster, selectors=self._selectors, steps=self._steps)
        found.below, found._usage = self, AllocatedOverlay(self._usage)
        return found

    def commit(self) -> None:
        """Move the devices taken in this fork to the allocator below; the fork is as new afterwards."""
        assert self.below is not None  # noqa: S101 - only a fork can be committed
        self._usage.commit()
        self.below.given += self.given
        self.given.clear()

    def _touched(self, signatures_by_node: NodeSignatureCache) -> set[NodeName]:
        """Return the nodes whose signatures may differ from those in the cluster state."""
        found: set[NodeName] = set()
        layer: Allocator | None = self
        while layer is not None:
            found.update(*(signatures_by_node.nodes_of(use.device) for use in layer.given))
            layer = layer.below
        return found

    def _sort(
        self,
        question: Question,
        node_sig: NodeSignature,
        names: Iterable[NodeName],
        fitting: set[NodeName],
        fatal: dict[NodeName, RequestRefusal],
    ) -> None:
        found = self._found(question, node_sig)
        if isinstance(found, Match):
            fitting.update(names)
        elif isinstance(found, RequestRefusal):
            fatal.update(dict.fromkeys(names, found))

    def _node_sig(self, signatures_by_node: NodeSignatureCache, node: NodeName) -> NodeSignature:
        """Return a node's signature here: that of the cluster state, unless devices were taken."""
        return (
            signatures_by_node.node_sig(node, self._usage, self._cluster)
            if self._usage.has_any
            else signatures_by_node.node_sigs[node]
        )

    def _found(self, question: Question, node_sig: NodeSignature) -> Match | DeadEnd | RequestRefusal:
        known = question.answers.get(node_sig)
        if known is None:
            units, budget = question.signatures_by_node.units, Budget(self._steps)
            known = search(question.parsed_claims, node_sig.contents, units, self._cluster.profile, budget)
            question.answers[node_sig] = known
        return known
