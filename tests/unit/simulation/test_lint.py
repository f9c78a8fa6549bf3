"""What `muster lint` says of manifests: each remark by its code, severity and field."""

from collections.abc import Sequence
from typing import Any

import pytest

from admission.api.values.names import QUEUE
from admission.simulation import lint
from admission.simulation.lint import Linted

CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpu.example.com"},
    "spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]},
}
TRAP = "device.attributes['gpu.example.com'].model == 'H100'"
AT = "spec.spec.devices.requests[0].exactly"


def hardware(count: int = 4, **device: Any) -> dict[str, Any]:
    devices = [{"name": f"gpu-{number}", **device} for number in range(count)]
    pool = {"name": "node-a", "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "node-a"},
        "spec": {"driver": "gpu.example.com", "nodeName": "node-a", "pool": pool, "devices": devices},
    }


def template(*expressions: str, **exactly: Any) -> dict[str, Any]:
    asked: dict[str, Any] = {"deviceClassName": "gpu.example.com", **exactly}
    if expressions:
        asked["selectors"] = [{"cel": {"expression": text}} for text in expressions]
    return template_of({"name": "gpu", "exactly": asked})


def template_of(*requests: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "one", "namespace": "vision"},
        "spec": {"spec": {"devices": {"requests": list(requests)}}},
    }


def own(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "muster.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


SHAPE = own(
    "NodeShape",
    "x8",
    maxCount=1,
    matchLabels={"type": "x8"},
    allocatable={"cpu": 8},
    resourceSlices=[{"driver": "gpu.example.com", "devices": [{"name": f"gpu-{number}"} for number in range(8)]}],
)


def policy(*rules: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return own("ClaimPolicy", "house", rules=[{"message": "not so", **rule} for rule in rules], **spec)


POD: dict[str, Any] = {
    "metadata": {"labels": {QUEUE: "q"}},
    "spec": {"containers": [{"name": "main", "image": "train"}], "restartPolicy": "Never"},
}


def deadline_job(**spec: Any) -> dict[str, Any]:
    whole = {"activeDeadlineSeconds": 3600, "template": POD, **spec}
    metadata = {"name": "train", "namespace": "vision"}
    kept = {key: value for key, value in whole.items() if value is not None}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": kept}


def classed_job(name: str) -> dict[str, Any]:
    job = deadline_job(activeDeadlineSeconds=None)
    labels = {"muster.dev/queue": "q", "muster.dev/priority-class": name}
    return job | {"metadata": {**job["metadata"], "labels": labels}}


def a_pod(*used: dict[str, str]) -> dict[str, Any]:
    """A pod that uses claims in its only container; it declares gpus, of the template."""
    spec = {
        "resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "one"}],
        "containers": [{"name": "main", "image": "train", "resources": {"claims": list(used)}}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train", "namespace": "vision"}, "spec": spec}


def namespace_of(labels: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "vision", "labels": labels}}


def stored(obj: dict[str, Any]) -> dict[str, Any]:
    return {**obj, "metadata": {**obj["metadata"], "uid": "u-1"}}


def training_job() -> dict[str, Any]:
    spec = {"runPolicy": {"activeDeadlineSeconds": 60}, "pytorchReplicaSpecs": {"Worker": {"template": POD}}}
    metadata = {"name": "train", "namespace": "vision"}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": metadata, "spec": spec}


def outsiders() -> list[dict[str, Any]]:
    """Return a Job that takes a device, and names no queue."""
    claims = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    spec: Any = POD["spec"]
    pod = {"spec": {**spec, "resourceClaims": claims}}
    return [template(), deadline_job(activeDeadlineSeconds=None, template=pod)]


def demanding(name: str) -> dict[str, Any]:
    metadata = {"name": name, "labels": {"muster.dev/require-queue": "true"}}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def preferring(selector: str) -> dict[str, Any]:
    kind = {"name": "a", "deviceClasses": ["gpu.example.com"], "selector": selector}
    return own("Queue", "q", namespaceSelector={}, preferences={"kinds": [kind]})


def told(linted: Linted) -> list[tuple[str, str, str]]:
    return [(remark.severity, remark.code, remark.field) for remark in linted.remarks]


FOUND: dict[str, tuple[Sequence[Any], list[tuple[str, str, str]]]] = {
    "nothing is wrong": ([CLASS, hardware(), template(count=4)], []),
    "an unguarded look-up, where the class is not known": (
        [template(TRAP)],
        [("warning", "UnguardedLookup", f"{AT}.selectors[0].cel.expression")],
    ),
    "an unguarded look-up behind a class that selects its driver": ([CLASS, template(TRAP)], []),
    "a kind of devices that there are": ([CLASS, hardware(), preferring("true")], []),
    "a kind of which there is no device": (
        [CLASS, hardware(), preferring("device.driver == 'other'")],
        [("warning", "NeverFits", "spec.preferences.kinds[0]")],
    ),
    "a kind whose selector fails on a device": (
        [CLASS, hardware(), preferring("device.attributes['gpu.example.com'].none == 'a'")],
        [("error", "FailsOnDevice", "spec.preferences.kinds[0].selector")],
    ),
    "a deadline of a Job that waits at its pods' gates": (
        [own("Queue", "q", namespaceSelector={}), deadline_job()],
        [("warning", "DeadlineWhileHeld", "spec.activeDeadlineSeconds")],
    ),
    "a deadline of a Job that is held as a whole": (
        [own("Queue", "q", namespaceSelector={}, holdAt="Workload"), deadline_job()],
        [],
    ),
    "a priority class of a Job that its queue does not have": (
        [
            own("Queue", "q", namespaceSelector={}, priorityClasses=[{"name": "urgent", "value": 9}]),
            classed_job("urgnt"),
        ],
        [("warning", "UnknownPriorityClass", "metadata.labels")],
    ),
    "a priority class of a Job that its queue has": (
        [
            own("Queue", "q", namespaceSelector={}, priorityClasses=[{"name": "urgent", "value": 9}]),
            classed_job("urgent"),
        ],
        [],
    ),
    "devices that a Meter counts, of a Job that enters no queue": (
        [CLASS, own("Meter", "gpus", sources=[{"deviceClasses": ["gpu.example.com"], "count": {}}]), *outsiders()],
        [("warning", "OutsideQueues", "spec")],
    ),
    "devices that no Meter counts, of a Job that enters no queue": ([CLASS, *outsiders()], []),
    "devices of a Job that enters no queue where its namespace demands one": (
        [CLASS, demanding("vision"), *outsiders()],
        [("error", "Denied", "spec")],
    ),
    "a deadline of a Job that enters no queue": ([deadline_job(template={"spec": POD["spec"]})], []),
    "no deadline of a Job": ([own("Queue", "q", namespaceSelector={}), deadline_job(activeDeadlineSeconds=None)], []),
    "a deadline of a training job": (
        [own("Queue", "q", namespaceSelector={}), training_job()],
        [("warning", "DeadlineWhileHeld", "spec.runPolicy.activeDeadlineSeconds")],
    ),
    "a field that a training job does not have": (
        [
            own("Queue", "q", namespaceSelector={}),
            {**training_job(), "spec": {"runPolicys": {}, "pytorchReplicaSpecs": {"Worker": {"template": POD}}}},
        ],
        [("warning", "UnknownField", "spec.runPolicys")],
    ),
    "a claim that a container uses and its pod does not declare": (
        [template(), a_pod({"name": "gpu"})],
        [("error", "Refused", "spec.containers[0].resources.claims[0]")],
    ),
    "a request that the claim of a container does not have": (
        [template(), a_pod({"name": "gpus", "request": "other"})],
        [("warning", "UnknownRequest", "spec.containers[0].resources.claims[0].request")],
    ),
    "a request that the claim of a container has": ([template(), a_pod({"name": "gpus", "request": "gpu"})], []),
    "a request of a claim that is not in the input": ([a_pod({"name": "gpus", "request": "other"})], []),
    "admin access in a namespace without the label": (
        [template(adminAccess=True), namespace_of({"team": "vision"})],
        [("error", "Refused", f"{AT}.adminAccess")],
    ),
    "admin access in a namespace with the label": (
        [template(adminAccess=True), namespace_of({"resource.kubernetes.io/admin-access": "true"})],
        [],
    ),
    "admin access that an API server has let in": (
        [stored(template(adminAccess=True)), namespace_of({})],
        [],
    ),
    "a class whose selector fails on a device is told, and not each template of it": (
        [
            {
                **CLASS,
                "spec": {"selectors": [{"cel": {"expression": "device.attributes['gpu.example.com'].model == 'a'"}}]},
            },
            hardware(),
            template(),
        ],
        [
            ("warning", "UnguardedLookup", "spec.selectors[0].cel.expression"),
            ("error", "FailsOnDevice", "spec.selectors"),
        ],
    ),
    "a version as text": (
        [CLASS, template("device.attributes['gpu.example.com'].version == '1.2.3'")],
        [("warning", "VersionAsText", f"{AT}.selectors[0].cel.expression")],
    ),
    "a test that is always true, in a class": (
        [{**CLASS, "spec": {"selectors": [{"cel": {"expression": "has(device.attributes.gpu)"}}]}}],
        [("warning", "AlwaysTrue", "spec.selectors[0].cel.expression")],
    ),
    "a comparison with another type": (
        [
            CLASS,
            hardware(attributes={"index": {"int": 1}}),
            template("device.attributes['gpu.example.com'].index == '1'"),
        ],
        [("warning", "NeverEqual", f"{AT}.selectors[0].cel.expression"), ("error", "NeverFits", AT)],
    ),
    "a selector that fails on a device": (
        [CLASS, hardware(), template(TRAP)],
        [("error", "FailsOnDevice", f"{AT}.selectors")],
    ),
    "CEL that does not compile": (
        [CLASS, template("device.foo")],
        [("error", "Refused", f"{AT}.selectors[0].cel.expression")],
    ),
    "a class that is not there": (
        [CLASS, template(deviceClassName="gpus")],
        [("warning", "UnknownClass", f"{AT}.deviceClassName")],
    ),
    "a class that a policy replaces": (
        [
            CLASS,
            template(deviceClassName="gpus"),
            policy(defaults=[{"deviceClasses": ["gpus"], "deviceClassName": "g"}]),
        ],
        [],
    ),
    "more than a node has": ([CLASS, hardware(4), template(count=5)], [("error", "NeverFits", AT)]),
    "no more than a node has that may come": ([CLASS, hardware(4), SHAPE, template(count=5)], []),
    "more than a node has of devices that are shared": (
        [CLASS, hardware(4, allowMultipleAllocations=True), template(count=5)],
        [],
    ),
    "all of nothing": (
        [CLASS, hardware(4), template("device.driver == 'x'", allocationMode="All")],
        [("error", "NeverFits", AT)],
    ),
    "one alternative that fits": (
        [
            CLASS,
            hardware(4),
            template_of(
                {
                    "name": "gpu",
                    "firstAvailable": [
                        {"name": "many", "deviceClassName": "gpu.example.com", "count": 8},
                        {"name": "few", "deviceClassName": "gpu.example.com", "count": 2},
                    ],
                }
            ),
        ],
        [],
    ),
    "what a policy denies": (
        [policy({"cel": "request.exactly.count <= 8"}), template(count=9)],
        [("error", "PolicyViolation", "spec.spec.devices.requests")],
    ),
    "what a policy denies after its defaults": (
        [
            policy(
                {"cel": "request.exactly.deviceClassName != 'big'"},
                defaults=[{"deviceClasses": ["gpu.example.com"], "deviceClassName": "big"}],
            ),
            template(),
        ],
        [("error", "PolicyViolation", "spec.spec.devices.requests")],
    ),
    "what a policy warns of": (
        [policy({"cel": "request.exactly.count <= 8", "action": "Warn"}), template(count=9)],
        [("warning", "PolicyWarning", "spec.spec.devices.requests")],
    ),
    "what a policy for other namespaces denies": (
        [policy({"cel": "false"}, namespaceSelector={"matchLabels": {"team": "vision"}}), template(count=9)],
        [],
    ),
    "more than Kubernetes allocates in a claim": ([template(count=33)], [("error", "Denied", "spec")]),
    "a request of v1beta1": (
        [
            {
                **template_of({"name": "gpu", "deviceClassName": "a", "selectors": [{"cel": {"expression": TRAP}}]}),
                "apiVersion": "resource.k8s.io/v1beta1",
            }
        ],
        [("warning", "UnguardedLookup", f"{AT}.selectors[0].cel.expression")],
    ),
    "a rule that does not compile": (
        [policy({"cel": "object.x"}), template()],
        [("error", "Refused", "spec.rules[0].cel")],
    ),
    "a rule that reads a field that no claim has": (
        [policy({"cel": "!has(request.exactly.cuont)"}), template()],
        [("warning", "Doubtful", "spec.rules[0].cel")],
    ),
    "a template of a policy that the API server would refuse": (
        [policy(templates=[{"name": "one", "spec": template("device.foo")["spec"]["spec"]}])],
        [("error", "Refused", "spec.templates[0].spec.devices.requests[0].exactly.selectors[0].cel.expression")],
    ),
    "a template of a policy that never fits": (
        [CLASS, hardware(4), policy(templates=[{"name": "one", "spec": template(count=5)["spec"]["spec"]}])],
        [("error", "NeverFits", "spec.templates[0].spec.devices.requests[0].exactly")],
    ),
    "a meter that does not compile": (
        [own("Meter", "m", sources=[{"deviceClasses": ["a"], "count": {}, "selector": "device.foo"}])],
        [("error", "Refused", "spec.sources[0].selector")],
    ),
    "a queue whose parent is not there": (
        [own("Queue", "q", parent="none")],
        [("warning", "NotInOrder", "spec.parent")],
    ),
    "two shapes of one node": (
        [SHAPE, own("NodeShape", "y8", maxCount=1, matchLabels={"type": "x8"}, allocatable={"cpu": 8})],
        [("warning", "NotInOrder", "spec.matchLabels")] * 2,
    ),
    "two shapes of one NodePool that differ in a label": (
        [
            own("NodeShape", name, maxCount=1, nodePool="gpu", matchLabels={"type": name}, allocatable={"cpu": 8})
            for name in ("x8", "y8")
        ],
        [],
    ),
}


@pytest.mark.parametrize(("objects", "wanted"), FOUND.values(), ids=FOUND)
async def test_lint_reports_the_expected_remarks(objects: Sequence[Any], wanted: list[tuple[str, str, str]]) -> None:
    assert told(await lint.lint(objects)) == wanted


async def test_every_remark_names_its_object() -> None:
    linted = await lint.lint([CLASS, template(TRAP), hardware(), template_of({"name": "x", "exactly": {}})])

    assert [remark.index for remark in linted.remarks] == [1, 3]


async def test_a_job_whose_pods_the_webhook_would_refuse_is_a_remark() -> None:
    pod = {"metadata": {"labels": {"muster.dev/queue": "none"}}, "spec": POD["spec"]}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "vision"},
        "spec": {"template": pod},
    }

    (remark,) = (await lint.lint([job])).remarks

    assert (remark.severity, remark.code) == ("error", "Denied")
    assert "UnknownQueue" in remark.message


async def test_a_pod_that_the_webhook_would_refuse_is_a_remark_of_the_pod_and_not_of_its_namesake_job() -> None:
    named = {"name": "train", "namespace": "vision"}
    spec: dict[str, Any] = {"template": {"spec": POD["spec"]}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": named, "spec": spec}
    labels = {"muster.dev/queue": "none"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {**named, "labels": labels}, "spec": POD["spec"]}

    (remark,) = (await lint.lint([job, pod])).remarks

    assert (remark.index, remark.code) == (1, "Denied")
    assert remark.message.startswith("is refused: UnknownQueue")


async def test_holding_the_workload_is_recommended_for_a_job_with_a_deadline() -> None:
    (remark,) = (await lint.lint([own("Queue", "q", namespaceSelector={}), deadline_job()])).remarks

    assert "have queue q hold workloads as a whole (holdAt: Workload)" in remark.message
    assert "write the deadline on the pods" in remark.message


async def test_admin_access_in_a_namespace_that_is_not_described_is_noted_only() -> None:
    linted = await lint.lint([template(adminAccess=True)])

    (note,) = linted.notes
    assert linted.remarks == ()
    assert "admin access is taken for allowed in namespace vision" in note


@pytest.mark.parametrize("kind", ["Queue", "Meter", "Gang", "ClaimPolicy", "DeviceClass", "ResourceClaim"])
async def test_an_object_of_another_system_that_has_a_kind_of_the_same_name_is_left_out(kind: str) -> None:
    obj = {"apiVersion": "scheduling.run.ai/v2", "kind": kind, "metadata": {"name": "a"}, "spec": {"sources": 1}}

    linted = await lint.lint([obj])

    assert linted.remarks == ()
    assert linted.notes == (f"{kind} a (scheduling.run.ai/v2) is left out: it is not simulated",)


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("DeviceClass", CLASS["spec"]),
        ("Queue", {"quotas": [{"meter": "gpus", "nominal": 4}]}),
        ("Meter", {"sources": [{"deviceClasses": ["gpu.example.com"], "count": {}}]}),
    ],
    ids=["DeviceClass", "Queue", "Meter"],
)
async def test_a_namespace_of_an_object_of_the_whole_cluster_does_not_matter(kind: str, spec: dict[str, Any]) -> None:
    """The API server drops it."""
    version = CLASS["apiVersion"] if kind == "DeviceClass" else "muster.dev/v1alpha1"
    obj = {"apiVersion": version, "kind": kind, "metadata": {"name": "gpus"}, "spec": spec}

    plain = await lint.lint([obj])

    assert await lint.lint([{**obj, "metadata": {"name": "gpus", "namespace": "vision"}}]) == plain


async def test_a_version_that_no_api_server_has_is_an_error_of_what_none_has_stored() -> None:
    old = {**template(), "apiVersion": "resource.k8s.io/v1alpha3"}
    stored = {**old, "metadata": {**old["metadata"], "uid": "a"}}

    (remark,) = (await lint.lint([CLASS, old])).remarks

    assert (remark.code, remark.field) == ("Refused", "apiVersion")
    assert (await lint.lint([CLASS, stored])).remarks == ()


async def test_of_nodes_without_any_slice_it_is_noted_that_nothing_is_said_of_what_fits() -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}}

    assert (await lint.lint([CLASS, template()])).notes == ()
    assert (await lint.lint([CLASS, template(), node, hardware()])).notes == ()
    (note,) = (await lint.lint([CLASS, template(), node])).notes
    assert note.startswith("the input has nodes and no ResourceSlice")


async def test_a_request_that_no_claim_has_is_found_in_pod_templates_too() -> None:
    pod = {**a_pod({"name": "gpus", "request": "x"})["spec"], "restartPolicy": "Never"}
    job = deadline_job(activeDeadlineSeconds=None, template={"spec": pod})

    assert told(await lint.lint([template(), job])) == [
        ("warning", "UnknownRequest", "spec.template.spec.containers[0].resources.claims[0].request")
    ]


def staged_jobset(workers: int) -> dict[str, Any]:
    """A JobSet whose workers come after its driver; each pod takes a GPU."""
    claims = [{"name": "gpus", "resourceClaimTemplateName": "one"}]
    pod = {**POD, "spec": {**POD["spec"], "resourceClaims": claims}}
    jobs = [
        {"name": name, "replicas": count, "template": {"spec": {"template": pod}}}
        for name, count in (("driver", 1), ("workers", workers))
    ]
    spec = {"startupPolicy": {"startupPolicyOrder": "InOrder"}, "replicatedJobs": jobs}
    metadata = {"name": "train", "namespace": "vision"}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": spec}


async def test_later_pods_that_never_fit_are_an_error_of_their_workload() -> None:
    queue = own("Queue", "q", namespaceSelector={}, unmeteredClasses="Allow")
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}}
    found = {
        number: told(await lint.lint([CLASS, hardware(), node, template(), queue, staged_jobset(number)]))
        for number in (3, 4)
    }

    assert found == {3: [], 4: [("error", "NeverFits", "spec")]}
    without_nodes = await lint.lint([CLASS, hardware(), template(), queue, staged_jobset(4)])
    assert told(without_nodes) == []
