"""Workloads that are held as a whole, with the real Job controller: no pods before, all of them after, nothing left."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from admission.api.values import names
from tests import standins
from tests.controlplane import ApiError, ControlPlane, workloads
from tests.controlplane.clients import Client
from tests.controlplane.fleet import Manifest
from tests.controlplane.observing import eventually, holds_for
from tests.e2e import fixtures, herds
from tests.e2e.herds import Herd, named
from tests.e2e.labs import Lab
from tests.e2e.musters import Muster
from tests.e2e.teams import GROUP
from tests.standins import an_object

DRIVER = "held.test"
RAY = "ray.io/v1"
KINDS = (
    ("jobset.x-k8s.io/v1alpha2", "JobSet"),
    ("kubeflow.org/v1", "PyTorchJob"),
    ("kubeflow.org/v2beta1", "MPIJob"),
    (RAY, "RayJob"),
    (RAY, "RayCluster"),
)

pytestmark = pytest.mark.timeout(300)


muster = fixtures.muster(*KINDS)


@pytest.fixture(scope="module")
def herd(control_plane: ControlPlane, muster: Muster) -> Iterator[Herd]:
    rules: dict[str, Any] = {"holdAt": "Workload", "preemption": {"withinQueue": "LowerPriority"}}
    with herds.of(control_plane, muster, "held", nodes=2, devices=2, **rules) as herd:
        _wait_shown(herd.lab, herd.lab.client)
        yield herd


def _wait_shown(lab: Lab, client: Client) -> None:
    """Wait until the API server asks Muster about workloads: a dry run is suspended, and a resumed one refused."""
    job = {"metadata": {"name": "dry"}, "spec": {"template": {"spec": _spec()}}}

    def is_held() -> bool:
        try:
            answer = client.create(f"{lab.team.jobs}?dryRun=All", job)
        except ApiError:
            return False
        return bool(answer["spec"].get("suspend"))

    eventually(is_held, what="Jobs are held")


def _spec() -> dict[str, Any]:
    return {"restartPolicy": "Never", "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10"}]}


def a_job(herd: Herd, name: str, pods: int, **spec: Any) -> Manifest:
    return an_object("batch/v1", "Job", name, parallelism=pods, completions=pods, template=herd.template(), **spec)


def seen(herd: Herd, job: Manifest) -> Any:
    return herd.lab.client.get(f"{herd.path(job)}/{job['metadata']['name']}")


def mark(found: Any) -> str:
    return str(found["metadata"].get("annotations", {}).get(names.HELD, ""))


def pods_of(herd: Herd, name: str) -> list[str]:
    return [pod for pod in herd.pods if pod.startswith(f"{name}-")]


def wait_running(herd: Herd, name: str, pods: int) -> Any:
    found = eventually(
        lambda: mine if len(mine := pods_of(herd, name)) == pods else None, what=f"{pods} pods of {name}"
    )
    return herd.wait_running(*found)


def test_a_job_is_held_without_pods_resumed_bound_and_leaves_nothing(herd: Herd) -> None:
    lab = herd.lab
    lab.stop_queue("Hold")
    job = herd.put(a_job(herd, "whole", 3))
    gang = herd.wait_held("is stopped", of=job)

    assert job["spec"]["suspend"] is True
    assert mark(job) == "waiting"
    assert gang["status"]["expected"] == 3
    assert gang["status"].get("pods", 0) == 0
    holds_for(1, lambda: not pods_of(herd, "whole"), what="no pod is made")
    said = lab.muster.command("why", f"{lab.namespace.name}/whole")
    assert "3 pods to come; Job whole is suspended until it may start" in said

    lab.stop_queue("None")
    started = wait_running(herd, "whole", 3)
    assert started["metadata"]["uid"] == gang["metadata"]["uid"]
    assert "expected" not in started["status"]
    assert mark(seen(herd, job)) == "started"
    lab.wait_used(gpus=(0, 3))
    kinds = [len(lab.entries("whole", kind)) for kind in ("reserve", "adjust")]
    assert kinds == [1, 1]

    for pod in pods_of(herd, "whole"):
        finish = {"metadata": {"annotations": {workloads.FINISH: "true"}}}
        lab.client.merge_patch(f"{lab.namespace.pods}/{pod}", finish)
    lab.wait_used(gpus=(0, 0))
    assert lab.muster.wrong_books() is None
    herd.clear(job)


def test_who_is_preempted_is_suspended_again_and_resumed_when_there_is_room(herd: Herd) -> None:
    lab = herd.lab
    priority = {"metadata": {"name": "held-high"}, "value": 1000}
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    lab.client.create(classes, priority)
    low = herd.put(a_job(herd, "low", 4))
    wait_running(herd, "low", 4)

    job = a_job(herd, "high", 2)
    job["spec"]["template"]["spec"]["priorityClassName"] = "held-high"
    high = herd.put(job)
    wait_running(herd, "high", 2)

    eventually(lambda: mark(seen(herd, low)) == "waiting", what="the Job is held again")
    assert seen(herd, low)["spec"]["suspend"] is True
    eventually(lambda: not pods_of(herd, "low"), what="its pods are gone")
    herd.wait_held("", of=low)

    herd.delete(high)
    wait_running(herd, "low", 4)
    herd.clear(low, high)
    lab.client.delete(f"{classes}/held-high")


def test_what_its_user_suspends_is_his_and_what_muster_holds_is_not(herd: Herd) -> None:
    lab = herd.lab
    own = herd.put(a_job(herd, "own", 1, suspend=True))
    assert mark(own) == ""
    lab.stop_queue("Hold")
    held = herd.put(a_job(herd, "held", 1))
    herd.wait_held("is stopped", of=held)

    path = f"{lab.team.jobs}/held"
    for change in ({"spec": {"suspend": False}}, {"metadata": {"annotations": {names.HELD: "started"}}}):
        assert "GateTampering" in herd.refusal(path, change)
    lab.stop_queue("None")
    wait_running(herd, "held", 1)
    assert seen(herd, own)["spec"]["suspend"] is True
    assert not pods_of(herd, "own")

    assert herd.refusal(f"{lab.team.jobs}/own", {"spec": {"suspend": False}}) == ""
    wait_running(herd, "own", 1)
    assert mark(seen(herd, own)) == "started"
    lab.client.merge_patch(f"{lab.team.jobs}/own", {"spec": {"suspend": True}})
    eventually(lambda: not pods_of(herd, "own"), what="its pods are gone")
    lab.wait_used(gpus=(0, 1))
    holds_for(1, lambda: not pods_of(herd, "own"), what="what its user has suspended is not resumed")
    herd.clear(own, held)


def test_a_job_that_is_deleted_while_it_is_held_takes_its_hold_and_its_gang_with_it(herd: Herd) -> None:
    herd.lab.stop_queue("Hold")
    job = herd.put(a_job(herd, "gone", 2))
    herd.wait_held("is stopped", of=job)

    herd.delete(job)

    uid = job["metadata"]["uid"]
    eventually(
        lambda: not [gang for gang in herd.gangs if gang["spec"].get("workload", {}).get("uid") == uid],
        what="its Gang is gone",
    )
    herd.lab.stop_queue("None")


def training(herd: Herd) -> tuple[Manifest, Callable[[Manifest], list[str]]]:
    field = "pytorchReplicaSpecs"
    replicas = {
        role: {"replicas": count, "template": herd.template()} for role, count in (("Master", 1), ("Worker", 2))
    }
    job = herd.put(an_object("kubeflow.org/v1", "PyTorchJob", "torch", **{field: replicas}))

    def run(found: Manifest) -> list[str]:
        return [name for role in replicas for name in named(herd.all(standins.replica_pods(found, field, role)))]

    return job, run


def mpi(herd: Herd) -> tuple[Manifest, Callable[[Manifest], list[str]]]:
    """Its launcher's pod comes by way of a batch Job, which is not held once more."""
    replicas = {
        role: {"replicas": count, "template": herd.template()} for role, count in (("Launcher", 1), ("Worker", 2))
    }
    job = herd.put(an_object("kubeflow.org/v2beta1", "MPIJob", "mpi", mpiReplicaSpecs=replicas))

    def run(found: Manifest) -> list[str]:
        workers = named(herd.all(standins.replica_pods(found, "mpiReplicaSpecs", "Worker")))
        return [*workers, *herd.pods_of(herd.put(standins.launcher(found)), 1)]

    return job, run


def jobset(herd: Herd) -> tuple[Manifest, Callable[[Manifest], list[str]]]:
    entries = [
        {"name": role, "replicas": count, "template": {"spec": {"parallelism": 1, "template": herd.template()}}}
        for role, count in (("driver", 1), ("workers", 2))
    ]
    job = herd.put(an_object("jobset.x-k8s.io/v1alpha2", "JobSet", "set", replicatedJobs=entries))

    def run(found: Manifest) -> list[str]:
        jobs = herd.all(standins.jobset_jobs(found))
        return [name for one in jobs for name in herd.pods_of(one, 1)]

    return job, run


def ray_job(herd: Herd) -> tuple[Manifest, Callable[[Manifest], list[str]]]:
    """A RayJob has a RayCluster made, and another one for each retry."""
    head, workers = ({"template": herd.template("Always")} for _ in range(2))
    cluster = {"headGroupSpec": head, "workerGroupSpecs": [{"groupName": "w", "replicas": 2, **workers}]}
    job = herd.put(an_object(RAY, "RayJob", "ray", shutdownAfterJobFinishes=True, rayClusterSpec=cluster))

    def run(found: Manifest) -> list[str]:
        failed = found.get("status", {}).get("failed", 0)
        made = herd.put(standins.ray_cluster(found, f"try-{failed}"))
        return named(herd.all(standins.ray_pods(made)))

    return job, run


def test_a_retry_of_a_ray_job_that_was_held_is_another_gang_at_its_gates(herd: Herd) -> None:
    lab = herd.lab
    job, run = ray_job(herd)
    path = f"{herd.path(job)}/{job['metadata']['name']}"
    eventually(lambda: mark(seen(herd, job)) == "started", what="it is resumed")
    started = {"apiVersion": RAY, "kind": "RayJob", **seen(herd, job)}
    first = herd.wait_running(*run(started))

    lab.client.merge_patch(path, {"status": {"failed": 1}})
    herd.delete({"apiVersion": RAY, "kind": "RayCluster", "metadata": {"name": "ray-try-0"}})
    herd.clear()
    again = herd.wait_running(*run({**started, "status": {"failed": 1}}))

    assert again["metadata"]["name"].startswith("ray-restart-1-")
    assert again["spec"]["workload"]["uid"] == first["spec"]["workload"]["uid"] == job["metadata"]["uid"]
    herd.clear(job, {"apiVersion": RAY, "kind": "RayCluster", "metadata": {"name": "ray-try-1"}})
    assert lab.muster.wrong_books() is None


def test_a_ray_job_that_its_operator_would_give_up_is_stored_unsuspended(herd: Herd) -> None:
    cluster = {"headGroupSpec": {"template": herd.template("Always")}}
    job = herd.put(an_object(RAY, "RayJob", "kept", rayClusterSpec=cluster))

    assert "suspend" not in job["spec"]
    assert mark(job) == ""
    herd.delete(job)


@pytest.mark.parametrize("kind", [training, mpi, jobset, ray_job])
def test_other_kinds_are_held_and_their_pods_take_over_what_was_planned(
    herd: Herd, kind: Callable[[Herd], tuple[Manifest, Callable[[Manifest], list[str]]]]
) -> None:
    lab = herd.lab
    lab.stop_queue("Hold")
    job, run = kind(herd)
    suspend = job["spec"].get("runPolicy", job["spec"])["suspend"]
    assert suspend is True
    gang = herd.wait_held("is stopped", of=job)
    assert gang["status"]["expected"] == 3

    lab.stop_queue("None")
    eventually(lambda: mark(seen(herd, job)) == "started", what="it is resumed")
    lab.wait_used(gpus=(3, 0))
    found = seen(herd, job)
    started = herd.wait_running(*run({"apiVersion": job["apiVersion"], "kind": job["kind"], **found}))
    assert started["metadata"]["uid"] == gang["metadata"]["uid"]
    lab.wait_used(gpus=(0, 3))
    lab.client.delete(f"{herd.path(job)}/{job['metadata']['name']}")
    herd.clear(*[{"apiVersion": "batch/v1", "kind": "Job", **one} for one in lab.client.items(lab.team.jobs)])


def test_with_auto_what_starts_at_once_is_gated_and_what_comes_while_others_wait_is_held(herd: Herd) -> None:
    lab = herd.lab
    path = f"{GROUP}/queues/{lab.team.queue}"
    lab.client.merge_patch(path, {"spec": {"holdAt": "Auto"}})
    try:
        eventually(lambda: not _is_held_now(lab), what="Jobs are not held")
        first = herd.put(a_job(herd, "first", 4))
        assert not first["spec"].get("suspend")
        assert first["spec"]["template"]["metadata"]["labels"][names.QUEUE] == lab.team.queue
        wait_running(herd, "first", 4)
        eventually(lambda: not _is_held_now(lab), what="nobody waits")
        second = herd.put(a_job(herd, "second", 4))
        assert not second["spec"].get("suspend")
        herd.wait_held("", of=second)

        eventually(lambda: _is_held_now(lab), what="Jobs are held, since one waits")
        third = herd.put(a_job(herd, "third", 4))  # a smaller one may go before the second while the first is ending
        assert third["spec"]["suspend"] is True
        herd.wait_held("", of=third)
        assert not pods_of(herd, "third")

        herd.delete(first)
        wait_running(herd, "second", 4)
        herd.delete(second)
        wait_running(herd, "third", 4)
        assert mark(seen(herd, third)) == "started"
        eventually(lambda: not _is_held_now(lab), what="nobody waits any more")
        herd.clear(first, second, third)
    finally:
        lab.client.merge_patch(path, {"spec": {"holdAt": "Workload"}})
        eventually(lambda: _is_held_now(lab), what="Jobs are held")


def _is_held_now(lab: Lab) -> bool:
    job = {"metadata": {"name": "dry"}, "spec": {"template": {"spec": _spec()}}}
    try:
        return bool(lab.client.create(f"{lab.team.jobs}?dryRun=All", job)["spec"].get("suspend"))
    except ApiError:
        return False
