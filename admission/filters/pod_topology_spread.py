"""PodTopologySpread: the constraints with `DoNotSchedule` of a pod.

As `pkg/scheduler/framework/plugins/podtopologyspread/filtering.go` (v1.37). kube-scheduler's default constraints are
`ScheduleAnyway` and filter nothing.
"""

from collections import Counter
from collections.abc import Hashable
from typing import Self

from admission.api.kubernetes.nodes import Node
from admission.api.kubernetes.pods import Pod
from admission.api.scheduling.scheduling_rules import SpreadConstraint
from admission.api.values.names import NodeName
from admission.api.values.selectors import first_untolerated
from admission.filters.placed_pods import PlacedPods
from admission.filters.refusal import Nodes, Refusal, Rule

Effect = tuple[int, ...]
"""The constraints of a pod that count another pod, by number."""

_Domain = tuple[str, str]
"""The value of the label within which a constraint counts, empty for all nodes; and that of its topology key."""


class PodTopologySpread:
    """The filter's state for one pod. pinned: whether the pod will be bound to one node by its node affinity.

    Of a pinned pod kube-scheduler counts only that node wherever a constraint honors node affinity, so that there is
    one domain, and with minDomains the pods on that node alone must not be too many.
    """

    __slots__ = ("_counted", "_counts", "_domains", "_on_node", "_own", "_pinned", "_placed", "_pod")

    def __init__(self, pod: Pod, placed: PlacedPods, nodes: Nodes, *, pinned: bool = False) -> None:
        self._pod = pod
        self._placed = placed
        constraints = pod.rules.spread
        self._pinned = pinned
        self._own = [one.selector is not None and one.selector.matches(pod.meta.labels) for one in constraints]
        self._counts: list[Counter[_Domain]] = [Counter() for _ in constraints]
        """Per constraint the pods by domain; domains without any are in it."""
        self._domains: list[dict[str, Counter[int]]] = [{} for _ in constraints]
        """Per constraint, and value within which it counts, how many domains have so many pods."""
        self._on_node: list[Counter[NodeName]] = [Counter() for _ in constraints]
        """Per constraint the pods by node, where one node alone is judged."""
        self._counted: dict[NodeName, tuple[bool, ...]] = {}
        if constraints:
            self._fill(nodes)

    def _fill(self, nodes: Nodes) -> None:
        pod = self._pod
        for at, constraint in enumerate(pod.rules.spread):
            matching, counts = self._placed.selected(pod.meta.namespace, constraint.selector), self._counts[at]
            if self._is_alone(constraint):
                self._on_node[at].update(matching)
            for name, node in nodes.items():
                if self._eligible(node)[at]:
                    counts[_domain(constraint, node)] += matching.get(name, 0)
            for (within, _), count in counts.items():
                self._domains[at].setdefault(within, Counter())[count] += 1

    def __bool__(self) -> bool:
        """Return whether the filter may refuse any node."""
        return bool(self._pod.rules.spread)

    def copy(self) -> Self:
        found = object.__new__(type(self))
        found._pod, found._placed, found._pinned = self._pod, self._placed, self._pinned
        found._own, found._counted = self._own, self._counted
        found._counts = [Counter(one) for one in self._counts]
        found._domains = [{value: Counter(one) for value, one in each.items()} for each in self._domains]
        found._on_node = [Counter(one) for one in self._on_node]
        return found

    def effect(self, other: Pod) -> Effect:
        """Return the constraints that count another pod of the gang."""
        if other.meta.namespace != self._pod.meta.namespace or other.meta.deleted is not None:
            return ()
        return tuple(
            at
            for at, one in enumerate(self._pod.rules.spread)
            if one.selector is not None and one.selector.requirements and one.selector.matches(other.meta.labels)
        )

    def nominated(self, other: Pod) -> Effect:
        """Return the constraints that count a pod for which a node is kept: of empty selectors and ending pods, too."""
        if other.meta.namespace != self._pod.meta.namespace:
            return ()
        constraints = enumerate(self._pod.rules.spread)
        return tuple(
            at for at, one in constraints if one.selector is not None and one.selector.matches(other.meta.labels)
        )

    def add(self, effect: Effect, node: Node, times: int) -> None:
        """Count a pod with this effect on a node; times: -1 to forget it."""
        eligible = self._eligible(node)
        for at in effect:
            if self._is_alone(self._pod.rules.spread[at]):
                self._on_node[at][node.name] += times
            if eligible[at]:
                domain = _domain(self._pod.rules.spread[at], node)
                before, domains = self._counts[at][domain], self._domains[at][domain[0]]
                domains[before] -= 1
                if not domains[before]:
                    del domains[before]
                self._counts[at][domain] = before + times
                domains[before + times] += 1

    def refuses(self, node: Node) -> Refusal | None:
        """Return why the pod may not go to a node now."""
        for at, constraint in enumerate(self._pod.rules.spread):
            key, value = constraint.topology_key, node.meta.labels.get(constraint.topology_key)
            if value is None:
                return Refusal(Rule.SPREAD_LABEL, key)
            # A domain that no eligible node is in has no pods; a look-up must not add it.
            domain = _domain(constraint, node)
            counted = self._domains[at].get(domain[0], _NO_DOMAINS)
            here = self._counts[at].get(domain, 0) + self._own[at]
            least = min(counted, default=_NO_DOMAIN)
            if here - least > constraint.max_skew:
                text = f"{key} {value} would have {here} such pods, {least} is the least of a domain"
                return Refusal(Rule.SPREAD, key, value, text)
            domains = counted.total()
            if domains < constraint.min_domains and here > constraint.max_skew:
                there = f"there is {domains} domain" if domains == 1 else f"there are {domains} domains"
                text = f"it is {constraint.min_domains}, and {there}"
                return Refusal(Rule.SPREAD_DOMAINS, key, value, text)
            if self._is_alone(constraint) and self._on_node[at][node.name] + self._own[at] > constraint.max_skew:
                text = f"it is {constraint.min_domains}, so that a node takes no more such pods than maxSkew"
                return Refusal(Rule.SPREAD_DOMAINS, key, value, text)
        return None

    def bars(self, node: Node) -> Refusal | None:
        """Return why the pod may not go to a node, however many pods come."""
        for constraint in self._pod.rules.spread:
            if constraint.topology_key not in node.meta.labels:
                return Refusal(Rule.SPREAD_LABEL, constraint.topology_key)
        return None

    def view(self, node: Node) -> Hashable:
        """Return what tells nodes apart that are the only ones of their domains."""
        return tuple(self._view(node, at, one) for at, one in enumerate(self._pod.rules.spread))

    def _view(self, node: Node, at: int, constraint: SpreadConstraint) -> Hashable:
        domain = _domain(constraint, node)
        beside = frozenset(self._domains[at].get(domain[0], _NO_DOMAINS).items()) if constraint.within else None
        return self._eligible(node)[at], self._counts[at].get(domain, 0), self._on_node[at][node.name], beside

    def _is_alone(self, constraint: SpreadConstraint) -> bool:
        return self._pinned and constraint.honors_affinity and constraint.min_domains > 1

    def _eligible(self, node: Node) -> tuple[bool, ...]:
        """Return for each constraint whether it counts the pods of a node."""
        known = self._counted.get(node.name)
        if known is None:
            constraints, labels = self._pod.rules.spread, node.meta.labels
            has_all = all(one.topology_key in labels for one in constraints)
            known = tuple(has_all and self._includes(one, node) for one in constraints)
            self._counted[node.name] = known
        return known

    def _includes(self, constraint: SpreadConstraint, node: Node) -> bool:
        pod, labels = self._pod, node.meta.labels
        if constraint.honors_affinity:
            if any(labels.get(key) != value for key, value in pod.node_selector.items()):
                return False
            if pod.affinity is not None and not pod.affinity.matches(node.name, labels):
                return False
        return not constraint.honors_taints or first_untolerated(node.taints, pod.tolerations) is None


def _domain(constraint: SpreadConstraint, node: Node) -> _Domain:
    """Return a node's domain, of empty text where it has none."""
    labels = node.meta.labels
    return labels.get(constraint.within, "") if constraint.within else "", labels.get(constraint.topology_key, "")


_NO_DOMAIN = 2**31 - 1
"""What kube-scheduler takes for the least where there is no domain."""

_NO_DOMAINS = Counter[int]()
