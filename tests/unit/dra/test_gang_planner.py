from dataclasses import dataclass, field
from typing import Any

import pytest

from admission.api.muster.gangs import Charge
from admission.dra import gang_planner
from admission.dra.allocator.results import StepsEndedError
from admission.dra.freechoice.bin_packing import BinPacker
from admission.dra.inventory.selectors import Selectors
from admission.dra.metering import device_meters
from admission.dra.planner.no_plan import Kind, NoPlan
from admission.dra.requests.gang_request import Plan
from tests import readers
from tests.unit.dra.clusters import (
    CLASS,
    STEPS,
    ClusterBuilder,
    a_claim,
    a_cluster,
    a_meter,
    a_pod,
    a_request,
    a_source,
    given,
    places,
    refused,
)

H100 = "device.attributes['gpu.example.com'].model == 'h100'"
ROOT = "resource.kubernetes.io/pcieRoot"


def model(name: str, **more: Any) -> dict[str, Any]:
    return {"attributes": {"model": {"string": name}}, **more}


def on_root(name: str) -> dict[str, Any]:
    return {"attributes": {ROOT: {"string": name}}}


def test_a_pod_gets_the_first_devices_that_are_free() -> None:
    plan = a_cluster().node("a", gpus=4).taken("a", 0, 2).plan(a_pod("p", 2))

    assert given(plan) == {"p": ["a/gpu-1", "a/gpu-3"]}


def test_a_gang_is_packed_on_the_fullest_nodes() -> None:
    plan = a_cluster().node("a", gpus=4).node("b", gpus=4).taken("b", 0, 1).plan(a_pod("p", 2))

    assert places(plan) == {"p": "b"}


def test_large_pods_get_the_nodes_that_small_ones_could_do_without() -> None:
    pods = (a_pod("small-0", 1), a_pod("small-1", 1), a_pod("large", 4))
    plan = a_cluster().node("a", gpus=4).node("b", gpus=2).plan(*pods)

    assert places(plan) == {"large": "a", "small-0": "b", "small-1": "b"}


def test_a_gang_that_fits_pod_by_pod_only_in_another_order_is_planned_in_that_order() -> None:
    """The pod that takes any GPU would take the only h100 if it came first."""
    picky = a_pod("picky", a_request("gpu", 1, H100))
    plan = a_cluster().node("a", gpus=[model("h100"), model("a100")]).plan(a_pod("any", 1), picky)

    assert isinstance(plan, Plan)
    assert [pod.pod for pod in plan.pods] == ["team/picky", "team/any"]
    assert given(plan) == {"picky": ["a/gpu-0"], "any": ["a/gpu-1"]}


def test_first_fit_decides_even_where_free_choice_would_do() -> None:
    """Whoever comes first takes both h100 where an a100 would have done for the first request."""
    cluster = a_cluster().node("a", gpus=[model("h100"), model("h100"), model("a100"), model("a100")])
    pods = [a_pod(name, a_claim(name, a_request("any", 1), a_request("h100", 1, H100))) for name in ("p", "q")]

    assert given(cluster.plan(pods[0])) == {"p": ["a/gpu-0", "a/gpu-1"]}
    assert refused(cluster.plan(*pods)).kind is Kind.INFEASIBLE


def test_an_earlier_plan_changes_neither_a_later_plan_nor_its_steps() -> None:
    cluster = a_cluster().node("a", gpus=[model("h100"), model("a100")]).node("b", gpus=[model("a100")]).cluster()
    gang, selectors = [a_pod("p", a_request("gpu", 1, H100)), a_pod("q", 1)], Selectors()

    first, again = (gang_planner.plan(gang, cluster, selectors=selectors, steps=STEPS) for _ in range(2))

    assert isinstance(first, Plan)
    assert first == again == gang_planner.plan(gang, cluster, selectors=Selectors(), steps=STEPS)
    assert first.steps > len(gang)
    assert refused(gang_planner.plan(gang, cluster, selectors=selectors, steps=3)).kind is Kind.STEPS_ENDED


def test_first_fit_goes_on_where_the_search_for_a_proof_against_it_runs_out_of_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searches = []

    def run(self: BinPacker) -> Any:
        searches.append(self)
        raise StepsEndedError

    monkeypatch.setattr(BinPacker, "run", run)
    pods = [a_pod(f"p-{at}", count) for at, count in enumerate((2, 2, 3, 3))]

    found = a_cluster().node("a", gpus=4).node("b", gpus=6).plan(*pods, steps=400)

    assert len(searches) == 1
    assert places(found) == {"p-0": "a", "p-1": "a", "p-2": "b", "p-3": "b"}


def test_several_requests_and_claims_of_a_pod_share_its_node() -> None:
    cluster = a_cluster().device_class("nic", "device.driver == 'nic.example.com'").node("a", gpus=2)
    cluster.slice("a-nic", 1, driver="nic.example.com", nodeName="a")
    claim = a_claim("c", a_request("gpu", 2), a_request("nic", 1, deviceClassName="nic"))

    assert given(cluster.plan(a_pod("p", claim))) == {"p": ["a/gpu-0", "a/gpu-1", "a-nic/gpu-0"]}


def test_a_shared_claim_is_allocated_once_and_binds_the_others() -> None:
    shared = a_claim("shared", a_request("gpu", 1))
    plan = a_cluster().node("a", gpus=2).node("b", gpus=3).plan(a_pod("p-0", shared, 1), a_pod("p-1", shared, 1))

    assert places(plan) == {"p-0": "b", "p-1": "b"}
    assert given(plan) == {"p-0": ["b/gpu-0", "b/gpu-1"], "p-1": ["b/gpu-2"]}


def test_an_allocated_claim_binds_its_pod_and_takes_nothing_more() -> None:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}
    claim = a_claim("c", a_request(), allocation={"nodeSelector": {"nodeSelectorTerms": [term]}})

    assert places(a_cluster().node("a", gpus=1).node("b").plan(a_pod("p", claim))) == {"p": "b"}


def test_devices_that_several_nodes_see_are_given_once() -> None:
    cluster = a_cluster().node("a").node("b").slice("fabric", 1, allNodes=True)

    assert given(cluster.plan(a_pod("p", 1))) == {"p": ["fabric/gpu-0"]}
    assert refused(cluster.plan(a_pod("p", 1), a_pod("q", 1))).kind is Kind.INFEASIBLE


def test_constraints_bind_the_devices_of_a_claim() -> None:
    cluster = a_cluster().node("a", gpus=[on_root("x"), on_root("y"), on_root("y")])
    match = a_claim("m", a_request("gpu", 2), constraints=[{"matchAttribute": ROOT}])
    distinct = a_claim("d", a_request("gpu", 2), constraints=[{"distinctAttribute": ROOT}])

    assert given(cluster.plan(a_pod("p", match))) == {"p": ["a/gpu-1", "a/gpu-2"]}
    assert given(cluster.plan(a_pod("p", distinct))) == {"p": ["a/gpu-0", "a/gpu-1"]}


@dataclass(frozen=True)
class Place:
    node: dict[str, Any] = field(default_factory=dict)
    pod: dict[str, Any] = field(default_factory=dict)
    fits: bool = True


TAINT = [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]


def leaving(key: str, effect: str = "NoSchedule") -> dict[str, str]:
    return {"key": key, "value": "1763726400", "effect": effect}


KARPENTER = "karpenter.sh/disrupted=1763726400:NoSchedule"
ZONE = {"key": "zone", "operator": "In", "values": ["a"]}
AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [ZONE]}]}
    }
}
PLACES = {
    "a node without allocatable limits nothing": Place(pod={"requests": {"cpu": "1000"}}),
    "a node with room takes the pod": Place({"allocatable": {"cpu": "4"}}, {"requests": {"cpu": "4"}}),
    "a node without room does not": Place({"allocatable": {"cpu": "4"}}, {"requests": {"cpu": "4001m"}}, fits=False),
    "memory counts": Place({"allocatable": {"memory": "1Gi"}}, {"requests": {"memory": "2Gi"}}, fits=False),
    "a node without free pod slots is full": Place({"allocatable": {"pods": "0"}}, fits=False),
    "an unknown extended resource is not there": Place({"allocatable": {}}, {"requests": {"x.io/y": "1"}}, fits=False),
    "an unschedulable node takes nothing": Place({"unschedulable": True}, fits=False),
    "a taint keeps pods away": Place({"taints": TAINT}, fits=False),
    "a toleration lets them in": Place({"taints": TAINT}, {"tolerations": [{"operator": "Exists"}]}),
    "a node that Cluster Autoscaler takes away has room for nobody": Place(
        {"taints": [leaving("ToBeDeletedByClusterAutoscaler")]}, {"tolerations": [{"operator": "Exists"}]}, fits=False
    ),
    "nor one that Karpenter takes away": Place(
        {"taints": [leaving("karpenter.sh/disrupted")]}, {"tolerations": [{"operator": "Exists"}]}, fits=False
    ),
    "nor one that is being deleted": Place({"deleted": "2026-11-21T12:00:00Z"}, fits=False),
    "one that may be taken away since it is idle has": Place(
        {"taints": [leaving("DeletionCandidateOfClusterAutoscaler", "PreferNoSchedule")]}
    ),
    "a node selector must match": Place({"labels": {"zone": "b"}}, {"nodeSelector": {"zone": "a"}}, fits=False),
    "a matching node selector does": Place({"labels": {"zone": "a"}}, {"nodeSelector": {"zone": "a"}}),
    "required affinity must match": Place({"labels": {"zone": "b"}}, {"affinity": AFFINITY}, fits=False),
    "matching affinity does": Place({"labels": {"zone": "a"}}, {"affinity": AFFINITY}),
}


@pytest.mark.parametrize("case", PLACES.values(), ids=PLACES)
def test_a_pod_is_planned_only_on_a_node_that_passes_the_node_filters(case: Place) -> None:
    plan = a_cluster().node("a", gpus=1, **case.node).plan(a_pod("p", 1, **case.pod))

    assert isinstance(plan, Plan) is case.fits


def test_resources_are_used_up_by_the_gang_itself() -> None:
    cluster = a_cluster().node("a", gpus=8, allocatable={"cpu": "3"})
    pods = [a_pod(f"p-{at}", 1, requests={"cpu": "1"}) for at in range(4)]

    assert isinstance(cluster.plan(*pods[:3]), Plan)
    assert refused(cluster.plan(*pods)).message == (
        "pod p-3 needs 1000m cpu; the most that is left on a node where it may go is 0m (a),"
        " after p-0, p-1 and p-2 took 3 on a"
    )


ON_ONE = "pod p needs 1 device of class gpu on one node (request gpu of claim p-0)"
TRAIN = "pod train-1 needs 3 devices of class gpu on one node (request gpu of claim train-1-0)"
PAIR = a_claim("c", a_request("gpu", 2), constraints=[{"matchAttribute": ROOT}])
ON_PAIR = "pod p needs 2 of class gpu (request gpu of claim c) on one node"
TAINTED = "gpu.example.com/a/gpu-0 has gpu=yes:NoSchedule for one"
ONLY = "the only device of the class on the only node where the pod may go"
UNSELECTED = f"{ONLY} does not satisfy the selectors of the request"
APART = "request gpu gets 1 on a, since a constraint keeps them apart"
ALIKE = f"no more than 1 of the 2 that match have the same {ROOT}"

SENTENCES = {
    "too many for any node, after others": (
        a_cluster().node("a", gpus=4).node("b", gpus=1).plan(a_pod("train-0", 3), a_pod("train-1", 3)),
        f"{TRAIN}; the most that any node has free is 1 (a, of 4 that match), after train-0 took 3 on a",
    ),
    "nothing is selected": (
        a_cluster().node("a", gpus=[model("a100")]).plan(a_pod("p", a_request("gpu", 1, H100))),
        f"{ON_ONE}; {UNSELECTED}",
    ),
    "all are tainted": (
        a_cluster().node("a", gpus=[model("a100", taints=TAINT)]).plan(a_pod("p", 1)),
        f"{ON_ONE}; all 1 that match have a taint that the request does not tolerate: {TAINTED}",
    ),
    "a constraint keeps them apart": (
        a_cluster().node("a", gpus=[on_root("x"), on_root("y")]).plan(a_pod("p", PAIR)),
        f"{ON_PAIR}; node a does not serve them under matchAttribute {ROOT}: {APART}: {ALIKE}",
    ),
    "no node takes the pod": (
        a_cluster().node("a", gpus=1, unschedulable=True).node("b", gpus=1, taints=TAINT).plan(a_pod("p", 1)),
        "no node takes pod p: a is unschedulable; b has taint gpu=yes:NoSchedule",
    ),
    "no node takes the pod, since all are being taken away": (
        a_cluster()
        .node("a", gpus=1, taints=[leaving("karpenter.sh/disrupted")])
        .node("b", gpus=1, deleted="2026-11-21T12:00:00Z")
        .plan(a_pod("p", 1)),
        f"no node takes pod p: a is being taken away (taint {KARPENTER}); b is being deleted",
    ),
    "no node takes the pod, several for one reason": (
        a_cluster().node("a", unschedulable=True).node("b", unschedulable=True).plan(a_pod("p", 1)),
        "no node takes pod p: a and b each is unschedulable",
    ),
    "there are no nodes": (a_cluster().plan(a_pod("p", 1)), "pod p cannot be placed: there are no nodes"),
}


@pytest.mark.parametrize(("answer", "sentence"), SENTENCES.values(), ids=SENTENCES)
def test_a_refusal_says_why(answer: Plan | NoPlan, sentence: str) -> None:
    assert refused(answer).message == sentence
    assert refused(answer).kind is Kind.INFEASIBLE


def test_a_refusal_carries_the_numbers() -> None:
    answer = refused(a_cluster().node("a", gpus=2).taken("a", 0).plan(a_pod("p", 2)))

    assert answer.details == {
        "pod": "p",
        "claim": "p-0",
        "request": "gpu",
        "deviceClass": CLASS,
        "needed": 2,
        "mostFree": 1,
        "node": "a",
        "matching": 2,
    }


def test_busy_devices_are_distinguished_from_missing_devices() -> None:
    cluster = a_cluster().node("a", gpus=2).taken("a", 0, claim="team/old", gang="team/job")
    busy, never = cluster.diagnose(a_pod("p", 2)), cluster.diagnose(a_pod("p", 3))

    assert busy.kind is Kind.BUSY
    assert busy.message.endswith("1 device that would do is in use by a gang that holds 1 device")
    assert readers.in_full(busy).endswith("1 device that would do is in use by claim team/old of gang team/job")
    assert busy.details["inUse"] == ["gpu.example.com/a/gpu-0"]
    assert never.kind is Kind.INFEASIBLE
    assert never.message.endswith(
        "the most that any node has free is 2 (a, of 2 that match), even if nothing else were in use"
    )


def test_a_gang_whose_devices_a_meter_cannot_price_is_not_said_to_be_infeasible() -> None:
    meters = device_meters.compile_meters([a_meter("price", a_source("expression", {"cel": "-1"}))])

    answer = refused(a_cluster().node("a", gpus=8).plan(a_pod("p", 1), meters=meters))

    assert answer.kind is Kind.UNPRICED
    assert answer.message.startswith("pod p: meter price: spec.sources[0].expression.cel gives -1 for device")
    assert answer.details == {"pod": "p", "meter": "price"}


EVERY = a_request(allocationMode="All")
SHARABLE = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "80Gi"}}}
DRAWING = {"consumesCounters": [{"counterSet": "card", "counters": {"slices": {"value": "3"}}}]}
SETS = [{"name": "card", "counters": {"slices": {"value": "7"}}}]


def memory(amount: str) -> dict[str, Any]:
    return a_request(capacity={"requests": {"memory": amount}})


def partitioned(*nodes: str) -> ClusterBuilder:
    cluster = a_cluster()
    for node in nodes:
        cluster.node(node).slice(node, [DRAWING] * 3, count=2, nodeName=node)
        cluster.slice(f"{node}-sets", [], pool=node, count=2, nodeName=node, sharedCounters=SETS)
    return cluster


def test_all_devices_of_a_node_are_given_or_none() -> None:
    cluster = a_cluster().node("a", gpus=2).node("b", gpus=3).taken("a", 0)

    assert given(cluster.plan(a_pod("p", EVERY))) == {"p": ["b/gpu-0", "b/gpu-1", "b/gpu-2"]}
    assert refused(cluster.taken("b", 1).plan(a_pod("p", EVERY))).kind is Kind.INFEASIBLE


def test_devices_in_use_are_given_for_administration() -> None:
    cluster = a_cluster().node("a", gpus=2).taken("a", 0, 1)
    answer = cluster.plan(a_pod("p", a_request(adminAccess=True)), a_pod("q", a_request(adminAccess=True)))

    assert given(answer) == {"p": ["a/gpu-0"], "q": ["a/gpu-0"]}


def test_an_alternative_is_taken_where_the_first_choice_is_not_free() -> None:
    choice = {
        "name": "gpu",
        "firstAvailable": [
            {"name": "pair", "deviceClassName": CLASS, "count": 2},
            {"name": "one", "deviceClassName": CLASS, "count": 1},
        ],
    }
    answer = a_cluster().node("a", gpus=3).plan(a_pod("p", choice), a_pod("q", choice))

    assert given(answer) == {"p": ["a/gpu-0", "a/gpu-1"], "q": ["a/gpu-2"]}
    assert isinstance(answer, Plan)
    assert [d.request for pod in answer.pods for c in pod.claims for d in c.devices] == ["gpu/pair"] * 2 + ["gpu/one"]


def test_a_shared_device_serves_as_many_pods_as_its_capacity() -> None:
    cluster = a_cluster().node("a", gpus=[SHARABLE])
    pods = [a_pod(name, memory("30Gi")) for name in "pqr"]

    assert given(cluster.plan(*pods[:2])) == {"p": ["a/gpu-0"], "q": ["a/gpu-0"]}
    answer = refused(cluster.plan(*pods))
    assert answer.kind is Kind.INFEASIBLE
    left = "a share takes 30Gi of capacity memory of gpu.example.com/a/gpu-0, and 20Gi of 80Gi are left"
    assert f"too little of their capacity is left: {left}, after p and q took 2 on a" in answer.message


def test_a_device_without_enough_capacity_is_passed_over() -> None:
    small = {"capacity": {"memory": {"value": "40Gi"}}}
    large = {"capacity": {"memory": {"value": "80Gi"}}}

    assert given(a_cluster().node("a", gpus=[small, large]).plan(a_pod("p", memory("60Gi")))) == {"p": ["a/gpu-1"]}


def test_devices_that_draw_from_counters_are_given_while_these_last() -> None:
    """Three devices draw 3 each from 7."""
    pods = [a_pod(name, 1) for name in "pqr"]

    assert given(partitioned("a").plan(*pods[:2])) == {"p": ["a/gpu-0"], "q": ["a/gpu-1"]}
    assert places(partitioned("a", "b").plan(*pods)) == {"p": "a", "q": "a", "r": "b"}
    answer = refused(partitioned("a").plan(*pods))
    assert answer.kind is Kind.INFEASIBLE
    left = "gpu.example.com/a/gpu-2 draws 3 of counter card/slices, of which 1 of 7 are left"
    assert f"the counters of their pool are used up: {left}, after p and q took 2 on a" in answer.message


def test_whose_devices_leave_too_little_of_a_counter_is_said() -> None:
    cluster = partitioned("a").taken("a", 0, claim="team/old", gang="team/job").taken("a", 1, claim="team/other")

    answer = cluster.diagnose(a_pod("p", 1))

    assert answer.kind is Kind.BUSY
    assert readers.in_full(answer).endswith(
        "gpu.example.com/a/gpu-2 draws 3 of counter card/slices, of which 1 of 7 are left; the rest is in use by claim"
        " team/old of gang team/job and claim team/other"
    )


def test_a_request_that_takes_a_whole_shared_device_without_saying_so_is_told() -> None:
    answer = refused(a_cluster().node("a", gpus=[SHARABLE]).plan(a_pod("p", memory("30Gi")), a_pod("q", 1)))

    assert "takes 30Gi" not in answer.message
    assert (
        "a share takes 80Gi of capacity memory of gpu.example.com/a/gpu-0, since the request does not say how much, and"
        " 50Gi of 80Gi are left"
    ) in answer.message


def test_no_pod_is_planned_on_counters_of_a_device_that_has_left_its_slice() -> None:
    """kube-scheduler takes them for free (kubernetes #140802), which is a defect and may be mended any day."""
    answer = refused(partitioned("a").taken("a", 7).plan(a_pod("p", 1)))

    assert answer.kind is Kind.INFEASIBLE
    assert "releases of kube-scheduler disagree" in answer.message


def test_a_failing_selector_names_the_device() -> None:
    answer = refused(a_cluster().node("a", gpus=1).plan(a_pod("p", a_request("gpu", 1, H100))))

    assert answer.kind is Kind.FATAL
    assert "fails on device gpu.example.com/a/gpu-0: no such key: model" in answer.message
    assert "DeviceClass" not in answer.message
    named = {"pod": "p", "claim": "p-0", "request": "gpu", "device": "gpu.example.com/a/gpu-0"}
    assert answer.details == named


def test_a_failing_selector_names_a_free_device_not_one_like_it_that_is_taken() -> None:
    answer = refused(a_cluster().node("a", gpus=2).taken("a", 0).plan(a_pod("p", a_request("gpu", 1, H100))))

    assert answer.details["device"] == "gpu.example.com/a/gpu-1"


def test_a_missing_class_is_named() -> None:
    answer = refused(a_cluster().node("a").plan(a_pod("p", a_request(deviceClassName="tpu"))))

    assert answer.message == "pod p: request gpu of claim p-0 asks for device class tpu, which does not exist"


def test_more_devices_than_a_claim_can_hold_are_refused() -> None:
    assert refused(a_cluster().node("a", gpus=64).plan(a_pod("p", 33))).kind is Kind.FATAL


def test_a_pool_with_missing_slices_is_not_called_infeasible() -> None:
    cluster = a_cluster().node("a").slice("a-0", 1, pool="a", count=2, nodeName="a").node("b", gpus=1)
    answer = refused(cluster.plan(a_pod("p", 1), a_pod("q", 1)))

    assert answer.kind is Kind.POOL_INCOMPLETE
    assert answer.details["pool"] == "a"
    assert answer.message.endswith("without it pod q finds no place")


def test_a_pool_that_could_not_serve_the_pod_is_not_blamed() -> None:
    cluster = a_cluster().node("a", gpus=1).slice("nics", 1, count=2, driver="nic.example.com", nodeName="a")

    assert refused(cluster.plan(a_pod("p", 2))).kind is Kind.INFEASIBLE


def test_an_exhausted_budget_is_not_called_infeasible() -> None:
    assert refused(a_cluster().node("a", gpus=4).plan(a_pod("p", 4), steps=3)).kind is Kind.STEPS_ENDED


@dataclass(frozen=True)
class Short:
    message: str = "too dear"
    details: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Upto:
    """Affords so much of one meter."""

    meter: str
    amount: int

    def __call__(self, charge: Charge) -> Short | None:
        return Short() if dict(charge).get(self.meter, 0) > self.amount else None  # type: ignore[call-overload]


GPUS = device_meters.compile_meters([a_meter("gpus", a_source("count"))])
MEMORY = device_meters.compile_meters([a_meter("memory", a_source("capacity", {"name": "memory"}))])


def test_a_gang_that_fits_but_for_its_quota_is_over_quota() -> None:
    cluster = a_cluster().node("a", gpus=8)
    pods = [a_pod(f"p-{at}", 2) for at in range(4)]
    plan = cluster.plan(*pods, meters=GPUS, affordable=Upto("gpus", 8))

    assert isinstance(plan, Plan)
    assert plan.charge == {"gpus": 8}
    assert {one.claim_uid: one.charge for one in plan.holdings} == {f"claim-p-{at}-0": {"gpus": 2} for at in range(4)}
    answer = refused(cluster.plan(*pods, meters=GPUS, affordable=Upto("gpus", 7)))
    assert (answer.kind, answer.message) == (Kind.OVER_QUOTA, "too dear")


def test_a_gang_over_quota_is_refused_as_over_quota_when_the_search_reaches_its_bound() -> None:
    answer = refused(
        a_cluster().node("a", gpus=4).plan(a_pod("p", 4), meters=GPUS, affordable=Upto("gpus", 0), steps=3)
    )

    assert (answer.kind, answer.message) == (Kind.OVER_QUOTA, "too dear")


def test_a_gang_that_fits_neither_cluster_nor_quota_is_refused_with_what_the_cluster_lacks() -> None:
    answer = a_cluster().node("a", gpus=1).plan(a_pod("p", 2), meters=GPUS, affordable=Upto("gpus", 1))

    assert refused(answer).kind is Kind.INFEASIBLE


def test_a_node_with_cheaper_devices_is_taken_where_the_first_is_not_affordable() -> None:
    cluster = a_cluster()
    for name, size in (("a", "80Gi"), ("b", "40Gi")):
        cluster.node(name, gpus=[{"capacity": {"memory": {"value": size}}}])
    pod = a_pod("p", 1)

    assert places(cluster.plan(pod, meters=MEMORY)) == {"p": "a"}
    assert places(cluster.plan(pod, meters=MEMORY, affordable=Upto("memory", 40 << 30))) == {"p": "b"}


def test_one_device_short_is_refused_at_once_however_many_there_are() -> None:
    """Distinct attributes must not make devices look different that nobody asks about."""
    cluster = a_cluster()
    for node in range(16):
        cluster.node(f"n-{node}", gpus=[{"attributes": {"uuid": {"string": f"{node}-{at}"}}} for at in range(8)])
    answer = refused(cluster.plan(*(a_pod(f"p-{at}", 1) for at in range(129)), steps=2_000))

    assert answer.kind is Kind.INFEASIBLE


def test_one_shared_device_short_is_refused_at_once() -> None:
    cluster = a_cluster()
    for node in range(8):
        cluster.node(f"n-{node}")
    cluster.slice("fabric", 16, allNodes=True)

    assert isinstance(cluster.plan(*(a_pod(f"p-{at}", 2) for at in range(8))), Plan)
    answer = refused(cluster.plan(*(a_pod(f"p-{at}", 1) for at in range(17)), steps=200))
    assert answer.kind is Kind.INFEASIBLE


def test_nodes_that_differ_only_in_unrequested_resources_are_searched_as_one() -> None:
    """A thousand nodes with other amounts of memory left are no thousand choices."""
    cluster = a_cluster()
    for node in range(30):
        cluster.node(f"n-{node:02}", gpus=1, allocatable={"memory": f"{8 + node}Gi"})
    pods = [a_pod(f"p-{at}", 2, requests={"memory": "1Gi"}) for at in range(3)]
    answer = refused(cluster.plan(*pods, steps=100))

    assert answer.kind is Kind.INFEASIBLE


def test_a_pod_without_claims_only_needs_a_node() -> None:
    assert places(a_cluster().node("a").plan(a_pod("p"))) == {"p": "a"}


def tainted(**toleration: Any) -> dict[str, Any]:
    return a_request(tolerations=[{"key": "sick", "operator": "Exists", **toleration}])


@pytest.mark.parametrize(
    ("toleration", "promised"),
    [({}, False), ({"effect": "NoExecute"}, True), ({"effect": "NoExecute", "tolerationSeconds": 60}, False)],
)
def test_no_pod_is_planned_on_a_device_whose_taint_would_evict_the_pod(
    toleration: dict[str, Any], promised: bool
) -> None:
    """Seen on 1.36.3 and 1.37.1: kube-scheduler gives the device, and the eviction controller deletes the pod."""
    cluster = a_cluster().node("a", gpus=[{"taints": [{"key": "sick", "effect": "NoExecute"}]}])
    answer = cluster.plan(a_pod("p", tainted(**toleration)))

    assert isinstance(answer, Plan) is promised
    if isinstance(answer, NoPlan):
        assert "a taint of theirs has the pod deleted" in answer.message


def test_a_hold_names_tainted_devices_of_other_nodes_than_the_best() -> None:
    builder = a_cluster().node("a", gpus=[{"taints": [{"key": "example.com/broken", "effect": "NoSchedule"}]}])
    builder.node("b", gpus=1).taken("b", 0)

    message = refused(builder.plan(a_pod("p", 1))).message

    assert "the most that any node has free is 0 (b, of 1 that match; 1 elsewhere tainted)" in message
