"""kube-scheduler's own filters, in both versions: they answer as the corpus recorded, and we as they do."""

from typing import Any

from admission.dra.requests.gang_request import Plan
from tests import soaking
from tests.conformance import corpus
from tests.conformance.filters import comparison, plans, workloads, worlds
from tests.conformance.filters.draws import Draw
from tests.controlplane.filters import Oracle
from tests.e2e import fixtures

Json = dict[str, Any]

SEEDS = range(1_000_000, 1_000_300 if soaking.is_on() else 1_000_120)
"""Worlds that are in no record."""

WORKLOADS = range(80 if soaking.is_on() else 40)


oracle = fixtures.oracle(Oracle)


def test_kube_scheduler_answers_as_the_corpus_recorded(oracle: Oracle, version: str) -> None:
    records = [record for record in corpus.records("filters") if record["world"]["version"] == version]

    answers = {record["id"]: oracle.ask(record["world"]) for record in records}

    assert records
    assert answers == {record["id"]: record["answer"] for record in records}


def test_we_refuse_nodes_as_kube_scheduler_does(oracle: Oracle, version: str) -> None:
    asked = [(seed, worlds.seeded(seed, version=version)) for seed in SEEDS]

    found = {seed: comparison.difference({"world": world, "answer": oracle.ask(world)}) for seed, world in asked}

    assert {seed: difference for seed, difference in found.items() if difference is not None} == {}


def test_what_is_planned_starts_and_what_could_start_is_planned(oracle: Oracle, version: str) -> None:
    asked = {seed: worlds.seeded(seed, family=worlds.PLANNED, version=version) for seed in SEEDS}
    answers = {seed: plans.planned(world) for seed, world in asked.items()}

    flaws = {seed: plans.flaw(asked[seed], answer, oracle, Draw(seed)) for seed, answer in answers.items()}

    assert {seed: flaw for seed, flaw in flaws.items() if flaw is not None} == {}
    assert 0.17 < sum(isinstance(answer, Plan) for answer in answers.values()) / len(SEEDS) < 0.83


def test_gangs_planned_one_after_the_other_start_where_both_wait_for_volumes(oracle: Oracle, version: str) -> None:
    asked = {seed: worlds.seeded(seed, family=worlds.COMPETING, version=version) for seed in SEEDS}

    found = {seed: plans.flaw_in_turn(world, oracle, Draw(seed)) for seed, world in asked.items()}

    assert {seed: flaw for seed, (_, flaw) in found.items() if flaw is not None} == {}
    assert 0.17 < sum(isinstance(one, Plan) for answers, _ in found.values() for one in answers) / len(SEEDS) < 1


def test_a_workload_that_is_let_in_starts_with_the_pods_that_follow_and_none_waits_in_vain(
    oracle: Oracle, version: str
) -> None:
    cases = {seed: workloads.seeded(seed, version) for seed in WORKLOADS}
    said = {seed: workloads.simulated(case) for seed, case in cases.items()}

    flaws = {seed: workloads.flaw(case, said[seed], oracle) for seed, case in cases.items()}

    assert {seed: flaw for seed, flaw in flaws.items() if flaw is not None} == {}
    assert 0.3 < sum(bool(one.plan) for one in said.values()) / len(WORKLOADS) < 0.9


def test_the_next_pod_sees_where_the_last_one_went(oracle: Oracle) -> None:
    world = a_world(nodes=2, pods=3, port=80)
    world["gang"][0]["node"] = "n2"

    assert [pod["node"] for pod in oracle.ask(world)["pods"]] == ["n2", "n1", ""]


def test_what_a_world_has_too_much_is_named(oracle: Oracle) -> None:
    world = a_world(nodes=1, pods=1, port=80)
    spec = world["gang"][0]["pod"]["spec"]

    assert oracle.ask({**world, "gates": {"NoSuchGate": True}}) == {"error": 'unknown feature gate "NoSuchGate"'}
    assert oracle.ask({**world, "nods": []}) == {"error": 'json: unknown field "nods"'}
    spec["containers"] = []
    assert "spec.containers: Required value" in oracle.ask(world)["error"]


def a_world(*, nodes: int, pods: int, port: int) -> Json:
    """Return nodes and pods that all want one port of the host."""
    container = {"name": "main", "image": "i", "ports": [{"containerPort": port, "hostPort": port}]}
    return {
        "nodes": [
            {"metadata": {"name": f"n{at + 1}"}, "status": {"allocatable": {"pods": "9"}}} for at in range(nodes)
        ],
        "gang": [
            {"pod": {"metadata": {"name": f"p{at}", "namespace": "default"}, "spec": {"containers": [container]}}}
            for at in range(pods)
        ],
    }
