"""Searches that would blow up: equal devices are recognised, and what is left ends at its budget."""

from typing import Any

import pytest

from admission.dra.allocator import node_allocator
from admission.dra.allocator.node_allocator import Allocated, NotHere
from admission.dra.allocator.results import StepsEndedError
from admission.dra.inventory.selectors import Selectors
from admission.dra.planner.no_plan import Kind, NoPlan
from tests.unit.dra.clusters import ClusterBuilder, a_claim, a_cluster, a_pod, a_request

ROOT = "resource.kubernetes.io/pcieRoot"
MATCH = [{"matchAttribute": ROOT}]
Json = dict[str, Any]


def on_roots(*roots: str) -> list[Json]:
    return [{"attributes": {ROOT: {"string": root}}} for root in roots]


def asked(cluster: ClusterBuilder, *requests: Json, constraints: list[Json], steps: int) -> object:
    known = cluster.cluster()
    claim = a_claim("c", *requests, constraints=constraints)
    return node_allocator.allocate([claim], next(iter(known.nodes)), known, selectors=Selectors(), steps=steps)


def alternatives(name: str, *counts: int) -> Json:
    options = [{"name": f"a{at}", "deviceClassName": "gpu", "count": count} for at, count in enumerate(counts)]
    return {"name": name, "firstAvailable": options}


def test_equal_devices_are_tried_once() -> None:
    """12 of 33 devices on one root, while each root has 11."""
    cluster = a_cluster().node("n", gpus=on_roots(*"abc" * 11))

    assert isinstance(asked(cluster, a_request(count=12), constraints=MATCH, steps=200), NotHere)
    assert isinstance(asked(cluster, a_request(count=11), constraints=MATCH, steps=200), Allocated)


def test_a_later_request_that_lacks_a_device_does_not_make_earlier_ones_try_every_subset() -> None:
    cluster = a_cluster().node("n", gpus=20)
    requests = [a_request("first", 10), a_request("second", 11)]

    assert isinstance(asked(cluster, *requests, constraints=[], steps=50), NotHere)


def test_a_state_from_which_all_was_tried_is_not_tried_again() -> None:
    """32 requests with 8 alternatives each are 8 ** 32 choices."""
    cluster = a_cluster().node("n", gpus=31)
    requests = [alternatives(f"r{at}", *range(8, 0, -1)) for at in range(32)]

    assert isinstance(asked(cluster, *requests, constraints=[], steps=5_000), NotHere)


def uneven() -> ClusterBuilder:
    """24 devices, each of which draws another amount from a counter: enough for 11, and nearly for the smallest 12."""
    gpus = [
        {"consumesCounters": [{"counterSet": "card", "counters": {"slices": {"value": str(1_000 + at)}}}]}
        for at in range(24)
    ]
    sets = [{"name": "card", "counters": {"slices": {"value": "12050"}}}]
    cluster = a_cluster().node("n").slice("n", gpus, count=2, nodeName="n")
    return cluster.slice("n-sets", [], pool="n", count=2, nodeName="n", sharedCounters=sets)


def test_a_search_ends_at_its_budget() -> None:
    """Any 12 of them are too many: 2.5 million ways to take the first 11."""
    with pytest.raises(StepsEndedError):
        asked(uneven(), a_request(count=12), constraints=[], steps=1_000)


def test_the_planner_says_that_its_budget_ended_and_not_that_there_is_no_place() -> None:
    answer = uneven().plan(a_pod("p", 12), steps=1_000)

    assert isinstance(answer, NoPlan)
    assert answer.kind is Kind.STEPS_ENDED


def test_a_pod_with_very_many_devices_needs_no_deep_stack() -> None:
    """40 claims of 32 devices: more than the interpreter's limit of recursion."""
    cluster = a_cluster().node("n", gpus=40 * 32).cluster()
    claims = [a_claim(f"c{at}", a_request(count=32)) for at in range(40)]
    found = node_allocator.allocate(claims, next(iter(cluster.nodes)), cluster, selectors=Selectors(), steps=10_000)

    assert isinstance(found, Allocated)
    assert sum(map(len, found.devices)) == 40 * 32


def test_devices_that_are_refused_are_steps_too() -> None:
    """No two of 300 devices are on one root: 45,000 pairs, of which none will do."""
    cluster = a_cluster().node("n", gpus=on_roots(*(f"root-{at}" for at in range(300))))

    with pytest.raises(StepsEndedError):
        asked(cluster, a_request(count=2), constraints=MATCH, steps=40_000)


def test_the_steps_of_a_search_grow_with_the_claims_of_the_pod() -> None:
    """What was tried before is looked up by all of them. No two of 41 devices are on one root: 820 pairs."""
    cluster = a_cluster().node("n", gpus=on_roots(*(f"root-{at}" for at in range(41)))).cluster()
    pair = a_claim("pair", a_request(count=2), constraints=MATCH)
    claims = [pair, *(a_claim(f"c{at}", a_request()) for at in range(39))]

    def search(steps: int, count: int) -> object:
        return node_allocator.allocate(
            claims[:count], next(iter(cluster.nodes)), cluster, selectors=Selectors(), steps=steps
        )

    assert isinstance(search(2_000, 1), NotHere)
    with pytest.raises(StepsEndedError):
        search(2_000, 40)
