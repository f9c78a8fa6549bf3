"""Extended resources of devices, and those of device plugins beside them."""

import json
from collections.abc import Callable, Mapping

import pytest

from tests.controlplane import ApiError, workloads
from tests.controlplane.fleet import COLLECTIONS, Manifest
from tests.controlplane.observing import holds_for
from tests.e2e.labs import Lab, plain
from tests.e2e.teams import GROUP


def test_extended_resources_are_planned_settled_and_released_with_their_pods(lab: Lab) -> None:
    resource = lab.extended()
    lab.node("extended", plain(4))
    team = lab.found()

    lab.submit("train", pods=3, resources={resource: "1"})
    lab.wait_running_as_planned("train", 3)
    lab.wait_used(gpus=(0, 3), claims=(0, 3))
    lab.submit("next", pods=1, resources={resource: "2"})
    assert "train" in team.wait_held("next", "DevicesBusy")["message"]
    team.finish("train")

    lab.wait_running("next", 1)
    lab.wait_used(gpus=(0, 2), claims=(0, 1))
    lab.end("next")


def test_extended_resources_beside_a_claim_over_quota_are_held(lab: Lab) -> None:
    resource = lab.extended()
    lab.node("extended", plain(4))
    team = lab.found({lab.meters[0]: "3"})
    own = workloads.device_request(device_class=lab.driver)

    lab.submit("two", pods=1, request=own, resources={resource: "2"})
    lab.wait_running_as_planned("two", 1)
    lab.wait_used(gpus=(0, 3), claims=(0, 2))
    lab.submit("more", pods=1, resources={resource: "1"})
    assert team.wait_held("more", "QuotaExceeded")["details"]["left"] == "0"
    team.finish("two")

    lab.wait_running("more", 1)
    lab.end("more")


def test_a_claim_that_only_says_that_it_is_for_extended_resources_stays_what_it_is(lab: Lab) -> None:
    """Whoever may write a claim may annotate it as kube-scheduler does its own; the team must not get it for free."""
    resource = lab.extended()
    lab.node("extended", plain(4))
    lab.found()
    own = workloads.device_request(device_class=lab.driver)
    lab.submit("train", pods=1, request=own, resources={resource: "2"})
    lab.wait_running_as_planned("train", 1)
    lab.wait_used(gpus=(0, 3), claims=(0, 2))

    (pod,) = lab.team.pods("train")
    name = pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
    annotated = {"metadata": {"annotations": {"resource.kubernetes.io/extended-resource-claim": "true"}}}
    lab.client.merge_patch(f"{lab.namespace.claims}/{name}", annotated)

    holds_for(4, lambda: lab.used(lab.meters[0]) == (0, 3), what="it is charged")
    assert lab.entries("train", "adjust") == lab.entries("train", "release") == []
    lab.end("train")


def test_extended_resources_of_pods_that_go_before_they_are_bound_are_given_back(
    lab: Lab, resume: Callable[[], None]
) -> None:
    """The claim was never made, so nothing but the pod can tell that it is over."""
    resource = lab.extended()
    lab.node("extended", plain(2))
    team = lab.found()
    lab.let_in("gone", pods=2, resources={resource: "1"})
    lab.wait_used(gpus=(2, 0), claims=(2, 0))
    lab.submit("next", pods=1, resources={resource: "1"})
    team.wait_held("next", "DevicesBusy")

    lab.client.delete(f"{team.jobs}/gone?propagationPolicy=Background")

    lab.wait_used(gpus=(1, 0), claims=(1, 0))
    resume()
    lab.wait_running("next", 1)
    lab.end("next")


def plugin_node(lab: Lab, name: str, **resources: str) -> str:
    """Add a node whose device plugins have these resources."""
    node = lab.node(name, [])
    has_plugins(lab, node, resources)
    return node


def has_plugins(lab: Lab, node: str, resources: Mapping[str, str]) -> None:
    status = {"allocatable": resources, "capacity": resources}
    lab.client.merge_patch(f"{COLLECTIONS['Node']}/{node}/status", {"status": status})


def plugged(lab: Lab, name: str, kind: str) -> list[tuple[dict[str, int], dict[str, int]]]:
    """Return what the books say that pods of a Job have of device plugins: charge and classes of each."""
    holdings = [one for row in lab.entries(name, kind) for one in json.loads(row["holdings"])]
    found = [one for one in holdings if one["claim_uid"].endswith("/device-plugin")]
    assert all(one["devices"] == [] for one in found)
    return [({meter: int(amount) for meter, amount in one["charge"].items()}, one["classes"]) for one in found]


@pytest.mark.since("1.36", "extended resources that devices stand behind are off")
def test_pods_of_a_device_plugin_and_of_devices_draw_on_one_quota(lab: Lab) -> None:
    resource = f"{lab.driver}/gpu"
    lab.device_class(extendedResourceName=resource)
    meter = lab.meter("gpus", count={})
    lab.client.merge_patch(f"{GROUP}/meters/{meter}", {"spec": {"extendedResources": [resource]}})
    lab.node("devices", plain(1))
    old = plugin_node(lab, "plugin", **{resource: "4"})
    team = lab.found({meter: "5"})

    with pytest.raises(ApiError, match="NeverFits"):
        lab.client.create(lab.namespace.pods, asking_for({resource: "6"}))
    lab.submit("pair", pods=2, resources={resource: "2"})
    team.wait_running("pair", 2)
    lab.wait_used(gpus=(0, 4))
    lab.submit("one", pods=1, resources={resource: "1"})
    lab.wait_running_as_planned("one", 1)
    lab.wait_used(gpus=(0, 5))
    assert lab.pinned_to("pair") == [old, old]
    assert lab.allocated("pair") == {}
    assert plugged(lab, "pair", "reserve") == plugged(lab, "pair", "settle") == [({meter: 2}, {resource: 2})] * 2
    assert plugged(lab, "one", "settle") == []

    has_plugins(lab, old, {resource: "8"})
    lab.submit("next", pods=1, resources={resource: "3"})
    assert team.wait_held("next", "QuotaExceeded")["details"]["left"] == "0"
    team.finish("pair")

    team.wait_running("next", 1)
    lab.wait_used(gpus=(0, 4))
    lab.end("one", "next")


def test_a_device_plugin_alone_is_metered_as_kube_scheduler_counts_its_resource(lab: Lab) -> None:
    """No class offers it, and the pod has an init container that needs more than what runs later."""
    resource = f"{lab.driver}/card"
    meter = lab.meter("cards", count={})
    lab.client.merge_patch(f"{GROUP}/meters/{meter}", {"spec": {"extendedResources": [resource]}})
    plugin_node(lab, "plugin", **{resource: "4", f"{lab.driver}/nic": "1"})
    team = lab.found({meter: "4"})
    wanted = {resource: "1", f"{lab.driver}/nic": "1"}
    pod = asking_for(wanted, init={resource: "3"})

    lab.client.create(lab.namespace.pods, pod)
    lab.wait_used(cards=(0, 3))
    assert lab.muster.wrong_books() is None
    lab.submit("more", pods=1, resources={resource: "2"})
    team.wait_held("more", "QuotaExceeded")
    lab.client.merge_patch(f"{lab.namespace.pods}/pod", {"metadata": {"annotations": {workloads.FINISH: "true"}}})

    team.wait_running("more", 1)
    lab.wait_used(cards=(0, 2))
    lab.end("more")


def asking_for(resources: Mapping[str, str], *, init: Mapping[str, str] | None = None) -> Manifest:
    """A pod whose container asks for these resources, and so does an init container that comes first."""
    made = workloads.pod("pod")
    (container,) = made["spec"]["containers"]
    container["resources"] = {"requests": resources, "limits": resources}
    if init is not None:
        first = {**container, "name": "init", "resources": {"requests": init, "limits": init}}
        made["spec"]["initContainers"] = [first]
    return made


def test_extended_resources_of_a_device_plugin_that_no_meter_lists_are_free(lab: Lab) -> None:
    """On a node whose device plugin has the resource kube-scheduler makes no claim."""
    resource = lab.extended()
    lab.node("devices", plain(1))
    old = plugin_node(lab, "plugin", **{resource: "2"})
    team = lab.found()

    lab.submit("pair", pods=2, resources={resource: "1"})
    team.wait_running("pair", 2)
    lab.submit("one", pods=1, resources={resource: "1"})
    lab.wait_running_as_planned("one", 1)
    lab.submit("next", pods=2, resources={resource: "1"})

    team.wait_held("next", "DevicesBusy")
    assert lab.pinned_to("pair") == [old, old]
    assert lab.allocated("pair") == lab.booked("pair", "reserve") == {}
    lab.wait_used(gpus=(0, 1), claims=(0, 1))
    team.finish("pair")
    lab.wait_running("next", 2)
    lab.end("one", "next")
