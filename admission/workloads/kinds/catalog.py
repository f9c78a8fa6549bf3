"""All kinds that own pods or that pods name, one entry each. Batch Jobs are decoded by `kubernetes.jobs` instead."""

from collections.abc import Mapping

from admission.api.kubernetes.pods import Pod
from admission.api.values.names import SUBGROUP
from admission.workloads.kinds import (
    jobset,
    kubeflow,
    labels,
    leaderworkerset,
    pod_labels,
    podgroup,
    ray,
    spark,
    volcano,
)
from admission.workloads.kinds.labels import PodText
from admission.workloads.kinds.registry import WorkloadKind

ALL: tuple[WorkloadKind, ...] = (
    *jobset.KINDS,
    *leaderworkerset.KINDS,
    *kubeflow.KINDS,
    *ray.KINDS,
    *spark.KINDS,
    *volcano.KINDS,
    *podgroup.KINDS,
)

OWNERS: Mapping[str, WorkloadKind] = {kind.key: kind for kind in ALL if not kind.named and not kind.creates_kind}
"""Kinds that own their pods, by key."""

HOLDERS: Mapping[str, WorkloadKind] = {kind.creates_kind: kind for kind in ALL if kind.creates_kind}
"""Kinds that stand for an object of another kind while they are held as a whole, by that other kind's key."""

PLANNED: Mapping[str, WorkloadKind] = {kind.key: kind for kind in HOLDERS.values()}
"""The same by their own key: planned and simulated pods have them as owners, before the object between exists."""

BY_GROUP: Mapping[tuple[str, str], WorkloadKind] = {(kind.group, kind.kind): kind for kind in ALL}
"""All kinds, by API group and kind."""

IMMUTABLE_KEYS: tuple[str, ...] = (
    *(key for grouping in pod_labels.GROUPINGS for key in (grouping.name_key, grouping.size_key)),
    *podgroup.VOLCANO_KEYS,
    podgroup.COSCHEDULING_KEY,
    podgroup.KAI_KEY,
    pod_labels.TASK_GROUP,
    leaderworkerset.SIZE,
    volcano.TASK,
    kubeflow.REPLICA_TYPE,
    spark.ROLE,
)
"""Labels and annotations of pods that determine a gang or its size; once written, they may not change."""

SUBGROUP_KEYS: tuple[str, ...] = (
    SUBGROUP,
    podgroup.KAI_SUBGROUP,
    jobset.REPLICATED_JOB,
    jobset.JOB_INDEX,
    leaderworkerset.SUBGROUP_INDEX,
    ray.REPLICA,
    ray.GROUP,
    kubeflow.REPLICA_TYPE,
    kubeflow.JOB_ROLE,
    volcano.TASK,
    pod_labels.TASK_GROUP,
)
"""Labels and annotations of pods that name a part of a gang."""

TEMPLATES: tuple[str, ...] = (jobset.REPLICATED_JOB, ray.GROUP, kubeflow.REPLICA_TYPE)
"""Labels that name the template of a workload that a pod was made from, for kinds that are held as a whole."""

SUBGROUPS: tuple[PodText, ...] = (
    labels.either(SUBGROUP),
    labels.label(podgroup.KAI_SUBGROUP),
    jobset.job,
    labels.label(leaderworkerset.SUBGROUP_INDEX),
    labels.label(ray.REPLICA),
    labels.label(ray.GROUP),
    labels.label(kubeflow.REPLICA_TYPE),
    labels.label(kubeflow.JOB_ROLE),
    labels.annotation(volcano.TASK),
    labels.annotation(pod_labels.TASK_GROUP),
)
"""Readers of a pod's subgroup; the first non-empty result counts."""

LEADERS: Mapping[str, frozenset[str]] = {
    ray.NODE_TYPE: frozenset({"head"}),
    kubeflow.REPLICA_TYPE: frozenset({"master", "chief", kubeflow.LAUNCHER}),
    kubeflow.JOB_ROLE: frozenset({"master", kubeflow.LAUNCHER}),
    spark.ROLE: frozenset({spark.DRIVER}),
}
"""Labels, and their values, of pods without which the others of their gang can do nothing."""


def is_leader(pod: Pod) -> bool:
    """Whether a pod's labels say that it leads its gang. It affects only the order of the pods in the gang."""
    return any(pod.meta.labels.get(key, "").lower() in values for key, values in LEADERS.items())
