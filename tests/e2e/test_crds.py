"""Muster's CRDs in a real API server: it takes them without a word, explains them, and enforces their CEL rules."""

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from admission.api.muster.gangs import GangReport, Phase
from admission.api.muster.status_reports import MeterUse, QueueReport
from admission.api.schemas import crds
from admission.api.values.names import API_VERSION, GangUid, MeterName, QueueName
from admission.api.values.reasons import Hold, HoldReason
from admission.kube.writers import status_encoding
from tests.builders import NOON
from tests.controlplane import ApiError, ControlPlane
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.unit.api import crds as api_crds
from tests.unit.api.crds import a_budget, a_gang, a_meter, a_policy, a_queue, a_quota, a_shape

pytestmark = pytest.mark.e2e

CRDS = Path(__file__).parents[2] / "config" / "crds"
DEFINITIONS = crds.all_definitions()
PLURALS = {definition["spec"]["names"]["kind"]: plural for plural, definition in DEFINITIONS.items()}
EXAMPLES = api_crds.examples()


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane) -> ControlPlane:
    """Return the control plane with the CRDs of config/crds installed."""
    kubectl(control_plane, "apply", "--server-side", "--force-conflicts", "-f", str(CRDS))
    kubectl(control_plane, "wait", "--for=condition=Established", "--timeout=30s", *crd_names())
    # Established is not yet served, and what is served is explained a moment later.
    eventually(
        lambda: all(is_explained(control_plane, plural) for plural in DEFINITIONS), what="the CRDs are explained"
    )
    return control_plane


def is_explained(cluster: ControlPlane, plural: str) -> bool:
    try:
        return "FIELDS" in kubectl(cluster, "explain", plural).stdout
    except subprocess.CalledProcessError:
        return False


@pytest.fixture
def queue(cluster: ControlPlane) -> Iterator[str]:
    """Return the name of a queue that nobody enters, with a status."""
    client, path = cluster.client(), "/apis/muster.dev/v1alpha1/queues"
    client.create(path, a_queue(parent="root-of-it") | {"metadata": {"name": "columns"}})
    active = {
        "type": "Active",
        "status": "False",
        "reason": "ParentMissing",
        "message": "no queue root-of-it",
        "lastTransitionTime": "2026-11-21T00:00:00Z",
    }
    summary = {"use": "6/4 gpus", "borrowed": "2", "waiting": 3, "started": 1}
    status = {"conditions": [active], "summary": summary}
    client.merge_patch(f"{path}/columns/status", {"status": status})
    yield "columns"
    client.delete(f"{path}/columns")


def kubectl(cluster: ControlPlane, *words: str) -> subprocess.CompletedProcess[str]:
    """Run kubectl and keep what it says beside its output: warnings of the API server appear there."""
    return subprocess.run(
        [*cluster.kubectl_command, *words],
        env=cluster.kubectl_environment(cluster.kubeconfig),
        capture_output=True,
        text=True,
        check=True,
    )


def crd_names() -> list[str]:
    return [f"crd/{plural}.muster.dev" for plural in DEFINITIONS]


def path_of(obj: Any, namespace: Namespace) -> str:
    within = f"namespaces/{namespace.name}/" if obj["kind"] == "Gang" else ""
    return f"/apis/muster.dev/v1alpha1/{within}{PLURALS[obj['kind']]}"


def tried(cluster: ControlPlane, obj: Any, namespace: Namespace) -> Any:
    """Return the object as the API server would store it. Raises ApiError when it refuses, also for unknown fields."""
    metadata = {key: value for key, value in obj["metadata"].items() if key != "namespace"}
    return cluster.client().create(
        f"{path_of(obj, namespace)}?dryRun=All&fieldValidation=Strict", obj | {"metadata": metadata}
    )


def test_the_api_server_takes_the_crds_without_a_warning(cluster: ControlPlane) -> None:
    done = kubectl(cluster, "apply", "--server-side", "--force-conflicts", "-f", str(CRDS))

    assert done.stdout.count("serverside-applied") == len(DEFINITIONS)
    assert done.stderr == ""


def test_whoever_applies_the_same_crds_meets_no_conflict(cluster: ControlPlane) -> None:
    kubectl(cluster, "apply", "--server-side", "--force-conflicts", "--field-manager=muster", "-f", str(CRDS))

    done = kubectl(cluster, "apply", "--server-side", "--field-manager=helm", "-f", str(CRDS))

    assert done.stdout.count("serverside-applied") == len(DEFINITIONS)


@pytest.mark.parametrize("plural", DEFINITIONS)
def test_the_crds_are_established_and_structural(cluster: ControlPlane, plural: str) -> None:
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.muster.dev"
    conditions = {c["type"]: c["status"] for c in cluster.client().get(path)["status"]["conditions"]}

    assert conditions["Established"] == "True"
    assert conditions["NamesAccepted"] == "True"
    assert "NonStructuralSchema" not in conditions


EXPLAINED = {
    "queue.spec.quotas.nominal": "What the queue may always use",
    "mq.spec.budgets.period": "ENUM: Day Week Month Quarter Year",
    "meters.spec.sources.capacity.name": "gpu.example.com/memory",
    "mcp.spec.templates.spec.devices.requests.exactly.count": "How many devices",
    "gang.status.hold.reason": "QuotaExceeded",
    "mns.spec.pricePerHour": "one currency of all shapes",
}


@pytest.mark.parametrize(("field", "words"), EXPLAINED.items())
def test_kubectl_explains_the_fields(cluster: ControlPlane, field: str, words: str) -> None:
    assert words in " ".join(kubectl(cluster, "explain", field).stdout.split())


def test_kubectl_lists_all_kinds_by_category(cluster: ControlPlane) -> None:
    listed = kubectl(cluster, "api-resources", "--categories=muster", "--no-headers").stdout.splitlines()

    assert {line.split()[1] for line in listed} == {"mq", "mm", "mcp", "mns", "mg"}


@pytest.mark.parametrize("obj", EXAMPLES.values(), ids=EXAMPLES)
def test_the_examples_are_taken(cluster: ControlPlane, namespace: Namespace, obj: Any) -> None:
    assert tried(cluster, obj, namespace)["spec"] == api_crds.defaulted(obj)["spec"]


def test_the_examples_of_kubernetes_own_kinds_are_taken(cluster: ControlPlane, namespace: Namespace) -> None:
    paths = {
        "ResourceClaimTemplate": f"/apis/resource.k8s.io/v1/namespaces/{namespace.name}/resourceclaimtemplates",
        "Job": f"/apis/batch/v1/namespaces/{namespace.name}/jobs",
    }
    objects = list(yaml.safe_load_all((api_crds.EXAMPLES / "50-job.yaml").read_text()))
    for template in EXAMPLES["ClaimPolicy research"]["spec"]["templates"]:
        name, spec = template["name"], {"spec": template["spec"]}
        kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate"}
        objects.append({**kind, "metadata": {"name": name}, "spec": spec})

    for obj in objects:
        obj["metadata"]["namespace"] = namespace.name
        assert cluster.client().create(f"{paths[obj['kind']]}?dryRun=All&fieldValidation=Strict", obj)


def test_defaults_are_filled_in(cluster: ControlPlane, namespace: Namespace) -> None:
    stored = tried(cluster, a_queue(requeue={"base": "5m"}), namespace)

    assert stored["spec"] == {
        "default": False,
        "holdAt": "Auto",
        "lending": "WhenIdle",
        "placement": "Auto",
        "preemption": {"byShares": "Never", "reclaim": "Never", "withinQueue": "Never"},
        "queueingStrategy": "BestEffortFIFO",
        "requeue": {"base": "5m", "max": "1h"},
        "provisioning": {"mode": "None", "timeout": "30m"},
        "startTimeout": "5m",
        "maxWait": "24h",
        "stopPolicy": "None",
        "unmeteredClasses": "Refuse",
    }


TAKEN = {
    "amounts as numbers": a_quota(nominal=8, borrowingLimit=0),
    "amounts as text": a_quota(nominal="640Gi", lendingLimit="0"),
    "a budget of a period": a_budget(period="Month", hours="50k"),
    "a budget of a span": a_budget(start="2026-10-01T00:00:00Z", end="2026-10-01T00:00:00-01:00"),
    "a budget of half an hour": a_budget(period="Week", hours="0.5"),
    "a budget of 9 seconds": a_budget(period="Week", hours="0.0025", scope="Global"),
    "a budget in thousandths": a_budget(period="Week", hours="2500m", timeZone="Asia/Kathmandu"),
    "a budget beyond 64 bits": a_budget(period="Year", hours="9223372036854775808"),
    "a quota beyond 64 bits": a_quota(nominal="9223372036854775808"),
    "the largest quota": a_quota(nominal="1000000000000000000000000000"),
    "a budget that warns below one that holds": a_queue(
        budgets=[
            {"meter": "gpus", "hours": hours, "period": "Day", "onExhausted": end}
            for hours, end in ((20, "Warn"), (24, "Hold"))
        ]
    ),
    "a budget of this cluster within one of all": a_queue(
        budgets=[{"meter": "gpus", "hours": 9, "period": "Day", "scope": scope} for scope in ("Cluster", "Global")]
    ),
    "two windows": a_queue(
        budgets=[
            {"meter": "gpus", "hours": 9, "start": f"{year}-01-01T00:00:00Z", "end": f"{year + 1}-01-01T00:00:00Z"}
            for year in (2026, 2027)
        ]
    ),
    "fair sharing of half a weight": a_queue(fairSharing={"weight": "0.5", "halfLife": "168h"}),
    "fair sharing that says nothing": a_queue(fairSharing={}),
    "members by namespace": a_queue(fairSharing={"within": {"by": "Namespace"}}),
    "members by a label": a_queue(
        fairSharing={"within": {"by": "Label", "label": "team", "weights": [{"name": "red", "weight": "0.5"}]}}
    ),
    "idle gangs by default": a_queue(idle={}),
    "idle gangs that are evicted": a_queue(idle={"belowPercent": 100, "after": "168h", "action": "Evict"}),
    "kinds of devices": a_queue(
        preferences={"kinds": [{"name": "a", "deviceClasses": ["gpu.example.com"]}], "whenCanBorrow": "TryNext"}
    ),
    "preemption to borrow": a_queue(
        preemption={"reclaim": "Any", "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": -5}}
    ),
    "preemption by shares": a_queue(preemption={"reclaim": "Any", "byShares": "LessThanInitialShare"}),
    "preemption to borrow that says nothing": a_queue(preemption={"borrowWithinCohort": {}}),
    "priorities of its own": a_queue(priorityClasses=[{"name": "urgent", "value": 2147483647}]),
    "a day's and a month's budget": a_queue(
        budgets=[{"meter": "gpus", "hours": 24, "period": "Day"}, {"meter": "gpus", "hours": 99, "period": "Month"}]
    ),
    "fields of a claim that are newer than Muster": a_policy(
        templates=[{"name": "t", "spec": {"devices": {"requests": [{"name": "r", "newer": {"a": 1}}], "newer": []}}}]
    ),
    "a gang of all its pods": a_gang(size=2, minCount=2),
    "a shape of a NodePool alone": a_shape(matchLabels=None, nodePool="gpu"),
    "a gang in one rack": a_gang(topology={"required": "topology.kubernetes.io/rack"}),
    "a gang in one zone, and in one rack if that can be": a_gang(topology={"required": "zone", "preferred": "rack"}),
    "a gang whose subgroups have a rack each": a_gang(topology={"subgroups": {"required": "rack"}}),
    "a queue that others call otherwise": a_queue(namespaceSelector={}, aliases=["root.team-a"]),
    "a gang that is to be taken back": a_gang(request={"id": "1", "action": "Evict", "by": "ann", "reason": "why"}),
    "a gang that is to be ranked higher": a_gang(
        request={"id": "1", "action": "Prioritize", "by": "ann", "priorityClass": "urgent"}
    ),
    "a gang of the longest names": a_gang(queue="q" * 63),
    "a shape whose devices are newer than Muster": a_shape(
        resourceSlices=[{"driver": "gpu.example.com", "devices": [{"name": "gpu-0", "newer": {"a": 1}}]}]
    ),
    "a shape with counters, at a price": a_shape(
        pricePerHour="98.32",
        allocatable={"cpu": "95500m", "memory": "1Ti", "nvidia.com/gpu": 8},
        resourceSlices=[
            {"driver": "gpu.example.com", "devices": [{"name": "gpu-0"}]},
            {"driver": "gpu.example.com", "sharedCounters": [{"name": "a", "counters": {"b": {"value": "1"}}}]},
        ],
    ),
}


@pytest.mark.parametrize("obj", TAKEN.values(), ids=TAKEN)
def test_what_is_good_is_stored_as_it_is_written(cluster: ControlPlane, namespace: Namespace, obj: Any) -> None:
    assert tried(cluster, obj, namespace)["spec"] == api_crds.defaulted(obj)["spec"]


LABELS = [{"key": "team", "operator": "In"}]
REFUSED = {
    "a shape of too long a name": (a_shape() | {"metadata": {"name": "s" * 64}}, "use at most 63 characters"),
    "a shape at a price below 0": (a_shape(pricePerHour=-1), "spec.pricePerHour"),
    "a shape at a price with a fraction as a number": (a_shape(pricePerHour=98.32), "spec.pricePerHour"),
    "a shape that every node is of": (a_shape(matchLabels={}), "spec.matchLabels"),
    "a shape of neither labels nor a NodePool": (
        a_shape(matchLabels=None),
        "matchLabels is required: the labels that every node of the shape has, and no other node; or name a NodePool",
    ),
    "a NodePool that has no name": (a_shape(nodePool=""), "spec.nodePool"),
    "a node with less than nothing": (
        a_shape(allocatable={"cpu": "-1"}),
        "must not be negative; write what a node has for pods, 0 for none",
    ),
    "a slice of nothing": (
        a_shape(resourceSlices=[{"driver": "gpu.example.com"}]),
        "a slice has devices or sharedCounters, not both",
    ),
    "a queue that is its own parent": (a_queue(parent="q"), "a queue cannot be its own parent"),
    "a queue with too long a name": (a_queue() | {"metadata": {"name": "q" * 64}}, "use at most 63 characters"),
    "a default queue of no namespaces": (a_queue(default=True), "default: true needs a namespaceSelector"),
    "a value that no label can have": (
        a_queue(namespaceSelector={"matchLabels": {"team": "b c"}}),
        "spec.namespaceSelector.matchLabels.team: Invalid value",
    ),
    "a selector without values": (
        a_queue(namespaceSelector={"matchExpressions": LABELS}),
        "In and NotIn need at least one entry in values",
    ),
    "a gang that may be idle for more than a week": (
        a_queue(idle={"after": "168h1s"}),
        "after must not be longer than 168h: shorten it",
    ),
    "a gang that is never idle enough": (a_queue(idle={"belowPercent": 0}), "spec.idle.belowPercent"),
    "a negative quota": (a_quota(nominal=-1), "must not be negative; write 0 for none"),
    "a negative limit to borrow": (a_quota(borrowingLimit="-1"), "must not be negative; write 0 for none"),
    "a negative limit to lend": (a_quota(lendingLimit="-1Gi"), "must not be negative; write 0 for none"),
    "two quotas of one meter": (a_queue(quotas=[{"meter": "a", "nominal": 1}] * 2), "Duplicate value"),
    "a quota that is not whole": (a_quota(nominal="0.5"), "spec.quotas[0].nominal"),
    "a quota out of this world": (a_quota(nominal="1e400"), "spec.quotas[0].nominal"),
    "one more than the most": (a_quota(nominal=str(10**27 + 1)), "is more than can be counted: an amount is at most"),
    "a quota far finer than its unit": (a_quota(nominal="0.0000000001"), "spec.quotas[0].nominal"),
    "a limit with an exponent as a bomb": (a_quota(borrowingLimit="1e999999999"), "spec.quotas[0].borrowingLimit"),
    "a budget without a time": (a_budget(), "either a period or both start and end"),
    "a budget with both": (a_budget(period="Day", end="2026-10-01T00:00:00Z"), "either a period or both start and end"),
    "a budget without an end": (a_budget(start="2026-10-01T00:00:00Z"), "either a period or both start and end"),
    "a budget that ends first": (
        a_budget(start="2026-10-01T00:00:00Z", end="2026-10-01T00:00:00+01:00"),
        "end must be later than start",
    ),
    "a budget of nothing": (a_budget(period="Day", hours=0), "must be more than 0; to give nothing, set the quota"),
    "a budget of nothing, as text": (
        a_budget(period="Day", hours="0Gi"),
        "must be more than 0; to give nothing, set the quota",
    ),
    "a negative budget": (a_budget(period="Day", hours="-5"), "must be more than 0; to give nothing, set the quota"),
    "a budget of less than a second": (a_budget(period="Day", hours="0.0001"), "must be a whole number of seconds"),
    "a budget of a part of a second": (a_budget(period="Day", hours="1.0001"), "must be a whole number of seconds"),
    "a budget of thousandths": (a_budget(period="Day", hours="1m"), "must be a whole number of seconds"),
    "a budget far finer than a second": (a_budget(period="Day", hours="0.0000000001"), "spec.budgets[0].hours"),
    "two budgets of one period": (
        a_queue(budgets=[{"meter": "gpus", "hours": hours, "period": "Day"} for hours in (1, 2)]),
        "two budgets of a meter have the same span, scope and onExhausted",
    ),
    "two budgets of one window": (
        a_queue(
            budgets=[
                {"meter": "gpus", "hours": hours, "start": "2026-01-01T00:00:00Z", "end": "2027-01-01T00:00:00Z"}
                for hours in (1, 2)
            ]
        ),
        "two budgets of a meter have the same span, scope and onExhausted",
    ),
    "a kind of no class": (
        a_queue(preferences={"kinds": [{"name": "a", "deviceClasses": []}]}),
        "spec.preferences.kinds[0].deviceClasses",
    ),
    "members by a label that is not named": (
        a_queue(fairSharing={"within": {"by": "Label"}}),
        "label goes together with by: Label",
    ),
    "preemption to borrow without reclaiming": (
        a_queue(preemption={"borrowWithinCohort": {"policy": "LowerPriority"}}),
        "borrowWithinCohort needs a reclaim other than Never",
    ),
    "preemption by shares without reclaiming": (
        a_queue(preemption={"byShares": "LessThanInitialShare"}),
        "byShares needs a reclaim other than Never",
    ),
    "a priority class without a value": (
        a_queue(priorityClasses=[{"name": "urgent"}]),
        "spec.priorityClasses[0].value",
    ),
    "a negative weight": (a_queue(fairSharing={"weight": "-1"}), "spec.fairSharing.weight"),
    "a half-life of nothing": (a_queue(fairSharing={"halfLife": "0s"}), "must be longer than 0s, for example 90s"),
    "a negative half-life": (a_queue(fairSharing={"halfLife": "-1h"}), "spec.fairSharing.halfLife"),
    "no time to start": (a_queue(startTimeout="0s"), "must be longer than 0s, for example 90s"),
    "requests for nodes of no class": (
        a_queue(provisioning={"mode": "ProvisioningRequest"}),
        "class and mode ProvisioningRequest go together",
    ),
    "aliases for no namespace": (
        a_queue(aliases=["user-queue"]),
        "aliases need a namespaceSelector that says for which namespaces",
    ),
    "a longer first wait than the longest": (a_queue(requeue={"base": "2h"}), "base must not be longer than max"),
    "a longer default than the maximum": (
        a_queue(maxRuntime="1h", defaultRuntime="61m"),
        "defaultRuntime must not be longer than maxRuntime",
    ),
    "a meter of nothing": (a_meter() | {"spec": {}}, "a meter without sources counts nothing"),
    "a meter of a resource that is no extended one": (
        a_meter() | {"spec": {"extendedResources": ["nvidia.com/gpu", "memory"]}},
        "must be the name of an extended resource",
    ),
    "a meter of the resource that a class offers by its own name": (
        a_meter() | {"spec": {"extendedResources": ["deviceclass.resource.kubernetes.io/gpu"]}},
        "must be the name of an extended resource",
    ),
    "a meter of what nobody requests of nodes": (
        a_meter() | {"spec": {"resources": [{"name": "requests.cpu"}]}},
        "must be one of cpu, memory, ephemeral-storage, pods",
    ),
    "a meter of huge pages of no size": (
        a_meter() | {"spec": {"resources": [{"name": "hugepages-2mi"}]}},
        "must be one of cpu, memory, ephemeral-storage, pods",
    ),
    "a meter of thousandths of a byte": (
        a_meter() | {"spec": {"resources": [{"name": "memory", "per": "500m"}]}},
        "only cpu has thousandths: write per in whole units",
    ),
    "a meter of too large an amount": (
        a_meter() | {"spec": {"resources": [{"name": "memory", "per": "2Pi"}]}},
        "is more than can be counted with: at most 1P",
    ),
    "a meter of one resource twice": (
        a_meter() | {"spec": {"resources": [{"name": "cpu"}, {"name": "cpu"}]}},
        "Duplicate value",
    ),
    "a meter that lists one resource in two ways": (
        a_meter() | {"spec": {"resources": [{"name": "x.io/gpu"}], "extendedResources": ["x.io/gpu"]}},
        "a resource may be in one of resources and extendedResources",
    ),
    "a meter with too long a name": (
        a_meter(count={}) | {"metadata": {"name": "m" * 64}},
        "use at most 63 characters",
    ),
    "a source that counts in no way": (a_meter(), "give one of claims, count, capacity, counter, expression"),
    "a source that counts in two ways": (a_meter(claims={}, count={}), "a source counts in exactly one way"),
    "a default of nothing": (a_policy(defaults=[{"deviceClasses": ["gpu"]}]), "give at least one of deviceClassName"),
    "an alias of nothing": (a_policy(defaults=[{"deviceClassName": "gpu"}]), "name the aliases in deviceClasses"),
    "two templates of one name": (
        a_policy(templates=[{"name": "t", "spec": {"devices": {"requests": []}}}] * 2),
        "Duplicate value",
    ),
    "a request of two kinds": (
        a_policy(
            templates=[
                {"name": "t", "spec": {"devices": {"requests": [{"name": "r", "exactly": {}, "firstAvailable": []}]}}}
            ]
        ),
        "a request has either exactly or firstAvailable",
    ),
    "a gang whose part is larger": (a_gang(size=2, minCount=3), "minCount must not be more than size"),
    "a gang that is together nowhere": (
        a_gang(topology={}),
        "name a label in required or preferred, or say what keeps subgroups together",
    ),
    "a gang whose subgroups are together nowhere": (
        a_gang(topology={"subgroups": {}}),
        "name a label in required or preferred",
    ),
    "a request for a rank that it does not name": (
        a_gang(request={"id": "1", "action": "Prioritize", "by": "ann"}),
        "name a class of the queue in priorityClass for Prioritize, and for nothing else",
    ),
    "a request of nobody": (a_gang(request={"id": "1", "action": "Evict"}), "spec.request.by: Required value"),
    "a field that does not exist": (a_gang(sise=3), 'unknown field "spec.sise"'),
}


@pytest.mark.parametrize(("obj", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_bad_is_refused_with_the_mend(
    cluster: ControlPlane, namespace: Namespace, obj: Any, message: str
) -> None:
    with pytest.raises(ApiError) as refused:
        tried(cluster, obj, namespace)

    assert message in refused.value.message
    assert "no such key" not in refused.value.message
    assert "no such overload" not in refused.value.message


def test_every_rule_refuses_something_here() -> None:
    """A rule that no case reaches may never have worked."""
    messages = " ".join(message for _, message in REFUSED.values()) + "a gang stays in its queue"

    for schema in api_crds.SCHEMAS.values():
        for path, part in api_crds.walk(schema):
            for rule in part.get("x-kubernetes-validations", ()):
                assert any(words in messages for words in _parts(rule["message"])), f"{path}: {rule['message']}"


def _parts(message: str) -> list[str]:
    """Return the runs of four words of a message."""
    words = message.split()
    return [" ".join(words[at : at + 4]) for at in range(len(words) - 3)]


def test_a_gang_stays_in_its_queue(cluster: ControlPlane, namespace: Namespace) -> None:
    client, path = cluster.client(), path_of(a_gang(), namespace)
    client.create(path, a_gang())

    client.merge_patch(f"{path}/g", {"spec": {"size": 3, "workload": {"apiVersion": "v1", "kind": "Pod", "name": "p"}}})
    with pytest.raises(ApiError, match="a gang stays in its queue: delete it"):
        client.merge_patch(f"{path}/g", {"spec": {"queue": "other"}})


def test_the_status_of_a_gang_keeps_its_details(cluster: ControlPlane, namespace: Namespace) -> None:
    client, path = cluster.client(), path_of(a_gang(), namespace)
    client.create(path, a_gang())
    details = {"meter": "gpus", "left": "2", "needed": "8", "who": ["a", "b"], "complete": True}
    devices = [{"request": "gpu/h100", "driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"}]
    status = {
        "phase": "Pending",
        "summary": {"reason": "QuotaExceeded", "requests": "8 gpus"},
        "requests": {"gpus": "8"},
        "position": 2,
        "hold": {"reason": "QuotaExceeded", "message": "2 left", "details": details, "since": "2026-11-21T00:00:00Z"},
        "plan": [{"pod": "g-0", "node": "node-1", "claims": [{"claim": "g-0-gpu", "devices": devices}]}],
        "charges": {"gpus": "8", "memory": "640Gi"},
    }

    client.merge_patch(f"{path}/g/status", {"status": status})

    assert client.get(f"{path}/g")["status"] == status
    row = kubectl(
        cluster, "get", "mg", "-n", namespace.name, "--field-selector=spec.queue=q,status.phase=Pending"
    ).stdout
    assert row.splitlines()[0].split() == ["NAME", "QUEUE", "SIZE", "PHASE", "REASON", "REQUESTS", "POSITION", "AGE"]
    assert row.splitlines()[1].split()[:-1] == ["g", "q", "1", "Pending", "QuotaExceeded", "8", "gpus", "2"]


def test_a_status_that_says_less_than_the_last_one_is_taken(cluster: ControlPlane, namespace: Namespace) -> None:
    client = cluster.client()
    gang, queue = path_of(a_gang(), namespace), path_of(a_queue(), namespace)
    client.create(gang, a_gang())
    client.create(queue, a_queue() | {"metadata": {"name": "emptied"}})
    report = GangReport(
        uid=GangUid("u"), namespace=namespace.name, name="g", queue=QueueName("q"), size=1, phase=Phase.PENDING
    )
    holds = [Hold(HoldReason.QUOTA_EXCEEDED, "2 left", {"left": "2"}), Hold(HoldReason.QUOTA_EXCEEDED, "none left")]
    uses: list[dict[MeterName, MeterUse]] = [{MeterName("gpus"): MeterUse(nominal=8)}, {}]

    for hold, use in zip(holds, uses, strict=True):
        status = status_encoding.gang_status(replace(report, hold=hold), {}, now=NOON)
        client.apply(f"{gang}/g/status", status_encoding.applied(API_VERSION, "Gang", "g", status))
        status = status_encoding.queue_status(QueueReport(name=QueueName("emptied"), meters=use), {}, now=NOON)
        client.apply(f"{queue}/emptied/status", status_encoding.applied(API_VERSION, "Queue", "emptied", status))

    assert client.get(f"{gang}/g")["status"]["hold"]["message"] == "none left"
    assert "details" not in client.get(f"{gang}/g")["status"]["hold"]
    assert "meters" not in client.get(f"{queue}/emptied")["status"]
    client.delete(f"{queue}/emptied")


def test_the_columns_of_a_queue(cluster: ControlPlane, queue: str) -> None:
    rows = kubectl(cluster, "get", "mq", queue).stdout.splitlines()
    wide = kubectl(cluster, "get", "mq", queue, "-o", "wide").stdout

    assert rows[0].split() == ["NAME", "PARENT", "USE", "BORROWED", "WAITING", "STARTED", "ACTIVE", "AGE"]
    assert rows[1].split()[:-1] == ["columns", "root-of-it", "6/4", "gpus", "2", "3", "1", "False"]
    assert "ParentMissing" in wide
    assert max(len(line) for line in wide.splitlines()) <= 160
