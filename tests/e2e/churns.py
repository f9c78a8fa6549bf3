"""Workloads of all kinds that come and go at random, on a real control plane where everything dies at times.

Of each kind a little stands for the whole: what its controller would make is made here (`standins`), but for Jobs,
StatefulSets and Deployments, which have real ones. Who makes pods after others waits until these are there.
"""

import itertools
import json
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from admission.api import names
from tests import standins
from tests.controlplane import ApiError, workloads
from tests.controlplane.fleet import Manifest
from tests.e2e.deaths import Deaths
from tests.e2e.herds import Herd, an_object

KINDS = (
    ("jobset.x-k8s.io/v1alpha2", "JobSet"),
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"),
    ("kubeflow.org/v1", "PyTorchJob"),
    ("kubeflow.org/v2beta1", "MPIJob"),
    ("ray.io/v1", "RayCluster"),
    ("sparkoperator.k8s.io/v1beta2", "SparkApplication"),
    ("batch.volcano.sh/v1alpha1", "Job"),
    ("scheduling.volcano.sh/v1beta1", "PodGroup"),
)

MOST_ALIVE = 12
"""Workloads at a time; the oldest one goes when there are more."""

MISFORTUNES = ("kill", "kill_writing", "freeze", "kill_api_server")

Later = Callable[[], bool]
"""Makes what comes after something else; says whether that was there."""


@dataclass(slots=True)
class Workload:
    """What was submitted: the objects that make pods, pods that nothing makes, and what is still to be made."""

    kind: str
    name: str
    objects: list[Manifest] = field(default_factory=list)
    later: list[Later] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Churn(Deaths):
    """One run. chance: chooses all that happens. misfortune: how many seconds lie between two of them."""

    herd: Herd
    chance: random.Random
    misfortune: float
    alive: list[Workload] = field(default_factory=list)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def run(self, seconds: float) -> None:
        """Let workloads come and go for so long, and leave Muster running."""
        end, next_one = time.monotonic() + seconds, time.monotonic() + self.misfortune / 2
        acts: Sequence[tuple[Callable[[], None], int]] = (
            (self._submit, 6),
            (self._remove, 2),
            (self._delete_pod, 2),
            (self._scale, 1),
            (self._restart, 1),
        )
        fates = itertools.cycle(self.chance.sample(MISFORTUNES, len(MISFORTUNES)))
        while time.monotonic() < end:
            self.keep_muster_up()
            self.chance.choices([act for act, _ in acts], [odds for _, odds in acts])[0]()
            self._follow_up()
            if time.monotonic() > next_one:
                self._suffer(next(fates))
                next_one = time.monotonic() + self.misfortune
            time.sleep(self.chance.random())
        self.settle()

    def end(self) -> None:
        """Remove all workloads."""
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
        makers = (
            *(self._job, self._jobset, self._training, self._mpi, self._volcano, self._leader_worker_set),
            *(self._ray, self._spark, self._pod_group, self._kueue, self._elastic, self._incomplete),
            *(self._deployment, self._alone),
        )
        make = self.chance.choice(makers)
        workload = Workload(make.__name__.removeprefix("_"), f"w{next(self._numbers)}")
        self.alive.append(workload)
        make(workload)
        self.counts[workload.kind] += 1
        if len(self.alive) > MOST_ALIVE:
            self._end(self.alive[0])

    def _remove(self) -> None:
        if self.alive:
            self._end(self.chance.choice(self.alive))

    def _delete_pod(self) -> None:
        """Delete any pod. Whose controller is real makes another one; of the others the gang goes on without it."""
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
        """Make the Jobs of a JobSet anew, as its controller does when one has failed."""
        sets = [workload for workload in self.alive if workload.kind == "jobset"]
        if not sets:
            return
        workload = self.chance.choice(sets)
        jobset, *jobs = workload.objects
        self.counts["restarted"] += 1
        for job in jobs:
            self._gone(job)
        del workload.objects[1:]
        attempt = int(jobs[0]["metadata"]["labels"]["jobset.sigs.k8s.io/restart-attempt"]) + 1 if jobs else 0
        workload.later.append(partial(self._run_again, workload, jobset, attempt))

    def _run_again(self, workload: Workload, jobset: Manifest, attempt: int) -> bool:
        mine = f"{jobset['metadata']['name']}-"
        if any(name.startswith(mine) for name in self._pods()):
            return False
        workload.objects += map(self._put, standins.jobset_jobs(jobset, restarts=attempt))
        return True

    def _follow_up(self) -> None:
        for workload in [*self.alive]:
            workload.later = [later for later in workload.later if not later()]

    def _end(self, workload: Workload) -> None:
        self.alive.remove(workload)
        for one in workload.objects:
            self._gone(one)

    # The kinds.

    def _job(self, made: Workload) -> None:
        count = self.chance.randint(1, 4)
        more = {"completionMode": "Indexed"} if self.chance.random() < 0.5 else {}
        spec = {"backoffLimit": 100, "parallelism": count, "completions": count, "template": self._template(), **more}
        self._add(made, an_object("batch/v1", "Job", made.name, **spec))

    def _jobset(self, made: Workload) -> None:
        template = {"spec": {"parallelism": 1, "backoffLimit": 100, "template": self._template()}}
        jobs = [{"name": role, "replicas": count, "template": template} for role, count in (("d", 1), ("w", 2))]
        jobset = self._add(made, an_object("jobset.x-k8s.io/v1alpha2", "JobSet", made.name, replicatedJobs=jobs))
        self._add(made, *standins.jobset_jobs(jobset))

    def _training(self, made: Workload) -> None:
        specs = self._replicas(Master=1, Worker=2)
        job = self._add(made, an_object("kubeflow.org/v1", "PyTorchJob", made.name, pytorchReplicaSpecs=specs))
        self._add(made, *standins.replica_pods(job, "pytorchReplicaSpecs"))

    def _mpi(self, made: Workload) -> None:
        specs = self._replicas(Launcher=1, Worker=2)
        job = self._add(made, an_object("kubeflow.org/v2beta1", "MPIJob", made.name, mpiReplicaSpecs=specs))
        self._add(made, *standins.replica_pods(job, "mpiReplicaSpecs", "Worker"), standins.launcher(job))

    def _volcano(self, made: Workload) -> None:
        tasks = [
            {"name": name, "replicas": count, "template": self._template()} for name, count in (("p", 1), ("w", 2))
        ]
        spec = {"minAvailable": 3, "tasks": tasks}
        self._add(
            made, *standins.task_pods(self._add(made, an_object("batch.volcano.sh/v1alpha1", "Job", made.name, **spec)))
        )

    def _leader_worker_set(self, made: Workload) -> None:
        template = {"size": 3, "workerTemplate": self._template("Always", runs=False)}
        more = {"startupPolicy": "LeaderReady"} if self.chance.random() < 0.5 else {}
        spec = {"leaderWorkerTemplate": template, **more}
        lws = self._add(made, an_object("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", made.name, **spec))
        self._add(made, standins.leaders(lws))
        made.later.append(partial(self._lead, made, lws))

    def _lead(self, made: Workload, lws: Manifest) -> bool:
        leader = self._find({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"{made.name}-0"}})
        if leader is None:
            return False
        self._add(made, standins.workers(lws, {"apiVersion": "v1", "kind": "Pod", **leader}))
        return True

    def _ray(self, made: Workload) -> None:
        template = self._template("Always", runs=False)
        groups = [{"groupName": "g", "replicas": 2, "minReplicas": 1, "template": template}]
        spec: Manifest = {"headGroupSpec": {"template": template}, "workerGroupSpecs": groups}
        spec["enableInTreeAutoscaling"] = self.chance.random() < 0.5
        self._add(made, *standins.ray_pods(self._add(made, an_object("ray.io/v1", "RayCluster", made.name, **spec))))

    def _spark(self, made: Workload) -> None:
        spec = {"executor": {"instances": 2}}
        application = self._add(made, an_object("sparkoperator.k8s.io/v1beta2", "SparkApplication", made.name, **spec))
        driver = self._add(made, standins.spark_driver(application, self._template(runs=False)))
        self._add(made, *standins.spark_executors(driver, 2, self._template()))

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
        template = self._template("Always", runs=False, app=made.name)
        selector = {"matchLabels": {"app": made.name}}
        self._add(made, an_object("apps/v1", "Deployment", made.name, replicas=2, selector=selector, template=template))

    def _alone(self, made: Workload) -> None:
        self._add_pods(made, 1, {}, {})

    # What they are made of.

    def _template(self, restart_policy: str = "Never", *, runs: bool = True, **labels: str) -> Manifest:
        """runs: whether its pods end by themselves."""
        found = self.herd.template(restart_policy, **labels)
        if runs:
            found["metadata"]["annotations"] = {workloads.RUNTIME: f"{self.chance.randint(2, 8)}s"}
        return found

    def _replicas(self, **counts: int) -> Manifest:
        return {role: {"replicas": count, "template": self._template()} for role, count in counts.items()}

    def _add_pods(self, made: Workload, count: int, labels: dict[str, str], annotations: dict[str, str]) -> None:
        annotations = {**annotations, workloads.RUNTIME: f"{self.chance.randint(2, 8)}s"}
        pods = (
            workloads.pod(f"{made.name}-{at}", template="one", labels=labels, annotations=annotations)
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
