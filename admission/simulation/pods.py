"""The pods that controllers would make for the input's Jobs, for kinds that can be held as a whole, and of apps/v1.

For `muster simulate`. An object that owns pods in the input, or owns an object that makes them, makes no more. If a
kind makes some pods only when others run, only the first ones are made.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from admission.api.kubernetes import meta, pods
from admission.api.kubernetes.jobs import Job, PodTemplate
from admission.api.kubernetes.meta import Meta, Owner
from admission.api.kubernetes.nodes import Node
from admission.api.kubernetes.owners import Parent
from admission.api.kubernetes.pods import Pod
from admission.api.snapshot import Snapshot
from admission.api.values.decoding import Json, Reader
from admission.api.values.names import Held
from admission.errors import MalformedObjectError, Problem
from admission.simulation import in_memory
from admission.simulation.controllers import replicas
from admission.simulation.controllers.replicas import Replicated
from admission.simulation.manifests import Candidate, Store
from admission.workloads import limit_ranges, runtime_classes, suspendable
from admission.workloads.gang_key import LARGEST_SIZE
from admission.workloads.kinds import catalog, jobset, registry
from admission.workloads.limit_ranges import LimitRange
from admission.workloads.runtime_classes import RuntimeClass
from admission.workloads.suspendable import Holdable


def candidates(store: Store, snapshot: Snapshot, kinds: Iterable[Holdable] = suspendable.ALL) -> Iterator[Candidate]:
    """Yield the pods that would be made. A failure is recorded in the store as a problem of the object."""
    owners_of_pods = {uid for pod in store.pods for uid in _owners(pod.body)}
    for job in snapshot.jobs.values():
        if not job.finished and job.meta.deleted is None and job.meta.uid not in owners_of_pods:
            yield from _from_job(job, store)
    parents = [(kind, parent) for kind in kinds for parent in snapshot.parents.get(kind.key, {}).values()]
    children = [job.meta for job in snapshot.jobs.values()]
    children += [one.meta for found in snapshot.parents.values() for one in found.values()]
    with_children = owners_of_pods.union(owner.uid for one in children for owner in one.owners)
    for kind, parent in parents:
        if parent.meta.deleted is None and parent.meta.uid not in with_children:
            yield from _from_parent(kind, parent, store)
    with_children |= {owner.uid for _, one in store.replicated.values() for owner in one.meta.owners}
    deployments = {replicas.deployment_of(pod.body) for pod in store.pods}
    for (name, key), (index, workload) in store.replicated.items():
        is_shown = workload.meta.uid in with_children or (name == replicas.DEPLOYMENT and key in deployments)
        if workload.meta.deleted is None and not is_shown:
            yield from _from_replicated(workload, index, store, snapshot.nodes.values())


def _from_replicated(workload: Replicated, index: int, store: Store, nodes: Iterable[Node]) -> Iterator[Candidate]:
    maker = _Maker(
        kind=workload.kind,
        owner=workload.owner,
        meta=workload.meta,
        index=index,
        sizes="spec.replicas",
        store=store,
        are_one=False,
    )
    yield from maker.pods([] if maker.refuses(workload.replicas) else [*replicas.templates(workload, nodes)])


def _from_job(job: Job, store: Store) -> Iterator[Candidate]:
    if _is_stopped("Job", job.meta, store, suspended=job.suspended):
        return
    maker = _Maker(
        kind=suspendable.JOB.kind,
        owner=suspendable.JOB.owner(job.meta),
        meta=job.meta,
        index=store.places["Job", job.meta.key],
        sizes="spec.parallelism",
        store=store,
    )
    yield from maker.pods(suspendable.job_templates(job))


def _from_parent(kind: Holdable, parent: Parent, store: Store) -> Iterator[Candidate]:
    body = store.bodies[kind.key, parent.meta.key]
    suspended = bool(kind.suspend) and registry.is_suspended(Reader(body), kind.suspend)
    if parent.finished or _is_stopped(kind.kind, parent.meta, store, suspended=suspended):
        return
    if any(wave and not role.endswith(jobset.FOLLOWERS) for role, wave in parent.roles.items()):
        store.notes.append(
            f"{kind.kind} {parent.meta.key} makes some pods only when others run; only the first ones are simulated,"
            " and of the others whether they fit an empty cluster, beside those that run then"
        )
    maker = _Maker(
        kind=kind.kind,
        owner=kind.owner(parent.meta),
        meta=parent.meta,
        index=store.places[kind.key, parent.meta.key],
        sizes=catalog.BY_GROUP[kind.group, kind.kind].fields,
        store=store,
    )
    yield from maker.pods([one for one in kind.templates(body) if one.pods > 0])


def as_stored(found: Iterable[Candidate], store: Store) -> Iterator[Candidate]:
    """Yield the pods with what the API server adds to new ones by LimitRanges and RuntimeClasses of the input.

    A pod that it would refuse is recorded in the store as a problem of its object, once for all pods of it.
    """
    classes: dict[str, RuntimeClass] = store.of_kind("RuntimeClass")
    ranges: defaultdict[str, list[LimitRange]] = defaultdict(list)
    for one in store.of_kind("LimitRange").values():
        ranges[one.meta.namespace].append(one)
    refused: set[int] = set()
    noted: dict[str, None] = {}
    for pod in found:
        spec: Json | Problem = pod.body["spec"]
        if not pod.exists:
            maker = f"{pod.maker}: its pods have" if pod.maker else f"Pod {meta.name_in(pod.body)} has"
            namespace = pod.body["metadata"].get("namespace", "")
            completed, added = limit_ranges.completed(pod.body["spec"], ranges.get(namespace, ()))
            noted |= {f"{maker} requests of {', '.join(sorted(added))} by LimitRanges": None} if added else {}
            wanted = completed.get("runtimeClassName") or ""
            own = classes.get(wanted)
            spec = runtime_classes.completed(completed, own) if own is not None or not wanted else completed
            noted |= {f"{maker} {own.text} by RuntimeClass {own.meta.name}": None} if own and own.text else {}
        if isinstance(spec, Problem):
            if pod.index not in refused:
                refused.add(pod.index)
                store.problems.append((pod.index, _refusal(pod, spec)))
            continue
        pod.body = {**pod.body, "spec": spec}
        yield pod
    store.notes += noted


def _refusal(pod: Candidate, problem: Problem) -> MalformedObjectError:
    """Return the problem of a pod that the API server refuses, as one of what makes it."""
    kind, _, key = (pod.maker or f"Pod {meta.name_in(pod.body)}").partition(" ")
    message = f"{problem.message}; the API server refuses the pod"
    if pod.maker:
        return MalformedObjectError(kind, key, (Problem("spec", f"spec.{problem.field} of its pods {message}"),))
    return MalformedObjectError(kind, key, (Problem(f"spec.{problem.field}", message),))


def runtime_class_notes(found: Iterable[Pod], store: Store) -> Iterator[str]:
    """Yield a note for each RuntimeClass that the input lacks, of pods that no API server has completed."""
    first: dict[str, str] = {}
    classes = store.of_kind("RuntimeClass")
    for pod in found:
        if pod.runtime_class and pod.runtime_class not in classes and pod.meta.uid in store.invented:
            first.setdefault(pod.runtime_class, pod.meta.key)
    for name, key in sorted(first.items()):
        yield (
            f"pod {key} has RuntimeClass {name}, which the input does not have: its overhead and the nodes that it"
            " selects, which the API server adds to the pod, are not simulated"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterWave:
    """The part of a workload whose pods its controller makes when others run. roles: of these pods.

    uid and index: of the workload, and its place in the input. running_roles: those that run on beside it, if they are
    looked at with it. body: the workload with these roles alone, whose pods are then the first.
    """

    uid: str
    index: int
    roles: tuple[str, ...]
    running_roles: tuple[str, ...]
    body: Json


def later_waves(store: Store, snapshot: Snapshot) -> Iterator[LaterWave]:
    """Yield the later waves of the workloads of the input that make pods, as far as they can be distinguished.

    Each alone, and after that with the roles beside which it runs, if there are any.
    """
    for kind in suspendable.WITH_TEMPLATES.values():
        for parent in snapshot.parents.get(kind.key, {}).values():
            body = store.bodies.get((kind.key, parent.meta.key))
            if body is None or parent.finished or parent.meta.deleted is not None:
                continue
            index = store.places[kind.key, parent.meta.key]
            for roles, running_roles, alone in catalog.BY_GROUP[kind.group, kind.kind].waves_alone(body, parent.roles):
                yield LaterWave(uid=parent.meta.uid, index=index, roles=roles, running_roles=running_roles, body=alone)


def _is_stopped(kind: str, meta: Meta, store: Store, *, suspended: bool) -> bool:
    """Return whether an object makes no pods because another client than Muster has suspended it, with a note."""
    if not suspended or suspendable.held(meta) is Held.WAITING:
        return False
    store.notes.append(f"{kind} {meta.key} is suspended and makes no pods")
    return True


def _owners(body: Json) -> Iterator[str]:
    for owner in body["metadata"].get("ownerReferences") or ():
        if isinstance(owner, Mapping) and owner.get("uid"):
            yield str(owner["uid"])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Maker:
    """The controller of one object. owner: of the pods. index: the object's place in the input.

    sizes: the field that states its size. are_one: whether the pods are one gang.
    """

    kind: str
    owner: Owner
    meta: Meta
    index: int
    sizes: str
    store: Store
    are_one: bool = True

    def pods(self, templates: Sequence[PodTemplate]) -> Iterator[Candidate]:
        """Yield the pods of the templates, or none if a template is invalid."""
        if self.refuses(sum(template.pods for template in templates)):
            return
        found: list[Json] = []
        for template in templates:
            try:
                bodies = [self._pod(template, number, len(found) + number) for number in range(template.pods)]
                for body in bodies[:1]:
                    pods.decode(body)
            except MalformedObjectError as error:
                path = _path(template)
                self._refuse(Problem(f"{path}.{problem.field}", problem.message) for problem in error.problems)
                return
            found += bodies
        self.store.invented.update(body["metadata"]["uid"] for body in found)
        maker = f"{self.kind} {self.meta.key}"
        yield from (Candidate({**body}, self.index, maker) for body in found)

    def refuses(self, count: int) -> bool:
        """Return whether so many pods are too many, or fewer than none, which is a problem of the object."""
        if 0 <= count <= LARGEST_SIZE:
            return False
        of = "a gang has" if self.are_one else "simulated are"
        self._refuse([Problem(self.sizes, f"makes {count} pods at a time; {of} 0 to {LARGEST_SIZE}")])
        return True

    def _pod(self, template: PodTemplate, number: int, place: int) -> Json:
        """Return a template's pod of this number. place: its number among all pods of the object."""
        return suspendable.pod_body(
            template,
            number,
            owner=self.owner,
            namespace=self.meta.namespace,
            uid=in_memory.uid_of("Pod", f"{self.meta.uid}/{place}"),
            created=(self.meta.created + timedelta(microseconds=place)).isoformat(),
        )

    def _refuse(self, problems: Iterable[Problem]) -> None:
        error = MalformedObjectError(self.kind, self.meta.key, tuple(problems))
        self.store.problems.append((self.index, error))


def _path(template: PodTemplate) -> str:
    """Return a template's field path in its object."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in template.path).removeprefix(".")
