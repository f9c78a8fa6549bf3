"""Manifests in the shape of the examples of public DRA drivers: the API server takes what Muster makes of each."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.controlplane import ApiError, ControlPlane, workloads
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.e2e import policies
from tests.e2e.musters import Muster
from tests.e2e.teams import GROUP, found_team

EXAMPLES = Path(__file__).parent / "data" / "examples"
"""Ours, in the shape of those of kubernetes-sigs/dra-example-driver (demo/examples) and NVIDIA/k8s-dra-driver-gpu
(demo/specs)."""

COLLECTIONS = {
    "Pod": "/api/v1/namespaces/{}/pods",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "ResourceClaim": "/apis/{}/namespaces/{}/resourceclaims",
    "ResourceClaimTemplate": "/apis/{}/namespaces/{}/resourceclaimtemplates",
}


@pytest.fixture
def policy(muster: Muster, namespace: Namespace) -> Iterator[None]:
    """A policy that gives every request of the namespace something."""
    toleration = {"key": "example.com/draining", "operator": "Exists"}
    selectors = [{"cel": {"expression": "true"}}]
    default = {"labels": {"cost-centre": "r-17"}, "tolerations": [toleration], "selectors": selectors}
    with policies.in_force(namespace, {"defaults": [default]}):
        yield


@pytest.mark.usefixtures("policy")
@pytest.mark.since("1.36", "capacity and tolerations of claims are dropped")
@pytest.mark.parametrize("example", ["example-driver", "nvidia", "nvidia-v1beta1"])
def test_what_muster_makes_of_public_examples_is_stored(
    control_plane: ControlPlane, namespace: Namespace, example: str
) -> None:
    client = control_plane.client()
    documents = list(yaml.safe_load_all((EXAMPLES / f"{example}.yaml").read_text()))
    if any(client.find(f"/apis/{one['apiVersion']}") is None for one in documents if "/" in one["apiVersion"]):
        pytest.skip("this API server serves v1")
    team = found_team(control_plane, namespace, gpus=4, unmeteredClasses="Allow", stopPolicy="Hold")

    for document in documents:
        store(namespace, document)

    pods = [document for document in documents if document["kind"] in ("Pod", "Job", "Deployment")]
    wanted = sum(pods_of(document) for document in pods)
    stored = eventually(
        lambda: found if len(found := client.items(namespace.pods)) == wanted else None, what=f"{wanted} pods"
    )
    assert [gates_of(pod) for pod in stored] == [[workloads.GATE]] * wanted
    for kind in ("jobs", "deployments"):
        client.delete(f"/apis/{'batch' if kind == 'jobs' else 'apps'}/v1/namespaces/{namespace.name}/{kind}")
    team.disband()
    for document in documents:
        if document["kind"] == "DeviceClass":
            client.delete(f"/apis/{document['apiVersion']}/deviceclasses/{document['metadata']['name']}")


def store(namespace: Namespace, document: dict[str, Any]) -> None:
    """Create what a document says. What is stored says at least that, and once more changes nothing."""
    client, kind, version = namespace.client, document["kind"], document["apiVersion"]
    name = document["metadata"].get("name")
    if kind == "Namespace":
        client.merge_patch(f"/api/v1/namespaces/{namespace.name}", {"metadata": document["metadata"]})
    elif kind == "DeviceClass":
        client.apply(f"/apis/{version}/deviceclasses/{name}", document)
    elif kind in ("ResourceClaim", "ResourceClaimTemplate"):
        collection = COLLECTIONS[kind].format(version, namespace.name)
        stored = client.create(collection, document)
        assert stored["metadata"]["labels"].items() >= {"cost-centre": "r-17"}.items()
        for asked, made in zip(requests_of(document), requests_of(stored), strict=True):
            check_request(asked, made)
        again = {**document, "metadata": {"name": "again", "labels": stored["metadata"]["labels"]}}
        again["spec"] = stored["spec"]
        assert client.create(f"{collection}?dryRun=All", again)["spec"] == stored["spec"]
    else:
        stored = client.create(COLLECTIONS[kind].format(namespace.name), document)
        asked, made = (one["spec"] if kind == "Pod" else one["spec"]["template"]["spec"] for one in (document, stored))
        assert made.get("resourceClaims", []) == asked.get("resourceClaims", [])
        for part in ("initContainers", "containers"):
            assert [used_by(container) for container in made.get(part, [])] == [
                used_by(container) for container in asked.get(part, [])
            ]


def requests_of(document: dict[str, Any]) -> Any:
    spec = document["spec"]["spec"] if document["kind"] == "ResourceClaimTemplate" else document["spec"]
    return spec["devices"]["requests"]


def check_request(asked: dict[str, Any], made: dict[str, Any]) -> None:
    """Every alternative keeps what its author wrote, and tolerates what the policy gives."""
    for part, stored in zip(alternatives_of(asked), alternatives_of(made), strict=True):
        assert stored.items() >= {key: value for key, value in part.items() if key != "selectors"}.items()
        assert part.get("selectors", []) == stored["selectors"][: len(part.get("selectors", []))]
        assert stored["tolerations"]


def alternatives_of(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the parts of a request that say what it asks for; in v1beta1 a request says so itself."""
    return request.get("firstAvailable") or [request.get("exactly") or request]


def used_by(container: dict[str, Any]) -> Any:
    return container.get("resources", {}).get("claims", [])


def pods_of(document: dict[str, Any]) -> int:
    spec = document["spec"]
    return int(spec.get("parallelism") or spec.get("replicas") or 1)


def gates_of(pod: Any) -> list[str]:
    return [gate["name"] for gate in pod["spec"].get("schedulingGates", [])]


@pytest.mark.usefixtures("policy")
def test_a_queue_that_closes_a_circle_is_refused_by_the_api_server(
    control_plane: ControlPlane, namespace: Namespace
) -> None:
    client = control_plane.client()
    one_, other = (f"{letter}-{namespace.name}" for letter in "ab")
    queues = f"{GROUP}/queues"

    def queue(name: str, parent: str) -> dict[str, Any]:
        metadata = {"name": name}
        return {"apiVersion": "muster.dev/v1alpha1", "kind": "Queue", "metadata": metadata, "spec": {"parent": parent}}

    client.create(queues, queue(one_, other))

    def refused() -> bool:
        try:
            client.create(f"{queues}?dryRun=All", queue(other, one_))
        except ApiError as error:
            return "is its own ancestor" in str(error)
        return False

    try:
        eventually(refused, what="Muster has seen the first queue")
    finally:
        client.delete(f"{queues}/{one_}")
