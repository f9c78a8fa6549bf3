"""Expected pods have the labels that the pods of their controller will have, since rules between pods read them."""

from typing import Any

import pytest

from admission.api.kubernetes import meta
from admission.api.values import names
from admission.api.values.decoding import Reader
from admission.api.values.names import Uid
from admission.workloads import suspendable
from tests import standins
from tests.standins import Manifest, an_object
from tests.unit.workloads.kinds.herds import TEMPLATE

REPLICAS = {role: {"replicas": count, "template": TEMPLATE} for role, count in (("Launcher", 1), ("Worker", 2))}


def an_owner(api_version: str, kind: str, **spec: Any) -> Manifest:
    made = an_object(api_version, kind, "train", **spec)
    return {**made, "metadata": {**made["metadata"], "namespace": "team", "uid": "u"}}


JOB = an_owner("batch/v1", "Job", parallelism=2, template=TEMPLATE)
JOBSET = an_owner(
    "jobset.x-k8s.io/v1alpha2",
    "JobSet",
    replicatedJobs=[
        {"name": name, "replicas": 2, "template": {"spec": {"parallelism": 2, "template": TEMPLATE}}} for name in "ab"
    ],
)
PYTORCH = an_owner(
    "kubeflow.org/v1",
    "PyTorchJob",
    pytorchReplicaSpecs={role: {"replicas": 2, "template": TEMPLATE} for role in ("Master", "Worker")},
)
MPI = an_owner("kubeflow.org/v2beta1", "MPIJob", mpiReplicaSpecs=REPLICAS)
OLD_MPI = {**MPI, "apiVersion": "kubeflow.org/v1"}
RAY = an_owner(
    "ray.io/v1",
    "RayJob",
    rayClusterSpec={
        "headGroupSpec": {"template": TEMPLATE},
        "workerGroupSpecs": [
            {"groupName": name, "replicas": 2, "numOfHosts": hosts, "template": TEMPLATE}
            for name, hosts in (("one", 1), ("two", 2))
        ],
    },
)


LWS = an_owner(
    "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", leaderWorkerTemplate={"size": 3, "workerTemplate": TEMPLATE}
)


def group_pods() -> list[Manifest]:
    stateful_set = standins.leaders(LWS)
    named = {**stateful_set, "metadata": {**stateful_set["metadata"], "uid": "s"}}
    (leader,) = map(standins.grouped, standins.stateful_set_pods(named))
    workers = standins.workers(LWS, {**leader, "metadata": {**leader["metadata"], "uid": "l"}})
    return [leader, *standins.stateful_set_pods({**workers, "metadata": {**workers["metadata"], "uid": "w"}})]


def ray_pods() -> list[Manifest]:
    cluster = standins.ray_cluster(RAY)
    return standins.ray_pods({**cluster, "metadata": {**cluster["metadata"], "uid": "c"}})


def jobs_and_pods(jobs: list[Manifest]) -> list[Manifest]:
    named = [{**job, "metadata": {**job["metadata"], "uid": f"job-{at}"}} for at, job in enumerate(jobs)]
    return [pod for job in named for pod in standins.job_pods(job)]


CASES: dict[str, tuple[str, Manifest, list[Manifest]]] = {
    "Job": ("Job.batch", JOB, standins.job_pods(JOB)),
    "JobSet": ("JobSet.jobset.x-k8s.io", JOBSET, jobs_and_pods(standins.jobset_jobs(JOBSET))),
    "PyTorchJob": (
        "PyTorchJob.kubeflow.org",
        PYTORCH,
        standins.replica_pods(PYTORCH, "pytorchReplicaSpecs"),
    ),
    "MPIJob of the training-operator": (
        "MPIJob.kubeflow.org",
        OLD_MPI,
        standins.replica_pods(OLD_MPI, "mpiReplicaSpecs"),
    ),
    "MPIJob": (
        "MPIJob.kubeflow.org",
        MPI,
        [*jobs_and_pods([standins.launcher(MPI)]), *standins.replica_pods(MPI, "mpiReplicaSpecs", "Worker")],
    ),
    "RayJob": ("RayJob.ray.io", RAY, ray_pods()),
    "LeaderWorkerSet": ("LeaderWorkerSet.leaderworkerset.x-k8s.io", LWS, group_pods()),
}
DRAWN = ("ray.io/worker-group-replica-name",)
"""Labels with values drawn by lot, which only tell which pods have the same one."""


@pytest.mark.parametrize(("key", "owner", "made"), CASES.values(), ids=CASES)
def test_expected_pods_have_the_labels_of_those_made(key: str, owner: Manifest, made: list[Manifest]) -> None:
    kind = suspendable.WITH_TEMPLATES[key]
    found = [
        suspendable.pod_body(
            template,
            number,
            owner=kind.owner(meta.decode(Reader(owner))),
            namespace="team",
            uid=Uid("p"),
            created="2026-11-21T12:00:00Z",
        )["metadata"]["labels"]
        for template in kind.templates(owner)
        for number in range(template.pods)
    ]

    assert len(found) == len(made)
    for expected, pod in zip(found, made, strict=True):
        unknown = {label for label, value in expected.items() if value.startswith(names.UNKNOWN_LABEL)} | {*DRAWN}
        for label, value in pod["metadata"]["labels"].items():
            assert label in expected
            assert label in unknown or expected[label] == value, label
