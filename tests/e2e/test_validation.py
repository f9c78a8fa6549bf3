"""What is refused offline is what a real API server refuses: the same objects, in the same shape, sent to both."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from admission.api.kubernetes import claims as decoding
from admission.api.schemas import known_fields
from admission.simulation import validation
from tests.conformance import kubernetes_fields, manifests, mutated_manifests, typed_values
from tests.controlplane import ApiError, ControlPlane, building
from tests.controlplane.namespaces import Namespace
from tests.unit.api import claims, natives, pod_settings, pods, refused, unknown, workloads, wrong_types
from tests.unit.api.cases import Case

pytestmark = pytest.mark.e2e

PLURALS = {
    "ResourceSlice": "resourceslices",
    "DeviceClass": "deviceclasses",
    "ResourceClaim": "resourceclaims",
    "ResourceClaimTemplate": "resourceclaimtemplates",
    "DeviceTaintRule": "devicetaintrules",
    "Pod": "pods",
    "Job": "jobs",
    "Node": "nodes",
    "StorageClass": "storageclasses",
    "RuntimeClass": "runtimeclasses",
    "PersistentVolumeClaim": "persistentvolumeclaims",
}
NAMESPACED = frozenset({"ResourceClaim", "ResourceClaimTemplate", "Pod", "Job", "PersistentVolumeClaim"})
REFUSED = refused.REFUSED | refused.CEL
CRASHES = {("1.36", "a step of nothing")}
"""Where a release divides by zero and hangs up instead of refusing; the object is not kept either."""


OFF_BEFORE_1_36 = (
    *("taints", "tolerations", "bindingConditions", "bindingFailureConditions", "extendedResourceName"),
    *("sharedCounters", "consumesCounters", "perDeviceNodeSelection", "allNodes", "requestPolicy", "strings"),
)
"""Fields of features that are off in a 1.35 as it comes: its API server drops them without a look."""

OFF_BEFORE_1_35 = (
    "restartPolicyRules",
    "hostnameOverride",
    "fileKeyRef",
    ".image.",
    "resizePolicy",
    "containers[0].restartPolicy",
)
"""The same of a 1.34: fields of pods, of which the cases below break a rule."""


def skip_if_dropped(kubernetes: str, obj: Any) -> None:
    """Skip a test about what this release does not look at, by the name of the field or kind."""
    if kubernetes not in building.ON_DEMAND:
        return
    if obj["kind"] == "DeviceTaintRule":
        pytest.skip(f"Kubernetes {kubernetes} serves no DeviceTaintRules in v1beta2 or v1")
    text = json.dumps(obj)
    for field in OFF_BEFORE_1_36:
        if f'"{field}"' in text:
            pytest.skip(f"Kubernetes {kubernetes} drops {field}, whose feature is off there")


RANDOM = 300
"""Random manifests that are tried, some 40 in each second."""


def sent(cluster: ControlPlane, obj: Any, namespace: str = "default") -> Any:
    """Return an object as the API server would keep it. Raises ApiError when it refuses, as kubectl would see it."""
    group, within = (
        obj["apiVersion"].rpartition("/")[0],
        f"namespaces/{namespace}/" if obj["kind"] in NAMESPACED else "",
    )
    path = f"/{'apis' if group else 'api'}/{obj['apiVersion']}/{within}{PLURALS[obj['kind']]}"
    return cluster.client().create(f"{path}?dryRun=All&fieldValidation=Strict", obj)


def tried(cluster: ControlPlane, kubernetes: str, obj: Any) -> Any:
    """Return an object of resource.k8s.io as `sent` does, in the version that this release has on by default."""
    kind = obj["kind"]
    version = "v1beta2" if kind == "DeviceTaintRule" and kubernetes == "1.36" else "v1"
    return sent(cluster, {**obj, "apiVersion": f"resource.k8s.io/{version}"})


@pytest.mark.parametrize("name", REFUSED)
def test_the_api_server_refuses_what_we_refuse(control_plane: ControlPlane, kubernetes: str, name: str) -> None:
    skip_if_dropped(kubernetes, REFUSED[name].obj)
    if (kubernetes, name) in CRASHES:
        with pytest.raises(ConnectionError):
            tried(control_plane, kubernetes, REFUSED[name].obj)
        return

    with pytest.raises(ApiError) as caught:
        tried(control_plane, kubernetes, REFUSED[name].obj)

    assert caught.value.code in (400, 422)


@pytest.mark.parametrize(("obj", "field", "_"), unknown.KUBERNETES.values(), ids=unknown.KUBERNETES)
def test_the_api_server_does_not_know_the_fields_that_we_do_not_know(
    control_plane: ControlPlane, obj: Any, field: str, _: str
) -> None:
    with pytest.raises(ApiError) as caught:
        sent(control_plane, obj)

    assert (caught.value.code, "unknown field" in str(caught.value)) == (400, True)
    assert field.rpartition(".")[2] in str(caught.value)


def test_we_know_the_fields_that_the_api_server_publishes(control_plane: ControlPlane, kubernetes: str) -> None:
    """Of the kinds that it serves here; others are in the source of its release."""
    kinds, types = kubernetes_fields.read(control_plane.client().get("/openapi/v2")["definitions"])

    assert len(kinds) > 15
    for key, name in kinds.items():
        assert known_fields.type_of(*key.rsplit("/", 1)) == name
    ours = {name: known_fields.fields_of(name) for name in types}
    gone = {name: set(known_fields.absent(name, kubernetes)) for name in types}
    assert {name: {k: v for k, v in ours[name].items() if k not in gone[name]} for name in types} == types


@pytest.mark.parametrize(("obj", "field", "said"), wrong_types.NATIVE.values(), ids=wrong_types.NATIVE)
def test_the_api_server_says_what_we_say_of_a_value_of_another_type(
    control_plane: ControlPlane, obj: Any, field: str, said: str
) -> None:
    """Up to what we add, the name of a type that is text or a mapping, and of a struct that Go embeds."""
    with pytest.raises(ApiError) as caught:
        sent(control_plane, obj)

    ours = said.partition("; ")[0].replace("map[string]resource.Quantity", "v1.ResourceList")
    assert caught.value.code == 400
    assert ours in caught.value.message.replace(".ProbeHandler.", ".").replace(": cannot parse", "; cannot parse")


@pytest.mark.parametrize("obj", wrong_types.GOOD.values(), ids=wrong_types.GOOD)
def test_the_api_server_takes_the_values_that_we_take(control_plane: ControlPlane, obj: Any) -> None:
    assert sent(control_plane, obj)


def test_values_of_any_type_are_read_where_the_api_server_reads_them(
    control_plane: ControlPlane, kubernetes: str
) -> None:
    """`python -m tests.conformance.typed_values` asks about as many as one likes."""
    client = control_plane.client()
    different: dict[int, str] = {}
    asked = wrong = 0
    for seed in range(1_000_000, 1_000_000 + 2 * RANDOM):
        obj = typed_values.manifest(seed)
        theirs = typed_values.told(client, obj)
        if theirs is not None:
            asked, wrong = asked + 1, wrong + bool(theirs)
            found = typed_values.difference(obj, kubernetes, theirs)
            different |= {seed: found} if found else {}

    assert different == {}
    assert asked > RANDOM
    assert asked // 5 < wrong < asked * 4 // 5


NATIVE = pods.REFUSED | pod_settings.REFUSED | natives.REFUSED | workloads.REFUSED
TAKEN = pods.GOOD | pod_settings.GOOD | natives.GOOD | workloads.GOOD


@pytest.mark.parametrize("case", NATIVE.values(), ids=NATIVE)
def test_the_api_server_refuses_the_pods_that_we_refuse(
    control_plane: ControlPlane, kubernetes: str, case: Case
) -> None:
    off = {"1.34": OFF_BEFORE_1_35, "1.35": ("initContainers[0].resizePolicy",)}.get(kubernetes, ())
    if any(field in str(case.field) for field in off):
        pytest.skip(f"Kubernetes {kubernetes} drops {case.field}, or what it depends on, whose feature is off there")
    assert manifests.difference([case.field], manifests.causes(control_plane.client(), case.obj)) is None


@pytest.mark.parametrize("obj", TAKEN.values(), ids=TAKEN)
def test_the_api_server_takes_the_pods_that_we_take(control_plane: ControlPlane, kubernetes: str, obj: Any) -> None:
    if kubernetes == "1.34" and '"fileKeyRef"' in json.dumps(obj):
        pytest.skip(f"Kubernetes {kubernetes} drops fileKeyRef, whose feature is off there")
    assert manifests.causes(control_plane.client(), obj) == []


@pytest.mark.parametrize("made", [manifests.manifest, mutated_manifests.manifest], ids=["claims", "pods and volumes"])
def test_random_manifests_are_refused_as_the_api_server_does(
    control_plane: ControlPlane, kubernetes: str, made: Callable[[int], Any]
) -> None:
    """`python -m tests.conformance.manifests` and `mutated_manifests` ask about as many as one likes."""
    if kubernetes in building.ON_DEMAND and made is manifests.manifest:
        pytest.skip(f"Kubernetes {kubernetes} drops fields of claims and classes whose features are off there")
    if kubernetes == "1.34":
        pytest.skip(f"Kubernetes {kubernetes} drops fields of pods whose features are off there")
    client = control_plane.client()
    different: dict[int, str] = {}
    refusals = 0
    for seed in range(1_000_000, 1_000_000 + RANDOM):
        obj = made(seed)
        theirs = manifests.causes(client, obj)
        refusals += bool(theirs)
        told = manifests.difference(manifests.refused(obj, kubernetes), theirs)
        different |= {seed: told} if told else {}

    assert different == {}
    assert RANDOM // 5 < refusals < RANDOM * 4 // 5


@pytest.mark.parametrize("labels", [{}, {"resource.kubernetes.io/admin-access": "true"}], ids=["without", "with"])
def test_admin_access_takes_the_label_of_its_namespace(namespace: Namespace, labels: dict[str, str]) -> None:
    """As `simulate` and `lint` say of a namespace that their input describes."""
    client, claim = namespace.client, claims.claim(claims.exactly(adminAccess=True))
    client.merge_patch(f"/api/v1/namespaces/{namespace.name}", {"metadata": {"labels": labels}})
    if labels:
        assert client.create(f"{namespace.claims}?dryRun=All", claim)
        return

    with pytest.raises(ApiError) as caught:
        client.create(f"{namespace.claims}?dryRun=All", claim)

    (problem,) = validation.admin_access(decoding.decode(claim).spec, labels)
    assert caught.value.fields == ("spec.devices.requests[0].adminAccess",)
    assert problem.message.removeprefix("Forbidden: ") in caught.value.message


@pytest.mark.parametrize("obj", refused.GOOD.values(), ids=refused.GOOD)
def test_the_api_server_takes_what_we_take(control_plane: ControlPlane, kubernetes: str, obj: Any) -> None:
    skip_if_dropped(kubernetes, obj)
    assert tried(control_plane, kubernetes, obj)


@pytest.mark.parametrize("case", refused.STRICTER.values(), ids=refused.STRICTER)
def test_where_we_are_stricter_the_api_server_is_not(control_plane: ControlPlane, kubernetes: str, case: Case) -> None:
    skip_if_dropped(kubernetes, case.obj)
    assert tried(control_plane, kubernetes, case.obj)


UNIT = Path(__file__).parents[1] / "unit"
TO_MEND = {"v1alpha2 1": "parametersRef", "v1alpha3 2": "spec.driver"}
"""What `muster convert` leaves to mend by hand, and what the API server says of it."""


def _converted() -> dict[str, Any]:
    """Return what is written of earlier forms, without namespaces."""
    cases = yaml.safe_load((UNIT / "conversion" / "converted.yaml").read_text())
    found = {f"{name} {at}": one for name, case in cases.items() for at, one in enumerate(case["after"])}
    for form in ("v1alpha2", "v1alpha3", "v1beta1", "v1-in-the-old-form"):
        text = (UNIT / "cli" / "old_manifests" / f"{form}.converted").read_text()
        found |= {f"{form} {at}": one for at, one in enumerate(yaml.safe_load_all(text)) if one}
    for one in found.values():
        one["metadata"].pop("namespace", None)
    return {name: one for name, one in found.items() if one["kind"] in PLURALS}


CONVERTED = _converted()


@pytest.mark.parametrize("name", CONVERTED)
def test_the_api_server_takes_what_is_converted(control_plane: ControlPlane, kubernetes: str, name: str) -> None:
    obj = CONVERTED[name]
    skip_if_dropped(kubernetes, obj)
    version = "v1beta2" if (obj["kind"], kubernetes) == ("DeviceTaintRule", "1.36") else "v1"
    if obj["apiVersion"] == "resource.k8s.io/v1":
        obj = {**obj, "apiVersion": f"resource.k8s.io/{version}"}
    if name not in TO_MEND:
        assert sent(control_plane, obj)
        return

    with pytest.raises(ApiError) as caught:
        sent(control_plane, obj)

    assert TO_MEND[name] in str(caught.value)
