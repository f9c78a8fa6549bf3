"""ProvisioningRequests and their PodTemplates: what is sent in which order, and what becomes of a repetition."""

from typing import Any

import pytest

from admission.api.capacity import provisioning_requests
from admission.api.kubernetes.meta import Owner
from admission.api.values.names import Uid
from admission.errors import FixError, GoneError
from admission.kube.client.connection import Connection
from admission.kube.client.errors import AbsentEndpointError
from admission.kube.writers.provisioning_requests import ProvisioningRequestWriter
from admission.scheduling.capacity.capacity_requests import CapacityRequest, PodSet
from tests.integration.kube.fake_api import FakeApi, status
from tests.unit.kube.builders import PODS, a_pod, read, required

REQUESTS = "/apis/autoscaling.x-k8s.io/v1/namespaces/team/provisioningrequests"
TEMPLATES = "/api/v1/namespaces/team/podtemplates"
JOB = Owner(api_version="batch/v1", kind="Job", name="train", uid=Uid("job-1"))
OWNED = [{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "job-1"}]
ZONE = {"key": "zone", "operator": "In", "values": ["x"]}
TYPE = {"key": "type", "operator": "In", "values": ["x8"]}


def a_request(api: FakeApi, pod: dict[str, Any] | None = None) -> CapacityRequest:
    stored = pod or a_pod(resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "x4"}], nodeSelector={"a": "b"})
    stored["metadata"]["labels"] = {"team": "vision", "batch.kubernetes.io/job-name": "train", "job-name": "train"}
    seen = read(api.put(PODS, stored))
    return CapacityRequest(
        name="train-1",
        namespace="team",
        gang="team/train",
        provisioning_class="atomic.example.com",
        parameters={"ValidUntilSeconds": "60"},
        pod_sets=(PodSet(pod=seen, count=3, labels={"type": "x8"}), PodSet(pod=seen, count=1, labels={})),
        owners=(JOB,),
        shapes={"x8": {"type": "x8"}},
    )


def wrote(api: FakeApi) -> list[str]:
    return [f"{one.method} {one.path}" for one in api.asked if one.method != "GET"]


async def test_templates_come_before_the_request_that_names_them_and_belong_to_it_afterwards(
    api: FakeApi, connection: Connection
) -> None:
    await ProvisioningRequestWriter(connection).create(a_request(api))

    names = ["train-1-0", "train-1-1"]
    patches = [f"PATCH {TEMPLATES}/{name}" for name in names]
    assert wrote(api) == [f"POST {TEMPLATES}", f"POST {TEMPLATES}", f"POST {REQUESTS}", *patches]
    body = api.last("POST", REQUESTS).body
    assert body["metadata"]["ownerReferences"] == OWNED
    assert body["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "muster"}
    assert body["metadata"]["annotations"] == {
        "muster.dev/gang": "team/train",
        "muster.dev/matched-labels": '{"x8": {"type": "x8"}}',
    }
    assert body["spec"] == {
        "provisioningClassName": "atomic.example.com",
        "parameters": {"ValidUntilSeconds": "60"},
        "podSets": [
            {"count": count, "podTemplateRef": {"name": name}} for count, name in zip((3, 1), names, strict=True)
        ],
    }
    (request,) = api.objects["/apis/autoscaling.x-k8s.io/v1/provisioningrequests"].values()
    owner = api.last("PATCH", f"{TEMPLATES}/train-1-0").body["metadata"]["ownerReferences"]
    assert [(one["kind"], one["uid"]) for one in owner] == [("ProvisioningRequest", request["metadata"]["uid"])]


async def test_a_template_is_the_pod_without_gates_and_labels_of_controllers_kept_to_the_shape(
    api: FakeApi, connection: Connection
) -> None:
    affinity = required({"matchExpressions": [ZONE]})
    await ProvisioningRequestWriter(connection).create(a_request(api, a_pod(affinity=affinity, nodeName="")))

    sent = [one.body["template"] for one in api.asked if one.path == TEMPLATES]
    assert [one["metadata"] for one in sent] == [{"labels": {"team": "vision"}}] * 2
    assert sent[0]["spec"] == {
        "containers": [{"name": "main"}],
        "affinity": required({"matchExpressions": [ZONE, TYPE]}),
    }
    assert sent[1]["spec"]["affinity"] == affinity, "a pod for a node that is there is kept to no shape"


async def test_what_is_there_already_is_left_as_it_is(api: FakeApi, connection: Connection) -> None:
    writer, request = ProvisioningRequestWriter(connection), a_request(api)
    await writer.create(request)
    before = {path: dict(found) for path, found in api.objects.items() if "provisioning" in path}

    await writer.create(request)

    assert {path: dict(found) for path, found in api.objects.items() if "provisioning" in path} == before


async def test_a_request_is_deleted_before_its_templates_and_only_if_it_is_still_the_same(
    api: FakeApi, connection: Connection
) -> None:
    writer = ProvisioningRequestWriter(connection)
    await writer.create(a_request(api))
    (stored,) = api.objects["/apis/autoscaling.x-k8s.io/v1/provisioningrequests"].values()
    made = provisioning_requests.decode(stored)
    api.asked.clear()

    await writer.delete(made)

    gone = [f"{TEMPLATES}/train-1-0", f"{TEMPLATES}/train-1-1"]
    assert wrote(api) == [f"DELETE {REQUESTS}/train-1", *(f"DELETE {path}" for path in gone)]
    assert api.last("DELETE", f"{REQUESTS}/train-1").body["preconditions"] == {"uid": made.meta.uid}
    await writer.delete(made)


async def test_a_pod_that_is_gone_is_no_template(api: FakeApi, connection: Connection) -> None:
    request = a_request(api)
    api.put(PODS, {**a_pod(), "metadata": {"name": "a", "namespace": "team", "uid": "another"}})

    with pytest.raises(GoneError, match="another has its name"):
        await ProvisioningRequestWriter(connection).create(request)

    assert wrote(api) == []


async def test_where_the_kind_is_not_served_it_says_so(api: FakeApi, connection: Connection) -> None:
    request = a_request(api)
    api.absent.add(REQUESTS)

    with pytest.raises(AbsentEndpointError):
        await ProvisioningRequestWriter(connection).create(request)


async def test_a_request_that_is_invalid_is_told_in_the_servers_words(api: FakeApi, connection: Connection) -> None:
    api.answer("POST", REQUESTS, 422, status(422, "Invalid", "spec.provisioningClassName: too long"))

    with pytest.raises(FixError, match="provisioningClassName: too long"):
        await ProvisioningRequestWriter(connection).create(a_request(api))


ALL_TEMPLATES = "/api/v1/podtemplates"


async def test_templates_without_a_request_are_deleted_and_those_of_others_stay(
    api: FakeApi, connection: Connection
) -> None:
    api.answer("POST", REQUESTS, 403, status(403, "Forbidden", "exceeded quota: requests"))
    writer = ProvisioningRequestWriter(connection)
    with pytest.raises(FixError, match="exceeded quota"):
        await writer.create(a_request(api))
    theirs = {"name": "theirs-0", "namespace": "team", "labels": {"app.kubernetes.io/managed-by": "muster"}}
    api.put(ALL_TEMPLATES, {"metadata": theirs})
    made = {f"team/{name}" for name in ("train-1-0", "train-1-1")}
    api.asked.clear()

    assert await writer.delete_unused({"team/train-1"}) == []
    assert {*await writer.delete_unused(())} == made

    assert [*api.objects[ALL_TEMPLATES]] == ["team/theirs-0"]
    assert api.asked[0].query["labelSelector"] == "app.kubernetes.io/managed-by=muster"
    assert all(one.body["preconditions"]["uid"] for one in api.asked if one.method == "DELETE")


async def test_without_the_right_to_list_templates_the_error_names_it(api: FakeApi, connection: Connection) -> None:
    api.answer("GET", ALL_TEMPLATES, 403, status(403, "Forbidden", 'cannot list resource "podtemplates"'))

    with pytest.raises(FixError, match="list podtemplates"):
        await ProvisioningRequestWriter(connection).delete_unused(())


async def test_requests_are_found_by_label_and_there_are_none_where_the_kind_is_not_served(
    api: FakeApi, connection: Connection
) -> None:
    writer = ProvisioningRequestWriter(connection)
    await writer.create(a_request(api))
    api.put("/apis/autoscaling.x-k8s.io/v1/provisioningrequests", {"metadata": {"name": "x", "namespace": "team"}})

    assert [one.meta.key for one in await writer.found()] == ["team/train-1"]
    api.absent.add("/apis/autoscaling.x-k8s.io/v1/provisioningrequests")
    assert await writer.found() == ()
