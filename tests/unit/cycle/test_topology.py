"""Gangs that stay together, over cycles of the controller: where they go, what they wait for, and what is told."""

from dataclasses import replace
from typing import Any

import pytest

from admission.api.muster import gangs
from admission.api.muster.gangs import DomainReport, DomainRequest, GangReport, Phase, TopologyReport
from admission.api.values import names
from admission.api.values.names import NodeName
from admission.api.values.reasons import DenyReason, HoldReason
from admission.cycle import cycle
from admission.cycle.state.leader import Leader, Ports
from admission.simulation import in_memory
from tests.builders import NOON, ClusterBuilder, a_cluster, pod_of, running

RACK = "example.com/rack"
KEY = "muster.dev/topology"
REQUIRED = {names.TOPOLOGY: RACK}
PREFERRED = {names.TOPOLOGY_PREFERRED: RACK}


class Cluster(in_memory.Cluster):
    """A cluster whose nodes are labelled anew."""

    def relabel(self, node: str, **labels: str) -> None:
        name = NodeName(node)
        known = self._rest.nodes[name]
        meta = replace(known.meta, labels={**known.meta.labels, RACK: labels["rack"]})
        self._rest = replace(self._rest, nodes={**self._rest.nodes, name: replace(known, meta=meta)})

    def run(self, pod: str, node: str) -> None:
        found = pod_of(self.snapshot(), pod)
        self._pods[found.meta.uid] = running(found, node)


def racks(**nodes: tuple[str, int]) -> ClusterBuilder:
    """Return a cluster with a queue, and nodes by name: their rack and their GPUs."""
    builder = a_cluster().queue("q", gpus=100)
    for name, (rack, gpus) in nodes.items():
        builder.node(name, gpus=gpus, labels={RACK: rack})
    return builder


def a_leader(cluster: in_memory.Cluster, ledger: in_memory.Ledger, epoch: int = 1) -> Leader:
    ports = Ports(view=cluster, pods=cluster, claims=cluster, workloads=cluster, reports=cluster, ledger=ledger)
    return Leader.build(ports=ports, actor="test", epoch=epoch)


async def decided(builder: ClusterBuilder, *gang: gangs.Gang) -> GangReport:
    """Run a cycle over a new cluster, and return what is said of the only gang."""
    snapshot = replace(builder.snapshot(), gangs={one.meta.key: one for one in gang})
    result = await cycle.run(a_leader(in_memory.Cluster(snapshot), in_memory.Ledger()), NOON)
    (report,) = result.gangs
    return report


def nodes_of(report: GangReport) -> list[str]:
    return sorted(planned.node for planned in report.plan)


async def test_a_gang_starts_in_the_rack_with_room_for_all_its_pods_and_its_status_names_the_rack() -> None:
    builder = racks(a=("r1", 1), b=("r1", 2), c=("r2", 2), d=("r2", 2))

    report = await decided(builder.job("j", queue="q", pods=2, gpus=2, annotations=REQUIRED))

    assert nodes_of(report) == ["c", "d"]
    assert report.topology == TopologyReport(gang=DomainReport(request=DomainRequest(required=RACK), domains=("r2",)))


async def test_a_gang_waits_for_its_rack_and_starts_when_a_node_gets_the_label() -> None:
    builder = racks(a=("r1", 2), b=("r2", 2)).job("j", queue="q", pods=2, gpus=2, annotations=REQUIRED)
    cluster, ledger = Cluster(builder.snapshot()), in_memory.Ledger()
    leader = a_leader(cluster, ledger)

    (before,) = (await cycle.run(leader, NOON)).gangs
    (again,) = (await cycle.run(leader, NOON)).gangs
    cluster.relabel("b", rack="r1")
    (after,) = (await cycle.run(leader, NOON)).gangs

    assert before.hold is not None
    assert before.hold.reason is HoldReason.NO_FEASIBLE_PLACEMENT
    assert before.hold.message.startswith(f"none of 2 domains of {RACK} takes all 2 pods together; r1 comes nearest")
    assert before.topology == TopologyReport(gang=DomainReport(request=DomainRequest(required=RACK)))
    assert again.hold == before.hold
    assert nodes_of(after) == ["a", "b"]


async def test_every_label_is_a_topology_also_the_name_of_the_node() -> None:
    builder = racks(a=("r1", 2), b=("r1", 2), c=("r2", 4))

    report = await decided(
        builder.job("j", queue="q", pods=2, gpus=2, annotations={names.TOPOLOGY: names.HOSTNAME}),
    )

    assert nodes_of(report) == ["c", "c"]


async def test_a_late_pod_goes_to_the_rack_of_its_gang_also_under_the_next_leader() -> None:
    labels = {names.GANG: "g", names.GANG_SIZE: "1"}
    builder = racks(a=("r1", 1), b=("r2", 1), c=("r2", 8))
    builder.pod("g-0", gpus=1, labels=labels, annotations=REQUIRED)
    cluster, ledger = Cluster(builder.snapshot()), in_memory.Ledger()
    cluster.run("g-0", "b")
    more = a_cluster().pod("g-1", gpus=1, labels=labels, annotations=REQUIRED).snapshot()
    cluster._pods |= more.pods
    cluster._claims |= more.claims

    (report,) = (await cycle.run(a_leader(cluster, ledger), NOON)).gangs
    assert {planned.pod: planned.node for planned in report.plan} == {"team/g-1": "b"}

    even_more = a_cluster().pod("g-2", gpus=4, labels=labels, annotations=REQUIRED).snapshot()
    cluster._pods |= even_more.pods
    cluster._claims |= even_more.claims
    (report,) = (await cycle.run(a_leader(cluster, ledger, epoch=2), NOON)).gangs

    assert {planned.pod: planned.node for planned in report.plan} == {"team/g-1": "b", "team/g-2": "c"}
    assert report.topology == TopologyReport(gang=DomainReport(request=DomainRequest(required=RACK), domains=("r2",)))


async def test_a_late_pod_waits_where_the_rack_of_its_gang_is_full() -> None:
    labels = {names.GANG: "g", names.GANG_SIZE: "1"}
    builder = racks(a=("r1", 1), b=("r2", 1)).pod("g-0", gpus=0, labels=labels, annotations=REQUIRED)
    builder.pod("g-1", gpus=2, labels=labels, annotations=REQUIRED)
    cluster = Cluster(builder.snapshot())
    cluster.run("g-0", "b")

    (report,) = (await cycle.run(a_leader(cluster, in_memory.Ledger()), NOON)).gangs

    assert report.hold is not None
    assert report.hold.message.startswith(
        f"{RACK} r2, where other pods of the gang are already, does not take one more pod: pod g-1 needs 2 devices"
    )


async def test_a_gang_that_would_rather_be_together_starts_apart_and_says_why() -> None:
    builder = racks(a=("r1", 2), b=("r2", 2)).job("j", queue="q", pods=2, gpus=2, annotations=PREFERRED)
    cluster = in_memory.Cluster(builder.snapshot())

    (report,) = (await cycle.run(a_leader(cluster, in_memory.Ledger()), NOON)).gangs

    assert nodes_of(report) == ["a", "b"]
    assert report.topology == TopologyReport(
        gang=DomainReport(request=DomainRequest(preferred=RACK), domains=("r1", "r2"))
    )
    (notice, _) = [notice for notice in cluster.notices if notice.reason == "NotTogether"]
    assert f"its pods need not be in one domain: none of 2 domains of {RACK} takes all 2 pods" in notice.message


async def test_a_counted_gang_with_a_required_topology_is_held_with_that_reason() -> None:
    required = racks(a=("r1", 2)).queue("counted", gpus=9, placement="Count")
    preferred = racks(a=("r1", 2)).queue("counted", gpus=9, placement="Count")
    cluster = in_memory.Cluster(preferred.job("j", queue="counted", annotations=PREFERRED).snapshot())

    held = await decided(required.job("j", queue="counted", annotations=REQUIRED))
    (let_in,) = (await cycle.run(a_leader(cluster, in_memory.Ledger()), NOON)).gangs

    assert held.hold is not None
    assert held.hold.reason is HoldReason.NOT_SIMULATED
    assert (
        f"look at domains of {RACK}; ask for placement Auto or Pin, or for {names.TOPOLOGY_PREFERRED}"
        in held.hold.message
    )
    assert let_in.phase is not Phase.PENDING
    (notice, _) = [notice for notice in cluster.notices if notice.reason == "NotTogether"]
    assert notice.message.endswith("placement Count leaves the nodes to kube-scheduler, which does not look at domains")


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("example.com/row", "no node has the label example.com/row; label the nodes, or name a label that they have"),
        ("no key", "no node has the label no key; label the nodes, or name a label that they have"),
    ],
)
async def test_a_label_that_no_node_has_is_named(label: str, message: str) -> None:
    report = await decided(racks(a=("r1", 2)).job("j", queue="q", annotations={names.TOPOLOGY: label}))

    assert report.hold is not None
    assert (report.hold.reason, report.hold.message) == (HoldReason.NO_FEASIBLE_PLACEMENT, message)


def written(**topology: object) -> gangs.Gang:
    spec: dict[str, Any] = {"queue": "q", "size": 2, "topology": topology}
    return gangs.decode({"metadata": {"name": "g", "namespace": "team", "uid": "g"}, "spec": spec})


def named(*annotations: dict[str, str]) -> ClusterBuilder:
    builder = racks(a=("r1", 2), b=("r2", 2))
    for at, own in enumerate(annotations):
        builder.pod(f"g-{at}", gpus=1, labels={names.GANG: "g", names.GANG_SIZE: "2"}, annotations=own)
    return builder


PARTED = [{names.SUBGROUP: part, names.SUBGROUP_TOPOLOGY: RACK} for part in ("a", "a", "b", "b")]


def parted(*annotations: dict[str, str], **nodes: tuple[str, int]) -> ClusterBuilder:
    builder = racks(**nodes)
    for at, own in enumerate(annotations):
        labels = {names.GANG: "g", names.GANG_SIZE: str(len(annotations))}
        builder.pod(f"g-{at}", gpus=2, labels=labels, annotations=own)
    return builder


async def test_each_subgroup_is_placed_in_one_rack_that_the_status_names() -> None:
    report = await decided(parted(*PARTED, a=("r1", 2), b=("r2", 4), c=("r3", 2), d=("r1", 2), e=("r3", 1)))

    homes = {planned.pod: planned.node for planned in report.plan}
    assert [homes[f"team/g-{at}"] for at in range(4)] in (["b", "b", "a", "d"], ["a", "d", "b", "b"])
    assert report.topology is not None
    assert report.topology.gang is None
    assert {(name, own.domains) for name, own in report.topology.subgroups} in (
        {("a", ("r1",)), ("b", ("r2",))},
        {("a", ("r2",)), ("b", ("r1",))},
    )


async def test_a_gang_whose_subgroups_do_not_all_find_a_rack_is_held_with_the_number_that_do() -> None:
    report = await decided(parted(*PARTED, a=("r1", 2), b=("r2", 4), d=("r3", 2)))

    assert report.hold is not None
    assert report.hold.reason is HoldReason.NO_FEASIBLE_PLACEMENT
    assert report.hold.message == (
        f"the domains of {RACK} have places for 1 of 2 subgroups like a (2 pods), each of which has to be in one, even"
        " if nothing else were in use"
    )


async def test_a_replacement_pod_goes_to_the_rack_of_its_subgroup() -> None:
    builder = parted(*PARTED[:3], a=("r1", 4), b=("r2", 4), c=("r3", 8))
    cluster = Cluster(builder.snapshot())
    for pod, node in (("g-0", "a"), ("g-1", "b")):
        cluster.run(pod, node)
    cluster._pods = {
        uid: replace(pod, meta=replace(pod.meta, annotations={**pod.meta.annotations, names.SUBGROUP: "b"}))
        if pod.meta.name == "g-1"
        else pod
        for uid, pod in cluster._pods.items()
    }

    (report,) = (await cycle.run(a_leader(cluster, in_memory.Ledger()), NOON)).gangs

    assert {planned.pod: planned.node for planned in report.plan} == {"team/g-2": "b"}


async def test_a_gang_is_placed_in_its_required_domain_and_preferably_in_one_rack() -> None:
    both = {names.TOPOLOGY: names.HOSTNAME, names.TOPOLOGY_PREFERRED: RACK}
    report = await decided(parted(both, both, a=("r1", 2), b=("r1", 2), c=("r2", 4)))

    assert nodes_of(report) == ["c", "c"]
    assert report.topology is not None
    assert report.topology.gang is not None
    assert (report.topology.gang.domains, report.topology.gang.preferred) == (("c",), ("r2",))


async def test_a_gang_object_written_by_a_user_states_the_topology_for_all_its_pods() -> None:
    report = await decided(named({}, {}), written(required=RACK))

    assert len({planned.node for planned in report.plan}) == 1
    assert report.topology is not None
    assert report.topology.gang == DomainReport(request=DomainRequest(required=RACK), domains=("r1",))


AT_ODDS = {
    "one says nothing": (
        [REQUIRED, {}],
        [],
        (f"pod g-1 asks for no {KEY}, and pod g-0 for {KEY} {RACK}; give all pods of the gang the same {KEY}, or none"),
    ),
    "one would rather": (
        [PREFERRED, REQUIRED],
        [],
        (
            f"pod g-1 asks for {KEY} {RACK}, and pod g-0 for {KEY}-preferred {RACK}; give all"
            f" pods of the gang the same {KEY}, or none"
        ),
    ),
    "a subgroup is not said": (
        [{names.SUBGROUP_TOPOLOGY: RACK}, {names.SUBGROUP_TOPOLOGY: RACK, names.SUBGROUP: "a"}],
        [],
        (
            f"pod g-0 is to be where its subgroup is (muster.dev/subgroup-topology {RACK}), and nothing says which"
            " subgroup of the gang it is in; annotate it with muster.dev/subgroup"
        ),
    ),
    "nor one that the Gang asks for": (
        [{names.SUBGROUP: "a"}, {}],
        [written(subgroups={"preferred": RACK})],
        (
            f"pod g-1 is to be where its subgroup is (muster.dev/subgroup-topology-preferred {RACK}), and nothing says"
            " which subgroup of the gang it is in; annotate it with muster.dev/subgroup"
        ),
    ),
    "pods of a subgroup ask for different things": (
        [{names.SUBGROUP: "a", names.SUBGROUP_TOPOLOGY: RACK}, {names.SUBGROUP: "a"}],
        [],
        (
            f"pod g-1 asks for no muster.dev/subgroup-topology, and pod g-0 for muster.dev/subgroup-topology {RACK};"
            " give all pods of subgroup a the same muster.dev/subgroup-topology, or none"
        ),
    ),
    "the Gang says another": (
        [{}, REQUIRED],
        [written(preferred=RACK)],
        (
            f"pod g-1 asks for {KEY} {RACK}, and Gang team/g for {KEY}-preferred {RACK} by"
            " spec.topology; leave it out of the pods, or write the same"
        ),
    ),
}


@pytest.mark.parametrize(("annotations", "gang", "message"), AT_ODDS.values(), ids=AT_ODDS)
async def test_a_gang_whose_pods_ask_for_different_topologies_is_held_with_that_reason(
    annotations: list[dict[str, str]], gang: list[gangs.Gang], message: str
) -> None:
    report = await decided(named(*annotations), *gang)

    assert report.hold is not None
    assert (report.hold.reason, report.hold.message) == (DenyReason.POLICY_VIOLATION, message)
