"""Pods, Jobs, volumes and nodes that the API server takes, with one to three random faults or none.

`manifest(seed)` is the same in every run. A fault takes a field away, writes one thing twice, or puts another text or
number in a place; `manifests.difference` says whether Muster and an API server judge it alike. The objects have the
fields that Muster judges. What admission plugins refuse (a RuntimeClass that is not there) is not validation, so pods
have no such field, but the templates of Jobs do. `python -m tests.conformance.mutated_manifests FIRST COUNT` asks a
control plane of each release.
"""

import copy
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.conformance import manifests

Json = dict[str, Any]

KEPT = Path(__file__).parent / "data" / "mutated_manifests.jsonl.gz"
KINDS = {
    "Pod": 8,
    "Job": 8,
    "PersistentVolumeClaim": 2,
    "PersistentVolume": 2,
    "Node": 1,
    "StorageClass": 1,
} | dict.fromkeys(("Deployment", "StatefulSet", "DaemonSet"), 3)
"""Each with its weight."""

SELECTOR = {"matchLabels": {"app": "train"}, "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a"]}]}
TERM = {
    "labelSelector": SELECTOR,
    "namespaceSelector": {"matchLabels": {"team": "a"}},
    "namespaces": ["team-a", "team-b"],
    "topologyKey": "zone",
    "matchLabelKeys": ["run"],
    "mismatchLabelKeys": ["tenant"],
}
NODES = {
    "matchExpressions": [
        {"key": "example.com/rack", "operator": "In", "values": ["r1", "r2"]},
        {"key": "cores", "operator": "Gt", "values": ["4"]},
        {"key": "old", "operator": "DoesNotExist"},
    ],
    "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
}
SELECTED = {"matchLabels": {"app": "train"}, "matchExpressions": [{"key": "app", "operator": "Exists"}]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

CLAIM: Json = {
    "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
    "selector": SELECTOR,
    "resources": {"requests": {"storage": "1Gi"}},
    "storageClassName": "fast",
    "volumeMode": "Filesystem",
}

RUNNING: Json = {
    "env": [
        {"name": "A", "value": "a"},
        {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "C", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1"}}},
        {"name": "D", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}},
        {"name": "E", "valueFrom": {"fileKeyRef": {"volumeName": "scratch", "path": "a/b", "key": "c"}}},
    ],
    "envFrom": [{"prefix": "A", "configMapRef": {"name": "a"}}, {"secretRef": {"name": "b"}}],
    "livenessProbe": {
        "httpGet": {"path": "/a", "port": 80, "scheme": "HTTP"},
        "periodSeconds": 5,
        "successThreshold": 1,
    },
    "readinessProbe": {"exec": {"command": ["a"]}, "initialDelaySeconds": 5, "successThreshold": 2},
    "startupProbe": {"tcpSocket": {"port": "http"}, "failureThreshold": 5, "terminationGracePeriodSeconds": 5},
    "lifecycle": {"postStart": {"httpGet": {"port": 80}}, "preStop": {"sleep": {"seconds": 5}}},
    "imagePullPolicy": "Always",
    "terminationMessagePolicy": "File",
    "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
    "securityContext": {
        "runAsUser": 1,
        "runAsGroup": 2,
        "allowPrivilegeEscalation": False,
        "capabilities": {"add": ["SYS_ADMIN"], "drop": ["ALL"]},
        "seccompProfile": {"type": "Localhost", "localhostProfile": "a"},
        "appArmorProfile": {"type": "Localhost", "localhostProfile": "a"},
        "procMount": "Default",
    },
}
SHARED: Json = {
    "terminationGracePeriodSeconds": 80,
    "dnsConfig": {
        "nameservers": ["10.0.0.1"],
        "searches": ["a", "b.c"],
        "options": [{"name": "a", "value": "1"}],
    },
    "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a", "b"]}],
    "readinessGates": [{"conditionType": "example.com/a"}],
    "securityContext": {
        "fsGroup": 1,
        "supplementalGroups": [1, 2],
        "fsGroupChangePolicy": "Always",
        "sysctls": [{"name": "net.core.somaxconn", "value": "1"}, {"name": "kernel.sem", "value": "1"}],
        "seccompProfile": {"type": "RuntimeDefault"},
    },
}
ITEMS = [{"key": "a", "path": "b", "mode": 5}, {"key": "b", "path": "c/d"}]
FILES: tuple[Json, ...] = (
    {"name": "setting", "configMap": {"name": "settings", "defaultMode": 80, "items": ITEMS}},
    {"name": "secret", "secret": {"secretName": "key", "items": ITEMS}},
    {"name": "self", "downwardAPI": {"items": [{"path": "a", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
    {
        "name": "all",
        "projected": {
            "sources": [
                {"secret": {"name": "a", "items": ITEMS}},
                {"configMap": {"name": "b"}},
                {"downwardAPI": {"items": [{"path": "e", "fieldRef": {"fieldPath": "metadata.name"}}]}},
            ]
        },
    },
)

NOTES: Json = {
    "a/B": "any",
    "container.apparmor.security.beta.kubernetes.io/main": "localhost/a",
    "container.seccomp.security.alpha.kubernetes.io/main": "localhost/a",
    "controller.kubernetes.io/pod-deletion-cost": "5",
}

POD: Json = {
    "metadata": {"name": "fuzzed", "labels": {"app": "train", "example.com/run": "a"}, "annotations": NOTES},
    "spec": {
        "restartPolicy": "Never",
        "nodeSelector": {"zone": "a", "example.com/kind": "b"},
        "affinity": {
            "nodeAffinity": {
                REQUIRED: {"nodeSelectorTerms": [NODES]},
                PREFERRED: [{"weight": 5, "preference": NODES}],
            },
            "podAffinity": {REQUIRED: [TERM], PREFERRED: [{"weight": 100, "podAffinityTerm": TERM}]},
            "podAntiAffinity": {REQUIRED: [TERM], PREFERRED: [{"weight": 1, "podAffinityTerm": TERM}]},
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "minDomains": 2,
                "labelSelector": SELECTOR,
                "matchLabelKeys": ["run"],
                "nodeAffinityPolicy": "Honor",
                "nodeTaintsPolicy": "Ignore",
            },
            {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": SELECTOR},
        ],
        "tolerations": [
            {"key": "example.com/a", "operator": "Equal", "value": "b", "effect": "NoSchedule"},
            {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
        ],
        "volumes": [
            {"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "host", "hostPath": {"path": "/data", "type": "Directory"}},
            {"name": "settings", "configMap": {"name": "settings"}},
            {"name": "key", "secret": {"secretName": "key"}},
            {"name": "inline", "csi": {"driver": "csi.example.com"}},
            {"name": "share", "nfs": {"server": "a", "path": "/a"}},
            {"name": "disk", "gcePersistentDisk": {"pdName": "disk"}},
            *FILES,
            {
                "name": "own",
                "ephemeral": {"volumeClaimTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": CLAIM}},
            },
        ],
        "containers": [
            {
                "name": "main",
                "image": "train",
                "ports": [
                    {"name": "http", "containerPort": 80, "hostPort": 80, "protocol": "TCP"},
                    {"containerPort": 81, "hostPort": 81, "hostIP": "10.0.0.1"},
                    {"containerPort": 81, "hostPort": 81, "hostIP": "10.0.0.2"},
                ],
                "volumeMounts": [
                    {"name": "scratch", "mountPath": "/a", "subPath": "a"},
                    {"name": "data", "mountPath": "/b"},
                ],
                "volumeDevices": [{"name": "own", "devicePath": "/dev/own"}],
                "resources": {"limits": {"cpu": "2", "example.com/gpu": "1"}, "requests": {"cpu": "1"}},
                **RUNNING,
            },
            {"name": "side", "image": "log", "ports": [{"containerPort": 90, "hostPort": 90, "protocol": "UDP"}]},
        ],
        "initContainers": [
            {"name": "first", "image": "load", "ports": [{"containerPort": 80, "hostPort": 80}]},
            {"name": "proxy", "image": "proxy", "restartPolicy": "Always", "lifecycle": {}},
        ],
        "schedulingGates": [{"name": "example.com/a"}, {"name": "example.com/b"}],
        "hostname": "a",
        "subdomain": "b",
        **SHARED,
        "serviceAccountName": "robot",
        "dnsPolicy": "Default",
        "activeDeadlineSeconds": 60,
        "os": {"name": "linux"},
    },
}

UPDATES: dict[str, Json] = {
    "Deployment": {
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "50%", "maxSurge": 1}},
        "progressDeadlineSeconds": 80,
    },
    "DaemonSet": {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}},
    "StatefulSet": {
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}},
        "podManagementPolicy": "Parallel",
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Retain"},
        "ordinals": {"start": 1},
        "serviceName": "a",
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": CLAIM}],
    },
}

POLICIES: Json = {
    "activeDeadlineSeconds": 80,
    "podFailurePolicy": {
        "rules": [
            {"action": "FailIndex", "onExitCodes": {"containerName": "main", "operator": "In", "values": [1, 2]}},
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        ]
    },
    "podReplacementPolicy": "Failed",
    "successPolicy": {"rules": [{"succeededIndexes": "0-1", "succeededCount": 1}]},
}

VOLUME: Json = {
    "capacity": {"storage": "1Gi"},
    "accessModes": ["ReadWriteMany"],
    "persistentVolumeReclaimPolicy": "Retain",
    "storageClassName": "fast",
    "volumeMode": "Block",
    "nodeAffinity": {"required": {"nodeSelectorTerms": [NODES]}},
}
SOURCES: tuple[Json, ...] = (
    {"csi": {"driver": "csi.example.com", "volumeHandle": "a"}},
    {"local": {"path": "/a"}},
    {"hostPath": {"path": "/a", "type": ""}},
    {"nfs": {"server": "a", "path": "/a"}},
)

NODE: Json = {
    "spec": {
        "taints": [
            {"key": "example.com/a", "value": "b", "effect": "NoSchedule"},
            {"key": "example.com/a", "effect": "NoExecute"},
            {"key": "a", "effect": "PreferNoSchedule"},
        ]
    },
    "status": {"allocatable": {"cpu": "8", "pods": "10", "example.com/gpu": "1"}, "capacity": {"memory": "1Gi"}},
}

CLASS: Json = {
    "provisioner": "csi.example.com",
    "reclaimPolicy": "Delete",
    "volumeBindingMode": "WaitForFirstConsumer",
    "allowedTopologies": [
        {"matchLabelExpressions": [{"key": "zone", "values": ["a", "b"]}, {"key": "rack", "values": ["c"]}]}
    ],
}

TEXTS = (
    "a", "b", "zone", "run", "tier", "example.com/a", "example.com/b", "main", "scratch", "data", "own", "http",
    "/a", "/b", "/dev/own", "1", "5", "1Gi", "500m", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Equal",
    "NoSchedule", "NoExecute", "DoNotSchedule", "ScheduleAnyway", "Honor", "Always", "Never", "OnFailure", "Indexed",
    "NonIndexed", "TCP", "UDP", "ReadWriteOnce", "ReadWriteOncePod", "Block", "linux",
    "", "A", "a b", "a.b", "a_b", "-a", "a--b", "x" * 16, "x" * 64, "x" * 254, "a/b/c", "/", "../a", "a/../b", "-1",
    "0", "0.5", "many", " a", "metadata.name", "101%", "0%", "RollingUpdate", "OnDelete", "Recreate", "unconfined",
    "Localhost", "RuntimeDefault", "runtime/default",
)  # fmt: skip
NUMBERS = (1, 2, 5, 80, 81, 100, 0, -1, 101, 65535, 65536, 100_001, 2**31 - 1, 2**31)
KEYS = ("a", "example.com/c", "run", "tier", "cpu", "storage", "pods", "hugepages-2Mi", "", "a b", "A/b", "x" * 64)
MAPS = ("labels", "annotations", "nodeSelector", "matchLabels", "limits", "requests", "allocatable", "overhead")
"""Fields whose keys are anybody's."""


def manifest(seed: int) -> Json:
    """Return the object of a seed."""
    choice = random.Random(seed)  # noqa: S311 - nothing secret
    obj = copy.deepcopy(_good(choice))
    _thin(choice, obj)
    for _ in range(choice.choice((0, 1, 1, 1, 2, 3))):
        _fault(choice, obj)
    return obj


def _good(choice: random.Random) -> Json:
    kind = choice.choices([*KINDS], [*KINDS.values()])[0]
    fields: Json = {"metadata": {"name": "fuzzed", "labels": {"a": "b"}}}
    match kind:
        case "Pod":
            version, fields = "v1", POD
        case "Job":
            version, fields["spec"] = "batch/v1", _job_spec()
        case "Deployment" | "StatefulSet" | "DaemonSet":
            version, fields["spec"] = "apps/v1", {**_selecting_spec(), **UPDATES[kind]}
        case "PersistentVolumeClaim":
            version, fields["spec"] = "v1", CLAIM
        case "PersistentVolume":
            version, fields["spec"] = "v1", {**VOLUME, **choice.choice(SOURCES)}
        case "Node":
            version, fields = "v1", {**fields, **NODE}
        case _:
            version, fields = "storage.k8s.io/v1", {**fields, **CLASS}
    return {"apiVersion": version, "kind": kind, **fields}


def _job_spec() -> Json:
    template: Json = {"metadata": {"labels": POD["metadata"]["labels"]}, "spec": {**POD["spec"]}}
    template["spec"] |= {"runtimeClassName": "a", "priorityClassName": "b", "overhead": {"cpu": "1"}}
    template["spec"]["preemptionPolicy"] = "Never"
    counts = {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "backoffLimit": 3}
    return {**counts, **POLICIES, "backoffLimitPerIndex": 1, "maxFailedIndexes": 1, "template": template}


def _selecting_spec() -> Json:
    ends = ("restartPolicy", "activeDeadlineSeconds", "schedulingGates")
    of_pod = {name: value for name, value in POD["spec"].items() if name not in ends}
    template = {"metadata": {**POD["metadata"]}, "spec": of_pod}
    return {"minReadySeconds": 5, "revisionHistoryLimit": 2, "selector": SELECTED, "template": template}


def _thin(choice: random.Random, obj: Json) -> None:
    """Take most of a pod's optional fields away, so that the faults that follow are seen in each."""
    spec = obj.get("spec", {})
    spec = spec["template"]["spec"] if "template" in spec else spec
    for field in [*spec]:
        if "containers" in spec and field not in ("containers", "restartPolicy", "volumes") and choice.random() < 0.5:
            del spec[field]


def _fault(choice: random.Random, obj: Json) -> None:
    """Change one place of an object."""
    holder, key = choice.choice([*_places({name: obj[name] for name in obj if name not in ("apiVersion", "kind")})])
    value = holder[key]
    match choice.randrange(4):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, list):
            holder.append(copy.deepcopy(value))
        case 1 if isinstance(value, list):
            value.clear()
        case 2 if isinstance(value, dict) and key in MAPS:
            value[choice.choice(KEYS)] = choice.choice(TEXTS)
        case _ if isinstance(value, str):
            holder[key] = choice.choice(TEXTS)
        case _ if isinstance(value, int):
            holder[key] = choice.choice(NUMBERS)
        case _ if isinstance(value, dict) and "containers" in value:
            value.update(choice.choice(({"hostNetwork": True}, {"nodeName": "n1"}, {"hostname": "A"})))
        case _ if isinstance(value, dict) and key not in MAPS and "operator" in value:
            value["value" if "effect" in value else "values"] = "c" if "effect" in value else ["c", "d"]
        case _ if isinstance(value, dict) and ("hostPath" in value or "emptyDir" in value):
            value["secret"] = {"secretName": "a"}
        case _:
            pass


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the holder and key of everything in an object but its name."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        if key != "metadata":
            yield value, key
        if isinstance(inner, dict | list):
            yield from ((holder, at) for holder, at in _places(inner) if not (key == "metadata" and at == "name"))


if __name__ == "__main__":
    sys.exit(manifests.main(manifest, KEPT))
