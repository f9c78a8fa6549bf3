"""A NodeShape is read as the node that it describes, and what is wrong with it is told by its field."""

from fractions import Fraction
from typing import Any

import pytest

from admission.api.capacity import node_shapes
from admission.api.kubernetes import nodes
from admission.api.validation import objects
from admission.api.values import names
from admission.errors import MalformedObjectError


def a_shape(**spec: Any) -> dict[str, Any]:
    given = {"maxCount": 4, "matchLabels": {"type": "gpu-8"}, "allocatable": {"cpu": 96}, **spec}
    return {"apiVersion": names.API_VERSION, "kind": "NodeShape", "metadata": {"name": "x8"}, "spec": given}


def a_slice(*devices: dict[str, Any], driver: str = "gpu.example.com", **more: Any) -> dict[str, Any]:
    return {"driver": driver, "devices": list(devices), **more}


def test_a_new_node_has_both_the_labels_by_which_it_is_known_and_the_others() -> None:
    shape = node_shapes.decode(a_shape(labels={"zone": "a"}, allocatable={"cpu": "500m", "memory": "1Gi"}))

    assert shape.labels == {"type": "gpu-8", "zone": "a"}
    assert shape.matches == {"type": "gpu-8"}
    assert shape.allocatable == {"cpu": 500, "memory": 1024**3}


def test_slices_of_one_driver_are_one_pool() -> None:
    slices = [
        a_slice({"name": "gpu-0"}),
        a_slice({"name": "gpu-1"}),
        a_slice({"name": "nic-0"}, driver="nic.example.com"),
    ]

    shape = node_shapes.decode(a_shape(resourceSlices=slices))

    assert [(one.driver, one.slice_count) for one in shape.slices] == [
        ("gpu.example.com", 2),
        ("gpu.example.com", 2),
        ("nic.example.com", 1),
    ]


PRICES = {"0": "0.00", "3": "3.00", "98.32": "98.32", "1.125": "1.125", "500m": "0.50", "2k": "2000.00"}


@pytest.mark.parametrize(("text", "shown"), PRICES.items())
def test_a_price_is_exact_and_shown_as_a_decimal_number(text: str, shown: str) -> None:
    price = node_shapes.parse_price(text)

    assert node_shapes.render_price(price) == shown
    assert node_shapes.render_price(price * 3) == node_shapes.render_price(Fraction(shown) * 3)


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "a negative price": (a_shape(pricePerHour="-1"), "spec.pricePerHour", "-1 is negative; write what a node costs"),
    "a price finer than can be counted": (
        a_shape(pricePerHour="1n5"),
        "spec.pricePerHour",
        "is not a Kubernetes quantity",
    ),
    "a NodePool that is none": (a_shape(nodePool="Gpu!"), "spec.nodePool", "'Gpu!'"),
    "two NodePools": (
        a_shape(nodePool="a", matchLabels={"karpenter.sh/nodepool": "b"}),
        "spec.matchLabels.karpenter.sh/nodepool",
        "is 'b', nodePool is 'a'",
    ),
    "neither labels nor a NodePool": (a_shape(matchLabels={}), "spec.matchLabels", "name a NodePool of Karpenter"),
    "a negative amount": (a_shape(allocatable={"cpu": "-1"}), "spec.allocatable.cpu", "-1 is negative"),
    "a label with two values": (a_shape(labels={"type": "b"}), "spec.labels.type", "is 'gpu-8' in matchLabels"),
    "a slice of a node": (
        a_shape(resourceSlices=[a_slice({"name": "gpu-0"}, nodeName="n")]),
        "spec.resourceSlices[0].nodeName",
        "follows from the node",
    ),
    "a device that is there twice": (
        a_shape(resourceSlices=[a_slice({"name": "gpu-0"}), a_slice({"name": "gpu-0"})]),
        "spec.resourceSlices[1].devices",
        "has device gpu-0 of gpu.example.com again",
    ),
}


@pytest.mark.parametrize(("obj", "field", "said"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_told_by_its_field(obj: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(MalformedObjectError) as caught:
        node_shapes.decode(obj)

    (problem,) = caught.value.problems
    assert problem.field == field
    assert said in problem.message


def test_devices_and_taints_are_judged_as_those_of_a_node() -> None:
    devices: list[dict[str, Any]] = [{"name": "gpu_0"}, {"name": "gpu-1", "attributes": {"model": {}}}]
    obj = a_shape(resourceSlices=[a_slice(*devices)], taints=[{"key": "gpu", "effect": "Never"}])

    assert [problem.field for problem in objects.other_problems(obj)] == [
        "spec.taints[0].effect",
        "spec.resourceSlices[0].devices[0].name",
        "spec.resourceSlices[0].devices[1].attributes[model]",
    ]
    assert objects.other_problems(a_shape(resourceSlices=[a_slice({"name": "gpu-0"})])) == ()


def test_nodes_that_exist_count_among_those_that_there_may_be() -> None:
    shape = node_shapes.decode(a_shape())
    labelled = [nodes.decode({"metadata": {"name": f"n{at}", "labels": {"type": f"gpu-{at}"}}}) for at in (8, 8, 4)]

    assert shape.left(labelled) == 2
    assert shape.left(labelled * 4) == 0
