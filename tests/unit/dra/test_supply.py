"""How many devices there are for a request, wherever they are."""

from admission.dra.diagnosis import supply
from admission.dra.diagnosis.supply import Supply
from admission.dra.inventory.selectors import Selectors
from tests.unit.dra.clusters import ClusterBuilder, a_cluster

EVERY = ("device.driver == 'gpu.example.com'",)


def found(builder: ClusterBuilder, *texts: str) -> Supply:
    return supply.supply(texts or EVERY, builder.snapshot().slices.values(), Selectors())


def test_a_node_can_use_its_own_devices_and_those_of_no_node() -> None:
    builder = a_cluster().slice("a", 3, nodeName="a").slice("b", 2, nodeName="b").slice("net", 4, allNodes=True)
    builder.slice("each", [{"nodeName": "b"}, {"nodeName": "b"}, {"nodeName": "c"}], perDeviceNodeSelection=True)

    assert found(builder) == Supply(everywhere=12, at_most=4 + 4, sharable=False)


def test_unselected_devices_are_not_counted_and_failing_selectors_are_named() -> None:
    size = "device.attributes['gpu.example.com'].size"
    builder = a_cluster().slice(
        "a", [{"attributes": {"size": {"int": 1}}}, {}, {"attributes": {"size": {"int": 8}}}, {}], nodeName="a"
    )

    there = found(builder, f"{size} > 4")

    assert (there.everywhere, there.at_most) == (1, 1)
    assert there.broken is not None
    assert str(there.broken[0]) == "gpu.example.com/a/gpu-1"


def test_one_device_that_can_be_shared_leaves_the_number_without_a_bound() -> None:
    assert found(a_cluster().slice("a", [{"allowMultipleAllocations": True}, {}])).sharable
    assert not found(a_cluster().slice("a", 2)).sharable


def test_the_types_of_attributes_are_known_by_domain_and_name() -> None:
    attributes = {"model": {"string": "x"}, "other.example.com/size": {"int": 1}, "on": {"bool": True}}
    slices = a_cluster().slice("a", [{"attributes": attributes}, {"attributes": {"model": {"int": 1}}}]).snapshot()

    assert supply.types(slices.slices.values()) == {
        ("gpu.example.com", "model"): {"string", "int"},
        ("other.example.com", "size"): {"int"},
        ("gpu.example.com", "on"): {"bool"},
    }
