"""Upper bounds on the pods that nodes take, by counting resources and devices: never too low, at times too high.

`UpperBounds` has them for one node; `RemainingPods` sums them over all nodes while a search goes on and back.
"""

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass

from admission.dra.equivalence import node_signature
from admission.dra.equivalence.device_signature import Answer, DeviceSignatures
from admission.dra.equivalence.node_contents import DeviceGroup
from admission.dra.equivalence.node_signature import NodeSignature
from admission.dra.inventory.counters import Amount
from admission.dra.planner import device_order
from admission.dra.planner.node_groups import NodeState, SearchState
from admission.dra.planner.pod_groups import Gang, PodKind


@dataclass(frozen=True, slots=True)
class Counts:
    """The free devices of one node.

    matching: per request, those that match it. own: those of this node alone that match any. unknown: the requests for
    which counting says nothing, since a device stops the search or a matching one can be shared.
    """

    matching: tuple[int, ...]
    own: int
    unknown: frozenset[int]


class UpperBounds:
    """The bounds of one gang. Kinds of pods go by their numbers.

    stops: whether a device whose selector fails stops the search that meets it; else the search skips the device.
    """

    def __init__(
        self, gang: Gang, state: SearchState, device_signatures: DeviceSignatures, *, stops: bool = True
    ) -> None:
        self._gang = gang
        self._state = state
        self._device_signatures = device_signatures
        self._parsed = device_signatures.parsed_requests
        self._stops = stops
        self._own_needs = [self._needs(kind) for kind in gang.kinds]
        self._bounds: dict[tuple[int, NodeState], int] = {}
        self._counted: dict[NodeSignature, Counts] = state.units.results.setdefault(("counts", stops), {})

    def of_node(self, kind: int, node_state: NodeState) -> int:
        """Return the most pods of a kind that a node takes, by counting resources and devices."""
        key = (kind, node_state)
        if key not in self._bounds:
            self._bounds[key] = self._counted_bound(kind, node_state)
        return self._bounds[key]

    def counts(self, node_state: NodeState) -> Counts:
        """Return the free devices of a node, counted."""
        known = self._counted.get(node_state.node_sig)
        if known is None:
            units = self._state.units_of(node_state)
            free = [
                (code, unit) for code, unit in zip(node_state.node_sig.codes, units, strict=True) if not unit.use.taken
            ]
            rows = [(code, unit.signature.answers, unit.signature.shared) for code, unit in free]
            parsed_requests = range(len(self._device_signatures.need.parsed_requests))
            known = self._counted[node_state.node_sig] = Counts(
                matching=tuple(sum(row[parsed] is Answer.YES for _, row, _ in rows) for parsed in parsed_requests),
                own=sum(Answer.YES in row for code, row, _ in rows if node_signature.is_local(code)),
                unknown=frozenset(
                    parsed
                    for parsed in parsed_requests
                    if any(
                        (self._stops and not isinstance(row[parsed], Answer)) or (many and row[parsed] is Answer.YES)
                        for _, row, many in rows
                    )
                ),
            )
        return known

    def needed(self, kind: PodKind) -> int:
        """Return how many devices every pod of the kind takes at least for its own claims."""
        own = (wanted.parsed for wanted in kind.wanted[0] if wanted.shared is None)
        requests = (request for claim in own for request in claim.requests)
        return sum(
            max(0, min((option.count if option.plain else 0 for option in request.options), default=0))
            for request in requests
        )

    def are_drained(self) -> bool:
        """Return whether the gang needs more counters or shared capacity than all nodes have left, whatever it gets.

        Every request is counted with the least that any matching device draws, so no plan is excluded. The answer is
        False where several nodes see one device, since sums over nodes would count it more than once.
        """
        groups = self._state.groups
        if not (
            any(s.contents.counter_sets for s in groups)
            or any(signature.shared for signature in self._device_signatures.known)
        ):
            return False
        if not all(layout.fixed for layout in self._state.layouts):
            return False
        left: dict[str, Amount] = {}
        units: dict[int, DeviceGroup] = {}
        for node_state, nodes in groups.items():
            shown = self._state.units_of(node_state)
            units |= dict(zip(node_state.contents.units, shown, strict=True))
            for name, amount in device_order.left_of(node_state.contents.counter_sets, shown).items():
                left[name] = left.get(name, 0) + amount * len(nodes)
        least = {parsed: device_order.least_of(units.values(), number) for parsed, number in self._parsed.items()}
        needed: dict[str, Amount] = {}
        for kind in self._gang.kinds:
            own = (wanted.parsed for wanted in kind.wanted[0] if wanted.shared is None)
            for name, amount in device_order.needs_of(own, least.__getitem__).items():
                needed[name] = needed.get(name, 0) + amount * len(kind.members)
        return any(amount > left.get(name, 0) for name, amount in needed.items())

    def are_crowded(self) -> bool:
        """Return whether rules want more domains of a label for pods apart from each other than take one of them."""
        rules = self._gang.coupled
        if rules is None:
            return False
        kinds: dict[int, list[int]] = {}
        for at, kind in enumerate(self._gang.kinds):
            kinds.setdefault(kind.rules, []).append(at)
        for key, group in rules.apart_from_each_other(kinds):
            pods = [at for number in group for at in kinds[number]]
            open_groups = [state for state in self._state.groups if any(self.of_node(at, state) for at in pods)]
            nodes = (node for state in open_groups for node in self._state.groups[state])
            domains = {rules.nodes[self._state.names[node]].meta.labels.get(key) for node in nodes}
            # A node without the label is in no domain, so that it takes any number of them.
            if None not in domains and len(domains) < sum(len(self._gang.kinds[at].members) for at in pods):
                return True
        return False

    def _counted_bound(self, kind: int, node_state: NodeState) -> int:
        if kind not in node_state.kinds:
            return 0
        described = self._gang.kinds[kind]
        bounds = self._state.bounds(described, node_state)
        most = len(described.members) if bounds is None else min(bounds, len(described.members))
        rules = self._gang.coupled
        if rules is not None and node_state.place is not None:
            by_rules = rules.most(described.rules, node_state.place)
            most = most if by_rules is None else min(most, by_rules)
        needs = self._own_needs[kind]
        counts = self.counts(node_state)
        if counts.unknown & needs.keys():
            return most
        # Each request alone is a relaxation, and so are all together: pods that fit need that many free devices.
        for parsed, count in needs.items():
            most = min(most, counts.matching[parsed] // count)
        if len(needs) > 1:
            rows = [unit.signature.answers for unit in self._state.units_of(node_state) if not unit.use.taken]
            matching = sum(any(row[parsed] is Answer.YES for parsed in needs) for row in rows)
            most = min(most, matching // sum(needs.values()))
        return most

    def _needs(self, kind: PodKind) -> dict[int, int]:
        """Return per request the devices that every pod of the kind needs for its own claims.

        Left out, so that the counts stay lower bounds: shared claims, which one pod brings for several; and requests
        with alternatives, in mode All or with admin access, which may be served otherwise.
        """
        needs: dict[int, int] = {}
        for wanted in kind.wanted[0]:
            if wanted.shared is None:
                for request in wanted.parsed.requests:
                    if len(request.options) == 1 and request.options[0].plain:
                        parsed = self._parsed[request.options[0].parsed]
                        needs[parsed] = needs.get(parsed, 0) + request.least
        return {parsed: count for parsed, count in needs.items() if count > 0}


class RemainingPods:
    """The pods that a search has yet to place, beside the most that the nodes still take.

    left: by kind, how many pods; the search counts them down and up again. The rest follows the states of the nodes.
    """

    def __init__(self, gang: Gang, state: SearchState, bounds: UpperBounds) -> None:
        self.left = [len(kind.members) for kind in gang.kinds]
        self._state = state
        self._bounds = bounds
        self._moved: defaultdict[NodeState, int] = defaultdict(int)
        """How many nodes have come into a state, or left it, since the search began."""
        groups = state.groups
        self._most = [
            sum(bounds.of_node(kind, node_state) * len(nodes) for node_state, nodes in groups.items())
            for kind in range(len(gang.kinds))
        ]
        self._need_of_each = [bounds.needed(kind) for kind in gang.kinds]
        self._is_countable = not any(bounds.counts(node_state).unknown for node_state in groups)
        self._devices = sum(bounds.counts(node_state).own * len(nodes) for node_state, nodes in groups.items())

    @property
    def key(self) -> Hashable:
        """Return the pods left and the states of the nodes.

        Node states are counted, not named: which of equal nodes has changed does not matter.
        """
        return (tuple(self.left), frozenset(entry for entry in self._moved.items() if entry[1]))

    def are_too_many(self) -> bool:
        """Return whether the nodes do not take the pods left, by counting each kind, or the devices of all."""
        return any(most < left for most, left in zip(self._most, self.left, strict=True)) or self._is_short()

    def follow(self, before: NodeState, after: NodeState) -> None:
        """Take note that a node went from one state to another."""
        self._moved[before] -= 1
        self._moved[after] += 1
        for kind in range(len(self._most)):
            self._most[kind] += self._bounds.of_node(kind, after) - self._bounds.of_node(kind, before)
        self._devices += self._bounds.counts(after).own - self._bounds.counts(before).own

    def _is_short(self) -> bool:
        """Return whether the pods left need more devices than are free, however they are given out."""
        if not self._is_countable:
            return False
        needed = sum(left * need for left, need in zip(self.left, self._need_of_each, strict=True))
        return self._devices < needed and self._devices + self._state.free_shared < needed
