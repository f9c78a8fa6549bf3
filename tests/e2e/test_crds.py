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
from tests.e2e.crd_objects import REFUSED, TAKEN
from tests.unit.api import crds as api_crds
from tests.unit.api.crds import a_gang, a_queue

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


@pytest.mark.parametrize("obj", TAKEN.values(), ids=TAKEN)
def test_what_is_good_is_stored_as_it_is_written(cluster: ControlPlane, namespace: Namespace, obj: Any) -> None:
    assert tried(cluster, obj, namespace)["spec"] == api_crds.defaulted(obj)["spec"]


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
