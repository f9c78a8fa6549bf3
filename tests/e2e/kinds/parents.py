"""Workloads of every kind as their users submit them, each with three pods that come in two parts."""

from collections.abc import Callable, Sequence
from typing import Any

from tests import standins
from tests.controlplane.fleet import Manifest
from tests.controlplane.observing import eventually
from tests.e2e import herds
from tests.e2e.herds import Herd, named
from tests.standins import an_object

RAY = ("ray.io/v1", "RayCluster")
TRAINING = "kubeflow.org/v1"
EARLY = (
    ("jobset.x-k8s.io/v1alpha2", "JobSet"),
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"),
    *((TRAINING, kind) for kind in ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob")),
    ("kubeflow.org/v2beta1", "MPIJob"),
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"),
    ("sparkoperator.k8s.io/v1beta2", "SparkApplication"),
    ("batch.volcano.sh/v1alpha1", "Job"),
    ("scheduling.volcano.sh/v1beta1", "PodGroup"),
    ("scheduling.x-k8s.io/v1alpha1", "PodGroup"),
    ("scheduling.run.ai/v2alpha2", "PodGroup"),
    ("argoproj.io/v1alpha1", "Workflow"),
)
"""What is installed before Muster starts; RayCluster comes afterwards, and goes before Muster does."""

Part = Callable[[], list[str]]
"""Makes some of the pods, and returns their names."""

Parts = tuple[Manifest, Part, Part]
"""What makes the pods, and its pods in two parts: three in all."""


def replicas(herd: Herd, **counts: int) -> Manifest:
    return {role: {"replicas": count, "template": herd.template()} for role, count in counts.items()}


def training(herd: Herd, name: str = "train") -> Parts:
    field = "pytorchReplicaSpecs"
    job = herd.put(an_object(TRAINING, "PyTorchJob", name, **{field: replicas(herd, Master=1, Worker=2)}))
    return (
        job,
        lambda: named(herd.all(standins.replica_pods(job, field, "Master"))),
        lambda: named(herd.all(standins.replica_pods(job, field, "Worker"))),
    )


def other_training(kind: str, field: str, first: str) -> Callable[[Herd], Parts]:
    """A training job of another framework. first: the role that is made before its workers."""

    def parts(herd: Herd) -> Parts:
        roles = {first: 1, "Worker": 2}
        job = herd.put(an_object(TRAINING, kind, kind.lower(), **{field: replicas(herd, **roles)}))
        return (
            job,
            lambda: named(herd.all(standins.replica_pods(job, field, first))),
            lambda: named(herd.all(standins.replica_pods(job, field, "Worker"))),
        )

    return parts


def jax(herd: Herd) -> Parts:
    """It has workers only."""
    job = herd.put(an_object(TRAINING, "JAXJob", "jax", jaxReplicaSpecs=replicas(herd, Worker=3)))
    pods = standins.replica_pods(job, "jaxReplicaSpecs")
    return job, lambda: named(herd.all(pods[:1])), lambda: named(herd.all(pods[1:]))


def mpi(herd: Herd, name: str = "mpi") -> Parts:
    field = "mpiReplicaSpecs"
    job = herd.put(an_object("kubeflow.org/v2beta1", "MPIJob", name, **{field: replicas(herd, Launcher=1, Worker=2)}))
    return (
        job,
        lambda: named(herd.all(standins.replica_pods(job, field, "Worker"))),
        lambda: herd.pods_of(herd.put(standins.launcher(job)), 1),
    )


def volcano(herd: Herd) -> Parts:
    tasks = [{"name": name, "replicas": count, "template": herd.template()} for name, count in (("ps", 1), ("w", 2))]
    job = herd.put(an_object("batch.volcano.sh/v1alpha1", "Job", "v", minAvailable=3, tasks=tasks))
    return (
        job,
        lambda: named(herd.all(standins.task_pods(job, "ps"))),
        lambda: named(herd.all(standins.task_pods(job, "w"))),
    )


def a_jobset(herd: Herd, name: str, owners: Sequence[Manifest] = (), *, workers: int = 2, **more: Any) -> Manifest:
    entries = [
        {"name": role, "replicas": count, "template": {"spec": {"parallelism": 1, "template": herd.template()}}}
        for role, count in (("driver", 1), ("workers", workers))
    ]
    made = an_object("jobset.x-k8s.io/v1alpha2", "JobSet", name, replicatedJobs=entries, **more)
    made["metadata"]["ownerReferences"] = [*owners]
    return herd.put(made)


def run(herd: Herd, jobset: Manifest, *replicated: str, restarts: int = 0) -> list[str]:
    jobs = herd.all(standins.jobset_jobs(jobset, *replicated, restarts=restarts))
    return [name for job in jobs for name in herd.pods_of(job, 1)]


def jobset(herd: Herd) -> Parts:
    found = a_jobset(herd, "js")
    return found, lambda: run(herd, found, "driver"), lambda: run(herd, found, "workers")


def train_job(herd: Herd) -> Parts:
    """What Kubeflow Trainer makes of a TrainJob is a JobSet of its name; Muster need not read the TrainJob."""
    job = herd.put(an_object("trainer.kubeflow.org/v1alpha1", "TrainJob", "tj", runtimeRef={"name": "torch"}))
    found = a_jobset(herd, "tj", owners=[standins.owner(job)])
    return found, lambda: run(herd, found, "driver"), lambda: run(herd, found, "workers")


def lws(herd: Herd, name: str = "lws", **spec: Any) -> Parts:
    template = {"size": 3, "workerTemplate": herd.template("Always")}
    found = herd.put(
        an_object("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", name, leaderWorkerTemplate=template, **spec)
    )

    def lead() -> list[str]:
        return herd.pods_of(herd.put(standins.leaders(found)), 1)

    def follow() -> list[str]:
        return herd.pods_of(herd.put(standins.workers(found, herd.pod(f"{name}-0"))), 2)

    return found, lead, follow


def a_job(herd: Herd, name: str, pods: int) -> Manifest:
    return herd.put(an_object("batch/v1", "Job", name, parallelism=pods, completions=pods, template=herd.template()))


def jobs_and_sets(herd: Herd) -> list[Manifest]:
    """All that controllers of Kubernetes make pods of."""
    empty = [{"apiVersion": version, "kind": kind} for version, kind in herds.MAKERS]
    return [{**obj, "metadata": one["metadata"]} for obj in empty for one in herd.lab.client.items(herd.path(obj))]


def wait_charged(herd: Herd, devices: int) -> None:
    charges = {herd.lab.meters[0]: str(devices)}
    eventually(
        lambda: [one for one in herd.gangs if one.get("status", {}).get("charges") == charges],
        what=f"{devices} are charged",
    )


CASES: dict[str, Callable[[Herd], Parts]] = {
    "PyTorchJob": training,
    "TFJob": other_training("TFJob", "tfReplicaSpecs", "Chief"),
    "XGBoostJob": other_training("XGBoostJob", "xgbReplicaSpecs", "Master"),
    "PaddleJob": other_training("PaddleJob", "paddleReplicaSpecs", "Master"),
    "JAXJob": jax,
    "MPIJob": mpi,
    "Job of Volcano": volcano,
    "JobSet": jobset,
    "TrainJob": train_job,
    "LeaderWorkerSet": lws,
}
