"""`muster simulate` makes the pods of TrainJobs and of the workloads of apps/v1 as their controllers do."""

from typing import Any

import pytest

from admission.api.values.names import QUEUE
from tests.unit.simulation.simulated import Objects, expand, fates, job, node, of, simulate, teams
from tests.unit.simulation.test_workloads import owned

Json = dict[str, Any]
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"


def template(**more: Any) -> Json:
    """A pod with one GPU that runs for ever."""
    claims = [{"name": "gpu", "resourceClaimTemplateName": "train"}]
    spec = {"containers": [{"name": "node", "image": "train"}], "resourceClaims": claims, **more}
    return {"metadata": {"labels": {"app": "a"}}, "spec": spec}


def workload(kind: str, name: str = "web", *, pod: Json | None = None, **spec: Any) -> Objects:
    whole = {"selector": {"matchLabels": {"app": "a"}}, "template": template(**(pod or {})), **spec}
    return [{"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": whole}]


def devices() -> Objects:
    return job("train")[:1]


@pytest.mark.parametrize(
    ("found", "names"),
    [
        (workload("Deployment", replicas=2), ["web-0", "web-1"]),
        (workload("Deployment"), ["web-0"]),
        (workload("ReplicaSet", replicas=2), ["web-0", "web-1"]),
        (workload("StatefulSet", replicas=2, ordinals={"start": 4}), ["web-4", "web-5"]),
        (workload("DaemonSet"), ["web-one-0", "web-two-0"]),
        (workload("DaemonSet", pod={"nodeSelector": {"rack": "r"}}), ["web-two-0"]),
        (workload("Deployment", replicas=0), []),
    ],
)
def test_each_pod_is_a_gang_of_its_own(found: Objects, names: list[str]) -> None:
    two, slice_ = node("two", 4)
    cluster = [*node("one", 4), {**two, "metadata": {"name": "two", "labels": {"rack": "r"}}}, slice_]

    outcome = simulate(teams(), cluster, devices(), found)

    assert fates(outcome) == dict.fromkeys(names, "Admitted")
    assert all(pod.node in gang.name for gang in outcome.gangs for pod in gang.plan if "DaemonSet" in str(found))


def test_a_daemonset_passes_by_nodes_that_its_pod_does_not_tolerate() -> None:
    one, two = node("one", 4), node("two", 4)
    one[0]["spec"] = {"taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]}
    two[0]["spec"] = {"taints": [{"key": "theirs", "effect": "NoSchedule"}]}

    assert fates(simulate(teams(), one, two, devices(), workload("DaemonSet"))) == {"web-one-0": "Admitted"}


def test_what_of_a_deployment_does_not_fit_waits_alone() -> None:
    outcome = simulate(teams(2), node("one", 4), devices(), workload("Deployment", replicas=3))

    assert fates(outcome) == {"web-0": "Admitted", "web-1": "Admitted", "web-2": "QuotaExceeded"}


def test_the_pods_of_a_deployment_enter_the_queue_of_its_label() -> None:
    (found,) = workload("Deployment")
    found["metadata"]["labels"] = {QUEUE: "tema"}

    assert fates(simulate(teams(), node("one", 4), devices(), [found])) == {"web-0": "UnknownQueue"}


def test_pods_that_the_input_shows_are_not_made_again() -> None:
    """Also where it shows neither the ReplicaSet of a Deployment nor, of a ReplicaSet, more than its owner."""
    by_name, by_owner = workload("Deployment", replicas=2), workload("Deployment", "api", replicas=2)
    by_owner[0]["metadata"]["uid"] = "d-1"
    pod: Json = {"apiVersion": "v1", "kind": "Pod", **template()}
    pod["metadata"] = {"name": "web-x1-y", "uid": "p-1", "labels": {"app": "a", "pod-template-hash": "x1"}}
    shown = owned({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web-x1", "uid": "r-1"}}, pod)
    (none,) = workload("ReplicaSet", "api-x1", replicas=0)

    found = expand(teams(), node("one", 4), devices(), by_name, [shown], by_owner, [owned(by_owner[0], none)])

    assert [one.meta.name for one in found.snapshot.pods.values()] == ["web-x1-y"]


def test_the_pods_of_a_statefulset_have_volumes_of_their_own() -> None:
    """A volume that one of them has already keeps it to its node."""
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "local",
    }
    sets = workload("StatefulSet", replicas=2, volumeClaimTemplates=[{"metadata": {"name": "data"}, "spec": claim}])
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["two"]}
    cluster = [*node("one", 4), *node("two", 4)]
    for one in cluster[::2]:
        one["metadata"]["labels"] = {"kubernetes.io/hostname": one["metadata"]["name"]}
    stored: Objects = [
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "local"},
            "provisioner": "csi.example.com",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data-web-1", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
            "spec": {**claim, "volumeName": "v"},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "v"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "1Gi"},
                "storageClassName": "local",
                "claimRef": {"name": "data-web-1", "namespace": "default"},
                "local": {"path": "/data"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
            },
        },
    ]

    outcome = simulate(teams(), cluster, devices(), stored, sets)

    assert fates(outcome) == {"web-0": "Admitted", "web-1": "Admitted"}
    assert [pod.node for pod in of(outcome, "web-1").plan] == ["two"]


def test_more_pods_than_are_simulated_are_a_problem_of_the_field() -> None:
    ((_, error),) = expand(teams(), workload("StatefulSet", replicas=10_001)).problems

    assert [(one.field, one.message) for one in error.problems] == [
        ("spec.replicas", "makes 10001 pods at a time; simulated are 0 to 10000")
    ]


# TrainJobs.


def runtime(*, policy: Json, kind: str = "ClusterTrainingRuntime", **jobs: Json) -> Objects:
    """A runtime. jobs: the ancestor of each ReplicatedJob and its number of pods, by its name."""
    replicated = [
        {
            "name": name,
            "template": {
                "metadata": {"labels": {STEP: one["step"]} if "step" in one else {}},
                "spec": {"parallelism": one.get("pods", 1), "template": template(restartPolicy="Never")},
            },
        }
        for name, one in jobs.items()
    ]
    spec = {"mlPolicy": policy, "template": {"spec": {"replicatedJobs": replicated}}}
    return [{"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": kind, "metadata": {"name": "torch"}, "spec": spec}]


def train_job(trainer: Json | None = None, **spec: Any) -> Objects:
    reference = spec.pop("runtimeRef", {"name": "torch"})
    whole = {"runtimeRef": reference, **({"trainer": trainer} if trainer else {}), **spec}
    return [
        {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "t"}, "spec": whole}
    ]


TORCH = runtime(policy={"numNodes": 2, "torch": {}}, node={"step": "trainer"})
MPI = {"numNodes": 1, "mpi": {"runLauncherAsNode": True}}


@pytest.mark.parametrize(
    ("found", "pods"),
    [
        ([*TORCH, *train_job()], 2),
        ([*TORCH, *train_job({"numNodes": 3})], 3),
        ([*runtime(policy=MPI, launcher={"step": "trainer"}, node={}), *train_job({"numNodes": 4})], 4),
        ([*runtime(policy=MPI, launcher={"step": "trainer"}, node={}), *train_job()], 2),
        (
            [
                *runtime(policy={"numNodes": 2}, kind="TrainingRuntime", node={"step": "trainer"}),
                *train_job(runtimeRef={"name": "torch", "kind": "TrainingRuntime"}),
            ],
            2,
        ),
    ],
    ids=["of the runtime", "of the job", "MPI with its launcher", "MPI of the runtime", "a namespace's runtime"],
)
def test_the_pods_of_a_train_job_are_those_of_its_runtime(found: Objects, pods: int) -> None:
    gang = of(simulate(teams(), node("one", 4), devices(), found), "t")

    assert (gang.verdict, gang.charges) == ("Admitted", {"gpus": pods})


def test_a_train_job_says_otherwise_what_its_runtime_leaves_open() -> None:
    patch = {
        "metadata": {"labels": {QUEUE: "team"}},
        "spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": {"spec": {
            "nodeSelector": {"rack": "r"}, "containers": [{"name": "node", "env": [{"name": "A", "value": "b"}]}],
        }}}}}]},
    }  # fmt: skip
    trainer = {"resourcesPerNode": {"requests": {"cpu": "2"}}}
    found = train_job(trainer, runtimePatches=[{"manager": "a.b/c", "trainingRuntimeSpec": {"template": patch}}])

    (pod, _) = expand(teams(), node("one", 4), devices(), TORCH, found).snapshot.pods.values()

    assert (pod.queue, pod.node_selector, dict(pod.requests)["cpu"]) == ("team", {"rack": "r"}, 2000)


@pytest.mark.parametrize(
    ("found", "note"),
    [
        (
            train_job(),
            "TrainJob default/t is left out: the input does not have its runtime, ClusterTrainingRuntime torch",
        ),
        ([*TORCH, *train_job(suspend=True)], "JobSet default/t is suspended and makes no pods"),
        (
            [*TORCH, *train_job(podTemplateOverrides=[{"targetJobs": []}])],
            "TrainJob default/t: podTemplateOverrides is not simulated",
        ),
    ],
)
def test_what_is_not_made_of_a_train_job_is_told(found: Objects, note: str) -> None:
    assert note in expand(teams(), devices(), found).notes


def test_the_jobset_of_a_train_job_is_not_made_where_the_input_shows_it() -> None:
    shown: Json = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "t", "uid": "j-1"}}
    shown["spec"] = {"suspend": True, "replicatedJobs": []}

    assert not expand(teams(), devices(), TORCH, train_job(), [shown]).snapshot.pods
