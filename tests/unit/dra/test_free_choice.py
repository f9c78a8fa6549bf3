"""What a free choice of devices can do that first fit cannot, how tightly it packs, and gangs that stay together."""

from typing import Any

import pytest

from admission.api.kubernetes.devices import DeviceId
from admission.api.values.names import MeterName
from admission.dra import gang_planner
from admission.dra.inventory.selectors import Selectors
from admission.dra.metering import device_meters
from admission.dra.planner.no_plan import Kind, NoPlan
from admission.dra.requests.gang_request import Choice, Colocation, Plan, PodDemand, Topology
from tests import readers
from tests.unit.dra.clusters import (
    DRIVER,
    STEPS,
    ClusterBuilder,
    Json,
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
from tests.unit.dra.test_gang_planner import Upto

GPUS = MeterName("gpus")
RACK = "example.com/rack"
STARTS = {"1g": range(7), "3g": (0, 4), "4g": (0,), "7g": (0,)}
MEMORY = {"1g": 1, "3g": 4, "4g": 4, "7g": 8}


def plan(builder: ClusterBuilder, *pods: PodDemand, **more: Any) -> Plan | NoPlan:
    return gang_planner.plan(
        pods, builder.cluster(), selectors=Selectors(), **{"steps": STEPS, "choice": Choice.FREE, **more}
    )


def test_all_devices_of_a_pod_that_does_not_fit_are_not_given_to_the_next_one() -> None:
    """On node a the first pod's constraint fails; there the second pod's request is the same claim's and request's."""

    def gpu(size: str, color: str) -> Json:
        return {"attributes": {"size": {"string": size}, "color": {"string": color}}}

    nodes = a_cluster().node("a", gpus=[gpu("small", "red"), gpu("small", "blue"), *[gpu("other", "red")] * 2])
    nodes.node("b", gpus=[*[gpu("small", "red")] * 2, *[gpu("other", "red")] * 3])
    small, other = (f"device.attributes['{DRIVER}'].size == '{size}'" for size in ("small", "other"))
    every = a_request("every", 1, small, allocationMode="All")
    del every["exactly"]["count"]
    rule = {"requests": ["every"], "matchAttribute": f"{DRIVER}/color"}
    first = a_pod("first", a_claim("first-0", every, a_request("two", 2, other), constraints=[rule]))
    second = a_pod("second", a_request("one", 1, small))

    found = plan(nodes, first, second)

    assert isinstance(found, Plan)
    assert {pod: len(devices) for pod, devices in given(found).items()} == {"first": 4, "second": 1}


def sized(size: str) -> Json:
    asked: Json = a_request(size, 1, f"device.attributes['{DRIVER}'].size == '{size}'")
    return {"name": size, **asked["exactly"]}


def big_and_small() -> ClusterBuilder:
    return a_cluster().node("a", gpus=[{"attributes": {"size": {"string": size}}} for size in ("big", "small")])


def prefers_big(name: str) -> PodDemand:
    return a_pod(name, {"name": "gpu", "firstAvailable": [sized("big"), sized("small")]})


def partitions(count: int) -> ClusterBuilder:
    """Return a node with cards of 7 slices of compute and 8 of memory; partitions are called CARD-PROFILE-START."""
    parts = []
    for member in range(count):
        for profile, starts in STARTS.items():
            for start in starts:
                memory = {f"memory-{at}": {"value": "1"} for at in range(start, start + MEMORY[profile])}
                drawn = {"compute": {"value": profile[0]}, **memory}
                parts.append(
                    {
                        "name": f"{member}-{profile}-{start}",
                        "attributes": {"profile": {"string": profile}},
                        "consumesCounters": [{"counterSet": f"card-{member}", "counters": drawn}],
                    }
                )
    whole = {"compute": {"value": "7"}, **{f"memory-{at}": {"value": "1"} for at in range(8)}}
    builder = a_cluster().node("a").slice("parts", parts, pool="a", count=2, nodeName="a")
    sets = [{"name": f"card-{member}", "counters": whole} for member in range(count)]
    return builder.slice("sets", [], pool="a", count=2, nodeName="a", sharedCounters=sets)


def of_profile(profile: str, count: int = 1) -> Json:
    return a_request("gpu", count, f"device.attributes['{DRIVER}'].profile == '{profile}'")


def wanting(profile: str, *names: str) -> list[PodDemand]:
    return [a_pod(name, of_profile(profile)) for name in names]


def test_a_pod_that_prefers_a_device_leaves_it_to_one_that_can_do_with_no_other() -> None:
    builder = a_cluster().node("a", gpus=[{"attributes": {"size": {"string": s}}} for s in ("big", "small", "small")])
    greedy = [prefers_big("one"), prefers_big("two")]
    needy = a_pod("big", a_request("gpu", 1, f"device.attributes['{DRIVER}'].size == 'big'"))

    assert given(plan(builder, *greedy)) == {"one": ["a/gpu-0"], "two": ["a/gpu-1"]}
    assert given(plan(builder, *greedy, needy)) == {"big": ["a/gpu-0"], "one": ["a/gpu-1"], "two": ["a/gpu-2"]}


def test_a_gang_that_first_fit_can_place_in_no_order_is_placed_by_choice() -> None:
    """Each pod takes the whole card, if it may, and leaves nothing to the other; halves do for both."""
    ways = [{"name": profile, **of_profile(profile)["exactly"]} for profile in ("7g", "3g")]
    halves = {"name": "gpu", "firstAvailable": ways}
    builder, pods = partitions(1), [a_pod("one", halves), a_pod("two", halves)]

    assert refused(plan(builder, *pods, choice=Choice.FIRST_FIT)).kind is Kind.INFEASIBLE
    # The first one leaves room for a 4g.
    assert given(plan(builder, *pods)) == {"one": ["a/0-3g-4"], "two": ["a/0-3g-0"]}


def test_small_partitions_go_to_one_card_and_leave_the_largest_possible_free() -> None:
    found = given(plan(partitions(3), *wanting("1g", "one", "two", "three")))

    assert {names[0].partition("-")[0] for names in found.values()} == {"a/0"}
    # Above the slices of the 4g.
    assert sorted(names[0] for names in found.values()) == ["a/0-1g-4", "a/0-1g-5", "a/0-1g-6"]


def test_a_card_that_is_in_use_is_filled_before_others() -> None:
    builder = partitions(2)
    builder._taken[DeviceId(DRIVER, "a", "1-4g-0")] = next(iter(a_cluster().taken("x", 0)._taken.values()))

    assert given(plan(builder, *wanting("3g", "one"))) == {"one": ["a/1-3g-4"]}


def test_nodes_that_are_whole_are_kept_whole() -> None:
    builder = a_cluster().node("a", gpus=8).node("b", gpus=8).node("c", gpus=8).taken("b", 0, 1, 2)

    assert set(places(plan(builder, *(a_pod(f"p-{at}", 1) for at in range(5)))).values()) == {"b"}


def test_one_partition_more_than_cards_have_is_proved_not_to_fit() -> None:
    """Two cards: 4g and 3g on each leave no compute for a 1g. Equal cards are not tried one for the other."""
    pods = [*wanting("4g", "a", "b"), *wanting("3g", "c", "d"), *wanting("1g", "e")]

    assert refused(plan(partitions(2), *pods, steps=500)).kind is Kind.INFEASIBLE
    assert isinstance(plan(partitions(2), *pods[:-1], steps=500), Plan)


def test_pods_that_share_no_claim_are_tried_in_one_order() -> None:
    """Two roots of three devices each, for three pods that need two of one root, each by a selector of its own."""
    devices = [{"attributes": {"root": {"string": root}}} for root in "aaabbb"]
    builder, rule = a_cluster().node("n").slice("all", devices, allNodes=True), {"matchAttribute": f"{DRIVER}/root"}
    requests = [a_request("gpu", 2, f"{at} == {at}") for at in range(3)]
    pods = [a_pod(f"p-{at}", a_claim(f"c-{at}", one, constraints=[rule])) for at, one in enumerate(requests)]

    assert refused(plan(builder, *pods, steps=200)).kind is Kind.INFEASIBLE
    assert isinstance(plan(builder, *pods[:-1], steps=200), Plan)


def test_a_choice_that_is_over_quota_is_passed_over() -> None:
    """One pod may have two small devices or a big one; only one device can be paid for."""
    builder = a_cluster().node("a", gpus=[{"attributes": {"size": {"string": s}}} for s in ("small", "small", "big")])
    pod = a_pod("p", {"name": "gpu", "firstAvailable": [{**sized("small"), "count": 2}, sized("big")]})
    meters = device_meters.compile_meters([a_meter(GPUS, a_source("count"))])

    found = plan(builder, pod, meters=meters, affordable=Upto(GPUS, 1))

    assert given(found) == {"p": ["a/gpu-2"]}
    assert isinstance(found, Plan)
    assert found.charge == {GPUS: 1}
    assert given(plan(builder, pod, meters=meters, affordable=Upto(GPUS, 2))) == {"p": ["a/gpu-0", "a/gpu-1"]}
    assert refused(plan(builder, pod, meters=meters, affordable=Upto(GPUS, 0))).kind is Kind.OVER_QUOTA


def test_where_nodes_differ_in_price_the_cheap_one_is_found() -> None:
    """The full node comes first and costs 3 a device by its meter, the other 1."""
    priced = [{"attributes": {"price": {"int": price}}} for price in (3, 3)]
    builder = a_cluster().node("a", gpus=priced).node("b", gpus=[{"attributes": {"price": {"int": 1}}}] * 4)
    price = a_source("expression", {"cel": f"device.attributes['{DRIVER}'].price"})
    meters = device_meters.compile_meters([a_meter(GPUS, price)])
    pods = [a_pod("one", 1), a_pod("two", 1)]

    assert set(places(plan(builder, *pods, meters=meters)).values()) == {"a"}
    assert set(places(plan(builder, *pods, meters=meters, affordable=Upto(GPUS, 2))).values()) == {"b"}
    assert refused(plan(builder, *pods, meters=meters, affordable=Upto(GPUS, 1))).kind is Kind.OVER_QUOTA


def test_a_device_on_which_a_selector_fails_is_passed_over() -> None:
    """kube-scheduler would give up on the pod when it meets the first device."""
    builder = a_cluster().node("a", gpus=[{}, {"attributes": {"size": {"string": "big"}}}])
    pod = a_pod("p", a_request("gpu", 1, f"device.attributes['{DRIVER}'].size == 'big'"))

    assert refused(plan(builder, pod, choice=Choice.FIRST_FIT)).kind is Kind.FATAL
    assert given(plan(builder, pod)) == {"p": ["a/gpu-1"]}


def test_a_free_choice_that_ends_too_early_falls_back_to_first_fit() -> None:
    """So nobody is worse off for a choice: here for the very budget of first fit."""
    builder = a_cluster().node("a", gpus=8).node("b", gpus=8)
    pods = [a_pod(f"p-{at}", 1 + at % 3) for at in range(8)]
    first_fit = plan(builder, *pods, choice=Choice.FIRST_FIT)
    assert isinstance(first_fit, Plan)

    assert isinstance(plan(builder, *pods, steps=first_fit.steps), Plan)


@pytest.mark.parametrize("choice", list(Choice))
def test_a_gang_is_kept_in_the_tightest_domain_that_takes_it(choice: Choice) -> None:
    builder = a_cluster()
    for name, rack, gpus in (("a", "r1", 2), ("b", "r1", 2), ("c", "r2", 3), ("d", "r2", 3), ("e", "r3", 8)):
        builder.node(name, gpus=gpus, labels={RACK: rack})
    pods = [a_pod(f"p-{at}", 3) for at in range(2)]

    assert set(
        places(plan(builder, *pods, choice=choice, topology=Topology(gang=Colocation(required=RACK)))).values()
    ) == {"c", "d"}


@pytest.mark.parametrize("choice", list(Choice))
def test_a_gang_that_no_domain_takes_is_refused_or_spread_as_it_asks(choice: Choice) -> None:
    builder = a_cluster()
    for name, rack in (("a", "r1"), ("b", "r2")):
        builder.node(name, gpus=2, labels={RACK: rack})
    pods = [a_pod(f"p-{at}", 2) for at in range(2)]

    required = refused(plan(builder, *pods, choice=choice, topology=Topology(gang=Colocation(required=RACK))))
    preferred = plan(builder, *pods, choice=choice, topology=Topology(gang=Colocation(preferred=RACK)))

    assert required.kind is Kind.INFEASIBLE
    start = f"none of 2 domains of {RACK} takes all 2 pods together; r1 comes nearest, with places for 1: pod p-1 needs"
    assert required.message.startswith(start)
    assert (required.details["domains"], required.details["pods"], required.details["placed"]) == (2, 2, 1)
    assert isinstance(preferred, Plan)
    assert set(places(preferred).values()) == {"a", "b"}
    assert preferred.apart == required.message


def test_a_gang_waits_for_the_domain_that_would_take_it_were_nothing_in_use() -> None:
    builder = (
        a_cluster().node("a", gpus=4, labels={RACK: "r1"}).node("b", gpus=2, labels={RACK: "r2"}).node("c", gpus=8)
    )
    builder.taken("a", 0, claim="others/c", gang="others/g")
    pods, topology = [a_pod(f"p-{at}", 2) for at in range(2)], Topology(gang=Colocation(required=RACK))
    cluster, selectors = builder.cluster(), Selectors()

    answer = refused(plan(builder, *pods, topology=topology))
    found = gang_planner.diagnose(
        answer, pods, cluster, selectors=selectors, steps=STEPS, choice=Choice.FREE, topology=topology
    )

    assert found.kind is Kind.BUSY
    assert found.message.startswith(
        f"no domain of {RACK} takes the whole gang now; r1 could, and has places for 1: pod"
    )
    assert "others/c" in readers.in_full(found)
    assert (found.details["domain"], found.details["placed"], found.details["domains"]) == ("r1", 1, 2)


@pytest.mark.parametrize("choice", list(Choice))
def test_counters_that_are_too_few_for_all_together_need_no_search(choice: Choice) -> None:
    """56 slices of compute on eight cards: 8 of 4g and 8 of 3g take all; there is memory left for a 1g."""
    names = [f"p-{at}" for at in range(8)]
    pods = [*wanting("4g", *names), *wanting("3g", *(f"q-{name}" for name in names)), *wanting("1g", "r")]

    assert refused(plan(partitions(8), *pods, choice=choice, steps=50)).kind is Kind.INFEASIBLE


@pytest.mark.parametrize("choice", list(Choice))
def test_a_request_counts_with_all_its_devices_when_counters_are_summed(choice: Choice) -> None:
    """As above, two devices to a pod."""
    pods = [a_pod(f"p-{at}-{profile}", of_profile(profile, 2)) for at in range(4) for profile in ("4g", "3g")]

    assert refused(plan(partitions(8), *pods, *wanting("1g", "r"), choice=choice, steps=50)).kind is Kind.INFEASIBLE
