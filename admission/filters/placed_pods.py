"""The pods that are on nodes, as the filters of kube-scheduler see them: what they are, where, and what they forbid.

A pod counts where it is bound, and where it is about to be bound. What the filters ask often is indexed: nodes with
pods that have anti-affinity, and nodes with host ports in use.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from admission.api.kubernetes.nodes import Namespace, Node
from admission.api.kubernetes.pods import Pod
from admission.api.scheduling.pod_volumes import PodVolume
from admission.api.scheduling.scheduling_rules import AffinityTerm, HostPort, SchedulingRules
from admission.api.storage.assumed_volumes import AssumedVolumes
from admission.api.storage.storage import Storage
from admission.api.values.names import NodeName, Uid
from admission.api.values.selectors import LabelSelector
from admission.filters import pod_claims, volume_binding
from admission.filters.pod_claims import CsiVolume, PodClaims
from admission.filters.refusal import Nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPod:
    """A pod on a node: the part of it that filters read. deleted: whether its deletion has begun.

    claims: the name of the claim of each of its volumes; empty text for a volume without one. device_claims: its
    resource claims with devices that take resources of its node. turn: its place in the order in which nodes were
    granted; None for pods that Muster did not place. priority: of those.
    """

    namespace: str
    labels: Mapping[str, str]
    rules: SchedulingRules
    deleted: bool = False
    claims: tuple[str, ...] = ()
    turn: int | None = None
    device_claims: tuple[str, ...] = ()
    priority: int = 0

    @classmethod
    def of(cls, pod: Pod, turn: int | None = None) -> Self:
        """Return this part of a pod."""
        return cls(
            namespace=pod.meta.namespace,
            labels=pod.meta.labels,
            rules=pod.rules,
            deleted=pod.meta.deleted is not None,
            claims=tuple([volume.claim_of(pod.meta.name) for volume in pod.rules.volumes]),
            turn=turn if pod.rules.volumes else None,
            device_claims=pod.claimed.by,
            priority=pod.priority if turn is not None and pod.rules.volumes else 0,
        )

    @property
    def keeps_off(self) -> bool:
        """Whether it may keep other pods off its node or domain."""
        return bool(self.rules.anti_affinity or self.rules.ports)

    def as_guard(self) -> "PlacedPod":
        """Return a pod that keeps others off as this one does, and that no rule of others is about."""
        rules = SchedulingRules(anti_affinity=self.rules.anti_affinity, ports=self.rules.ports)
        return PlacedPod(namespace="", labels={}, rules=rules)

    @property
    def volumes(self) -> Iterable[tuple[PodVolume, str]]:
        """Return its volumes, each with the name of its claim."""
        return zip(self.rules.volumes, self.claims, strict=True)

    @property
    def named_claims(self) -> Iterable[tuple[PodVolume, str]]:
        """Return its volumes that have a claim, each with the claim's key."""
        return ((volume, f"{self.namespace}/{name}") for volume, name in self.volumes if name)


PodsOfNode = Mapping[Uid, PlacedPod]

OnNode = tuple[NodeName, Uid, PlacedPod]
"""A pod on a node."""

_NOBODY: PodsOfNode = {}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlacedPods:
    """All pods on nodes, and the labels of namespaces. Immutable; `known` keeps answers about these very pods.

    by_node: only nodes with pods. with_anti_affinity, with_ports, with_volumes: the nodes with a pod that has such.
    storage: what volumes are; None if it is not known, and then no rule about volumes is judged.
    wanted_only: whether these pods only count where a pod has to be with them, as if they kept no pod off. leaving:
    pods that do not count; coming: pods without anti-affinity that count as well. They are taken out and added when
    somebody asks for `left`, since most gangs do not. turns: more than the turn of every pod. nominated: pods that are
    bound nowhere yet and for which a node is kept.
    """

    by_node: Mapping[NodeName, PodsOfNode] = field(default_factory=dict)
    namespaces: Mapping[str, Namespace] = field(default_factory=dict)
    with_anti_affinity: frozenset[NodeName] = frozenset()
    with_ports: frozenset[NodeName] = frozenset()
    with_volumes: frozenset[NodeName] = frozenset()
    storage: Storage | None = None
    wanted_only: bool = False
    leaving: tuple[frozenset[Uid], ...] = ()
    turns: int = 0
    coming: tuple[OnNode, ...] = ()
    nominated: Mapping[NodeName, tuple[Pod, ...]] = field(default_factory=dict)
    known: dict[Hashable, Mapping[NodeName, int]] = field(default_factory=dict, init=False, repr=False)
    _terms: dict[AffinityTerm, Counter[NodeName]] | None = field(default=None, init=False, repr=False)
    _labels: frozenset[str] | None = field(default=None, init=False, repr=False)
    _about: dict[Hashable, tuple[AffinityTerm, ...]] = field(default_factory=dict, init=False, repr=False)
    _csi: dict[NodeName, frozenset[CsiVolume]] = field(default_factory=dict, init=False, repr=False)
    _all_csi: frozenset[CsiVolume] | None = field(default=None, init=False, repr=False)
    _assumed: tuple[Nodes, AssumedVolumes] | None = field(default=None, init=False, repr=False)
    _left: "PlacedPods | None" = field(default=None, init=False, repr=False)

    @classmethod
    def build(cls, by_node: Mapping[NodeName, PodsOfNode], namespaces: Mapping[str, Namespace]) -> Self:
        """Return the pods with their indexes, all counted again."""
        return cls(
            by_node=by_node,
            namespaces=namespaces,
            with_anti_affinity=frozenset(name for name, pods in by_node.items() if has_anti_affinity(pods)),
            with_ports=frozenset(name for name, pods in by_node.items() if has_ports(pods)),
            with_volumes=frozenset(name for name, pods in by_node.items() if has_volumes(pods)),
        )

    def within(self, namespaces: Mapping[str, Namespace]) -> "PlacedPods":
        """Return these pods with the namespaces as they are now."""
        if namespaces is self.namespaces or namespaces == self.namespaces:
            return self
        return replace(self, namespaces=namespaces)

    def stored(self, storage: Storage | None) -> "PlacedPods":
        """Return these pods with the storage as it is now."""
        return self if storage is self.storage else replace(self, storage=storage)

    def with_nominated(self, nominated: Mapping[NodeName, tuple[Pod, ...]]) -> "PlacedPods":
        """Return these pods with other pods for which nodes are kept."""
        return self if nominated is self.nominated else replace(self, nominated=nominated)

    def nominated_beside(self, pod: Pod) -> Mapping[NodeName, tuple[Pod, ...]]:
        """Return the pods for which nodes are kept from a pod: those of no lower priority.

        As `addGENominatedPods` of `pkg/scheduler/framework/runtime/framework.go` (v1.37).
        """
        kept = {
            node: tuple(one for one in pods if one.priority >= pod.priority and one.meta.uid != pod.meta.uid)
            for node, pods in self.nominated.items()
        }
        return {node: pods for node, pods in kept.items() if pods}

    def changed(self, pods: Mapping[NodeName, PodsOfNode], turns: int = 0) -> "PlacedPods":
        """Return the pods with those of some nodes replaced. pods: by node; a node without any has none from now on.

        turns: more than the turn of each of them.
        """
        if not pods:
            return self
        by_node = {**self.by_node, **pods}
        for name, there in pods.items():
            if not there:
                del by_node[name]
        anti = {name for name, there in pods.items() if has_anti_affinity(there)}
        ports = {name for name, there in pods.items() if has_ports(there)}
        volumes = {name for name, there in pods.items() if has_volumes(there)}
        found = replace(
            self,
            by_node=by_node,
            turns=max(self.turns, turns),
            with_anti_affinity=_replaced(self.with_anti_affinity, pods, anti),
            with_ports=_replaced(self.with_ports, pods, ports),
            with_volumes=_replaced(self.with_volumes, pods, volumes),
        )
        # What was read of nodes that stay is kept.
        found._csi.update((name, known) for name, known in self._csi.items() if name not in pods)  # noqa: SLF001
        return found

    def added(self, pods: Iterable[OnNode], turns: int = 0) -> "PlacedPods":
        """Return these pods and more. turns: more than the turn of each of them."""
        more: dict[NodeName, dict[Uid, PlacedPod]] = {}
        for node, uid, pod in pods:
            more.setdefault(node, dict(self.on(node)))[uid] = pod
        return self.changed(more, turns)

    def granted(self, pods: Iterable[tuple[NodeName, Uid, Pod]]) -> "PlacedPods":
        """Return these pods and more, to which nodes are granted in this order."""
        listed = [(node, uid, PlacedPod.of(pod, self.turns + at)) for at, (node, uid, pod) in enumerate(pods)]
        return self.added(listed, self.turns + len(listed))

    def without(self, uids: frozenset[Uid]) -> "PlacedPods":
        """Return these pods without some of them."""
        if not uids:
            return self
        return self.changed(
            {
                node: {uid: pod for uid, pod in there.items() if uid not in uids}
                for node, there in self.by_node.items()
                if not uids.isdisjoint(there)
            }
        )

    def without_later(self, leaving: Iterable[frozenset[Uid]]) -> "PlacedPods":
        """Return these pods, of which some do not count, at no cost until somebody asks for those that are left."""
        return replace(self, leaving=(*self.leaving, *leaving))

    def added_later(self, pods: Iterable[OnNode]) -> "PlacedPods":
        """Return these pods and more, which cost nothing until somebody asks for those that count.

        Those with anti-affinity are added at once: it may be about gangs that have no rules.
        """
        pods = tuple(pods)
        if not pods:
            return self
        found = self.added(one for one in pods if one[2].rules.anti_affinity)
        return replace(found, coming=(*self.coming, *(one for one in pods if not one[2].rules.anti_affinity)))

    @property
    def left(self) -> "PlacedPods":
        """Return the pods that count."""
        if not self.leaving and not self.coming:
            return self
        found = self._left
        if found is None:
            found = replace(self, leaving=(), coming=()).without(frozenset[Uid]().union(*self.leaving))
            found = found.added(self.coming)
            object.__setattr__(self, "_left", found)
        return found

    def as_wanted_only(self) -> "PlacedPods":
        """Return these pods as if they kept no pod off any node."""
        return PlacedPods(by_node=self.by_node, namespaces=self.namespaces, storage=self.storage, wanted_only=True)

    def on(self, node: NodeName) -> PodsOfNode:
        """Return the pods of a node."""
        return self.by_node.get(node, _NOBODY)

    def differing(self, other: "PlacedPods", nodes: Iterable[NodeName]) -> set[NodeName]:
        """Return those of some nodes on which other pods are, or for other pods of which they are kept."""
        if self.by_node is other.by_node and self.nominated is other.nominated:
            return set()
        before, now = self.nominated, other.nominated
        return {name for name in nodes if self.on(name) != other.on(name) or before.get(name) != now.get(name)}

    def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        """Return the labels of a namespace; of one that is not known, that which the API server gives to each."""
        known = self.namespaces.get(namespace)
        return known.labels if known is not None else {"kubernetes.io/metadata.name": namespace}

    def has_term_of(self, term: AffinityTerm, pod: Pod | PlacedPod) -> bool:
        """Return whether a term is about a pod."""
        namespace, labels = (
            (pod.meta.namespace, pod.meta.labels) if isinstance(pod, Pod) else (pod.namespace, pod.labels)
        )
        return term.matches(namespace, labels, self.namespace_labels(namespace))

    @property
    def anti_affinity_terms(self) -> Mapping[AffinityTerm, Mapping[NodeName, int]]:
        """Return the required anti-affinity terms of these pods, each with the nodes of the pods that have it."""
        found = self._terms
        if found is None:
            found = {}
            for node in self.with_anti_affinity:
                for pod in self.by_node[node].values():
                    for term in pod.rules.anti_affinity:
                        found.setdefault(term, Counter())[node] += 1
            object.__setattr__(self, "_terms", found)
        return found

    @property
    def keep_pods_off(self) -> bool:
        """Return whether some pod, there or nominated, has required anti-affinity."""
        return bool(self.with_anti_affinity) or any(
            pod.rules.anti_affinity for pods in self.nominated.values() for pod in pods
        )

    @property
    def read_labels(self) -> frozenset[str]:
        """Return the labels of pods that these terms read, or those of nominated pods."""
        found = self._labels
        if found is None:
            nominated = (term for pods in self.nominated.values() for pod in pods for term in pod.rules.anti_affinity)
            terms = (*self.anti_affinity_terms, *nominated)
            found = frozenset(key for term in terms for key in selector_keys(term.selector))
            object.__setattr__(self, "_labels", found)
        return found

    def terms_about(self, pod: Pod) -> tuple[AffinityTerm, ...]:
        """Return those of these terms that are about a pod; found once for pods of a namespace with the same labels."""
        if not self.with_anti_affinity:
            return ()
        labels = pod.meta.labels
        key = (pod.meta.namespace, tuple((name, labels[name]) for name in sorted(self.read_labels) if name in labels))
        known = self._about.get(key)
        if known is None:
            known = tuple(term for term in self.anti_affinity_terms if self.has_term_of(term, pod))
            self._about[key] = known
        return known

    def matching(self, terms: tuple[AffinityTerm, ...]) -> Mapping[NodeName, int]:
        """Return how many pods of each node all of these terms are about; counted once."""
        if terms not in self.known:
            self.known[terms] = self._count(
                lambda pod: all(self.has_term_of(term, pod) for term in terms), _namespaces(terms)
            )
        return self.known[terms]

    def selected(self, namespace: str, selector: LabelSelector | None) -> Mapping[NodeName, int]:
        """Return how many pods of a namespace a selector matches on each node, without those that are being deleted.

        As `countPodsMatchSelector` of PodTopologySpread: a selector that is empty, and so matches every pod, counts
        none.
        """
        if selector is None or not selector.requirements or self.wanted_only:
            return {}
        key = (namespace, selector)
        if key not in self.known:
            self.known[key] = self._count(
                lambda pod: not pod.deleted and selector.matches(pod.labels), frozenset({namespace})
            )
        return self.known[key]

    def _count(self, matches: Callable[[PlacedPod], bool], namespaces: frozenset[str] | None) -> Counter[NodeName]:
        found: Counter[NodeName] = Counter()
        for node, pods in self.by_node.items():
            for pod in pods.values():
                if (namespaces is None or pod.namespace in namespaces) and matches(pod):
                    found[node] += 1
        return found

    def csi_volumes(self, node: NodeName) -> frozenset[CsiVolume]:
        """Return the volumes of the pods on a node that count there; none where nothing is known of them."""
        storage = self.storage
        if storage is None or node not in self.with_volumes:
            return frozenset()
        known = self._csi.get(node)
        if known is None:
            named = ((one, f"{pod.namespace}/{name}") for pod in self.on(node).values() for one, name in pod.volumes)
            known = self._csi[node] = frozenset(pod_claims.csi_volumes(named, storage, migrates=True))
        return known

    @property
    def all_csi_volumes(self) -> frozenset[CsiVolume]:
        """Return those of all nodes."""
        found = self._all_csi
        if found is None:
            found = frozenset[CsiVolume]().union(*map(self.csi_volumes, self.with_volumes))
            object.__setattr__(self, "_all_csi", found)
        return found

    def assumed(self, nodes: Nodes) -> AssumedVolumes:
        """Return which volumes claims get of pods that are granted a node and whose binding is not seen yet.

        As kube-scheduler assumes them, one pod after the other.
        """
        known = self._assumed
        if known is None or known[0] is not nodes:
            storage = self.storage
            found = AssumedVolumes() if storage is None else volume_binding.assumed_of(self._waiting(nodes), storage)
            known = nodes, found
            object.__setattr__(self, "_assumed", known)
        return known[1]

    def _waiting(self, nodes: Nodes) -> Iterable[tuple[PodClaims, Node, int]]:
        """Return the pods that Muster has placed and that have claims which are not bound, in their turns.

        With their priorities.
        """
        storage = self.storage
        if storage is None or not storage.unbound or self.wanted_only:
            return []
        found = [
            (pod.turn, uid, name, pod)
            for name in self.with_volumes
            if name in nodes
            for uid, pod in self.on(name).items()
            if pod.turn is not None and any(f"{pod.namespace}/{one}" in storage.unbound for one in pod.claims)
        ]
        found.sort(key=lambda one: (one[0], one[1]))
        return [
            (pod_claims.resolve_named(pod.named_claims, uid, storage), nodes[name], pod.priority)
            for _, uid, name, pod in found
        ]

    def ports(self, node: NodeName) -> list[HostPort]:
        """Return the host ports in use on a node."""
        return [port for pod in self.on(node).values() for port in pod.rules.ports] if node in self.with_ports else []


def selector_keys(selector: LabelSelector | None) -> Iterable[str]:
    """Return the labels that a selector reads."""
    return (one.key for one in selector.requirements) if selector is not None else ()


def has_anti_affinity(pods: PodsOfNode) -> bool:
    """Return whether one of these pods has required anti-affinity."""
    return any(pod.rules.anti_affinity for pod in pods.values())


def has_ports(pods: PodsOfNode) -> bool:
    """Return whether one of these pods has a host port."""
    return any(pod.rules.ports for pod in pods.values())


def has_volumes(pods: PodsOfNode) -> bool:
    """Return whether one of these pods has a volume that rules read."""
    return any(pod.rules.volumes for pod in pods.values())


def _replaced(before: frozenset[NodeName], moved: Iterable[NodeName], now: Iterable[NodeName]) -> frozenset[NodeName]:
    """Return a set of nodes with those of `moved` in it that are in `now`; the same object if nothing differs."""
    after = before.difference(moved).union(now)
    return before if after == before else after


def _namespaces(terms: Iterable[AffinityTerm]) -> frozenset[str] | None:
    """Return the namespaces that all pods of the terms are in; None if labels select them."""
    terms = tuple(terms)
    if any(term.namespace_selector is not None for term in terms):
        return None
    return frozenset.intersection(*(term.namespaces for term in terms)) if terms else None
