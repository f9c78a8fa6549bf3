"""What the webhook knows and is asked in the benchmarks: 200 queues, 1,000 namespaces, pods of a training Job.

The pods come in three shapes: without claims, with one, and with eight claims in a namespace with twenty rules.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from admission.api.kubernetes import claims, nodes
from admission.api.muster import claim_policies, meters, queues
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import MeterName, QueueName
from tests.bench import rules

PARENTS = 10
LEAVES = 190
NAMESPACES = 1_000
BODIES = 64
CONTROLLER = "system:serviceaccount:muster-system:muster"
SERIAL = "#serial#"
"""Stands in the uid of a review, and in the names of its pod's Job: whoever sends it puts a number there."""

CLAIMS = 8
RULED_QUEUE, RULED_TEAM = "research", "vision"


class Shape(StrEnum):
    """What the pods of a benchmark ask for."""

    NONE = "no claim"
    ONE = "one claim"
    RULED = "8 claims, 20 rules"


@dataclass
class FrozenView:
    """A View that never changes."""

    known: Snapshot
    synced: bool = True

    def snapshot(self) -> Snapshot:
        return self.known


def snapshot() -> Snapshot:
    """Return the cluster. Every leaf is the default of its team's five or six namespaces, and so is `RULED_QUEUE`."""
    plain = list(map(_namespace, range(NAMESPACES)))
    ruled = list(map(_ruled_namespace, range(BODIES)))
    templates = [("gpus", name, _template()) for name, _ in plain]
    templates += [(f"gpus-{at}", name, _ruled_template()) for name, _ in ruled for at in range(CLAIMS)]
    return Snapshot(
        namespaces={
            name: nodes.decode_namespace({"metadata": {"name": name, "labels": {"team": team, "stage": "prod"}}})
            for name, team in (*plain, *ruled)
        },
        queues={QueueName(q["metadata"]["name"]): queues.decode(q) for q in (*_parents(), *_leaves(), _ruled_leaf())},
        meters={
            MeterName("gpus"): meters.decode(_meter("gpus", {"count": {}})),
            MeterName("memory"): meters.decode(_meter("memory", {"capacity": {"name": "memory"}})),
        },
        templates={
            f"{namespace}/{name}": claims.decode_template(
                {**template, "metadata": {"name": name, "namespace": namespace}}
            )
            for name, namespace, template in templates
        },
        policies={"bench": claim_policies.decode(_policy())},
    )


def reviews(endpoint: str, shape: Shape = Shape.ONE) -> list[dict[str, Any]]:
    """Return reviews of pods of several namespaces; half of them leave the queue to the default."""
    return [_review(at, shape, endpoint=endpoint, named=bool(at % 2)) for at in range(BODIES)]


def _ruled_namespace(at: int) -> tuple[str, str]:
    return f"vision-jobs-{at}", RULED_TEAM


def _namespace(at: int) -> tuple[str, str]:
    return f"team-{at % LEAVES}-jobs-{at // LEAVES}", f"team-{at % LEAVES}"


def _parents() -> list[dict[str, Any]]:
    quotas = [{"meter": "gpus", "nominal": "0"}]
    return [{"metadata": {"name": f"division-{at}"}, "spec": {"quotas": quotas}} for at in range(PARENTS)]


def _leaves() -> list[dict[str, Any]]:
    return [
        {
            "metadata": {"name": f"team-{at}"},
            "spec": {
                "parent": f"division-{at % PARENTS}",
                "default": True,
                "namespaceSelector": {"matchLabels": {"team": f"team-{at}"}},
                "quotas": [{"meter": "gpus", "nominal": "64"}, {"meter": "memory", "nominal": "5Ti"}],
            },
        }
        for at in range(LEAVES)
    ]


def _ruled_leaf() -> dict[str, Any]:
    quotas = [{"meter": "gpus", "nominal": "1024"}]
    selector = {"matchLabels": {"team": RULED_TEAM}}
    spec = {"parent": "division-0", "default": True, "namespaceSelector": selector, "quotas": quotas}
    return {"metadata": {"name": RULED_QUEUE}, "spec": spec}


def _policy() -> dict[str, Any]:
    """Return the policy whose rules are measured alone, too, for the namespaces of one team."""
    policy = rules.policy()
    policy["spec"]["namespaceSelector"] = {"matchLabels": {"team": RULED_TEAM}}
    return policy


def _meter(name: str, measure: Mapping[str, Any]) -> dict[str, Any]:
    classes = ["a100.example.com", "h100.example.com", "b200.example.com", "gpu.example.com"]
    return {"metadata": {"name": name}, "spec": {"sources": [{"deviceClasses": classes, **measure}]}}


def _template() -> dict[str, Any]:
    selector = 'device.attributes["gpu.example.com"].model == "h100"'
    exactly = {
        "deviceClassName": "h100.example.com",
        "count": 8,
        "allocationMode": "ExactCount",
        "selectors": [{"cel": {"expression": selector}}],
    }
    return {"spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}}}


def _ruled_template() -> dict[str, Any]:
    spec = rules.claim()["spec"]
    [request, *_] = spec["devices"]["requests"]
    return {"spec": {"metadata": {"labels": {"team": RULED_TEAM}}, "spec": {"devices": {"requests": [request]}}}}


def _review(at: int, shape: Shape, *, endpoint: str, named: bool) -> dict[str, Any]:
    ruled = shape is Shape.RULED
    namespace, team = _ruled_namespace(at) if ruled else _namespace(at * (NAMESPACES // BODIES))
    pod = copy.deepcopy(_pod(at, namespace))
    _ask(pod, [f"gpus-{number}" for number in range(CLAIMS)] if ruled else ["gpus"] * (shape is Shape.ONE))
    if named or endpoint == "validate":
        pod["metadata"]["labels"][names.QUEUE] = RULED_QUEUE if ruled else team
    if endpoint == "validate":
        pod["spec"]["schedulingGates"] = [{"name": names.GATE}]
    return {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": f"705ab4f5-6393-11e8-b7cc-{SERIAL}{at:04x}",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
            "requestResource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": namespace,
            "operation": "CREATE",
            "userInfo": {
                "username": "system:serviceaccount:kube-system:job-controller",
                "uid": "f9e8d7c6-0000-4a5b-8c9d-1234567890ab",
                "groups": ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"],
                "extra": {"authentication.kubernetes.io/credential-id": ["JTI=5f0c2a1e-4b6d-4c7e-9a8b-0c1d2e3f4a5b"]},
            },
            "object": pod,
            "oldObject": None,
            "dryRun": False,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    }


def _ask(pod: dict[str, Any], templates: list[str]) -> None:
    """Give a pod a claim of each template, for all of its containers."""
    if not templates:
        return
    spec = pod["spec"]
    spec["resourceClaims"] = [{"name": name, "resourceClaimTemplateName": name} for name in templates]
    for container in (*spec["initContainers"], *spec["containers"]):
        container["resources"]["claims"] = [{"name": name} for name in templates]


def _pod(at: int, namespace: str) -> dict[str, Any]:
    job, uid = f"pretrain-{SERIAL}-{at}", f"3c1a7e52-9d4b-4f60-8a2e-{SERIAL}{at:04x}"
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "generateName": f"{job}-0-",
            "namespace": namespace,
            "labels": {
                "app.kubernetes.io/name": "pretrain",
                "app.kubernetes.io/part-of": "foundation-models",
                "batch.kubernetes.io/controller-uid": uid,
                "batch.kubernetes.io/job-name": job,
                "batch.kubernetes.io/job-completion-index": "0",
                "controller-uid": uid,
                "job-name": job,
            },
            "annotations": {
                "batch.kubernetes.io/job-completion-index": "0",
                "muster.dev/gang-size": "16",
                "muster.dev/runtime": "12h",
                "muster.dev/user": "alice@example.com",
            },
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": job,
                    "uid": uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "finalizers": ["batch.kubernetes.io/job-tracking"],
        },
        "spec": _spec(job),
    }


def _spec(job: str) -> dict[str, Any]:
    seconds = {"effect": "NoExecute", "operator": "Exists", "tolerationSeconds": 300}
    return {
        "hostname": f"{job}-0",
        "subdomain": job,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "trainer",
        "serviceAccount": "trainer",
        "schedulerName": "default-scheduler",
        "priority": 1000,
        "priorityClassName": "batch-high",
        "preemptionPolicy": "PreemptLowerPriority",
        "enableServiceLinks": True,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "fsGroup": 2000},
        "nodeSelector": {
            "node.kubernetes.io/instance-type": "p5.48xlarge",
            "topology.kubernetes.io/region": "eu-west-1",
        },
        "tolerations": [
            {"key": "node.kubernetes.io/not-ready", **seconds},
            {"key": "node.kubernetes.io/unreachable", **seconds},
            {"key": "example.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        ],
        "initContainers": [
            _container("fetch", "registry.example.com/tools/fetch:2.4.1", {"cpu": "2", "memory": "4Gi"})
        ],
        "containers": [
            {
                **_container("train", "registry.example.com/ml/train:1.18.0", {"cpu": "96", "memory": "1200Gi"}),
                "command": ["torchrun", "--nnodes=16", "--nproc-per-node=8", f"--rdzv-endpoint={job}-0.{job}:29500"],
                "args": ["train.py", "--config", "/etc/train/config.yaml", "--checkpoint-dir", "/checkpoints"],
                "ports": [{"name": "rdzv", "containerPort": 29500, "protocol": "TCP"}],
            }
        ],
        "volumes": [
            {"name": "checkpoints", "persistentVolumeClaim": {"claimName": "checkpoints"}},
            {"name": "config", "configMap": {"name": "train-config", "defaultMode": 420}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}},
            {
                "name": "kube-api-access-x7k2p",
                "projected": {
                    "defaultMode": 420,
                    "sources": [
                        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                    ],
                },
            },
        ],
    }


def _container(name: str, image: str, resources: dict[str, str]) -> dict[str, Any]:
    job_index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "env": [
            {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": job_index}}},
            {"name": "NCCL_DEBUG", "value": "WARN"},
            {"name": "NCCL_IB_HCA", "value": "mlx5"},
            {"name": "OMP_NUM_THREADS", "value": "12"},
        ],
        "resources": {"requests": resources, "limits": resources},
        "volumeMounts": [
            {"name": "checkpoints", "mountPath": "/checkpoints"},
            {"name": "config", "mountPath": "/etc/train", "readOnly": True},
            {"name": "shm", "mountPath": "/shared"},
            {
                "name": "kube-api-access-x7k2p",
                "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                "readOnly": True,
            },
        ],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
