"""Objects with a field that is not known, each with the field and the name that was meant; "" if nothing is near.

The unit tests judge them by our list; tests/e2e/test_validation.py sends them to a real API server.
"""

from typing import Any

from tests.unit.api.cases import Json, an_object

GPU = {"deviceClassName": "gpu.example.com"}
CONTAINER = {"name": "main", "image": "train"}


def claim(request: Json, **devices: Any) -> Json:
    return an_object("ResourceClaim", {"devices": {"requests": [{"name": "gpu", **request}], **devices}})


def pod(**spec: Any) -> Json:
    body = {"containers": [CONTAINER], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "good"}, "spec": body}


def job(template: Json | None = None, **spec: Any) -> Json:
    body = {"template": {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}, **(template or {})}, **spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "good"}, "spec": body}


def node(**metadata: Any) -> Json:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "good", **metadata}}


REQUEST = "spec.devices.requests[0]"

KUBERNETES: dict[str, tuple[Json, str, str]] = {
    "a misspelt topology of a storage class": (
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "good"},
            "provisioner": "disk.example.com",
            "allowedTopologys": [],
        },
        "allowedTopologys",
        "allowedTopologies",
    ),
    "a misspelt overhead of a runtime class": (
        {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": "good"},
            "handler": "kata",
            "overheads": {"podFixed": {"cpu": "1"}},
        },
        "overheads",
        "overhead",
    ),
    "an access mode in the singular": (
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "good"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "accessMode": "ReadWriteOnce",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        },
        "spec.accessMode",
        "accessModes",
    ),
    "a field of pods in the spec of a Job": (
        job(nodeSelector={"gpu": "yes"}),
        "spec.nodeSelector",
        "spec.template.spec.nodeSelector",
    ),
    "a misspelt count": (claim({"exactly": {**GPU, "counts": 2}}), f"{REQUEST}.exactly.counts", "count"),
    "a selector in the singular": (
        claim({"exactly": {**GPU, "selector": []}}),
        f"{REQUEST}.exactly.selector",
        "selectors",
    ),
    "constraint in the singular": (
        claim({"exactly": GPU}, constraint=[]),
        "spec.devices.constraint",
        "constraints",
    ),
    "a template without its inner spec": (
        an_object(
            "ResourceClaimTemplate",
            {"devices": {"requests": [{"name": "gpu", "exactly": GPU}]}, "spec": {"devices": {}}},
        ),
        "spec.devices",
        "spec.spec.devices",
    ),
    "a request in the form of v1beta1": (
        claim({"exactly": GPU, "deviceClassName": "gpu.example.com"}),
        f"{REQUEST}.deviceClassName",
        f"{REQUEST}.exactly.deviceClassName or {REQUEST}.firstAvailable[].deviceClassName",
    ),
    "a device's attribute without its type": (
        an_object(
            "ResourceSlice",
            {
                "driver": "gpu.example.com",
                "nodeName": "node-1",
                "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "gpu-0", "attributes": {"model": {"text": "H100", "string": "H100"}}}],
            },
        ),
        "spec.devices[0].attributes[model].text",
        "",
    ),
    "a class's selector in the singular": (an_object("DeviceClass", {"selector": []}), "spec.selector", "selectors"),
    "claims in the singular": (pod(resourceClaim=[]), "spec.resourceClaim", "resourceClaims"),
    "claims of a pod in its container": (
        pod(containers=[{**CONTAINER, "resourceClaims": []}]),
        "spec.containers[0].resourceClaims",
        "spec.resourceClaims",
    ),
    "a source as in v1alpha2": (
        pod(resourceClaims=[{"name": "gpu", "resourceClaimName": "a", "source": {}}]),
        "spec.resourceClaims[0].source",
        "write resourceClaimName or resourceClaimTemplateName beside the claim's name",
    ),
    "a pod's field of an affinity": (
        pod(affinity={"nodeAffinity": {"required": {}}}),
        "spec.affinity.nodeAffinity.required",
        "",
    ),
    "misspelt parallelism": (job(paralellism=4), "spec.paralellism", "parallelism"),
    "a field of the pod in its template": (
        job({"restartPolicy": "Never"}),
        "spec.template.restartPolicy",
        "spec.template.spec.restartPolicy",
    ),
    "labels in the singular": (node(label={"a": "b"}), "metadata.label", "labels"),
    "a field that is null": (pod(nodeSelectors=None), "spec.nodeSelectors", "nodeSelector"),
}
"""Of kinds of Kubernetes; nothing else is wrong with any of them."""
