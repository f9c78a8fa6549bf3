"""The annotation muster.dev/claims: what it puts into a pod, and which annotations are refused."""

from typing import Any

import jsonpatch
import pytest

from admission.api.values import names
from admission.api.values.reasons import Denial, DenyReason
from admission.claimpolicy.draft import Draft
from admission.claimpolicy.pods import claims_annotation
from admission.errors import TooMuchWorkError

Json = dict[str, Any]


def a_pod(*containers: str, init: tuple[str, ...] = (), **spec: Any) -> Json:
    inits = {"initContainers": [{"name": name} for name in init]} if init else {}
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": name} for name in containers], **inits, **spec}}


def attached(pod: Json, text: str) -> Json:
    """Return the pod with the claims; the patch makes of it what the draft shows, and a second pass changes nothing."""
    draft = Draft(pod)
    assert claims_annotation.attach(draft, text) is None
    assert jsonpatch.apply_patch(pod, list(draft.patch)) == draft.obj
    again = Draft(draft.obj)
    assert claims_annotation.attach(again, text) is None
    assert again.patch == ()
    result: Json = draft.obj
    return result


def refused(pod: Json, text: str) -> str:
    denial = claims_annotation.attach(Draft(pod), text)
    assert isinstance(denial, Denial)
    assert denial.reason is DenyReason.MALFORMED_REQUEST
    assert denial.message.startswith(f"annotation {names.CLAIMS}: ")
    return denial.message


def used(pod: Json) -> dict[str, list[str]]:
    """Return the names of the claims of each container."""
    spec = pod["spec"]
    every = [*spec.get("initContainers", []), *spec["containers"]]
    return {one["name"]: [claim["name"] for claim in one.get("resources", {}).get("claims", [])] for one in every}


def test_every_container_gets_the_claim() -> None:
    pod = attached(a_pod("a", "b", init=("setup",)), "gpu=h100x8")

    assert pod["spec"]["resourceClaims"] == [{"name": "gpu", "resourceClaimTemplateName": "h100x8"}]
    assert used(pod) == {"setup": ["gpu"], "a": ["gpu"], "b": ["gpu"]}


def test_several_claims_for_containers_of_their_own() -> None:
    pod = attached(a_pod("a", "b"), " gpu = h100x8, a/nic=rdma,b/nic=rdma , a/disk=nvme.2")

    assert [claim["name"] for claim in pod["spec"]["resourceClaims"]] == ["gpu", "nic", "disk"]
    assert used(pod) == {"a": ["gpu", "nic", "disk"], "b": ["gpu", "nic"]}


def test_claims_that_a_pod_already_names_stay_as_they_are() -> None:
    said = [{"name": "gpu", "resourceClaimTemplateName": "h100x8"}, {"name": "x", "resourceClaimName": "shared"}]
    pod = a_pod("a", "b", resourceClaims=said)
    pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu", "request": "one"}]}

    found = attached(pod, "gpu=h100x8")

    assert found["spec"]["resourceClaims"] == said
    assert found["spec"]["containers"][0] == pod["spec"]["containers"][0]
    assert used(found) == {"a": ["gpu"], "b": ["gpu"]}


REFUSED = {
    "no template": ("gpu", "'gpu' is no claim; write NAME=TEMPLATE"),
    "an empty entry": ("gpu=h100x8,", "'' is no claim"),
    "an empty container": ("/gpu=h100x8", "'/gpu=h100x8' is no claim"),
    "a name that is none": ("GPU=h100x8", "'GPU' is not a DNS label"),
    "a template that is none": ("gpu=h100_8", "'h100_8' is not a DNS subdomain"),
    "a container that is not there": ("c/gpu=h100x8", "there is no container c; the pod has a, b"),
    "one name for two templates": ("gpu=one, gpu=two", "from template two, and is one of template one already"),
    "a name that the pod has given": ("x=one", "from template one, and is one of another claim already"),
}


@pytest.mark.parametrize(("text", "why"), REFUSED.values(), ids=REFUSED)
def test_a_claims_annotation_that_cannot_be_followed_is_refused(text: str, why: str) -> None:
    assert why in refused(a_pod("a", "b", resourceClaims=[{"name": "x", "resourceClaimName": "shared"}]), text)


def test_the_claims_of_a_container_are_one_operation() -> None:
    draft = Draft(a_pod("a", "b"))

    assert claims_annotation.attach(draft, ", ".join(f"c{at}=t" for at in range(20))) is None

    assert [step["path"] for step in draft.patch if "containers" in step["path"]] == [
        "/spec/containers/0/resources",
        "/spec/containers/1/resources",
    ]


def test_an_annotation_with_very_many_entries_is_refused() -> None:
    most = ",".join(f"c{at}=t" for at in range(claims_annotation.MAX_ENTRIES))

    assert claims_annotation.attach(Draft(a_pod("a")), most) is None
    assert "it has 257 entries, and at most 256 are read" in refused(a_pod("a"), f"{most},x=t")


def test_a_refusal_names_a_few_of_many_containers() -> None:
    message = refused(a_pod(*(f"c{at:03}" for at in range(100))), "nobody/gpu=t")

    assert message.endswith(
        "there is no container nobody; the pod has " + ", ".join(f"c{at:03}" for at in range(10)) + " and 90 more"
    )


def test_claims_times_containers_are_bounded() -> None:
    text = ",".join(f"c{at}=t" for at in range(240))
    draft = Draft(a_pod(*(f"c{at}" for at in range(400))))

    with pytest.raises(TooMuchWorkError, match=r"claims of containers.*name fewer claims"):
        claims_annotation.attach(draft, text)
