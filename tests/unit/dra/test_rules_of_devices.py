"""The allocator's smaller rules, each by a table: capacities, counters, constraints, taint rules, releases, results."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from admission.api.kubernetes import device_taint_rules, devices
from admission.api.kubernetes.device_taint_rules import TaintRule
from admission.api.kubernetes.devices import DeviceId
from admission.api.values.quantities import measure
from admission.dra import compatibility
from admission.dra.allocator import node_allocator
from admission.dra.allocator.node_allocator import Allocated, NotHere
from admission.dra.compatibility import Features, Release, SchedulerProfile
from admission.dra.inventory import counters, device_taints, pools
from admission.dra.inventory.counters import SharedCounters
from admission.dra.inventory.selectors import Selectors
from admission.dra.requests import capacity as requests_capacity, constraints
from admission.dra.requests.capacity import Unfit, Unrepresentable
from admission.dra.requests.constraints import Rule
from admission.dra.requests.requests import Fatal
from admission.dra.state import cluster_state
from tests.unit.dra.clusters import DRIVER, STEPS, ClusterBuilder, a_claim, a_cluster, a_request

Json = dict[str, Any]


def a_device(**fields: Any) -> devices.Device:
    body = {"spec": {"driver": DRIVER, "pool": {"name": "p"}, "devices": [{"name": "d", **fields}]}}
    return devices.decode_slice({"metadata": {"name": "s"}, **body}).devices[0]


def a_capacity(value: str, **policy: Any) -> Json:
    return {"memory": {"value": value, **({"requestPolicy": policy} if policy else {})}}


RANGE = {"validRange": {"min": "2Gi", "max": "8Gi", "step": "2Gi"}, "default": "4Gi"}
VALUES = {"validValues": ["1Gi", "4Gi"], "default": "1Gi"}

CONSUMED: dict[str, tuple[Json, str | None, str | type]] = {
    "no request and no policy take all": (a_capacity("10Gi"), None, "10Gi"),
    "no request takes the default": (a_capacity("10Gi", **RANGE), None, "4Gi"),
    "a request without a policy takes itself": (a_capacity("10Gi"), "3Gi", "3Gi"),
    "below the range it is its least": (a_capacity("10Gi", **RANGE), "1Gi", "2Gi"),
    "within the range it is rounded up to a step": (a_capacity("10Gi", **RANGE), "3Gi", "4Gi"),
    "above the range it does not fit": (a_capacity("10Gi", **RANGE), "9Gi", Unfit),
    "a range without steps takes the request": (a_capacity("10Gi", validRange={"min": "1Gi"}), "3Gi", "3Gi"),
    "the first valid value that is enough": (a_capacity("10Gi", **VALUES), "2Gi", "4Gi"),
    "above all valid values it does not fit": (a_capacity("10Gi", **VALUES), "5Gi", Unfit),
    "more than there is does not fit": (a_capacity("10Gi"), "11Gi", Unfit),
    "a fraction is rounded up to whole units": (
        a_capacity("10", validRange={"min": "1", "step": "1"}),
        "2500m",
        "3",
    ),
    "more than 64 bits cannot be stepped": (
        a_capacity("10", validRange={"min": "1", "step": "1"}),
        "1e19",
        Unrepresentable,
    ),
    "a step of nothing leads nowhere": (a_capacity("10", validRange={"min": "1", "step": "0"}), "2", Unrepresentable),
    "without a default and with a step of nothing it does not fit": (
        a_capacity("10", validRange={"min": "1", "step": "0"}),
        None,
        Unfit,
    ),
    "below zero is an error": (a_capacity("10"), "-1", Unrepresentable),
}


@pytest.mark.parametrize("case", CONSUMED)
def test_a_request_consumes_the_expected_capacity(case: str) -> None:
    capacity, asked, expected = CONSUMED[case]
    needs = () if asked is None else (("memory", measure(asked)),)
    found = requests_capacity.consumed(needs, a_device(capacity=capacity).capacity, fractional=False)

    if isinstance(expected, str):
        assert found == {"memory": measure(expected)}
    else:
        assert isinstance(found, expected)


def test_a_capacity_that_the_device_lacks_does_not_fit() -> None:
    found = requests_capacity.consumed((("cores", Fraction(1)),), a_device().capacity, fractional=False)

    assert found == Unfit("it has no capacity cores")


@pytest.mark.parametrize(("fractional", "expected"), [(True, "1500m"), (False, "2")])
def test_thousandths_are_steps_only_behind_their_gate(fractional: bool, expected: str) -> None:
    device = a_device(capacity=a_capacity("10", validRange={"min": "500m", "step": "500m"}))
    found = requests_capacity.consumed((("memory", measure("1200m")),), device.capacity, fractional=fractional)

    assert found == {"memory": measure(expected)}


def test_quantities_are_kept_as_kubernetes_keeps_them() -> None:
    assert measure("8Ei") == measure("16Ei") == 2**63 - 1
    assert measure("1e19") == 10**19
    assert measure("0.1n") == Fraction(1, 10**9)
    assert measure("-0.1n") == Fraction(-1, 10**9)


def drawing(**counters: str) -> Json:
    values = {name: {"value": amount} for name, amount in counters.items()}
    return {"consumesCounters": [{"counterSet": "card", "counters": values}]}


def pool(*drawn: Json, **totals: str) -> list[devices.Slice]:
    builder = a_cluster()
    sets = [{"name": "card", "counters": {name: {"value": amount} for name, amount in totals.items()}}]
    builder.slice("p-devices", list(drawn), pool="p").slice("p-sets", [], pool="p", sharedCounters=sets)
    return list(builder.snapshot().slices.values())


def test_devices_in_use_draw_from_counters() -> None:
    counter_set = counters.build(
        pool(drawing(slices="3"), drawing(slices="3", memory="1500m"), slices="7", memory="40")
    )
    first, second = (DeviceId(DRIVER, "p", f"gpu-{at}") for at in range(2))

    assert isinstance(counter_set, SharedCounters)
    assert list(counter_set.totals) == [("card", "memory"), ("card", "slices")]
    assert counter_set.available([]) == (40, 7)
    assert counter_set.available([first, second]) == (Fraction(77, 2), 1)
    assert counter_set.available([DeviceId(DRIVER, "p", "gone")]) == (40, 7)


def test_a_counter_that_is_not_there_is_named() -> None:
    assert "card/memory" in str(counters.build(pool(drawing(memory="1"), slices="7")))


def constraint(*, distinct: bool, release: Release = Release.V1_37, lists: bool = False) -> constraints.Running:
    profile = compatibility.profile(release, Features(list_attributes=lists))
    return constraints.running(Rule("a", distinct, frozenset()), profile)


def value(raw: Any, *, lists: bool = False) -> constraints.Value | None:
    kind = {bool: "bool", int: "int", str: "string", list: "ints"}[type(raw)]
    return constraints.value_of(a_device(attributes={"a": {kind: raw}}), DRIVER, f"{DRIVER}/a", lists=lists)


def test_values_of_different_types_do_not_match_and_do_not_collide() -> None:
    match, distinct = constraint(distinct=False), constraint(distinct=True)

    assert match.add(value(1), "r")
    assert not match.add(value(True), "r")
    assert match.add(value(1), "r")
    assert [distinct.add(value(one), "r") for one in (1, True, "1", 1)] == [True, True, True, False]
    assert not match.add(None, "r")


def test_1_36_forgets_all_but_the_last_value_of_a_request() -> None:
    """kubernetes #140600."""
    old, new = (constraint(distinct=True, release=release) for release in (Release.V1_36, Release.V1_37))

    assert [old.add(value(one), "r") for one in (1, 2, 1)] == [True, True, True]
    assert [new.add(value(one), "r") for one in (1, 2, 1)] == [True, True, False]


def test_lists_match_by_what_all_have_in_common() -> None:
    match = constraint(distinct=False, lists=True)

    assert [match.add(value(one, lists=True), "r") for one in ([1, 2], [2, 3], [1], [2])] == [True, True, False, True]
    match.remove("r")
    match.remove("r")
    assert match.add(value([1], lists=True), "r")


@pytest.mark.parametrize("release", Release)
def test_lists_are_distinct_that_have_nothing_in_common(release: Release) -> None:
    distinct = constraint(distinct=True, lists=True, release=release)

    assert [distinct.add(value(one, lists=True), "r") for one in ([1, 2], [2, 3], [3])] == [True, False, True]
    assert not distinct.add(constraints.UNREADABLE, "r")


def test_1_36_does_not_restore_what_lists_had_in_common() -> None:
    match = constraint(distinct=False, lists=True, release=Release.V1_36)
    match.add(value([1, 2], lists=True), "r")
    match.add(value([2], lists=True), "r")
    match.remove("r")

    assert not match.add(value([1], lists=True), "r")


def a_rule(**spec: Any) -> TaintRule:
    body = {"taint": {"key": "sick", "effect": "NoSchedule"}, **spec}
    return device_taint_rules.decode({"metadata": {"name": "rule"}, "spec": body})


RULES: dict[str, tuple[Json, list[str]]] = {
    "by device": ({"deviceSelector": {"driver": DRIVER, "pool": "a", "device": "gpu-1"}}, ["a/gpu-1"]),
    "by pool": ({"deviceSelector": {"pool": "b"}}, ["b/gpu-0"]),
    "an empty selector picks everything": ({"deviceSelector": {}}, ["a/gpu-0", "a/gpu-1", "b/gpu-0"]),
    "of another driver": ({"deviceSelector": {"driver": "nic.example.com"}}, []),
}


def tainted(spec: Json, release: Release = Release.V1_37) -> list[str]:
    snapshot = a_cluster().node("a", gpus=2).node("b", gpus=1).snapshot()
    after = device_taints.apply_rules(snapshot.slices, {"rule": a_rule(**spec)}, release)
    again = device_taints.apply_rules(snapshot.slices, {"rule": a_rule(**spec)}, release, after)
    assert all(again.slices[key] is slice_ for key, slice_ in after.slices.items())
    return [f"{s.pool}/{d.name}" for s in after.slices.values() for d in s.devices if d.taints]


@pytest.mark.parametrize("case", RULES)
def test_rules_taint_the_devices_that_they_select(case: str) -> None:
    spec, expected = RULES[case]

    assert tainted(spec) == expected


def test_a_rule_without_a_selector_picks_all_in_1_36_and_nothing_in_1_37() -> None:
    assert tainted({}, Release.V1_36) == ["a/gpu-0", "a/gpu-1", "b/gpu-0"]
    assert tainted({}, Release.V1_37) == []


@pytest.mark.parametrize(
    ("version", "release"),
    [
        *(("v1.34.9", "1.34"), ("v1.35.9", "1.35"), ("v1.36.3", "1.36"), ("v1.37.1", "1.37")),
        *(("v1.40.0-rc.1+x", "1.37"), ("v1.33.9", None), ("none", None)),
    ],
)
def test_a_version_has_the_profile_of_its_release_or_of_the_newest(version: str, release: str | None) -> None:
    profile = compatibility.of_version(version)

    assert (profile.release if profile is not None else None) == release
    if profile is not None:
        assert profile.stands_in_for == ("1.40" if "40" in version else ""), "the newest stands in for those after it"


def asked(
    builder: ClusterBuilder, *requests: Json, profile: SchedulerProfile | None = None
) -> Allocated | NotHere | Fatal:
    """Return what a claim gets on the first node."""
    cluster = cluster_state.build(builder.snapshot(), (), profile=profile)
    cluster = replace(cluster, taken=builder.cluster().taken)
    node = next(iter(cluster.nodes))
    claim = a_claim("c", *requests)
    found = node_allocator.allocate([claim], node, cluster, selectors=Selectors(cluster.profile.cel), steps=STEPS)
    assert isinstance(found, Allocated | NotHere | Fatal)
    return found


def test_a_result_says_all_that_status_allocation_needs() -> None:
    """Of a shared device: its share, what it consumes, the toleration that let it through, where it may be used."""
    rack = {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["1"]}]}
    device = {
        "allowMultipleAllocations": True,
        "capacity": a_capacity("10Gi"),
        "taints": [{"key": "sick", "effect": "NoSchedule"}],
        "bindingConditions": ["Ready"],
        "bindingFailureConditions": ["Broken"],
    }
    builder = a_cluster().node("n", labels={"rack": "1"})
    builder.slice("rack", [device], nodeSelector={"nodeSelectorTerms": [rack]})
    builder.classes[0]["spec"]["config"] = [{"opaque": {"driver": DRIVER, "parameters": {"of": "class"}}}]
    tolerations = [{"key": "sick", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 7}]
    found = asked(builder, a_request(capacity={"requests": {"memory": "3Gi"}}, tolerations=tolerations))

    assert isinstance(found, Allocated)
    assert found.claims[0].json(["share-1"]) == {
        "devices": {
            "results": [
                {
                    "request": "gpu",
                    "driver": DRIVER,
                    "pool": "rack",
                    "device": "gpu-0",
                    "tolerations": tolerations,
                    "bindingConditions": ["Ready"],
                    "bindingFailureConditions": ["Broken"],
                    "shareID": "share-1",
                    "consumedCapacity": {"memory": "3Gi"},
                }
            ],
            "config": [{"source": "FromClass", "opaque": {"driver": DRIVER, "parameters": {"of": "class"}}}],
        },
        "nodeSelector": {"nodeSelectorTerms": [rack]},
    }


def test_a_device_that_binds_to_its_node_is_used_there_alone() -> None:
    builder = a_cluster().node("n").slice("all", [{"bindsToNode": True}], allNodes=True)
    found = asked(builder, a_request())
    field = {"key": "metadata.name", "operator": "In", "values": ["n"]}

    assert isinstance(found, Allocated)
    assert found.claims[0].json()["nodeSelector"] == {"nodeSelectorTerms": [{"matchFields": [field]}]}


GATES: dict[str, tuple[Features, Json, Json, str]] = {
    "alternatives": (
        Features(prioritized_list=False),
        {},
        {"name": "gpu", "firstAvailable": [{"name": "a", "deviceClassName": "gpu"}]},
        "DRAPrioritizedList",
    ),
    "capacity": (
        Features(consumable_capacity=False),
        {},
        a_request(capacity={"requests": {"memory": "1"}}),
        "DRAConsumableCapacity",
    ),
    "admin access": (Features(admin_access=False), {}, a_request(adminAccess=False), "DRAAdminAccess"),
}


@pytest.mark.parametrize("case", GATES)
def test_a_feature_behind_a_closed_gate_is_an_error(case: str) -> None:
    features, device, request, gate = GATES[case]
    profile = compatibility.profile(Release.V1_37, features)
    found = asked(a_cluster().node("n", gpus=[device]), request, profile=profile)

    assert isinstance(found, Fatal)
    assert gate in found.error


def test_why_a_node_does_not_serve_a_pod_names_a_device() -> None:
    root = "resource.kubernetes.io/pcieRoot"
    gpus = [{"attributes": {root: {"string": f"root-{at}"}}} for at in range(3)]
    claim = a_claim("c", a_request(count=2), constraints=[{"matchAttribute": root}])
    cluster = a_cluster().node("n", gpus=gpus).cluster()
    found = node_allocator.allocate([claim], next(iter(cluster.nodes)), cluster, selectors=Selectors(), steps=STEPS)

    assert isinstance(found, NotHere)
    assert found.message == (
        "request gpu of claim c needs 2 of class gpu: 3 match, 3 free, and a constraint keeps them apart"
        f" ({DRIVER}/n/gpu-2 for one)"
    )


EVERY = {"name": "gpu", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}

BAD_POOLS: dict[str, tuple[ClusterBuilder, str]] = {
    "lacks a slice": (
        a_cluster().node("n").slice("p", 2, count=2, nodeName="n"),
        "1 of 2 slices of generation 1 are there",
    ),
    "has a device twice": (
        a_cluster().node("n").slice("p", 1, count=2, nodeName="n").slice("q", 1, pool="p", count=2, nodeName="n"),
        "device gpu-0 is there twice",
    ),
}


@pytest.mark.parametrize("case", BAD_POOLS)
def test_all_devices_of_a_node_are_not_given_where_a_pool(case: str) -> None:
    builder, why = BAD_POOLS[case]
    found = asked(builder.slice("good", 1, nodeName="n"), EVERY)

    assert isinstance(found, Fatal)
    assert found.error == f"request gpu wants all devices, and pool p of {DRIVER}: {why}"


@pytest.mark.parametrize("partitionable", [True, False])
def test_a_pool_draws_on_counters_that_it_has_where_devices_can_be_partitioned(*, partitionable: bool) -> None:
    sets = [{"name": "card", "counters": {"slices": {"value": "3"}}}]
    builder = a_cluster().node("n").slice("plain", 1, nodeName="n").slice("parts", 1, count=2, nodeName="n")
    builder.slice("sets", [], pool="parts", count=2, nodeName="n", sharedCounters=sets)
    profile = compatibility.profile(Release.V1_37, Features(partitionable=partitionable))

    slices = pools.Slices(builder.snapshot().slices, profile)

    assert slices.draws((DRIVER, "parts")) is partitionable
    assert not slices.draws((DRIVER, "plain"))
    assert slices.has_counters
    (node,) = builder.snapshot().nodes.values()
    seen = {name: [one.meta.name for one in found] for (_, name), found in slices.relevant(node).items()}
    assert seen == {"plain": ["plain"], "parts": ["parts", "sets"] if partitionable else ["parts"]}
