"""The rules between the pods of one gang, and between them and the pods that are there.

Pods to which and of which the same rules apply have one number. The rules of a number whose pods no pod of the gang
affects only exclude nodes, once and for all. The others are *coupled*: a search evaluates them again for every pod that
it assumes on a node. `RulesSearch` is the state of one search.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple, Self

from admission.api.kubernetes.nodes import Node
from admission.api.kubernetes.pods import Pod
from admission.api.values.names import NodeName
from admission.api.values.selectors import Requirement
from admission.filters import gang_volumes, node_volume_limits, volume_rules
from admission.filters.gang_volumes import GangVolumes, Tokens, VolumeSearch
from admission.filters.placed_pods import PlacedPods
from admission.filters.pod_claims import SharedVolumes
from admission.filters.pod_rules import Effect, PodRules
from admission.filters.refusal import Nodes, Refusal, Rule
from admission.filters.volume_binding import VolumeBinding

HOSTNAME = "kubernetes.io/hostname"
NOT_SHARED = SharedVolumes()
NO_PODS: Mapping[int, Pod] = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class ExcludingRules:
    """The affinity and anti-affinity of a pod that match no pod of its gang, only placed ones.

    labels: all that they read. known: by values of the labels, why nodes that have them are refused.
    """

    state: PodRules
    labels: tuple[str, ...]
    known: dict[tuple[str | None, ...], Refusal | None] = field(default_factory=dict)

    @classmethod
    def of(cls, pod: Pod, placed: PlacedPods, nodes: Nodes) -> Self | None:
        """Return the rules of a pod that has no others; None if no placed pod matters to them."""
        state = PodRules(pod, placed, nodes)
        if not state.met:
            return None
        terms = (*pod.rules.affinity, *pod.rules.anti_affinity)
        return cls(state, tuple({*state.met, *(term.topology_key for term in terms)}))

    def refuses(self, node: Node) -> Refusal | None:
        """Return why the pod may not go to a node."""
        key = tuple(map(node.meta.labels.get, self.labels))
        if key not in self.known:
            self.known[key] = self.state.refuses(node)
        return self.known[key]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GangRules:
    """The rules of a gang. states: by number, before any pod of the gang is placed. counts: by number, its pods.

    effects: by number, what a pod of each number means to it. coupled: the numbers whose rules change with the gang's
    pods. volumes: those for which pods of the gang compete; None if none do. keys: the labels whose domains matter.
    excluding: by number, rules that match no pod of the gang, so that they only exclude nodes.
    representatives: by number, the first one that differs in those alone.
    """

    nodes: Nodes
    states: tuple[PodRules, ...]
    counts: tuple[int, ...]
    effects: Mapping[int, Mapping[int, Effect]] = field(default_factory=dict)
    volumes: GangVolumes | None = None
    excluding: Mapping[int, ExcludingRules] = field(default_factory=dict)
    representatives: tuple[int, ...] = ()
    keys: tuple[str, ...] = field(init=False)
    earlier: Mapping[int, tuple[int, ...]] = field(init=False)
    """By number, those of higher priority that compete for the same volumes: kube-scheduler takes their pods first."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", tuple(self._keys()))
        object.__setattr__(self, "earlier", self._earlier())

    @property
    def coupled(self) -> frozenset[int]:
        """Return the numbers whose rules change with the gang's pods."""
        return frozenset(self.effects)

    @property
    def depend_on_order(self) -> bool:
        """Return whether other pods that come first may make room for a pod."""
        return any(map(self._depends_on_order, self.effects))

    def _depends_on_order(self, number: int) -> bool:
        binding = self.volumes.bindings.get(number) if self.volumes is not None else None
        shares = binding is not None and bool(binding.shared)
        return self.states[number].pod.rules.depend_on_order or shares or number in self.earlier

    def rank(self, number: int) -> int:
        """Return which pods come first, where kube-scheduler's order matters: those with the lowest rank."""
        return -self.states[number].pod.priority if self.earlier else 0

    def _earlier(self) -> dict[int, tuple[int, ...]]:
        if self.volumes is None or self.volumes.commute:
            return {}
        found = {
            number: tuple(other for other in self.volumes.bindings if self._comes_before(other, number))
            for number in self.volumes.bindings
        }
        return {number: others for number, others in found.items() if others}

    def _comes_before(self, other: int, number: int) -> bool:
        effect = self.effects.get(number, {}).get(other)
        competes = effect is not None and effect[1] is not None and effect[1].competes
        return competes and self.states[other].pod.priority > self.states[number].pod.priority

    @property
    def commute(self) -> bool:
        """Return whether a plan that is valid in one order of its pods is so in every other."""
        return not self.depend_on_order and (self.volumes is None or self.volumes.commute)

    @property
    def are_plain(self) -> bool:
        """Return whether pods of one number only exclude each other from domains of one label at most.

        Then how many of them find a place does not depend on where the first ones go.
        """
        return self.commute and len(self.effects) == 1 and len(self.keys) <= 1

    @property
    def relaxed(self) -> "GangRules | None":
        """Return the rules that hold for each part of the gang if they hold for the whole of it.

        Affinity to pods of another part, and the counts of a spread, do not.
        """
        kept = {number: effects for number, effects in self.effects.items() if not self._depends_on_order(number)}
        return replace(self, effects=kept) if kept else None

    def _keys(self) -> dict[str, None]:
        found: dict[str, None] = {}
        for number, effects in self.effects.items():
            rules = self.states[number].pod.rules
            found |= dict.fromkeys(term.topology_key for term in (*rules.affinity, *rules.anti_affinity))
            found |= dict.fromkeys(key for one in rules.spread for key in (one.topology_key, one.within) if key)
            found |= dict.fromkeys(key for _, _, _, affinity in effects.values() for key in affinity.objects)
        return found

    def may_exclude(self, number: int) -> bool:
        """Return whether pods of a number may be kept off a node, wherever other pods of the gang go."""
        return bool(self.states[number]) or number in self.excluding

    def excludes(self, number: int, node: Node) -> Refusal | None:
        """Return why pods of a number may not go to a node, wherever other pods of the gang go."""
        state, excluding = self.states[number], self.excluding.get(number)
        refusal = excluding.refuses(node) if excluding is not None else None
        if refusal is not None:
            return refusal
        return state.bars(node) if number in self.effects else state.refuses(node)

    def are_apart(self, number: int, other: int) -> frozenset[str]:
        """Return the node labels by whose domains pods of two numbers exclude each other; or two pods of one number.

        An empty label stands for the node itself.
        """
        effect = self.effects.get(number, {}).get(other)
        if effect is None:
            return frozenset()
        ports, volumes, _, affinity = effect
        on_node = ports or (volumes is not None and volumes.apart)
        return frozenset((*affinity.unwanted, *affinity.objects, *([""] if on_node else [])))

    def most(self, number: int, place: "Place") -> int | None:
        """Return the most further pods of a number that a node takes; None where rules set no bound."""
        if self._takes_one(number, place):
            return 1
        if self.volumes is None:
            return None
        spent = (token for (_, tokens), count in place.here for _ in range(count) for token in tokens)
        return self.volumes.most(number, place.volumes, spent)

    def _takes_one(self, number: int, place: "Place") -> bool:
        apart = self.are_apart(number, number)
        return "" in apart or any(
            key in apart and domain is not None for key, domain in zip(self.keys, place.domains, strict=True)
        )

    def apart_from_each_other(self, numbers: Iterable[int]) -> Iterator[tuple[str, list[int]]]:
        """Yield each label with numbers whose pods all exclude each other from its domains."""
        numbers = [*numbers]
        for key in self.keys:
            group: list[int] = []
            for number in numbers:
                if all(key in self.are_apart(number, other) for other in (*group, number)) or (
                    self.is_single(number) and all(key in self.are_apart(number, other) for other in group)
                ):
                    group.append(number)
            yield key, group

    def is_single(self, number: int) -> bool:
        """Return whether the gang has one pod of a number."""
        return self.counts[number] == 1


def key_labels(pods: Iterable[Pod], placed: PlacedPods) -> frozenset[str]:
    """Return the labels of pods that any rule of these pods or of placed ones reads."""
    own = own_labels(pods)
    return placed.read_labels | own if placed.keep_pods_off else own


def own_labels(pods: Iterable[Pod]) -> frozenset[str]:
    """Return the labels of pods that the rules of these pods read."""
    return frozenset(one.key for one in requirements(pods))


def requirements(pods: Iterable[Pod]) -> Iterator[Requirement]:
    """Yield what the rules of these pods require of labels of pods."""
    for rules in {id(pod.rules): pod.rules for pod in pods}.values():
        for selector in (
            *(term.selector for term in (*rules.affinity, *rules.anti_affinity)),
            *(one.selector for one in rules.spread),
        ):
            if selector is not None:
                yield from selector.requirements


def named(pods: Sequence[Pod], placed: PlacedPods) -> list[tuple[Hashable, Mapping[str, str]]]:
    """Return what rules between pods read of each pod, and its labels among that.

    Nothing where no rule is about any of them: then no label matters to the gang.
    """
    if not may_apply(pods, placed):
        return [((), {})] * len(pods)
    labels = key_labels(pods, placed)
    prints = [fingerprint(pod, labels) for pod in pods]
    return [
        (one, {key: value for key, value in pod.meta.labels.items() if key in labels})
        for one, pod in zip(prints, pods, strict=True)
    ]


def are_named(pods: Iterable[Pod]) -> bool:
    """Return whether rules between pods may apply to pods whose labels are only those of `named`."""
    return any(pod.rules.concern_pods or pod.meta.labels or pod.rules.volumes for pod in pods)


def have_volumes(pods: Iterable[Pod], placed: PlacedPods) -> bool:
    """Return whether one of these pods has volumes that are judged."""
    return placed.storage is not None and any(pod.rules.volumes for pod in pods)


def may_apply(pods: Sequence[Pod], placed: PlacedPods) -> bool:
    """Return whether a rule may keep one of these pods off a node: its own, or the anti-affinity of one that is there.

    A pod that no rule concerns is not concerned by one with fewer pods either, so pods that leave need not be left out.
    """
    return any(pod.rules.concern_pods for pod in pods) or have_volumes(pods, placed) or are_objects(pods, placed)


def are_objects(pods: Iterable[Pod], placed: PlacedPods) -> bool:
    """Return whether the anti-affinity of a pod that is there is about any of these pods."""
    return any(placed.terms_about(pod) for pod in pods)


def may_come(pods: Iterable[tuple[NodeName, Pod]], placed: PlacedPods, nodes: Nodes) -> bool:
    """Return whether pods may come to these nodes, by their host ports and the anti-affinity on either side.

    Other rules are not asked, and nodes that are not there are left out.
    """
    pods = [(name, pod) for name, pod in pods if name in nodes]
    labels = key_labels([pod for _, pod in pods], placed)
    states: dict[Hashable, PodRules] = {}
    for name, pod in pods:
        key = fingerprint(pod, labels)
        state = states.get(key)
        if state is None:
            apart = replace(pod.rules, affinity=(), spread=(), volumes=())
            state = states[key] = PodRules(replace(pod, rules=apart), placed, nodes)
        if state.refuses(nodes[name]) is not None:
            return False
    return True


def leaves_alone(pods: Sequence[tuple[NodeName, Pod]], placed: PlacedPods, nodes: Nodes) -> bool:
    """Return whether pods may come to these nodes after others, whatever else is there. placed: those others alone.

    Where affinity or a spread constraint is about one of the others, that is not certain, and the answer no.
    """
    if not may_apply([pod for _, pod in pods], placed):
        return True
    for rules, namespace in {(pod.rules, pod.meta.namespace) for _, pod in pods}:
        counted = any(placed.selected(namespace, one.selector) for one in rules.spread)
        if counted or (rules.affinity and placed.matching(rules.affinity)):
            return False
    return may_come(pods, placed, nodes)


def numbers(pods: Sequence[Pod], placed: PlacedPods, nodes: Nodes) -> tuple[list[int], list[Pod]]:
    """Number pods by the rules that apply to them and of which they are objects; return a pod of each number too."""
    labels = key_labels(pods, placed)
    shared = shared_volumes(pods, placed)
    known: dict[Hashable, int] = {}
    firsts: list[Pod] = []
    found: list[int] = []
    for pod in pods:
        volumes = volume_rules.fingerprint(pod, placed, nodes, shared) if placed.storage is not None else None
        priority = pod.priority if placed.nominated or volumes is not None else None
        number = known.setdefault((fingerprint(pod, labels), volumes, priority), len(known))
        if number == len(firsts):
            firsts.append(pod)
        found.append(number)
    return found, firsts


def shared_volumes(pods: Sequence[Pod], placed: PlacedPods) -> SharedVolumes:
    """Return the volumes of a gang that more than one pod uses, in the gang or beside it."""
    return node_volume_limits.shared(pods, placed) if have_volumes(pods, placed) else NOT_SHARED


def fingerprint(pod: Pod, labels: frozenset[str]) -> Hashable:
    """Return all that rules about other pods read of a pod. labels: `key_labels`."""
    rules = pod.rules
    where = (tuple(sorted(pod.node_selector.items())), pod.affinity, pod.tolerations) if rules.spread else None
    own = pod.meta.labels
    # Names of volumes differ from pod to pod, and mean something only with the storage.
    return (
        pod.meta.namespace,
        (rules.affinity, rules.anti_affinity, rules.spread, rules.ports),
        tuple((key, own[key]) for key in sorted(labels) if key in own),
        where,
    )


def compiled(
    pods: Sequence[Pod],
    counts: Sequence[int],
    placed: PlacedPods,
    nodes: Nodes,
    *,
    shared: SharedVolumes = NOT_SHARED,
    excluding: Mapping[int, Pod] = NO_PODS,
) -> GangRules | None:
    """Return the rules of a gang; None if none applies. pods: one of each number; counts: how many there are of it.

    shared: `shared_volumes` of all its pods. excluding: by number, a pod with those of its rules that match no pod
    of the gang; `pods` have the others.
    """
    states = tuple(PodRules(pod, placed, nodes, pinned=True, shared=shared) for pod in pods)
    if not any(states) and not any(pod.rules.concern_pods for pod in pods) and not excluding:
        return None
    effects: dict[int, dict[int, Effect]] = {}
    for number, state in enumerate(states):
        found = {
            other: effect
            for other, pod in enumerate(pods)
            if (other != number or counts[number] > 1) and (effect := state.effect(pod)) is not None
        }
        if found:
            effects[number] = found
    competing = {
        number: state.volumes.binding
        for number, state in enumerate(states)
        if state.volumes is not None and any(one[1] is not None and one[1].competes for one in _of(effects, number))
    }
    volumes = gang_volumes.build(competing, placed.assumed(nodes), nodes)
    return GangRules(
        nodes=nodes,
        states=states,
        counts=tuple(counts),
        effects=effects,
        volumes=volumes,
        excluding={
            number: rules
            for number, pod in excluding.items()
            if (rules := ExcludingRules.of(pod, placed, nodes)) is not None
        },
        representatives=_representatives(numbers(pods, placed, nodes)[0] if excluding else range(len(pods))),
    )


def _representatives(numbered: Iterable[int]) -> tuple[int, ...]:
    """Return for each pod the place of the first one that has its number."""
    first: dict[int, int] = {}
    return tuple(first.setdefault(number, at) for at, number in enumerate(numbered))


def _of(effects: Mapping[int, Mapping[int, Effect]], number: int) -> Iterable[Effect]:
    return effects.get(number, {}).values()


class Place(NamedTuple):
    """What rules know of a node: its domains, what is there without the gang, and the gang's pods on it.

    here: by number and the tokens of the volumes that they have got, how many. volumes: those that were free there.
    """

    domains: tuple[str | int | None, ...]
    view: Hashable
    here: tuple[tuple[tuple[int, Tokens], int], ...] = ()
    volumes: Tokens = ()


class RulesSearch:
    """The coupled rules of a gang in one search. Only `assume` and `forget` change it."""

    def __init__(self, rules: GangRules, names: Sequence[NodeName]) -> None:
        """names: the nodes that the search uses."""
        self.rules = rules
        self._volumes = VolumeSearch(rules.volumes) if rules.volumes is not None else None
        self._states = {number: rules.states[number].copy(self._binding(number)) for number in rules.effects}
        self._nodes = rules.nodes
        self._left = list(rules.counts)
        """By number, how many of its pods are not placed."""
        self._keys = rules.keys
        self._here: dict[NodeName, Counter[tuple[int, Tokens]]] = {}
        self._affects: dict[int, list[tuple[PodRules, Effect]]] = {}
        for number, effects in rules.effects.items():
            for other, effect in effects.items():
                self._affects.setdefault(other, []).append((self._states[number], effect))
        viewed = [state for state in self._states.values() if state.tells_apart]
        several = [Counter(self._nodes[name].meta.labels.get(key) for name in names) for key in self._keys]
        shared = [{value for value, times in counts.items() if value and times > 1} for counts in several]
        self._beginning = {name: self._without_gang(self._nodes[name], shared, viewed) for name in names}

    def _binding(self, number: int) -> VolumeBinding | None:
        return self._volumes.binding(number) if self._volumes is not None else None

    def refuses(self, number: int, node: NodeName) -> Refusal | None:
        """Return why a pod of a number may not go to a node now."""
        state = self._states.get(number)
        if state is None:
            return None
        if any(self._left[other] for other in self.rules.earlier.get(number, ())):
            return Refusal(Rule.TURN, "")
        return state.refuses(self._nodes[node])

    def assume(self, number: int, node: NodeName) -> None:
        """Place a pod on a node."""
        self._left[number] -= 1
        self._add(number, node, self._volumes.assume(number, self._nodes[node]) if self._volumes is not None else (), 1)

    def forget(self, number: int, node: NodeName) -> None:
        """Forget the pod that was assumed last, on its node."""
        self._left[number] += 1
        self._add(number, node, self._volumes.forget() if self._volumes is not None else (), -1)

    def are_short_of_volumes(self, pods: Mapping[int, int]) -> bool:
        """Return whether too few volumes are left for these pods, wherever they go. pods: how many of each number."""
        return self._volumes is not None and self._volumes.are_too_few(pods)

    def _add(self, number: int, node: NodeName, tokens: Tokens, times: int) -> None:
        affected = self._affects.get(number)
        if affected is None:
            return
        for state, effect in affected:
            state.add(effect, self._nodes[node], times)
        here = self._here.setdefault(node, Counter())
        here[number, tokens] += times
        if not here[number, tokens]:
            del here[number, tokens]

    def place(self, name: NodeName) -> Place:
        """Return a key that is equal for nodes that no rule tells apart: of one domain, or alone in equal ones."""
        here = self._here.get(name)
        return self._beginning[name]._replace(here=tuple(sorted(here.items()))) if here else self._beginning[name]

    def _without_gang(self, node: Node, shared: Sequence[Collection[str]], viewed: Sequence[PodRules]) -> Place:
        """Return the key of a node without pods of the gang."""
        labels, domains = node.meta.labels, list[str | int | None]()
        for key, values in zip(self._keys, shared, strict=True):
            value = labels.get(key)
            domains.append(value if value in values else None if value is None else 1)
        volumes = self.rules.volumes.on.get(node.name, ()) if self.rules.volumes is not None else ()
        return Place(tuple(domains), tuple(state.view(node) for state in viewed), volumes=volumes)
