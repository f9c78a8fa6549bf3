"""ResourceSlices: good ones, and such as differ from a good one in one thing that is refused."""

from typing import Any

from tests.unit.api.cases import LONG, Case, Json, an_object, with_


def pool(**changes: Any) -> Json:
    return with_({"name": "node-1", "generation": 1, "resourceSliceCount": 1}, changes)


def slice_(*devices: Any, **changes: Any) -> Json:
    base = {
        "driver": "gpu.example.com",
        "nodeName": "node-1",
        "pool": pool(),
        "devices": list(devices) or [{"name": "gpu-0"}],
    }
    return an_object("ResourceSlice", with_(base, changes))


def device(**fields: Any) -> Json:
    return slice_({"name": "gpu-0", **fields})


def many(count: int, **fields: Any) -> Json:
    return slice_(*({"name": f"gpu-{number}", **fields} for number in range(count)))


def placed(**fields: Any) -> Json:
    return slice_({"name": "gpu-0", **fields}, nodeName=None, perDeviceNodeSelection=True)


def on_nodes(*terms: Json) -> Json:
    return slice_(nodeName=None, nodeSelector={"nodeSelectorTerms": list(terms)})


def expression(**requirement: Any) -> Json:
    return on_nodes({"matchExpressions": [with_({"key": "zone", "operator": "In", "values": ["a"]}, requirement)]})


def node_field(**requirement: Any) -> Json:
    return on_nodes({"matchFields": [with_({"key": "metadata.name", "operator": "In", "values": ["a"]}, requirement)]})


def counters(count: int = 1, value: Any = "8") -> Json:
    return {f"c{number}": {"value": value} for number in range(count)}


def counter_set(name: str = "set", **changes: Any) -> Json:
    return with_({"name": name, "counters": counters()}, changes)


def shared(*sets: Any) -> Json:
    return slice_(devices=None, sharedCounters=list(sets))


def consuming(*uses: Json) -> Json:
    return device(consumesCounters=list(uses))


def use(name: str = "set", **changes: Any) -> Json:
    return with_({"counterSet": name, "counters": counters()}, changes)


def tainted(**changes: Any) -> Json:
    return device(taints=[with_({"key": "unhealthy", "effect": "NoSchedule"}, changes)])


def attributed(**value: Any) -> Json:
    return device(attributes={"model": value})


def capacity(value: Any = "80Gi", *, multiple: bool = True, **policy: Any) -> Json:
    return device(allowMultipleAllocations=multiple, capacity={"memory": {"value": value, "requestPolicy": policy}})


ONE = "spec.devices[0]"
TERM = "spec.nodeSelector.nodeSelectorTerms[0]"
MODEL = f"{ONE}.attributes[model]"
POLICY = f"{ONE}.capacity[memory].requestPolicy"
TAINT = {"key": "unhealthy", "effect": "None"}

SLICES = {
    "no driver": Case(slice_(driver=None), "spec.driver"),
    "a driver that is none": Case(slice_(driver="a_b"), "spec.driver"),
    "a driver that is too long": Case(slice_(driver=LONG), "spec.driver"),
    "a pool without a name": Case(slice_(pool=pool(name=None)), "spec.pool.name"),
    "a pool's name that is none": Case(slice_(pool=pool(name="a//b")), "spec.pool.name"),
    "a pool's name that is too long": Case(slice_(pool=pool(name="/".join(["x" * 50] * 6))), "spec.pool.name"),
    "a negative generation": Case(slice_(pool=pool(generation=-1)), "spec.pool.generation"),
    "a generation beyond 64 bits": Case(slice_(pool=pool(generation=2**63)), "spec.pool.generation"),
    "a pool of an unknown number of slices": Case(
        slice_(pool=pool(resourceSliceCount=None)), "spec.pool.resourceSliceCount"
    ),
    "a pool of no slices": Case(slice_(pool=pool(resourceSliceCount=0)), "spec.pool.resourceSliceCount"),
    "a slice that is nowhere": Case(slice_(nodeName=None), "spec"),
    "a slice that is in two places": Case(slice_(allNodes=True), "spec"),
    "a slice on a node without a name": Case(slice_(nodeName=""), "spec.nodeName"),
    "a slice on a node that is none": Case(slice_(nodeName="Node_1"), "spec.nodeName"),
    "a slice that is not on all nodes": Case(slice_(allNodes=False), "spec.allNodes"),
    "a slice that does not place its devices": Case(
        slice_(perDeviceNodeSelection=False), "spec.perDeviceNodeSelection"
    ),
    "a node selector without terms": Case(on_nodes(), "spec.nodeSelector.nodeSelectorTerms"),
    "a node selector of two terms": Case(
        on_nodes(*[{"matchExpressions": [{"key": "a", "operator": "Exists"}]}] * 2),
        "spec.nodeSelector.nodeSelectorTerms",
    ),
    "an unknown operator of a node selector": Case(
        expression(operator="Equals"), f"{TERM}.matchExpressions[0].operator"
    ),
    "a node selector without an operator": Case(expression(operator=None), f"{TERM}.matchExpressions[0].operator"),
    "a node selector without values": Case(expression(values=None), f"{TERM}.matchExpressions[0].values"),
    "a node selector with needless values": Case(expression(operator="Exists"), f"{TERM}.matchExpressions[0].values"),
    "a node selector that compares with two values": Case(
        expression(operator="Gt", values=["1", "2"]), f"{TERM}.matchExpressions[0].values"
    ),
    "a node selector's key that is none": Case(expression(key="a b"), f"{TERM}.matchExpressions[0].key"),
    "a node selector's value that is none": Case(
        expression(values=["a", "b c"]), f"{TERM}.matchExpressions[0].values[1]"
    ),
    "an unknown field of nodes": Case(node_field(key="metadata.uid"), f"{TERM}.matchFields[0].key"),
    "an unknown operator on a node's field": Case(node_field(operator="Exists"), f"{TERM}.matchFields[0].operator"),
    "two values of a node's field": Case(node_field(values=["a", "b"]), f"{TERM}.matchFields[0].values"),
    "devices and counters in one slice": Case(slice_(sharedCounters=[counter_set()]), "spec"),
    "129 devices": Case(many(129), "spec.devices"),
    "65 devices with taints": Case(many(65, taints=[TAINT]), "spec.devices"),
    "65 devices with counters": Case(many(65, consumesCounters=[use()]), "spec.devices"),
    "two devices of one name": Case(slice_({"name": "a"}, {"name": "b"}, {"name": "a"}), "spec.devices[2].name"),
    "a device without a name": Case(slice_({}), f"{ONE}.name"),
    "a device's name that is no label": Case(slice_({"name": "gpu.0"}), f"{ONE}.name"),
    "a device with a place of its own": Case(device(allNodes=True), f"{ONE}.allNodes"),
    "a device without a place of its own": Case(placed(), ONE),
    "a device in two places": Case(placed(nodeName="a", allNodes=True), ONE),
    "a device on a node that is none": Case(placed(nodeName="a_b"), f"{ONE}.nodeName"),
    "a device of a bad node selector": Case(
        placed(nodeSelector={"nodeSelectorTerms": []}), f"{ONE}.nodeSelector.nodeSelectorTerms"
    ),
    "33 attributes and capacities": Case(
        device(
            attributes={f"a{number}": {"bool": True} for number in range(20)},
            capacity={f"c{number}": {"value": "1"} for number in range(13)},
        ),
        ONE,
    ),
    "an attribute's name that is no identifier": Case(device(attributes={"a-b": {"int": 1}}), f"{ONE}.attributes[a-b]"),
    "an attribute's name that is too long": Case(
        device(attributes={"x" * 33: {"int": 1}}), f"{ONE}.attributes[{'x' * 33}]"
    ),
    "an attribute's domain that is none": Case(
        device(attributes={"a_b/model": {"int": 1}}), f"{ONE}.attributes[a_b/model]"
    ),
    "an attribute without a domain before its slash": Case(
        device(attributes={"/model": {"int": 1}}), f"{ONE}.attributes[/model]"
    ),
    "an attribute without a value": Case(attributed(), MODEL),
    "an attribute of two values": Case(attributed(string="a", int=1), MODEL),
    "an attribute's text that is too long": Case(attributed(string=LONG + "x"), f"{MODEL}.string"),
    "an attribute's text that is too long in bytes": Case(attributed(string="ü" * 33), f"{MODEL}.string"),
    "an attribute's text that is a number": Case(attributed(string=1), f"{MODEL}.string"),
    "an attribute's number that is text": Case(attributed(int="1"), f"{MODEL}.int"),
    "an attribute's number that is a fraction": Case(attributed(int=1.5), f"{MODEL}.int"),
    "an attribute's number beyond 64 bits": Case(attributed(int=2**63), f"{MODEL}.int"),
    "an attribute's truth that is text": Case(attributed(bool="yes"), f"{MODEL}.bool"),
    "a version of two parts": Case(attributed(version="1.2"), f"{MODEL}.version"),
    "a version with a leading zero": Case(attributed(version="01.2.3"), f"{MODEL}.version"),
    "a version that is too long": Case(attributed(version="1.2.3-" + "x" * 60), f"{MODEL}.version"),
    "an empty list of an attribute": Case(attributed(ints=[]), f"{MODEL}.ints"),
    "a bad version in a list": Case(attributed(versions=["1.2.3", "1"]), f"{MODEL}.versions[1]"),
    "a list of mixed kinds": Case(attributed(ints=[1, "2"]), f"{MODEL}.ints[1]"),
    "a capacity's name that is none": Case(device(capacity={"a-b": {"value": "1"}}), f"{ONE}.capacity[a-b]"),
    "an unparsable capacity of a device": Case(
        device(capacity={"memory": {"value": "80 GiB"}}), f"{ONE}.capacity[memory].value"
    ),
    "a policy for a device that nobody shares": Case(capacity(multiple=False, default="1Gi"), POLICY),
    "values and a range": Case(capacity(default="1Gi", validValues=["1Gi"], validRange={"min": "1Gi"}), POLICY),
    "values without a default": Case(capacity(validValues=["1Gi"]), f"{POLICY}.default"),
    "a default that is none of the values": Case(
        capacity(default="3Gi", validValues=["1Gi", "2Gi"]), f"{POLICY}.default"
    ),
    "values out of order": Case(capacity(default="1Gi", validValues=["2Gi", "1Gi"]), f"{POLICY}.validValues[1]"),
    "a value twice": Case(capacity(default="1Gi", validValues=["1Gi", "1024Mi"]), f"{POLICY}.validValues[1]"),
    "a value above the capacity": Case(
        capacity(default="1Gi", validValues=["1Gi", "81Gi"]), f"{POLICY}.validValues[1]"
    ),
    "an unparsable value": Case(capacity(default="1Gi", validValues=["1Gi", "x"]), f"{POLICY}.validValues[1]"),
    "eleven values": Case(
        capacity(default="1Gi", validValues=[f"{number}Gi" for number in range(1, 12)]), f"{POLICY}.validValues"
    ),
    "a range without a default": Case(capacity(validRange={"min": "1Gi"}), f"{POLICY}.default"),
    "a range without a minimum": Case(capacity(default="1Gi", validRange={"max": "2Gi"}), f"{POLICY}.validRange.min"),
    "a minimum above the capacity": Case(
        capacity(default="81Gi", validRange={"min": "81Gi"}), f"{POLICY}.validRange.min"
    ),
    "a maximum below the minimum": Case(
        capacity(default="2Gi", validRange={"min": "2Gi", "max": "1Gi"}), f"{POLICY}.validRange.max"
    ),
    "a maximum above the capacity": Case(
        capacity(default="2Gi", validRange={"min": "2Gi", "max": "81Gi"}), f"{POLICY}.validRange.max"
    ),
    "a default below the minimum": Case(capacity(default="1Gi", validRange={"min": "2Gi"}), f"{POLICY}.default"),
    "a default above the maximum": Case(
        capacity(default="4Gi", validRange={"min": "2Gi", "max": "3Gi"}), f"{POLICY}.default"
    ),
    "a step of nothing": Case(
        capacity(default="1Gi", validRange={"min": "1Gi", "step": "0"}), f"{POLICY}.validRange.step"
    ),
    "a step beyond the capacity": Case(
        capacity(default="1Gi", validRange={"min": "1Gi", "step": "80Gi"}), f"{POLICY}.validRange.step"
    ),
    "a default between two steps": Case(
        capacity(default="2Gi", validRange={"min": "1Gi", "step": "2Gi"}), f"{POLICY}.default"
    ),
    "a maximum between two steps": Case(
        capacity(default="1Gi", validRange={"min": "1Gi", "max": "4Gi", "step": "2Gi"}), f"{POLICY}.validRange.max"
    ),
    "17 taints": Case(device(taints=[{**TAINT, "key": f"k{number}"} for number in range(17)]), f"{ONE}.taints"),
    "a taint without a key": Case(tainted(key=None), f"{ONE}.taints[0].key"),
    "a taint's key that is none": Case(tainted(key="a b"), f"{ONE}.taints[0].key"),
    "a taint's value that is none": Case(tainted(value="a b"), f"{ONE}.taints[0].value"),
    "a taint without an effect": Case(tainted(effect=None), f"{ONE}.taints[0].effect"),
    "an unknown effect of a taint": Case(tainted(effect="PreferNoSchedule"), f"{ONE}.taints[0].effect"),
    "five conditions": Case(
        device(bindingConditions=["a", "b", "c", "d", "e"], bindingFailureConditions=["f"]),
        f"{ONE}.bindingConditions",
    ),
    "five failures": Case(
        device(bindingConditions=["f"], bindingFailureConditions=["a", "b", "c", "d", "e"]),
        f"{ONE}.bindingFailureConditions",
    ),
    "a condition twice": Case(
        device(bindingConditions=["a", "a"], bindingFailureConditions=["b"]), f"{ONE}.bindingConditions[1]"
    ),
    "a condition that is its failure": Case(
        device(bindingConditions=["a"], bindingFailureConditions=["a"]), f"{ONE}.bindingFailureConditions[0]"
    ),
    "a condition that is no key": Case(
        device(bindingConditions=["a b"], bindingFailureConditions=["a"]), f"{ONE}.bindingConditions[0]"
    ),
    "conditions without failures": Case(device(bindingConditions=["a"]), f"{ONE}.bindingFailureConditions"),
    "failures without conditions": Case(device(bindingFailureConditions=["a"]), f"{ONE}.bindingConditions"),
    "nine counter sets": Case(shared(*(counter_set(f"s{number}") for number in range(9))), "spec.sharedCounters"),
    "two counter sets of one name": Case(shared(counter_set(), counter_set()), "spec.sharedCounters[1].name"),
    "a counter set's name that is none": Case(shared(counter_set("A")), "spec.sharedCounters[0].name"),
    "a counter set of nothing": Case(shared(counter_set(counters=None)), "spec.sharedCounters[0].counters"),
    "33 counters": Case(shared(counter_set(counters=counters(33))), "spec.sharedCounters[0].counters"),
    "a counter's name that is none": Case(
        shared(counter_set(counters={"a_b": {"value": "1"}})), "spec.sharedCounters[0].counters[a_b]"
    ),
    "an unparsable counter": Case(
        shared(counter_set(counters={"c": {"value": "x"}})), "spec.sharedCounters[0].counters[c].value"
    ),
    "three consumed counter sets": Case(consuming(use("a"), use("b"), use("c")), f"{ONE}.consumesCounters"),
    "a counter set consumed twice": Case(consuming(use(), use()), f"{ONE}.consumesCounters[1].counterSet"),
    "a consumed counter set without a name": Case(
        consuming(use(counterSet=None)), f"{ONE}.consumesCounters[0].counterSet"
    ),
    "nothing consumed": Case(consuming(use(counters=None)), f"{ONE}.consumesCounters[0].counters"),
    "33 consumed counters": Case(consuming(use(counters=counters(33))), f"{ONE}.consumesCounters[0].counters"),
    "an unparsable consumption": Case(
        consuming(use(counters={"c": {"value": "1 Gi"}})), f"{ONE}.consumesCounters[0].counters[c].value"
    ),
}

STRICTER = {
    "a negative capacity": Case(device(capacity={"memory": {"value": "-1"}}), f"{ONE}.capacity[memory].value"),
    "a capacity without a value": Case(device(capacity={"memory": {}}), f"{ONE}.capacity[memory].value"),
    "a list and a value": Case(attributed(string="a", strings=["a"]), MODEL),
    "a negative counter": Case(
        shared(counter_set(counters={"c": {"value": "-1"}})), "spec.sharedCounters[0].counters[c].value"
    ),
    "a counter without a value": Case(
        shared(counter_set(counters={"c": {}})), "spec.sharedCounters[0].counters[c].value"
    ),
    "a negative consumption": Case(
        consuming(use(counters={"c": {"value": "-1"}})), f"{ONE}.consumesCounters[0].counters[c].value"
    ),
}
"""What Kubernetes takes and we refuse: it would be read as something else than it says, or as nothing at all."""

GOOD = {
    "a slice": slice_(),
    "a slice on selected nodes": expression(),
    "a slice on one node by its name": node_field(operator="NotIn"),
    "a slice on all nodes": slice_(nodeName=None, allNodes=True),
    "a slice of placed devices": placed(nodeName="node-1"),
    "a slice of nothing": slice_(devices=[]),
    "a slice of counters": shared(*(counter_set(f"s{number}", counters=counters(32)) for number in range(8))),
    "128 devices": many(128, attributes={"Example.com/a": {"version": "1.2.3-rc.1+b"}}),
    "64 devices with taints": many(64, taints=[TAINT]),
    "a device with everything": device(
        attributes={"model": {"string": "ü" * 32}, "gpu.example.com/ecc": {"bool": False}, "numa": {"int": -1}},
        capacity={"memory": {"value": "80Gi"}},
        consumesCounters=[use("a"), use("b")],
        bindingConditions=["example.com/ready"],
        bindingFailureConditions=["example.com/failed"],
        taints=[{"key": "a", "value": "b", "effect": "NoExecute"}],
    ),
    "a capacity of values": capacity(default="2Gi", validValues=["1Gi", "2Gi", "80Gi"]),
    "a capacity of steps": capacity(default="3Gi", validRange={"min": "1Gi", "max": "5Gi", "step": "2Gi"}),
    "a capacity with a default": capacity(default="1Gi"),
}
"""What Kubernetes takes, and we do."""
