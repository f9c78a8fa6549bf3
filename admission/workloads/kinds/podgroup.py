"""PodGroups: objects that pods name, and that state how many of the pods start together.

A pod names Kubernetes' own PodGroup (scheduling.k8s.io) in `spec.schedulingGroup`, which never changes. It names the
others in a label or an annotation; they are read for users who migrate from other schedulers. The PodGroup's UID
identifies the gang: a PodGroup that is deleted and created again is another gang.
"""

from admission.api.kubernetes.meta import Meta
from admission.api.values.decoding import Reader
from admission.workloads.kinds import labels
from admission.workloads.kinds.labels import PodText
from admission.workloads.kinds.registry import Shape, WorkloadKind, one_wave


def kubernetes(reader: Reader, _meta: Meta) -> Shape:
    """Return the size of Kubernetes' PodGroup; with the policy `basic` its pods start one by one."""
    policy = reader.child("spec").child("schedulingPolicy")
    return one_wave(policy.child("gang").integer("minCount", 1) if "gang" in policy else 1)


def least_members(reader: Reader, _meta: Meta) -> Shape:
    """Return the size of another system's PodGroup, which has `minMember`."""
    return one_wave(reader.child("spec").integer("minMember", 1))


GANGS = WorkloadKind(
    kind="PodGroup",
    group="scheduling.k8s.io",
    versions=("v1beta1", "v1alpha3", "v1alpha2"),
    plural="podgroups",
    read=kubernetes,
    fields="spec.schedulingPolicy.gang.minCount",
    named=True,
    has_claims=True,
)
"""v1beta1 since Kubernetes 1.37, v1alpha2 in 1.36, each only if enabled."""


def _foreign(group: str, version: str) -> WorkloadKind:
    return WorkloadKind(
        kind="PodGroup",
        group=group,
        versions=(version,),
        plural="podgroups",
        read=least_members,
        fields="spec.minMember",
        named=True,
    )


VOLCANO = _foreign("scheduling.volcano.sh", "v1beta1")
COSCHEDULING = _foreign("scheduling.x-k8s.io", "v1alpha1")
KAI = _foreign("scheduling.run.ai", "v2alpha2")

KINDS = (GANGS, VOLCANO, COSCHEDULING, KAI)


VOLCANO_KEYS = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
COSCHEDULING_KEY = "scheduling.x-k8s.io/pod-group"
KAI_KEY = "pod-group-name"
KAI_SUBGROUP = "kai.scheduler/subgroup-name"

NAMED: tuple[tuple[WorkloadKind, PodText], ...] = (
    (VOLCANO, labels.annotation(*VOLCANO_KEYS)),
    (COSCHEDULING, labels.label(COSCHEDULING_KEY)),
    (KAI, labels.annotation(KAI_KEY)),
)
"""The PodGroup kinds of other systems, with the reader of a pod's reference."""
