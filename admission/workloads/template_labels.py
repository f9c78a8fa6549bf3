"""The labels of pods inside the workloads that make them: where each kind has them, and how one is added.

A queue that is named in a workload's own labels is written to these places at its creation (`podpolicy.
workload_queue`), since controllers copy pods' labels from there and from nowhere else.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from admission.api.values import json_patch
from admission.api.values.decoding import Json, Reader
from admission.api.values.json_patch import Patch
from admission.workloads.kinds import catalog, labels
from admission.workloads.kinds.registry import WorkloadKind

EACH = "*"
"""In a path: every element of a list, or every value of a mapping."""

MOST_PLACES = 1000
"""The most places of one workload that are read. The largest real ones have some tens."""

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelPath:
    """Where objects of a kind have the labels of what their controller makes.

    base: of an object that has to exist, with EACH. labels: from there to the labels; all of it may be absent.
    is_written: whether a queue is written there; others, such as the labels of Jobs that make the pods, are only read.
    """

    base: tuple[str, ...]
    labels: tuple[str, ...] = ("metadata", "labels")
    is_written: bool = True

    @property
    def is_pod_template(self) -> bool:
        """Whether the object at the base is a v1.PodTemplateSpec."""
        return self.is_written and self.labels == ("metadata", "labels")


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledKind:
    """One kind. versions: of the same shape. paths: outer ones first; without any, its pods' labels are elsewhere.

    is_fixed: whether objects run once, so that their templates do not change. elsewhere: where to name a queue if there
    are no paths.
    """

    kind: str
    group: str
    versions: tuple[str, ...]
    plural: str
    paths: tuple[LabelPath, ...]
    is_fixed: bool = True
    elsewhere: str = ""

    @property
    def is_native(self) -> bool:
        """Whether it is a kind of Kubernetes."""
        return self.group in ("", "apps", "batch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One place of an object. base: its path; reader: of the object there."""

    base: Path
    path: LabelPath
    reader: Reader

    @property
    def field(self) -> str:
        """Return the field path of the labels."""
        return field_of((*self.base, *self.path.labels))

    @property
    def labels(self) -> dict[str, str]:
        return self._holder().pairs(self.path.labels[-1])

    @property
    def annotations(self) -> dict[str, str]:
        return self._holder().pairs("annotations")

    def _holder(self) -> Reader:
        reader = self.reader
        for name in self.path.labels[:-1]:
            reader = reader.child(name)
        return reader

    def add(self, pairs: Mapping[str, str]) -> Patch:
        """Return the patch that adds labels, with all that is absent above them."""
        reader, names = self.reader, self.path.labels
        for depth, name in enumerate(names if pairs else ()):
            if name not in reader:
                added: Any = dict(pairs)
                for inner in reversed(names[depth + 1 :]):
                    added = {inner: added}
                return (json_patch.add(json_patch.pointer(*self.base, *names[: depth + 1]), added),)
            reader = reader.child(name)
        return tuple(json_patch.add(json_patch.pointer(*self.base, *names, key), text) for key, text in pairs.items())


def places(kind: LabelledKind, reader: Reader) -> tuple[tuple[Place, ...], bool]:
    """Return the first MOST_PLACES places of an object, outer ones first; and whether these are all."""
    walk = _Walk()
    found = (
        Place(base=base, path=path, reader=element)
        for path in kind.paths
        for base, element in walk.objects(reader, path.base, ())
    )
    kept = tuple(islice(found, MOST_PLACES))
    return kept, walk.is_complete and next(found, None) is None


def pod_templates(obj: Json) -> tuple[Place, ...]:
    """Return the pod templates (v1.PodTemplateSpec) of an object; none if its kind is not known to have any."""
    kind = _kind_of(obj)
    if kind is None:
        return ()
    return tuple(place for place in places(kind, Reader(obj))[0] if place.path.is_pod_template)


def _kind_of(obj: Json) -> LabelledKind | None:
    return BY_GROUP.get((str(obj.get("apiVersion")).rpartition("/")[0], str(obj.get("kind"))))


def added_volumes(obj: Json) -> tuple[str, ...] | None:
    """Return the names of the volumes that a controller adds to the pods of a workload, one for each claim template.

    A JobSet has them in its volumeClaimPolicies.

    None for kinds whose controllers add others, such as the token that KubeRay adds for authentication.
    """
    kind = _kind_of(obj)
    if kind is not None and not kind.is_native and kind.group not in ("jobset.x-k8s.io", "leaderworkerset.x-k8s.io"):
        return None
    spec = Reader(obj).child("spec")
    holder = spec.child("leaderWorkerTemplate") if obj.get("kind") == "LeaderWorkerSet" else spec
    claims = [holder.children("volumeClaimTemplates")]
    claims += (policy.children("templates") for policy in islice(spec.children("volumeClaimPolicies"), MOST_PLACES))
    templates = islice(chain.from_iterable(claims), MOST_PLACES)
    return tuple(template.child("metadata").text("name") for template in templates)


@dataclass(slots=True)
class _Walk:
    """The objects at the bases of one workload. is_complete: whether no list or mapping was too long to be read."""

    is_complete: bool = True

    def objects(self, reader: Reader, base: tuple[str, ...], path: Path) -> Iterator[tuple[Path, Reader]]:
        """Yield the path and a reader of each object at a base."""
        if not base:
            yield path, reader
            return
        name, *rest = base
        if rest[:1] != [EACH]:
            if name in reader:
                yield from self.objects(reader.child(name), tuple(rest), (*path, name))
            return
        for key, element in self._elements(reader, name):
            yield from self.objects(element, tuple(rest[1:]), (*path, name, key))

    def _elements(self, reader: Reader, name: str) -> Iterator[tuple[str | int, Reader]]:
        """Yield the elements of a list or mapping, with their keys."""
        raw = reader.raw(name)
        if isinstance(raw, list | Mapping) and len(raw) > MOST_PLACES:
            self.is_complete = False
        if isinstance(raw, Mapping):
            yield from islice(reader.entries(name), MOST_PLACES)
        else:
            yield from islice(enumerate(reader.children(name)), MOST_PLACES)


def field_of(path: Path) -> str:
    """Return a path as a Kubernetes field path; keys that an author wrote are cut to a length that fits a message."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{labels.shortened(part)}" for part in path)
    return "".join(parts).removeprefix(".")


def _paths(*bases: str) -> tuple[LabelPath, ...]:
    """Return the paths of pod templates. bases: with dots between their parts."""
    return tuple(LabelPath(base=tuple(base.split("."))) for base in bases)


def _of_kind(key: str, *paths: LabelPath, is_fixed: bool = True) -> LabelledKind:
    kind: WorkloadKind = catalog.OWNERS.get(key) or catalog.PLANNED[key]
    return LabelledKind(
        kind=kind.kind,
        group=kind.group,
        versions=kind.versions,
        plural=kind.plural,
        paths=paths,
        is_fixed=is_fixed,
    )


def _native(kind: str, group: str, *, is_fixed: bool = False) -> LabelledKind:
    """Return a kind of Kubernetes with one pod template."""
    plural = f"{kind.lower()}s"
    paths = _paths("spec.template")
    return LabelledKind(kind=kind, group=group, versions=("v1",), plural=plural, paths=paths, is_fixed=is_fixed)


def _ray(cluster: str) -> tuple[LabelPath, ...]:
    """Return the paths of a RayCluster's spec. cluster: where it is."""
    return _paths(f"{cluster}.headGroupSpec.template", f"{cluster}.workerGroupSpecs.*.template")


def _spark(spec: str) -> tuple[LabelPath, ...]:
    roles = ("driver", "executor")
    return tuple(LabelPath(base=(*spec.split("."), role), labels=("labels",)) for role in roles)


def _workflow(spec: str) -> tuple[LabelPath, ...]:
    base = tuple(spec.split("."))
    return (
        LabelPath(base=base, labels=("podMetadata", "labels")),
        LabelPath(base=(*base, "templates", EACH), is_written=False),
    )


_REPLICAS = {
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
    "JAXJob": "jaxReplicaSpecs",
    "MPIJob": "mpiReplicaSpecs",
}

_JOB_TEMPLATE = LabelPath(base=("spec", "jobTemplate"), is_written=False)
_REPLICATED_JOB = LabelPath(base=("spec", "replicatedJobs", EACH, "template"), is_written=False)

ALL: tuple[LabelledKind, ...] = (
    _native("Job", "batch", is_fixed=True),
    LabelledKind(
        kind="CronJob",
        group="batch",
        versions=("v1",),
        plural="cronjobs",
        paths=(_JOB_TEMPLATE, *_paths("spec.jobTemplate.spec.template")),
        is_fixed=False,
    ),
    _native("Deployment", "apps"),
    _native("ReplicaSet", "apps"),
    _native("DaemonSet", "apps"),
    _of_kind("StatefulSet.apps", *_paths("spec.template"), is_fixed=False),
    _native("ReplicationController", ""),
    _of_kind("JobSet.jobset.x-k8s.io", _REPLICATED_JOB, *_paths("spec.replicatedJobs.*.template.spec.template")),
    _of_kind(
        "LeaderWorkerSet.leaderworkerset.x-k8s.io",
        *_paths("spec.leaderWorkerTemplate.leaderTemplate", "spec.leaderWorkerTemplate.workerTemplate"),
        is_fixed=False,
    ),
    *(_of_kind(f"{kind}.kubeflow.org", *_paths(f"spec.{field}.*.template")) for kind, field in _REPLICAS.items()),
    _of_kind("RayCluster.ray.io", *_ray("spec"), is_fixed=False),
    _of_kind("RayJob.ray.io", *_ray("spec.rayClusterSpec"), *_paths("spec.submitterPodTemplate")),
    LabelledKind(
        kind="RayService",
        group="ray.io",
        versions=("v1", "v1alpha1"),
        plural="rayservices",
        paths=_ray("spec.rayClusterConfig"),
        is_fixed=False,
    ),
    LabelledKind(
        kind="RayCronJob",
        group="ray.io",
        versions=("v1",),
        plural="raycronjobs",
        paths=(*_ray("spec.jobTemplate.rayClusterSpec"), *_paths("spec.jobTemplate.submitterPodTemplate")),
        is_fixed=False,
    ),
    _of_kind("SparkApplication.sparkoperator.k8s.io", *_spark("spec")),
    LabelledKind(
        kind="ScheduledSparkApplication",
        group="sparkoperator.k8s.io",
        versions=("v1beta2",),
        plural="scheduledsparkapplications",
        paths=_spark("spec.template"),
        is_fixed=False,
    ),
    _of_kind("Job.batch.volcano.sh", *_paths("spec.tasks.*.template")),
    LabelledKind(
        kind="Workflow",
        group="argoproj.io",
        versions=("v1alpha1",),
        plural="workflows",
        paths=_workflow("spec"),
    ),
    LabelledKind(
        kind="CronWorkflow",
        group="argoproj.io",
        versions=("v1alpha1",),
        plural="cronworkflows",
        paths=_workflow("spec.workflowSpec"),
        is_fixed=False,
    ),
    LabelledKind(
        kind="TrainJob",
        group="trainer.kubeflow.org",
        versions=("v1alpha1",),
        plural="trainjobs",
        paths=(),
        elsewhere="label its JobSet by spec.runtimePatches, or by spec.labels where Kubeflow Trainer has that field, or"
        " label the pod templates of the training runtime",
    ),
)
"""All kinds, those of Kubernetes first."""

BY_RESOURCE: Mapping[tuple[str, str], LabelledKind] = {(one.group, one.plural): one for one in ALL}
BY_GROUP: Mapping[tuple[str, str], LabelledKind] = {(one.group, one.kind): one for one in ALL}
