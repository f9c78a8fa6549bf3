"""Behind a fence Muster gives devices itself, on a real control plane: whole gangs, the very devices, or nothing."""

from collections.abc import Iterator
from typing import Any

import pytest

from admission.api.values import names
from tests.controlplane import ControlPlane, workloads
from tests.controlplane.fleet import Manifest
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.e2e import fixtures
from tests.e2e.labs import Lab, exactly, of_profile, plain, results_of, share, shared
from tests.e2e.musters import Muster

DRIVERS = [f"fenced{number}.test" for number in range(1, 21)]
"""One for each test, as what a test leaves must not be in the way of the next."""

ROOT = "resource.kubernetes.io/pcieRoot"

pytestmark = pytest.mark.since("1.36", "there are no DeviceTaintRules in v1beta2 to make a fence of")

drivers = iter(DRIVERS)


muster = fixtures.muster(fence=DRIVERS)


@pytest.fixture
def lab(control_plane: ControlPlane, muster: Muster, namespace: Namespace) -> Iterator[Lab]:
    with Lab(control_plane=control_plane, muster=muster, namespace=namespace, driver=next(drivers)) as lab:
        yield lab


def a_class(lab: Lab) -> None:
    lab.device_class()
    lab.meter("gpus", count={})


def wait_placed(lab: Lab, name: str, placement: str) -> None:
    """Wait until the gang's status says how it was placed; it is written at most once a second."""

    def told() -> bool:
        return bool(lab.team.status(name).get("placement") == placement)

    eventually(told, what=f"gang {name} was placed by {placement}")


def given_by_muster(lab: Lab, name: str) -> list[bool]:
    """Whether each claim of a Job's pods says that Muster gave it its devices."""
    claims = [claim for pod in lab.team.pods(name) for claim in lab.claims_of(pod).values()]
    marks = [claim["metadata"].get("annotations", {}).get("muster.dev/placement", "") for claim in claims]
    return [mark.startswith("allocated") for mark in marks]


def test_a_gang_has_all_its_devices_before_its_first_pod_starts_and_lands_on_them(lab: Lab) -> None:
    lab.node("one", plain(2))
    lab.node("two", plain(2))
    a_class(lab)
    lab.found()

    lab.submit("train", pods=3, request=exactly(lab))

    lab.wait_running_as_planned("train", 3)
    assert given_by_muster(lab, "train") == [True] * 3
    wait_placed(lab, "train", "Allocate")
    lab.wait_used(gpus=(0, 3))
    lab.end("train")


@pytest.mark.parametrize("moment", ["claim:1", "claim:3", "protected:3", "claim:4", "gate:1", "gate:3"])
def test_killed_in_the_middle_the_successor_finishes_what_the_books_say(lab: Lab, moment: str) -> None:
    lab.node("one", plain(2))
    lab.node("two", plain(2))
    a_class(lab)
    team = lab.found()
    lab.muster.end()
    lab.muster.start(killed_at=moment)

    lab.submit("train", pods=4, request=exactly(lab))
    eventually(lambda: lab.muster.program.ended, what="the controller is dead")
    planned = lab.booked("train", "reserve")
    assert len(planned) == 4, "the reservation was committed before the first claim was written"
    if moment.startswith("gate"):
        assert lab.allocated("train") == planned, "all claims were allocated before the first gate"
    else:
        assert len(team.gated("train")) == 4
        assert [] in lab.allocated("train").values()
    lab.muster.start()

    lab.wait_running_as_planned("train", 4)
    assert len(lab.entries("train", "reserve")) == 1
    lab.end("train")


def test_one_pod_that_wants_more_than_any_node_has_waits_until_there_is_one(lab: Lab) -> None:
    lab.node("one", plain(4))
    lab.node("two", plain(4))
    a_class(lab)
    team = lab.found({lab.meters[0]: "16"})
    lab.submit("wide", pods=1, request=exactly(lab, 8))

    hold = team.wait_held("wide", "NoFeasiblePlacement")

    assert "8 devices" in hold["message"]
    lab.wait_used(gpus=(0, 0))
    lab.node("three", plain(8))
    lab.wait_running_as_planned("wide", 1)
    lab.end("wide")


def test_ten_pods_with_quota_for_all_of_them_wait_for_the_devices_and_start_together(lab: Lab) -> None:
    lab.node("one", plain(4))
    a_class(lab)
    team = lab.found({lab.meters[0]: "16"})
    lab.submit("ten", pods=10, request=exactly(lab))

    team.wait_held("ten", "NoFeasiblePlacement")

    assert len(team.gated("ten")) == 10
    assert not any(lab.allocated("ten").values())
    lab.wait_used(gpus=(0, 0))
    lab.node("two", plain(6))
    lab.wait_running_as_planned("ten", 10)
    lab.end("ten")


def on_roots(*roots: str) -> list[Manifest]:
    return [{"name": f"gpu-{at}", "attributes": {ROOT: {"string": root}}} for at, root in enumerate(roots)]


def test_two_devices_under_one_root_wait_until_two_share_one(lab: Lab) -> None:
    lab.node("one", on_roots("pci0", "pci1"))
    lab.node("two", on_roots("pci0", "pci1"))
    a_class(lab)
    team = lab.found()
    together = [{"matchAttribute": ROOT, "requests": ["gpu"]}]
    lab.submit("pair", pods=1, request=exactly(lab, 2), constraints=together)

    hold = team.wait_held("pair", "NoFeasiblePlacement")

    assert ROOT in hold["message"]
    lab.wait_used(gpus=(0, 0))
    lab.node("three", on_roots("pci0", "pci1", "pci1"))
    lab.wait_running_as_planned("pair", 1)
    assert sorted(device for _, _, _, device in next(iter(lab.allocated("pair").values()))) == ["gpu-1", "gpu-2"]
    lab.end("pair")


def cards(lab: Lab, name: str, number: int) -> str:
    """A node of cards of seven slices each, of which a 4g partition takes four: there is room for one, in two ways."""
    sets, devices = [], []
    for card in range(number):
        sets.append({"name": f"card-{card}", "counters": {"slices": {"value": "7"}}})
        draws = {"counterSet": f"card-{card}", "counters": {"slices": {"value": "4"}}}
        devices += plain(2, f"card-{card}-4g", attributes={"profile": {"string": "4g"}}, consumesCounters=[draws])
    return lab.node(name, devices, sets)


def test_partitions_wait_until_there_are_cards_enough(lab: Lab) -> None:
    cards(lab, "one", 1)
    a_class(lab)
    team = lab.found()
    lab.submit("two", pods=2, request=of_profile(lab, "4g"))
    team.wait_held("two", "NoFeasiblePlacement")
    cards(lab, "other", 1)
    lab.wait_running_as_planned("two", 2)
    lab.end("two")

    lab.submit("three", pods=3, request=of_profile(lab, "4g"))
    team.wait_held("three", "NoFeasiblePlacement")
    lab.wait_used(gpus=(0, 0))
    cards(lab, "third", 1)
    lab.wait_running_as_planned("three", 3)
    lab.end("three")


def submit_pair(lab: Lab, *claims: Manifest) -> list[str]:
    """Create a gang of pods that are not alike, in this order, each with a claim from its own template."""
    labels = {names.GANG: "pair", names.GANG_SIZE: str(len(claims))}
    for template in claims:
        name = template["metadata"]["name"]
        lab.namespace.create(template, workloads.pod(name, template=name, labels=labels))
    return [template["metadata"]["name"] for template in claims]


def devices_of(lab: Lab, pod: str) -> list[str]:
    return sorted(result["device"] for result in results_of(lab.namespace.claim_of(pod)))


def sized(memory: str) -> dict[str, Any]:
    return {"capacity": {"memory": {"value": memory}}}


def test_a_gang_that_a_greedy_choice_would_starve_starts(lab: Lab) -> None:
    """As in kubernetes issue 138765: the first pod would take the only device that the second can use."""
    a_class(lab)
    lab.node("one", [{"name": "gpu-0", **sized("80Gi")}, {"name": "gpu-1", **sized("40Gi")}])
    lab.found()
    big = f"device.capacity['{lab.driver}'].memory.compareTo(quantity('60Gi')) >= 0"

    pods = submit_pair(
        lab,
        workloads.claim_template("any", exactly(lab)),
        workloads.claim_template("big", exactly(lab, selectors=[{"cel": {"expression": big}}])),
    )

    for pod in pods:
        lab.namespace.bound(pod)
    assert {pod: devices_of(lab, pod) for pod in pods} == {"any": ["gpu-1"], "big": ["gpu-0"]}


def test_devices_are_found_that_no_order_of_first_fits_would_come_to(lab: Lab) -> None:
    """Whichever pod goes first, kube-scheduler would give it gpu-0, and nothing would be left for the other."""
    places = [("r0", "c0"), ("r0", "c1"), ("r1", "c0"), ("r2", "c1"), ("r1", "c2")]
    attributes = ({"root": {"string": root}, "color": {"string": color}} for root, color in places)
    a_class(lab)
    lab.node("one", [{"name": f"gpu-{at}", "attributes": own} for at, own in enumerate(attributes)])
    lab.found()

    pods = submit_pair(
        lab,
        *(
            workloads.claim_template(
                name, exactly(lab, 2), constraints=[{"matchAttribute": f"{lab.driver}/{name}", "requests": ["gpu"]}]
            )
            for name in ("root", "color")
        ),
    )

    for pod in pods:
        lab.namespace.bound(pod)
    assert {pod: devices_of(lab, pod) for pod in pods} == {"root": ["gpu-2", "gpu-4"], "color": ["gpu-1", "gpu-3"]}


def test_shares_of_one_device_are_told_apart(lab: Lab) -> None:
    """10Gi in steps of 4Gi are 12Gi."""
    lab.node("shared", shared(1))
    lab.device_class()
    lab.meter("memory", capacity={"name": "memory"})
    lab.found()

    lab.submit("three", pods=3, request=share("10Gi", lab.driver))

    lab.wait_running_as_planned("three", 3)
    given = [results_of(claim) for pod in lab.team.pods("three") for claim in lab.claims_of(pod).values()]
    assert len({results[0]["shareID"] for results in given}) == 3
    assert [results[0]["consumedCapacity"] for results in given] == [{"memory": "12Gi"}] * 3
    lab.wait_used(memory=(0, 36 * 2**30))
    lab.end("three")


def test_a_claim_that_pods_share_is_allocated_once_for_all_of_them(lab: Lab) -> None:
    lab.node("one", plain(2))
    a_class(lab)
    lab.found()
    labels = {names.GANG: "friends", names.GANG_SIZE: "3"}
    lab.namespace.create(workloads.claim("common", exactly(lab)))

    for number in range(3):
        lab.namespace.create(workloads.pod(f"friend-{number}", claim="common", labels=labels))

    for number in range(3):
        lab.namespace.bound(f"friend-{number}")
    lab.wait_used(gpus=(0, 1))
    mark = lab.namespace.claim("common")["metadata"]["annotations"][names.PLACEMENT]
    assert mark.startswith("allocated")
    for number in range(3):
        lab.client.delete(f"{lab.namespace.pods}/friend-{number}")
    lab.wait_used(gpus=(0, 0))
    eventually(lambda: not results_of(lab.namespace.claim("common")), what="the claim has no devices any more")


def test_a_claim_that_no_pod_has_used_is_freed_when_its_pods_are_gone(lab: Lab) -> None:
    """Kubernetes would leave it allocated for ever: it takes devices back only from claims that were reserved."""
    lab.node("one", plain(1))
    a_class(lab)
    lab.found()
    lab.muster.end()
    lab.muster.start(killed_at="gate:1")
    lab.namespace.create(workloads.claim("unused", exactly(lab)), workloads.pod("alone", claim="unused"))
    eventually(lambda: lab.muster.program.ended, what="the controller is dead")
    assert results_of(lab.namespace.claim("unused"))
    lab.client.delete(f"{lab.namespace.pods}/alone")

    lab.muster.start()

    eventually(lambda: not results_of(lab.namespace.claim("unused")), what="its devices are taken back")
    lab.wait_used(gpus=(0, 0))


def test_a_gang_that_is_only_counted_goes_where_kube_scheduler_puts_it(
    control_plane: ControlPlane, muster: Muster, namespace: Namespace
) -> None:
    """And starts in part where there is not enough for all of it: who asks for Count asks for that."""
    lab = Lab(control_plane=control_plane, muster=muster, namespace=namespace, driver="counted.test")
    lab.node("one", plain(2))
    a_class(lab)
    team = lab.found({lab.meters[0]: "4"}, placement="Count")
    lab.submit("over", pods=5, request=exactly(lab))
    team.wait_held("over", "QuotaExceeded")

    lab.submit("three", pods=3, request=exactly(lab))

    lab.wait_used(gpus=(1, 2))
    wait_placed(lab, "three", "Count")
    eventually(
        lambda: team.phases("three") == ["Pending", "Running", "Running"], what=lambda: f"{team.standing('three')}"
    )
    lab.node("two", plain(1))
    lab.wait_running("three", 3)
    lab.wait_used(gpus=(0, 3))
    lab.end("three")
    lab.clear()
