"""What the pods of a gang need at least."""

from dataclasses import replace

import pytest

from admission.api.kubernetes.claims import Allocation
from admission.api.values import names
from admission.dra.metering import device_meters
from admission.dra.requests.gang_request import PodDemand
from admission.scheduling.checks import demand
from tests.unit.dra.clusters import a_claim, a_cluster, a_meter, a_pod, a_request, a_source

GPU, NIC = "example.com/gpu", "example.com/nic"
METERS = device_meters.compile_meters(
    [
        a_meter("devices", a_source("count")),
        a_meter("gpus", a_source("count"), extendedResources=[GPU]),
        a_meter("nics", extendedResources=[NIC]),
    ]
)


def test_a_shared_claim_counts_once_and_one_that_is_allocated_not_at_all() -> None:
    shared, own = a_claim("shared", a_request("gpu", 2)), a_claim("own", a_request("gpu", 4))
    pods = [a_pod("a", shared, own), a_pod("b", shared)]
    given = [PodDemand(pod=pod.pod, claims=(replace(shared, allocation=Allocation()), own)) for pod in pods]

    assert demand.at_least(pods, METERS, []) == {"devices": 6, "gpus": 6}
    assert demand.at_least(given, METERS, []) == {"devices": 4, "gpus": 4}


AMOUNTS = {
    "nodes have neither": ({}, {"devices": 2, "gpus": 2, "nics": 1}),
    "a node has a device plugin": ({GPU: "8"}, {"gpus": 2, "nics": 1}),
    "a node has another device plugin": ({NIC: "8"}, {"devices": 2, "gpus": 2, "nics": 1}),
}


@pytest.mark.parametrize(("allocatable", "least"), AMOUNTS.values(), ids=AMOUNTS)
def test_what_classes_offer_costs_what_the_cheaper_way_does_where(
    allocatable: dict[str, str], least: dict[str, int]
) -> None:
    nodes = a_cluster().node("a").node("b", allocatable=allocatable).snapshot().nodes.values()
    made = a_claim("made", a_request("gpu", 2))
    made = replace(made, meta=replace(made.meta, uid=names.extended_claim(made.meta.uid)))
    pod = a_pod("p", requests={GPU: "2", NIC: "1", "cpu": "1"}).pod

    assert demand.at_least([PodDemand(pod=pod, claims=(made,), extended=(GPU,))], METERS, nodes) == least


def test_what_no_class_offers_is_served_by_device_plugins() -> None:
    pod = a_pod("p", requests={GPU: "2", "cpu": "1"})

    assert demand.at_least([pod], METERS, []) == {"gpus": 2}
