"""The judge of allocations, judged: right answers pass, and for every rule there is a wrong one that does not."""

import copy
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests import soaking
from tests.conformance import corpus
from tests.property import checker

GPU, NIC = "gpu.example.com", "nic.example.com"
NODE = "node-1"

Json = dict[str, Any]
Wrong = Callable[[Json, list[Json]], object]


def a_device(name: str, *, numa: int = 0, kind: str = "card", **more: Any) -> Json:
    return {"name": name, "attributes": {"numa": {"int": numa}, "kind": {"string": kind}}, **more}


def a_slice(
    name: str, driver: str, pool: str, *devices: Json, count: int = 1, generation: int = 1, **spec: Any
) -> Json:
    shape = {"name": pool, "generation": generation, "resourceSliceCount": count}
    where = {} if {"nodeSelector", "allNodes", "perDeviceNodeSelection"} & set(spec) else {"nodeName": NODE}
    return {
        "metadata": {"name": name},
        "spec": {"driver": driver, "pool": shape, "devices": list(devices), **where, **spec},
    }


def compute(amount: str) -> list[Json]:
    return [{"counterSet": "card-7", "counters": {"compute": {"value": amount}}}]


ZONE = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}
BANDWIDTH = {"value": "10", "requestPolicy": {"default": "1", "validRange": {"min": "1", "max": "7", "step": "2"}}}
TAINT = {"key": "broken", "effect": "NoSchedule"}


def a_record() -> Json:
    """Return a world that uses every rule; `the_answer` is a right answer."""
    slices = [
        a_slice(
            "cards",
            GPU,
            NODE,
            *(a_device(f"gpu-{at}", numa=at // 2) for at in range(3)),
            a_device("gpu-tainted", taints=[TAINT]),
            a_device("gpu-taken"),
            *(a_device(f"mig-{at}", kind="mig", consumesCounters=compute("2")) for at in range(2)),
            a_device("mig-taken", kind="mig", consumesCounters=compute("4")),
            count=2,
        ),
        a_slice("counters", GPU, NODE, count=2),
        a_slice("fabric", NIC, "fabric", nodeSelector=ZONE),
        a_slice("old", GPU, NODE, a_device("gpu-old"), generation=0),
        a_slice("far", GPU, "node-2", a_device("gpu-far"), nodeName="node-2"),
        a_slice("half", GPU, "half", a_device("gpu-half"), count=2),
        a_slice("double", GPU, "double", a_device("gpu-double"), a_device("gpu-double", numa=1)),
        a_slice(
            "many",
            GPU,
            "many",
            a_device("gpu-near", kind="hosted", nodeName=NODE, bindingConditions=["ready"]),
            a_device("gpu-away", kind="hosted", nodeName="node-2"),
            perDeviceNodeSelection=True,
        ),
    ]
    slices[1]["spec"] |= {"sharedCounters": [{"name": "card-7", "counters": {"compute": {"value": "7"}}}]}
    nic = a_device("nic-0", allowMultipleAllocations=True, capacity={"bandwidth": BANDWIDTH})
    slices[2]["spec"]["devices"] = [nic, a_device("nic-1", capacity={"bandwidth": {"value": "1"}})]
    return {
        "features": {
            "AdminAccess": True,
            "ConsumableCapacity": True,
            "DeviceBindingAndStatus": True,
            "DeviceTaints": True,
            "ListTypeAttributes": False,
            "PartitionableDevices": True,
            "PrioritizedList": True,
        },
        "node": {"metadata": {"name": NODE, "labels": {"zone": "a"}}},
        "classes": [
            {"metadata": {"name": name}, "spec": {"selectors": [selector(f"device.driver == '{name}'")]}}
            for name in (GPU, NIC)
        ],
        "slices": slices,
        "allocated": [taken(NODE, "gpu-taken"), taken(NODE, "mig-taken")],
        "sharedDevices": [{**taken("fabric", "nic-0", NIC), "shareID": "other"}],
        "consumedCapacity": [{**taken("fabric", "nic-0", NIC), "capacity": {"bandwidth": "4"}}],
        "claims": [
            a_claim(
                {"name": "pair", "exactly": asked(kind="card", count=2)},
                {
                    "name": "part",
                    "firstAvailable": [{"name": "whole", **asked(kind="none")}, {"name": "mig", **asked(kind="mig")}],
                },
                constraints=[{"matchAttribute": f"{GPU}/numa", "requests": ["pair", "part/mig"]}],
            ),
            a_claim(
                {"name": "share", "exactly": asked(NIC, capacity={"requests": {"bandwidth": "4"}})},
            ),
            a_claim({"name": "watch", "exactly": asked(kind="card", adminAccess=True)}),
            a_claim({"name": "host", "exactly": asked(kind="hosted", tolerations=[{"operator": "Exists"}])}),
        ],
    }


def selector(text: str) -> Json:
    return {"cel": {"expression": text}}


def taken(pool: str, device: str, driver: str = GPU) -> Json:
    return {"driver": driver, "pool": pool, "device": device}


def asked(driver: str = GPU, *, kind: str | None = None, count: int = 1, **more: Any) -> Json:
    own = [selector(f"device.attributes['{GPU}'].kind == '{kind}'")] if kind else []
    return {"deviceClassName": driver, "allocationMode": "ExactCount", "count": count, "selectors": own, **more}


def a_claim(*requests: Json, **more: Any) -> Json:
    return {"metadata": {"name": "claim"}, "spec": {"devices": {"requests": list(requests), **more}}}


def the_answer() -> list[Json]:
    here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [NODE]}]}
    share = {"shareID": "<uuid>", "consumedCapacity": {"bandwidth": "5"}}
    given = [
        [result("pair", "gpu-0"), result("pair", "gpu-1"), result("part/mig", "mig-0")],
        [result("share", "nic-0", pool="fabric", driver=NIC, **share)],
        [result("watch", "gpu-taken", adminAccess=True)],
        [result("host", "gpu-near", pool="many", tolerations=[{"operator": "Exists"}], bindingConditions=["ready"])],
    ]
    selectors: list[Json] = [{"nodeSelectorTerms": [here]}] * 4
    selectors[1] = ZONE
    return [
        {"devices": {"results": results}, "nodeSelector": copy.deepcopy(where)}
        for results, where in zip(given, selectors, strict=True)
    ]


def result(request: str, device: str, *, pool: str = NODE, driver: str = GPU, **more: Any) -> Json:
    return {"request": request, "driver": driver, "pool": pool, "device": device, **more}


def given(claim: int, at: int, **changes: Any) -> Wrong:
    """Change one result of the answer; None removes a key."""

    def change(_: Json, answer: list[Json]) -> None:
        entry = answer[claim]["devices"]["results"][at]
        entry |= changes
        for key in [key for key, value in entry.items() if value is None]:
            del entry[key]

    return change


def dropped(claim: int, at: int) -> Wrong:
    return lambda _, answer: answer[claim]["devices"]["results"].pop(at)


def added(claim: int, entry: Json) -> Wrong:
    return lambda _, answer: answer[claim]["devices"]["results"].append(entry)


def node_selector(claim: int, selector: Json | None) -> Wrong:
    return lambda _, answer: answer[claim].update(nodeSelector=selector)


def cluster_state(change: Callable[[Json], object]) -> Wrong:
    return lambda record, _: change(record)


def devices(record: Json, at: int) -> list[Json]:
    found: list[Json] = record["slices"][at]["spec"]["devices"]
    return found


def request(record: Json, claim: int, at: int) -> Json:
    found: Json = record["claims"][claim]["spec"]["devices"]["requests"][at]
    return found


WRONG: dict[str, tuple[Wrong, str]] = {
    "an allocation is missing": (lambda _, answer: answer.pop(), "3 allocations for 4 claims"),
    "a device does not exist": (given(0, 0, device="gpu-9"), "node-1/gpu-9 is not there"),
    "a pool does not exist": (given(0, 0, pool="none"), "none/gpu-0 is not there"),
    "a device is of an old generation": (given(0, 0, device="gpu-old"), "gpu-old is not there"),
    "a device is another node's": (given(0, 0, pool="node-2", device="gpu-far"), "gpu-far is not there"),
    "a device of a pool for all is another node's": (given(3, 0, device="gpu-away"), "gpu-away is not for this node"),
    "a device is of an incomplete pool": (given(0, 0, pool="half", device="gpu-half"), "half is incomplete"),
    "a pool is being replaced": (
        cluster_state(lambda record: record["slices"][0]["spec"]["pool"].update(generation=2)),
        "node-1/gpu-0 is not there. gpu.example.com/node-1 is incomplete",
    ),
    "a device is of an invalid pool": (given(0, 0, pool="double", device="gpu-double"), "two devices of one name"),
    "a counter set is there twice": (
        cluster_state(
            lambda record: record["slices"][1]["spec"]["sharedCounters"].append({"name": "card-7", "counters": {}})
        ),
        "two counter sets of one name",
    ),
    "a device of the pool consumes an unknown counter": (
        cluster_state(
            lambda record: devices(record, 0)[5]["consumesCounters"][0].update(counters={"x": {"value": "1"}})
        ),
        "consumes counters that are not there",
    ),
    "a device is in use": (given(0, 0, device="gpu-taken"), "gpu-taken is in use"),
    "a device is given twice in a request": (given(0, 1, device="gpu-0"), "gpu-0 twice"),
    "a device is given to two requests": (
        lambda record, answer: (
            request(record, 0, 1)["firstAvailable"][1].update(selectors=[]),
            given(0, 2, device="gpu-0")(record, answer),
        ),
        "gpu-0 is given to pair of claim 0, too",
    ),
    "a device that an administrator watches is given away in a later claim": (
        lambda record, answer: (
            given(2, 0, device="gpu-near", pool="many")(record, answer),
            request(record, 2, 0)["exactly"].update(selectors=[]),
        ),
        "gpu-near is given to watch of claim 2, too",
    ),
    "a taint is not tolerated": (given(0, 1, device="gpu-tainted"), "taint"),
    "a taint is tolerated for another effect": (
        lambda record, answer: (
            given(0, 1, device="gpu-tainted")(record, answer),
            request(record, 0, 0)["exactly"].update(tolerations=[{"operator": "Exists", "effect": "NoExecute"}]),
        ),
        "which is not tolerated",
    ),
    "a request's selector does not hold": (given(0, 1, device="mig-1"), "not what the selector asks for"),
    "a class' selector does not hold": (
        given(1, 0, device="gpu-2", pool=NODE, driver=GPU),
        f"not what the selector asks for: device.driver == '{NIC}'",
    ),
    "a selector fails": (
        cluster_state(lambda record: devices(record, 0)[0]["attributes"].pop("kind")),
        "gpu-0 makes a selector fail",
    ),
    "a class is not there": (cluster_state(lambda record: record["classes"].pop()), "which is not there"),
    "devices that must match differ": (given(0, 1, device="gpu-2"), f"matchAttribute {GPU}/numa of claim 0"),
    "values that must match are of two types": (
        cluster_state(lambda record: devices(record, 0)[1]["attributes"].update(numa={"string": "0"})),
        f"matchAttribute {GPU}/numa of claim 0",
    ),
    "a device of a constraint lacks the attribute": (
        cluster_state(lambda record: devices(record, 0)[5]["attributes"].pop("numa")),
        "a device does not have it",
    ),
    "devices that must differ match": (
        cluster_state(
            lambda record: record["claims"][0]["spec"]["devices"].update(
                constraints=[{"distinctAttribute": f"{GPU}/numa", "requests": ["pair"]}]
            )
        ),
        f"distinctAttribute {GPU}/numa of claim 0",
    ),
    "counters are used up": (
        cluster_state(lambda record: devices(record, 0)[5].update(consumesCounters=compute("4"))),
        "counters of pool gpu.example.com/node-1 exceeded: card-7.compute by 1",
    ),
    "counters are used up by what is in use": (
        cluster_state(lambda record: devices(record, 0)[7].update(consumesCounters=compute("5500m"))),
        "exceeded: card-7.compute by 1/2",
    ),
    "a shared device is full": (
        cluster_state(lambda record: record["consumedCapacity"][0]["capacity"].update(bandwidth="6")),
        "nic-0 has 10 bandwidth, 11.0 would be used",
    ),
    "two shares of a device are too much": (
        lambda record, answer: (
            request(record, 1, 0)["exactly"].update(capacity={"requests": {"bandwidth": "3"}}),
            record["claims"][1]["spec"]["devices"]["requests"].append({**request(record, 1, 0), "name": "again"}),
            answer[1]["devices"]["results"][0].update(consumedCapacity={"bandwidth": "3"}),
            answer[1]["devices"]["results"].append({**answer[1]["devices"]["results"][0], "request": "again"}),
            record["consumedCapacity"][0]["capacity"].update(bandwidth="5"),
        ),
        "again: nic.example.com/fabric/nic-0 has 10 bandwidth, 11.0 would be used",
    ),
    "a device that is not shared is too small": (
        given(1, 0, device="nic-1", shareID=None, consumedCapacity=None),
        "nic-1 has 1 bandwidth, 4.0 would be used",
    ),
    "more is asked for than a request may have": (
        cluster_state(
            lambda record: request(record, 1, 0)["exactly"].update(capacity={"requests": {"bandwidth": "8"}})
        ),
        "9.0 bandwidth is more than a request may have",
    ),
    "a default lies between two steps of a range": (
        lambda record, _: (
            devices(record, 2)[0]["capacity"]["bandwidth"]["requestPolicy"].update(default=None),
            devices(record, 2)[0]["capacity"]["bandwidth"].update(value="6"),
            request(record, 1, 0)["exactly"].pop("capacity"),
        ),
        "6.0 bandwidth is between two steps",
    ),
    "a value is not one of those that are valid": (
        cluster_state(
            lambda record: devices(record, 2)[0]["capacity"]["bandwidth"].update(requestPolicy={"validValues": ["3"]})
        ),
        "4.0 bandwidth is no value that a request may have",
    ),
    "a capacity is asked for that the device lacks": (
        cluster_state(lambda record: request(record, 1, 0)["exactly"].update(capacity={"requests": {"memory": "1"}})),
        "has no capacity ['memory']",
    ),
    "a request was not rounded up": (given(1, 0, consumedCapacity={"bandwidth": "4"}), "consumedCapacity is"),
    "a share has no id": (given(1, 0, shareID=None), "shareID is False, not True"),
    "a device that is not shared has a share's id": (given(0, 0, shareID="<uuid>"), "shareID is True, not False"),
    "a request has a device too few": (dropped(0, 1), "pair has 1 devices and asks for 2"),
    "a request has a device too many": (added(0, result("pair", "gpu-2")), "pair has 3 devices and asks for 2"),
    "a request has none": (dropped(0, 2), "part has no device"),
    "a request is unknown": (given(0, 2, request="part"), "claim 0 has no request part"),
    "two alternatives are served": (
        lambda record, answer: (
            added(0, result("part/whole", "gpu-2"))(record, answer),
            request(record, 0, 1)["firstAvailable"][0].update(selectors=[]),
        ),
        "part has devices for 2 alternatives",
    ),
    "a claim has more than 32 devices": (
        lambda record, answer: (
            record["slices"][0]["spec"].update(
                devices=[*devices(record, 0), *(a_device(f"more-{at}") for at in range(31))]
            ),
            request(record, 0, 0)["exactly"].update(count=33),
            answer[0]["devices"]["results"].extend(result("pair", f"more-{at}") for at in range(31)),
        ),
        "claim 0 has 34 results",
    ),
    "all are asked for while a pool is incomplete": (
        cluster_state(lambda record: request(record, 3, 0)["exactly"].update(allocationMode="All")),
        "asks for all devices, but gpu.example.com/double is invalid",
    ),
    "one of all devices is missing": (
        lambda record, _: (
            record["slices"].__delitem__(slice(5, 7)),
            request(record, 3, 0)["exactly"].update(allocationMode="All"),
            devices(record, 5)[1].update(nodeName=NODE),
        ),
        "asks for all devices and has not got gpu.example.com/many/gpu-away",
    ),
    "an administrator's device is not marked": (given(2, 0, adminAccess=None), "adminAccess is None, not True"),
    "a user's device is marked": (given(0, 0, adminAccess=True), "adminAccess is True, not None"),
    "tolerations are not written down": (given(3, 0, tolerations=None), "tolerations is []"),
    "binding conditions are not written down": (given(3, 0, bindingConditions=None), "bindingConditions is None"),
    "binding conditions are not understood": (
        cluster_state(lambda record: record["features"].update(DeviceBindingAndStatus=False)),
        "has binding conditions, and the feature is off",
    ),
    "counters are not understood": (
        cluster_state(lambda record: record["features"].update(PartitionableDevices=False)),
        "consumes counters, and the feature is off",
    ),
    "an allocation is not bound to the node of its device": (node_selector(0, None), "the node selector is None"),
    "an allocation is bound to a node for nothing": (
        node_selector(1, {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In"}]}]}),
        "the node selector is",
    ),
    "an allocation of a device that binds is not bound": (
        cluster_state(lambda record: devices(record, 2)[0].update(bindsToNode=True)),
        "the node selector is",
    ),
}


def test_the_checker_accepts_a_valid_allocation() -> None:
    assert checker.violations(a_record(), the_answer()) == []
    assert checker.exists(a_record())


@pytest.mark.parametrize(("wrong", "says"), WRONG.values(), ids=WRONG)
def test_the_checker_rejects_an_invalid_allocation(wrong: Wrong, says: str) -> None:
    record, answer = copy.deepcopy(a_record()), the_answer()

    wrong(record, answer)

    said = checker.violations(record, answer)
    assert any(says in sentence for sentence in said), said


IMPOSSIBLE: dict[str, Callable[[Json], object]] = {
    "all cards that match are in use": lambda record: record["allocated"].append(taken(NODE, "gpu-1")),
    "the shared device is full": lambda record: record["consumedCapacity"][0]["capacity"].update(bandwidth="6"),
    "counters are used up": lambda record: devices(record, 0)[7].update(consumesCounters=compute("6")),
    "no alternative can be served": lambda record: request(record, 0, 1)["firstAvailable"].pop(),
    "a class takes nothing": lambda record: record["classes"][0]["spec"]["selectors"].append(selector("false")),
    "All means one that is in use": lambda record: (
        record["slices"].__delitem__(slice(5, 7)),
        record["allocated"].append(taken("many", "gpu-near")),
        request(record, 3, 0)["exactly"].update(allocationMode="All"),
    ),
    "All means none": lambda record: (
        record["slices"].__delitem__(slice(5, 7)),
        request(record, 3, 0)["exactly"].update(allocationMode="All", selectors=[selector("false")]),
    ),
}


@pytest.mark.parametrize("change", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_the_checker_says_that_an_impossible_allocation_does_not_exist(change: Callable[[Json], object]) -> None:
    record = copy.deepcopy(a_record())

    change(record)

    assert checker.exists(record) is False


def test_a_search_of_the_checker_that_is_too_long_has_no_answer() -> None:
    assert checker.exists(a_record(), steps=3) is None


@pytest.mark.conformance
@pytest.mark.parametrize("release", [36, 37])
@pytest.mark.parametrize("name", ["allocator-upstream", "allocator-random"])
def test_the_checker_accepts_the_allocations_of_kubernetes(name: str, release: int) -> None:
    """All but those in which 1.36 forgets a value of distinctAttribute."""
    answers = [(record, answer_of(record, release)) for record in sampled(name)]
    allocated = [(record, answer) for record, answer in answers if answer["outcome"] == "allocated"]
    if not allocated:
        pytest.skip(f"{name} does not travel with the repository")

    said = {
        record["id"]: checker.violations(record, answer.get("results", []), release) for record, answer in allocated
    }

    forgotten = [record["id"] for record, _ in allocated if "distinct-forgets-values" in record["quirks"]]
    wrong = {name: sentences for name, sentences in said.items() if sentences}
    assert list(wrong) == (forgotten if release == 36 else [])
    assert all(sentence.startswith("distinctAttribute") for sentences in wrong.values() for sentence in sentences)


@pytest.mark.conformance
@pytest.mark.parametrize("release", [36, 37])
@pytest.mark.parametrize("name", ["allocator-upstream", "allocator-random"])
def test_the_checker_finds_no_allocation_where_kubernetes_finds_none(name: str, release: int) -> None:
    answers = [(record, answer_of(record, release)) for record in sampled(name)]
    nothing = [record for record, answer in answers if answer["outcome"] != "allocated" and not answer["fatal"]]
    if not nothing:
        pytest.skip(f"{name} does not travel with the repository")

    assert [record["id"] for record in nothing if checker.exists(record, release) is not False] == []


@pytest.mark.conformance
@pytest.mark.parametrize("name", ["allocator-upstream", "allocator-random"])
def test_the_checker_finds_an_allocation_wherever_kubernetes_does(name: str) -> None:
    answers = [(record, answer_of(record, 37)) for record in corpus.records(name)]
    found = [record for record, answer in answers if answer["outcome"] == "allocated"][::3]
    if not found:
        pytest.skip(f"{name} does not travel with the repository")

    assert [record["id"] for record in found if checker.exists(record) is False] == []


def sampled(name: str) -> Iterator[Json]:
    """Return the records that are tried: a third outside `make soak`."""
    return itertools.islice(corpus.records(name), 0, None, 1 if soaking.is_on() else 3)


def answer_of(record: Json, release: int) -> Json:
    found: Json = record["expect137" if release == 37 and "expect137" in record else "expect"]
    return found
