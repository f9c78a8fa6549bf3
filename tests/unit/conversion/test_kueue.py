"""Kueue's objects as Muster's: each field is converted or reported, and what comes out decides as Kueue's docs say."""

from typing import Any

import pytest
import yaml

from admission.conversion.findings import Level
from admission.conversion.queues import kueue
from admission.simulation import expand, lint, offline
from tests.conformance import quotas

KUEUE = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
resources: {deviceClassMappings: [{name: gpus, deviceClassNames: [gpu.example.com]}]}
admissionFairSharing: {usageHalfLifeTime: 24h}
fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: research}
spec: {fairSharing: {weight: "2"}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: vision}
spec:
  cohortName: research
  namespaceSelector: {}
  queueingStrategy: StrictFIFO
  preemption: {reclaimWithinCohort: Any, withinClusterQueue: LowerPriority}
  admissionScope: {admissionMode: UsageBasedAdmissionFairSharing}
  resourceGroups:
  - coveredResources: [gpus, cpu]
    flavors:
    - name: default
      resources:
      - {name: gpus, nominalQuota: 2, borrowingLimit: 1}
      - {name: cpu, nominalQuota: "1500m", lendingLimit: 1}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: speech}
spec:
  cohort: research
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [gpus, cpu]
    flavors:
    - {name: default, resources: [{name: gpus, nominalQuota: 1}, {name: cpu, nominalQuota: 8}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: main, namespace: vision}
spec: {clusterQueue: vision, fairSharing: {weight: 3}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: main, namespace: speech}
spec: {clusterQueue: speech}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: urgent}
value: 100
"""
MUSTER = """
apiVersion: muster.dev/v1alpha1
kind: Meter
metadata: {name: gpus}
spec: {unit: gpus, sources: [{deviceClasses: [gpu.example.com], count: {}}]}
---
apiVersion: muster.dev/v1alpha1
kind: Meter
metadata: {name: cpu}
spec: {unit: thousandths of a core, resources: [{name: cpu, per: 1m}]}
---
apiVersion: muster.dev/v1alpha1
kind: Queue
metadata: {name: research}
spec: {fairSharing: {weight: "2"}}
---
apiVersion: muster.dev/v1alpha1
kind: Queue
metadata: {name: speech}
spec:
  parent: research
  namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: In, values: [speech]}]}
  aliases: [main]
  quotas: [{meter: gpus, nominal: "1"}, {meter: cpu, nominal: 8000}]
  fairSharing: {weight: "1"}
  priorityClasses: [{name: urgent, value: 100}]
---
apiVersion: muster.dev/v1alpha1
kind: Queue
metadata: {name: vision}
spec:
  parent: research
  namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: In, values: [vision]}]}
  aliases: [main]
  quotas:
  - {meter: gpus, nominal: "2", borrowingLimit: "1"}
  - {meter: cpu, nominal: 1500, lendingLimit: 1000}
  queueingStrategy: StrictFIFO
  fairSharing: {weight: "1", within: {by: Namespace, halfLife: 24h, weights: [{name: vision, weight: "3"}]}}
  preemption: {withinQueue: LowerPriority, reclaim: Any, byShares: LessThanOrEqualToFinalShare}
  priorityClasses: [{name: urgent, value: 100}]
"""
JOBS = """
apiVersion: v1
kind: Node
metadata: {name: one}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.example.com}
spec: {}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: one}
spec:
  driver: gpu.example.com
  nodeName: one
  pool: {name: one, generation: 1, resourceSliceCount: 1}
  devices: [{name: a}, {name: b}, {name: c}]
"""


def objects(text: str) -> list[Any]:
    return list(yaml.safe_load_all(text))


def a_job(name: str, namespace: str, gpus: int) -> list[Any]:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com", "count": gpus}}
    metadata = {"name": name, "namespace": namespace}
    pod = {
        "restartPolicy": "Never",
        "resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": name}],
        "containers": [{"name": "main", "image": "train", "resources": {"requests": {"cpu": "500m"}}}],
    }
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": metadata,
            "spec": {"spec": {"devices": {"requests": [request]}}},
        },
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {**metadata, "labels": {"kueue.x-k8s.io/queue-name": "main"}},
            "spec": {"template": {"spec": pod}},
        },
    ]


def test_queues_of_kueue_are_queues_and_what_they_cover_are_meters() -> None:
    converted = kueue.convert(objects(KUEUE))

    assert [*converted.objects] == [{**one, "spec": _texts(one["spec"])} for one in objects(MUSTER)]
    assert [one for found in converted.findings for one in found.found if one.level is not Level.CHANGED] == []


def _texts(spec: Any) -> Any:
    """Return a spec whose amounts are written as texts."""
    quotas_ = [{key: str(value) for key, value in quota.items()} for quota in spec.get("quotas", ())]
    return {**spec, **({"quotas": quotas_} if quotas_ else {})}


async def test_what_is_converted_passes_lint_and_lets_in_what_kueue_would() -> None:
    """Each queue its quota and what it may borrow of the other, by the label that the Jobs have for Kueue."""
    made = [*kueue.convert(objects(KUEUE)).objects]
    namespaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in ("vision", "speech")
    ]
    jobs = [*a_job("a", "vision", 2), *a_job("b", "speech", 2), *a_job("c", "speech", 1), *a_job("d", "vision", 4)]

    linted = await lint.lint([*namespaces, *made])
    outcome = await offline.simulate(expand.expand([*objects(JOBS), *namespaces, *made, *jobs]))

    assert linted.remarks == ()
    found = {gang.name.split("/")[-1]: (gang.queue, str(gang.verdict)) for gang in outcome.gangs}
    assert found == {
        "a": ("vision", "Admitted"),
        "b": ("speech", "Held"),
        "c": ("speech", "Admitted"),
        "d": ("vision", "Denied"),
    }


VALUES: dict[str, Any] = {
    "nominalQuota": 1,
    "borrowingLimit": 1,
    "lendingLimit": 1,
    "weight": 2,
    "namespaceSelector": {"matchLabels": {"a": "b"}},
    "coveredResources": ["gpus"],
    "maxPriorityThreshold": 100,
    "admissionMode": "UsageBasedAdmissionFairSharing",
    "reclaimWithinCohort": "Any",
}
LISTS = frozenset({"resourceGroups", "flavors", "resources", "admissionChecks", "nodeTaints", "tolerations", "levels"})
FIELDS = [
    *(one for one in quotas.FIELDS.read_text().split() if not one.startswith("Workload.")),
    *("ResourceFlavor.nodeLabels", "ResourceFlavor.nodeTaints.key", "ResourceFlavor.tolerations.key"),
    *("ResourceFlavor.topologyName", "Topology.levels.nodeLabel"),
]


def _with(path: list[str]) -> Any:
    """Return a spec that has one field."""
    name, *rest = path
    value = _with(rest) if rest else VALUES.get(name, "x")
    return {name: [value] if name in LISTS and rest else value}


@pytest.mark.parametrize("field", FIELDS)
def test_each_field_of_kueue_is_converted_or_reported_by_name(field: str) -> None:
    kind, *path = field.split(".")
    obj = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": "a"}, "spec": _with(path)}
    beside = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "x"}}
    beside["spec"] = {"namespaceSelector": {}, "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}
    base: Any = {**obj, "spec": {}}
    if kind == "LocalQueue" and path != ["clusterQueue"]:
        obj["spec"]["clusterQueue"] = base["spec"]["clusterQueue"] = "x"

    converted, without = kueue.convert([obj, beside]), kueue.convert([base, beside])

    reported = [one.field for one in converted.findings[0].found if one.level is Level.LEFT]
    is_told = any(path[-1] in name for name in reported)
    # The flavors below say what is covered; a flavor is told of itself, and where there are several.
    is_said_below = path[-1] == "coveredResources" or path[-2:] == ["flavors", "name"]
    assert is_told or is_said_below or converted.objects != without.objects


def test_who_is_evicted_for_a_flavor_is_no_matter_of_loans() -> None:
    spec = {"flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor"}}
    obj = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "a"}, "spec": spec}

    found = {one.field: one.message for one in kueue.convert([obj]).findings[0].found if one.level is Level.LEFT}

    assert "preferences.whenCanBorrow" in found["spec.flavorFungibility.whenCanBorrow"]
    assert found["spec.flavorFungibility.whenCanPreempt"].startswith("nobody is evicted while the gang fits any kind")


@pytest.mark.parametrize(
    ("configuration", "sharing", "told"),
    [
        (None, {"weight": "2"}, "counts in Kueue where its configuration has fairSharing"),
        ({"fairSharing": {"enable": True}}, {"weight": "2"}, ""),
        ({"fairSharing": {"enable": False}}, None, "has no effect"),
        ({}, None, "has no effect"),
    ],
)
def test_weights_count_where_the_configuration_shares_fairly(configuration: Any, sharing: Any, told: str) -> None:
    spec = {"cohort": "c", "fairSharing": {"weight": 2}, "preemption": {"reclaimWithinCohort": "Any"}}
    obj = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "metadata": {"name": "a"}, "spec": spec}
    installed = {"apiVersion": "config.kueue.x-k8s.io/v1beta1", "kind": "Configuration", **(configuration or {})}

    converted = kueue.convert([obj, *([installed] if configuration is not None else [])])

    (queue,) = [one for one in converted.objects if one["metadata"]["name"] == "a"]
    shares = configuration == {"fairSharing": {"enable": True}}
    assert queue["spec"].get("fairSharing") == sharing
    assert queue["spec"]["preemption"] == {"reclaim": "Any", **({"byShares": "LessThanInitialShare"} if shares else {})}
    assert told in str(converted.findings[0].found)


@pytest.mark.parametrize("kind", ["Workload", "AdmissionCheck", "MultiKueueConfig", "SomethingNew"])
def test_kinds_without_a_counterpart_are_told(kind: str) -> None:
    obj = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": "a"}, "spec": {"a": {"b": 1}}}

    (found,) = kueue.convert([obj]).findings

    assert [one.field for one in found.found] == ["spec.a.b" if kind == "SomethingNew" else "kind"]


def test_flavors_are_added_up_and_that_is_told() -> None:
    flavors = [{"name": name, "resources": [{"name": "gpus", "nominalQuota": 2}]} for name in ("a100", "h100")]
    spec = {"resourceGroups": [{"coveredResources": ["gpus"], "flavors": flavors}]}
    obj = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "a"}, "spec": spec}

    converted = kueue.convert([obj])

    assert converted.objects[-1]["spec"]["quotas"] == [{"meter": "gpus", "nominal": "4"}]
    assert "flavors a100, h100 are added up" in str(converted.findings[0].found)


async def test_a_queue_that_does_not_cover_pods_has_enough_of_them_where_others_do() -> None:
    """Kueue counts pods only in ClusterQueues that cover them."""
    covered = {"a": ("cpu", "pods"), "b": ("cpu",)}
    queues = [
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ClusterQueue",
            "metadata": {"name": name},
            "spec": {
                "cohortName": "all",
                "namespaceSelector": {},
                "resourceGroups": [{"flavors": [{"name": "f", "resources": [*map(one_of, resources)]}]}],
            },
        }
        for name, resources in covered.items()
    ]
    converted = kueue.convert(queues)
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    node["status"] = {"allocatable": {"cpu": "8", "pods": "9"}}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "t"}}
    pods = [a_pod_of_a_core(name, queue) for name, queue in (("first", "a"), ("second", "a"), ("third", "b"))]

    outcome = await offline.simulate(expand.expand([node, namespace, *converted.objects, *pods]))

    found = {gang.name.partition("-")[0]: str(gang.verdict) for gang in outcome.gangs}
    assert found == {"first": "Admitted", "second": "Held", "third": "Admitted"}
    told = [one for found in converted.findings for one in found.found if "does not cover pods" in one.message]
    assert len(told) == 1


def one_of(resource: str) -> dict[str, Any]:
    return {"name": resource, "nominalQuota": 1 if resource == "pods" else 4}


def a_pod_of_a_core(name: str, queue: str) -> dict[str, Any]:
    spec = {"containers": [{"name": "m", "image": "m", "resources": {"requests": {"cpu": "1"}}}]}
    metadata = {"name": name, "namespace": "t", "labels": {"muster.dev/queue": queue}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


TRANSFORMED: dict[str, tuple[dict[str, Any], list[dict[str, Any]], str]] = {
    "a credit for a core": (
        {"input": "cpu", "strategy": "Retain", "outputs": {"example.com/credits": 1}},
        [{"name": "example.com/credits"}, {"name": "cpu"}],
        "",
    ),
    "four for a GPU": (
        {"input": "nvidia.com/gpu", "outputs": {"example.com/credits": "4"}},
        [{"name": "example.com/credits"}, {"name": "nvidia.com/gpu", "factor": 4}],
        "",
    ),
    "a part of one": (
        {"input": "cpu", "outputs": {"example.com/credits": "1500m"}},
        [{"name": "example.com/credits"}, {"name": "cpu", "per": "2", "factor": 3}],
        "",
    ),
    "in place of what it is of": (
        {"input": "memory", "strategy": "Replace", "outputs": {"example.com/credits": 2}},
        [{"name": "example.com/credits"}, {"name": "memory", "factor": 2}],
        "replaces memory",
    ),
    "multiplied": (
        {"input": "cpu", "multiplyBy": "memory", "outputs": {"example.com/credits": 1}},
        [{"name": "example.com/credits"}],
        "multiplied by memory has no counterpart",
    ),
    "more than a factor can be": (
        {"input": "cpu", "outputs": {"example.com/credits": "2M"}},
        [{"name": "example.com/credits"}],
        "2M of it for each cpu is no price",
    ),
}


@pytest.mark.parametrize(("transformation", "counted", "told"), TRANSFORMED.values(), ids=TRANSFORMED)
def test_what_resources_are_transformed_to_is_in_the_meter(
    transformation: dict[str, Any], counted: list[dict[str, Any]], told: str
) -> None:
    resources = {"transformations": [transformation]}
    flavor = {"name": "f", "resources": [{"name": "example.com/credits", "nominalQuota": 20}]}
    made = [
        {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "resources": resources},
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ClusterQueue",
            "metadata": {"name": "a"},
            "spec": {"resourceGroups": [{"flavors": [flavor]}]},
        },
    ]

    converted = kueue.convert(made)

    assert converted.objects[0]["spec"]["resources"] == counted
    found = [one.message for found in converted.findings for one in found.found if one.level is not Level.CHANGED]
    assert [told in one for one in found] == [True] * bool(told)
