"""What a gang asks for, narrowed to the kinds of devices that its queue prefers."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.api.muster.ledger_entries import Holding, Placement, Seat
from admission.api.muster.preferences import DeviceKind, Preferences
from admission.api.values.names import GangUid, NodeName, QueueName, Uid
from admission.dra.inventory.selectors import Selectors
from admission.dra.planner import device_kinds
from tests.unit.dra.clusters import CLASS, DRIVER, ClusterBuilder, a_claim, a_cluster, a_pod, a_request


def selector(model: str) -> str:
    return f"device.attributes['{DRIVER}'].model == '{model}'"


def a_kind(model: str, *classes: str) -> DeviceKind:
    return DeviceKind(name=model, classes=classes or (CLASS,), selector=selector(model))


PREFERENCES = Preferences(kinds=(a_kind("a100"), a_kind("h100")))


def fleet() -> ClusterBuilder:
    """One node of each kind, one of both, and one without devices."""
    builder = a_cluster().node("none")
    for name, models in (("a", ["a100"]), ("h", ["h100"]), ("both", ["a100", "h100"])):
        builder.node(name, gpus=[{"attributes": {"model": {"string": model}}} for model in models])
    return builder


OPEN = a_request()
NAMED = a_request("gpu", 1, selector("h100"))

TRIED: dict[str, tuple[Any, Preferences, list[tuple[str, set[str]]]]] = {
    "an open request": (OPEN, PREFERENCES, [("a100", {"a", "none"}), ("h100", {"h", "none"})]),
    "a request of one kind": (NAMED, PREFERENCES, [("", {"a", "h", "both", "none"})]),
    "a request of another class": (OPEN, Preferences(kinds=(a_kind("a100", "other"),)), []),
    "a request with admin access": (a_request(adminAccess=True), PREFERENCES, []),
    "all devices of the class": (
        OPEN,
        Preferences(kinds=(a_kind("h100"), DeviceKind(name="any", classes=(CLASS,)))),
        [("h100", {"h", "none"}), ("any", {"a", "h", "both", "none"})],
    ),
    "a selector that fails": (
        OPEN,
        Preferences(kinds=(replace(a_kind("a100"), selector="device.none"),)),
        [("", {"none"})],
    ),
}


@pytest.mark.parametrize(("request_", "preferences", "tried"), TRIED.values(), ids=TRIED)
def test_kinds_that_are_tried_and_the_nodes_on_which_kube_scheduler_keeps_to_them(
    request_: Any, preferences: Preferences, tried: list[tuple[str, set[str]]]
) -> None:
    demands = [a_pod("p", a_claim("c", request_))]

    found = device_kinds.attempts(demands, preferences, fleet().cluster(), Selectors())

    assert [(one.name, set(one.demands[0].kept_to or ())) for one in found] == tried


def test_a_claim_that_pods_share_stays_one_claim() -> None:
    shared = a_claim("c", OPEN)

    first, _ = device_kinds.attempts(
        [a_pod("p", shared), a_pod("q", shared)], PREFERENCES, fleet().cluster(), Selectors()
    )

    (one,), (other,) = (demand.claims for demand in first.demands)
    assert one is other
    assert one.spec.requests[0].alternatives[0].selectors == (selector("a100"),)


def test_a_pod_with_two_open_claims_is_kept_to_the_nodes_that_do_for_both() -> None:
    builder = a_cluster()
    for name, big, small in (("x", "a100", "h100"), ("y", "a100", "a100"), ("z", "h100", "a100")):
        sizes = {"big": big, "small": small}.items()
        attributes = [{"model": {"string": model}, "size": {"string": size}} for size, model in sizes]
        builder.node(name, gpus=[{"attributes": one} for one in attributes])
    claims = [
        a_claim(size, a_request("gpu", 1, f"device.attributes['{DRIVER}'].size == '{size}'"))
        for size in ("big", "small")
    ]

    first, _ = device_kinds.attempts([a_pod("p", *claims)], PREFERENCES, builder.cluster(), Selectors())

    assert (first.name, set(first.demands[0].kept_to or ())) == ("a100", {"y"})


def test_pods_that_come_later_get_the_kind_that_the_gang_has() -> None:
    device = RequestDevice(request="gpu", device=DeviceId(DRIVER, "h", "gpu-0"))
    holding = Holding(claim_uid=Uid("u"), claim="team/c", devices=(device,), charge={})
    seat = Seat(pod_uid=Uid("p"), pod="team/p", node=NodeName("h"), claims=(Uid("u"),))
    placement = Placement(
        gang_uid=GangUid("g"),
        gang="team/g",
        queue=QueueName("q"),
        reserved_at=datetime(2026, 1, 1, tzinfo=UTC),
        seats={seat.pod_uid: seat},
        holdings={holding.claim_uid: holding},
    )

    found = device_kinds.attempts(
        [a_pod("q", a_claim("d", OPEN))], PREFERENCES, fleet().cluster(), Selectors(), placement
    )

    assert [one.name for one in found] == ["h100"]
