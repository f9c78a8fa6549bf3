"""Templates, claims by annotation and conversions of ClaimPolicies on a real control plane."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from admission.api.values import names
from tests.controlplane import ControlPlane, fleet, workloads
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.e2e import fixtures, policies
from tests.e2e.musters import Muster
from tests.e2e.teams import Team, found_team

RESOURCE = "nvidia.com/gpu"

Apply = Callable[..., None]


hardware = fixtures.hardware([fleet.device_class(), *fleet.gpu_node("templates-a", gpus=4)])


@pytest.fixture
def policy(muster: Muster, namespace: Namespace) -> Iterator[Apply]:
    """Return what applies a policy of this test's namespace."""
    path = f"{policies.PATH}/{policies.a_policy(namespace, {})['metadata']['name']}"

    def apply(**spec: Any) -> None:
        namespace.client.apply(path, policies.a_policy(namespace, spec))

    yield apply
    namespace.client.delete(path)


def listed(name: str, count: int) -> dict[str, Any]:
    return {"name": name, "spec": workloads.claim_spec(workloads.device_request(count=count))}


def counts(namespace: Namespace) -> dict[str, int]:
    """What the templates of a namespace ask for, by their names."""
    found = namespace.client.items(namespace.templates)
    return {one["metadata"]["name"]: one["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"] for one in found}


def wait_for(namespace: Namespace, **wanted: int) -> None:
    eventually(lambda: counts(namespace) == wanted, what=f"{namespace.name} has the templates {wanted}")


def message_of(policy_of: Namespace) -> str:
    found = policy_of.client.get(f"{policies.PATH}/policy-{policy_of.name}")
    conditions = found.get("status", {}).get("conditions", [])
    return next((one["message"] for one in conditions if one["type"] == "Ready"), "")


def test_templates_are_kept_true_and_go_with_their_policy(
    control_plane: ControlPlane, namespace: Namespace, policy: Apply
) -> None:
    policy(templates=[listed("one", 1), listed("two", 2)])
    wait_for(namespace, one=1, two=2)

    policy(templates=[listed("one", 3)])
    wait_for(namespace, one=3)

    namespace.client.delete(f"{namespace.templates}/one")
    wait_for(namespace, one=3)

    control_plane.client().delete(f"{policies.PATH}/policy-{namespace.name}")
    wait_for(namespace)


def test_the_template_of_somebody_else_is_left_alone_and_told(namespace: Namespace, policy: Apply) -> None:
    namespace.create(workloads.claim_template("one", workloads.device_request(count=7)))
    uid = namespace.client.get(f"{namespace.templates}/one")["metadata"]["uid"]

    policy(templates=[listed("one", 1), listed("two", 2)])

    wait_for(namespace, one=7, two=2)
    eventually(lambda: "one is somebody else's" in message_of(namespace), what="the policy's status says so")
    policy(templates=[])
    wait_for(namespace, one=7)
    assert namespace.client.get(f"{namespace.templates}/one")["metadata"]["uid"] == uid


def test_a_template_with_the_mark_of_another_is_left_alone(namespace: Namespace, policy: Apply) -> None:
    """What is written on Muster's own is no secret, and is worth nothing under another name."""
    policy(templates=[listed("one", 1)])
    wait_for(namespace, one=1)
    mark = namespace.client.get(f"{namespace.templates}/one")["metadata"]
    copy = workloads.claim_template("copy", workloads.device_request(count=7))
    copy["metadata"] |= {"labels": mark["labels"], "annotations": mark["annotations"]}
    namespace.create(copy)

    policy(templates=[listed("one", 2)])
    wait_for(namespace, one=2, copy=7)
    policy(templates=[])
    wait_for(namespace, copy=7)


def test_a_namespace_without_templates_of_its_own_runs_a_pod_with_claims_by_annotation(
    control_plane: ControlPlane, namespace: Namespace, policy: Apply
) -> None:
    found_team(control_plane, namespace, gpus=4)
    policy(templates=[listed("gpux2", 2)])

    pod = workloads.pod("train", annotations={names.CLAIMS: "gpu=gpux2"})
    namespace.create(pod)

    assert namespace.pod("train")["spec"]["containers"][0]["resources"]["claims"] == [{"name": "gpu"}]
    namespace.bound("train")
    assert len(namespace.claim_of("train")["status"]["allocation"]["devices"]["results"]) == 2


def test_a_job_for_a_device_plugin_is_converted_queued_admitted_and_bound(
    control_plane: ControlPlane, namespace: Namespace, policy: Apply
) -> None:
    team = found_team(control_plane, namespace, gpus=4)
    convert(team, policy)

    amounts = {"limits": {RESOURCE: "2"}}
    containers = [{"name": name, "image": "registry.example/train:1", "resources": amounts} for name in ("a", "b")]
    init = [{"name": "setup", "image": "registry.example/train:1", "resources": {"limits": {RESOURCE: "1"}}}]
    template = {"spec": {"containers": containers, "initContainers": init, "restartPolicy": "Never"}}
    spec = {"parallelism": 1, "completions": 1, "template": template}
    manifest = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": spec}
    control_plane.client().create(team.jobs, manifest)

    team.wait_running("train", 1)
    (pod,) = team.pods("train")
    every = [*pod["spec"]["initContainers"], *pod["spec"]["containers"]]
    assert all(RESOURCE not in one["resources"].get("limits", {}) for one in every)
    uses = {one["name"]: [claim["request"] for claim in one["resources"]["claims"]] for one in every}
    assert uses == {"setup": ["devices-0"], "a": ["devices-0"], "b": ["devices-1"]}
    assert pod["metadata"]["annotations"][names.CONVERTED] == f"policy-{namespace.name}:{RESOURCE}=2+2"
    assert "nodeName" in pod["spec"]
    results = namespace.claim_of(pod["metadata"]["name"])["status"]["allocation"]["devices"]["results"]
    assert sorted(result["request"] for result in results) == ["devices-0", "devices-0", "devices-1", "devices-1"]
    eventually(lambda: team.used("gpus")[1] == 4, what="the queue is charged for what was converted")


def test_a_pod_without_a_queue_is_converted_and_runs(namespace: Namespace, policy: Apply) -> None:
    policy(conversions=[{"extendedResource": RESOURCE, "deviceClassName": fleet.DEVICE_CLASS}])
    wait_converted(namespace)

    namespace.create(asking("alone", 1))

    assert "schedulingGates" not in namespace.pod("alone")["spec"]
    namespace.bound("alone")


def convert(team: Team, policy: Apply) -> None:
    """Have the resource converted in a team's namespace, and wait until it is."""
    policy(conversions=[{"extendedResource": RESOURCE, "deviceClassName": fleet.DEVICE_CLASS}])
    wait_converted(team.namespace)


def wait_converted(namespace: Namespace) -> None:
    def converted() -> bool:
        answer = namespace.client.create(f"{namespace.pods}?dryRun=All", asking("dry-run", 1))
        return "resourceClaims" in answer["spec"]

    eventually(converted, what=f"pods of {namespace.name} are converted")


def asking(name: str, gpus: int) -> dict[str, Any]:
    pod = workloads.pod(name)
    pod["spec"]["containers"][0]["resources"] = {"limits": {RESOURCE: str(gpus)}}
    return pod
