"""Every kind of workload on a real control plane: who is a gang, from what is there of it, and of what comes later."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from admission.api import names
from tests import standins
from tests.controlplane import ControlPlane, workloads
from tests.controlplane.fleet import Manifest
from tests.controlplane.observing import eventually, holds_for
from tests.e2e import herds
from tests.e2e.herds import Herd, an_object, named
from tests.e2e.musters import Muster
from tests.e2e.teams import GROUP

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

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def muster(control_plane: ControlPlane) -> Iterator[Muster]:
    client = control_plane.client()
    with herds.installed(client, *EARLY), herds.looked_after(control_plane) as muster, herds.installed(client, RAY):
        yield muster


@pytest.fixture(scope="module")
def herd(control_plane: ControlPlane, muster: Muster) -> Iterator[Herd]:
    with herds.of(control_plane, muster, "herd", nodes=4, devices=16) as herd:
        yield herd


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


def a_jobset(herd: Herd, name: str, owners: Sequence[Manifest] = (), **more: Any) -> Manifest:
    entries = [
        {"name": role, "replicas": count, "template": {"spec": {"parallelism": 1, "template": herd.template()}}}
        for role, count in (("driver", 1), ("workers", 2))
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


def test_every_workload_is_held_until_all_of_its_pods_exist_and_starts_whole(herd: Herd) -> None:
    found = {case: parts(herd) for case, parts in CASES.items()}
    early = {case: first() for case, (_, first, _) in found.items()}
    held = {}
    for case, pods in early.items():
        message = f"{len(pods)} of 3 pods exist; the gang starts with all of them"
        held[case] = herd.wait_held(message, *pods, of=found[case][0])

    whole = {case: [*early[case], *rest()] for case, (_, _, rest) in found.items()}
    for case, all_of_it in whole.items():
        started = herd.wait_running(*all_of_it)
        assert started["metadata"]["name"] == held[case]["metadata"]["name"], case
        assert started["status"]["charges"] == {"gpus-herd": "3"}, case
    herd.clear(*(parent for parent, _, _ in found.values()), *jobs_and_sets(herd))


def jobs_and_sets(herd: Herd) -> list[Manifest]:
    """All that controllers of Kubernetes make pods of."""
    empty = [{"apiVersion": version, "kind": kind} for version, kind in herds.MAKERS]
    return [{**obj, "metadata": one["metadata"]} for obj in empty for one in herd.lab.client.items(herd.path(obj))]


def test_jobs_start_whole_and_what_else_makes_pods_one_by_one(herd: Herd) -> None:
    """A StatefulSet that is OrderedReady makes its second pod when the first is ready."""
    jobs = [
        herd.put(an_object("batch/v1", "Job", name, parallelism=3, completions=3, template=herd.template(), **more))
        for name, more in (("plain", {}), ("indexed", {"completionMode": "Indexed"}))
    ]
    sets = []
    for kind, more in (("StatefulSet", {"serviceName": "x"}), ("Deployment", {})):
        template = herd.template("Always", app=kind.lower())
        selector = {"matchLabels": {"app": kind.lower()}}
        sets.append(
            herd.put(an_object("apps/v1", kind, kind.lower(), replicas=2, selector=selector, template=template, **more))
        )
    workflow = herd.put(an_object("argoproj.io/v1alpha1", "Workflow", "steps"))
    steps = named(herd.all(standins.pod_of(workflow, f"steps-{number}", herd.template()) for number in range(2)))

    for job in jobs:
        gang = herd.wait_running(*herd.pods_of(job, 3))
        assert gang["spec"]["workload"]["name"] == job["metadata"]["name"]
    for name in ("statefulset-0", "statefulset-1", *steps):
        assert herd.wait_running(name)["spec"]["workload"]["kind"] == "Pod"
    fronts = eventually(
        lambda: found if len(found := [name for name in herd.pods if name.startswith("deployment-")]) == 2 else None,
        what="two pods of the Deployment",
    )
    for name in fronts:
        herd.wait_running(name)
    herd.clear(workflow, *jobs, *sets)


def test_who_makes_pods_in_turn_starts_in_turn_and_is_another_gang_when_it_starts_again(herd: Herd) -> None:
    in_order = a_jobset(herd, "turns", startupPolicy={"startupPolicyOrder": "InOrder"})
    led, lead, follow = lws(herd, "led", startupPolicy="LeaderReady")
    application = herd.put(
        an_object("sparkoperator.k8s.io/v1beta2", "SparkApplication", "pi", executor={"instances": 3})
    )
    spark = herd.put(standins.spark_driver(application, herd.template()))
    driver, (leader,) = run(herd, in_order, "driver"), lead()

    first = herd.wait_running(*driver)
    alone = herd.wait_running(leader)
    herd.wait_running("pi-driver")

    herd.all(standins.spark_executors(spark, 1, herd.template()))
    second = herd.wait_running(*run(herd, in_order, "workers"))
    herd.wait_running(*follow())
    herd.wait_running("pi-exec-1")
    herd.all(standins.spark_executors(spark, 2, herd.template(), first=2))
    joined = herd.wait_running("pi-exec-1", "pi-exec-2", "pi-exec-3")
    assert joined["metadata"]["name"].startswith("pi-driver-executors-")

    # Both controllers make all anew: the one under the next attempt, the other with another leader.
    herd.delete(*[job for job in jobs_and_sets(herd) if job["metadata"]["name"].startswith(("turns-", "led-"))])
    herd.delete(herd.pod(leader))
    eventually(lambda: not [name for name in herd.pods if name.startswith("turns-")], what="the first try is gone")
    again = herd.wait_running(*run(herd, in_order, "driver", restarts=1))
    assert again["metadata"]["name"].startswith("turns-restart-1-")
    assert len({gang["metadata"]["uid"] for gang in (first, second, again)}) == 3
    herd.wait_running(leader, other_than=alone)
    herd.clear(in_order, led, application, *jobs_and_sets(herd))


def test_a_set_is_scaled_by_whole_groups(herd: Herd) -> None:
    """The real controller of StatefulSets makes and deletes the leaders, and the garbage collector their workers."""
    group, lead, follow = lws(herd, "scaled")
    one = herd.wait_running(*lead(), *follow())
    stays = [herd.pod(name)["metadata"]["uid"] for name in ("scaled-0", "scaled-0-1", "scaled-0-2")]
    leaders = f"{herd.path(standins.leaders(group))}/scaled"

    herd.lab.client.merge_patch(leaders, {"spec": {"replicas": 2}})
    herd.pod("scaled-1")
    herd.wait_held("1 of 3 pods exist", "scaled-1", of=group)
    more = ["scaled-1", *herd.pods_of(herd.put(standins.workers(group, herd.pod("scaled-1"))), 2)]
    other = herd.wait_running(*more)
    assert other["metadata"]["uid"] != one["metadata"]["uid"]
    herd.lab.wait_used(gpus=(0, 6))

    herd.lab.client.merge_patch(leaders, {"spec": {"replicas": 1}})
    eventually(lambda: not set(more) & set(herd.pods), what="the group is gone, the workers with their leader")
    herd.lab.wait_used(gpus=(0, 3))
    assert [pod["metadata"]["uid"] for _, pod in sorted(herd.pods.items())] == stays
    herd.clear(group, *jobs_and_sets(herd))


def test_a_training_job_grows_shrinks_has_a_pod_replaced_and_starts_whole_again(herd: Herd) -> None:
    job, first, rest = training(herd, "again")
    pods = [*first(), *rest()]
    gang = herd.wait_running(*pods)
    path = f"{herd.path(job)}/again"

    def workers(count: int) -> list[Manifest]:
        """Have its user scale it, and return the workers that its operator would have then."""
        field = "pytorchReplicaSpecs"
        scaled = herd.lab.client.merge_patch(path, {"spec": {field: {"Worker": {"replicas": count}}}})
        return standins.replica_pods({**job, **scaled}, field, "Worker")

    (added,) = workers(3)[2:]
    herd.wait_running(*pods, *named(herd.all([added])))
    wait_charged(herd, 4)
    workers(2)
    herd.delete(added)
    wait_charged(herd, 3)

    # Its operator deletes a pod that has failed and may be tried again, and makes it anew.
    last = herd.pod(pods[-1])
    replaced = next(one for one in workers(2) if one["metadata"]["name"] == pods[-1])
    herd.delete(last)
    wait_charged(herd, 2)
    herd.put(replaced)
    assert herd.wait_running(*pods)["metadata"]["uid"] == gang["metadata"]["uid"]
    assert herd.pod(pods[-1])["spec"]["nodeName"] == last["spec"]["nodeName"]

    herd.delete(*map(herd.pod, pods))
    herd.lab.wait_used(gpus=(0, 0))
    (master,) = first()
    herd.wait_held("1 of 3 pods exist", master, of=job)
    rest()
    herd.wait_running(*pods)
    herd.clear(job)


KUEUE = "kueue.x-k8s.io/pod-group-"
YUNIKORN = "yunikorn.apache.org/"


def migrants() -> dict[str, tuple[dict[str, str], dict[str, str]]]:
    """The labels and annotations by which other systems know a pair."""
    groups = json.dumps([{"name": "a", "minMember": 2}])
    return {
        "kueue": ({f"{KUEUE}name": "pair"}, {f"{KUEUE}total-count": "2"}),
        "yunikorn": (
            {f"{YUNIKORN}app-id": "pair"},
            {f"{YUNIKORN}task-group-name": "a", f"{YUNIKORN}task-groups": groups},
        ),
        "volcano": ({}, {"scheduling.k8s.io/group-name": "pair"}),
        "coscheduling": ({"scheduling.x-k8s.io/pod-group": "pair"}, {}),
        "kai": ({}, {"pod-group-name": "pair"}),
    }


def test_who_comes_from_another_scheduler_is_the_gang_that_it_was(herd: Herd) -> None:
    groups = [herd.put(an_object(version, kind, "pair", minMember=2)) for version, kind in EARLY if kind == "PodGroup"]
    pods = {
        system: [
            workloads.pod(f"{system}-{number}", template="one", labels=labels, annotations=annotations)
            for number in range(2)
        ]
        for system, (labels, annotations) in migrants().items()
    }
    herd.all(one for one, _ in pods.values())
    eventually(lambda: herd.told("1 of 2 pods exist") == len(pods), what="all wait for their second pod")
    for group in groups:
        herd.wait_held("1 of 2 pods exist", of=group)
    assert all(pod["spec"].get("schedulingGates") for pod in herd.pods.values())

    herd.all(other for _, other in pods.values())
    for system in pods:
        herd.wait_running(f"{system}-0", f"{system}-1")
    other = {"metadata": {"labels": {f"{KUEUE}name": "other"}}}
    assert "queue, gang and claims are fixed when the pod" in herd.refusal(f"{herd.lab.namespace.pods}/kueue-0", other)
    herd.clear(*groups)


def test_nobody_joins_a_gang_by_what_he_writes_and_more_than_declared_are_charged(herd: Herd) -> None:
    path = herd.lab.namespace.pods
    group, lead, follow = lws(herd, "mine")
    (leader,) = lead()
    forged = standins.pod_of(herd.pod(leader), "forged", herd.template("Always"))
    del forged["metadata"]["ownerReferences"]
    forged["metadata"]["labels"] |= {
        f"{standins.LWS}name": "mine",
        f"{standins.LWS}group-index": "0",
        f"{standins.LWS}group-key": standins.group_key(herd.pod(leader)),
    }
    forged["metadata"]["annotations"] = {f"{standins.LWS}size": "1"}
    owned = standins.pod_of(group, "owned", herd.template("Always"))
    owned["metadata"]["ownerReferences"][0]["uid"] = "00000000-0000-4000-8000-000000000000"
    herd.put(forged)
    assert herd.wait_running("forged")["spec"]["workload"]["kind"] == "Pod"
    herd.wait_held("1 of 3 pods exist", leader, of=group)

    said = herd.refusal(f"{path}/{leader}", {"metadata": {"annotations": {f"{standins.LWS}size": "1"}}})
    assert "queue, gang and claims are fixed when the pod" in said

    # The garbage collector deletes what has an owner that does not exist; until then it waits.
    herd.put(owned)
    holds_for(1, lambda: is_gated_or_gone(herd, "owned"), what="it is not let in")
    herd.wait_running(leader, *follow())

    job, first, rest = training(herd, "many")
    more = standins.pod_of(job, "many-worker-9", herd.template())
    pods = [*first(), *named(herd.all([more])), *rest()]
    herd.wait_running(*pods)
    wait_charged(herd, 4)
    herd.clear(group, job, *jobs_and_sets(herd))


def is_gated_or_gone(herd: Herd, name: str) -> bool:
    pod = herd.pods.get(name)
    return pod is None or bool(pod["spec"].get("schedulingGates"))


def test_who_belongs_to_a_kind_that_muster_may_not_read_waits_for_the_right_and_nobody_else_does(
    herd: Herd, muster: Muster
) -> None:
    muster.end()
    with muster.deprived("mpijobs", "leaderworkersets"):
        muster.start()
        (job, work, launch), (group, lead, follow) = mpi(herd), lws(herd, "dark")
        distributed, served = [*launch(), *work()], [*lead(), *follow()]
        for parent, pods, asked, right in (
            (job, distributed, "mpi", "mpijobs of API group kubeflow.org"),
            (group, served, served[-1], "leaderworkersets of API group leaderworkerset.x-k8s.io"),
        ):
            told = f"grant verb list on resource {right} in the whole cluster"
            hold = herd.wait_held(told, *pods, of=parent)["status"]["hold"]
            assert hold["reason"] == "GangIncomplete"
            assert f"Muster cannot see objects of kind {parent['kind']}." in hold["message"]
            assert told in muster.command("why", f"{herd.lab.namespace.name}/{asked}")

        seen, first, rest = training(herd, "seen")
        herd.wait_running(*first(), *rest())
        plain = a_job(herd, "plain", 2)
        herd.wait_running(*herd.pods_of(plain, 2))
        left = left_to_its_gates(herd)
        assert all(herd.pods[name]["spec"].get("schedulingGates") for name in (*distributed, *served))
        assert any("mpijobs" in line for line in muster.refusals), "clean() would not see it where it should not be"

    herd.wait_running(*distributed)
    herd.wait_running(*served)
    eventually(lambda: not herd.told("cannot see") + herd.told("none of its"), what="nobody is told of what is granted")
    herd.clear(job, group, seen, plain, left, *jobs_and_sets(herd))


def a_job(herd: Herd, name: str, pods: int) -> Manifest:
    return herd.put(an_object("batch/v1", "Job", name, parallelism=pods, completions=pods, template=herd.template()))


def left_to_its_gates(herd: Herd) -> Manifest:
    """See that a workload that Muster may not read is not held as a whole in a queue that holds others so."""
    path = f"{GROUP}/queues/{herd.lab.team.queue}"
    herd.lab.client.merge_patch(path, {"spec": {"holdAt": "Workload"}})
    dry = an_object("batch/v1", "Job", "dry", template=herd.template())
    eventually(
        lambda: herd.lab.client.create(f"{herd.lab.team.jobs}?dryRun=All", dry)["spec"].get("suspend"),
        what="Jobs are held as a whole",
    )
    left, _, _ = mpi(herd, "left")
    assert "suspend" not in left["spec"].get("runPolicy", {})
    assert names.HELD not in left["metadata"].get("annotations", {})
    herd.lab.client.merge_patch(path, {"spec": {"holdAt": "Pod"}})
    return left


def test_an_elastic_gang_starts_with_the_least_and_is_joined_by_who_comes(herd: Herd) -> None:
    def member(number: int) -> Manifest:
        told = {names.GANG: "elastic", names.GANG_SIZE: "4", names.GANG_MIN: "2"}
        return workloads.pod(f"e-{number}", template="one", annotations=told)

    herd.put(member(0))
    herd.wait_held("1 of 4 pods exist; the gang starts with 2", "e-0")
    herd.put(member(1))
    herd.wait_running("e-0", "e-1")
    herd.all(map(member, (2, 3)))
    herd.wait_running("e-0", "e-1", "e-2", "e-3")

    # One goes and is made anew; another goes for good.
    node = herd.pod("e-3")["spec"]["nodeName"]
    herd.delete(*map(member, (2, 3)))
    wait_charged(herd, 2)
    herd.put(member(3))
    herd.wait_running("e-0", "e-1", "e-3")
    assert herd.pod("e-3")["spec"]["nodeName"] == node
    wait_charged(herd, 3)
    herd.clear()


def wait_charged(herd: Herd, devices: int) -> None:
    charges = {"gpus-herd": str(devices)}
    eventually(
        lambda: [one for one in herd.gangs if one.get("status", {}).get("charges") == charges],
        what=f"{devices} are charged",
    )


def test_a_kind_that_is_installed_while_muster_runs_is_noticed_and_may_go_again(herd: Herd) -> None:
    """Muster looks for what was not served every minute."""
    group = {"groupName": "big", "replicas": 1, "minReplicas": 1, "numOfHosts": 2}
    workers = [{**group, "template": herd.template("Always")}]
    cluster = herd.put(
        an_object(*RAY, "ray", headGroupSpec={"template": herd.template("Always")}, workerGroupSpecs=workers)
    )
    head, *others = standins.ray_pods(cluster)
    herd.put(head)
    herd.wait_held("1 of 3 pods exist", "ray-head", of=cluster, within=90.0)
    whole = ["ray-head", *named(herd.all(others))]
    herd.wait_running(*whole)

    # Ray scales it, up and down.
    more = standins.ray_pods(cluster, big=2)[len(whole) :]
    herd.lab.client.merge_patch(
        f"{herd.path(cluster)}/ray", {"spec": {"workerGroupSpecs": [{**workers[0], "replicas": 2}]}}
    )
    herd.wait_running(*whole, *named(herd.all(more)))
    wait_charged(herd, 5)
    herd.delete(*more)
    wait_charged(herd, 3)
    herd.clear(cluster)

    herds.remove(herd.lab.client, RAY)
    after = herd.put(an_object("batch/v1", "Job", "after", parallelism=2, completions=2, template=herd.template()))
    herd.wait_running(*herd.pods_of(after, 2))
    herd.clear(after)
    assert "are right" in herd.lab.muster.ledger("verify")
