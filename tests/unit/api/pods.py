"""Pods that differ from a good one in one thing that Kubernetes refuses, and the field at fault.

The unit tests judge them by our rules; tests/e2e/test_validation.py sends the same ones to a real API server.
"""

from typing import Any

from tests.unit.api.cases import LONG, Case, Json

GPU = "example.com/gpu"
ONE = {"name": "gpus", "resourceClaimName": "one"}
MAIN = "spec.containers[0]"


def pod(*containers: Json, **spec: Any) -> Json:
    body = {"containers": list(containers) or [container()], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "good"}, "spec": body}


def container(name: str = "main", **resources: Any) -> Json:
    return {"name": name, "image": "train", **({"resources": resources} if resources else {})}


def using(*claims: Json, **spec: Any) -> Json:
    return pod(container(claims=list(claims)), **{"resourceClaims": [ONE], **spec})


def asking(limits: Json | None = None, requests: Json | None = None) -> Json:
    return pod(container(limits=limits or {}, requests=requests or {}))


REFUSED = {
    "a claim that the pod does not declare": Case(using({"name": "gpu"}), f"{MAIN}.resources.claims[0]"),
    "a claim where the pod has none": Case(using({"name": "gpus"}, resourceClaims=[]), f"{MAIN}.resources.claims[0]"),
    "a used claim without a name": Case(using({"request": "a"}), f"{MAIN}.resources.claims[0]"),
    "a claim used twice": Case(using({"name": "gpus"}, {"name": "gpus"}), f"{MAIN}.resources.claims[1]"),
    "a request used twice": Case(
        using({"name": "gpus", "request": "a"}, {"name": "gpus", "request": "a"}), f"{MAIN}.resources.claims[1]"
    ),
    "a claim used whole after a part": Case(
        using({"name": "gpus", "request": "a"}, {"name": "gpus"}), f"{MAIN}.resources.claims[1]"
    ),
    "a part used after the whole": Case(
        using({"name": "gpus"}, {"name": "gpus", "request": "a"}), f"{MAIN}.resources.claims[1]"
    ),
    "a used request that is no label": Case(
        using({"name": "gpus", "request": "a.b"}), f"{MAIN}.resources.claims[0].request"
    ),
    "a claim of an init container that the pod does not declare": Case(
        pod(initContainers=[container("first", claims=[{"name": "x"}])], resourceClaims=[ONE]),
        "spec.initContainers[0].resources.claims[0]",
    ),
    "two claims of one name": Case(pod(resourceClaims=[ONE, ONE]), "spec.resourceClaims[1].name"),
    "a claim's name that is no label": Case(
        pod(resourceClaims=[{**ONE, "name": "a.b"}]), "spec.resourceClaims[0].name"
    ),
    "a claim's name that is too long": Case(pod(resourceClaims=[{**ONE, "name": LONG}]), "spec.resourceClaims[0].name"),
    "a claim without a name": Case(pod(resourceClaims=[{"resourceClaimName": "a"}]), "spec.resourceClaims[0].name"),
    "a claim of nothing": Case(pod(resourceClaims=[{"name": "gpus"}]), "spec.resourceClaims[0]"),
    "a claim that is a template's, too": Case(
        pod(resourceClaims=[{**ONE, "resourceClaimTemplateName": "one"}]), "spec.resourceClaims[0]"
    ),
    "the name of no claim": Case(
        pod(resourceClaims=[{**ONE, "resourceClaimName": "One"}]), "spec.resourceClaims[0].resourceClaimName"
    ),
    "the name of no template": Case(
        pod(resourceClaims=[{"name": "gpus", "resourceClaimTemplateName": "a/b"}]),
        "spec.resourceClaims[0].resourceClaimTemplateName",
    ),
    "half a GPU": Case(asking({GPU: "0.5"}), f"{MAIN}.resources.limits.{GPU}"),
    "less GPUs than the limit": Case(asking({GPU: "2"}, {GPU: "1"}), f"{MAIN}.resources.requests"),
    "more GPUs than the limit": Case(asking({GPU: "1"}, {GPU: "2"}), f"{MAIN}.resources.requests"),
    "GPUs without a limit": Case(asking({}, {GPU: "1"}), f"{MAIN}.resources.limits"),
    "more cores than the limit": Case(asking({"cpu": "1"}, {"cpu": "2"}), f"{MAIN}.resources.requests"),
    "less than no memory": Case(asking({}, {"memory": "-1"}), f"{MAIN}.resources.requests.memory"),
    "a resource that nobody knows": Case(asking({"gpu": "1"}), f"{MAIN}.resources.limits.gpu"),
    "a resource of quotas": Case(asking({"pods": "1"}), f"{MAIN}.resources.limits.pods"),
    "a resource that is no name": Case(asking({"a b/c": "1"}), f"{MAIN}.resources.limits.a b/c"),
    "a resource in the words of quotas": Case(
        asking({f"requests.{GPU}": "1"}), f"{MAIN}.resources.limits.requests.{GPU}"
    ),
    "huge pages alone": Case(asking({"hugepages-2Mi": "4Mi"}), f"{MAIN}.resources"),
    "half a huge page": Case(
        asking({"cpu": "1", "hugepages-2Mi": "3Mi"}), f"{MAIN}.resources.limits.hugepages-2Mi"
    ),
    "huge pages of no size": Case(
        asking({"cpu": "1", "hugepages-x": "2Mi"}), f"{MAIN}.resources.limits.hugepages-x"
    ),
    "two containers of one name": Case(pod(container(), container()), "spec.containers[1].name"),
    "an init container with a container's name": Case(
        pod(initContainers=[container()]), "spec.initContainers[0].name"
    ),
    "a container's name that is no label": Case(pod(container("A")), f"{MAIN}.name"),
    "a container without a name": Case(pod({"image": "train"}), f"{MAIN}.name"),
    "claims of a pod as a whole": Case(
        pod(resources={"claims": [{"name": "gpus"}], "limits": {"cpu": "1"}}, resourceClaims=[ONE]),
        "spec.resources.claims",
    ),
    "GPUs of a pod as a whole": Case(pod(resources={"limits": {GPU: "1"}}), f"spec.resources.limits.{GPU}"),
    "less than its containers": Case(
        pod(container(requests={"cpu": "2"}), resources={"requests": {"cpu": "1500m"}}), "spec.resources.requests.cpu"
    ),
    "a container's limit above that of its pod": Case(
        pod(container(limits={"memory": "2Gi"}, requests={"memory": "1Mi"}), resources={"limits": {"memory": "1Gi"}}),
        f"{MAIN}.resources.limits.memory",
    ),
}  # fmt: skip

GOOD = {
    "a pod that asks for nothing": pod(),
    "a claim": using({"name": "gpus"}),
    "parts of a claim": using({"name": "gpus", "request": "a"}, {"name": "gpus", "request": "b"}),
    "a claim that no container uses": pod(resourceClaims=[ONE]),
    "GPUs with a limit alone": asking({GPU: "2"}),
    "GPUs as requested and limited": asking({GPU: "2"}, {GPU: "2000m"}),
    "almost one GPU, which counts as one": asking({GPU: "0.99999"}),
    "a resource of Kubernetes' own domain": asking({"kubernetes.io/batteries": "0.5"}),
    "huge pages": asking({"memory": "1Gi", "hugepages-2Mi": "4Mi"}),
    "cores of a pod as a whole": pod(
        container(requests={"cpu": "1"}), resources={"requests": {"cpu": "2"}, "limits": {"cpu": "4"}}
    ),
    "a container of each kind": pod(initContainers=[container("first")]),
}
