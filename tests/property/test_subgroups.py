"""Parts of a gang that are in one domain each: by brute force, and choice by choice of domains."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import pytest
from hypothesis import event, given, settings, strategies as st

from admission.dra import gang_planner
from admission.dra.compatibility import Release
from admission.dra.inventory.selectors import Selectors
from admission.dra.planner.no_plan import Kind, NoPlan
from admission.dra.requests.gang_request import Choice, Colocation, Plan, PodDemand, Topology
from admission.dra.state import what_if
from admission.dra.state.cluster_state import ClusterState
from tests.conformance import corpus
from tests.property import test_planner
from tests.property.gangs import gangs
from tests.property.test_domains import RACK, planned
from tests.property.test_free_choice import STEPS
from tests.property.test_planner import Node, Pod, demanded, first_fits
from tests.unit.dra.clusters import a_cluster

ZONE = "zone"


@dataclass(frozen=True)
class Place:
    """A node, its rack if it has one, and its zone."""

    node: Node
    rack: str | None
    zone: str


@dataclass(frozen=True)
class Question:
    """Where pods are asked to be. parts: the subgroup of each pod; empty for none."""

    parts: tuple[str, ...]
    required: Mapping[str, str]
    zone: bool

    @property
    def topology(self) -> Topology:
        return Topology(
            gang=Colocation(required=ZONE if self.zone else ""),
            subgroups=tuple((name, Colocation(required=label)) for name, label in sorted(self.required.items())),
        )


places = st.lists(
    st.builds(Place, node=test_planner.nodes, rack=st.sampled_from(("a", "b", "c", None)), zone=st.sampled_from("xy")),
    min_size=1,
    max_size=4,
)


@st.composite
def questions(draw: st.DrawFn, pods: int) -> Question:
    parts = tuple(draw(st.lists(st.sampled_from(("s", "t", "u", "")), min_size=pods, max_size=pods)))
    labels = st.sampled_from((RACK, RACK, ZONE))
    return Question(parts=parts, required={name: draw(labels) for name in set(parts) if name}, zone=draw(st.booleans()))


def built(cluster: Sequence[Place], taken: Sequence[Collection[int]] = ()) -> ClusterState:
    """Build a world. taken: the devices of each node that others have."""
    builder = a_cluster()
    for at, place in enumerate(cluster):
        gpus = [{"attributes": {"model": {"string": model}}} for model in place.node.models]
        labels = {ZONE: place.zone} | ({RACK: place.rack} if place.rack is not None else {})
        builder.node(f"n-{at}", gpus=gpus, allocatable={"cpu": str(place.node.cpu)}, labels=labels)
    for at, numbers in enumerate(taken):
        builder.taken(f"n-{at}", *sorted(numbers))
    return builder.cluster()


def parted(pods: Sequence[PodDemand], parts: Sequence[str]) -> list[PodDemand]:
    return [replace(pod, subgroup=part) for pod, part in zip(pods, parts, strict=True)]


@given(st.data(), places, test_planner.gangs)
@settings(max_examples=150, deadline=None)
def test_a_gang_is_placed_where_some_choice_of_domains_takes_all_of_its_parts(
    data: st.DataObject, cluster: list[Place], gang: list[Pod]
) -> None:
    asked = data.draw(questions(len(gang)))
    known = built(cluster)

    answer = planned(parted(demanded(gang), asked.parts), known, Choice.FIRST_FIT, asked.topology)

    possible = any(feasible(cluster, gang, allowed) for allowed in every_choice(cluster, asked))
    assert isinstance(answer, Plan) is possible, answer
    event(f"{'a plan' if isinstance(answer, Plan) else answer.kind.value}, {len(asked.required)} parts")
    if isinstance(answer, Plan):
        assert is_kept(answer, asked, cluster)
    else:
        assert answer.kind in {Kind.INFEASIBLE, Kind.NO_DOMAIN}


def every_choice(cluster: Sequence[Place], asked: Question) -> Iterator[list[set[int]]]:
    """Yield, for every choice of domains, the nodes where each pod may go."""
    domains = {
        RACK: [{at for at, place in enumerate(cluster) if place.rack == rack} for rack in "abc"],
        ZONE: [{at for at, place in enumerate(cluster) if place.zone == zone} for zone in "xy"],
    }
    everywhere = {*range(len(cluster))}
    names = sorted(asked.required)
    for zone in domains[ZONE] if asked.zone else [everywhere]:
        for chosen in product(*(domains[asked.required[name]] for name in names)):
            homes = dict(zip(names, chosen, strict=True))
            yield [homes.get(part, everywhere) & zone for part in asked.parts]


def feasible(cluster: Sequence[Place], gang: Sequence[Pod], allowed: Sequence[set[int]]) -> bool:
    """Try every order and every node that is allowed; a pod gets the first fit."""
    state = [(list[str | None](place.node.models), place.node.cpu) for place in cluster]
    return _feasible(state, [*zip(gang, allowed, strict=True)])


def _feasible(cluster: list[tuple[list[str | None], int]], gang: Sequence[tuple[Pod, set[int]]]) -> bool:
    if not gang:
        return True
    for at, (pod, nodes) in enumerate(gang):
        for number in nodes:
            models, cpu = cluster[number]
            taken = next(first_fits(models, [r for r in pod.requests for _ in range(r.count)]), None)
            if cpu >= pod.cpu and taken is not None:
                rest = [None if place in taken else model for place, model in enumerate(models)]
                after = [*cluster[:number], (rest, cpu - pod.cpu), *cluster[number + 1 :]]
                if _feasible(after, [*gang[:at], *gang[at + 1 :]]):
                    return True
    return False


def is_kept(plan: Plan, asked: Question, cluster: Sequence[Place]) -> bool:
    """Return whether a plan is what was asked for."""
    where = {planned.pod: cluster[int(planned.node.removeprefix("n-"))] for planned in plan.pods}
    zones = {place.zone for place in where.values()}
    homes: dict[str, set[str | None]] = {}
    for at, part in enumerate(asked.parts):
        place = where[f"team/p-{at}"]
        homes.setdefault(part, set()).add(place.rack if asked.required.get(part) == RACK else place.zone)
    together = all(len(homes[name]) == 1 and None not in homes[name] for name in asked.required)
    return together and (not asked.zone or len(zones) == 1)


@pytest.mark.parametrize("choice", list(Choice))
@pytest.mark.parametrize("release", corpus.RELEASES)
@given(data=st.data())
@settings(deadline=None, max_examples=25)
def test_racks_of_subgroups_give_the_same_plan_as_pods_that_select_these_racks(
    release: Release, choice: Choice, data: st.DataObject
) -> None:
    gang = data.draw(gangs(release))
    parts = data.draw(st.lists(st.sampled_from("st"), min_size=len(gang.pods), max_size=len(gang.pods)))
    names = sorted(set(parts))
    topology = Topology(subgroups=tuple((name, Colocation(required=RACK)) for name in names))
    pods = parted(gang.pods, parts)

    required = planned(pods, gang.cluster, choice, topology)
    preferred = planned(
        pods, gang.cluster, choice, Topology(subgroups=tuple((name, Colocation(preferred=RACK)) for name in names))
    )

    possible = [
        chosen
        for racks in product("ab", repeat=len(names))
        if isinstance(selecting(pods, chosen := dict(zip(names, racks, strict=True)), gang.cluster, choice), Plan)
    ]
    anywhere = planned(gang.pods, gang.cluster, choice)
    assert isinstance(required, Plan) is bool(possible), (required, possible)
    assert isinstance(preferred, Plan) is isinstance(anywhere, Plan)
    if isinstance(required, Plan):
        assert racks_of(required, pods, gang.cluster) in possible
        assert isinstance(preferred, Plan)
        assert not preferred.apart
    elif isinstance(preferred, Plan):
        assert preferred.apart == required.message
    event(f"{len(possible)} choices, {'a' if isinstance(anywhere, Plan) else 'no'} plan anywhere")


def selecting(
    pods: Sequence[PodDemand], chosen: Mapping[str, str], cluster: ClusterState, choice: Choice
) -> Plan | NoPlan:
    """Plan as if the pods of every part selected a rack."""
    there = []
    for demand in pods:
        rack = chosen[demand.subgroup]
        if demand.pod.node_selector.get(RACK, rack) != rack:
            return NoPlan(kind=Kind.NO_DOMAIN, message="a pod selects another rack")
        pod = replace(demand.pod, node_selector={**demand.pod.node_selector, RACK: rack})
        there.append(replace(demand, pod=pod, subgroup=""))
    return planned(there, cluster, choice)


def racks_of(plan: Plan, pods: Sequence[PodDemand], cluster: ClusterState) -> dict[str, str]:
    node_of = {planned.uid: planned.node for planned in plan.pods}
    found = {demand.subgroup: set[str]() for demand in pods}
    for demand in pods:
        found[demand.subgroup].add(cluster.nodes[node_of[demand.pod.meta.uid]].meta.labels[RACK])
    assert all(len(racks) == 1 for racks in found.values())
    return {name: racks.pop() for name, racks in sorted(found.items())}


@pytest.mark.parametrize("choice", list(Choice))
@given(data=st.data(), cluster=places, gang=test_planner.gangs)
@settings(deadline=None, max_examples=50)
def test_a_gang_waits_for_domains_that_would_take_its_parts_if_nothing_were_in_use(
    choice: Choice, data: st.DataObject, cluster: list[Place], gang: list[Pod]
) -> None:
    asked = data.draw(questions(len(gang)))
    taken = [
        data.draw(st.sets(st.sampled_from(range(len(one.node.models))))) if one.node.models else () for one in cluster
    ]
    known, pods = built(cluster, taken), parted(demanded(gang), asked.parts)
    answer = planned(pods, known, choice, asked.topology)
    if not isinstance(answer, NoPlan) or answer.kind is not Kind.INFEASIBLE:
        return

    found = gang_planner.diagnose(
        answer,
        pods,
        known,
        selectors=Selectors(known.profile.cel),
        steps=STEPS,
        choice=choice,
        topology=asked.topology,
    )

    later = planned(pods, what_if.empty(known), choice, asked.topology)
    assert (found.kind is Kind.BUSY) is isinstance(later, Plan), found
    event(found.kind.value)
