"""A gang has a plan if and only if some order and choice of nodes passes kube-scheduler's rules between pods.

The rules are written here once more, from their definitions, over plain lists of pods.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hypothesis import given, settings, strategies as st

from admission.api.kubernetes import pods as api_pods
from admission.api.kubernetes.nodes import Node
from admission.api.kubernetes.pods import Pod
from admission.api.scheduling.scheduling_rules import AffinityTerm, SpreadConstraint
from admission.api.values.names import NodeName
from admission.dra import gang_planner
from admission.dra.inventory.selectors import Selectors
from admission.dra.planner.no_plan import Kind
from admission.dra.requests.gang_request import Choice, Plan, PodDemand
from admission.dra.state import cluster_state
from tests.unit.dra.clusters import STEPS, ClusterBuilder, Json, a_cluster, a_pod

HOST, ZONE = "kubernetes.io/hostname", "zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

apps = st.sampled_from(("a", "b"))
keys = st.sampled_from((HOST, ZONE))


@st.composite
def terms(draw: st.DrawFn) -> Json:
    selector: Json = {"matchLabels": {"app": draw(apps)}}
    if draw(st.integers(0, 3)) == 0:
        selector = {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [draw(apps)]}]}
    return {"topologyKey": draw(keys), "labelSelector": selector}


@st.composite
def constraints(draw: st.DrawFn) -> Json:
    given_more: tuple[Json, ...] = ({}, {}, {"minDomains": 2}, {"nodeAffinityPolicy": "Ignore"})
    more = draw(st.sampled_from(given_more))
    return {
        "topologyKey": draw(keys),
        "maxSkew": draw(st.integers(1, 2)),
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": draw(apps)}},
        **more,
    }


@st.composite
def specs(draw: st.DrawFn) -> tuple[str, Json]:
    """Draw a pod's app and its rules: one or none mostly."""
    spec: Json = {}
    which = draw(st.integers(0, 9))
    if which in {1, 2, 7}:
        spec["affinity"] = {"podAntiAffinity": {REQUIRED: draw(st.lists(terms(), min_size=1, max_size=2))}}
    if which in {3, 4, 7}:
        wanted = {"podAffinity": {REQUIRED: draw(st.lists(terms(), min_size=1, max_size=2))}}
        spec["affinity"] = {**spec.get("affinity", {}), **wanted}
    if which in {5, 6, 8}:
        spec["topologySpreadConstraints"] = draw(st.lists(constraints(), min_size=1, max_size=2))
    if which in {8, 9}:
        spec["hostNetwork"] = True
        spec["containers"] = [{"name": "c", "ports": [{"containerPort": draw(st.integers(80, 81))}]}]
    return draw(apps), spec


@dataclass(frozen=True)
class World:
    nodes: tuple[tuple[str | None, int], ...]
    """Zone and GPUs."""
    running: tuple[tuple[int, str, Json], ...]
    gang: tuple[tuple[str, Json], ...]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    nodes = draw(
        st.lists(st.tuples(st.sampled_from(("z1", "z2", None)), st.integers(0, 2)), min_size=1, max_size=4).map(tuple)
    )
    running = draw(st.lists(st.tuples(st.integers(0, len(nodes) - 1), specs()), max_size=3))
    few = draw(st.lists(specs(), min_size=1, max_size=2))
    gang = tuple(draw(st.sampled_from(few)) for _ in range(draw(st.integers(1, 4))))
    return World(nodes, tuple((at, app, spec) for at, (app, spec) in running), gang)


def built(world: World) -> ClusterBuilder:
    builder = a_cluster()
    for at, (zone, gpus) in enumerate(world.nodes):
        labels = {HOST: f"n-{at}", **({ZONE: zone} if zone else {})}
        builder.node(f"n-{at}", gpus=gpus, labels=labels)
    for number, (at, app, spec) in enumerate(world.running):
        builder.pods.append(pod_of(f"r-{number}", app, {**spec, "nodeName": f"n-{at}"}))
    return builder


def pod_of(name: str, app: str, spec: Json) -> Pod:
    meta = {"name": name, "namespace": "team", "uid": f"pod-{name}", "labels": {"app": app}}
    return api_pods.decode({"metadata": meta, "spec": {"containers": [{"name": "c"}], **spec}})


def demanded(world: World) -> list[PodDemand]:
    return [replace(a_pod(f"p-{at}", 1), pod=pod_of(f"p-{at}", app, spec)) for at, (app, spec) in enumerate(world.gang)]


Placed = list[tuple[Pod, Node]]


def passes(pod: Pod, node: Node, placed: Placed, nodes: Sequence[Node]) -> bool:
    return (
        not any(
            one.conflicts(port)
            for other, at in placed
            if at is node
            for one in other.rules.ports
            for port in pod.rules.ports
        )
        and all(spreads(pod, each, node, placed, nodes) for each in pod.rules.spread)
        and not any(forbids(term, pod, node, placed) for term in pod.rules.anti_affinity)
        and not any(
            is_about(term, pod) and same_domain(term.topology_key, at, node)
            for other, at in placed
            for term in other.rules.anti_affinity
        )
        and is_with_others(pod, node, placed)
    )


def is_about(term: AffinityTerm, pod: Pod) -> bool:
    return term.selector is not None and term.selector.matches(pod.meta.labels)


def same_domain(key: str, one: Node, other: Node) -> bool:
    return key in one.meta.labels and one.meta.labels[key] == other.meta.labels.get(key)


def forbids(term: AffinityTerm, pod: Pod, node: Node, placed: Placed) -> bool:
    return any(is_about(term, other) and same_domain(term.topology_key, at, node) for other, at in placed)


def is_with_others(pod: Pod, node: Node, placed: Placed) -> bool:
    wanted = pod.rules.affinity
    if not all(term.topology_key in node.meta.labels for term in wanted):
        return False
    others = [at for other, at in placed if all(is_about(term, other) for term in wanted)]
    if all(any(same_domain(term.topology_key, at, node) for at in others) for term in wanted):
        return True
    anywhere = any(term.topology_key in at.meta.labels for at in others for term in wanted)
    return not anywhere and all(is_about(term, pod) for term in wanted)


def spreads(pod: Pod, each: SpreadConstraint, node: Node, placed: Placed, nodes: Sequence[Node]) -> bool:
    """Return whether a constraint allows a node: with all nodes, and with the one that the pod is pinned to."""
    if each.topology_key not in node.meta.labels:
        return False
    keys_of_all = {one.topology_key for one in pod.rules.spread}
    counted = [one for one in nodes if keys_of_all <= one.meta.labels.keys()]
    pinned = [one for one in counted if one is node] if each.honors_affinity else counted
    return all(is_even(pod, each, node, placed, some) for some in (counted, pinned))


def is_even(pod: Pod, each: SpreadConstraint, node: Node, placed: Placed, counted: Sequence[Node]) -> bool:
    assert each.selector is not None
    matches = each.selector.matches
    counts: dict[str, int] = {}
    for one in counted:
        value = one.meta.labels[each.topology_key]
        here = sum(matches(other.meta.labels) for other, at in placed if at is one)
        counts[value] = counts.get(value, 0) + here
    least = 0 if len(counts) < each.min_domains else min(counts.values(), default=2**31)
    after = counts.get(node.meta.labels[each.topology_key], 0) + matches(pod.meta.labels)
    return after - least <= each.max_skew


def feasible(gang: Sequence[Pod], gpus: Mapping[str, int], placed: Placed, nodes: Sequence[Node]) -> bool:
    """Try every order and every node."""
    if not gang:
        return True
    for at, pod in enumerate(gang):
        rest = [*gang[:at], *gang[at + 1 :]]
        for node in nodes:
            if gpus[node.name] > 0 and passes(pod, node, placed, nodes):
                left = {**gpus, node.name: gpus[node.name] - 1}
                if feasible(rest, left, [*placed, (pod, node)], nodes):
                    return True
    return False


@given(worlds(), st.sampled_from(Choice))
@settings(deadline=None, max_examples=250)
def test_a_gang_has_a_plan_where_some_order_and_choice_of_nodes_passes_the_rules(world: World, choice: Choice) -> None:
    snapshot = built(world).snapshot()
    cluster, demands = cluster_state.build(snapshot, ()), demanded(world)
    nodes = [*snapshot.nodes.values()]
    there = [(pod, snapshot.nodes[pod.node]) for pod in snapshot.pods.values()]
    gpus = {f"n-{at}": count for at, (_, count) in enumerate(world.nodes)}

    answer = gang_planner.plan(demands, cluster, selectors=Selectors(), steps=STEPS, choice=choice)

    assert isinstance(answer, Plan) is feasible([one.pod for one in demands], gpus, there, nodes), answer
    if not isinstance(answer, Plan):
        assert answer.kind is Kind.INFEASIBLE
        assert gang_planner.diagnose(answer, demands, cluster, selectors=Selectors(), steps=STEPS).message
        return
    pods = {one.pod.meta.uid: one.pod for one in demands}
    for planned in answer.pods:
        node = snapshot.nodes[NodeName(planned.node)]
        assert passes(pods[planned.uid], node, there, nodes), (planned.pod, planned.node)
        there.append((pods[planned.uid], node))
