"""Extended resources that are devices. The requests are those seen on Kubernetes 1.36.3 and 1.37.1."""

from dataclasses import replace
from typing import Any

import pytest

from admission.api.kubernetes import claims, devices, pods
from admission.api.kubernetes.devices import DeviceClass
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import Uid
from admission.dra import compatibility, gang_planner
from admission.dra.compatibility import Release
from admission.dra.inventory.selectors import Selectors
from admission.dra.planner.no_plan import Kind
from admission.dra.requests import extended_resources
from admission.dra.requests.gang_request import PodDemand
from admission.dra.state import cluster_state
from tests.unit.dra.clusters import STEPS, ClusterBuilder, a_claim, a_cluster, a_request, given, places, refused

G, K = "example.com/gpu", "example.com/nic"
ALLOCATABLE = {"cpu": "8", "memory": "8Gi", "pods": "10"}


def a_class(name: str, resource: str | None, created: str = "2026-01-01T00:00:00Z") -> DeviceClass:
    spec = {} if resource is None else {"extendedResourceName": resource}
    return devices.decode_class({"metadata": {"name": name, "creationTimestamp": created}, "spec": spec})


CLASSES = {"a": a_class("a", G), "b": a_class("b", K)}


def container(**requests: Any) -> dict[str, Any]:
    short = {"g": G, "k": K, "a": f"{extended_resources.IMPLICIT}a"}
    return {"resources": {"requests": {short.get(name, name): str(amount) for name, amount in requests.items()}}}


def sidecar(**requests: Any) -> dict[str, Any]:
    return {**container(**requests), "restartPolicy": "Always"}


def a_pod(*containers: dict[str, Any], init: tuple[dict[str, Any], ...] = (), name: str = "p") -> pods.Pod:
    spec = {"containers": list(containers), "initContainers": list(init)}
    return pods.decode({"metadata": {"name": name, "namespace": "team", "uid": f"pod-{name}"}, "spec": spec})


SEEN: dict[str, tuple[pods.Pod, list[str]]] = {
    "one container": (a_pod(container(g=2)), ["0-0 a 2"]),
    "numbers count every resource": (
        a_pod(container(cpu=1, a=1, g=1, k=1, memory="1Gi")),
        ["0-1 a 1", "0-2 a 1", "0-3 b 1"],
    ),
    "two containers": (a_pod(container(g=1, k=1), container(g=2)), ["0-0 a 1", "0-1 b 1", "1-0 a 2"]),
    "an init container uses what comes after it": (
        a_pod(container(g=1), init=(container(g=2),)),
        ["0-0 a 1", "1-0 a 1"],
    ),
    "the largest of several init containers counts": (
        a_pod(container(g=1), container(g=1), init=(container(g=1), sidecar(g=1), container(g=4), container(g=3))),
        ["1-0 a 1", "2-0 a 2", "4-0 a 1", "5-0 a 1"],
    ),
    "of equal ones the first": (
        a_pod(container(g=1), init=(container(g=3), container(g=3), container(g=1, k=1))),
        ["0-0 a 2", "2-1 b 1", "3-0 a 1"],
    ),
    "an earlier sidecar is of no use": (
        a_pod(container(g=1), init=(sidecar(g=2), container(g=1), container(g=2))),
        ["0-0 a 2", "2-0 a 1", "3-0 a 1"],
    ),
    "names are ordered as texts": (
        a_pod(*(container(g=1) if at in {2, 10} else container(cpu=1) for at in range(11))),
        ["10-0 a 1", "2-0 a 1"],
    ),
}


@pytest.mark.parametrize("case", SEEN)
def test_the_claim_is_the_one_that_kube_scheduler_makes(case: str) -> None:
    pod, expected = SEEN[case]
    claim = extended_resources.claim_of(pod, CLASSES)

    assert claim is not None
    found = [(request.name, request.alternatives[0]) for request in claim.spec.requests]
    assert [
        f"{name.removeprefix('container-').replace('-request-', '-')} {option.device_class} {option.count}"
        for name, option in found
    ] == expected
    assert claim.meta.uid == names.extended_claim(pod.meta.uid)


def test_a_pod_without_such_resources_has_no_claim() -> None:
    assert extended_resources.claim_of(a_pod(container(cpu=1)), CLASSES) is None
    assert extended_resources.claim_of(a_pod(container(**{"other.com/gpu": 1})), CLASSES) is None
    assert extended_resources.claim_of(a_pod(container(g=0)), CLASSES) is None


def test_the_newest_of_several_classes_counts_then_the_first_by_name() -> None:
    newer = a_class("z", G, "2026-02-01T00:00:00Z")

    assert extended_resources.class_of(G, {**CLASSES, "z": newer}) == "z"
    assert extended_resources.class_of(G, {"c": a_class("c", G), **CLASSES}) == "a"


OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "pod-p", "controller": True}
MADE = {"annotations": {extended_resources.ANNOTATION: "true"}, "ownerReferences": [OWNER]}
OWN = {"resourceClaims": [{"name": "own", "resourceClaimName": "c"}]}
FOR = {
    "one that is reserved for a pod which does not name it": ({}, {}, ["pod-p"], True),
    "the same with kube-scheduler's marks": (MADE, {}, ["pod-p"], True),
    "one with the marks that is reserved for nobody": (MADE, {}, [], False),
    "one with the marks that the pod names": (MADE, OWN, ["pod-p"], False),
    "one of another namespace": ({**MADE, "namespace": "other"}, {}, ["pod-p"], False),
    "one with the marks of a pod that is gone": (
        {**MADE, "ownerReferences": [{**OWNER, "uid": "gone"}]},
        {},
        ["gone"],
        True,
    ),
    "one without the marks that is reserved for a pod that is gone": ({}, {}, ["gone"], False),
}


@pytest.mark.parametrize(("metadata", "spec", "users", "is_made"), FOR.values(), ids=FOR)
def test_which_claims_are_made_for_extended_resources(
    metadata: dict[str, Any], spec: dict[str, Any], users: list[str], is_made: bool
) -> None:
    """Users can write what they like into metadata, but not whom a claim is reserved for."""
    pod = pods.decode(
        {
            "metadata": {"name": "p", "namespace": "team", "uid": "pod-p"},
            "spec": {"containers": [container(g=1)], **spec},
        }
    )
    claim = claims.decode(
        {
            "metadata": {"name": "c", "namespace": "team", "uid": "claim-c", **metadata},
            "spec": {},
            "status": {"reservedFor": [{"uid": uid} for uid in users]},
        }
    )

    assert made_for(pod, claim) == ({names.extended_claim(Uid(users[0])): claim} if is_made else {})


def test_a_pod_that_asks_for_nothing_of_that_kind_has_no_such_claim() -> None:
    pod = a_pod(container(cpu=1))
    claim = replace(a_claim("c", a_request()), reserved_for=(pod.meta.uid,))

    assert made_for(pod, claim) == {}


def test_of_two_such_claims_the_last_by_name_counts() -> None:
    pod = a_pod(container(g=1))
    first, second = (replace(a_claim(name, a_request()), reserved_for=(pod.meta.uid,)) for name in ("a", "b"))

    assert made_for(pod, second, first) == {names.extended_claim(pod.meta.uid): second}


def made_for(pod: pods.Pod, *found: claims.Claim) -> dict[Uid, claims.Claim]:
    """Return the claims that go by another UID than their own."""
    snapshot = Snapshot(pods={pod.meta.uid: pod}, claims={claim.meta.key: claim for claim in found})
    indexed = extended_resources.index_claims(snapshot)
    assert all(indexed[claim.meta.uid] is claim for claim in found)
    return {uid: claim for uid, claim in indexed.items() if uid != claim.meta.uid}


def demand(builder: ClusterBuilder, pod: pods.Pod, *claims: Any) -> PodDemand:
    classes = builder.snapshot().classes
    made = extended_resources.claim_of(pod, classes)
    assert made is not None
    return PodDemand(pod=pod, claims=(*claims, made), extended=extended_resources.resources_of(pod.containers, classes))


def clustered(plugged: int = 0) -> ClusterBuilder:
    """Two nodes, each with two devices; node b has a device plugin for some."""
    builder = a_cluster()
    builder.classes[0]["spec"]["extendedResourceName"] = G
    builder.node("a", gpus=2, allocatable=ALLOCATABLE)
    return builder.node("b", gpus=2, allocatable={**ALLOCATABLE, G: str(plugged)})


def test_devices_serve_the_resource_where_no_plugin_does() -> None:
    builder = clustered(2)
    answer = builder.plan(demand(builder, a_pod(container(g=2))))

    assert places(answer) == {"p": "a"}
    assert given(answer) == {"p": ["a/gpu-0", "a/gpu-1"]}


def test_the_claim_comes_after_the_pods_own() -> None:
    builder = clustered()
    answer = builder.plan(demand(builder, a_pod(container(g=1)), a_claim("own", a_request())))

    assert given(answer) == {"p": ["a/gpu-0", "a/gpu-1"]}


def test_a_device_plugin_serves_the_resource_where_devices_cannot() -> None:
    builder = clustered(8)
    answer = builder.plan(demand(builder, a_pod(container(g=8))))

    assert places(answer) == {"p": "b"}
    assert given(answer) == {"p": []}


def test_a_gang_that_plugins_and_devices_would_serve_together_is_told_so() -> None:
    builder = clustered(2)
    gang = [demand(builder, a_pod(container(g=2), name=name)) for name in "pq"]

    message = refused(builder.plan(*gang)).message

    why = f"has a device plugin for {G}, which a gang gets from plugins alone or from devices alone"
    assert message.endswith(f"; b has enough in all, but {why}")


def mixed(*, nics_on: str, slots: int = 2) -> ClusterBuilder:
    """Node a has a device plugin for GPUs, and one node devices for NICs; no GPU is a device."""
    builder = a_cluster().device_class("nic", "device.driver == 'nic.example.com'")
    for one, resource in zip(builder.classes, (G, K), strict=True):
        one["spec"]["extendedResourceName"] = resource
    builder.node("a", allocatable={**ALLOCATABLE, G: str(slots)}).node("b", allocatable=ALLOCATABLE)
    return builder.slice(
        f"{nics_on}-nics", [{"name": f"nic-{at}"} for at in range(2)], driver="nic.example.com", nodeName=nics_on
    )


def test_one_resource_is_a_device_plugins_and_another_one_devices_on_one_node() -> None:
    builder = mixed(nics_on="a")
    answer = builder.plan(*(demand(builder, a_pod(container(g=1, k=1), name=name)) for name in "pq"))

    assert places(answer) == {"p": "a", "q": "a"}
    assert given(answer) == {"p": ["a-nics/nic-0"], "q": ["a-nics/nic-1"]}


def test_one_pod_has_a_plugins_resource_and_another_one_devices() -> None:
    builder = mixed(nics_on="b")
    gang = [demand(builder, a_pod(container(g=1), name="p")), demand(builder, a_pod(container(k=1), name="q"))]

    assert places(builder.plan(*gang)) == {"p": "a", "q": "b"}


def test_a_claim_of_its_own_goes_beside_a_plugins_resource_and_devices() -> None:
    builder = mixed(nics_on="a")
    own = a_claim("own", a_request("nic", deviceClassName="nic"))
    answer = builder.plan(demand(builder, a_pod(container(g=1, k=1)), own))

    assert given(answer) == {"p": ["a-nics/nic-0", "a-nics/nic-1"]}


def test_a_gang_that_waits_for_a_plugins_resource_beside_devices_is_told_of_that() -> None:
    builder = mixed(nics_on="a", slots=1)
    gang = [demand(builder, a_pod(container(g=1, k=1), name=name)) for name in "pq"]

    message = f"pod q needs 1 {G}; the most that is left on a node where it may go is 0 (a), after p took 1 on a"
    assert refused(builder.plan(*gang)).message == message


def test_devices_serve_no_such_resource_on_a_1_35() -> None:
    """The gate is off there."""
    builder, profile = clustered(2), compatibility.profile(Release.V1_35)
    cluster = cluster_state.build(builder.snapshot(), (), profile=profile)
    pod = demand(builder, a_pod(container(g=2)))
    answer = gang_planner.plan([pod], cluster, selectors=Selectors(profile.cel), steps=STEPS)

    assert places(answer) == {"p": "b"}
    assert given(answer) == {"p": []}


def test_a_plugin_does_not_serve_pods_with_claims_of_their_own() -> None:
    """kube-scheduler lets such a pod go there and can never bind it."""
    builder = clustered(8)
    answer = refused(builder.plan(demand(builder, a_pod(container(g=8)), a_claim("own", a_request()))))

    assert answer.kind is Kind.INFEASIBLE


def test_a_resource_that_two_classes_offer_is_not_predicted() -> None:
    builder = clustered()
    builder.classes.append({"metadata": {"name": "other"}, "spec": {"extendedResourceName": G}})

    assert (
        "offered by device classes gpu, other" in refused(builder.plan(demand(builder, a_pod(container(g=1))))).message
    )


def test_a_claim_that_a_pod_names_twice_is_refused_until_it_is_allocated() -> None:
    """kube-scheduler gives its allocator the claim once for each name, so that it never has devices enough."""
    builder = a_cluster().node("a", gpus=2)
    pod, claim = a_pod(container(cpu=1)), a_claim("shared", a_request())

    message = refused(builder.plan(PodDemand(pod=pod, claims=(claim, claim)))).message

    assert "claim shared is named more than once in the pod's resourceClaims" in message


def test_a_claim_is_shared_by_256_consumers_at_most() -> None:
    builder = a_cluster().node("a", gpus=1)
    claim = a_claim("shared", a_request())
    full = replace(claim, reserved_for=tuple(f"pod-{at}" for at in range(256)))
    pod = a_pod(container(cpu=1))
    answer = gang_planner.plan(
        [PodDemand(pod=pod, claims=(full,))], builder.cluster(), selectors=Selectors(), steps=STEPS
    )

    assert "claim shared would have 257 consumers" in refused(answer).message
    assert given(builder.plan(PodDemand(pod=pod, claims=(claim,)))) == {"p": ["a/gpu-0"]}
