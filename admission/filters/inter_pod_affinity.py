"""InterPodAffinity: required pod affinity and anti-affinity, of a pod and of those that are there already.

As `pkg/scheduler/framework/plugins/interpodaffinity/filtering.go` (v1.37): counts by label and value of nodes, made
from all pods that are there and kept up to date while others are assumed and forgotten.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from admission.api.kubernetes.nodes import Node
from admission.api.kubernetes.pods import Pod
from admission.api.scheduling import exclusive_domains
from admission.api.scheduling.scheduling_rules import AffinityTerm
from admission.filters.placed_pods import PlacedPods
from admission.filters.refusal import Nodes, Refusal, Rule

Domain = tuple[str, str]
"""A label of nodes, and its value."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What another pod means to this one: it is one that this one has to be with, or may not be with.

    wanted: whether all affinity terms are about it. unwanted: labels of this pod's anti-affinity terms that are about
    it. objects: labels of its own anti-affinity terms that are about this pod.
    """

    wanted: bool
    unwanted: tuple[str, ...]
    objects: tuple[str, ...]

    def __bool__(self) -> bool:
        return self.wanted or bool(self.unwanted) or bool(self.objects)


NO_EFFECT = Effect(wanted=False, unwanted=(), objects=())


class InterPodAffinity:
    """The filter's state for one pod."""

    __slots__ = ("_annotations", "_existing", "_is_one_of_them", "_placed", "_pod", "_unwanted", "_wanted")

    def __init__(self, pod: Pod, placed: PlacedPods, nodes: Nodes) -> None:
        self._pod = pod
        self._placed = placed
        rules = pod.rules
        self._is_one_of_them = all(placed.has_term_of(term, pod) for term in rules.affinity)
        self._wanted: Counter[Domain] = Counter()
        self._unwanted: Counter[Domain] = Counter()
        self._existing: Counter[Domain] = Counter()
        if rules.affinity:
            for node, count in placed.matching(rules.affinity).items():
                _count(self._wanted, nodes.get(node), (term.topology_key for term in rules.affinity), count)
        for term in rules.anti_affinity if not placed.wanted_only else ():
            for node, count in placed.matching((term,)).items():
                _count(self._unwanted, nodes.get(node), (term.topology_key,), count)
        self._annotations: dict[str, str] = {}
        """By label of nodes, the annotation for which all anti-affinity of others about the pod was written, if any."""
        for term in placed.terms_about(pod):
            self._note(term)
            for node, count in placed.anti_affinity_terms[term].items():
                _count(self._existing, nodes.get(node), (term.topology_key,), count)

    def __bool__(self) -> bool:
        """Return whether the filter may refuse any node."""
        return bool(self._pod.rules.affinity or self._pod.rules.anti_affinity or self._existing)

    def copy(self) -> Self:
        found = object.__new__(type(self))
        found._pod, found._placed, found._is_one_of_them = self._pod, self._placed, self._is_one_of_them
        found._annotations = self._annotations
        found._wanted, found._unwanted, found._existing = (
            Counter(self._wanted),
            Counter(self._unwanted),
            Counter(self._existing),
        )
        return found

    def effect(self, other: Pod) -> Effect:
        """Return what another pod of the gang means to this one, wherever it is."""
        placed, rules = self._placed, self._pod.rules
        objecting = [term for term in other.rules.anti_affinity if placed.has_term_of(term, self._pod)]
        for term in objecting:
            self._note(term)
        return Effect(
            wanted=bool(rules.affinity) and all(placed.has_term_of(term, other) for term in rules.affinity),
            unwanted=_about(rules.anti_affinity, other, placed),
            objects=tuple(term.topology_key for term in objecting),
        )

    def add(self, effect: Effect, node: Node, times: int) -> None:
        """Count a pod with this effect on a node; times: -1 to forget it."""
        if effect.wanted:
            _count(self._wanted, node, (term.topology_key for term in self._pod.rules.affinity), times)
        _count(self._unwanted, node, effect.unwanted, times)
        _count(self._existing, node, effect.objects, times)

    def refuses(self, node: Node) -> Refusal | None:
        """Return why the pod may not go to a node now."""
        if self._pod.rules.affinity and (refusal := self._refuses_affinity(node)) is not None:
            return refusal
        return self._refuses_anti_affinity(node.meta.labels)

    def bars(self, node: Node) -> Refusal | None:
        """Return why the pod may not go to a node, however many pods come: pods that are there forbid it."""
        labels = node.meta.labels
        for term in self._pod.rules.affinity:
            if term.topology_key not in labels:
                return Refusal(Rule.POD_AFFINITY, term.topology_key)
        return self._refuses_anti_affinity(labels)

    def _refuses_anti_affinity(self, labels: Mapping[str, str]) -> Refusal | None:
        if self._unwanted:
            for term in self._pod.rules.anti_affinity:
                key = term.topology_key
                if key in labels and self._unwanted.get((key, labels[key]), 0) > 0:
                    by = exclusive_domains.annotation(term)
                    return Refusal(Rule.POD_ANTI_AFFINITY, key, labels[key], annotation=by)
        if self._existing:
            for key, value in labels.items():
                if self._existing.get((key, value), 0) > 0:
                    by = self._annotations.get(key, "")
                    return Refusal(Rule.ANTI_AFFINITY_OF_OTHERS, key, value, annotation=by)
        return None

    def _refuses_affinity(self, node: Node) -> Refusal | None:
        terms, labels = self._pod.rules.affinity, node.meta.labels
        for term in terms:
            if term.topology_key not in labels:
                return Refusal(Rule.POD_AFFINITY, term.topology_key)
        missing = [term for term in terms if self._wanted.get((term.topology_key, labels[term.topology_key]), 0) <= 0]
        # The first pod of a group whose pods want to be with each other may go anywhere.
        if not missing or (self._is_one_of_them and not self._wanted):
            return None
        key = missing[0].topology_key
        by = next(filter(None, map(exclusive_domains.annotation, terms)), "")
        if len(terms) == 1:
            return Refusal(Rule.POD_AFFINITY, key, labels[key], annotation=by)
        text = f"no pod that all of its {len(terms)} terms are about is in {key} {labels[key]}"
        return Refusal(Rule.POD_AFFINITY, key, labels[key], text, f"{by} beside podAffinity" if by else "")

    def _note(self, term: AffinityTerm) -> None:
        """Remember for which annotation a term of another pod was written that is about this one."""
        key, by = term.topology_key, exclusive_domains.annotation(term)
        self._annotations[key] = by if self._annotations.get(key, by) == by else ""

    @property
    def met(self) -> frozenset[str]:
        """Return the node labels in whose domains are pods that matter to this one, or to which it matters."""
        return frozenset(key for counted in (self._wanted, self._unwanted, self._existing) for key, _ in counted)

    @property
    def has_company(self) -> bool:
        """Return whether pods are there that this one has to be with."""
        return bool(self._wanted)

    def view(self, node: Node) -> bool | None:
        """Return what tells nodes apart that are the only ones of their domains, beside what is barred."""
        terms, labels = self._pod.rules.affinity, node.meta.labels
        if not terms:
            return None
        return all(self._wanted[term.topology_key, labels.get(term.topology_key, "")] > 0 for term in terms)


def _about(terms: Iterable[AffinityTerm], pod: Pod, placed: PlacedPods) -> tuple[str, ...]:
    return tuple(term.topology_key for term in terms if placed.has_term_of(term, pod))


def _count(counts: Counter[Domain], node: Node | None, keys: Iterable[str], times: int) -> None:
    if node is None:
        return
    for key in keys:
        value = node.meta.labels.get(key)
        if value is not None:
            counts[key, value] += times
            if not counts[key, value]:
                del counts[key, value]
