"""A gang that shall be together has a plan where one domain alone has one: by brute force, and domain by domain."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import event, given, settings, strategies as st

from admission.api.values.names import NodeName
from admission.dra import gang_planner
from admission.dra.compatibility import Release
from admission.dra.inventory.selectors import Selectors
from admission.dra.planner.no_plan import Kind, NoPlan
from admission.dra.requests.gang_request import Choice, Colocation, Plan, PodDemand, Topology
from admission.dra.state import what_if
from admission.dra.state.cluster_state import ClusterState
from tests.conformance import corpus
from tests.property import test_planner
from tests.property.gangs import Gang, gangs
from tests.property.test_free_choice import STEPS
from tests.property.test_planner import Node, Pod, demanded, feasible
from tests.unit.dra.clusters import ClusterBuilder, a_cluster

RACK = "rack"
RACKS = ("a", "b", "c")

racks = st.lists(st.tuples(test_planner.nodes, st.sampled_from((*RACKS, None))), min_size=1, max_size=4)


def built(cluster: Sequence[tuple[Node, str | None]]) -> ClusterBuilder:
    builder = a_cluster()
    for at, (node, rack) in enumerate(cluster):
        gpus = [{"attributes": {"model": {"string": model}}} for model in node.models]
        labels = {RACK: rack} if rack is not None else {}
        builder.node(f"n-{at}", gpus=gpus, allocatable={"cpu": str(node.cpu)}, labels=labels)
    return builder


def _free(cluster: Sequence[tuple[Node, str | None]], rack: str) -> list[tuple[list[str | None], int]]:
    return [([*node.models], node.cpu) for node, own in cluster if own == rack]


def planned(
    pods: Sequence[PodDemand], cluster: ClusterState, choice: Choice, topology: Topology | None = None
) -> Plan | NoPlan:
    selectors = Selectors(cluster.profile.cel)
    return gang_planner.plan(pods, cluster, selectors=selectors, steps=STEPS, choice=choice, topology=topology)


def domains_of(plan: Plan, cluster: ClusterState) -> set[str | None]:
    return {cluster.nodes[pod.node].meta.labels.get(RACK) for pod in plan.pods}


@given(racks, test_planner.gangs)
@settings(max_examples=150, deadline=None)
def test_a_gang_is_placed_in_one_rack_wherever_some_rack_has_room_for_all_pods(
    cluster: list[tuple[Node, str | None]], gang: list[Pod]
) -> None:
    known = built(cluster).cluster()

    answer = planned(demanded(gang), known, Choice.FIRST_FIT, Topology(gang=Colocation(required=RACK)))

    assert isinstance(answer, Plan) is any(feasible(_free(cluster, rack), gang) for rack in RACKS)
    event("together" if isinstance(answer, Plan) else answer.kind.value)
    if isinstance(answer, Plan):
        (rack,) = domains_of(answer, known)
        assert rack is not None
    else:
        assert answer.kind in {Kind.INFEASIBLE, Kind.NO_DOMAIN}


@pytest.mark.parametrize("choice", list(Choice))
@pytest.mark.parametrize("release", corpus.RELEASES)
@given(data=st.data())
@settings(deadline=None, max_examples=25)
def test_a_required_rack_gives_the_same_plan_as_pods_that_select_the_rack(
    release: Release, choice: Choice, data: st.DataObject
) -> None:
    gang = data.draw(gangs(release))
    topology = Topology(gang=Colocation(required=RACK))

    required = planned(gang.pods, gang.cluster, choice, topology)
    preferred = planned(gang.pods, gang.cluster, choice, Topology(gang=Colocation(preferred=RACK)))

    possible = {rack for rack in RACKS if isinstance(_in_rack(gang, gang.pods, rack, choice), Plan)}
    anywhere = planned(gang.pods, gang.cluster, choice)
    assert isinstance(required, Plan) is bool(possible), (required, possible)
    assert isinstance(preferred, Plan) is isinstance(anywhere, Plan)
    if isinstance(required, Plan):
        assert domains_of(required, gang.cluster) <= possible
        assert isinstance(preferred, Plan)
        assert not preferred.apart
        assert domains_of(preferred, gang.cluster) == domains_of(required, gang.cluster)
    elif isinstance(preferred, Plan):
        assert preferred.apart == required.message
    event(f"{len(possible)} racks, {'a' if isinstance(anywhere, Plan) else 'no'} plan anywhere")


@pytest.mark.parametrize("choice", list(Choice))
@given(data=st.data())
@settings(deadline=None, max_examples=25)
def test_a_late_pod_is_placed_in_the_rack_of_its_gang_or_not_at_all(choice: Choice, data: st.DataObject) -> None:
    gang = data.draw(gangs(Release.V1_37))
    home = NodeName(data.draw(st.sampled_from(sorted(gang.cluster.nodes))))
    rack = gang.cluster.nodes[home].meta.labels[RACK]

    answer = planned(
        gang.pods, gang.cluster, choice, Topology(gang=Colocation(required=RACK, colocated_with=frozenset({home})))
    )

    assert isinstance(answer, Plan) is isinstance(_in_rack(gang, gang.pods, rack, choice), Plan)
    assert not isinstance(answer, Plan) or domains_of(answer, gang.cluster) == {rack}


@pytest.mark.parametrize("choice", list(Choice))
@given(data=st.data())
@settings(deadline=None, max_examples=25)
def test_a_gang_waits_where_an_empty_rack_would_have_room(choice: Choice, data: st.DataObject) -> None:
    gang, topology = data.draw(gangs(Release.V1_37)), Topology(gang=Colocation(required=RACK))
    answer = planned(gang.pods, gang.cluster, choice, topology)
    if not isinstance(answer, NoPlan) or answer.kind is not Kind.INFEASIBLE:
        return
    unused = what_if.empty(gang.cluster)

    found = gang_planner.diagnose(
        answer,
        gang.pods,
        gang.cluster,
        selectors=Selectors(gang.cluster.profile.cel),
        steps=STEPS,
        choice=choice,
        topology=topology,
    )

    later = planned(gang.pods, unused, choice, topology)
    assert (found.kind is Kind.BUSY) is isinstance(later, Plan)
    if isinstance(later, Plan):
        (rack,) = {str(found.details["domain"])}
        assert isinstance(_in_rack(replace(gang, cluster=unused), gang.pods, rack, choice), Plan)
    event(found.kind.value)


def _in_rack(gang: Gang, pods: Sequence[PodDemand], rack: str, choice: Choice) -> Plan | None:
    """Plan as if every pod selected the rack; one that selects another goes nowhere."""
    if any(demand.pod.node_selector.get(RACK, rack) != rack for demand in pods):
        return None
    there = [
        replace(demand, pod=replace(demand.pod, node_selector={**demand.pod.node_selector, RACK: rack}))
        for demand in pods
    ]
    answer = planned(there, gang.cluster, choice)
    return answer if isinstance(answer, Plan) else None
