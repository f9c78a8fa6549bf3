"""How long Kubernetes lets gangs run: by what their pods say, and what these belong to."""

from datetime import timedelta

import pytest

from admission.api.values import names
from admission.scheduling.checks import runtime
from tests import standins
from tests.standins import Manifest, an_object
from tests.unit.workloads.kinds.herds import TEMPLATE, Herd, a_pod
from tests.unit.workloads.kinds.test_training import replicas

MINUTE = timedelta(minutes=1)


def with_deadline(template: Manifest, seconds: int) -> Manifest:
    return {**template, "spec": {**template["spec"], "activeDeadlineSeconds": seconds}}


def a_job(template: Manifest = TEMPLATE, **spec: object) -> Manifest:
    return an_object("batch/v1", "Job", "train", parallelism=2, completions=2, template=template, **spec)


def a_jobset(*deadlines: int | None) -> Manifest:
    jobs = []
    for number, seconds in enumerate(deadlines):
        spec: Manifest = {"parallelism": 1, "template": TEMPLATE}
        if seconds is not None:
            spec["activeDeadlineSeconds"] = seconds
        jobs.append({"name": f"part-{number}", "replicas": 1, "template": {"spec": spec}})
    return an_object("jobset.x-k8s.io/v1alpha2", "JobSet", "train", replicatedJobs=jobs)


def made(parent: Manifest) -> Herd:
    """Put an object, and the pods that come of it."""
    herd = Herd()
    stored = herd.put(parent)
    match parent["kind"]:
        case "Job":
            herd.all(standins.job_pods(stored))
        case "JobSet":
            for job in herd.all(standins.jobset_jobs(stored)):
                herd.all(standins.job_pods(job))
        case "RayJob":
            herd.all(standins.ray_pods(herd.put(standins.ray_cluster(stored))))
        case "MPIJob":
            herd.all(standins.replica_pods(stored, "mpiReplicaSpecs", "Worker"))
        case _:
            herd.all(standins.replica_pods(stored, "pytorchReplicaSpecs"))
    return herd


POLICY = {"runPolicy": {"activeDeadlineSeconds": 120}}
CLUSTER = {"headGroupSpec": {"template": TEMPLATE}, "workerGroupSpecs": []}

SAID: dict[str, tuple[Manifest, timedelta | None]] = {
    "a Job": (a_job(activeDeadlineSeconds=120), 2 * MINUTE),
    "a Job that says nothing": (a_job(), None),
    "a Job that says zero": (a_job(activeDeadlineSeconds=0), None),
    "a Job, and its pods sooner": (a_job(with_deadline(TEMPLATE, 60), activeDeadlineSeconds=120), MINUTE),
    "a Job sooner than its pods": (a_job(with_deadline(TEMPLATE, 120), activeDeadlineSeconds=60), MINUTE),
    "all Jobs of a JobSet: the latest": (a_jobset(60, 120), 2 * MINUTE),
    "a JobSet of which one Job goes on for ever": (a_jobset(60, None), None),
    "a training job": (
        an_object("kubeflow.org/v1", "PyTorchJob", "train", pytorchReplicaSpecs=replicas(Master=1), **POLICY),
        2 * MINUTE,
    ),
    "an MPIJob": (
        an_object("kubeflow.org/v2beta1", "MPIJob", "train", mpiReplicaSpecs=replicas(Launcher=1, Worker=1), **POLICY),
        2 * MINUTE,
    ),
    "a RayJob, which makes its pods by way of a RayCluster": (
        an_object("ray.io/v1", "RayJob", "train", rayClusterSpec=CLUSTER, activeDeadlineSeconds=120),
        2 * MINUTE,
    ),
}


@pytest.mark.parametrize(("parent", "longest"), SAID.values(), ids=SAID)
def test_the_runtime_of_a_gang_is_bounded_by_the_active_deadline_of_its_owners(
    parent: Manifest, longest: timedelta | None
) -> None:
    assert runtime.declared_runtime(made(parent).gang, None) == longest


def test_the_deadline_of_a_jobset_is_known_before_its_jobs_exist() -> None:
    herd = Herd()
    stored = herd.put(a_jobset(60, 120))

    (parent,) = herd.parents["JobSet.jobset.x-k8s.io"].values()

    assert (parent.meta.uid, parent.deadline) == (stored["metadata"]["uid"], 2 * MINUTE)


def test_a_named_gang_has_the_deadline_of_its_job_while_all_its_pods_belong_to_the_job() -> None:
    said = {names.GANG: "own", names.GANG_SIZE: "2"}
    template = {**TEMPLATE, "metadata": {**TEMPLATE["metadata"], "annotations": said}}
    herd = made(a_job(template, activeDeadlineSeconds=60))
    assert herd.gang.uid == "team/own"
    assert herd.gang.deadline == MINUTE

    herd.put(a_pod("beside", **said))
    assert herd.gang.deadline is None
