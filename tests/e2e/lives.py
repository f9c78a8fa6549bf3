"""The whole life of each kind of workload that people run: what it is made of, and how it is scaled and restarted.

Where a kind's own controller cannot run, a small one stands in for it. It looks at its object again and again, makes
what is missing, deletes what is too much, and goes on to the next thing only when the one before is there, as they do.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests import standins
from tests.controlplane import ApiError
from tests.controlplane.fleet import Manifest
from tests.e2e.herds import MAKERS, Herd
from tests.standins import an_object

LABEL = "life"
"""The label by which the pods of a life are known to the test."""

RAY = "ray.io/v1"

JOBSET = ("jobset.x-k8s.io/v1alpha2", "JobSet")

MADE = (("v1", "Pod"), *MAKERS, (RAY, "RayCluster"), JOBSET)
"""What the stand-ins make, and what comes of it."""

KEPT = {
    "Job": ("parallelism", "completions", "suspend"),
    "StatefulSet": ("replicas",),
    "RayCluster": ("workerGroupSpecs",),
}
"""Fields of what a controller has made that it keeps as its object says."""

Key = tuple[str, str]
"""Kind and name of an object."""

Making = Generator[Manifest, Manifest, None]
"""Yields what a controller has for its object, one after the other, and is sent each as the API server has it."""


@dataclass(frozen=True, slots=True)
class View:
    """What is in the namespace of a herd at a time."""

    objects: Mapping[Key, Manifest]
    gangs: Sequence[Any]

    @classmethod
    def of(cls, herd: Herd) -> "View":
        found: dict[Key, Manifest] = {}
        for version, kind in MADE:
            empty = {"apiVersion": version, "kind": kind}
            for obj in herd.lab.client.items(herd.path(empty)):
                found[kind, obj["metadata"]["name"]] = {**empty, **obj}
        return cls(found, herd.gangs)

    def pods(self, life: str) -> dict[str, Manifest]:
        """Return the pods of a life that are not being deleted, by name."""
        mine = ((name, pod) for (kind, name), pod in self.objects.items() if kind == "Pod")
        return {name: pod for name, pod in mine if pod["metadata"]["labels"].get(LABEL) == life and not leaves(pod)}


def leaves(obj: Manifest) -> bool:
    return "deletionTimestamp" in obj["metadata"]


def together(pods: Collection[str]) -> list[list[str]]:
    return [sorted(pods)]


def alone(pods: Collection[str]) -> list[list[str]]:
    return [[pod] for pod in sorted(pods)]


def nothing(_life: "Life") -> Making:
    """Make nothing: the kind has its real controller."""
    yield from ()


def each(objects: Iterable[Manifest]) -> Making:
    """Make some objects of which nothing has to be known afterwards."""
    yield from (obj for obj in objects)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """How a kind lives.

    spec: what its object says when it has so many replicas. make: what stands in for its controller. pods: how many
    there are for so many replicas. early: how many of them come before any runs; None for all. gangs: which of its pods
    start together. fixed: why it cannot be scaled. restart: has its controller make all anew; again: what its user does
    when the old ones are gone, where it is restarted by suspending it. keeps: whether it is the same gang then, since
    nothing tells its tries apart. first: how many objects the controller has made when one of the new pods is there and
    others of its gang are not; 0 where its pods do not wait for others.
    """

    version: str
    kind: str
    spec: Callable[["Life", int], Manifest]
    make: Callable[["Life"], Making] = nothing
    pods: Callable[[int], int] = lambda replicas: replicas + 1
    early: int | None = None
    gangs: Callable[[Collection[str]], list[list[str]]] = together
    fixed: str = ""
    restart: Callable[["Life"], None]
    again: Callable[["Life"], None] | None = None
    keeps: bool = False
    first: int = 1


@dataclass(slots=True, kw_only=True)
class Life:
    """One workload. replicas: how many it is to have; attempt: how often it was restarted."""

    name: str
    kind: Kind
    herd: Herd
    replicas: int = 2
    attempt: int = 0
    object: Manifest = field(default_factory=dict)
    made: set[Key] = field(default_factory=set)

    def submit(self) -> None:
        body = an_object(self.kind.version, self.kind.kind, self.name, **self.kind.spec(self, self.replicas))
        self.object = self.herd.put(body)

    def scale(self, replicas: int) -> None:
        self.replicas = replicas
        self.tell({"spec": self.kind.spec(self, replicas)})

    def tell(self, change: Manifest) -> None:
        """Change the object."""
        path = f"{self.herd.path(self.object)}/{self.name}"
        self.object |= self.herd.lab.client.merge_patch(path, change)

    def template(self, restart_policy: str = "Never") -> Manifest:
        return self.herd.template(restart_policy, **{LABEL: self.name})

    @property
    def pods(self) -> int:
        return self.kind.pods(self.replicas)

    def seen(self, view: View) -> dict[str, Manifest]:
        return view.pods(self.name)

    def reconcile(self, view: View, first: int = 0) -> None:
        """Do what its controller would. first: how many objects it gets to make before something keeps it; 0 for all.

        What is not there yet, or still there from before, is waited for until the next look.
        """
        making = self.kind.make(self)
        wanted: set[Key] = set()
        obj = next(making, None)
        while obj is not None:
            key = obj["kind"], obj["metadata"]["name"]
            found = self._have(obj, view.objects.get(key))
            wanted.add(key)
            if found is None or len(wanted) == first:
                return
            try:
                obj = making.send(found)
            except StopIteration:
                obj = None
        self.remove(view, self.made - wanted)

    def remove(self, view: View, keys: Collection[Key]) -> None:
        """Delete what its controller has made; pods in the time that they take."""
        for key in [*keys]:
            obj = view.objects.get(key)
            if obj is not None and not leaves(obj):
                self.herd.lab.client.delete(f"{self.herd.path(obj)}/{key[1]}?propagationPolicy=Background")
            self.made.discard(key)

    def _have(self, obj: Manifest, found: Manifest | None) -> Manifest | None:
        """Return an object as it is there, made now or kept as it should be; None while another one is in its way."""
        if found is None:
            self.made.add((obj["kind"], obj["metadata"]["name"]))
            return self._put(obj)
        owners = [one["metadata"]["ownerReferences"][0]["uid"] for one in (obj, found)]
        if leaves(found) or owners[0] != owners[1]:
            return None
        kept = {key: obj["spec"][key] for key in KEPT.get(obj["kind"], ()) if key in obj["spec"]}
        if any(found["spec"].get(key) != value for key, value in kept.items()):
            path = f"{self.herd.path(obj)}/{obj['metadata']['name']}"
            return {**found, **self.herd.lab.client.merge_patch(path, {"spec": kept})}
        return found

    def _put(self, obj: Manifest) -> Manifest | None:
        try:
            return self.herd.put(obj)
        except ApiError as error:
            if error.code != 409:  # one of the name came between the look and now
                raise
            return None


# Training jobs.


def training(kind: str, field_name: str, leader: str = "") -> Kind:
    """A training job of Kubeflow, with a leader or without. Its operator restarts all of it when it is resumed."""

    def spec(life: Life, replicas: int) -> Manifest:
        counts = {leader: 1, "Worker": replicas} if leader else {"Worker": replicas + 1}
        roles = {role: {"replicas": count, "template": life.template()} for role, count in counts.items()}
        return {field_name: roles}

    def make(life: Life) -> Making:
        if not suspended(life, "runPolicy"):
            yield from each(standins.replica_pods(life.object, field_name))

    return Kind(
        version="kubeflow.org/v1",
        kind=kind,
        spec=spec,
        make=make,
        restart=suspend("runPolicy"),
        again=resume("runPolicy"),
        keeps=True,
    )


def suspended(life: Life, *path: str) -> bool:
    spec = life.object["spec"]
    for name in path:
        spec = spec.get(name, {})
    return bool(spec.get("suspend"))


def suspend(*path: str, to: bool = True) -> Callable[[Life], None]:
    """Return what suspends an object. path: below `spec`."""
    change: Manifest = {"suspend": to}
    for name in reversed(path):
        change = {name: change}
    return lambda life: life.tell({"spec": change})


def resume(*path: str) -> Callable[[Life], None]:
    return suspend(*path, to=False)


def mpi_spec(life: Life, replicas: int) -> Manifest:
    counts = {"Launcher": 1, "Worker": replicas}
    return {"mpiReplicaSpecs": {role: {"replicas": n, "template": life.template()} for role, n in counts.items()}}


def make_mpi(life: Life) -> Making:
    """Its operator makes the workers, and then the Job of the launcher, which is suspended and resumed with it."""
    if not suspended(life, "runPolicy"):
        yield from each(standins.replica_pods(life.object, "mpiReplicaSpecs", "Worker"))
    yield standins.launcher(life.object)


# What restarts by making everything anew.


def anew(status: str) -> Callable[[Life], None]:
    """Return what a controller does that counts its tries in a field of the status, and deletes what it has made."""

    def restart(life: Life) -> None:
        life.attempt += 1
        if status:
            life.tell({"status": {status: life.attempt}})
        life.remove(View.of(life.herd), life.made)

    return restart


def jobset_spec(life: Life, replicas: int) -> Manifest:
    def entry(role: str, pods: int) -> Manifest:
        job = {"completionMode": "Indexed", "parallelism": pods, "completions": pods, "template": life.template()}
        return {"name": role, "replicas": 1, "template": {"spec": job}}

    return {"replicatedJobs": [entry("driver", 1), entry("workers", replicas)]}


def make_jobset(life: Life) -> Making:
    yield from each(standins.jobset_jobs(life.object, restarts=life.attempt))


def make_train_job(life: Life) -> Making:
    """Kubeflow Trainer makes a JobSet of its name, and the rest is the JobSet's."""
    wanted = an_object(*JOBSET, life.name, **jobset_spec(life, life.replicas))
    wanted["metadata"]["ownerReferences"] = [standins.owner(life.object)]
    jobset = yield wanted
    yield from each(standins.jobset_jobs(jobset, restarts=life.attempt))


def restart_train_job(life: Life) -> None:
    life.attempt += 1
    path = life.herd.path(dict(zip(("apiVersion", "kind"), JOBSET, strict=True)))
    life.herd.lab.client.merge_patch(f"{path}/{life.name}", {"status": {"restarts": life.attempt}})
    life.remove(View.of(life.herd), {key for key in life.made if key[0] == "Job"})


def volcano_spec(life: Life, replicas: int) -> Manifest:
    tasks = [{"name": name, "replicas": n, "template": life.template()} for name, n in (("ps", 1), ("w", replicas))]
    return {"minAvailable": 3, "tasks": tasks}


def make_tasks(life: Life) -> Making:
    yield from each(standins.task_pods(life.object))


def ray_spec(life: Life, replicas: int) -> Manifest:
    template = life.template("Always")
    group = {"groupName": "g", "replicas": replicas, "minReplicas": 2, "maxReplicas": 4, "template": template}
    return {"enableInTreeAutoscaling": True, "headGroupSpec": {"template": template}, "workerGroupSpecs": [group]}


def make_ray(life: Life) -> Making:
    """Whom the operator makes after a restart has another name, but for the head."""
    if not suspended(life):
        yield from each(standins.ray_pods(life.object, lot=str(life.attempt)))


def resume_ray(life: Life) -> None:
    life.attempt += 1
    resume()(life)


def by_cluster(field_name: str, **more: Any) -> Callable[[Life, int], Manifest]:
    """What says of which RayCluster there is to be one. Ray scales that cluster, and not what made it."""
    return lambda life, _replicas: {field_name: ray_spec(life, 2), **more}


def make_cluster(life: Life) -> Making:
    wanted = standins.ray_cluster(life.object, f"try-{life.attempt}")
    wanted["spec"] = ray_spec(life, life.replicas)
    cluster = yield wanted
    yield from each(standins.ray_pods(cluster))


def by_driver(pods: Collection[str]) -> list[list[str]]:
    drivers = [pod for pod in pods if pod.endswith("-driver")]
    executors = sorted(set(pods) - set(drivers))
    return [drivers, executors] if executors else [drivers]


def make_spark(life: Life) -> Making:
    """The driver asks for executors when it runs, and for more and fewer as it has work: no field says how many."""
    driver = yield standins.spark_driver(life.object, life.template(), submission=life.attempt + 1)
    if driver.get("status", {}).get("phase") == "Running":
        yield from each(standins.spark_executors(driver, life.replicas, life.template()))


def spark_spec(_life: Life, _replicas: int) -> Manifest:
    return {"dynamicAllocation": {"enabled": True, "initialExecutors": 2, "minExecutors": 1, "maxExecutors": 4}}


def make_steps(life: Life) -> Making:
    yield from each(standins.workflow_pods(life.object, life.template(), life.replicas))


# What is restarted otherwise.


def lws_spec(life: Life, replicas: int) -> Manifest:
    return {"replicas": replicas, "leaderWorkerTemplate": {"size": 2, "workerTemplate": life.template("Always")}}


def make_lws(life: Life) -> Making:
    """Each leader that the real controller of StatefulSets makes gets a StatefulSet of workers."""
    yield standins.leaders(life.object)
    for number in range(life.replicas):
        leader = life.herd.pods.get(f"{life.name}-{number}")
        if leader is not None:
            yield standins.workers(life.object, {"apiVersion": "v1", "kind": "Pod", **leader})


def by_leader(pods: Collection[str]) -> list[list[str]]:
    groups: dict[str, list[str]] = {}
    for pod in sorted(pods):
        groups.setdefault(pod.split("-")[1], []).append(pod)
    return [*groups.values()]


def without_leaders(life: Life) -> None:
    """Delete the leaders, as the set does when a pod of a group fails; Kubernetes deletes their workers after them."""
    for pod in [pod for name, pod in View.of(life.herd).pods(life.name).items() if name.count("-") == 1]:
        life.herd.lab.client.delete(f"{life.herd.path(pod)}/{pod['metadata']['name']}")


def set_spec(**more: Any) -> Callable[[Life, int], Manifest]:
    def spec(life: Life, replicas: int) -> Manifest:
        template = life.template("Always")
        return {"replicas": replicas, "selector": {"matchLabels": {LABEL: life.name}}, "template": template, **more}

    return spec


def roll_out(life: Life) -> None:
    """Do what `kubectl rollout restart` does."""
    life.tell({"spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}}})


def job_spec(life: Life, replicas: int) -> Manifest:
    pods = replicas + 1
    return {"completionMode": "Indexed", "parallelism": pods, "completions": pods, "template": life.template()}


def only(replicas: int) -> int:
    return replicas


KINDS: dict[str, Kind] = {
    "pytorch": training("PyTorchJob", "pytorchReplicaSpecs", "Master"),
    "tf": training("TFJob", "tfReplicaSpecs", "Chief"),
    "xgb": training("XGBoostJob", "xgbReplicaSpecs", "Master"),
    "paddle": training("PaddleJob", "paddleReplicaSpecs", "Master"),
    "jax": training("JAXJob", "jaxReplicaSpecs"),
    "mpi": Kind(
        version="kubeflow.org/v2beta1",
        kind="MPIJob",
        spec=mpi_spec,
        make=make_mpi,
        restart=suspend("runPolicy"),
        again=resume("runPolicy"),
        keeps=True,
    ),
    "jobset": Kind(
        version=JOBSET[0],
        kind=JOBSET[1],
        spec=jobset_spec,
        make=make_jobset,
        restart=anew("restarts"),
    ),
    "trainjob": Kind(
        version="trainer.kubeflow.org/v1alpha1",
        kind="TrainJob",
        spec=lambda _life, _replicas: {"runtimeRef": {"name": "torch"}, "trainer": {"numNodes": 2}},
        make=make_train_job,
        fixed="spec.trainer is immutable, and with it numNodes",
        restart=restart_train_job,
        first=2,
    ),
    "volcano": Kind(
        version="batch.volcano.sh/v1alpha1",
        kind="Job",
        spec=volcano_spec,
        make=make_tasks,
        restart=anew("version"),
        keeps=True,
    ),
    "ray": Kind(
        version=RAY, kind="RayCluster", spec=ray_spec, make=make_ray, restart=suspend(), again=resume_ray, keeps=True
    ),
    "rayjob": Kind(
        version=RAY,
        kind="RayJob",
        spec=by_cluster("rayClusterSpec", backoffLimit=1),
        make=make_cluster,
        restart=anew("failed"),
        first=2,
    ),
    "rayservice": Kind(
        version=RAY,
        kind="RayService",
        spec=by_cluster("rayClusterConfig"),
        make=make_cluster,
        restart=anew(""),
        first=2,
    ),
    "spark": Kind(
        version="sparkoperator.k8s.io/v1beta2",
        kind="SparkApplication",
        spec=spark_spec,
        make=make_spark,
        early=1,
        gangs=by_driver,
        restart=anew(""),
        first=0,
    ),
    "workflow": Kind(
        version="argoproj.io/v1alpha1",
        kind="Workflow",
        spec=lambda _life, _replicas: {"entrypoint": "main"},
        make=make_steps,
        pods=only,
        gangs=alone,
        restart=anew(""),
        first=0,
    ),
    "lws": Kind(
        version="leaderworkerset.x-k8s.io/v1",
        kind="LeaderWorkerSet",
        spec=lws_spec,
        make=make_lws,
        pods=lambda replicas: 2 * replicas,
        gangs=by_leader,
        restart=without_leaders,
    ),
    "job": Kind(version="batch/v1", kind="Job", spec=job_spec, restart=suspend(), again=resume(), keeps=True, first=0),
    "deployment": Kind(
        version="apps/v1", kind="Deployment", spec=set_spec(), pods=only, gangs=alone, restart=roll_out, first=0
    ),
    "statefulset": Kind(
        version="apps/v1",
        kind="StatefulSet",
        spec=set_spec(serviceName="x"),
        pods=only,
        early=1,
        gangs=alone,
        restart=roll_out,
        first=0,
    ),
}
"""All kinds, by what their workload is called here: no name is the beginning of another one and a dash."""
