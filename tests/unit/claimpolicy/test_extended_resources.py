"""Extended resources that become claims: who gets which devices, and what is left of the pod."""

from typing import Any

import jsonpatch
import pytest

from admission.api.kubernetes.pods import Stage
from admission.api.muster.claim_policies import Conversion
from admission.api.values import names, quantities
from admission.api.values.reasons import DenyReason
from admission.claimpolicy import conversion_recipe
from admission.claimpolicy.conversion_recipe import Recipe
from admission.claimpolicy.draft import Draft
from admission.claimpolicy.match import OwnedConversion
from admission.claimpolicy.pods import extended_resources
from admission.claimpolicy.pods.extended_resources import DeviceSplit
from admission.errors import TooMuchWorkError

GPU = "nvidia.com/gpu"
NIC = "example.com/nic"
KNOWN = {
    GPU: OwnedConversion("plugins", Conversion(resource=GPU, device_class="gpu.example.com")),
    NIC: OwnedConversion("nics", Conversion(resource=NIC, device_class="nic.example.com")),
}

INIT, SIDECAR, MAIN = Stage.INIT, Stage.SIDECAR, Stage.MAIN

SHARES: dict[str, tuple[list[tuple[Stage, int]], DeviceSplit]] = {
    "one container": ([(MAIN, 8)], DeviceSplit(counts=(8,), of_containers=((0,),))),
    "each container has its own": ([(MAIN, 2), (MAIN, 3)], DeviceSplit(counts=(2, 3), of_containers=((0,), (1,)))),
    "none at all": ([(MAIN, 0)], DeviceSplit(counts=(), of_containers=((),))),
    "an init container uses what comes later": (
        [(INIT, 2), (MAIN, 8), (MAIN, 2)],
        DeviceSplit(counts=(8, 2), of_containers=((1,), (0,), (1,))),
    ),
    "it uses all that come later where none has enough": (
        [(INIT, 4), (MAIN, 2), (MAIN, 2)],
        DeviceSplit(counts=(2, 2), of_containers=((0, 1), (0,), (1,))),
    ),
    "and has more where all have not enough": (
        [(INIT, 5), (INIT, 6), (MAIN, 2), (MAIN, 2)],
        DeviceSplit(counts=(2, 2, 2), of_containers=((0, 1, 2), (0, 1, 2), (0,), (1,))),
    ),
    "a sidecar before it keeps its own": (
        [(SIDECAR, 4), (INIT, 2), (MAIN, 1)],
        DeviceSplit(counts=(4, 1, 1), of_containers=((0,), (1, 2), (1,))),
    ),
    "only an init container": ([(INIT, 3), (MAIN, 0)], DeviceSplit(counts=(3,), of_containers=((0,), ()))),
}


@pytest.mark.parametrize(("needs", "shares"), SHARES.values(), ids=SHARES)
def test_devices_are_shared_as_with_a_device_plugin(needs: list[tuple[Stage, int]], shares: DeviceSplit) -> None:
    assert extended_resources.split(needs) == shares


def test_more_devices_than_a_claim_may_have_are_refused_before_anything_is_changed() -> None:
    container = {"name": "c", "resources": {"limits": {GPU: 1}}}
    draft = Draft({"spec": {"containers": [container] * 33}})

    denial = extended_resources.convert(draft, KNOWN)

    assert denial is not None
    assert denial.reason is DenyReason.CLAIM_TOO_LARGE
    assert draft.patch == ()


def test_containers_times_resources_are_bounded() -> None:
    container = {"name": "c", "resources": {"limits": {GPU: 1}}}

    with pytest.raises(TooMuchWorkError, match="use fewer containers"):
        extended_resources.convert(Draft({"spec": {"containers": [container] * 20_000}}), KNOWN)


def a_container(name: str, **amounts: Any) -> dict[str, Any]:
    written = {resource.replace("__", "/").replace("_", "."): amount for resource, amount in amounts.items()}
    return {"name": name, "resources": {"limits": dict(written), "requests": {"cpu": "1", **written}}}


def a_pod(*containers: dict[str, Any], init: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": list(containers)}
    return {"metadata": {"name": "p"}, "spec": spec | ({"initContainers": init} if init else {})}


def converted(pod: dict[str, Any]) -> dict[str, Any]:
    draft = Draft(pod)
    assert extended_resources.convert(draft, KNOWN) is None
    assert jsonpatch.apply_patch(pod, list(draft.patch)) == draft.obj
    again = Draft(draft.obj)
    assert extended_resources.convert(again, KNOWN) is None
    assert again.patch == ()
    found: dict[str, Any] = draft.obj
    return found


def test_a_resource_becomes_a_claim() -> None:
    pod = converted(a_pod(a_container("main", nvidia_com__gpu="8")))

    (recipe,) = conversion_recipe.recipes(pod["metadata"]["annotations"])
    assert recipe == Recipe(policy="plugins", resource=GPU, counts=(8,))
    assert pod["metadata"]["annotations"] == {names.CONVERTED: "plugins:nvidia.com/gpu=8"}
    assert pod["spec"]["resourceClaims"] == [{"name": "nvidia-com-gpu", "resourceClaimTemplateName": recipe.template}]
    assert pod["spec"]["containers"][0]["resources"] == {
        "limits": {},
        "requests": {"cpu": "1"},
        "claims": [{"name": "nvidia-com-gpu", "request": "devices-0"}],
    }


def test_each_resource_has_a_claim_of_its_own() -> None:
    init = [{**a_container("agent", example_com__nic=1), "restartPolicy": "Always"}]
    pod = converted(a_pod(a_container("a", nvidia_com__gpu=2), a_container("b", nvidia_com__gpu=1), init=init))

    assert [str(recipe) for recipe in conversion_recipe.recipes(pod["metadata"]["annotations"])] == [
        "nics:example.com/nic=1",
        "plugins:nvidia.com/gpu=2+1",
    ]
    uses = [one["resources"].get("claims") for one in (*pod["spec"]["initContainers"], *pod["spec"]["containers"])]
    assert uses == [
        [{"name": "example-com-nic", "request": "devices-0"}],
        [{"name": "nvidia-com-gpu", "request": "devices-0"}],
        [{"name": "nvidia-com-gpu", "request": "devices-1"}],
    ]


def test_a_name_that_the_pod_uses_is_not_used_again() -> None:
    pod = a_pod(a_container("main", nvidia_com__gpu=1))
    pod["spec"]["resourceClaims"] = [{"name": "nvidia-com-gpu", "resourceClaimName": "shared"}]

    assert [claim["name"] for claim in converted(pod)["spec"]["resourceClaims"]] == [
        "nvidia-com-gpu",
        "nvidia-com-gpu-2",
    ]


def test_none_of_a_resource_needs_no_claim() -> None:
    pod = converted(a_pod(a_container("main", nvidia_com__gpu="0")))

    assert "resourceClaims" not in pod["spec"]
    assert pod["spec"]["containers"][0]["resources"] == {"limits": {}, "requests": {"cpu": "1"}}


@pytest.mark.parametrize("amount", ["1.5", "many", -1, True])
def test_an_extended_resource_amount_that_is_no_count_is_left_to_the_api_server(amount: Any) -> None:
    pod = a_pod(a_container("main", nvidia_com__gpu=amount))

    assert converted(pod) == pod


def test_more_than_a_claim_can_hold_is_refused() -> None:
    denial = extended_resources.convert(Draft(a_pod(*(a_container(name, nvidia_com__gpu=16) for name in "abc"))), KNOWN)

    assert denial is not None
    assert denial.reason is DenyReason.CLAIM_TOO_LARGE
    assert "asks for 48 nvidia.com/gpu, which ClaimPolicy plugins turns into one claim" in denial.message


@pytest.mark.parametrize("amount", ["9" * 50, "1e30", "7" * 4000 + "e999"])
def test_more_than_can_be_counted_is_refused_and_not_left_on_the_pod(amount: str) -> None:
    denial = extended_resources.convert(Draft(a_pod(a_container("main", nvidia_com__gpu=amount))), KNOWN)

    assert denial is not None
    assert denial.reason is DenyReason.CLAIM_TOO_LARGE
    assert f"asks for {quantities.MOST} or more nvidia.com/gpu" in denial.message
