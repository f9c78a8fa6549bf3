"""Other workloads than Jobs that are held as a whole: RayJobs, whose pods belong to what they make, and JobSets.

What their controllers make when they are resumed, `standins` says.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from admission.api.kubernetes import claims, jobs, pods
from admission.api.kubernetes.jobs import Suspendable
from admission.api.muster.gangs import Phase
from admission.api.muster.ledger_entries import Kind
from admission.api.values import names
from admission.api.values.names import Held, Uid
from admission.workloads import gangs
from admission.workloads.kinds import catalog
from tests import standins
from tests.builders import NAMESPACE, NOON, ClusterBuilder, a_cluster, claim_manifest
from tests.standins import Manifest
from tests.unit.cycle import suspended
from tests.unit.cycle.fences import kinds, report
from tests.unit.cycle.jobs import Play
from tests.unit.cycle.suspended import HeldJobs

Made = Callable[[Manifest], list[Manifest]]
NODES = {"a": 4, "b": 4}
"""How many devices each has."""


class HeldParents(HeldJobs):
    """One workload, as the API server has it. make: has its controller make pods of it. lost: those that never come."""

    def __init__(self, builder: ClusterBuilder, obj: Manifest, make: Made, *, graceful: bool = False) -> None:
        super().__init__(builder, graceful=graceful)
        self.obj = obj
        self.make = make
        self.lost: set[str] = set()
        self.life = ""
        told = {"namespace": NAMESPACE, "uid": "workload", "creationTimestamp": NOON.isoformat()}
        obj["metadata"] |= {**told, "annotations": {names.HELD: Held.WAITING.value}}
        self.put(obj)

    def put(self, obj: Manifest) -> Manifest:
        """Have the API server know an object that pods belong to."""
        obj["metadata"].setdefault("uid", f"{obj['kind'].lower()}-{obj['metadata']['name']}".lower())
        if obj["kind"] == "Job":
            self._jobs[obj["metadata"]["uid"]] = jobs.decode(obj)
            return obj
        family = catalog.BY_GROUP[str(obj["apiVersion"]).partition("/")[0], obj["kind"]]
        parent = family.decode(copy.deepcopy(obj))
        of_kind = {**self._rest.parents.get(family.key, {}), parent.meta.uid: parent}
        self._rest = replace(self._rest, parents={**self._rest.parents, family.key: of_kind})
        return obj

    def create(self, made: list[Manifest]) -> None:
        """Create pods, with their claims, behind their gates."""
        for pod in made:
            name = pod["metadata"]["name"]
            uid = Uid(f"pod-{name}{self.life}")
            if name in self.lost:
                continue
            pod["metadata"] |= {"namespace": NAMESPACE, "uid": uid, "creationTimestamp": self.now.isoformat()}
            pod["spec"]["schedulingGates"] = [{"name": names.GATE}]
            own = {"name": "gpus", "resourceClaimName": f"{name}-gpus"}
            self._pods[uid] = pods.decode({**pod, "status": {"phase": "Pending", "resourceClaimStatuses": [own]}})
            claim = claims.decode(claim_manifest(f"{name}-gpus", 1, owner=uid))
            self._claims[claim.meta.key] = replace(claim, meta=replace(claim.meta, resource_version="1"))

    async def start(self, workload: Suspendable) -> None:
        self._mark(Held.STARTED, suspend=False)
        self.writes.append(f"start {workload.meta.name}")
        self.create(self.make(self.obj))

    async def hold(self, workload: Suspendable) -> None:
        self._mark(Held.WAITING, suspend=True)
        self.writes.append(f"hold {workload.meta.name}")
        self._end([pod for pod in self._pods.values() if not pod.finished])
        # The operator deletes a RayCluster without waiting for its pods.
        clusters = "RayCluster.ray.io"
        self._rest = replace(self._rest, parents={**self._rest.parents, clusters: {}})

    def _mark(self, mark: Held, *, suspend: bool) -> None:
        self.obj["metadata"]["annotations"][names.HELD] = mark.value
        spec = self.obj["spec"]
        spec.get("runPolicy", spec)["suspend"] = suspend
        self.put(self.obj)


def template() -> Manifest:
    return suspended.template("q")


def a_ray_job(**cluster: Any) -> Manifest:
    groups = [{"groupName": "w", "replicas": 2, "minReplicas": 1, "numOfHosts": 2, "template": template()}]
    spec = {"headGroupSpec": {"template": template()}, "workerGroupSpecs": groups, **cluster}
    whole = {"suspend": True, "shutdownAfterJobFinishes": True, "rayClusterSpec": spec}
    return {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "ray"}, "spec": whole}


def a_jobset() -> Manifest:
    """Two Jobs of two pods, and one of one."""
    entries = [
        {"name": name, "replicas": count, "template": {"spec": {"parallelism": pods, "template": template()}}}
        for name, count, pods in (("workers", 2, 2), ("driver", 1, 1))
    ]
    spec = {"suspend": True, "replicatedJobs": entries}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "set"}, "spec": spec}


def a_play(
    obj: Manifest, gpus: int = 8, *, graceful: bool = False, nodes: Mapping[str, int] = NODES, **queue: Any
) -> tuple[HeldParents, Play]:
    def of_ray(job: Manifest) -> list[Manifest]:
        return standins.ray_pods(cluster.put(standins.ray_cluster(job)))

    def of_jobset(jobset: Manifest) -> list[Manifest]:
        return [pod for job in map(cluster.put, standins.jobset_jobs(jobset)) for pod in standins.job_pods(job)]

    builder = a_cluster().queue("q", gpus=gpus, **queue)
    for name, devices in nodes.items():
        builder.node(name, gpus=devices, cpu="64")
    cluster = HeldParents(builder, obj, of_ray if obj["kind"] == "RayJob" else of_jobset, graceful=graceful)
    return cluster, Play(cluster)


@pytest.mark.parametrize("obj", [a_ray_job, a_jobset])
async def test_a_suspended_workload_is_planned_without_pods_and_resumed_and_its_pods_take_over_the_plan(
    obj: Callable[[], Manifest],
) -> None:
    cluster, play = a_play(obj())
    name = cluster.obj["metadata"]["name"]

    granted = report(await play.forget_changes(), name)

    assert (granted.phase, granted.size) == (Phase.RESERVED, 5)
    assert cluster.writes == [f"start {name}"]
    ran = report(await play.forget_changes(4), name)
    assert ran.phase is Phase.RUNNING
    assert ran.uid == granted.uid
    assert [pod.phase for pod in cluster._pods.values()] == ["Running"] * 5
    assert kinds(play.ledger) == [Kind.RESERVE, Kind.ADJUST, Kind.SETTLE]
    assert [len(one.seats) for one in play.ledger.book.placements.values()] == [5]


async def test_a_ray_job_over_quota_is_held_with_the_charge_of_all_hosts() -> None:
    _, play = a_play(a_ray_job(), gpus=4)

    told = report(await play.forget_changes(), "ray")

    assert told.hold is not None
    assert (told.pods, told.expected) == (0, 5)
    assert "needs 5" in told.hold.message


async def test_pod_requests_that_the_ray_operator_adds_are_planned_for() -> None:
    """Else a node would be promised to more than it has room for."""
    options = {"enableInTreeAutoscaling": True, "autoscalerOptions": {"resources": {"requests": {"cpu": "2"}}}}
    cluster, play = a_play(a_ray_job(**options))
    cluster.obj["spec"]["submissionMode"] = "SidecarMode"
    cluster.put(cluster.obj)
    for group in cluster.obj["spec"]["rayClusterSpec"]["workerGroupSpecs"]:
        group["template"]["spec"]["containers"] = [{"name": "main"}]
    cluster.put(cluster.obj)

    snapshot = play.leader.process.pending.add_to(cluster.snapshot(), play.ledger.book)

    found = {pod.meta.name: pod for pod in snapshot.pods.values()}
    assert found["ray-head-0"].requests["cpu"] == 1000 + 2000 + 500
    assert found["ray-w-worker-0"].requests["cpu"] == 200
    assert [gangs.subgroup_of(found[f"ray-w-worker-{number}"]) for number in range(4)] == ["0", "0", "1", "1"]


async def test_an_evicted_ray_job_is_suspended_and_its_next_cluster_takes_over_the_next_plan() -> None:
    cluster, play = a_play(a_ray_job(), startTimeout="3s", requeue={"base": "2s", "max": "2s"})
    cluster.lost = {f"ray-x7k2p-w-worker-{standins.digest('0')[:5]}"}
    first = report(await play.forget_changes(2), "ray")

    while len(cluster.writes) < 2:
        await play.forget_changes()
    assert cluster.writes == ["start ray", "hold ray"]
    assert cluster._pods == {}
    cluster.lost = set()

    ran = report(await play.forget_changes(10), "ray")
    assert cluster.writes == ["start ray", "hold ray", "start ray"]
    assert (ran.phase, ran.uid) == (Phase.RUNNING, first.uid)


async def test_a_ray_job_is_planned_again_only_when_its_pods_are_gone() -> None:
    cluster, play = a_play(a_ray_job(), gpus=10, graceful=True, preemption={"withinQueue": "LowerPriority"})
    ran = report(await play.forget_changes(5), "ray")
    assert ran.phase is Phase.RUNNING
    cluster.submit("high", queue="q", pods=4, priority=5)
    await play.forget_changes(2)
    assert cluster.writes == ["start ray", "hold ray"]
    cluster.delete_job("high")

    await play.forget_changes(5)
    assert cluster.writes == ["start ray", "hold ray"]
    told = report(await play.forget_changes(), "ray")
    assert told.expected == 0

    cluster.end_grace()
    again = report(await play.forget_changes(5), "ray")
    assert cluster.writes == ["start ray", "hold ray", "start ray"]
    assert (again.phase, again.uid) == (Phase.RUNNING, ran.uid)


async def test_parts_that_were_planned_together_take_over_each_others_places_only() -> None:
    """Replicas of Ray are called by lot, so which of them is which is not known before."""
    obj = a_ray_job()
    for part in (obj["spec"]["rayClusterSpec"]["headGroupSpec"], *obj["spec"]["rayClusterSpec"]["workerGroupSpecs"]):
        part["template"]["metadata"]["annotations"][names.SUBGROUP_TOPOLOGY] = names.HOSTNAME
    cluster, play = a_play(obj, nodes={"a": 2, "b": 2, "c": 1})
    make = cluster.make

    def mixed(job: Manifest) -> list[Manifest]:
        """Name the pods so that those of one replica do not follow each other."""
        head, *workers = make(job)
        for number, pod in zip((3, 1, 0, 2), workers, strict=True):
            pod["metadata"]["name"] = f"ray-x7k2p-w-{number}"
        return [head, *workers]

    cluster.make = mixed
    await play.forget_changes(5)

    where: dict[str, set[str]] = {}
    for pod in cluster._pods.values():
        assert pod.phase == "Running"
        where.setdefault(gangs.subgroup_of(pod), set()).add(pod.node)
    assert len(where) == 3
    assert sorted(map(len, where.values())) == [1, 1, 1]
    assert len(set().union(*where.values())) == 3


async def test_every_job_of_a_jobset_is_a_part_before_it_exists() -> None:
    cluster, play = a_play(a_jobset())

    snapshot = play.leader.process.pending.add_to(cluster.snapshot(), play.ledger.book)

    parts = sorted(gangs.subgroup_of(pod) for pod in snapshot.pods.values())
    assert parts == ["driver-0", "workers-0", "workers-0", "workers-1", "workers-1"]


DONE = {
    "the first of two that follow each other": (True, ["workers-0", "workers-1"], {"workers": 2}, 1),
    "one of two that are made together": (False, ["driver-0"], {"driver": 1}, 4),
    "one of several Jobs of a kind": (False, ["workers-0"], {"workers": 1}, 3),
}


@pytest.mark.parametrize(("in_turn", "done", "succeeded", "left"), DONE.values(), ids=DONE)
async def test_the_remaining_jobs_of_an_evicted_jobset_are_planned_again(
    *, in_turn: bool, done: list[str], succeeded: dict[str, int], left: int
) -> None:
    cluster, play = a_jobset_that_goes_on(in_turn=in_turn)
    await play.forget_changes(6)
    for job in done:
        cluster.finish_job(f"set-{job}")
    cluster.obj["status"] = {"replicatedJobsStatus": [{"name": name, "succeeded": n} for name, n in succeeded.items()]}
    cluster.put(cluster.obj)
    if in_turn:
        cluster.create(cluster.make(cluster.obj))
    await play.forget_changes(4)
    assert running(cluster) == left

    await oust(cluster, play)

    assert cluster.writes == ["start set", "hold set", "start set"]
    assert running(cluster) == left
    assert [len(one.seats) for one in play.ledger.book.placements.values()] == [left]


async def test_a_jobset_goes_on_of_which_a_part_of_a_job_is_done() -> None:
    """Nothing but the Job says that, so the plan is for too many, and made anew with those that come."""
    cluster, play = a_jobset_that_goes_on()
    await play.forget_changes(6)
    cluster.finish([pod for pod in cluster._pods.values() if pod.meta.name == "set-workers-1-0"])
    await play.forget_changes(2)
    assert running(cluster) == 4

    await oust(cluster, play)

    assert cluster.writes == ["start set", "hold set", "start set"]
    assert running(cluster) == 4
    assert [len(one.seats) for one in play.ledger.book.placements.values()] == [4]


async def test_pods_that_succeed_on_their_way_out_are_not_taken_for_a_part_that_is_done() -> None:
    """Some of Ray end well when they are deleted, and a new cluster makes all of them anew, in no certain order."""
    cluster, play = a_play(a_ray_job(), gpus=5, startTimeout="9s")
    make = cluster.make
    cluster.make = lambda obj: make(obj)[:4]
    await play.forget_changes(1)
    one = next(iter(cluster._pods.values()))
    removed = replace(one, phase="Succeeded", meta=replace(one.meta, name="old", uid=Uid("old"), deleted=cluster.now))
    cluster._pods[removed.meta.uid] = removed
    assert report(await play.forget_changes(3), "ray").phase is Phase.RESERVED

    cluster.create(make(cluster.obj)[4:])
    ran = report(await play.forget_changes(4), "ray")

    assert (ran.phase, cluster.writes) == (Phase.RUNNING, ["start ray"])
    assert Kind.RELEASE not in kinds(play.ledger)


async def test_pods_of_a_ray_job_that_has_ended_are_evicted_one_by_one() -> None:
    """Its cluster goes on for `ttlSecondsAfterFinished`, and its operator does not suspend it any more."""
    cluster, play = a_play(a_ray_job(), gpus=5, preemption={"withinQueue": "LowerPriority"})
    assert report(await play.forget_changes(5), "ray").phase is Phase.RUNNING
    cluster.obj["status"] = {"jobDeploymentStatus": "Complete"}
    cluster.put(cluster.obj)

    cluster.submit("high", queue="q", pods=5, priority=5)
    await play.forget_changes(5)
    assert cluster.running() == {"high"}

    cluster.delete_job("high")
    await play.forget_changes(5)
    assert cluster.writes == ["start ray"]
    assert play.ledger.book.placements == {}


@pytest.mark.parametrize(
    ("obj", "status"),
    [
        (a_ray_job, {"jobDeploymentStatus": "Failed"}),
        (a_jobset, {"conditions": [{"type": "Failed", "status": "True"}]}),
    ],
)
async def test_a_workload_that_ends_before_its_pods_come_gives_its_places_back_and_is_not_planned_again(
    obj: Callable[[], Manifest], status: Manifest
) -> None:
    cluster, play = a_play(obj(), startTimeout="3s", requeue={"base": "1s", "max": "1s"})
    cluster.make = lambda _: []
    await play.forget_changes(2)
    assert len(play.ledger.book.placements) == 1

    cluster.obj["status"] = status
    cluster.put(cluster.obj)
    await play.forget_changes(12)

    assert len(cluster.writes) == 1
    assert play.ledger.book.placements == {}


async def test_a_jobset_goes_on_of_which_an_index_has_failed_for_good() -> None:
    """Its Job makes no pod for that any more, as `backoffLimitPerIndex` has it."""
    cluster, play = a_jobset_that_goes_on()
    await play.forget_changes(6)
    (lost,) = (pod for pod in cluster._pods.values() if pod.meta.name == "set-workers-1-0")
    cluster._release_claims([lost])
    cluster._pods[lost.meta.uid] = replace(lost, phase="Failed", ready=False)
    put = cluster.put

    def failing(one: Manifest) -> Manifest:
        if one["metadata"]["name"] == "set-workers-1":
            one = {**one, "spec": {**one["spec"], "completions": 2}, "status": {"failedIndexes": "0"}}
        return put(one)

    vars(cluster)["put"] = failing
    await play.forget_changes(2)

    await oust(cluster, play)

    assert cluster.writes == ["start set", "hold set", "start set"]
    assert running(cluster) == 4


async def test_a_retried_ray_job_does_not_wait_for_the_reservation_of_the_failed_try() -> None:
    """A RayJob fails of which one pod never comes; what was promised is not taken back from the next try."""
    cluster, play = a_play(a_ray_job(), gpus=10, nodes={"a": 8, "b": 8}, startTimeout="9s")
    make = cluster.make
    cluster.make = lambda obj: make(obj)[:4]
    await play.forget_changes(3)
    assert report(await play.forget_changes(), "ray").phase is Phase.RESERVED

    cluster._end(list(cluster._pods.values()))
    cluster.obj["status"] = {"failed": 1}
    cluster.life = "-again"
    cluster.put(cluster.obj)
    cluster.create(make(cluster.obj))
    await play.forget_changes(3)
    assert [len(one.seats) for one in play.ledger.book.placements.values()] == [5]

    await play.forget_changes(12)
    assert (cluster.writes, running(cluster)) == (["start ray"], 5)


async def test_an_elastic_gang_waits_for_the_pods_that_were_planned_whichever_come_first() -> None:
    """Three of five fit, the master among them, which its operator may make last."""
    roles = {role: {"replicas": count, "template": template()} for role, count in (("Master", 1), ("Worker", 4))}
    obj: Manifest = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "train"}}
    obj["spec"] = {"pytorchReplicaSpecs": roles, "elasticPolicy": {"minReplicas": 2}, "runPolicy": {"suspend": True}}
    cluster, play = a_play(obj, gpus=3)
    cluster.make = lambda job: standins.replica_pods(job, "pytorchReplicaSpecs", "Worker")
    await play.forget_changes(3)

    cluster.create(standins.replica_pods(cluster.obj, "pytorchReplicaSpecs", "Master"))
    await play.forget_changes(3)

    assert kinds(play.ledger) == [Kind.RESERVE, Kind.ADJUST, Kind.SETTLE]
    assert running(cluster) == 3


def a_jobset_that_goes_on(*, in_turn: bool = False) -> tuple[HeldParents, Play]:
    """One whose controller makes no pods in the stead of those that are done. in_turn: the driver when workers are."""
    obj = a_jobset()
    if in_turn:
        obj["spec"]["replicatedJobs"][1]["dependsOn"] = [{"name": "workers", "status": "Complete"}]
    cluster, play = a_play(obj, gpus=5, preemption={"withinQueue": "LowerPriority"}, startTimeout="5s")
    make = cluster.make

    def left(jobset: Manifest) -> list[Manifest]:
        over = {pod.meta.name for pod in cluster._pods.values() if pod.finished}
        made = [pod for pod in make(jobset) if pod["metadata"]["name"] not in over]
        workers = [pod for pod in made if "workers" in pod["metadata"]["name"]]
        return workers if in_turn and workers else made

    cluster.make = left
    return cluster, play


def running(cluster: HeldParents) -> int:
    return sum(pod.phase == "Running" for pod in cluster._pods.values())


async def oust(cluster: HeldParents, play: Play) -> None:
    """Have a gang of higher priority take all there is, until it is deleted, and some time pass."""
    cluster.submit("high", queue="q", pods=5, priority=5)
    await play.forget_changes(3)
    assert cluster.writes[-1] == "hold set"
    cluster.delete_job("high")
    await play.forget_changes(20)
