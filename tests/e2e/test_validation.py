"""What is refused offline is what a real API server refuses: the same objects, in the same shape, sent to both."""

from typing import Any

import pytest

from tests.controlplane import ApiError, ControlPlane
from tests.unit.api import refused
from tests.unit.api.cases import Case

pytestmark = pytest.mark.e2e

PLURALS = {
    "ResourceSlice": "resourceslices",
    "DeviceClass": "deviceclasses",
    "ResourceClaim": "resourceclaims",
    "ResourceClaimTemplate": "resourceclaimtemplates",
    "DeviceTaintRule": "devicetaintrules",
}
REFUSED = refused.REFUSED | refused.CEL
CRASHES = {("1.36", "a step of nothing")}
"""Where a release divides by zero and hangs up instead of refusing; the object is not kept either."""


def tried(cluster: ControlPlane, kubernetes: str, obj: Any) -> Any:
    """Return the object as the API server would keep it. Raises ApiError when it refuses, as kubectl would see it."""
    kind = obj["kind"]
    version = "v1beta2" if kind == "DeviceTaintRule" and kubernetes == "1.36" else "v1"
    within = "namespaces/default/" if kind.startswith("ResourceClaim") else ""
    path = f"/apis/resource.k8s.io/{version}/{within}{PLURALS[kind]}?dryRun=All&fieldValidation=Strict"
    return cluster.client().create(path, {**obj, "apiVersion": f"resource.k8s.io/{version}"})


@pytest.mark.parametrize("name", REFUSED)
def test_the_api_server_refuses_what_we_refuse(control_plane: ControlPlane, kubernetes: str, name: str) -> None:
    if (kubernetes, name) in CRASHES:
        with pytest.raises(ConnectionError):
            tried(control_plane, kubernetes, REFUSED[name].obj)
        return

    with pytest.raises(ApiError) as caught:
        tried(control_plane, kubernetes, REFUSED[name].obj)

    assert caught.value.code in (400, 422)


@pytest.mark.parametrize("obj", refused.GOOD.values(), ids=refused.GOOD)
def test_the_api_server_takes_what_we_take(control_plane: ControlPlane, kubernetes: str, obj: Any) -> None:
    assert tried(control_plane, kubernetes, obj)


@pytest.mark.parametrize("case", refused.STRICTER.values(), ids=refused.STRICTER)
def test_where_we_are_stricter_the_api_server_is_not(control_plane: ControlPlane, kubernetes: str, case: Case) -> None:
    assert tried(control_plane, kubernetes, case.obj)
