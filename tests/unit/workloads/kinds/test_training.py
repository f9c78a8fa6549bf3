"""Training jobs, Ray, Spark and Volcano: how many pods a gang has, and which of them come first."""

from typing import Any

import pytest

from admission.api.kubernetes.meta import Meta
from admission.api.values import names
from admission.api.values.decoding import Reader
from admission.workloads import gangs, suspendable
from admission.workloads.kinds import catalog, kubeflow
from tests import standins
from tests.standins import Manifest, an_object
from tests.unit.workloads.kinds.herds import TEMPLATE, Herd

FIELDS = {
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
    "JAXJob": "jaxReplicaSpecs",
}


def replicas(**counts: int) -> Manifest:
    return {role: {"replicas": count, "template": TEMPLATE} for role, count in counts.items()}


def training(kind: str, **spec: Any) -> Manifest:
    field = FIELDS[kind]
    return an_object("kubeflow.org/v1", kind, "train", **{field: replicas(Master=1, Worker=3), **spec})


@pytest.mark.parametrize("kind", FIELDS)
def test_all_replicas_of_a_training_job_are_a_gang(kind: str) -> None:
    herd = Herd()
    job = herd.put(training(kind))
    herd.all(standins.replica_pods(job, FIELDS[kind]))

    assert (herd.gang.uid, herd.gang.identity.size, herd.gang.identity.needed) == (job["metadata"]["uid"], 4, 4)
    assert len(herd.gang.pods) == 4


FEWER: dict[str, Manifest] = {
    "minAvailable": {"runPolicy": {"schedulingPolicy": {"minAvailable": 2}}},
    "elastic": {"elasticPolicy": {"minReplicas": 2, "maxReplicas": 8}},
}


@pytest.mark.parametrize("spec", FEWER.values(), ids=FEWER)
def test_a_training_job_may_start_with_fewer(spec: Manifest) -> None:
    herd = Herd()
    job = herd.put(training("PyTorchJob", **spec))
    herd.all(standins.replica_pods(job, "pytorchReplicaSpecs", "Worker"))

    assert (herd.gang.identity.size, herd.gang.identity.needed) == (4, 2)


def mpi(**spec: Any) -> Manifest:
    return an_object("kubeflow.org/v2beta1", "MPIJob", "mpi", mpiReplicaSpecs=replicas(Launcher=1, Worker=2), **spec)


def test_an_mpi_job_is_its_workers_and_the_launcher_that_comes_by_way_of_a_job() -> None:
    herd = Herd()
    job = herd.put(mpi())
    herd.all(standins.replica_pods(job, "mpiReplicaSpecs", "Worker"))
    herd.all(standins.job_pods(herd.put(standins.launcher(job))))

    assert herd.reported == {("mpi-launcher-0", "mpi-worker-0", "mpi-worker-1"): (3, 3)}


@pytest.mark.parametrize(("works", "indexes"), [(False, [None, "0", "1"]), (True, ["0", "1", "2"])])
def test_a_launcher_that_works_is_the_first_replica_of_its_mpi_job(works: bool, indexes: list[str | None]) -> None:
    templates = kubeflow.mpi_templates(Reader(mpi(runLauncherAsWorker=works)), Meta(name="mpi"))

    labels = [{**one.labels, **one.parts_of(number)} for one in templates for number in range(one.pods)]

    assert [each.get(kubeflow.REPLICA_INDEX) for each in labels] == indexes


def test_pods_of_an_mpi_job_are_known_by_their_role_where_they_have_no_replica_type() -> None:
    herd = Herd()
    job = herd.put(mpi())
    herd.all(standins.replica_pods(job, "mpiReplicaSpecs", "Worker"))
    herd.all(standins.job_pods(herd.put(standins.launcher(job))))

    assert {pod.meta.name: (catalog.is_leader(pod), gangs.subgroup_of(pod)) for pod in herd.gang.pods} == {
        "mpi-launcher-0": (True, "launcher"),
        "mpi-worker-0": (False, "worker"),
        "mpi-worker-1": (False, "worker"),
    }


def test_a_launcher_that_waits_for_the_workers_is_a_gang_of_its_own() -> None:
    herd = Herd()
    job = herd.put(mpi(launcherCreationPolicy="WaitForWorkersReady"))
    herd.all(standins.replica_pods(job, "mpiReplicaSpecs", "Worker"))
    herd.all(standins.job_pods(herd.put(standins.launcher(job))))

    assert herd.reported == {("mpi-worker-0", "mpi-worker-1"): (2, 2), ("mpi-launcher-0",): (1, 1)}


def test_the_launcher_of_an_earlier_mpi_job_is_a_pod_of_its_own() -> None:
    herd = Herd()
    job = herd.put(mpi() | {"apiVersion": "kubeflow.org/v1"})
    herd.all(standins.replica_pods(job, "mpiReplicaSpecs"))

    assert [len(group.pods) for group in herd.gangs] == [3]


def ray(**spec: Any) -> Manifest:
    groups = [
        {"groupName": "big", "replicas": 2, "minReplicas": 1, "maxReplicas": 4, "numOfHosts": 2, "template": TEMPLATE},
        {"groupName": "off", "replicas": 3, "minReplicas": 3, "suspend": True, "template": TEMPLATE},
    ]
    head = {"template": TEMPLATE}
    return an_object("ray.io/v1", "RayCluster", "ray", headGroupSpec=head, workerGroupSpecs=groups, **spec)


def test_a_ray_cluster_is_its_head_and_all_hosts_of_its_workers() -> None:
    herd = Herd()
    cluster = herd.put(ray())
    herd.all(standins.ray_pods(cluster, off=0))

    assert (len(herd.gang.pods), herd.gang.identity.size, herd.gang.identity.needed) == (5, 5, 5)


def test_a_ray_cluster_that_scales_starts_with_the_fewest_workers() -> None:
    herd = Herd()
    cluster = herd.put(ray(enableInTreeAutoscaling=True))
    herd.all(standins.ray_pods(cluster, big=1, off=0))

    assert (len(herd.gang.pods), herd.gang.identity.size, herd.gang.identity.needed) == (3, 5, 3)


def test_the_submitter_of_a_ray_job_is_no_part_of_the_gang() -> None:
    """It is made when the cluster is up: who waited for it would wait for ever."""
    herd = Herd()
    cluster = herd.put(ray())
    herd.all(standins.ray_pods(cluster, off=0))
    ray_job = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "r", "uid": "ray-job"}}
    meta = {"name": "submit", "ownerReferences": [standins.owner(ray_job)]}
    submitter = herd.put({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": TEMPLATE}})
    herd.all(standins.job_pods(submitter))

    assert sorted(herd.reported.values()) == [(1, 1), (5, 5)]


def ray_job(**status: Any) -> Manifest:
    meta = {"name": "job", "uid": "ray-job", "annotations": {names.HELD: "started"}}
    spec = {"shutdownAfterJobFinishes": True, "rayClusterSpec": ray()["spec"]}
    return {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": meta, "spec": spec, "status": status}


def test_the_pods_of_the_cluster_of_a_held_ray_job_are_the_gang_of_the_ray_job() -> None:
    herd = Herd()
    job = herd.put(ray_job())
    herd.all(standins.ray_pods(herd.put(standins.ray_cluster(job)), off=0))

    identity = herd.gang.identity
    assert (identity.uid, identity.size, identity.needed) == ("ray-job", 5, 5)
    assert identity.workload is not None
    assert (identity.workload.kind, identity.workload.uid) == ("RayJob", "ray-job")


def test_each_retry_of_a_ray_job_is_another_gang() -> None:
    herd = Herd()
    job = herd.put(ray_job())
    first = herd.all(standins.ray_pods(herd.put(standins.ray_cluster(job, "one")), off=0))
    known = herd.gang.identity
    for pod in first:
        herd.take(pod)

    herd.put(ray_job(failed=1))
    herd.all(standins.ray_pods(herd.put(standins.ray_cluster(job, "two")), off=0))

    again = herd.gang.identity
    assert (len(herd.gang.pods), again.size) == (5, 5)
    assert known.uid != again.uid == "ray-job/restart-1"
    assert again.position_key == known.position_key


def test_a_ray_job_that_is_not_held_or_not_seen_says_nothing_of_its_cluster() -> None:
    herd = Herd()
    job = ray_job()
    del job["metadata"]["annotations"]
    cluster = herd.put(standins.ray_cluster(herd.put(job)))
    herd.all(standins.ray_pods(cluster, off=0))
    assert herd.gang.uid == cluster["metadata"]["uid"]

    herd.take(job)
    assert herd.gang.uid == cluster["metadata"]["uid"]


def test_the_submitter_of_a_held_ray_job_is_no_part_of_the_gang() -> None:
    herd = Herd()
    job = herd.put(ray_job())
    herd.all(standins.ray_pods(herd.put(standins.ray_cluster(job)), off=0))
    meta = {"name": "submit", "ownerReferences": [standins.owner(job)]}
    submitter = herd.put({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": TEMPLATE}})
    herd.all(standins.job_pods(submitter))

    assert sorted(herd.reported.values()) == [(1, 1), (5, 5)]


@pytest.mark.parametrize("operated", [True, False], ids=["by the operator", "by spark-submit"])
def test_a_spark_driver_starts_alone_and_its_executors_as_they_come(operated: bool) -> None:
    herd = Herd()
    application = herd.put(
        an_object("sparkoperator.k8s.io/v1beta2", "SparkApplication", "pi", executor={"instances": 3})
    )
    driver = standins.spark_driver(application, TEMPLATE)
    if not operated:
        del driver["metadata"]["ownerReferences"]
    driver = herd.put(driver)
    assert herd.reported == {("pi-driver",): (1, 1)}

    herd.all(standins.spark_executors(driver, 2, TEMPLATE))

    size = 3 if operated else 0
    assert herd.reported == {("pi-driver",): (1, 1), ("pi-exec-1", "pi-exec-2"): (size, 1)}


def test_an_executor_without_its_driver_waits() -> None:
    herd = Herd()
    driver = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pi-driver", "uid": "gone"}}
    herd.all(standins.spark_executors(driver, 1, TEMPLATE))

    assert "Pod pi-driver, which the pods belong to, is not seen yet" in herd.gang.identity.unknown


def task(name: str, count: int, **more: Any) -> Manifest:
    return {"name": name, "replicas": count, "template": TEMPLATE, **more}


def test_a_volcano_job_starts_with_its_min_available_pods() -> None:
    herd = Herd()
    job = an_object("batch.volcano.sh/v1alpha1", "Job", "v", minAvailable=3, tasks=[task("ps", 1), task("worker", 4)])
    herd.all(standins.task_pods(herd.put(job)))

    assert (len(herd.gang.pods), herd.gang.identity.size, herd.gang.identity.needed) == (5, 5, 3)


def test_a_task_that_depends_on_others_is_a_gang_of_its_own() -> None:
    herd = Herd()
    tasks = [task("ps", 2), task("worker", 3, dependsOn={"name": ["ps"]})]
    job = herd.put(an_object("batch.volcano.sh/v1alpha1", "Job", "v", minAvailable=5, tasks=tasks))
    herd.all(standins.task_pods(job))

    assert sorted(herd.reported.values()) == [(2, 2), (3, 3)]


EXECUTORS: dict[str, tuple[Manifest, int]] = {
    "one where nothing is said": ({}, 1),
    "those that are said": ({"executor": {"instances": 3}}, 3),
    "the first ones of a number that changes": ({"dynamicAllocation": {"enabled": True, "initialExecutors": 2}}, 2),
    "the fewest of a number that changes": ({"dynamicAllocation": {"enabled": True, "minExecutors": 4}}, 4),
    "none of a number that begins at 0": ({"dynamicAllocation": {"enabled": True}}, 0),
    "those that are said while the number does not change": ({"dynamicAllocation": {"enabled": False}}, 1),
}


@pytest.mark.parametrize(("spec", "size"), EXECUTORS.values(), ids=EXECUTORS)
def test_the_executors_of_a_spark_application_are(spec: Manifest, size: int) -> None:
    herd = Herd()
    application = herd.put(an_object("sparkoperator.k8s.io/v1beta2", "SparkApplication", "pi", **spec))
    driver = herd.put(standins.spark_driver(application, TEMPLATE))
    herd.all(standins.spark_executors(driver, 1, TEMPLATE))

    assert herd.reported[("pi-exec-1",)] == (size, 1)


PLANNED: dict[str, tuple[tuple[str, ...], str, list[str]]] = {
    "workers and launcher together": (("Launcher", "Worker"), "AtStartup", ["mpi-launcher", "mpi-worker"]),
    "workers before a launcher that waits for them": (("Launcher", "Worker"), "WaitForWorkersReady", ["mpi-worker"]),
    "a launcher that has no workers to wait for": (("Launcher",), "WaitForWorkersReady", ["mpi-launcher"]),
}


@pytest.mark.parametrize(("roles", "policy", "planned"), PLANNED.values(), ids=PLANNED)
def test_the_expected_pods_of_a_held_mpi_job_follow_its_replica_specs(
    roles: tuple[str, ...], policy: str, planned: list[str]
) -> None:
    replicas = {role: {"replicas": 2 if role == "Worker" else 1, "template": TEMPLATE} for role in roles}
    job = an_object("kubeflow.org/v2beta1", "MPIJob", "mpi", mpiReplicaSpecs=replicas, launcherCreationPolicy=policy)

    templates = suspendable.BY_KEY["MPIJob.kubeflow.org"].templates(job)

    assert [template.name for template in templates] == planned
    assert [template.pods for template in templates] == [2 if "worker" in name else 1 for name in planned]


GROUPS: dict[str, tuple[Manifest, tuple[int, int]]] = {
    "its replicas": ({"replicas": 3}, (4, 1)),
    "the fewest where no number is said": ({"minReplicas": 2}, (3, 3)),
    "no fewer than the fewest": ({"replicas": 1, "minReplicas": 2}, (3, 3)),
    "no more than the most": ({"replicas": 5, "maxReplicas": 2}, (3, 1)),
    "all hosts of each": ({"replicas": 3, "minReplicas": 1, "numOfHosts": 2}, (7, 3)),
    "none while it is suspended": ({"replicas": 3, "minReplicas": 1, "suspend": True}, (1, 1)),
}


@pytest.mark.parametrize(("group", "sizes"), GROUPS.values(), ids=GROUPS)
def test_of_a_group_of_ray_workers_are_counted_with_the_head(group: Manifest, sizes: tuple[int, int]) -> None:
    """How many pods there are, and how many are needed where the cluster scales."""

    def wave(**spec: Any) -> tuple[int, int]:
        ray = an_object("ray.io/v1", "RayCluster", "ray", workerGroupSpecs=[group], **spec)
        found = catalog.BY_GROUP["ray.io", "RayCluster"].decode(
            {**ray, "metadata": {**ray["metadata"], "uid": "u", "namespace": "team"}}
        )
        return found.waves[""].pods, found.waves[""].needed

    assert wave(enableInTreeAutoscaling=True) == sizes
    assert wave() == (sizes[0], sizes[0])


SUSPENDS: dict[str, tuple[Manifest, bool]] = {
    "one that shuts its cluster down": ({}, True),
    "one that leaves its cluster": ({"shutdownAfterJobFinishes": False}, False),
    "one of a cluster that is there": ({"clusterSelector": {"ray.io/cluster": "x"}}, False),
    "one that waits for somebody to submit": ({"submissionMode": "InteractiveMode"}, False),
}


@pytest.mark.parametrize(("spec", "may"), SUSPENDS.values(), ids=SUSPENDS)
def test_whether_a_ray_job_may_be_suspended(spec: Manifest, may: bool) -> None:
    job = an_object("ray.io/v1", "RayJob", "ray", **{"shutdownAfterJobFinishes": True, **spec})

    assert suspendable.BY_KEY["RayJob.ray.io"].may_suspend(Reader(job)) is may
