"""`muster simulate --with-shapes`: nodes come where gangs need them, and what had to come is told."""

import asyncio
from fractions import Fraction
from typing import Any

import pytest

from admission.api.values import names
from admission.simulation import offline
from admission.simulation.offline import NewNodes, Outcome
from tests.unit.simulation.simulated import Objects, expand, fates, job, node, teams


def shape(name: str, gpus: int, most: int = 4, price: Any = None) -> Objects:
    devices = [{"name": f"gpu-{number}"} for number in range(gpus)]
    spec: dict[str, Any] = {
        "maxCount": most,
        "matchLabels": {"type": name},
        "allocatable": {"cpu": 64, "memory": "1Ti", "pods": 110},
        "resourceSlices": [{"driver": "gpu.example.com", "devices": devices}],
    }
    if price is not None:
        spec["pricePerHour"] = price
    return [{"apiVersion": names.API_VERSION, "kind": "NodeShape", "metadata": {"name": name}, "spec": spec}]


def simulate(*parts: Objects, with_shapes: bool = True) -> Outcome:
    cluster_state = expand(*parts)
    assert cluster_state.problems == ()
    return asyncio.run(offline.simulate(cluster_state, with_shapes=with_shapes))


def new(outcome: Outcome) -> list[tuple[str, int]]:
    return [(one.shape, one.count) for one in outcome.new_nodes]


JOBS = [job("a", gpus=3), job("b", gpus=3), job("c", gpus=2), job("d", pods=2, gpus=8)]

CASES: dict[str, tuple[list[Objects], dict[str, str], list[tuple[str, int]]]] = {
    "gangs share a node that came": (
        [teams(64), shape("x8", 8), *JOBS],
        dict.fromkeys("abcd", "Admitted"),
        [("x8", 3)],
    ),
    "what is free is used first": (
        [teams(64), node("n", 8), shape("x8", 8), *JOBS],
        dict.fromkeys("abcd", "Admitted"),
        [("x8", 2)],
    ),
    "none comes for a gang that its queue has no quota for": (
        [teams(8), shape("x8", 8), *JOBS],
        {**dict.fromkeys("abc", "Admitted"), "d": "QuotaExceeded"},
        [("x8", 1)],
    ),
    "none comes for a gang that cannot start with all of them": (
        [teams(64), shape("x8", 8, most=2), *JOBS],
        {**dict.fromkeys("abc", "Admitted"), "d": "NoFeasiblePlacement"},
        [("x8", 1)],
    ),
    "each shape where it costs least": (
        [teams(64), shape("x8", 8, price=8), shape("x3", 3, price="2.50"), *JOBS],
        dict.fromkeys("abcd", "Admitted"),
        [("x3", 3), ("x8", 2)],
    ),
}


@pytest.mark.parametrize(("parts", "decided", "came"), CASES.values(), ids=CASES)
def test_as_many_nodes_come_as_gangs_need(
    parts: list[Objects], decided: dict[str, str], came: list[tuple[str, int]]
) -> None:
    outcome = simulate(*parts)

    assert fates(outcome) == decided
    assert new(outcome) == came


def test_of_new_nodes_the_price_is_told_and_the_gangs_on_them() -> None:
    outcome = simulate(teams(64), shape("x8", 8, price="31.50"), job("a", gpus=3), job("b", gpus=5))

    assert outcome.new_nodes == (
        NewNodes(shape="x8", count=1, price=Fraction("31.5"), gangs=("default/a", "default/b")),
    )


def test_without_the_option_no_node_comes_and_gangs_are_told_what_they_need() -> None:
    outcome = simulate(teams(64), shape("x8", 8), job("a", gpus=3), job("b", gpus=3), with_shapes=False)

    assert fates(outcome) == {"a": "NodesNeeded", "b": "NodesNeeded"}
    assert outcome.new_nodes == ()
    assert [gang.details["shapes"] for gang in outcome.gangs] == [["1 of shape x8"], ["1 of shape x8"]]
