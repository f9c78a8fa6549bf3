"""All kinds that pods belong to, or name: one entry for each. Batch Jobs are read as a whole, by `kubernetes.jobs`."""

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
from admission.workloads.kinds.labels import Said
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

OWNERS: Mapping[str, WorkloadKind] = {family.key: family for family in ALL if not family.named and not family.by_way_of}
"""Those that own what belongs to them, by kind."""

HOLDERS: Mapping[str, WorkloadKind] = {family.by_way_of: family for family in ALL if family.by_way_of}
"""Those that speak for objects of another kind while they are held as a whole, by that kind."""

PLANNED: Mapping[str, WorkloadKind] = {family.key: family for family in HOLDERS.values()}
"""The same by their own kind: pods that are planned or simulated before what stands between exists belong to them."""

BY_GROUP: Mapping[tuple[str, str], WorkloadKind] = {(family.group, family.kind): family for family in ALL}
"""All of them, by API group and kind."""

FIXED: tuple[str, ...] = (
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
"""Labels and annotations of pods by which a gang or its size is found; whoever has said one keeps to it."""

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
"""Labels that say which of the templates of its workload a pod was made of, of kinds that are held as a whole."""

SUBGROUPS: tuple[Said, ...] = (
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
"""Which part of its gang a pod is in; the first that says something is heard."""

LEADERS: Mapping[str, frozenset[str]] = {
    ray.NODE_TYPE: frozenset({"head"}),
    kubeflow.REPLICA_TYPE: frozenset({"master", "chief", kubeflow.LAUNCHER}),
    kubeflow.JOB_ROLE: frozenset({"master", kubeflow.LAUNCHER}),
    spark.ROLE: frozenset({spark.DRIVER}),
}
"""Labels of pods without which the others of their gang can do nothing, and their values."""


def leads(pod: Pod) -> bool:
    """Whether a pod says that it leads its gang. It matters only for who of the gang is first."""
    return any(pod.meta.labels.get(key, "").lower() in values for key, values in LEADERS.items())
