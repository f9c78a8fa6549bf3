"""What objects ask for that a release does not have as it comes is told, and nothing else."""

from typing import Any

import pytest

from admission.dra import compatibility
from admission.dra.compatibility import Release
from admission.dra.diagnosis import absent_features
from admission.simulation import expand

USES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "counters": (
        {"sharedCounters": [{"name": "card", "counters": {"memory": {"value": "4Gi"}}}], "devices": []},
        ["partitionable devices"],
    ),
    "a partition": (
        {"devices": [{"consumesCounters": [{"counterSet": "card", "counters": {"memory": {"value": "1Gi"}}}]}]},
        ["partitionable devices"],
    ),
    "a taint": ({"devices": [{"taints": [{"key": "x", "effect": "NoSchedule"}]}]}, ["device taints"]),
    "a condition": (
        {"devices": [{"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}]},
        ["binding conditions"],
    ),
    "a share": ({"devices": [{"allowMultipleAllocations": True}]}, ["consumable capacity"]),
    "a request": ({"requests": [{"capacity": {"requests": {"memory": "1Gi"}}}]}, ["consumable capacity"]),
    "a toleration": ({"requests": [{"tolerations": [{"operator": "Exists"}]}]}, ["device taints"]),
    "a constraint": ({"constraints": [{"distinctAttribute": "x.example.com/numa"}]}, ["consumable capacity"]),
    "a rule": ({"taint": {"key": "x", "effect": "NoSchedule"}}, ["device taints"]),
    "a class": ({"extendedResourceName": "example.com/gpu"}, ["extended resources"]),
    "none of these": ({"requests": [{}]}, []),
}


def an_object(said: dict[str, Any]) -> dict[str, Any]:
    """Return the object that has what is said in its spec."""
    match said:
        case {"taint": _}:
            kind, spec = "DeviceTaintRule", {"deviceSelector": {"driver": "gpu.example.com"}, **said}
        case {"extendedResourceName": _}:
            kind, spec = "DeviceClass", said
        case {"devices": devices}:
            named = [{"name": f"d-{number}", **device} for number, device in enumerate(devices)]
            pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
            more = {"devices": named} if named else {}
            given = {key: value for key, value in said.items() if key != "devices"}
            kind, spec = "ResourceSlice", {"driver": "gpu.example.com", "nodeName": "a", "pool": pool, **given, **more}
        case _:
            asked = {"requests": [{}], **said}
            requests = [
                {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com", **one}} for one in asked["requests"]
            ]
            kind, spec = "ResourceClaimTemplate", {"spec": {"devices": {**asked, "requests": requests}}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": "one"}, "spec": spec}


@pytest.mark.parametrize(("said", "told"), USES.values(), ids=USES)
@pytest.mark.parametrize("release", [Release.V1_34, Release.V1_36])
def test_what_a_release_lacks_and_an_object_asks_for_is_told(
    said: dict[str, Any], told: list[str], release: Release
) -> None:
    expanded = expand.expand([an_object(said)], profile=compatibility.profile(release))

    assert expanded.problems == ()
    if not release.before_1_36:
        assert expanded.notes == ()
        return
    assert [note.startswith(start) for start, note in zip(told, expanded.notes, strict=True)] == [True] * len(told)
    assert all(f"a Kubernetes {release} as it comes" in note and "one" in note for note in expanded.notes)


def test_of_many_objects_some_are_named() -> None:
    classes = [an_object({"extendedResourceName": f"example.com/gpu-{number}"}) for number in range(5)]
    for number, one in enumerate(classes):
        one["metadata"] = {"name": f"c{number}"}
    profile = compatibility.profile(Release.V1_35)

    (note,) = absent_features.notes(expand.expand(classes).snapshot, profile)

    assert note.endswith("by DeviceClass c0, DeviceClass c1, DeviceClass c2 and 2 more")
