"""What is wrong with devices chosen for a claim, one flaw after the other; and what of the claim itself counts."""

from dataclasses import replace
from typing import Any

import pytest

from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.api.values.names import NodeName, Uid, extended_claim
from admission.dra.allocator import prescribed
from admission.dra.allocator.allocation import AllocationResult
from admission.dra.allocator.prescribed import Misfit, Mismatch
from admission.dra.inventory.selectors import Selectors
from admission.dra.requests.device_use import DeviceUse, Holder
from admission.dra.state import cluster_state
from tests import readers
from tests.unit.dra.clusters import DRIVER, ClusterBuilder, a_claim, a_cluster, a_request

Given = tuple[tuple[str, str], ...]


def chosen(*given: tuple[str, str], pool: str = "a") -> list[RequestDevice]:
    return [RequestDevice(request=request, device=DeviceId(DRIVER, pool, device)) for request, device in given]


def allotted(builder: ClusterBuilder, claim: Claim, *given: tuple[str, str], **where: Any) -> AllocationResult | Misfit:
    cluster, node = where.pop("cluster", builder.cluster()), NodeName(where.pop("node", "a"))
    return prescribed.prescribed_allocation(claim, chosen(*given, **where), node, cluster, selectors=Selectors())


def numa(at: int, **more: Any) -> dict[str, Any]:
    return {"attributes": {"numa": {"int": at}}, **more}


TAINTED = {"taints": [{"key": "broken", "effect": "NoSchedule"}]}
SHARED = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "8Gi"}}}
MEMORY: dict[str, Any] = {"capacity": {"requests": {"memory": "5Gi"}}}
LARGE: dict[str, Any] = {"capacity": {"requests": {"memory": "9Gi"}}}
ONE, TWO = a_claim("c", a_request("r")), a_claim("c", a_request("r", 2))
LISTED = {
    "name": "r",
    "firstAvailable": [a_request("x")["exactly"] | {"name": "x"}, a_request("y")["exactly"] | {"name": "y"}],
}
SAME_NUMA = {"matchAttribute": f"{DRIVER}/numa"}

CASES: dict[str, tuple[list[dict[str, Any]], Claim, Given, Mismatch | None]] = {
    "a device that does": ([{}], ONE, (("r", "gpu-0"),), None),
    "a request that the claim does not have": ([{}], ONE, (("s", "gpu-0"),), Mismatch.CLAIM),
    "too few devices": ([{}, {}], TWO, (("r", "gpu-0"),), Mismatch.CLAIM),
    "too many devices": ([{}, {}], ONE, (("r", "gpu-0"), ("r", "gpu-1")), Mismatch.CLAIM),
    "none at all": ([{}], ONE, (), Mismatch.CLAIM),
    "one device twice": ([{}, {}], TWO, (("r", "gpu-0"), ("r", "gpu-0")), Mismatch.IN_USE),
    "two alternatives at once": ([{}, {}], a_claim("c", LISTED), (("r/x", "gpu-0"), ("r/y", "gpu-1")), Mismatch.CLAIM),
    "the second alternative": ([{}, {}], a_claim("c", LISTED), (("r/y", "gpu-1"),), None),
    "not all of all": (
        [{}, {}],
        a_claim("c", a_request("r", 0, allocationMode="All")),
        (("r", "gpu-0"),),
        Mismatch.CLAIM,
    ),
    "a device that is not there": ([{}], ONE, (("r", "gpu-7"),), Mismatch.GONE),
    "one that is not selected": (
        [numa(0)],
        a_claim("c", a_request("r", 1, f"device.attributes['{DRIVER}'].numa == 1")),
        (("r", "gpu-0"),),
        Mismatch.SELECTOR,
    ),
    "one on which the selector fails": (
        [numa(0)],
        a_claim("c", a_request("r", 1, f"device.attributes['{DRIVER}'].size == 1")),
        (("r", "gpu-0"),),
        Mismatch.SELECTOR,
    ),
    "one that is too small": ([SHARED], a_claim("c", a_request("r", 1, **LARGE)), (("r", "gpu-0"),), Mismatch.SELECTOR),
    "a tainted one": ([TAINTED], ONE, (("r", "gpu-0"),), Mismatch.TAINT),
    "two that must be equal": (
        [numa(0), numa(1)],
        a_claim("c", a_request("r", 2), constraints=[SAME_NUMA]),
        (("r", "gpu-0"), ("r", "gpu-1")),
        Mismatch.CONSTRAINT,
    ),
    "shares that are too large together": (
        [SHARED],
        a_claim("c", a_request("r", 1, **MEMORY), a_request("s", 1, **MEMORY)),
        (("r", "gpu-0"), ("s", "gpu-0")),
        Mismatch.CAPACITY,
    ),
}


@pytest.mark.parametrize(("gpus", "claim", "given", "problem"), CASES.values(), ids=CASES)
def test_prescribed_devices_that_kube_scheduler_refuses_are_a_misfit(
    gpus: list[dict[str, Any]], claim: Claim, given: Given, problem: Mismatch | None
) -> None:
    answer = allotted(a_cluster().node("a", gpus=gpus), claim, *given)

    assert (answer.problem if isinstance(answer, Misfit) else None) is problem
    if isinstance(answer, Misfit):
        assert str(answer).startswith(("claim team/c: ", "request "))


HERE, ELSEWHERE = {"nodeName": "a"}, {"nodeName": "b"}


@pytest.mark.parametrize(
    ("place", "why"),
    [
        (HERE, "cannot hold what it asks for: capacity memory is 8Gi, less than asked for"),
        (ELSEWHERE, "is not for node a"),
    ],
)
def test_a_device_that_does_not_match_is_told_from_one_of_other_nodes(place: dict[str, str], why: str) -> None:
    builder = a_cluster().node("a").node("b")
    builder.slice("a", [{**SHARED, **place}, HERE], perDeviceNodeSelection=True)

    answer = allotted(builder, a_claim("c", a_request("r", 1, **LARGE)), ("r", "gpu-0"))

    assert str(answer).endswith(f"device {DRIVER}/a/gpu-0 {why}")


def test_a_device_that_another_claim_has_is_refused_by_the_name_of_its_holder() -> None:
    answer = allotted(
        a_cluster().node("a", gpus=2).taken("a", 0, claim="others/c", gang="others/g"), ONE, ("r", "gpu-0")
    )

    assert isinstance(answer, Misfit)
    assert answer.problem is Mismatch.IN_USE
    assert readers.in_full(answer).endswith(f"device {DRIVER}/a/gpu-0 is in use by claim others/c of gang others/g")


def test_devices_booked_for_the_claim_itself_do_not_conflict_with_its_prescription() -> None:
    builder = a_cluster().node("a", gpus=[{}, SHARED])
    mine = [
        DeviceUse(DeviceId(DRIVER, "a", "gpu-0")),
        DeviceUse(DeviceId(DRIVER, "a", "gpu-1"), shared=True, share={"memory": 5 << 30}),
    ]
    claim = a_claim("c", a_request("r", 1, "!device.allowMultipleAllocations"), a_request("s", 1, **MEMORY))
    given = (("r", "gpu-0"), ("s", "gpu-1"))

    booked = cluster_state.with_devices(builder.cluster(), mine, Holder(claim="team/c"))
    assert isinstance(allotted(builder, claim, *given, cluster=booked), AllocationResult)
    taken = cluster_state.with_devices(builder.cluster(), mine[1:], Holder(claim="team/d"))
    answer = allotted(builder, claim, *given, cluster=taken)
    assert isinstance(answer, Misfit)
    assert answer.problem is Mismatch.CAPACITY


def test_partitions_are_judged_by_what_others_have_left_of_the_counters() -> None:
    def part(amount: int) -> dict[str, Any]:
        return {"consumesCounters": [{"counterSet": "card", "counters": {"slices": {"value": str(amount)}}}]}

    sets = [{"name": "card", "counters": {"slices": {"value": "7"}}}]
    builder = a_cluster().node("a").slice("a", [part(4), part(4), part(3)], count=2, nodeName="a")
    builder.slice("sets", [], pool="a", count=2, nodeName="a", sharedCounters=sets).taken("a", 0)

    assert isinstance(allotted(builder, ONE, ("r", "gpu-2")), AllocationResult)
    answer = allotted(builder, ONE, ("r", "gpu-1"))
    assert isinstance(answer, Misfit)
    assert answer.problem is Mismatch.COUNTERS


def test_a_pool_that_lacks_slices_and_a_node_that_is_gone_are_named() -> None:
    builder = a_cluster().node("a").slice("a", 1, count=2, nodeName="a")

    assert "1 of 2 slices of generation 1 are there" in str(allotted(builder, ONE, ("r", "gpu-0")))
    assert str(allotted(builder, ONE, ("r", "gpu-0"), node="b")) == "claim team/c: node b is not there"


def test_claims_for_extended_resources_are_kube_schedulers_to_allocate() -> None:
    is_what_if = replace(ONE, meta=replace(ONE.meta, uid=extended_claim(Uid("pod"))))
    made = replace(ONE, meta=replace(ONE.meta, annotations={"resource.kubernetes.io/extended-resource-claim": "true"}))
    for claim in (is_what_if, made):
        answer = allotted(a_cluster().node("a", gpus=1), claim, ("r", "gpu-0"))
        assert isinstance(answer, Misfit)
        assert answer.problem is Mismatch.NOT_OURS


def test_an_allocated_claim_is_left_alone() -> None:
    claim = a_claim("c", a_request("r"), allocation={"devices": {"results": []}})
    answer = allotted(a_cluster().node("a", gpus=1), claim, ("r", "gpu-0"))

    assert isinstance(answer, Misfit)
    assert answer.problem is Mismatch.ALLOCATED
