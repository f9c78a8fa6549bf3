"""Gangs that stay together: which domains are looked at, how often, and what is said where none takes the gang."""

from collections.abc import Sequence
from typing import Any

import pytest

from admission.api.values.names import NodeName
from admission.dra import gang_planner
from admission.dra.inventory.selectors import Selectors
from admission.dra.planner.no_plan import Kind, NoPlan
from admission.dra.requests.gang_request import Choice, Colocation, Plan, PodDemand, Topology
from tests import readers
from tests.unit.dra.clusters import STEPS, ClusterBuilder, a_claim, a_cluster, a_pod, a_request, places, refused

RACK = "example.com/rack"
PREFERRED: dict[str, Any] = {"required": "", "preferred": RACK}


def racks(**gpus: Sequence[int]) -> ClusterBuilder:
    """Return a world of racks, each with nodes of so many GPUs, called RACK-NUMBER."""
    builder = a_cluster()
    for rack, nodes in gpus.items():
        for at, count in enumerate(nodes):
            builder.node(f"{rack}-{at}", gpus=count, labels={RACK: rack})
    return builder


def plan(builder: ClusterBuilder, *pods: PodDemand, steps: int = STEPS, **topology: Any) -> Plan | NoPlan:
    return gang_planner.plan(
        pods,
        builder.cluster(),
        selectors=Selectors(),
        steps=steps,
        topology=Topology(gang=Colocation(**{"required": RACK, **topology})),
    )


def gang(pods: int, gpus: int = 1) -> list[PodDemand]:
    return [a_pod(f"p-{at}", gpus) for at in range(pods)]


def colocated_with(*nodes: str) -> frozenset[NodeName]:
    return frozenset(map(NodeName, nodes))


def test_equivalent_domains_are_searched_once() -> None:
    few, many = (racks(**{f"r{at}": [4, 1] for at in range(count)}) for count in (1, 50))

    answers = [refused(plan(builder, *gang(2, 3))) for builder in (few, many)]

    assert answers[0].steps == answers[1].steps
    assert answers[0].message.startswith(f"the only domain of {RACK}, r0, does not take all 2 pods together: pod p-1")
    assert answers[1].message.startswith(f"none of 50 domains of {RACK} takes all 2 pods together; r0 comes nearest")


def test_a_domain_that_is_hard_to_judge_leaves_steps_for_one_that_is_easy() -> None:
    """In the first rack six pods of 6 cores leave room for twelve of 5, in hundreds of ways, and not for fourteen."""
    pods = [*(a_pod(f"p-{at}", requests={"cpu": "6"}) for at in range(6))]
    pods += [a_pod(f"q-{at}", requests={"cpu": "5"}) for at in range(14)]
    builder = a_cluster()
    for at in range(12):
        builder.node(f"hard-{at}", allocatable={"cpu": f"{10_000 + at}m"}, labels={RACK: "hard"})

    alone = plan(builder, *pods, steps=200)
    both = plan(builder.node("large", allocatable={"cpu": "200"}, labels={RACK: "large"}), *pods, steps=200)

    message = f"neither a domain of {RACK} that takes all 20 pods together nor a proof that there is none was found"
    assert refused(alone).kind is Kind.STEPS_ENDED
    assert refused(alone).message == f"{message} in 200 steps"
    assert set(places(both).values()) == {"large"}


def test_the_domain_is_named_that_takes_the_most_pods() -> None:
    answer = refused(plan(racks(r1=[1, 1, 1], r2=[9], r3=[2, 2]), *gang(4, 3)))

    assert answer.message.startswith(f"none of 3 domains of {RACK} takes all 4 pods together; r2 comes nearest, with")
    assert "with places for 3: pod p-3 needs 3 devices" in answer.message
    assert (answer.details["domain"], answer.details["placed"], answer.details["pods"]) == ("r2", 3, 4)


@pytest.mark.parametrize("asked", [{"required": RACK}, PREFERRED], ids=["required", "preferred"])
def test_a_late_pod_is_placed_in_the_domain_of_its_gang(asked: dict[str, Any]) -> None:
    builder = racks(r1=[1], r2=[8, 8])

    answer = plan(builder, *gang(1), **asked, colocated_with=colocated_with("r2-0"))

    assert places(answer) == {"p-0": "r2-0"}
    assert isinstance(answer, Plan)
    assert not answer.apart


def test_a_late_pod_is_refused_where_the_required_domain_of_its_gang_is_full() -> None:
    builder = racks(r1=[4], r2=[1]).taken("r2-0", 0)

    required = refused(plan(builder, *gang(1), colocated_with=colocated_with("r2-0")))
    preferred = plan(builder, *gang(1), **PREFERRED, colocated_with=colocated_with("r2-0"))

    start = f"{RACK} r2, where other pods of the gang are already, does not take one more pod: pod p-0 needs 1 device"
    assert required.message.startswith(start)
    assert places(preferred) == {"p-0": "r1-0"}
    assert isinstance(preferred, Plan)
    assert preferred.apart == required.message


APART = f"so that nobody can be in one domain of {RACK} with all of them; mend the label, or let the gang end and start"
LOST = {
    "no node has the label": (
        a_cluster().node("a", gpus=4),
        colocated_with(),
        f"no node has the label {RACK}; label the nodes, or name a label that they have",
    ),
    "nodes have it where no pod may go": (
        racks(r1=[4]).node("b", gpus=4, unschedulable=True).node("c", gpus=1, labels={RACK: "r2"}, unschedulable=True),
        colocated_with("c"),
        "other pods of the gang are already in example.com/rack r2, and no pod that waits may go to a node there",
    ),
    "the others are in two domains": (
        racks(r1=[4], r2=[4]),
        colocated_with("r1-0", "r2-0"),
        f"other pods of the gang are already in r1 (node r1-0) and r2 (node r2-0), {APART} anew",
    ),
    "the node of the others has lost the label": (
        racks(r1=[4]).node("a"),
        colocated_with("a"),
        f"other pods of the gang are already in none (node a, which lacks the label), {APART} anew",
    ),
}


@pytest.mark.parametrize(("builder", "others", "message"), LOST.values(), ids=LOST)
def test_a_gang_is_refused_where_no_domain_can_be_searched(
    builder: ClusterBuilder, others: frozenset[NodeName], message: str
) -> None:
    answer = refused(plan(builder, *gang(1), colocated_with=others))
    preferred = plan(builder, *gang(1), **PREFERRED, colocated_with=others)

    assert (answer.kind, answer.message) == (Kind.NO_DOMAIN, message)
    assert isinstance(preferred, Plan)
    assert preferred.apart == message


def test_a_claim_that_ties_a_gang_to_nodes_without_the_label_is_named() -> None:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}
    claim = a_claim("c", a_request(), allocation={"nodeSelector": {"nodeSelectorTerms": [term]}})

    answer = refused(plan(racks(r1=[4]).node("a", gpus=1), a_pod("p", claim)))

    assert answer.message == (
        f"no node where a pod of the gang may go has the label {RACK}; r1-0 has it, but pod p may not go there: r1-0"
        " cannot use claim c, which is allocated elsewhere"
    )


def test_a_domain_whose_label_is_empty_has_a_name() -> None:
    answer = refused(plan(a_cluster().node("a", gpus=1, labels={RACK: ""}), *gang(2)))

    assert answer.message.startswith(f'the only domain of {RACK}, {RACK}="", does not take all 2 pods together')


def test_a_deleted_node_of_a_gang_binds_no_late_pod() -> None:
    assert places(plan(racks(r1=[4]), *gang(1), colocated_with=colocated_with("gone"))) == {"p-0": "r1-0"}


def test_the_domain_is_awaited_that_could_take_the_gang_and_has_most_room_for_it() -> None:
    builder = racks(r1=[2, 2], r2=[4, 4], r3=[3])
    builder.taken("r1-0", 0).taken("r2-0", 0, 1, claim="others/c")
    pods, cluster = gang(4, 2), builder.cluster()

    answer = gang_planner.diagnose(
        refused(plan(builder, *pods)),
        pods,
        cluster,
        selectors=Selectors(),
        steps=STEPS,
        choice=Choice.FREE,
        topology=Topology(gang=Colocation(required=RACK)),
    )

    assert answer.kind is Kind.BUSY
    assert answer.message.startswith(
        f"no domain of {RACK} takes the whole gang now; r2 could, and has places for 3: pod"
    )
    assert "others/c" in readers.in_full(answer)
    assert (answer.details["domain"], answer.details["placed"]) == ("r2", 3)
