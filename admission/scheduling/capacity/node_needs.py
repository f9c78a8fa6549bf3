"""What held gangs would need of nodes that are not there: the fewest or cheapest nodes of NodeShapes, gang by gang.

A gang that no node has room for is decided about once more, in the order of the cycle, as if nodes of the shapes had
come: by the same chain of checks, so that its queue has quota and its budgets pay for it. What one gang is promised,
on nodes that are there or are to come, later gangs do without; nodes that one gang needs are no other's. Nothing is
granted here, and no other decision depends on it.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from fractions import Fraction
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, Protocol

from admission.api.capacity import node_shapes
from admission.api.capacity.node_provision import ProvisioningMode
from admission.api.kubernetes.devices import DeviceId
from admission.api.muster.queues import Queue
from admission.api.values import names
from admission.api.values.names import GangUid, NodeName
from admission.api.values.reasons import Detail, Hold, HoldReason
from admission.dra.state import cluster_state
from admission.dra.state.cluster_state import ClusterState
from admission.dra.state.nodes_to_come import NodesToCome, NodeToCome
from admission.lifecycle import placement_progress
from admission.quota.headroom import QueueUsage
from admission.scheduling.cache import equivalence
from admission.scheduling.cache.equivalence import GangEquivalence
from admission.scheduling.capacity import expected_nodes, node_counts, plan_lines
from admission.scheduling.capacity.node_counts import Counts, CountSearch, Found
from admission.scheduling.checks import budget, chain, completeness, elastic, faults
from admission.scheduling.checks.chain import Grant, Inputs, Known, Rules, Workspace
from admission.scheduling.checks.faults import During
from admission.scheduling.placement import mode
from admission.workloads import topology
from admission.workloads.gangs import Group

HELPED = frozenset({HoldReason.DEVICES_BUSY, HoldReason.NO_FEASIBLE_PLACEMENT})
"""The reasons of holds that more nodes may end."""

MOST_TO_COME = 256
"""The most nodes of a shape that a leader plans with at a time."""

GANGS_PER_TRY = 8
"""How many gangs are looked at for each number that may be tried: equivalent ones need none."""

MOST_TRIES = 64
"""The most numbers of nodes that are tried for one gang."""

ASKED_ALONE = "after a try that failed, it is asked for when the nodes of these shapes that others wait for have come"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much is asked.

    tries: numbers of nodes, over all gangs. nodes: the most of a shape. share: the divisor of a search's steps. pace:
    how long until the needs are looked for again; if 0, after every cycle that grants nothing. together: whether gangs
    may share a node to come, as they would once it is there; otherwise one that a gang needs is no other's. asks:
    whether nodes are asked for where queues say so; a simulation only says what is needed.
    """

    tries: int = 64
    nodes: int = MOST_TO_COME
    share: int = 8
    pace: timedelta = timedelta(seconds=10)
    together: bool = False
    asks: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesNeeded:
    """The nodes that a gang needs beside those that are there. price: per hour; None if it is not known of all.

    nodes: empty if the gang has room on nodes that others need. grant: with which it would start if they were there.
    not_asked: why nobody is asked for them, where the queue asks; empty if it does not. shortfall: how the last nodes
    of these shapes fell short of them; empty if they did not.
    """

    nodes: tuple[NodeToCome, ...] = ()
    price: Fraction | None = None
    grant: Grant | None = field(default=None, compare=False, repr=False)
    not_asked: str = ""
    shortfall: str = ""

    @property
    def counts(self) -> Mapping[str, int]:
        """Return how many nodes of each shape there are."""
        return Counter(one.shape for one in self.nodes)

    @property
    def stand_ins(self) -> Mapping[NodeName, NodeName]:
        """Return what stands for each node in place of a name (`names.node_to_come`), by its name in the plan."""
        numbers, found = Counter[str](), dict[NodeName, NodeName]()
        for one in self.nodes:
            numbers[one.shape] += 1
            found[one.node.name] = names.node_to_come(one.shape, numbers[one.shape])
        return found


class Asker(Protocol):
    """Who says for which gangs nodes are asked, and for which of their pods."""

    def part(self, group: Group) -> Group:
        """Return the gang with the pods for which nodes may be asked together; with none that waits if for none."""

    def refusal(self, group: Group, needed: "NodesNeeded | None") -> str:
        """Return why no nodes are asked for a gang; empty if they are. needed: None before that is known."""


class Assessment(NamedTuple):
    """What was found out.

    needed: by gang, in the order in which they come. in_vain: the gangs that nodes cannot help as things are, if the
    tries were over before all gangs had had their turn; the next assessment has the others before them.
    """

    needed: Mapping[GangUid, NodesNeeded] = MappingProxyType({})
    in_vain: frozenset[GangUid] = frozenset()


class NoAsker:
    """Refuses nobody, as where nothing is asked for."""

    def part(self, group: Group) -> Group:
        return group

    def refusal(self, group: Group, needed: "NodesNeeded | None") -> str:
        del group, needed
        return ""


NOBODY = NoAsker()


def asks_for_nodes(queue: Queue | None) -> bool:
    """Return whether a queue asks for nodes."""
    return queue is not None and queue.provisioning.mode is not ProvisioningMode.NONE


def hold(needed: NodesNeeded, instead: Hold) -> Hold:
    """Return the hold of a gang that waits for nodes. instead: why it does not start on those that are there."""
    counts = needed.counts
    parts = placement_progress.in_words(counts)
    total = len(needed.nodes)
    nodes = f"{total} more {'node' if total == 1 else 'nodes'}"
    what = f"{nodes} of shape {next(iter(counts))}" if len(counts) == 1 else f"{nodes}: {', '.join(parts)}"
    price = "" if needed.price is None else f" ({node_shapes.render_price(needed.price)} per hour)"
    details: dict[str, Detail] = {**instead.details, "nodes": total, "shapes": parts, "instead": instead.reason}
    if needed.price is not None:
        details["pricePerHour"] = node_shapes.render_price(needed.price)
    if needed.grant is not None:
        details["plan"] = plan_lines.lines(needed.grant.plan, needed.stand_ins)
    not_asked = f"; {needed.not_asked}" if needed.not_asked else ""
    shortfall = f"; {needed.shortfall}" if needed.shortfall else ""
    message = f"needs {what}{price}{not_asked}{shortfall}; on the nodes that are there: {instead.message}"
    return Hold(HoldReason.NODES_NEEDED, message, details, instead.references)


class Earlier(NamedTuple):
    """What earlier assessments left.

    expected: how many nodes of each shape were asked for and have not come. in_vain: of the last assessment.
    """

    expected: Mapping[str, int] = MappingProxyType({})
    in_vain: frozenset[GangUid] = frozenset()


NOTHING_EARLIER = Earlier()


def assess(
    held: Iterable[Group],
    rules: Rules,
    cluster: ClusterState,
    queue_usage: QueueUsage,
    *,
    bounds: Bounds,
    earlier: Earlier = NOTHING_EARLIER,
    asker: Asker = NOBODY,
) -> Assessment:
    """Find out what gangs need, of those that would start with more nodes.

    held: gangs that are held for want of devices, in the order in which they have their turn. cluster, queue_usage:
    after the grants of the cycle; the usage is charged with what gangs are promised. The balances in the workspace of
    the rules are charged, too. Gangs for which nodes are asked come first: the others, whose queues ask for none or
    that `asker` refuses, keep none from them.
    """
    queues, in_vain = rules.snapshot.queues, earlier.in_vain
    waiting = sorted(held, key=lambda group: (not asks_for_nodes(queues.get(group.queue)), group.uid in in_vain))
    waiting = waiting[: bounds.tries * GANGS_PER_TRY]
    left = _left(waiting, rules, bounds, earlier.expected)
    if not waiting or not any(left.values()):
        return Assessment()
    state = _State(rules, cluster, queue_usage, bounds, NodesToCome.build(cluster, rules.snapshot, left))
    requesting = [group for group in waiting if bounds.asks and asks_for_nodes(queues.get(group.queue))]
    turns = _Turns(state, rules, asker, {name for name, count in earlier.expected.items() if count})
    for group in requesting:
        turns.ask(asker.part(group))
    for group in waiting:
        turns.report(group)
    # When only gangs are left that were in vain before, all have had their turn.
    known = in_vain.intersection(group.uid for group in requesting)
    is_cut = bool(turns.missed - known)
    return Assessment(turns.found, frozenset(turns.had - turns.found.keys()) | known if is_cut else frozenset())


@dataclass(slots=True)
class _Turns:
    """The turns of gangs, one after the other: those for which nodes may be asked, then the others.

    asked_of: the shapes of which nodes are asked for. had, missed: the gangs that had their turn, and for which nothing
    was left to be tried, of the first ones. refused: why no nodes are asked for a gang, "" if they may be.
    """

    state: "_State"
    rules: Rules
    asker: Asker
    asked_of: set[str]
    found: dict[GangUid, NodesNeeded] = field(default_factory=dict)
    refused: dict[GangUid, str] = field(default_factory=dict)
    had: set[GangUid] = field(default_factory=set)
    missed: set[GangUid] = field(default_factory=set)

    def ask(self, group: Group) -> None:
        """Find out what a gang needs, and promise it unless nobody is asked."""
        self.refused[group.uid] = self.asker.refusal(group, None)
        if self.refused[group.uid]:
            return
        if self.state.is_over:
            self.missed.add(group.uid)
            return
        self.had.add(group.uid)
        needed = self._look(group, partial(self._refusal, group))
        if isinstance(needed, str):
            self.refused[group.uid] = needed
        elif needed is not None:
            self.found[group.uid] = needed

    def report(self, group: Group) -> None:
        """Find out what a gang needs of what is left, if no nodes may be asked for it; it says why not."""
        why_not = self.refused.get(group.uid)
        if self.state.is_over or why_not == "":
            return
        needed = self._look(group)
        if isinstance(needed, NodesNeeded):
            self.found[group.uid] = replace(needed, not_asked=why_not or "")

    def _look(self, group: Group, refusal: Callable[[NodesNeeded], str] | None = None) -> NodesNeeded | str | None:
        find = partial(self.state.assess, group, refusal)
        return faults.guard(During.PLANNING, group.key, find, self.rules.workspace.defects)

    def _refusal(self, group: Group, needed: NodesNeeded) -> str:
        why_not = self.asker.refusal(group, needed)
        backoff = self.rules.backoffs.get(group.uid)
        if not why_not and backoff is not None and backoff.failure and not self.asked_of.isdisjoint(needed.counts):
            # Gangs that got a part of their nodes each would go on to do so: they are tried at the same times.
            return ASKED_ALONE
        if not why_not:
            self.asked_of.update(needed.counts)
        return why_not


def _left(waiting: Sequence[Group], rules: Rules, bounds: Bounds, expected: Mapping[str, int]) -> dict[str, int]:
    """Return how many nodes of each shape may still be asked for, as far as these gangs could use them.

    Of a NodePool with limits nodes of one shape come at a time, since these count for all of its shapes.
    """
    shapes, existing = rules.snapshot.shapes, rules.snapshot.nodes.values()
    pods = sum(len(group.waiting) for group in waiting)
    of_pool = {shape.node_pool: name for name, shape in shapes.items() if shape.is_limited and expected.get(name, 0)}
    return {
        name: 0
        if shape.is_limited and of_pool.get(shape.node_pool, name) != name
        else min(max(shape.left(existing) - expected.get(name, 0), 0), pods, bounds.nodes)
        for name, shape in sorted(shapes.items())
    }


@dataclass(slots=True)
class _State:
    """What is left for the next gang: its base is the cluster without nodes that others need, or with them if shared.

    Rule: only `_take` gives anything away.
    """

    _given: Rules
    _base: ClusterState
    _queue_usage: QueueUsage
    _bounds: Bounds
    _come: NodesToCome
    tries: int = field(init=False)
    _rules: Rules = field(init=False)
    _prices: Mapping[str, Fraction | None] = field(init=False)
    _free: dict[str, list[NodeToCome]] = field(init=False)
    """The nodes of each shape that nobody needs yet."""
    _disproved: set[Hashable] = field(default_factory=set)
    """The questions that all nodes together do not answer; with less left nothing changes."""
    _known: dict[Hashable, Counts] = field(default_factory=dict)
    """The numbers of nodes that answered equivalent questions."""

    @property
    def is_over(self) -> bool:
        """Return whether nothing more can be found: no node is left, or no number may be tried."""
        return self.tries <= 0 or not any(self._free.values())

    def __post_init__(self) -> None:
        snapshot = self._given.snapshot
        self.tries = self._bounds.tries
        self._prices = {name: shape.price for name, shape in snapshot.shapes.items()}
        self._free = {name: [*nodes] for name, nodes in self._come.by_shape.items()}
        new = {name: one.node for name, one in self._come.nodes.items()}
        self._rules = replace(
            self._given,
            snapshot=replace(snapshot, nodes={**snapshot.nodes, **new}),
            steps=max(self._given.steps // self._bounds.share, 1),
            mute=True,
        )

    def assess(self, group: Group, refusal: Callable[[NodesNeeded], str] | None = None) -> NodesNeeded | str | None:
        """Return what a gang needs, and promise it; None if it would not start with all nodes that are left.

        refusal: why it is promised nothing, which is returned then; empty if it is.
        """
        queue = completeness.entered(group, self._rules.snapshot)
        if not isinstance(queue, Queue):
            return None
        inputs = chain.with_demand(
            Inputs(rules=self._rules, group=group, queue=queue, cluster=self._base, queue_usage=self._queue_usage)
        )
        equivalent = _equivalent(inputs)
        question = None
        if equivalent is not None:
            question = queue.name, group.identity.elastic, group.still_needed, equivalent.key
            # It is held for devices, so the checks before the plan have passed.
            known = Known(group=group, demands=inputs.demands, needed=inputs.needed, equivalent=equivalent)
            inputs = replace(inputs, known=known if elastic.is_whole(group) else None)
            if question in self._disproved:
                return None
        found = self._cheapest(inputs, question, is_asked=refusal is not None)
        if found is None or (not found.counts and not self._bounds.together):
            return None
        if question is not None:
            self._known[question] = found.counts
        needed = self._needed(found)
        why_not = refusal(needed) if refusal is not None else ""
        if not why_not:
            self._take(group, needed)
        return why_not or needed

    def _cheapest(self, inputs: Inputs, question: Hashable | None, *, is_asked: bool) -> Found[Grant] | None:
        waiting = len(inputs.group.waiting)
        most = {name: min(len(nodes), waiting) for name, nodes in self._free.items() if nodes}
        pods = self._most_pods(inputs, most) if is_asked else elastic.least(inputs.group)
        found = self._search(inputs, question, most, pods)
        if found is None or not self._is_too_many(found.counts):
            return found
        # Shapes that count each other's nodes are few, and only one of them may be meant.
        alone = (self._search(inputs, None, {name: most[name]}, pods) for name in found.counts)
        return min(filter(None, alone), key=lambda one: node_counts.cost_of(one.counts, self._prices), default=None)

    def _is_too_many(self, counts: Counts) -> bool:
        """Return whether these are more nodes than a shape allows that counts those of another one, too, or a pool."""
        if any(not counts.keys().isdisjoint(self._rivals(name)) for name in counts):
            return True
        total = Counter(counts)
        for name, count in counts.items():
            total.update(dict.fromkeys(self._others(name), count))
        return any(total[name] > len(self._free[name]) for name in total)

    def _most_pods(self, inputs: Inputs, most: Counts) -> int:
        """Return for how many pods nodes are asked, of a gang that may do with fewer than all that wait.

        For as many as would start on all nodes that may come; after a try that failed, for the fewest that may start.
        """
        group = inputs.group
        if elastic.is_whole(group) or group.uid in self._rules.backoffs or not self.tries:
            return elastic.least(group)
        self.tries -= 1
        grant = self._ask(inputs, most)
        return len(grant.plan.pods) if grant is not None else elastic.least(group)

    def _search(self, inputs: Inputs, question: Hashable | None, most: Counts, pods: int) -> Found[Grant] | None:
        """Return the cheapest new nodes with which so many pods of a gang would start. most: how many may come."""

        def ask(counts: Counts) -> Grant | None:
            grant = self._ask(inputs, counts)
            return grant if grant is not None and len(grant.plan.pods) >= pods else None

        search = CountSearch[Grant](
            ask=ask,
            used=self._used,
            most=most,
            prices=self._prices,
            tries=min(self.tries, MOST_TRIES),
            # It is held on the nodes that are there, of which promises have only taken some.
            needs_some=not (self._base.nodes.keys() & self._come.nodes.keys()),
        )
        before = search.tries
        found = search.cheapest(self._known.get(question) if question is not None else None)
        self.tries -= before - search.tries
        if found is None and search.tries and question is not None:
            self._disproved.add(question)
        return found

    def _ask(self, inputs: Inputs, counts: Counts) -> Grant | None:
        """Return the grant with some new nodes; None if the gang is held."""
        given = self._given.workspace
        rules = replace(self._rules, workspace=Workspace(balances=given.balances, defects=given.defects))
        cluster = self._come.joined(self._base, self._names(counts))
        outcome = chain.decide(replace(inputs, rules=rules, cluster=cluster)).outcome
        return outcome if isinstance(outcome, Grant) else None

    def _names(self, counts: Counts) -> Sequence[NodeName]:
        """Return the first new nodes of each shape that nobody needs yet."""
        return [one.node.name for name, count in counts.items() for one in self._free[name][:count]]

    def _used(self, grant: Grant) -> Counts:
        """Return how many nodes of each shape a plan uses that nobody needed before."""
        return Counter(one.shape for one in self._new(grant))

    def _new(self, grant: Grant) -> list[NodeToCome]:
        used = dict.fromkeys(place.node for place in grant.plan.pods)
        return [self._come.nodes[name] for name in used if name in self._come.nodes and name not in self._base.nodes]

    def _needed(self, found: Found[Grant]) -> NodesNeeded:
        new = self._new(found.answer)
        prices = [self._prices[one.shape] for one in new]
        known = [price for price in prices if price is not None]
        price = sum(known, Fraction(0)) if len(known) == len(prices) else None
        return NodesNeeded(nodes=tuple(new), price=price, grant=found.answer)

    def _take(self, group: Group, needed: NodesNeeded) -> None:
        """Take what a gang is promised from what is left for others."""
        grant, new = needed.grant, needed.nodes
        if grant is None:
            return
        charge, pods = grant.plan.charge, {pod.meta.uid: pod for pod in group.waiting}
        self._queue_usage.charge(group.queue, charge)
        if self._given.workspace.balances is not None:
            self._given.workspace.balances.charge(group.queue, charge, budget.runtime_of(group))
        if self._bounds.together or any(place.node not in self._come.nodes for place in grant.plan.pods):
            state = self._come.joined(self._base, [one.node.name for one in new])
            after = cluster_state.granted(state, grant.plan, pods, group.key, grant.claims)
            used = {place.node for place in grant.plan.pods} & self._come.nodes.keys()
            full = self._full(after, used) if self._bounds.together else self._come.nodes
            self._base = self._come.parted(after, full)
        for one in new:
            self._free[one.shape].remove(one)
            for other in self._others(one.shape):
                del self._free[other][-1:]
            for rival in self._rivals(one.shape):
                self._free[rival].clear()

    def _rivals(self, name: str) -> list[str]:
        """Return the other shapes of a shape's NodePool, if that has limits."""
        shapes = self._given.snapshot.shapes
        if not shapes[name].is_limited:
            return []
        pool = shapes[name].node_pool
        return [other for other in self._free if other != name and shapes[other].node_pool == pool]

    def _others(self, shape: str) -> list[str]:
        """Return the shapes that count a node of one as theirs, too, of those of which some may come."""
        counting = expected_nodes.counting_with(shape, self._given.snapshot.shapes)
        return [name for name in counting if name != shape and name in self._free]

    def _full(self, cluster: ClusterState, used: Iterable[NodeName]) -> Collection[NodeName]:
        """Return those of some new nodes all of whose devices are in use: hardly anybody has room there."""
        return {
            name
            for name in used
            if self._come.nodes[name].slices
            and all(
                DeviceId(slice_.driver, slice_.pool, device.name) in cluster.taken
                for slice_ in self._come.nodes[name].slices
                for device in slice_.devices
            )
        }


def _equivalent(inputs: Inputs) -> GangEquivalence | None:
    """Return the gang's question in numbered names; None if the gang is like no other."""
    group = inputs.group
    if group.started or inputs.refusals:
        return None
    wanted = mode.requested(group.record, inputs.queue)
    return equivalence.build(inputs.demands, wanted, inputs.cluster, topology.request(group))
