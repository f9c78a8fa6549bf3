"""Gangs whose pods have rules about each other and about pods that are there."""

from dataclasses import replace
from typing import Any

import pytest

from admission.api.kubernetes import nodes as api_nodes, pods as api_pods
from admission.api.kubernetes.pods import Pod
from admission.api.values.names import NodeName, Uid
from admission.dra import gang_planner
from admission.dra.inventory.selectors import Selectors
from admission.dra.planner import requeue_hint
from admission.dra.planner.no_plan import Kind, NoPlan
from admission.dra.requests.gang_request import Choice, Colocation, Plan, PodDemand, Topology
from admission.dra.state import cluster_state, what_if
from admission.dra.state.what_if import Belongings
from tests.unit.dra.clusters import STEPS, ClusterBuilder, Json, a_cluster, a_pod, places, refused

HOST, RACK = "kubernetes.io/hostname", "rack"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def racks(**nodes: str) -> ClusterBuilder:
    """Return a cluster of nodes with four GPUs each. nodes: the rack of each."""
    builder = a_cluster()
    for name, rack in nodes.items():
        builder.node(name, gpus=4, labels={HOST: name, RACK: rack})
    return builder


def term(key: str, app: str) -> Json:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}


def apart(key: str, app: str = "x") -> Json:
    return {"podAntiAffinity": {REQUIRED: [term(key, app)]}}


def beside(key: str, app: str) -> Json:
    return {"podAffinity": {REQUIRED: [term(key, app)]}}


def pod(name: str, app: str = "x", **spec: Any) -> Pod:
    meta = {"name": name, "namespace": "team", "uid": f"pod-{name}", "labels": {"app": app}}
    return api_pods.decode({"metadata": meta, "spec": {"containers": [{"name": "c"}], **spec}})


def a_ruled(name: str, gpus: int = 1, app: str = "x", **spec: Any) -> PodDemand:
    return replace(a_pod(name, gpus), pod=pod(name, app, **spec))


def gang(count: int, **spec: Any) -> list[PodDemand]:
    return [a_ruled(f"p-{at}", **spec) for at in range(count)]


def on(builder: ClusterBuilder, node: str, name: str, app: str = "x", **spec: Any) -> ClusterBuilder:
    builder.pods.append(pod(name, app, nodeName=node, **spec))
    return builder


@pytest.mark.parametrize("choice", Choice)
def test_pods_that_may_not_be_together_are_planned_on_a_node_each(choice: Choice) -> None:
    cluster = racks(a="1", b="1", c="2").cluster()
    answer = gang_planner.plan(
        gang(3, affinity=apart(HOST)), cluster, selectors=Selectors(), steps=STEPS, choice=choice
    )

    assert sorted(places(answer).values()) == ["a", "b", "c"]


def test_one_pod_too_many_is_told_the_rule() -> None:
    found = racks(a="1", b="1").diagnose(*gang(3, affinity=apart(HOST)))

    assert found.kind is Kind.INFEASIBLE
    assert "podAntiAffinity on kubernetes.io/hostname keeps it off a and b" in found.message
    assert found.details["rules"] == ["podAntiAffinity on kubernetes.io/hostname"]
    assert found.placed == 2


def test_a_rule_of_pods_that_are_there_is_told_and_waits_for_them() -> None:
    builder = on(on(racks(a="1", b="2"), "a", "r-0", "y", affinity=apart(HOST)), "b", "r-1", "y", affinity=apart(HOST))
    found = builder.diagnose(a_ruled("p"))

    assert found.kind is Kind.BUSY
    assert "a and b may not take it by podAntiAffinity of other pods on kubernetes.io/hostname" in found.message


def test_a_pod_that_needs_another_one_comes_after_it() -> None:
    answer = racks(a="1", b="1", c="2").plan(a_ruled("first", affinity=beside(RACK, "y")), a_ruled("later", 4, app="y"))

    assert isinstance(answer, Plan)
    assert [planned.pod for planned in answer.pods] == ["team/later", "team/first"]
    assert set(places(answer).values()) == {"a", "b"}


def test_affinity_to_a_running_pod_waits_for_devices_beside_it() -> None:
    builder = on(racks(a="1", b="2"), "a", "service", "y").taken("a", 0, 1, 2, 3)
    found = builder.diagnose(a_ruled("p", affinity=beside(RACK, "y")))

    assert found.kind is Kind.BUSY


def test_exclusive_parts_get_a_domain_each() -> None:
    """As JobSet's exclusive-topology: every part with its own, none with another."""

    def part(name: str) -> PodDemand:
        others = {
            "matchExpressions": [
                {"key": "job", "operator": "NotIn", "values": [name]},
                {"key": "job", "operator": "Exists"},
            ]
        }
        own = {"matchLabels": {"job": name}}
        affinity = {
            "podAffinity": {REQUIRED: [{"topologyKey": RACK, "labelSelector": own}]},
            "podAntiAffinity": {REQUIRED: [{"topologyKey": RACK, "labelSelector": others}]},
        }
        meta = {"name": name, "namespace": "team", "uid": name, "labels": {"job": name}}
        made = api_pods.decode({"metadata": meta, "spec": {"containers": [{"name": "c"}], "affinity": affinity}})
        return replace(a_pod(name, 1), pod=made)

    builder = racks(a="1", b="1", c="2", d="3")
    answer = builder.plan(*map(part, ("j-0", "j-1", "j-2")))

    rack = {"a": "1", "b": "1", "c": "2", "d": "3"}
    assert sorted(rack[node] for node in places(answer).values()) == ["1", "2", "3"]
    assert refused(builder.plan(*map(part, ("j-0", "j-1", "j-2", "j-3")))).kind is Kind.INFEASIBLE


def a_spread(**more: Any) -> list[Json]:
    of_app = {"labelSelector": {"matchLabels": {"app": "x"}}}
    return [{"topologyKey": RACK, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **of_app, **more}]


def test_a_spread_is_kept_over_racks() -> None:
    answer = racks(a="1", b="1", c="2").plan(*gang(4, topologySpreadConstraints=a_spread()))

    assert sorted({"a": "1", "b": "1", "c": "2"}[node] for node in places(answer).values()) == ["1", "1", "2", "2"]


def test_a_spread_with_min_domains_is_kept_on_the_node_that_a_pod_is_pinned_to() -> None:
    """kube-scheduler counts that node alone, in one domain: a second pod of it there is one too many."""
    spread = a_spread(minDomains=2)

    answer = racks(a="1", b="1", c="2").plan(*gang(3, topologySpreadConstraints=spread))

    assert sorted(places(answer).values()) == ["a", "b", "c"]
    assert isinstance(racks(a="1", c="2").plan(*gang(3, topologySpreadConstraints=spread)), NoPlan)


def test_host_ports_are_taken_once_on_a_node() -> None:
    ports = [{"name": "c", "ports": [{"containerPort": 1, "hostPort": 80}]}]
    answer = on(racks(a="1", b="1", c="2"), "a", "r", containers=ports).plan(*gang(2, containers=ports))

    assert sorted(places(answer).values()) == ["b", "c"]


def test_many_pods_with_a_node_each_take_no_steps_back() -> None:
    builder = a_cluster()
    for at in range(40):
        builder.node(f"n-{at:02}", gpus=4, labels={HOST: f"n-{at:02}"})
    answer = builder.plan(*gang(40, affinity=apart(HOST)), steps=400)

    assert len(set(places(answer).values())) == 40
    assert refused(builder.plan(*gang(41, affinity=apart(HOST)), steps=400)).kind is Kind.INFEASIBLE


def test_subgroups_of_a_rack_may_go_to_different_nodes_of_it() -> None:
    """One needs all three nodes, and the other may not go to one of them."""
    topology = Topology(subgroups=(("s", Colocation(required=RACK)), ("t", Colocation(required=RACK))))
    parts = {"s": gang(3, affinity=apart(HOST)), "t": [a_ruled("q", app="y", nodeSelector={"disk": "ssd"})]}
    builder = racks(b="1", c="1").node("a", gpus=4, labels={HOST: "a", RACK: "1", "disk": "ssd"})
    demands = [replace(one, subgroup=name) for name, those in parts.items() for one in those]
    answer = gang_planner.plan(demands, builder.cluster(), selectors=Selectors(), steps=STEPS, topology=topology)

    assert sorted(places(answer).values()) == ["a", "a", "b", "c"]


def test_racks_that_are_equal_to_one_subgroup_are_not_so_to_others() -> None:
    """The one of small pods has to leave rack 1 to a large one, which may use a node there that it may not."""
    topology = Topology(subgroups=tuple((name, Colocation(required=RACK)) for name in ("s", "t", "u")))
    builder = a_cluster()
    for name, rack, disk in (
        ("a1", "1", "ssd"),
        ("b1", "1", "none"),
        ("c2", "2", "ssd"),
        ("d3", "3", ""),
        ("e3", "3", ""),
    ):
        builder.node(name, gpus=4, labels={HOST: name, RACK: rack, "disk": disk})
    demands = [a_ruled(f"s-{at}", nodeSelector={"disk": "ssd"}) for at in range(3)]
    demands += [a_ruled(f"{name}-{at}", 4) for name in ("t", "u") for at in range(2)]
    demands = [replace(one, subgroup=one.pod.meta.name[0]) for one in demands]
    answer = gang_planner.plan(demands, builder.cluster(), selectors=Selectors(), steps=STEPS, topology=topology)

    assert places(answer)["s-0"] == "c2"


def test_subgroups_in_a_rack_each_keep_their_rules() -> None:
    topology = Topology(subgroups=(("s", Colocation(required=RACK)), ("t", Colocation(required=RACK))))
    demands = [replace(one, subgroup="s" if at < 2 else "t") for at, one in enumerate(gang(4, affinity=apart(HOST)))]
    cluster = racks(a="1", b="1", c="2", d="2", e="3").cluster()
    answer = gang_planner.plan(demands, cluster, selectors=Selectors(), steps=STEPS, topology=topology)

    assert sorted(places(answer).values()) == ["a", "b", "c", "d"]


def test_a_subgroup_that_needs_pods_of_another_one_is_not_refused_alone() -> None:
    topology = Topology(subgroups=(("s", Colocation(required=RACK)),))
    demands = [replace(a_ruled("p", affinity=beside(RACK, "y")), subgroup="s"), a_ruled("q", app="y")]
    answer = gang_planner.plan(
        demands, racks(a="1", b="2").cluster(), selectors=Selectors(), steps=STEPS, topology=topology
    )

    assert isinstance(answer, Plan)


def test_granted_pods_count_for_the_gangs_after_them() -> None:
    builder = racks(a="1", b="1")
    cluster, first = builder.cluster(), a_ruled("first", affinity=apart(HOST))
    answer = gang_planner.plan([first], cluster, selectors=Selectors(), steps=STEPS)
    assert isinstance(answer, Plan)
    after = cluster_state.granted(cluster, answer, {first.pod.meta.uid: first.pod}, "team/first")

    second = gang_planner.plan([a_ruled("second")], after, selectors=Selectors(), steps=STEPS)

    assert set(places(answer).values()) | set(places(second).values()) == {"a", "b"}


def test_pods_of_removed_gangs_keep_nobody_off() -> None:
    cluster = on(racks(a="1"), "a", "r", affinity=apart(HOST)).cluster()
    assert not isinstance(gang_planner.plan([a_ruled("p")], cluster, selectors=Selectors(), steps=STEPS), Plan)

    removed = what_if.without_gangs(cluster, [Belongings(placed=frozenset({Uid("pod-r")}))])

    assert isinstance(gang_planner.plan([a_ruled("p")], removed, selectors=Selectors(), steps=STEPS), Plan)


def test_a_state_follows_pods_and_namespaces_and_logs_their_nodes() -> None:
    empty, running = racks(a="1", b="1").snapshot(), pod("r", nodeName="a")
    before, snapshot = cluster_state.build(empty, ()), replace(empty, pods={running.meta.uid: running})
    after = cluster_state.build(snapshot, (), before=before)
    labelled = api_nodes.decode_namespace({"metadata": {"name": "team", "labels": {"x": "y"}}})
    renamed = cluster_state.build(replace(snapshot, namespaces={"team": labelled}), (), before=after)

    assert [*after.placed.on(NodeName("a"))] == ["pod-r"]
    assert cluster_state.changed(before, after) == frozenset({NodeName("a")})
    assert renamed.placed.namespace_labels("team")["x"] == "y"
    assert after.placed.namespace_labels("team") == {"kubernetes.io/metadata.name": "team"}
    assert requeue_hint.changed(after, renamed) is None


DISK = {"name": "v", "gcePersistentDisk": {"pdName": "d"}}
CONCERNED: dict[str, tuple[PodDemand, bool]] = {
    "a rule of its own": (a_ruled("p", affinity=apart(RACK)), True),
    "labels that a rule of others may read": (a_ruled("p"), True),
    "a volume": (a_pod("p", 1, volumes=[DISK]), True),
    "none of these": (a_pod("p", 1), False),
}


@pytest.mark.parametrize(("pod", "helped"), CONCERNED.values(), ids=CONCERNED)
def test_a_change_of_any_node_may_help_a_gang_that_rules_may_concern(pod: PodDemand, *, helped: bool) -> None:
    """The pod that went from a full node may be why another node of its rack was closed."""
    cluster = racks(a="1", b="1").taken("a", 0, 1, 2, 3).cluster()

    assert requeue_hint.may_help([pod], frozenset({NodeName("a")}), cluster, selectors=Selectors()) is helped


@pytest.mark.parametrize("choice", Choice)
def test_a_node_that_is_short_of_a_resource_takes_pods_that_do_not_request_it(choice: Choice) -> None:
    """More than all of it may be in use: allocatable has shrunk, or kube-scheduler keeps the node for others."""
    builder = a_cluster().node("a", gpus=1, allocatable={"cpu": "4", "memory": "1Gi"})
    builder.node("b", gpus=1, allocatable={"cpu": "4", "memory": "4Gi"})
    hungry = [{"name": "c", "resources": {"requests": {"memory": "2Gi"}}}]
    on(builder, "a", "there", containers=hungry)
    pods = [a_pod("driver", 1, requests={"cpu": "1", "memory": "1Gi"}), a_pod("worker", 1, requests={"cpu": "1"})]
    answer = gang_planner.plan(pods, builder.cluster(), selectors=Selectors(), steps=STEPS, choice=choice)

    assert places(answer) == {"driver": "b", "worker": "a"}


@pytest.mark.parametrize("choice", Choice)
def test_more_exclusive_parts_than_domains_are_told_by_counting(choice: Choice) -> None:
    """Without it the search would try every order of the parts."""
    builder = a_cluster()
    for at in range(9):
        builder.node(f"n-{at}", gpus=4, labels={HOST: f"n-{at}", RACK: str(at)})
    parts = [a_ruled(f"j-{at}", app=f"j-{at}", affinity=apart_from_others(f"j-{at}")) for at in range(10)]
    answer = gang_planner.plan(parts, builder.cluster(), selectors=Selectors(), steps=500, choice=choice)

    assert refused(answer).kind is Kind.INFEASIBLE
    assert "podAntiAffinity" in refused(answer).message
    assert isinstance(
        gang_planner.plan(parts[:9], builder.cluster(), selectors=Selectors(), steps=500, choice=choice), Plan
    )


def apart_from_others(app: str) -> Json:
    others = {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [app]}]}
    return {"podAntiAffinity": {REQUIRED: [{"topologyKey": RACK, "labelSelector": others}]}}
