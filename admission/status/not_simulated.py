"""What kube-scheduler will ask of a gang's pods that Muster does not judge, by name."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from admission.api.kubernetes.owners import Parent
from admission.api.kubernetes.pods import DEFAULT_SCHEDULER, Pod
from admission.api.storage.storage import Storage
from admission.api.values import names
from admission.filters import gang_rules, pod_claims, volume_binding
from admission.workloads.kinds import jobset, leaderworkerset

FILTERS = "VolumeBinding, VolumeZone, VolumeRestrictions and NodeVolumeLimits"
MADE = "VolumeBinding: several pods share it, and nobody knows yet which nodes can use the volume that is made for it"
CHOICE = "VolumeBinding: kube-scheduler may give it any of several volumes, of equal size or kept for it"

EXCLUSIVE_KINDS = (jobset, leaderworkerset)

ADDED_BY_CLASS = "its overhead and the nodes that it selects, which the API server adds to the pod"
NO_GROUPS: Mapping[Any, Parent] = {}

MOST = 8
"""The most volumes that are named before the rest are counted."""


def of_pods(
    pods: Iterable[Pod],
    storage: Storage | None = None,
    schedulers: Collection[str] = (DEFAULT_SCHEDULER,),
    pod_groups: Mapping[Any, Parent] = NO_GROUPS,
) -> tuple[str, ...]:
    """Return a sentence for each thing that is not judged; none where every rule of the pods is.

    storage: None where it is not known, so that no volume is judged. schedulers: those that plans predict.
    pod_groups: of Kubernetes, by namespace and name.
    """
    pods = tuple(pods)
    # Bound pods do not count without storage: it is not read for them, as kube-scheduler filters no nodes for them.
    waiting = [pod for pod in pods if pod.rules.volumes and not pod.finished and not (storage is None and pod.node)]
    users = Counter(key for pod in waiting for _, key in pod_claims.claims_of(pod))
    first: dict[tuple[str, str], str] = {}
    for pod in waiting:
        for one in _unjudged(pod, storage, users):
            first.setdefault(one, pod.meta.name)
    found = [f"{volume} of pod {pod} ({filters})" for (volume, filters), pod in first.items()]
    rest = len(found) - MOST
    more = (f"{rest} more volumes ({FILTERS})",) if rest > 0 else ()
    beside_volumes = (
        *_of_schedulers(pods, schedulers),
        *_of_groups(pods, pod_groups),
        *_of_labels(pods),
        *_of_gates(pods),
        *_of_runtime_classes(pods),
    )
    return (*beside_volumes, *found[:MOST], *more)


def of_followers(pods: Iterable[Pod], workload: Parent) -> tuple[str, ...]:
    """Return that the other pods of exclusive Jobs or groups are not planned with the first ones, while one waits."""
    waiting = [pod for pod in pods if not pod.node and not pod.finished]
    for what, leads_others in (("Job", jobset.leads_others), ("group", leaderworkerset.leads_others)):
        leader = next((pod for pod in waiting if leads_others(pod, workload)), None)
        if leader is not None:
            name = leader.meta.name
            return (f"the other pods of the exclusive {what} of pod {name}: whether they fit the domain of this one",)
    return ()


def of_volumes_of_followers(pods: Iterable[Pod], workload: Parent, storage: Storage | None) -> tuple[str, ...]:
    """Return the ephemeral volumes of pods that are planned with the first one of their part, while that one waits.

    Those that are made at once, as its own is: nobody knows yet where they will be.
    """
    if storage is None:
        return ()
    first: dict[str, str] = {}
    for pod in pods:
        if not pod.node and not pod.finished and any(kind.leads_others(pod, workload) for kind in EXCLUSIVE_KINDS):
            for volume, key in pod_claims.claims_of(pod):
                found = storage.claims.get(key) if volume.is_ephemeral else None
                if found is not None and (found.is_bound or found.volume):
                    first.setdefault(volume.text, pod.meta.name)
    return tuple(f"{volume} of the pods that follow pod {pod} ({FILTERS})" for volume, pod in first.items())


def _of_groups(pods: Iterable[Pod], pod_groups: Mapping[Any, Parent]) -> Iterator[str]:
    """Yield the PodGroups that keep pods which wait in one domain of nodes."""
    keys = {f"{pod.meta.namespace}/{pod.group}" for pod in pods if pod.group and not pod.node and not pod.finished}
    for key in sorted(keys):
        group = pod_groups.get(key)
        if group is not None and group.constrained:
            yield f"spec.schedulingConstraints of PodGroup {group.meta.name}: say the topology to Muster as well"


def _of_runtime_classes(pods: Iterable[Pod]) -> Iterator[str]:
    """Yield the RuntimeClasses of pods that do not exist yet, with one of the pods."""
    expected = ((pod.runtime_class, pod) for pod in pods if pod.runtime_class and names.is_expected(pod.meta.uid))
    for name, pod_name in _with_first_pod(expected):
        yield f"RuntimeClass {name} of pod {pod_name}: {ADDED_BY_CLASS}"


def _of_labels(pods: Iterable[Pod]) -> Iterator[str]:
    """Yield the labels by whose values rules select pods of the gang, and whose values are not known yet."""
    unknown: dict[str, str] = {}
    for pod in pods:
        for key, value in pod.meta.labels.items():
            if value.startswith(names.UNKNOWN_LABEL):
                unknown.setdefault(key, pod.meta.name)
    if not unknown:
        return
    for one in sorted(gang_rules.requirements(pods), key=lambda one: one.key):
        if one.key in unknown and any(not value.startswith(names.UNKNOWN_LABEL) for value in one.values):
            pod_name = unknown.pop(one.key)
            yield f"label {one.key} of pod {pod_name}, by which pods are selected: it is known once the pod exists"


def _of_schedulers(pods: Iterable[Pod], schedulers: Collection[str]) -> Iterator[str]:
    """Yield the schedulers that are not predicted, with one of their pods."""
    others = (
        (pod.scheduler, pod) for pod in pods if pod.scheduler not in schedulers and not pod.node and not pod.finished
    )
    for name, pod_name in _with_first_pod(others):
        yield f"what scheduler {name} asks of pod {pod_name}, beyond kube-scheduler's defaults"


def _of_gates(pods: Iterable[Pod]) -> Iterator[str]:
    """Yield the scheduling gates of others that pods will have once they exist, with one of the pods."""
    expected = ((gate, pod) for pod in pods if names.is_expected(pod.meta.uid) for gate in pod.other_gates)
    for gate, pod_name in _with_first_pod(expected):
        yield f"scheduling gate {gate} of pod {pod_name}, which Muster does not open"


def _unjudged(pod: Pod, storage: Storage | None, users: Counter[str]) -> Iterator[tuple[str, str]]:
    """Yield the volumes of a pod that are not judged, each with the filters. users: of each claim, by its key."""
    if storage is None:
        yield from ((volume.text, FILTERS) for volume in pod.rules.volumes)
        return
    claims = pod_claims.resolve(pod, storage)
    yield from ((volume, FILTERS) for volume in claims.unjudged)
    for claim in claims.waiting:
        name = f"persistent volume claim {claim.meta.name}"
        if users[claim.meta.key] > 1 and volume_binding.may_make(claim, storage):
            yield name, MADE
        if volume_binding.undecided(claim, storage):
            yield name, CHOICE


def _with_first_pod(found: Iterable[tuple[str, Pod]]) -> list[tuple[str, str]]:
    """Return each name with the name of the first pod that comes with it, in the order of names."""
    first: dict[str, str] = {}
    for name, pod in found:
        first.setdefault(name, pod.meta.name)
    return sorted(first.items())
