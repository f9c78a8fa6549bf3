"""The workloads that can be held as a whole: their `suspend` field, and the pods that their templates yield.

The table has batch Jobs and other kinds with a `suspend` field. A workload that another object controls is not held,
since its controller sets that field itself; workloads of a schedule are an exception.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from admission.api.kubernetes import active_deadline, jobs, meta
from admission.api.kubernetes.jobs import Job, PodTemplate, Suspendable
from admission.api.kubernetes.meta import Meta, Owner
from admission.api.kubernetes.owners import Parent
from admission.api.scheduling import scheduling_rules
from admission.api.snapshot import Merged, Snapshot, changed
from admission.api.values import names
from admission.api.values.decoding import Json, Reader
from admission.api.values.names import Held, Uid
from admission.incremental import Derived
from admission.workloads import owner_chain
from admission.workloads.kinds import catalog, jobset, registry
from admission.workloads.kinds.registry import WorkloadKind

SCHEDULES = ("CronJob", "RayCronJob")
"""Kinds whose controllers create workloads but do not manage their suspension."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdable:
    """One kind. templates: returns the first pods that its controller would create from JSON.

    It raises MalformedObjectError. suspend: empty for kinds that are only looked at ahead. may_suspend: whether its
    controller supports suspending an object. deadline: the field after which its controller ends all pods, counted from
    the object's start; empty if it has none.
    """

    kind: str
    group: str
    versions: tuple[str, ...]
    plural: str
    suspend: tuple[str, ...]
    templates: Callable[[Json], tuple[PodTemplate, ...]]
    may_suspend: Callable[[Reader], bool] = registry.always
    deadline: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Return the kind's key in a snapshot."""
        return registry.key(self.kind, self.group)

    def owner(self, meta: Meta) -> Owner:
        """Return the owner reference that a pod of an object has."""
        version = f"{self.group}/{self.versions[0]}"
        return Owner(api_version=version, kind=self.kind, name=meta.name, uid=meta.uid, controller=True)

    def suspendable(self, meta: Meta) -> Suspendable:
        """Return the object with its `suspend` field, for writing it."""
        return Suspendable(
            meta=meta, group=self.group, versions=self.versions, plural=self.plural, suspend=self.suspend
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A workload that Muster holds as a whole, or held and resumed."""

    kind: Holdable
    obj: Job | Parent

    @property
    def meta(self) -> Meta:
        return self.obj.meta

    @property
    def is_waiting(self) -> bool:
        """Whether Muster holds it: it is suspended, and was so by Muster."""
        return self.obj.suspended and held(self.meta) is Held.WAITING

    @property
    def is_resumed_externally(self) -> bool:
        """Whether another client has resumed it although Muster holds it, while the webhook was not called."""
        return not self.obj.suspended and held(self.meta) is Held.WAITING

    @property
    def is_started(self) -> bool:
        return not self.obj.suspended and held(self.meta) is Held.STARTED

    @property
    def is_over(self) -> bool:
        """Whether it makes no more pods."""
        return self.meta.deleted is not None or self.obj.finished

    @property
    def templates(self) -> tuple[PodTemplate, ...]:
        return job_templates(self.obj) if isinstance(self.obj, Job) else self.obj.templates


def job_templates(job: Job) -> tuple[PodTemplate, ...]:
    """Return the template of a Job, with the labels that its controller adds."""
    return (
        PodTemplate(
            path=("spec", "template"),
            body=job.template,
            pods=job.remaining_pods,
            name=job.meta.name,
            indexes=job.next_indexes if job.indexed else (),
            labels=jobs.pod_labels(job.meta.name, job.meta.uid),
            index_labels={jobs.INDEX: job.completions or job.remaining_pods} if job.indexed else {},
        ),
    )


def _template_reader(workload_kind: WorkloadKind) -> Callable[[Json], tuple[PodTemplate, ...]]:
    def read(obj: Json) -> tuple[PodTemplate, ...]:
        reader = Reader(obj)
        object_meta = meta.decode(reader)
        templates = tuple(workload_kind.templates(reader, object_meta))
        reader.finish(workload_kind.kind, object_meta.key)
        return templates

    return read


def _holdable(workload_kind: WorkloadKind) -> Holdable:
    return Holdable(
        kind=workload_kind.kind,
        group=workload_kind.group,
        versions=workload_kind.versions,
        plural=workload_kind.plural,
        suspend=workload_kind.suspend,
        templates=_template_reader(workload_kind),
        may_suspend=workload_kind.may_suspend,
        deadline=workload_kind.deadline,
    )


JOB = Holdable(
    kind="Job",
    group="batch",
    versions=("v1",),
    plural="jobs",
    suspend=("spec", "suspend"),
    templates=lambda obj: job_templates(jobs.decode(obj)),
    deadline=("spec", active_deadline.FIELD),
)

ALL: tuple[Holdable, ...] = (
    JOB,
    *(_holdable(workload_kind) for workload_kind in catalog.ALL if workload_kind.suspend),
)

BY_RESOURCE: Mapping[tuple[str, str], Holdable] = {(one.group, one.plural): one for one in ALL}
BY_KEY: Mapping[str, Holdable] = {one.key: one for one in ALL}

WITH_TEMPLATES: Mapping[str, Holdable] = {
    **BY_KEY,
    **{one.key: _holdable(one) for one in catalog.ALL if one.has_templates and not one.suspend},
}
"""The kinds some of whose pods can be planned before they exist, by key: also those that cannot be suspended."""


_MARKS: Mapping[str, Held] = {one.value: one for one in Held}


def held(meta: Meta) -> Held | None:
    """Return Muster's mark on a workload; None if Muster never held it as a whole."""
    return _MARKS.get(meta.annotations.get(names.HELD, ""))


def is_free(controller: Owner | None) -> bool:
    """Return whether no other object's controller manages a workload's suspension."""
    return controller is None or controller.kind in SCHEDULES


class HeldWorkloads:
    """The workloads that Muster holds as a whole, or held, followed from one snapshot to the next by what differs."""

    def __init__(self) -> None:
        self._by_kind: dict[str, Derived[Any, Job | Parent, Workload]] = {}
        self._merged: Merged[Uid, Workload] = Merged()
        self.workloads: Mapping[Uid, Workload] = {}
        """Those of the last snapshot, by UID."""

    def update(self, snapshot: Snapshot) -> set[Uid]:
        """Go on to a snapshot; return the workloads of which something has changed."""
        kinds: dict[str, Mapping[Any, Job | Parent]] = {JOB.key: snapshot.jobs}
        kinds |= {key: parents for key, parents in snapshot.parents.items() if key in BY_KEY and key != JOB.key}
        self._by_kind = {key: self._by_kind.get(key) or Derived(_marked_of(BY_KEY[key])) for key in kinds}
        for key, objects in kinds.items():
            self._by_kind[key].update(objects)
        before, self.workloads = self.workloads, self._merged.update(*(one.values for one in self._by_kind.values()))
        return {*changed(before, self.workloads)}


def held_workloads(snapshot: Snapshot) -> list[Workload]:
    """Return the workloads that Muster holds as a whole, or held."""
    found = HeldWorkloads()
    found.update(snapshot)
    return [*found.workloads.values()]


def _marked_of(kind: Holdable) -> Callable[[Any, Job | Parent], Workload | None]:
    return lambda _, obj: _marked(kind, obj)


def _marked(kind: Holdable, obj: Job | Parent) -> Workload | None:
    is_marked = held(obj.meta) is not None and is_free(obj.meta.controller)
    return Workload(kind=kind, obj=obj) if is_marked else None


def workload_of(owner: Owner | None, snapshot: Snapshot) -> Workload | None:
    """Return the workload of an owner reference, if Muster holds it as a whole, or held it."""
    if owner is None:
        return None
    key = registry.kind_of(owner)
    kind = BY_KEY.get(key)
    if kind is None:
        return None
    objects: Mapping[Any, Job | Parent] = (
        snapshot.jobs if key == owner_chain.BATCH_JOB else snapshot.parents.get(key, {})
    )
    obj = objects.get(owner.uid)
    return _marked(kind, obj) if obj is not None else None


def is_current(obj: Job | Parent, snapshot: Snapshot) -> bool:
    """Whether the snapshot still has exactly this version of a workload."""
    if isinstance(obj, Job):
        return snapshot.jobs.get(obj.meta.uid) is obj
    return any(parents.get(obj.meta.uid) is obj for parents in snapshot.parents.values())


def numbered_labels(template: PodTemplate, number: int, *, namespace: str) -> dict[str, str]:
    """Return the labels that a template's pods do not share, of the pod of this number."""
    parts = template.parts_of(number)
    if jobset.JOB_INDEX not in parts:
        return parts
    return parts | jobset.job_labels(namespace, f"{template.name}-{parts[jobset.JOB_INDEX]}")


def pod_body(
    template: PodTemplate, number: int, *, owner: Owner, namespace: str, uid: Uid, created: str
) -> dict[str, Any]:
    """Return the pod that a controller makes from a template, except for the random suffix of its name.

    Raises MalformedObjectError if the template is invalid.
    """
    reader = Reader(template.body)
    data = reader.child("metadata")
    parts = numbered_labels(template, number, namespace=namespace)
    index = {jobs.INDEX: parts[jobs.INDEX]} if jobs.INDEX in parts else {}
    labels, annotations = data.pairs("labels"), data.pairs("annotations")
    reader.child("spec")
    spec = dict(reader.raw("spec") or {})
    reader.finish(owner.kind, f"{namespace}/{owner.name}")
    if template.exclusive:
        spec = _exclusive(spec, template.exclusive, parts[jobset.JOB_KEY])
    elif template.has_own_nodes:
        spec = jobset.on_own_nodes(spec, namespace, f"{template.name}-{parts[jobset.JOB_INDEX]}")
    reference = {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": template.pod_name(number),
            "namespace": namespace,
            "uid": uid,
            "creationTimestamp": created,
            "labels": {**labels, **template.labels, **parts},
            "annotations": {**annotations, **index},
            "ownerReferences": [reference],
        },
        "spec": spec,
    }


def _exclusive(spec: Json, topology: str, key: str) -> dict[str, Any]:
    """Return a pod's spec with the affinity that JobSet's webhook adds."""
    affinity = dict(Reader(spec).object("affinity"))
    for name, more in jobset.exclusive_affinity(topology, key).items():
        given = Reader(affinity).child(name)
        terms = [*given.objects(scheduling_rules.REQUIRED), *more[scheduling_rules.REQUIRED]]
        affinity[name] = {**Reader(affinity).object(name), scheduling_rules.REQUIRED: terms}
    return {**spec, "affinity": affinity}
