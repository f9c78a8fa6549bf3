"""Gangs whose devices are tainted by a DeviceTaintRule before they are granted, or after."""

from collections.abc import Callable, Iterator

import pytest

from tests.controlplane import workloads
from tests.controlplane.observing import eventually
from tests.e2e import barriers
from tests.e2e.labs import Lab, plain


@pytest.fixture
def taint(lab: Lab, rules: str) -> Iterator[Callable[[str], None]]:
    """Taints the devices of a node by a DeviceTaintRule, for the length of a test."""

    def put(node: str) -> None:
        selector = {"driver": lab.driver, "pool": node}
        lab.client.create(rules, barriers.rule(node, {"deviceSelector": selector, "taint": barriers.taint()}))

    yield put
    for piece in lab.hardware:
        if piece["kind"] == "Node":
            lab.client.delete(f"{rules}/{piece['metadata']['name']}")


def test_a_rule_that_taints_a_device_sends_a_gang_that_waits_elsewhere(lab: Lab, taint: Callable[[str], None]) -> None:
    """Node a is free all the time; the gang of two waits for a second device, and then a is not for it."""
    tainted, *others = (lab.node(letter, plain(1)) for letter in "abc")
    lab.device_class()
    lab.meter("gpus", count={})
    team = lab.found()
    gpu = workloads.device_request(device_class=lab.driver)
    elsewhere = {"key": "kubernetes.io/hostname", "operator": "In", "values": others}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [elsewhere]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    lab.submit("first", pods=2, request=gpu, affinity=affinity)
    lab.wait_running_as_planned("first", 2)
    lab.submit("pair", pods=2, request=gpu)
    team.wait_held("pair", "DevicesBusy")

    taint(tainted)

    eventually(
        lambda: "tainted" in team.hold("pair").get("message", ""),
        what=lambda: f"Muster sees the rule: {team.standing('pair')}",
    )
    team.finish("first")
    lab.wait_running("pair", 2)
    assert lab.pinned_to("pair") == others
    lab.end("pair")


def test_a_rule_that_taints_a_granted_device_has_the_gang_taken_back_and_planned_elsewhere(
    lab: Lab, resume: Callable[[], None], taint: Callable[[str], None]
) -> None:
    resource = lab.extended()
    first, second = lab.node("a", plain(1)), lab.node("b", plain(1))
    team = lab.found(startTimeout="6s", requeue={"base": "1s", "max": "2s"})
    lab.let_in("moves", pods=1, resources={resource: "1"})
    (granted,) = lab.booked("moves", "reserve").values()
    taint(granted[0][2])
    resume()

    team.wait_running("moves", 1)

    assert {granted[0][2], *lab.pinned_to("moves")} == {first, second}
    assert len(lab.entries("moves", "evict")) == 1
    lab.wait_used(gpus=(0, 1), claims=(0, 1))
    lab.end("moves")
