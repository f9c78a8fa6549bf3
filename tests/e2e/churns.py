"""Workloads of all kinds that come and go at random, on a real control plane where everything dies at times.

Of each kind a little stands for the whole. Jobs, StatefulSets and Deployments have their real controllers, most others
have stand-ins (`operators`); what comes without one is gone when it is evicted. Three queues lend to each other and
take back what they lent; one of them holds workloads as a whole.
"""

import itertools
import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from admission.api.values import names
from admission.api.values.names import Held
from tests import standins
from tests.controlplane import ApiError, workloads
from tests.controlplane.fleet import Manifest
from tests.controlplane.observing import eventually
from tests.e2e.deaths import Deaths
from tests.e2e.herds import Herd
from tests.e2e.operators import Operators, is_suspended
from tests.standins import an_object

KINDS = (
    ("jobset.x-k8s.io/v1alpha2", "JobSet"),
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"),
    ("kubeflow.org/v1", "PyTorchJob"),
    ("kubeflow.org/v2beta1", "MPIJob"),
    ("ray.io/v1", "RayCluster"),
    ("ray.io/v1", "RayJob"),
    ("sparkoperator.k8s.io/v1beta2", "SparkApplication"),
    ("batch.volcano.sh/v1alpha1", "Job"),
    ("scheduling.volcano.sh/v1beta1", "PodGroup"),
)

MOST_ALIVE = 16
"""Workloads at a time; the oldest one goes when there are more."""

SECONDS_TO_BEGIN = 120.0

SECONDS_TO_COLLECT = 60.0
"""The garbage collector deletes within a second what it knows of; it knows of a new kind after half a minute."""

MISFORTUNES = ("kill", "kill_writing", "freeze", "kill_api_server")

TREE = "churn-all"
GATED, BESIDE, WHOLE = "queue-churn", "churn-beside", "churn-whole"
QUOTAS: Mapping[str, int] = {GATED: 4, BESIDE: 6, WHOLE: 4}
"""Devices of each queue of the tree: it lends what it does not use, and takes it back. WHOLE holds workloads as a
whole."""

URGENT = "churn-urgent"
"""A PriorityClass; all others have the priority 0."""


@dataclass(slots=True)
class Workload:
    """What was submitted: objects that make pods, and pods that nothing makes. priority: a class, or none."""

    kind: str
    name: str
    queue: str
    priority: str = ""
    objects: list[Manifest] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Churn(Deaths):
    """One run. chance: chooses all that happens. misfortune: how many seconds lie between two of them."""

    herd: Herd
    chance: random.Random
    misfortune: float
    alive: list[Workload] = field(default_factory=list)
    operators: Operators = field(init=False)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    _abandoned: dict[str, float] = field(default_factory=dict)
    """What the garbage collector has to delete, and since when that is seen (monotonic)."""

    def __post_init__(self) -> None:
        self.operators = Operators(self.herd, self)

    def begin(self) -> None:
        """Have gangs evicted for both reasons, while Muster dies, and a workload held, resumed, and suspended again.

        What runs leaves 2 of 14 devices. Of the gangs that come then one is urgent, and its queue uses up all of its
        own; the other one's queue has lent 4 of its 6.
        """
        running = [self._fill(queue) for queue in (WHOLE, GATED, GATED)]
        self._await(lambda: all(map(self._runs, running)), "what is to be evicted runs")
        urgent, claimed = self._fill(WHOLE, URGENT), self._fill(BESIDE)
        self.kill()
        self._await(lambda: self._runs(urgent) and self._runs(claimed), "what others were evicted for runs")
        for workload in (*running, urgent, claimed):
            self._end(workload)

    def _fill(self, queue: str, priority: str = "") -> Workload:
        """Submit a Job of four pods that do not end by themselves."""
        made = self._workload("fill", queue, priority)
        template = self._template(made, runs=False)
        self._add(made, an_object("batch/v1", "Job", made.name, parallelism=4, completions=4, template=template))
        return made

    def _runs(self, workload: Workload) -> bool:
        return self.lab.team.phases(workload.name) == ["Running"] * 4

    def _await(self, seen: Callable[[], bool], what: str) -> None:
        def look() -> bool:
            self.keep_muster_up()
            return self.insist(seen)

        eventually(look, what=what, within=SECONDS_TO_BEGIN)

    def run(self, seconds: float) -> None:
        """Let workloads come and go for so long, and leave Muster running."""
        end, next_one = time.monotonic() + seconds, time.monotonic() + self.misfortune
        acts: Sequence[tuple[Callable[[], None], int]] = (
            (self._submit, 6),
            (self._remove, 2),
            (self._delete_pod, 2),
            (self._scale, 1),
            (self._restart, 1),
            (self._suspend, 1),
        )
        fates = itertools.cycle(self.chance.sample(MISFORTUNES, len(MISFORTUNES)))
        while time.monotonic() < end:
            self.keep_muster_up()
            self.chance.choices([act for act, _ in acts], [odds for _, odds in acts])[0]()
            self.tend()
            if time.monotonic() > next_one:
                self._suffer(next(fates))
                next_one = time.monotonic() + self.misfortune
            time.sleep(self.chance.random())
        self.settle()

    def tend(self) -> None:
        """Do what others do in a cluster: controllers of other projects, kubelets, and who looks after Kubernetes.

        An API server that dies leaves Kubernetes itself with faults at times (test_kubernetes_relists): kube-scheduler
        ends, and pods whose owner is gone stay for ever, until kube-controller-manager starts anew. Both are counted.
        """
        control_plane = self.lab.control_plane
        self.counts.update(f"{name} ended by itself" for name in control_plane.revive())
        now, abandoned = time.monotonic(), self.operators.reconcile().abandoned
        self._abandoned = {uid: self._abandoned.get(uid, now) for uid in abandoned}
        if any(now - since > SECONDS_TO_COLLECT for since in self._abandoned.values()):
            self.counts["garbage forgotten"] += 1
            self._abandoned.clear()
            control_plane.stop_program("kube-controller-manager")
            control_plane.start_program("kube-controller-manager")

    def end(self) -> None:
        """Remove all workloads; what makes pods of them goes on until nothing is left to make."""
        for workload in [*self.alive]:
            self._end(workload)

    # What happens.

    def _suffer(self, fate: str) -> None:
        self.counts[fate] += 1
        if fate == "kill_writing":
            self.kill_writing(self.chance.randrange(100))
        else:
            {"kill": self.kill, "freeze": self.freeze, "kill_api_server": self.kill_api_server}[fate]()

    def _submit(self) -> None:
        held_as_a_whole = (self._job, self._jobset, self._training, self._mpi, self._ray_job)
        others = (
            *(self._volcano, self._leader_worker_set, self._ray, self._spark, self._pod_group, self._kueue),
            *(self._elastic, self._incomplete, self._deployment, self._alone),
        )
        queue, priority = self.chance.choice([*QUOTAS]), self.chance.choice([URGENT, "", ""])
        most = held_as_a_whole * 3 if queue == WHOLE else held_as_a_whole
        make = self.chance.choice([*most, *others])
        workload = self._workload(make.__name__.removeprefix("_"), queue, priority)
        make(workload)
        if len(self.alive) > MOST_ALIVE:
            self._end(self.alive[0])

    def _workload(self, kind: str, queue: str, priority: str) -> Workload:
        self.counts[kind] += 1
        self.alive.append(Workload(kind, f"w{next(self._numbers)}", queue, priority))
        return self.alive[-1]

    def _remove(self) -> None:
        if self.alive:
            self._end(self.chance.choice(self.alive))

    def _delete_pod(self) -> None:
        """Delete any pod. Its controller makes another one; where it has none the gang goes on without it."""
        pods = self._pods()
        if pods:
            self.counts["pods deleted"] += 1
            self._gone({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": self.chance.choice(pods)}})

    def _scale(self) -> None:
        sets = [one for workload in self.alive for one in workload.objects if one["kind"] == "Deployment"]
        if sets:
            self.counts["scaled"] += 1
            self._change(self.chance.choice(sets), {"spec": {"replicas": self.chance.randint(0, 4)}})

    def _restart(self) -> None:
        """Have all of a JobSet or RayJob made anew, as its controller does when something of it has failed."""
        found = self._any_of(jobset="restarts", ray_job="failed")
        if found:
            workload, counter = found
            obj = self._find(workload.objects[0]) or {}
            self.counts["restarted"] += 1
            self._change(workload.objects[0], {"status": {counter: obj.get("status", {}).get(counter, 0) + 1}})

    def _suspend(self) -> None:
        """Suspend a workload that runs as its user may, or resume one that is so suspended."""
        found = self._any_of(job="", jobset="", ray_job="", training="runPolicy", mpi="runPolicy")
        obj = self._find(found[0].objects[0]) if found else None
        if found and obj and obj["metadata"].get("annotations", {}).get(names.HELD) == Held.STARTED:
            suspend = {"suspend": not is_suspended(obj)}
            self.counts["suspended by users" if suspend["suspend"] else "resumed by users"] += 1
            self._change(obj, {"spec": {found[1]: suspend} if found[1] else suspend})

    def _any_of(self, **kinds: str) -> tuple[Workload, str] | None:
        """Return any workload of some kinds, with what is said of its kind."""
        found = [workload for workload in self.alive if workload.kind in kinds]
        workload = self.chance.choice(found) if found else None
        return (workload, kinds[workload.kind]) if workload else None

    def _end(self, workload: Workload) -> None:
        self.alive.remove(workload)
        for one in workload.objects:
            self._gone(one)

    # The kinds.

    def _job(self, made: Workload) -> None:
        count = self.chance.randint(1, 4)
        more = {"completionMode": "Indexed"} if self.chance.random() < 0.5 else {}
        spec = {
            "backoffLimit": 100,
            "parallelism": count,
            "completions": count,
            "template": self._template(made),
            **more,
        }
        self._add(made, an_object("batch/v1", "Job", made.name, **spec))

    def _jobset(self, made: Workload) -> None:
        template = {"spec": {"parallelism": 1, "backoffLimit": 100, "template": self._template(made)}}
        jobs = [{"name": role, "replicas": count, "template": template} for role, count in (("d", 1), ("w", 2))]
        self._add(made, an_object("jobset.x-k8s.io/v1alpha2", "JobSet", made.name, replicatedJobs=jobs))

    def _training(self, made: Workload) -> None:
        specs = self._replicas(made, Master=1, Worker=2)
        self._add(made, an_object("kubeflow.org/v1", "PyTorchJob", made.name, pytorchReplicaSpecs=specs))

    def _mpi(self, made: Workload) -> None:
        specs = self._replicas(made, Launcher=1, Worker=2)
        self._add(made, an_object("kubeflow.org/v2beta1", "MPIJob", made.name, mpiReplicaSpecs=specs))

    def _volcano(self, made: Workload) -> None:
        tasks = [
            {"name": name, "replicas": count, "template": self._template(made)} for name, count in (("p", 1), ("w", 2))
        ]
        self._add(made, an_object("batch.volcano.sh/v1alpha1", "Job", made.name, minAvailable=3, tasks=tasks))

    def _leader_worker_set(self, made: Workload) -> None:
        template = {"size": 3, "workerTemplate": self._template(made, "Always", runs=False)}
        more = {"startupPolicy": "LeaderReady"} if self.chance.random() < 0.5 else {}
        spec = {"leaderWorkerTemplate": template, **more}
        self._add(made, an_object("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", made.name, **spec))

    def _ray(self, made: Workload) -> None:
        self._add(made, an_object("ray.io/v1", "RayCluster", made.name, **self._ray_cluster(made)))

    def _ray_job(self, made: Workload) -> None:
        spec = {"shutdownAfterJobFinishes": True, "rayClusterSpec": self._ray_cluster(made)}
        self._add(made, an_object("ray.io/v1", "RayJob", made.name, **spec))

    def _ray_cluster(self, made: Workload) -> Manifest:
        template = self._template(made, "Always", runs=False)
        groups = [{"groupName": "g", "replicas": 2, "minReplicas": 1, "template": template}]
        spec: Manifest = {"headGroupSpec": {"template": template}, "workerGroupSpecs": groups}
        return {**spec, "enableInTreeAutoscaling": self.chance.random() < 0.5}

    def _spark(self, made: Workload) -> None:
        spec = {"executor": {"instances": 2}}
        application = self._add(made, an_object("sparkoperator.k8s.io/v1beta2", "SparkApplication", made.name, **spec))
        driver = self._add(made, standins.spark_driver(application, self._template(made, runs=False)))
        self._add(made, *standins.spark_executors(driver, 2, self._template(made)))

    def _pod_group(self, made: Workload) -> None:
        self._add(made, an_object("scheduling.volcano.sh/v1beta1", "PodGroup", made.name, minMember=2))
        self._add_pods(made, 2, {}, {"scheduling.k8s.io/group-name": made.name})

    def _kueue(self, made: Workload) -> None:
        said = {"kueue.x-k8s.io/pod-group-total-count": "3"}
        self._add_pods(made, 3, {"kueue.x-k8s.io/pod-group-name": made.name}, said)

    def _elastic(self, made: Workload) -> None:
        self._add_pods(made, 4, {names.GANG: made.name, names.GANG_SIZE: "4", names.GANG_MIN: "2"}, {})

    def _incomplete(self, made: Workload) -> None:
        groups = json.dumps([{"name": "a", "minMember": 3}])
        said = {"yunikorn.apache.org/task-group-name": "a", "yunikorn.apache.org/task-groups": groups}
        self._add_pods(made, 2, {"yunikorn.apache.org/app-id": made.name}, said)

    def _deployment(self, made: Workload) -> None:
        template = self._template(made, "Always", runs=False, app=made.name)
        selector = {"matchLabels": {"app": made.name}}
        self._add(made, an_object("apps/v1", "Deployment", made.name, replicas=2, selector=selector, template=template))

    def _alone(self, made: Workload) -> None:
        self._add_pods(made, 1, {}, {})

    # What they are made of.

    def _template(self, made: Workload, restart_policy: str = "Never", *, runs: bool = True, **labels: str) -> Manifest:
        """runs: whether its pods end by themselves."""
        found = self.herd.template(restart_policy, **{names.QUEUE: made.queue}, **labels)
        if made.priority:
            found["spec"]["priorityClassName"] = made.priority
        if runs:
            found["metadata"]["annotations"] = {workloads.RUNTIME: f"{self.chance.randint(2, 8)}s"}
        return found

    def _replicas(self, made: Workload, **counts: int) -> Manifest:
        return {role: {"replicas": count, "template": self._template(made)} for role, count in counts.items()}

    def _add_pods(self, made: Workload, count: int, labels: dict[str, str], annotations: dict[str, str]) -> None:
        labels = {**labels, names.QUEUE: made.queue}
        annotations = {**annotations, workloads.RUNTIME: f"{self.chance.randint(2, 8)}s"}
        more = {"priorityClassName": made.priority} if made.priority else {}
        pods = (
            workloads.pod(f"{made.name}-{at}", template="one", labels=labels, annotations=annotations, **more)
            for at in range(count)
        )
        self._add(made, *pods)

    # Requests.

    def _add(self, made: Workload, *objects: Manifest) -> Manifest:
        """Create objects, and return the first one. What is not made by anything else is removed with its workload."""
        found = [self._put(one) for one in objects]
        made.objects += found
        return found[0]

    def _put(self, obj: Manifest) -> Manifest:
        self.create(self.herd.path(obj), obj)
        return self._find(obj) or obj

    def _find(self, obj: Manifest) -> Manifest | None:
        path = f"{self.herd.path(obj)}/{obj['metadata']['name']}"
        found = self.insist(partial(self.lab.client.find, path))
        return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], **found} if found else None

    def _gone(self, obj: Manifest) -> None:
        self.insist(partial(self.herd.delete, obj))

    def _change(self, obj: Manifest, body: Manifest) -> None:
        with suppress(ApiError):
            path = f"{self.herd.path(obj)}/{obj['metadata']['name']}"
            self.insist(partial(self.lab.client.merge_patch, path, body))

    def _pods(self) -> list[str]:
        return sorted(self.insist(lambda: self.herd.pods))
