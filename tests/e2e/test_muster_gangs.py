"""Every kind of workload on a real control plane: held, let in as a whole, made again, and deleted."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from admission.api import names
from tests import standins
from tests.controlplane import ApiError, ControlPlane, workloads
from tests.controlplane.fleet import Manifest
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.e2e import herds
from tests.e2e.herds import Herd
from tests.e2e.labs import Lab, plain
from tests.e2e.musters import ROOT, Muster, grant

DRIVER = "herd1.test"
NODES, DEVICES = 2, 4

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def kinds(control_plane: ControlPlane) -> Iterator[None]:
    with herds.installed(control_plane.client()):
        yield


@pytest.fixture(scope="module")
def muster(control_plane: ControlPlane, kinds: None) -> Iterator[Muster]:
    muster = Muster(control_plane).start()
    yield muster
    assert "Traceback" not in muster.logs
    assert "a gang could not be dealt with" not in muster.logs
    muster.clean()


@pytest.fixture
def herd(control_plane: ControlPlane, muster: Muster, namespace: Namespace) -> Iterator[Herd]:
    lab = Lab(control_plane=control_plane, muster=muster, namespace=namespace, driver=DRIVER)
    for number in range(NODES):
        lab.node(f"herd-{number}", plain(DEVICES))
    lab.device_class()
    lab.meter("gpus", count={})
    lab.found(unmeteredClasses="Allow")
    request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER, "count": 1}}
    namespace.create(workloads.claim_template("one", request))
    yield Herd(lab)
    lab.clear()


Part = Callable[[], list[str]]
"""Makes some of the pods, and returns the names of all that it has made."""


def an_object(api_version: str, kind: str, name: str, **spec: Any) -> Manifest:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def named(pods: list[Manifest]) -> list[str]:
    return [pod["metadata"]["name"] for pod in pods]


def replicas(herd: Herd, **counts: int) -> Manifest:
    return {role: {"replicas": count, "template": herd.template()} for role, count in counts.items()}


def training(herd: Herd, kind: str, field: str) -> tuple[Manifest, Part, Part]:
    job = herd.put(an_object("kubeflow.org/v1", kind, "train", **{field: replicas(herd, Master=1, Worker=2)}))
    return (
        job,
        lambda: named(herd.all(standins.replica_pods(job, field, "Master"))),
        lambda: named(herd.all(standins.replica_pods(job, field, "Worker"))),
    )


def launched(herd: Herd, job: Manifest) -> list[str]:
    """The launcher of an MPIJob, by its Job, which the real Job controller runs."""
    made = herd.put(standins.launcher(job))
    return job_pods(herd, made)


def job_pods(herd: Herd, job: Manifest) -> list[str]:
    uid, count = job["metadata"]["uid"], job["spec"].get("parallelism", 1)

    def mine() -> list[str]:
        return [name for name, pod in herd.pods.items() if pod["metadata"]["ownerReferences"][0]["uid"] == uid]

    return eventually(lambda: found if len(found := mine()) == count else None, what=f"{count} pods of the Job")


def mpi(herd: Herd) -> tuple[Manifest, Part, Part]:
    job = herd.put(
        an_object("kubeflow.org/v2beta1", "MPIJob", "mpi", mpiReplicaSpecs=replicas(herd, Launcher=1, Worker=2))
    )
    return (
        job,
        lambda: named(herd.all(standins.replica_pods(job, "mpiReplicaSpecs", "Worker"))),
        lambda: launched(herd, job),
    )


def ray(herd: Herd) -> tuple[Manifest, Part, Part]:
    group = {"groupName": "big", "replicas": 1, "minReplicas": 1, "numOfHosts": 2, "template": herd.template("Always")}
    head = {"template": herd.template("Always")}
    cluster = herd.put(an_object("ray.io/v1", "RayCluster", "ray", headGroupSpec=head, workerGroupSpecs=[group]))
    head_pod, *workers = standins.ray_pods(cluster)
    return cluster, lambda: named(herd.all([head_pod])), lambda: named(herd.all(workers))


def volcano(herd: Herd) -> tuple[Manifest, Part, Part]:
    tasks = [{"name": name, "replicas": count, "template": herd.template()} for name, count in (("ps", 1), ("w", 2))]
    job = herd.put(an_object("batch.volcano.sh/v1alpha1", "Job", "v", minAvailable=3, tasks=tasks))
    return (
        job,
        lambda: named(herd.all(standins.task_pods(job, "ps"))),
        lambda: named(herd.all(standins.task_pods(job, "w"))),
    )


def entry(herd: Herd, name: str, replicas: int, pods: int, **more: Any) -> Manifest:
    spec = {"parallelism": pods, "completions": pods, "template": herd.template()}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}, **more}


def run_jobset(herd: Herd, jobset: Manifest, *replicated: str, restarts: int = 0) -> list[str]:
    jobs = herd.all(standins.jobset_jobs(jobset, *replicated, restarts=restarts))
    return [name for job in jobs for name in job_pods(herd, job)]


def jobset(herd: Herd) -> tuple[Manifest, Part, Part]:
    entries = [entry(herd, "driver", 1, 1), entry(herd, "workers", 2, 1)]
    found = herd.put(an_object("jobset.x-k8s.io/v1alpha2", "JobSet", "js", replicatedJobs=entries))
    return found, lambda: run_jobset(herd, found, "driver"), lambda: run_jobset(herd, found, "workers")


def lws(herd: Herd, **spec: Any) -> tuple[Manifest, Part, Part]:
    template = {"size": 3, "workerTemplate": herd.template("Always")}
    found = herd.put(
        an_object("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "lws", leaderWorkerTemplate=template, **spec)
    )

    def lead() -> list[str]:
        herd.put(standins.leaders(found))
        return named([herd.pod("lws-0")])

    def follow() -> list[str]:
        herd.put(standins.workers(found, herd.pod("lws-0")))
        return named([herd.pod(name) for name in ("lws-0-1", "lws-0-2")])

    return found, lead, follow


CASES: dict[str, Callable[[Herd], tuple[Manifest, Part, Part]]] = {
    "PyTorchJob": lambda herd: training(herd, "PyTorchJob", "pytorchReplicaSpecs"),
    "JAXJob": lambda herd: training(herd, "JAXJob", "jaxReplicaSpecs"),
    "MPIJob": mpi,
    "RayCluster": ray,
    "Job of Volcano": volcano,
    "JobSet": jobset,
    "LeaderWorkerSet": lws,
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_workload_is_held_until_all_of_its_pods_exist_and_starts_whole_and_leaves_nothing(
    herd: Herd, case: Callable[[Herd], tuple[Manifest, Part, Part]]
) -> None:
    parent, first, rest = case(herd)
    early = first()
    gang = herd.wait_held(f"{len(early)} of 3 pods exist; the gang starts with all of them", *early)
    assert gang["spec"]["workload"]["kind"] == parent["kind"]
    assert gang["spec"]["workload"]["uid"] == parent["metadata"]["uid"]

    pods = [*early, *rest()]
    started = herd.wait_running(*pods)
    assert started["metadata"]["name"] == gang["metadata"]["name"]
    herd.lab.wait_used(gpus=(0, 3))

    herd.delete(parent)
    herd.wait_gone()


def test_a_jobset_in_order_starts_lot_by_lot_and_is_another_gang_when_it_restarts(herd: Herd) -> None:
    entries = [entry(herd, "driver", 1, 1), entry(herd, "workers", 2, 1)]
    order = {"startupPolicyOrder": "InOrder"}
    parent = herd.put(
        an_object("jobset.x-k8s.io/v1alpha2", "JobSet", "js", replicatedJobs=entries, startupPolicy=order)
    )
    driver = run_jobset(herd, parent, "driver")
    first = herd.wait_running(*driver)
    workers = run_jobset(herd, parent, "workers")
    second = herd.wait_running(*workers)

    herd.lab.client.delete(f"{herd.lab.team.jobs}?propagationPolicy=Background")
    eventually(lambda: not herd.lab.client.items(herd.lab.namespace.pods), what="the pods of the first try are gone")
    again = herd.wait_running(*run_jobset(herd, parent, "driver", restarts=1))

    uids = {gang["metadata"]["uid"] for gang in (first, second, again)}
    assert len(uids) == 3
    herd.lab.wait_used(gpus=(0, 1))


def test_a_leader_that_has_to_be_ready_first_is_let_in_alone_and_a_new_leader_is_a_new_gang(herd: Herd) -> None:
    parent, lead, follow = lws(herd, startupPolicy="LeaderReady")
    (leader,) = lead()
    first = herd.wait_running(leader)
    workers = follow()
    herd.wait_running(*workers)

    # A restart of the group: its controller deletes the leader, and with it goes the StatefulSet of its workers.
    uid = herd.pods[leader]["metadata"]["uid"]
    herd.lab.client.delete(f"{herd.lab.namespace.pods}/{leader}?propagationPolicy=Foreground")
    eventually(
        lambda: herd.pods.get(leader, {}).get("metadata", {}).get("uid", uid) != uid, what="a new leader", within=90
    )
    again = herd.wait_running(leader)
    assert again["metadata"]["uid"] != first["metadata"]["uid"]
    eventually(lambda: set(herd.pods) == {leader}, what="the workers of the first are gone", within=90)
    herd.wait_running(*follow())

    herd.delete(parent)
    herd.wait_gone()


def test_a_forged_digest_or_owner_joins_nothing_and_holds_up_nobody(herd: Herd) -> None:
    parent, lead, follow = lws(herd)
    (leader,) = lead()
    mine = herd.pod(leader)
    forged = standins.pod_of(mine, "forged", herd.template("Always"))
    del forged["metadata"]["ownerReferences"]
    forged["metadata"]["labels"] |= {
        f"{standins.LWS}name": "lws",
        f"{standins.LWS}group-index": "0",
        f"{standins.LWS}group-key": standins.group_key(mine),
    }
    forged["metadata"]["annotations"] = {f"{standins.LWS}size": "1"}
    owned = standins.pod_of(parent, "owned", herd.template("Always"))
    owned["metadata"]["ownerReferences"][0]["uid"] = "00000000-0000-4000-8000-000000000000"
    herd.put(forged)
    herd.wait_running("forged")
    herd.wait_held("1 of 3 pods exist", leader)

    # The garbage collector deletes what has an owner that does not exist; until then it waits.
    herd.put(owned)
    eventually(
        lambda: "owned" not in herd.pods or herd.pods["owned"]["spec"].get("schedulingGates"), what="it is not let in"
    )

    herd.wait_running(leader, *follow())
    label = {"metadata": {"annotations": {f"{standins.LWS}size": "1"}}}
    said = herd.refusal(f"{herd.lab.namespace.pods}/{leader}", label)
    assert "queue, gang and claims are fixed when the pod" in said


def test_spark_starts_with_its_driver_and_takes_executors_as_they_come(herd: Herd) -> None:
    application = herd.put(
        an_object("sparkoperator.k8s.io/v1beta2", "SparkApplication", "pi", executor={"instances": 3})
    )
    driver = herd.put(standins.spark_driver(application, herd.template()))
    herd.wait_running("pi-driver")
    herd.all(standins.spark_executors(driver, 1, herd.template()))
    herd.wait_running("pi-exec-1")
    herd.all(standins.spark_executors(driver, 2, herd.template(), first=2))
    gang = herd.wait_running("pi-exec-1", "pi-exec-2", "pi-exec-3")
    assert gang["metadata"]["name"].startswith("pi-driver-executors-")

    herd.delete(application)
    herd.wait_gone()


KUEUE = "kueue.x-k8s.io/pod-group-"


def test_pods_in_the_words_of_other_schedulers_are_gangs(herd: Herd) -> None:
    group = herd.put(an_object("scheduling.x-k8s.io/v1alpha1", "PodGroup", "pair", minMember=2))
    pods = []
    for number in range(2):
        pod = workloads.pod(f"cos-{number}", template="one", labels={"scheduling.x-k8s.io/pod-group": "pair"})
        pods.append(pod)
    for number in range(3):
        told = {f"{KUEUE}total-count": "3"}
        pods.append(workloads.pod(f"kue-{number}", template="one", labels={f"{KUEUE}name": "trio"}, annotations=told))
    herd.all([pods[0], *pods[2:4]])
    held = herd.wait_held("1 of 2 pods exist", "cos-0")
    assert held["spec"]["workload"]["uid"] == group["metadata"]["uid"]
    herd.wait_held("2 of 3 pods exist", "kue-0", "kue-1")

    herd.all([pods[1], pods[4]])
    herd.wait_running("cos-0", "cos-1")
    herd.wait_running("kue-0", "kue-1", "kue-2")

    said = herd.refusal(f"{herd.lab.namespace.pods}/kue-0", {"metadata": {"labels": {f"{KUEUE}name": "other"}}})
    assert "queue, gang and claims are fixed when the pod" in said


def test_stateful_sets_and_deployments_start_pod_by_pod(herd: Herd) -> None:
    """A StatefulSet that is OrderedReady makes its second pod when the first is ready."""
    template = standins.labelled(herd.template("Always"), {"app": "web"})
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    stateful_set = herd.put(an_object("apps/v1", "StatefulSet", "db", serviceName="db", **spec))
    template = standins.labelled(herd.template("Always"), {"app": "front"})
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "front"}}, "template": template}
    deployment = herd.put(an_object("apps/v1", "Deployment", "front", **spec))

    herd.wait_running("db-0")
    herd.wait_running("db-1")
    for name in eventually(
        lambda: found if len(found := [name for name in herd.pods if name.startswith("front-")]) == 2 else None,
        what="two pods of the Deployment",
    ):
        herd.wait_running(name)

    herd.delete(stateful_set)
    herd.delete(deployment)
    herd.wait_gone()


def test_a_parent_that_is_gone_and_one_with_pods_in_two_queues_are_told(herd: Herd) -> None:
    client = herd.lab.client
    parent, first, _ = training(herd, "PyTorchJob", "pytorchReplicaSpecs")
    (master,) = first()
    herd.wait_held("1 of 3 pods exist", master)
    client.delete(f"{herd.path(parent)}/train?propagationPolicy=Orphan")
    # Orphans have no owner any more, and are gangs of their own.
    herd.wait_running(master)

    parent, first, _ = training(herd, "PyTorchJob", "pytorchReplicaSpecs")
    other = {**client.get(f"/apis/{names.API_VERSION}/queues/{herd.lab.team.queue}")}
    other["metadata"] = {"name": f"{herd.lab.team.queue}-other"}
    other["spec"] |= {"default": False}
    other.pop("status", None)
    path = f"/apis/{names.API_VERSION}/queues/{other['metadata']['name']}"
    client.apply(path, other)
    try:
        client.delete(f"{herd.lab.namespace.pods}/{master}?gracePeriodSeconds=0")
        eventually(lambda: master not in herd.pods, what="the orphan is gone")
        (master,) = first()
        workers = standins.replica_pods(parent, "pytorchReplicaSpecs", "Worker")
        moved = standins.labelled(workers[1], {names.QUEUE: other["metadata"]["name"]})
        herd.put(workers[0])
        eventually(lambda: _is_put(herd, moved), what="the other queue is known at the door")
        held = herd.wait_held("its pods name the queues", master)
        assert held["status"]["hold"]["reason"] == "PolicyViolation"
    finally:
        herd.lab.namespace.empty()
        client.delete(path)


def _is_put(herd: Herd, pod: Manifest) -> bool:
    """Whether a pod could be made; the door may not know its queue yet."""
    try:
        herd.put(pod)
    except ApiError:
        return False
    return True


def test_who_may_not_read_a_kind_has_its_pods_wait_and_says_what_to_grant(herd: Herd, muster: Muster) -> None:
    client = herd.lab.client
    role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/muster"
    documents = yaml.safe_load_all((ROOT / "deploy" / "manifests" / "rbac.yaml").read_text())
    (shipped,) = [one for one in documents if one["kind"] == "ClusterRole"]
    rules = [rule for rule in shipped["rules"] if "jobsets" not in rule["resources"]]
    muster.end()
    client.merge_patch(role, {"rules": rules})
    try:
        muster.start()
        parent, first, rest = jobset(herd)
        pods = [*first(), *rest()]
        herd.wait_held("grant verb list on resource jobsets of API group jobset.x-k8s.io in the whole cluster", *pods)
    finally:
        muster.end()
        grant(herd.lab.control_plane)
        muster.start()
    herd.wait_running(*pods)
    herd.delete(parent)
    herd.wait_gone()
