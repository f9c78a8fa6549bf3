"""`muster why` finds the gang of a pod where something above its nearest owner makes it, or the pod names it."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from admission.api.kubernetes import pods
from admission.api.snapshot import Snapshot
from admission.api.values.decoding import Json
from admission.cli import cluster_options
from admission.cli.why import command, gang_lookup
from admission.errors import FixError, ForbiddenError
from admission.kube.cache import watched_resources
from admission.kube.cache.watched_resources import Kind
from admission.workloads import gang_key
from tests import standins
from tests.standins import Manifest, an_object

SPACE = "a"
TEMPLATE: Manifest = {"metadata": {"labels": {"muster.dev/queue": "q"}}, "spec": {"containers": []}}
FORBIDDEN = "jobsets.jobset.x-k8s.io"


class Served(cluster_options.Cluster):
    """Objects of one namespace, each in the version that it was created in, and the Gangs that a leader has made."""

    def __init__(self, forbidden: str = "") -> None:
        object.__setattr__(self, "objects", {})
        object.__setattr__(self, "gangs", [])
        object.__setattr__(self, "forbidden", forbidden)

    objects: dict[tuple[str, str], Json]
    gangs: list[Json]
    forbidden: str

    def put(self, obj: Manifest) -> Manifest:
        meta = obj["metadata"]
        meta |= {"namespace": SPACE, "uid": f"{obj['kind']}-{meta['name']}".lower()}
        version = obj["apiVersion"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        self.objects[f"{root}/{obj['kind'].lower()}s", meta["name"]] = obj
        return obj

    def all(self, objects: Iterable[Manifest]) -> list[Manifest]:
        return [self.put(obj) for obj in objects]

    def gang(self, name: str, workload: Manifest | None = None) -> None:
        owner = standins.owner(workload) if workload else None
        spec = {"queue": "q", "size": 3, "workload": owner}
        gang = {"metadata": {"name": name, "namespace": SPACE}, "spec": spec, "status": {"phase": "Pending"}}
        self.gangs.append(gang)

    async def list_objects(self, kind: Kind, namespace: str = "", *, labels: str = "") -> list[Json]:
        assert (kind, namespace, labels) == (watched_resources.GANGS, SPACE, "")
        return self.gangs

    async def get_object(self, kind: Kind, name: str, namespace: str = "") -> Json | None:
        assert namespace == SPACE
        if str(kind) == self.forbidden:
            raise ForbiddenError(f"may not get {kind}")
        return self.objects.get((kind.path, name))

    def found(self, pod: Manifest) -> Any:
        return asyncio.run(command._find(self, SPACE, pod["metadata"]["name"]))


def named(workload: str, *uid: str) -> str:
    """What the Gang object of a workload is called."""
    return gang_key.unique_name(workload, gang_key.gang_uid(*uid))


def a_jobset(cluster: Served) -> tuple[Manifest, list[Manifest]]:
    entry = {"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 1, "template": TEMPLATE}}}
    jobset = cluster.put(an_object("jobset.x-k8s.io/v1alpha2", "JobSet", "train", replicatedJobs=[entry]))
    jobs = cluster.all(standins.jobset_jobs(jobset))
    return jobset, [pod for job in jobs for pod in cluster.all(standins.job_pods(job))]


@pytest.mark.parametrize("forbidden", ["", FORBIDDEN], ids=["who may read it", "who may not"])
def test_a_pod_of_a_jobset_leads_to_the_gang_of_the_jobset(forbidden: str) -> None:
    cluster = Served(forbidden)
    jobset, made = a_jobset(cluster)
    cluster.gang("other")
    cluster.gang(named("train", "jobset-train"), jobset)

    assert {cluster.found(pod).name for pod in made} == {named("train", "jobset-train")}


def test_each_pod_of_a_leader_worker_set_is_in_the_gang_of_its_group() -> None:
    cluster = Served()
    template = {"size": 2, "workerTemplate": TEMPLATE}
    lws = cluster.put(
        an_object("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "serve", replicas=2, leaderWorkerTemplate=template)
    )
    first, second = cluster.all(map(standins.grouped, standins.stateful_set_pods(cluster.put(standins.leaders(lws)))))
    (worker,) = cluster.all(standins.stateful_set_pods(cluster.put(standins.workers(lws, second))))
    for leader in (first, second):
        name = leader["metadata"]["name"]
        cluster.gang(named(name, leader["metadata"]["uid"]), lws)

    gangs = [cluster.found(pod).name.rpartition("-")[0] for pod in (first, second, worker)]

    assert gangs == ["serve-0", "serve-1", "serve-1"]


def test_a_launcher_is_in_the_gang_of_an_mpi_job_of_any_version() -> None:
    for version in ("kubeflow.org/v2beta1", "kubeflow.org/v1"):
        cluster = Served()
        replicas = {"Launcher": {"replicas": 1, "template": TEMPLATE}}
        job = cluster.put(an_object(version, "MPIJob", "mpi", mpiReplicaSpecs=replicas))
        (pod,) = cluster.all(standins.job_pods(cluster.put(standins.launcher(job))))
        cluster.gang(named("mpi", "mpijob-mpi"), job)

        assert cluster.found(pod).name == named("mpi", "mpijob-mpi")


def test_a_pod_that_names_a_pod_group_is_in_the_gang_of_that() -> None:
    cluster = Served()
    cluster.put(an_object("scheduling.x-k8s.io/v1alpha1", "PodGroup", "pair", minMember=2))
    pod = cluster.put(a_pod("one", {"scheduling.x-k8s.io/pod-group": "pair"}))
    cluster.gang(named("pair", "podgroup-pair"))

    assert cluster.found(pod).name == named("pair", "podgroup-pair")


def test_a_pod_of_a_group_of_another_system_is_in_the_gang_of_that() -> None:
    cluster = Served()
    one, other = (a_pod(name, {"kueue.x-k8s.io/pod-group-name": "pair"}) for name in ("one", "other"))
    for pod in cluster.all((one, other)):
        pod["metadata"]["annotations"] = {"kueue.x-k8s.io/pod-group-total-count": "2"}
    cluster.gang(gang_key.identify(pods.decode(one), Snapshot()).name)

    assert cluster.found(other).name.startswith("pair-")


def a_pod(name: str, labels: dict[str, str]) -> Manifest:
    labels = {**labels, "muster.dev/queue": "q"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": {}}


def test_annotations_of_a_system_that_is_not_installed_form_no_gang() -> None:
    cluster = Served()
    pod = cluster.put(a_pod("alone", {"scheduling.x-k8s.io/pod-group": "pair"}))
    with pytest.raises(FixError, match="is Muster running"):
        cluster.found(pod)
    cluster.gang(named("alone", "pod-alone"))

    assert cluster.found(pod).name == named("alone", "pod-alone")


def test_a_pod_that_was_made_without_the_queue_of_its_job_says_so() -> None:
    cluster = Served()
    job = an_object("batch/v1", "Job", "train", template={"spec": {"containers": []}})
    job["metadata"]["labels"] = {"muster.dev/queue": "q"}
    (pod,) = cluster.all(standins.job_pods(cluster.put(job)))

    found = cluster.found(pod)
    text = command.outside(asyncio.run(gang_lookup.find(found, cluster)))
    assert text.startswith("pod a/train-0 is in no queue: Muster does not hold it; label muster.dev/queue of Job train")
    assert "names queue q, but the pod was made without it" in text

    lone = cluster.put(standins.pod_of(cluster.put(an_object("apps/v1", "Other", "o")), "lone", TEMPLATE))
    plain = pods.decode({**lone, "metadata": {**lone["metadata"], "labels": {}}})
    assert command.outside(asyncio.run(gang_lookup.find(plain, cluster))).endswith("Muster does not hold it")
