"""Jobs, volumes, classes and nodes with one fault that Kubernetes refuses, and the field at fault.

The unit tests judge them by our rules; tests/e2e/test_validation.py sends the same ones to a real API server.
"""

from typing import Any

from tests.unit.api.cases import Case, Json, with_

POD: Json = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "train"}]}}
TERM = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
TOPOLOGY = {"matchLabelExpressions": [{"key": "zone", "values": ["a", "b"]}]}


def made(version: str, kind: str, *, name: str = "good", **fields: Any) -> Json:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **fields}


def job(*, name: str = "good", pod: Json | None = None, **spec: Any) -> Json:
    of_pod = {"spec": with_(POD["spec"], pod or {})}
    return made("batch/v1", "Job", name=name, spec={"template": of_pod, **spec})


def cron_job(**spec: Any) -> Json:
    whole = {"schedule": "0 0 * * *", "jobTemplate": {"spec": {"template": POD, **spec}}}
    return made("batch/v1", "CronJob", spec=whole)


def claim(**spec: Any) -> Json:
    whole = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return made("v1", "PersistentVolumeClaim", spec=with_(whole, spec))


def volume(**spec: Any) -> Json:
    disk = {"driver": "csi.example.com", "volumeHandle": "a"}
    whole = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "csi": disk}
    return made("v1", "PersistentVolume", spec=with_(whole, spec))


def node(*taints: Json, **status: Any) -> Json:
    return made("v1", "Node", spec={"taints": list(taints)}, status=status)


def storage_class(**fields: Any) -> Json:
    return with_(made("storage.k8s.io/v1", "StorageClass", provisioner="csi.example.com"), fields)


REFUSED = {
    "indexes without a number": Case(job(completionMode="Indexed", parallelism=2), "spec.completions"),
    "a mode that nobody knows": Case(job(completionMode="Sorted"), "spec.completionMode"),
    "less than no pods": Case(job(parallelism=-1), "spec.parallelism"),
    "tries of each index without indexes": Case(job(backoffLimitPerIndex=1), "spec.backoffLimitPerIndex"),
    "more failures than indexes": Case(
        job(completionMode="Indexed", completions=1, backoffLimitPerIndex=1, maxFailedIndexes=2),
        "spec.maxFailedIndexes",
    ),
    "hostnames that are too long": Case(
        job(name="x" * 62, completionMode="Indexed", completions=2), "metadata.name"
    ),
    "pods that never end": Case(job(pod={"restartPolicy": "Always"}), "spec.template.spec.restartPolicy"),
    "pods that never end by default": Case(job(pod={"restartPolicy": None}), "spec.template.spec.restartPolicy"),
    "a Job's pod that waits on its node": Case(
        job(pod={"nodeName": "n", "schedulingGates": [{"name": "a"}]}), "spec.template.spec.nodeName"
    ),
    "a Job's mount of no volume": Case(
        job(pod={"containers": [{"name": "a", "image": "a", "volumeMounts": [{"name": "b", "mountPath": "/"}]}]}),
        "spec.template.spec.containers[0].volumeMounts[0].name",
    ),
    "a preemption that nobody knows": Case(
        job(pod={"preemptionPolicy": "Sometimes"}), "spec.template.spec.preemptionPolicy"
    ),
    "overhead of nobody's kind": Case(job(pod={"overhead": {"gpu": "1"}}), "spec.template.spec.overhead.gpu"),
    "a claim in no mode": Case(claim(accessModes=[]), "spec.accessModes"),
    "a claim in a mode that nobody knows": Case(claim(accessModes=["ReadWriteOften"]), "spec.accessModes"),
    "a claim of one pod and more": Case(
        claim(accessModes=["ReadWriteOncePod", "ReadWriteMany"]), "spec.accessModes"
    ),
    "a claim without a size": Case(claim(resources={}), "spec.resources.requests.storage"),
    "a claim of nothing at all": Case(
        claim(resources={"requests": {"storage": "0"}}), "spec.resources.requests.storage"
    ),
    "a claim of an amount that is none": Case(
        claim(resources={"requests": {"storage": "1Gi", "iops": "many"}}), "spec.resources.requests.iops"
    ),
    "a claim of a class that is no name": Case(claim(storageClassName="A"), "spec.storageClassName"),
    "a claim in another form": Case(claim(volumeMode="Tape"), "spec.volumeMode"),
    "a volume in no mode": Case(volume(accessModes=None), "spec.accessModes"),
    "a volume without a size": Case(volume(capacity=None), "spec.capacity"),
    "a volume of another resource": Case(volume(capacity={"storage": "1Gi", "cpu": "1"}), "spec.capacity"),
    "a volume that is nowhere": Case(volume(csi=None), "spec"),
    "a volume in two places": Case(volume(hostPath={"path": "/a"}), "spec.csi"),
    "a volume without a driver": Case(volume(csi={"volumeHandle": "a"}), "spec.csi.driver"),
    "a volume of a node that is not named": Case(volume(csi=None, local={"path": "/a"}), "spec.nodeAffinity"),
    "a volume on no nodes": Case(
        volume(nodeAffinity={"required": {"nodeSelectorTerms": []}}), "spec.nodeAffinity.required.nodeSelectorTerms"
    ),
    "a volume with an end that nobody knows": Case(
        volume(persistentVolumeReclaimPolicy="Burn"), "spec.persistentVolumeReclaimPolicy"
    ),
    "a taint of an unknown effect": Case(node({"key": "a", "effect": "Never"}), "spec.taints[0].effect"),
    "a taint without an effect": Case(node({"key": "a"}), "spec.taints[0].effect"),
    "a taint without a key": Case(node({"effect": "NoSchedule"}), "spec.taints[0].key"),
    "a taint twice": Case(
        node({"key": "a", "effect": "NoSchedule"}, {"key": "a", "value": "b", "effect": "NoSchedule"}),
        "spec.taints[1]",
    ),
    "a node with less than nothing": Case(node(allocatable={"cpu": "-1"}), "status.allocatable.cpu"),
    "a node with half a GPU": Case(node(capacity={"example.com/gpu": "0.5"}), "status.capacity.example.com/gpu"),
    "a node with a part of a pod": Case(node(allocatable={"pods": "0.5"}), "status.allocatable.pods"),
    "a class of nobody": Case(storage_class(provisioner=None), "provisioner"),
    "a class that binds sometimes": Case(storage_class(volumeBindingMode="Sometimes"), "volumeBindingMode"),
    "a class in a zone without a name": Case(
        storage_class(allowedTopologies=[{"matchLabelExpressions": [{"key": "zone", "values": []}]}]),
        "allowedTopologies[0].matchLabelExpressions[0].values",
    ),
    "a class in a zone twice": Case(
        storage_class(allowedTopologies=[TOPOLOGY, TOPOLOGY]), "allowedTopologies[1].matchLabelExpressions"
    ),
    "a scheduled Job's indexes without a number": Case(
        cron_job(completionMode="Indexed"), "spec.jobTemplate.spec.completions"
    ),
}  # fmt: skip

GOOD = {
    "a Job": job(),
    "a Job of one index by default": job(completionMode="Indexed"),
    "a Job of two indexes": job(completionMode="Indexed", completions=2, parallelism=3),
    "a scheduled Job": cron_job(completionMode="Indexed", completions=1),
    "a claim": claim(),
    "a claim of the default class of none": claim(storageClassName=""),
    "a volume": volume(nodeAffinity={"required": {"nodeSelectorTerms": [TERM]}}),
    "a volume of a node": volume(
        csi=None, local={"path": "/a"}, nodeAffinity={"required": {"nodeSelectorTerms": [TERM]}}
    ),
    "a node": node({"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute"}),
    "a node with odd pages, which no pod may ask for": node(allocatable={"hugepages-2Mi": "3Mi"}),
    "a node with almost one GPU, which counts as one": node(allocatable={"example.com/gpu": "0.99999"}),
    "a class": storage_class(volumeBindingMode="Immediate", allowedTopologies=[TOPOLOGY]),
}
