"""What the controllers of other projects make of their objects: names, labels, annotations and owners as theirs.

For unit tests, which give the UIDs themselves, and for end-to-end tests, where the API server does. Jobs and
StatefulSets have real controllers there; what these make is made here for unit tests alone.
"""

import copy
import hashlib
from collections.abc import Mapping
from typing import Any

Manifest = dict[str, Any]


def an_object(api_version: str, kind: str, name: str, **spec: Any) -> Manifest:
    """Return an object as its user writes it."""
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def owner(parent: Manifest, *, controller: bool = True) -> Manifest:
    """Return a reference to an object, as of its controller."""
    meta = parent["metadata"]
    named = {"name": meta["name"], "uid": meta["uid"]}
    return {"apiVersion": parent["apiVersion"], "kind": parent["kind"], **named, "controller": controller}


def pod_of(parent: Manifest, name: str, template: Manifest, **labels: str) -> Manifest:
    """Return a pod of an object, from a template."""
    meta = copy.deepcopy(template.get("metadata") or {})
    meta |= {"name": name, "ownerReferences": [owner(parent)]}
    if "namespace" in parent["metadata"]:
        meta["namespace"] = parent["metadata"]["namespace"]
    meta["labels"] = {**meta.get("labels", {}), **labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": copy.deepcopy(template["spec"])}


# batch Jobs and StatefulSets, for unit tests.


def job_pods(job: Manifest) -> list[Manifest]:
    """Return the pods that run at a time."""
    spec, meta = job["spec"], job["metadata"]
    count = min(spec.get("parallelism", 1), spec.get("completions", 10**6))
    labels = {"batch.kubernetes.io/job-name": meta["name"], "batch.kubernetes.io/controller-uid": meta["uid"]}
    return [pod_of(job, f"{meta['name']}-{number}", spec["template"], **labels) for number in range(count)]


def stateful_set_pods(stateful_set: Manifest) -> list[Manifest]:
    """Return all pods; a set that starts at an ordinal has no pod before it."""
    spec, meta = stateful_set["spec"], stateful_set["metadata"]
    start = spec.get("ordinals", {}).get("start", 0)
    found = []
    for number in range(start, start + spec.get("replicas", 1)):
        name = f"{meta['name']}-{number}"
        labels = {"statefulset.kubernetes.io/pod-name": name, "apps.kubernetes.io/pod-index": str(number)}
        found.append(pod_of(stateful_set, name, spec["template"], **labels))
    return found


# JobSet.


def jobset_jobs(jobset: Manifest, *replicated: str, restarts: int = 0) -> list[Manifest]:
    """Return the Jobs of some ReplicatedJobs, or of all, as of a restart."""
    meta = jobset["metadata"]
    jobs = []
    for entry in jobset["spec"]["replicatedJobs"]:
        if replicated and entry["name"] not in replicated:
            continue
        for number in range(entry.get("replicas", 1)):
            name = f"{meta['name']}-{entry['name']}-{number}"
            prefix = "jobset.sigs.k8s.io/"
            told = {
                f"{prefix}jobset-name": meta["name"],
                f"{prefix}jobset-uid": meta["uid"],
                f"{prefix}replicatedjob-name": entry["name"],
                f"{prefix}restart-attempt": str(restarts),
                f"{prefix}replicatedjob-replicas": str(entry.get("replicas", 1)),
                f"{prefix}job-index": str(number),
                f"{prefix}job-key": digest(f"{meta.get('namespace')}/{name}"),
            }
            template = copy.deepcopy(entry["template"])
            pods = template["spec"]["template"].setdefault("metadata", {})
            for part in ("labels", "annotations"):
                pods[part] = {**pods.get(part, {}), **told}
            made = {"name": name, "labels": told, "annotations": told, "ownerReferences": [owner(jobset)]}
            if "namespace" in meta:
                made["namespace"] = meta["namespace"]
            jobs.append({"apiVersion": "batch/v1", "kind": "Job", "metadata": made, "spec": template["spec"]})
    return jobs


# LeaderWorkerSet.

LWS = "leaderworkerset.sigs.k8s.io/"


def leaders(lws: Manifest) -> Manifest:
    """Return the StatefulSet of all leaders."""
    meta, spec = lws["metadata"], lws["spec"]
    template = spec["leaderWorkerTemplate"]
    pods = copy.deepcopy(template.get("leaderTemplate") or template["workerTemplate"])
    told = {f"{LWS}name": meta["name"], f"{LWS}worker-index": "0", f"{LWS}template-revision-hash": "1"}
    own = pods.setdefault("metadata", {})
    own["labels"] = {**own.get("labels", {}), **told}
    own["annotations"] = {**own.get("annotations", {}), f"{LWS}size": str(template.get("size", 1))}
    domain = meta.get("annotations", {}).get(f"{LWS}exclusive-topology")
    own["annotations"] |= {f"{LWS}exclusive-topology": domain} if domain else {}
    made: Manifest = {"name": meta["name"], "labels": {f"{LWS}name": meta["name"]}, "ownerReferences": [owner(lws)]}
    if "namespace" in meta:
        made["namespace"] = meta["namespace"]
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": made,
        "spec": {
            "replicas": spec.get("replicas", 1),
            "podManagementPolicy": "Parallel",
            "serviceName": meta["name"],
            "selector": {"matchLabels": {f"{LWS}name": meta["name"], f"{LWS}worker-index": "0"}},
            "template": pods,
        },
    }


def grouped(leader: Manifest) -> Manifest:
    """Return a leader with the labels, and the affinity of an exclusive group, that the set's webhook gives it."""
    meta, key = leader["metadata"], group_key(leader)
    told = {f"{LWS}group-index": meta["name"].rpartition("-")[2], f"{LWS}group-key": key}
    labelled = {**leader, "metadata": {**meta, "labels": {**meta["labels"], **told}}}
    domain = meta.get("annotations", {}).get(f"{LWS}exclusive-topology")
    if not domain:
        return labelled
    own, others = ({"key": f"{LWS}group-key", "operator": operator, "values": [key]} for operator in ("In", "NotIn"))
    any_group = {"key": f"{LWS}group-key", "operator": "Exists"}
    terms = {
        name: {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": domain, "labelSelector": {"matchExpressions": asked}}
            ]
        }
        for name, asked in (("podAffinity", [own]), ("podAntiAffinity", [any_group, others]))
    }
    return {**labelled, "spec": {**leader["spec"], "affinity": terms}}


def group_key(leader: Manifest) -> str:
    """Return the digest that all pods of a group carry, as the set's webhook computes it."""
    return digest(f"{leader['metadata'].get('namespace', '')}/{leader['metadata']['name']}")


def workers(lws: Manifest, leader: Manifest) -> Manifest:
    """Return the StatefulSet of a leader's workers."""
    meta, template = leader["metadata"], lws["spec"]["leaderWorkerTemplate"]
    told = {f"{LWS}name": lws["metadata"]["name"], f"{LWS}group-key": group_key(leader)}
    told[f"{LWS}group-index"] = meta["name"].rpartition("-")[2]
    pods = copy.deepcopy(template["workerTemplate"])
    own = pods.setdefault("metadata", {})
    own["labels"] = {**own.get("labels", {}), **told, f"{LWS}template-revision-hash": "1"}
    sized = {f"{LWS}size": str(template.get("size", 1)), f"{LWS}leader-name": meta["name"]}
    own["annotations"] = {**own.get("annotations", {}), **sized}
    made: Manifest = {"name": meta["name"], "labels": told, "ownerReferences": [owner(leader)]}
    if "namespace" in meta:
        made["namespace"] = meta["namespace"]
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": made,
        "spec": {
            "replicas": template.get("size", 1) - 1,
            "podManagementPolicy": "Parallel",
            "serviceName": lws["metadata"]["name"],
            "ordinals": {"start": 1},
            "selector": {"matchLabels": told},
            "template": pods,
        },
    }


# Kubeflow.


def replica_pods(job: Manifest, field: str, *roles: str) -> list[Manifest]:
    """Return the pods of a training job; roles: only of these."""
    found = []
    for role, spec in job["spec"][field].items():
        if roles and role not in roles:
            continue
        for number in range(spec.get("replicas", 1)):
            labels = {
                "training.kubeflow.org/job-name": job["metadata"]["name"],
                "training.kubeflow.org/replica-index": str(number),
                **_role(job, role.lower()),
            }
            name = f"{job['metadata']['name']}-{role.lower()}-{number}"
            found.append(pod_of(job, name, spec["template"], **labels))
    return found


def _role(job: Manifest, role: str) -> dict[str, str]:
    """Return what labels of a pod say of its role. The mpi-operator and the training-operator do not say it alike."""
    if job["apiVersion"] == "kubeflow.org/v2beta1":
        return {"training.kubeflow.org/operator-name": "mpi-operator", "training.kubeflow.org/job-role": role}
    leads = {"training.kubeflow.org/job-role": "master"} if role in ("master", "chief") else {}
    operator = {"training.kubeflow.org/operator-name": f"{job['kind'].lower()}-controller"}
    return {**operator, **leads, "training.kubeflow.org/replica-type": role}


def launcher(job: Manifest) -> Manifest:
    """Return the batch Job that launches an MPIJob of version v2beta1, and is suspended with it."""
    template = copy.deepcopy(job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"])
    template["spec"]["restartPolicy"] = "Never"
    meta: Manifest = {"name": f"{job['metadata']['name']}-launcher", "ownerReferences": [owner(job)]}
    if "namespace" in job["metadata"]:
        meta["namespace"] = job["metadata"]["namespace"]
    labels = {"training.kubeflow.org/job-name": job["metadata"]["name"], **_role(job, "launcher")}
    own = template.setdefault("metadata", {})
    own["labels"] = {**own.get("labels", {}), **labels}
    suspended = job["spec"].get("runPolicy", {}).get("suspend", False)
    spec = {"suspend": suspended, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


# Ray.


def ray_cluster(job: Manifest, suffix: str = "x7k2p") -> Manifest:
    """Return the RayCluster of a RayJob or a RayService, which copies what labels and annotates that.

    suffix: drawn by lot.
    """
    meta: Manifest = {"name": f"{job['metadata']['name']}-{suffix}", "ownerReferences": [owner(job)]}
    for part in ("namespace", "labels", "annotations"):
        if part in job["metadata"]:
            meta[part] = copy.deepcopy(job["metadata"][part])
    spec = copy.deepcopy(job["spec"]["rayClusterSpec" if job["kind"] == "RayJob" else "rayClusterConfig"])
    return {"apiVersion": job["apiVersion"], "kind": "RayCluster", "metadata": meta, "spec": spec}


def ray_pods(cluster: Manifest, lot: str = "", **replicas: int) -> list[Manifest]:
    """Return the head and the workers of a RayCluster. replicas: of groups that Ray has scaled.

    lot: what the ends of workers' names are drawn from; whoever is made anew has another one.
    """
    name, spec = cluster["metadata"]["name"], cluster["spec"]
    ray = {"ray.io/cluster": name, "ray.io/is-ray-node": "yes"}
    head = {**ray, "ray.io/node-type": "head", "ray.io/group": "headgroup"}
    found = [pod_of(cluster, f"{name}-head", spec["headGroupSpec"]["template"], **head)]
    for group in spec.get("workerGroupSpecs", ()):
        labels = {**ray, "ray.io/node-type": "worker", "ray.io/group": group["groupName"]}
        hosts = group.get("numOfHosts", 1)
        for number in range(replicas.get(group["groupName"], group.get("replicas", 0)) * hosts):
            replica, host = divmod(number, hosts)
            own = {**labels, "ray.io/worker-group-replica-index": str(replica)}
            if hosts > 1:
                own["ray.io/worker-group-replica-name"] = f"{group['groupName']}-{digest(f'{lot}{replica}')[:5]}"
                own["ray.io/replica-host-index"] = str(host)
            drawn = digest(f"{lot}{number}")[:5]
            pod = pod_of(cluster, f"{name}-{group['groupName']}-worker-{drawn}", group["template"], **own)
            waits = {"name": "wait-gcs-ready", "image": pod["spec"]["containers"][0].get("image", "ray")}
            waits["resources"] = {"requests": {"cpu": "200m", "memory": "256Mi"}}
            pod["spec"]["initContainers"] = [*pod["spec"].get("initContainers", []), waits]
            found.append(pod)
    return found


# Spark.


def spark_driver(application: Manifest, template: Manifest, *, submission: int = 1) -> Manifest:
    """Return the driver of a SparkApplication. submission: which one of it this is; the pod's name is the same."""
    name = application["metadata"]["name"]
    selector = {"spark-app-selector": f"spark-{submission}"}
    labels = {"spark-role": "driver", **selector, "sparkoperator.k8s.io/app-name": name}
    return pod_of(application, f"{name}-driver", template, **labels)


def spark_executors(driver: Manifest, count: int, template: Manifest, *, first: int = 1) -> list[Manifest]:
    """Return executors as a driver makes them."""
    selector = driver["metadata"].get("labels", {}).get("spark-app-selector", "spark-1")
    labels = {"spark-role": "executor", "spark-app-selector": selector}
    name = driver["metadata"]["name"].removesuffix("-driver")
    return [
        pod_of(driver, f"{name}-exec-{number}", template, **labels, **{"spark-exec-id": str(number)})
        for number in range(first, first + count)
    ]


# Volcano.


def task_pods(job: Manifest, *tasks: str) -> list[Manifest]:
    """Return the pods of some tasks of a Job of Volcano, or of all."""
    found = []
    for task in job["spec"]["tasks"]:
        if tasks and task["name"] not in tasks:
            continue
        for number in range(task.get("replicas", 1)):
            own = job["metadata"]["name"]
            told = {
                "volcano.sh/job-name": own,
                "volcano.sh/task-spec": task["name"],
                "volcano.sh/task-index": str(number),
            }
            pod = pod_of(job, f"{own}-{task['name']}-{number}", task["template"], **told)
            told["volcano.sh/job-version"] = str(job.get("status", {}).get("version", 0))
            told["scheduling.k8s.io/group-name"] = f"{own}-{job['metadata']['uid']}"
            pod["metadata"]["annotations"] = {**pod["metadata"].get("annotations", {}), **told}
            found.append(pod)
    return found


# Argo Workflows.


def workflow_pods(workflow: Manifest, template: Manifest, count: int) -> list[Manifest]:
    """Return the pods of so many steps that a workflow runs at a time. Each keeps its name when it is tried again."""
    name = workflow["metadata"]["name"]
    labels = {"workflows.argoproj.io/workflow": name, "workflows.argoproj.io/completed": "false"}
    steps = (f"{name}[0].step({number})" for number in range(count))
    return [pod_of(workflow, f"{name}-step-{int(digest(step)[:8], 16)}", template, **labels) for step in steps]


def digest(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def labelled(template: Manifest, labels: Mapping[str, str]) -> Manifest:
    """Return a template with more labels."""
    meta = template.get("metadata") or {}
    return {**template, "metadata": {**meta, "labels": {**meta.get("labels", {}), **labels}}}
