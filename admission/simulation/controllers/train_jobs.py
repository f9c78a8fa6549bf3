"""The JobSets that Kubeflow Trainer makes for TrainJobs from the runtimes that they name.

Sources: `pkg/runtime/core/trainingruntime.go` and `pkg/runtime/framework/plugins/{jobset,mpi,plainml}` of Trainer 2.3.
What it adds for the program inside (variables, ports, keys for SSH) decides nothing here.
"""

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from admission.api.values.decoding import Json, Reader
from admission.simulation import in_memory

GROUP = "trainer.kubeflow.org"
TRAIN_JOB, NAMESPACED, CLUSTER_WIDE = "TrainJob", "TrainingRuntime", "ClusterTrainingRuntime"
KINDS = (TRAIN_JOB, NAMESPACED, CLUSTER_WIDE)
JOBSET = "jobset.x-k8s.io/v1alpha2"

ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
"""The label of a ReplicatedJob that says which part of a TrainJob it is."""

_PARTS = ("trainer", "dataset-initializer", "model-initializer")
_NODE, _LAUNCHER = "node", "launcher"
_OVERRIDDEN = ("image", "command", "args")
_ENDED = ("Complete", "Failed")


class Made(NamedTuple):
    """What becomes of a TrainJob. place: of it in the input; body: its JobSet, None if it has none; note: why."""

    place: int
    body: Json | None
    note: str = ""


def made(objects: Iterable[tuple[int, Json]], namespace: str) -> Iterator[Made]:
    """Yield what becomes of the TrainJobs of the input. objects: by place. namespace: of those that name none."""
    found = [(index, obj) for index, obj in objects if str(obj["apiVersion"]).rpartition("/")[0] == GROUP]
    runtimes = {(str(obj["kind"]), _key(obj, namespace)): obj for _, obj in found if obj["kind"] != TRAIN_JOB}
    for index, job in found:
        if job["kind"] == TRAIN_JOB and not _is_over(job):
            yield _made(index, job, runtimes, namespace)


def _made(index: int, job: Json, runtimes: Mapping[tuple[str, str], Json], namespace: str) -> Made:
    spec = Reader(job).child("spec")
    reference = spec.child("runtimeRef")
    kind, name = reference.text("kind", CLUSTER_WIDE), reference.text("name")
    own = _key(job, namespace).partition("/")[0]
    runtime = runtimes.get((kind, f"{own}/{name}" if kind == NAMESPACED else name))
    who = f"{TRAIN_JOB} {_key(job, namespace)}"
    if runtime is None:
        return Made(index, None, f"{who} is left out: the input does not have its runtime, {kind} {name}")
    unplayed = [one for one in ("podTemplateOverrides",) if spec.raw(one)]
    unplayed += ["podGroupPolicy of its runtime"] if Reader(runtime).child("spec").raw("podGroupPolicy") else []
    note = f"{who}: {' and '.join(unplayed)} is not simulated" if unplayed else ""
    return Made(index, _jobset(job, Reader(runtime).child("spec"), own), note)


def _key(obj: Json, namespace: str) -> str:
    data = Reader(obj).child("metadata")
    own = "" if obj["kind"] == CLUSTER_WIDE else data.text("namespace") or namespace
    return f"{own}/{data.text('name')}".removeprefix("/")


def _is_over(job: Json) -> bool:
    conditions = Reader(job).child("status").children("conditions")
    is_ended = any(one.text("type") in _ENDED and one.text("status") == "True" for one in conditions)
    return is_ended or bool(Reader(job).child("metadata").text("deletionTimestamp"))


def _jobset(job: Json, runtime: Reader, namespace: str) -> Json:
    """Return the JobSet of a TrainJob. runtime: the spec of its runtime."""
    spec, template = Reader(job).child("spec"), runtime.child("template")
    patches = [one.child("trainingRuntimeSpec").child("template") for one in spec.children("runtimePatches")]
    data = copy.deepcopy(dict(template.object("metadata")))
    for patch in patches:
        metadata = patch.child("metadata")
        for name in ("labels", "annotations"):
            if metadata.pairs(name):
                data[name] = {**Reader(data).pairs(name), **metadata.pairs(name)}
    body: dict[str, Any] = copy.deepcopy(dict(template.object("spec")))
    body["replicatedJobs"] = [
        _replicated_job(one, spec, runtime.child("mlPolicy"), patches) for one in Reader(body).objects("replicatedJobs")
    ]
    if "suspend" in spec:
        body["suspend"] = spec.raw("suspend")
    own = Reader(job).child("metadata")
    uid = own.text("uid") or in_memory.uid_of(TRAIN_JOB, f"{namespace}/{own.text('name')}")
    owner = {
        "apiVersion": job["apiVersion"],
        "kind": TRAIN_JOB,
        "name": own.text("name"),
        "uid": uid,
        "controller": True,
    }
    named = {name: own.raw(name) for name in ("name", "creationTimestamp") if name in own}
    return {
        "apiVersion": JOBSET,
        "kind": "JobSet",
        "metadata": {**data, **named, "namespace": namespace, "ownerReferences": [owner]},
        "spec": body,
    }


def _replicated_job(given: Json, spec: Reader, policy: Reader, patches: Iterable[Reader]) -> Json:
    """Return a ReplicatedJob with what the TrainJob says otherwise. spec: of the TrainJob."""
    found: dict[str, Any] = {**given}
    for patch in patches:
        for one in patch.child("spec").children("replicatedJobs"):
            if one.text("name") == found.get("name"):
                found["template"] = _merged(found.get("template") or {}, one.object("template"))
    reader = Reader(found)
    labels = reader.child("template").child("metadata").pairs("labels")
    part, mpi = labels.get(ANCESTOR, ""), policy.child("mpi")
    template = dict(reader.object("template"))
    job_spec = dict(Reader(template).object("spec"))
    nodes = _nodes(reader.text("name"), part, job_spec, spec.child("trainer"), policy)
    job_spec |= {"parallelism": nodes, "completions": nodes}
    pod = dict(Reader(job_spec).object("template"))
    pod_spec = dict(Reader(pod).object("spec"))
    changed = (_NODE, _LAUNCHER) if mpi.flag("runLauncherAsNode") else (_NODE,)
    pod_spec["containers"] = [
        _container(one, spec.child("trainer")) if one.get("name") in changed else one
        for one in Reader(pod_spec).objects("containers")
    ]
    template["spec"] = {**job_spec, "template": {**pod, "spec": pod_spec}}
    return {**found, "template": template, **({"replicas": 1} if part in _PARTS else {})}


def _nodes(name: str, part: str, job_spec: Json, trainer: Reader, policy: Reader) -> int:
    """Return how many pods a ReplicatedJob has; numNodes of an MPI job counts its launcher where that is a node."""
    mpi = policy.raw("mpi") is not None
    count = Reader(job_spec).integer("parallelism", 1)
    if part == "trainer" and policy.value:
        count = policy.integer("numNodes", 1)
    if "numNodes" not in trainer or (name != _NODE if mpi else part != "trainer"):
        return count
    wanted = trainer.integer("numNodes", 1)
    return max(wanted - 1, 1) if mpi and policy.child("mpi").flag("runLauncherAsNode") else wanted


def _container(given: Json, trainer: Reader) -> Json:
    """Return the container that trains, as the TrainJob wants it. Its resources replace all, also names of claims."""
    found = {**given, **{name: trainer.raw(name) for name in _OVERRIDDEN if trainer.raw(name) is not None}}
    resources = trainer.child("resourcesPerNode")
    wanted = {name: resources.raw(name) for name in ("limits", "requests") if resources.raw(name) is not None}
    if wanted:
        found["resources"] = wanted
    if trainer.objects("env"):
        found["env"] = _merged(list(Reader(given).objects("env")), list(trainer.objects("env")))
    return found


def _merged(given: Any, patch: Any) -> Any:
    """Return JSON with a strategic merge patch: lists of named objects are merged by name, others replaced."""
    if isinstance(given, Mapping) and isinstance(patch, Mapping):
        whole = {**given, **{name: _merged(given.get(name), value) for name, value in patch.items()}}
        return {name: value for name, value in whole.items() if value is not None}
    if not (isinstance(given, list) and isinstance(patch, list) and _are_named([*given, *patch])):
        return patch
    known = {one["name"]: one for one in given}
    for one in patch:
        known[one["name"]] = _merged(known.get(one["name"]), one)
    return [*known.values()]


def _are_named(found: list[Any]) -> bool:
    return all(isinstance(one, Mapping) and isinstance(one.get("name"), str) for one in found)
