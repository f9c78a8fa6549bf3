"""Fences on a real control plane: who gets past one, who mends it, and what becomes of gangs without it."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.controlplane import ApiError, ControlPlane, fleet, workloads
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually, holds_for
from tests.e2e.musters import Muster

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
POLICY = f"{ADMISSION}/validatingadmissionpolicies/muster-fence"
BINDING = f"{ADMISSION}/validatingadmissionpolicybindings/muster-fence"
RULE = f"muster-fence-{fleet.DRIVER}"


@pytest.fixture(scope="module")
def rules(kubernetes: str) -> str:
    """Where DeviceTaintRules are."""
    version = "v1beta2" if kubernetes == "1.36" else "v1"
    return f"/apis/resource.k8s.io/{version}/devicetaintrules"


@pytest.fixture(scope="module")
def hardware(control_plane: ControlPlane) -> Iterator[None]:
    """Two nodes with two GPUs each."""
    client = control_plane.client()
    manifests = fleet.demo_fleet([2, 2])
    fleet.install(client, manifests)
    yield
    fleet.remove(client, manifests)


@pytest.fixture(scope="module")
def muster(control_plane: ControlPlane, hardware: None, rules: str) -> Iterator[Muster]:
    """An installation that fences the GPUs. What a test takes away, it makes anew."""
    muster = Muster(control_plane, fence=[fleet.DRIVER])
    fenced(muster, control_plane, rules)
    yield muster
    unfenced(muster, control_plane, rules)
    muster.clean()


def fenced(muster: Muster, control_plane: ControlPlane, rules: str) -> None:
    """Start Muster, and wait for its fence."""
    muster.configure(fence=[fleet.DRIVER])
    muster.start()
    eventually(lambda: control_plane.client().find(f"{rules}/{RULE}"), what="the fence stands")


def unfenced(muster: Muster, control_plane: ControlPlane, rules: str) -> None:
    """Start Muster without the setting, and wait until nothing is left of the fence."""
    muster.end()
    muster.configure()
    muster.start()
    client = control_plane.client()
    eventually(
        lambda: not any(client.find(path) for path in (f"{rules}/{RULE}", POLICY, BINDING)),
        what="rule, policy and binding are gone",
    )


@pytest.mark.usefixtures("muster")
def test_pods_outside_muster_get_no_fenced_device(namespace: Namespace) -> None:
    namespace.create(workloads.claim_template("one", workloads.device_request()), workloads.pod("out", template="one"))

    refusal = eventually(lambda: namespace.refusal("out"), what="kube-scheduler says why")

    assert "cannot allocate all claims" in refusal


def tolerant(**toleration: str) -> Any:
    request = workloads.device_request()
    request["exactly"]["tolerations"] = [{"key": "example.com/other", "operator": "Exists"}, toleration]
    return request


TOLERATIONS = {
    "by name": {"key": "muster.dev/fence", "operator": "Equal", "value": "Muster", "effect": "NoSchedule"},
    "by name, whatever its value": {"key": "muster.dev/fence", "operator": "Exists"},
    "by a wildcard": {"operator": "Exists"},
    "by a wildcard of the effect": {"operator": "Exists", "effect": "NoSchedule"},
}


@pytest.mark.usefixtures("muster")
def test_claims_that_tolerate_a_fence_are_refused_in_every_namespace(control_plane: ControlPlane) -> None:
    client = control_plane.client()
    for name in ("default", "kube-system", "muster-system"):
        somewhere = Namespace(name=name, client=client)
        for how, toleration in TOLERATIONS.items():
            for manifest, field in (
                (workloads.claim("c", tolerant(**toleration)), "spec.devices"),
                (workloads.claim_template("t", tolerant(**toleration)), "spec.spec.devices"),
            ):
                with pytest.raises(ApiError) as refused:
                    somewhere.create(manifest)
                assert f"{field}.requests[0].exactly.tolerations[1]: tolerates" in str(refused.value), how
                assert "name the key of the taint that you mean" in str(refused.value)


@pytest.mark.usefixtures("muster")
def test_an_alternative_that_tolerates_a_fence_is_refused(namespace: Namespace) -> None:
    plain = {"name": "plain", "deviceClassName": fleet.DEVICE_CLASS}
    open_one = {"name": "open", "deviceClassName": fleet.DEVICE_CLASS, "tolerations": [{"operator": "Exists"}]}

    with pytest.raises(ApiError, match=r"requests\[1\]\.firstAvailable\[1\]\.tolerations\[0\]: tolerates"):
        namespace.create(
            workloads.claim(
                "c", workloads.device_request("first"), {"name": "second", "firstAvailable": [plain, open_one]}
            )
        )


@pytest.mark.usefixtures("muster")
def test_claims_that_tolerate_other_taints_are_none_of_its_business(namespace: Namespace) -> None:
    other = workloads.device_request()
    other["exactly"]["tolerations"] = [
        {"key": "example.com/other", "operator": "Exists"},
        {"operator": "Exists", "effect": "NoExecute"},
        {"key": "muster.dev/fence", "operator": "Equal", "value": "another"},
    ]

    namespace.create(workloads.claim("c", other))


@pytest.mark.parametrize("gone", [POLICY, BINDING, "rule"], ids=["policy", "binding", "rule"])
def test_what_somebody_deletes_is_made_anew(muster: Muster, control_plane: ControlPlane, rules: str, gone: str) -> None:
    client = control_plane.client()
    path = f"{rules}/{RULE}" if gone == "rule" else gone
    uid = client.get(path)["metadata"]["uid"]

    client.delete(path)

    eventually(lambda: (client.find(path) or {"metadata": {"uid": uid}})["metadata"]["uid"] != uid, what="it is back")
    holds_for(1, lambda: not muster.program.ended, what="Muster runs")


@pytest.mark.usefixtures("muster")
def test_what_somebody_changes_is_set_right(control_plane: ControlPlane, rules: str) -> None:
    client = control_plane.client()
    client.merge_patch(f"{rules}/{RULE}", {"spec": {"taint": {"key": "example.com/other"}}})
    client.merge_patch(BINDING, {"spec": {"matchResources": {"namespaceSelector": {"matchLabels": {"a": "b"}}}}})
    client.merge_patch(POLICY, {"spec": {"failurePolicy": "Ignore"}})

    def is_right() -> bool:
        taint = client.get(f"{rules}/{RULE}")["spec"]["taint"]
        bound = client.get(BINDING)["spec"]
        return (
            taint["key"] == "muster.dev/fence"
            and "matchResources" not in bound
            and client.get(POLICY)["spec"]["failurePolicy"] == "Fail"
        )

    eventually(is_right, what="all of it is as before")


def is_taken(namespace: Namespace, manifest: Any) -> bool:
    try:
        namespace.create(manifest)
    except ApiError:
        return False
    return True


def test_without_the_setting_the_fence_goes(
    muster: Muster, control_plane: ControlPlane, rules: str, namespace: Namespace
) -> None:
    namespace.create(workloads.claim_template("one", workloads.device_request()), workloads.pod("out", template="one"))
    eventually(lambda: namespace.refusal("out"), what="the fence holds")

    unfenced(muster, control_plane, rules)

    namespace.bound("out")
    eventually(lambda: is_taken(namespace, workloads.claim("c", tolerant(operator="Exists"))), what="it is not refused")
    namespace.empty()
    muster.end()
    fenced(muster, control_plane, rules)
