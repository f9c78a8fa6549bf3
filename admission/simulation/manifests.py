"""Manifests as the API server would store them: decoded, with missing names, namespaces, UIDs and times filled in.

For `muster simulate`. The filled-in values are always the same for the same input. Kinds that do not affect decisions
are left out, with a note; an unknown version of a kind is a problem, since leaving it out could make the result wrong.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple

from admission.api.capacity import node_pools, node_shapes
from admission.api.kubernetes import claims, device_taint_rules, devices, jobs, meta, nodes, pods, priority_classes
from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.nodes import Namespace
from admission.api.kubernetes.owners import Parent
from admission.api.muster import claim_policies, gangs, meters, queues
from admission.api.snapshot import Snapshot
from admission.api.storage import claim_templates, csi, persistent_volumes
from admission.api.storage.persistent_volumes import StorageClass, VolumeClaim
from admission.api.storage.storage import Storage
from admission.api.validation.openapi import field_types
from admission.api.values import names
from admission.api.values.decoding import Json, Reader
from admission.conversion import equivalents
from admission.dra.compatibility import SchedulerProfile
from admission.errors import MalformedObjectError, Problem
from admission.simulation import in_memory, validation
from admission.simulation.controllers import replicas, train_jobs
from admission.simulation.controllers.replicas import Replicated
from admission.workloads import limit_ranges, runtime_classes, template_labels
from admission.workloads.gang_key import LARGEST_SIZE
from admission.workloads.kinds import catalog, jobset
from admission.workloads.kinds.registry import WorkloadKind

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
"""The present time, if no object has a creation time."""


class _Kind(NamedTuple):
    """How objects of one kind are read. versions: those that the reader can decode."""

    versions: frozenset[str]
    read: Callable[[Json], Any]
    namespaced: bool = False


_CORE, _OWN = frozenset({"v1"}), frozenset({names.VERSION})

_KINDS: Mapping[tuple[str, str], _Kind] = {
    ("", "Node"): _Kind(_CORE, nodes.decode),
    ("", "Namespace"): _Kind(_CORE, nodes.decode_namespace),
    ("", "Pod"): _Kind(_CORE, pods.decode, namespaced=True),
    ("batch", "Job"): _Kind(_CORE, jobs.decode, namespaced=True),
    ("scheduling.k8s.io", "PriorityClass"): _Kind(_CORE, priority_classes.decode),
    ("node.k8s.io", "RuntimeClass"): _Kind(_CORE, runtime_classes.decode),
    ("", "LimitRange"): _Kind(_CORE, limit_ranges.decode, namespaced=True),
    ("", "PersistentVolume"): _Kind(_CORE, persistent_volumes.decode_volume),
    ("", "PersistentVolumeClaim"): _Kind(_CORE, persistent_volumes.decode_claim, namespaced=True),
    ("storage.k8s.io", "StorageClass"): _Kind(_CORE, persistent_volumes.decode_class),
    ("storage.k8s.io", "CSINode"): _Kind(_CORE, csi.decode_csi_node),
    ("storage.k8s.io", "CSIDriver"): _Kind(_CORE, csi.decode_csi_driver),
    ("storage.k8s.io", "CSIStorageCapacity"): _Kind(_CORE, csi.decode_capacity, namespaced=True),
    ("storage.k8s.io", "VolumeAttachment"): _Kind(_CORE, csi.decode_attachment),
    ("resource.k8s.io", "ResourceSlice"): _Kind(_CORE, devices.decode_slice),
    ("resource.k8s.io", "DeviceClass"): _Kind(_CORE, devices.decode_class),
    ("resource.k8s.io", "ResourceClaim"): _Kind(_CORE, claims.decode, namespaced=True),
    ("resource.k8s.io", "ResourceClaimTemplate"): _Kind(_CORE, claims.decode_template, namespaced=True),
    ("resource.k8s.io", "DeviceTaintRule"): _Kind(_CORE, device_taint_rules.decode),
    **{(group, kind): _Kind(_CORE, replicas.decode, namespaced=True) for kind, group in replicas.GROUPS.items()},
    **{of: _Kind(frozenset(one.versions), one.decode, namespaced=True) for of, one in catalog.BY_GROUP.items()},
    (names.GROUP, "Queue"): _Kind(_OWN, queues.decode),
    (names.GROUP, "Meter"): _Kind(_OWN, meters.decode),
    (names.GROUP, "Gang"): _Kind(_OWN, gangs.decode, namespaced=True),
    (names.GROUP, "ClaimPolicy"): _Kind(_OWN, claim_policies.decode),
    (names.GROUP, "NodeShape"): _Kind(_OWN, node_shapes.decode),
    (node_pools.GROUP, node_pools.KIND): _Kind(_CORE, node_pools.decode),
}

_JOBSET = catalog.BY_GROUP["jobset.x-k8s.io", "JobSet"].key


@dataclass(slots=True)
class Candidate:
    """A pod as JSON, and its source. maker: `Kind namespace/name` of the object that it was made from, if any.

    exists: whether the input has its UID; then it exists already and has passed the webhooks.
    """

    body: dict[str, Any]
    index: int
    maker: str = ""
    exists: bool = False


@dataclass(slots=True, kw_only=True)
class Store:
    """The contents of the input: values by kind and key, with their places in it, and its pods as JSON.

    bodies: the JSON of workloads, other than Jobs, some of whose pods can be made here. replicated: those of apps/v1 by
    kind and key, with their places. made: the JobSets of TrainJobs, by the places of these. invented: UIDs that are not
    in the input. notes: objects left out. problems: malformed objects, with their places.
    """

    now: datetime
    namespace: str
    values: dict[tuple[str, str], Any] = field(default_factory=dict)
    places: dict[tuple[str, str], int] = field(default_factory=dict)
    pods: list[Candidate] = field(default_factory=list)
    bodies: dict[tuple[str, str], Json] = field(default_factory=dict)
    replicated: dict[tuple[str, str], tuple[int, Replicated]] = field(default_factory=dict)
    made: dict[int, Json] = field(default_factory=dict)
    invented: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    problems: list[tuple[int, MalformedObjectError]] = field(default_factory=list)

    def of_kind(self, kind: str) -> dict[str, Any]:
        """Return the values of one kind by key, in the order of the input."""
        return {key: value for (name, key), value in self.values.items() if name == kind}

    def keep(self, kind: str, value: Any, index: int) -> None:
        key = (kind, value.meta.key)
        if key in self.values:
            self.notes.append(f"{kind} {value.meta.key} stands more than once; the last one counts")
            self.pods = [pod for pod in self.pods if pod.index != self.places[key]]
        self.values[key], self.places[key] = value, index


def _unheeded(obj: Json, group: str, kind: str) -> str:
    """Return what to say of a queue in the label of an object of a kind whose pod templates are not known."""
    metadata = obj.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, Mapping) else None
    if (group, kind) in template_labels.BY_GROUP or not isinstance(labels, Mapping) or names.QUEUE not in labels:
        return ""
    return (
        f"; label {names.QUEUE} does not reach its pods, unless its controller passes labels on: name the queue in its"
        " pod templates"
    )


def kind_read(obj: Json) -> str:
    """Return the kind of an object; empty for one that is left out, such as another system's of the same name."""
    kind = str(obj["kind"])
    return kind if (str(obj["apiVersion"]).rpartition("/")[0], kind) in _KINDS else ""


def read(
    objects: Sequence[Json],
    *,
    now: datetime | None,
    namespace: str,
    profile: SchedulerProfile,
    made: Mapping[int, Json] = MappingProxyType({}),
) -> Store:
    """Read all objects; each must have an apiVersion and a kind. now: if None, a minute after their latest time.

    profile: the Kubernetes version whose CEL they use. made: the JobSets of TrainJobs as they are stored, if known.
    """
    store = Store(now=now or _default_now(objects), namespace=namespace)
    for index, written in enumerate(objects):
        _read(index, written, store, profile)
    _make_jobsets(objects, store, profile, made)
    _make_volume_claims(store)
    _judge_admin_access(store)
    return store


def _read(index: int, written: Json, store: Store, profile: SchedulerProfile) -> None:
    """Read an object into the store, or note why it is left out. index: its place in the input."""
    obj, unsaid = equivalents.read(written)
    group, _, version = str(obj["apiVersion"]).rpartition("/")
    name = str(obj["kind"])
    kind = _KINDS.get((group, name))
    fields = {one.field for one in unsaid}
    wrong_types = validation.wrong_types(obj, profile)
    problems = (
        *(Problem(one.field, one.message) for one in unsaid),
        *(problem for problem in validation.of_any_kind(obj, profile) if problem.field not in fields),
    )
    if group == equivalents.GROUP and version != "v1" and (kind is not None or name in equivalents.CLASSIC):
        store.problems.append((index, _version_error(obj, frozenset({"v1"}))))
        return
    if kind is None:
        store.notes += _left_out(obj, group, name)
        if problems or wrong_types:
            found = (*wrong_types, *field_types.beside(wrong_types, problems))
            store.problems.append((index, MalformedObjectError(name, meta.name_in(obj), found)))
        return
    workload_kind = catalog.BY_GROUP.get((group, name))
    try:
        if version not in kind.versions:
            raise _version_error(obj, kind.versions)
        body = _completed(obj, index, kind, store)
        value = _decode_valid(name, body, kind, profile, wrong_types=wrong_types, of_any_kind=problems)
        if replicas.GROUPS.get(name) == group:
            store.replicated[name, value.meta.key] = (index, replicas.decode(body))
        store.keep(workload_kind.key if workload_kind else name, value, index)
    except MalformedObjectError as error:
        store.problems.append((index, error))
        return
    if workload_kind is not None and workload_kind.has_templates:
        store.bodies[workload_kind.key, value.meta.key] = body
    if workload_kind is not None and workload_kind.makes_pods and not workload_kind.suspend:
        store.notes.append(f"{name} {meta.name_in(body)} makes no pods here; those that the input shows are simulated")
    if name == "Pod":
        store.pods.append(Candidate(body, index, exists=body["metadata"]["uid"] not in store.invented))


def _left_out(obj: Json, group: str, kind: str) -> Iterator[str]:
    """Yield a note on an object that is not read, unless it tells what pods others have."""
    if group != train_jobs.GROUP or kind not in train_jobs.KINDS:
        unheeded = _unheeded(obj, group, kind)
        yield f"{kind} {meta.name_in(obj)} ({obj['apiVersion']}) is left out: it is not simulated{unheeded}"


def _make_jobsets(objects: Sequence[Json], store: Store, profile: SchedulerProfile, stored: Mapping[int, Json]) -> None:
    """Read the JobSets of the TrainJobs of the input that it does not show. stored: as they are stored, if known."""
    malformed, shown = {index for index, _ in store.problems}, store.of_kind(_JOBSET)
    valid = ((index, obj) for index, obj in enumerate(objects) if index not in malformed)
    for index, body, note in train_jobs.made(valid, store.namespace):
        if body is not None and f"{body['metadata']['namespace']}/{body['metadata'].get('name')}" in shown:
            continue
        if note:
            store.notes.append(note)
        if body is not None:
            store.made[index] = stored.get(index, body)
            _read(index, store.made[index], store, profile)


def _make_volume_claims(store: Store) -> None:
    """Keep the PersistentVolumeClaims of StatefulSets and JobSets that the input does not show."""
    for index, workload in store.replicated.values():
        if 0 <= workload.replicas <= LARGEST_SIZE:
            made = replicas.volume_claims(workload)
            _keep_volume_claims(store, index, (workload.kind, workload.meta, "spec.volumeClaimTemplates"), made)
    for (kind, key), body in store.bodies.items():
        if kind == _JOBSET:
            data = store.values[kind, key].meta
            claims_of_set = islice(jobset.volume_claims(Reader(body), data), LARGEST_SIZE)
            made = (claim_templates.claim(*one, data.namespace) for one in claims_of_set)
            maker = "JobSet", data, "spec.volumeClaimPolicies[].templates"
            _keep_volume_claims(store, store.places[kind, key], maker, made)


def _keep_volume_claims(store: Store, index: int, maker: tuple[str, Meta, str], made: Iterable[Json]) -> None:
    """Keep those claims that the input does not show. maker: its kind, metadata, and the field with the templates."""
    kind = "PersistentVolumeClaim"
    for body in made:
        data = body["metadata"]
        if (kind, f"{data['namespace']}/{data['name']}") not in store.values:
            try:
                value = persistent_volumes.decode_claim(_completed(body, index, _KINDS["", kind], store))
            except MalformedObjectError as error:
                maker_kind, maker_meta, path = maker
                problems = tuple(Problem(f"{path}.{one.field}", one.message) for one in error.problems)
                store.problems.append((index, MalformedObjectError(maker_kind, maker_meta.key, problems)))
                break
            store.keep(kind, value, index)


def _judge_admin_access(store: Store) -> None:
    """Note claims and templates with admin access that their namespace does not allow, as far as it is described."""
    namespaces, silent = store.of_kind("Namespace"), set[str]()
    for kind, path in (("ResourceClaim", "spec"), ("ResourceClaimTemplate", "spec.spec")):
        for key, value in store.of_kind(kind).items():
            name = value.meta.namespace
            problems = validation.admin_access(value.spec, namespaces[name].labels if name in namespaces else {})
            if not problems or value.meta.uid not in store.invented:
                continue
            if name not in namespaces:
                silent.add(name)
                continue
            error = MalformedObjectError(
                kind, key, tuple(Problem(f"{path}.{problem.field}", problem.message) for problem in problems)
            )
            store.problems.append((store.places[kind, key], error))
    store.notes += [
        f"admin access is taken for allowed in namespace {name}, which the input does not describe; the API server"
        f' takes such claims only where it has the label {validation.ADMIN_LABEL}: "true"'
        for name in sorted(silent)
    ]


def _decode_valid(
    name: str,
    body: Json,
    kind: _Kind,
    profile: SchedulerProfile,
    *,
    wrong_types: tuple[Problem, ...],
    of_any_kind: tuple[Problem, ...],
) -> Any:
    """Read an object that the API server would store. Raises MalformedObjectError with all of its problems.

    wrong_types: its values of another type. of_any_kind: the other problems that objects of any kind may have.
    """
    problems = validation.problems(name, body, profile)
    value = None
    try:
        value = kind.read(body)
    except MalformedObjectError as error:
        problems = tuple(dict.fromkeys((*error.problems, *problems)))
    # A problem that the decoder or the kind's rules find in a field replaces a general one, such as an unknown field.
    known = {problem.field for problem in problems}
    problems = (*(problem for problem in of_any_kind if problem.field not in known), *problems)
    # What the API server says of a value that it cannot read replaces both.
    problems = (*wrong_types, *field_types.beside(wrong_types, problems))
    if problems:
        raise MalformedObjectError(name, meta.name_in(body), problems)
    return value


def snapshot(store: Store) -> Snapshot:
    """Return everything but the pods. A namespace that is only mentioned has its name as its only label."""
    mentioned = {key.rpartition("/")[0] for _, key in store.values} - {""}
    return Snapshot(
        nodes={node.name: node for node in store.of_kind("Node").values()},
        namespaces={name: _namespace(name) for name in sorted(mentioned)} | store.of_kind("Namespace"),
        slices=store.of_kind("ResourceSlice"),
        classes=store.of_kind("DeviceClass"),
        taint_rules=store.of_kind("DeviceTaintRule"),
        claims=store.of_kind("ResourceClaim"),
        templates=store.of_kind("ResourceClaimTemplate"),
        jobs={job.meta.uid: job for job in store.of_kind("Job").values()},
        parents={workload_kind.key: _parents(store, workload_kind) for workload_kind in catalog.ALL},
        queues={queue.name: queue for queue in store.of_kind("Queue").values()},
        meters={meter.name: meter for meter in store.of_kind("Meter").values()},
        gangs=store.of_kind("Gang"),
        policies=store.of_kind("ClaimPolicy"),
        shapes=store.of_kind("NodeShape"),
        node_pools=store.of_kind(node_pools.KIND),
        unwatched={} if store.of_kind(node_pools.KIND) else {node_pools.KEY: "the input has none"},
        priorities=store.of_kind("PriorityClass"),
        storage=_storage(store),
    )


def _storage(store: Store) -> Storage:
    """Return the storage. Claims that name no class have the default one, which the API server writes into them."""
    classes: dict[str, StorageClass] = store.of_kind("StorageClass")
    default = next((name for name, one in classes.items() if one.is_default), None)
    found: dict[str, VolumeClaim] = store.of_kind("PersistentVolumeClaim")
    return Storage(
        volumes=store.of_kind("PersistentVolume"),
        claims={key: replace(one, class_name=default) if one.class_name is None else one for key, one in found.items()},
        classes=classes,
        nodes=store.of_kind("CSINode"),
        drivers=store.of_kind("CSIDriver"),
        capacities=store.of_kind("CSIStorageCapacity"),
        attachments=store.of_kind("VolumeAttachment"),
        is_whole=False,
    )


def with_namespace(snapshot: Snapshot, name: str) -> Snapshot:
    """Return a snapshot with a namespace that only an object outside of it mentions."""
    return replace(snapshot, namespaces={**snapshot.namespaces, name: _namespace(name)})


def _parents(store: Store, workload_kind: WorkloadKind) -> dict[str, Parent]:
    found: dict[str, Parent] = store.of_kind(workload_kind.key)
    return found if workload_kind.named else {parent.meta.uid: parent for parent in found.values()}


def _namespace(name: str) -> Namespace:
    return Namespace(meta=Meta(name=name), labels={"kubernetes.io/metadata.name": name})


def _default_now(objects: Iterable[Json]) -> datetime:
    times = [time for obj in objects if (time := _created(obj)) is not None]
    return max(times) + timedelta(minutes=1) if times else BEGINNING


def _created(obj: Json) -> datetime | None:
    data = obj.get("metadata")
    text = data.get("creationTimestamp") if isinstance(data, Mapping) else None
    try:
        time = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return time if time.tzinfo else None


def _version_error(obj: Json, versions: Collection[str]) -> MalformedObjectError:
    group = str(obj["apiVersion"]).rpartition("/")[0]
    readable = " or ".join(f"{group}/{version}".lstrip("/") for version in sorted(versions))
    remedy = ": `muster convert` writes it so, as far as that can say it" if group == equivalents.GROUP else ""
    problem = Problem("apiVersion", f"{obj['apiVersion']} is not read here; {readable} is{remedy}")
    return MalformedObjectError(str(obj["kind"]), meta.name_in(obj), (problem,))


def _completed(obj: Json, index: int, kind: _Kind, store: Store) -> dict[str, Any]:
    """Return the object with the metadata that the API server would have filled in."""
    metadata = obj.get("metadata")
    data = dict(metadata) if isinstance(metadata, Mapping) else {}
    if not data.get("name") and isinstance(data.get("generateName"), str):
        data["name"] = f"{data['generateName']}{index:05}"
    if not data.get("name"):
        raise MalformedObjectError(str(obj["kind"]), meta.name_in(obj), (Problem("metadata.name", "is required"),))
    if not kind.namespaced:
        data.pop("namespace", None)
    elif not data.get("namespace"):
        data["namespace"] = store.namespace
    if not data.get("uid"):
        data["uid"] = in_memory.uid_of(str(obj["kind"]), f"{data.get('namespace', '')}/{data['name']}")
        store.invented.add(data["uid"])
    if not data.get("creationTimestamp"):
        # In the order of the input, and after every object that has a creation time.
        data["creationTimestamp"] = (store.now - timedelta(seconds=30) + timedelta(milliseconds=index)).isoformat()
    if _is_bound(obj):
        data["annotations"] = {persistent_volumes.BIND_COMPLETED: "yes", **Reader(data).pairs("annotations")}
    return {**obj, **_status(obj), "metadata": data}


def _is_bound(obj: Json) -> bool:
    """Return whether a PersistentVolumeClaim states that it is bound to a volume.

    kube-scheduler goes by an annotation of kube-controller-manager, which manifests written by hand have not.
    """
    reader = Reader(obj)
    return (
        obj["kind"] == "PersistentVolumeClaim"
        and bool(reader.child("spec").text("volumeName"))
        and reader.child("status").text("phase") == "Bound"
    )


def _status(obj: Json) -> Json:
    """Return the status of a PersistentVolume of a plain manifest: nobody has claimed it, so it is available.

    The phase is written by kube-controller-manager, and kube-scheduler takes no volume without it.
    """
    spec, status = obj.get("spec"), obj.get("status")
    is_claimed = not isinstance(spec, Mapping) or "claimRef" in spec
    if obj["kind"] != "PersistentVolume" or status or is_claimed:
        return {}
    return {"status": {"phase": "Available"}}
