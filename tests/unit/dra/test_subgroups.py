"""Parts of a gang that are in one domain each: which go where, and what is said of those that find none."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from admission.api.values.names import NodeName
from admission.dra import gang_planner
from admission.dra.inventory.selectors import Selectors
from admission.dra.planner.no_plan import Kind, NoPlan
from admission.dra.requests.gang_request import Choice, Colocation, Plan, PodDemand, Topology
from tests import readers
from tests.unit.dra.clusters import STEPS, ClusterBuilder, a_claim, a_cluster, a_pod, a_request, places, refused
from tests.unit.dra.test_domains import RACK, racks

ZONE = "example.com/zone"
BOTH = pytest.mark.parametrize("choice", list(Choice))


def gang(**parts: Sequence[int]) -> list[PodDemand]:
    """Return pods by subgroup: how many GPUs each of them takes."""
    return [
        replace(a_pod(f"{part}-{at}", count), subgroup=part)
        for part, pods in parts.items()
        for at, count in enumerate(pods)
    ]


def each(*names: str, label: str = RACK, whole: str = "", **more: str) -> Topology:
    return Topology(
        gang=Colocation(required=whole, preferred=more.get("rather", "")),
        subgroups=tuple((name, Colocation(required=label)) for name in names),
    )


def plan(
    builder: ClusterBuilder,
    pods: Sequence[PodDemand],
    topology: Topology,
    *,
    steps: int = STEPS,
    choice: Choice = Choice.FREE,
) -> Plan | NoPlan:
    return gang_planner.plan(
        pods, builder.cluster(), selectors=Selectors(), steps=steps, choice=choice, topology=topology
    )


def parts_of(answer: Plan | NoPlan) -> dict[str, set[str]]:
    """Return by subgroup the racks where its pods are."""
    found: dict[str, set[str]] = {}
    for pod, node in places(answer).items():
        found.setdefault(pod.rpartition("-")[0], set()).add(node.rpartition("-")[0])
    return found


@BOTH
def test_the_search_backtracks_from_a_domain_that_leaves_no_room_for_other_subgroups(choice: Choice) -> None:
    """The small rack takes either of them; only one of them fits into the large one."""
    builder = racks(r1=[2, 2], r2=[4, 1])

    answer = plan(builder, gang(wide=[2, 2], tall=[4]), each("wide", "tall"), choice=choice)

    assert parts_of(answer) == {"wide": {"r1"}, "tall": {"r2"}}


@BOTH
def test_several_subgroups_share_a_domain_that_takes_them(choice: Choice) -> None:
    answer = plan(racks(r1=[1], r2=[4, 4]), gang(a=[2, 2], b=[2, 2]), each("a", "b"), choice=choice)

    assert parts_of(answer) == {"a": {"r2"}, "b": {"r2"}}


def test_a_pod_in_no_subgroup_may_be_placed_on_any_node() -> None:
    answer = plan(racks(r1=[2], r2=[2]), [*gang(a=[1, 1]), a_pod("head-0", 2)], each("a"))

    assert parts_of(answer)["a"] != parts_of(answer)["head"]


@BOTH
def test_subgroups_are_placed_in_racks_of_one_zone_where_the_gang_requires_one_zone(choice: Choice) -> None:
    builder = a_cluster()
    for rack, zone, gpus in (("r1", "x", 2), ("r2", "y", 2), ("r3", "y", 2), ("r4", "x", 1)):
        builder.node(f"{rack}-0", gpus=gpus, labels={RACK: rack, ZONE: zone})

    answer = plan(builder, gang(a=[1, 1], b=[1, 1]), each("a", "b", whole=ZONE), choice=choice)

    assert set(places(answer).values()) == {"r2-0", "r3-0"}


def test_zones_whose_racks_are_cut_otherwise_are_not_alike() -> None:
    """Both zones have two nodes of two devices; only in the second one these are in one rack."""
    builder = a_cluster()
    for name, rack, zone in (("a", "r1", "x"), ("b", "r2", "x"), ("c", "r3", "y"), ("d", "r3", "y")):
        builder.node(f"{name}-0", gpus=2, labels={RACK: rack, ZONE: zone})

    answer = plan(builder, gang(a=[2, 2]), each("a", whole=ZONE))

    assert set(places(answer).values()) == {"c-0", "d-0"}


def test_a_preferred_rack_is_given_up_before_the_required_zone() -> None:
    builder = a_cluster()
    for rack, zone, gpus in (("r1", "x", 2), ("r2", "x", 2), ("r3", "y", 3), ("r4", "z", 1)):
        builder.node(f"{rack}-0", gpus=gpus, labels={RACK: rack, ZONE: zone})
    topology = Topology(gang=Colocation(required=ZONE, preferred=RACK))

    together, apart = plan(builder, gang(p=[2, 1]), topology), plan(builder, gang(p=[2, 2]), topology)

    assert parts_of(together) == {"p": {"r3"}}
    assert parts_of(apart) == {"p": {"r1", "r2"}}
    assert isinstance(apart, Plan)
    assert (
        apart.apart.startswith(
            f"none of 4 domains of {ZONE} and {RACK} takes all 2 pods together; x/r1 comes nearest, with places for 1"
        )
        or "y/r3 comes nearest" in apart.apart
    )


@pytest.mark.parametrize(
    ("builder", "a", "b", "found"),
    [
        (racks(r1=[1, 1], r2=[2, 1]), [2, 1], [1, 1], {"a": {"r2"}, "b": {"r1"}}),
        (racks(r1=[2], r2=[2, 1]), [2, 2], [1], {"a": {"r1", "r2"}, "b": {"r2"}}),
    ],
    ids=["a rack of each subgroup", "none for one of them"],
)
def test_a_gang_gives_up_being_in_one_rack_before_its_subgroups_do(
    builder: ClusterBuilder, a: list[int], b: list[int], found: dict[str, set[str]]
) -> None:
    topology = Topology(
        gang=Colocation(preferred=RACK), subgroups=tuple((name, Colocation(preferred=RACK)) for name in "ab")
    )

    answer = plan(builder, gang(a=a, b=b), topology)

    assert parts_of(answer) == found
    assert isinstance(answer, Plan)
    assert answer.apart.startswith(f"none of 2 domains of {RACK} takes all {len(a) + len(b)} pods together")


@BOTH
def test_a_subgroup_that_no_domain_takes_is_named(choice: Choice) -> None:
    answer = refused(plan(racks(r1=[2], r2=[4]), gang(a=[1], b=[3, 2]), each("a", "b"), choice=choice))

    assert answer.kind is Kind.INFEASIBLE
    assert answer.message.startswith(
        f"none of 2 domains of {RACK} takes subgroup b as a whole, 2 pods; r2 comes nearest, with places for 1: pod b-"
    )
    assert (answer.details["subgroup"], answer.details["domain"]) == ("b", "r2")


def test_a_gang_that_fits_on_no_nodes_is_refused_without_mention_of_domains() -> None:
    answer = refused(plan(racks(r1=[2], r2=[2]), gang(a=[1], b=[2, 2]), each("a", "b")))

    assert answer.kind is Kind.INFEASIBLE
    assert "domain" not in answer.message


@BOTH
def test_the_domains_are_counted_of_many_that_are_alike(choice: Choice) -> None:
    """Each of thirty racks has a size of its own, and takes one of 31 subgroups."""
    builder = racks(**{f"r{at}": [2, 2, *[1] * at] for at in range(30)})
    parts = {f"s{at}": [2, 2] for at in range(31)}

    answer = refused(plan(builder.node("spare", gpus=8), gang(**parts), each(*parts), choice=choice, steps=200_000))

    assert answer.kind is Kind.INFEASIBLE
    assert answer.message == (
        f"the domains of {RACK} have places for 30 of 31 subgroups like s0 (2 pods), each of which has to be in one"
    )


@BOTH
def test_many_subgroups_find_their_racks_in_few_steps(choice: Choice) -> None:
    """Sixteen Jobs of eight pods in sixty racks of twenty nodes, as full as racks are."""
    builder = racks(**{f"r{at}": [8] * (at % 7) + [3] * 13 for at in range(60)})
    parts = {f"job-{at}": [4] * 8 for at in range(16)}

    answer = plan(builder, gang(**parts), each(*parts), choice=choice, steps=50_000)

    assert all(len(found) == 1 for found in parts_of(answer).values())


def test_a_late_pod_is_placed_in_the_rack_of_its_subgroup() -> None:
    builder, colocated_with = racks(r1=[1], r2=[8], r3=[8]), frozenset({NodeName("r3-0")})
    topology = Topology(
        subgroups=(("a", Colocation(required=RACK, colocated_with=colocated_with)), ("b", Colocation(required=RACK)))
    )

    there = plan(builder, gang(a=[1], b=[1]), topology)
    too_many = refused(plan(builder, gang(a=[8, 1], b=[1]), topology))

    assert places(there) == {"a-0": "r3-0", "b-0": "r1-0"}
    assert too_many.message.startswith(
        f"{RACK} r3, where other pods of subgroup a are already, does not take 2 more pods: pod a-"
    )


def test_pods_of_two_subgroups_that_share_a_claim_are_placed_together() -> None:
    shared = a_claim("both", a_request("gpu", 1))
    pods = [replace(a_pod(f"{part}-0", shared), subgroup=part) for part in "ab"]

    answer = plan(racks(r1=[1], r2=[1]), pods, each("a", "b"))

    assert len(set(places(answer).values())) == 1


def test_a_gang_waits_for_racks_that_would_take_all_of_its_subgroups() -> None:
    builder = racks(r1=[2, 2], r2=[2, 2], r3=[3]).taken("r2-1", 0, claim="others/c")
    pods, topology = gang(a=[2, 2], b=[2, 2]), each("a", "b")

    answer = gang_planner.diagnose(
        refused(plan(builder, pods, topology)),
        pods,
        builder.cluster(),
        selectors=Selectors(),
        steps=STEPS,
        choice=Choice.FREE,
        topology=topology,
    )

    assert answer.kind is Kind.BUSY
    assert answer.message.startswith(
        "its subgroups do not all find a domain now; they could, a in r1, b in r2: pod b-1 needs 2 devices"
    )
    assert "others/c" in readers.in_full(answer)


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (3, "a in r1, b in r2, c in r3: pod "),
        (4, "a in r1, b in r2, c in r3, and 1 more: pod "),
        (5, "a in r1, b in r2, c in r3, and 2 more: pod "),
    ],
)
def test_of_many_subgroups_that_wait_the_racks_of_the_first_are_named(count: int, told: str) -> None:
    builder = racks(**{f"r{at + 1}": [2, 2] for at in range(count)}).taken("r1-1", 0, claim="others/c")
    parts = "abcde"[:count]
    pods, topology = gang(**{part: [2, 2] for part in parts}), each("of nobody", *parts)

    answer = gang_planner.diagnose(
        refused(plan(builder, pods, topology)),
        pods,
        builder.cluster(),
        selectors=Selectors(),
        steps=STEPS,
        choice=Choice.FREE,
        topology=topology,
    )

    assert answer.message.startswith(f"its subgroups do not all find a domain now; they could, {told}")


def test_a_search_that_ends_without_an_answer_proves_nothing() -> None:
    parts = {f"s{at}": [2, 2, 1] for at in range(6)}
    builder = racks(**{f"r{at}": [2, 2, 1, *[1] * at] for at in range(6)})

    answer = refused(plan(builder, gang(**parts), each(*parts), steps=100))

    assert answer.kind is Kind.STEPS_ENDED


@BOTH
def test_a_full_rack_does_not_hide_an_equivalent_rack_with_room_left(choice: Choice) -> None:
    """Of two racks of six, each takes two subgroups: the largest and the smallest, and those between."""
    parts: dict[str, Sequence[int]] = {"five": [1] * 5, "four": [1] * 4, "two": [1, 1], "one": [1]}

    found = parts_of(plan(racks(r1=[6], r2=[6]), gang(**parts), each(*parts), choice=choice))

    assert found["five"] == found["one"] != found["four"]
    assert found["four"] == found["two"]
