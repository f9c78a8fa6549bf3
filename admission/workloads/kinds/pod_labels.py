"""Groups whose name and size are in the pods' own labels, as other systems write them, for users who migrate.

There is no object of the group, so it is identified by its name in a namespace, under the system's own key: it is never
the same as a `muster.dev/gang`, nor as another system's group of that name. `gang_key` looks at owners first; these
groups are only for pods that no owner groups.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from admission.api.kubernetes.pods import Pod
from admission.api.values.names import GANG_SIZE
from admission.workloads.kinds import labels
from admission.workloads.kinds.labels import PodText

LONGEST_GROUPS = 16_384
"""The most characters of task groups that are parsed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """One system's way to name groups. name_key and size_key: the labels or annotations, for messages.

    name: reads the group's name. count: parses the size; 0 if it is invalid. is_total: whether the size is that of the
    whole group, and not the least number to start.
    """

    system: str
    name_key: str
    size_key: str
    name: PodText
    count: Callable[[str], int]
    is_total: bool = False

    def size_text(self, pod: Pod) -> str:
        """Return the text of a pod's group size."""
        return pod.meta.annotations.get(self.size_key, "")

    def size(self, pod: Pod) -> int:
        """Return the group size in a pod's annotation, or 0."""
        return self.count(self.size_text(pod))


def task_groups(text: str) -> int:
    """Return the least number of pods of YuniKorn's task groups, or 0 if they cannot be read."""
    return _least_pods(text) if len(text) <= LONGEST_GROUPS else 0


@lru_cache(maxsize=1024)
def _least_pods(text: str) -> int:
    """Return the same for a text that is short enough to be kept."""
    try:
        groups = json.loads(text)
        counts = [group["minMember"] for group in groups]
    except (ValueError, TypeError, KeyError, RecursionError):
        return 0
    valid = all(
        isinstance(count, int) and not isinstance(count, bool) and 0 <= count < 10**labels.MOST_DIGITS
        for count in counts
    )
    return sum(counts) if valid else 0


APPLICATION = "yunikorn.apache.org/app-id"
TASK_GROUP = "yunikorn.apache.org/task-group-name"


def _application(pod: Pod) -> str:
    """Return a pod's application if the pod is in one of its task groups; without these YuniKorn forms no gang."""
    if TASK_GROUP not in pod.meta.annotations:
        return ""
    return labels.setting(pod, APPLICATION) or pod.meta.labels.get("applicationId", "")


GROUPINGS = (
    Grouping(
        system="Kueue",
        name_key="kueue.x-k8s.io/pod-group-name",
        size_key="kueue.x-k8s.io/pod-group-total-count",
        name=labels.either("kueue.x-k8s.io/pod-group-name"),
        count=labels.number,
        is_total=True,
    ),
    Grouping(
        system="YuniKorn",
        name_key=APPLICATION,
        size_key="yunikorn.apache.org/task-groups",
        name=_application,
        count=task_groups,
    ),
    Grouping(
        system="Koordinator",
        name_key="gang.scheduling.koordinator.sh/name",
        size_key="gang.scheduling.koordinator.sh/min-available",
        name=labels.annotation("gang.scheduling.koordinator.sh/name"),
        count=labels.number,
    ),
    Grouping(
        system="Armada",
        name_key="armadaproject.io/gangId",
        size_key="armadaproject.io/gangCardinality",
        name=labels.annotation("armadaproject.io/gangId"),
        count=labels.number,
        is_total=True,
    ),
)


NUMBERS = tuple(grouping.size_key for grouping in GROUPINGS if grouping.count is labels.number)
"""The annotations whose values are whole numbers."""


def grouping_of(pod: Pod) -> tuple[Grouping, str] | None:
    """Return the system that groups a pod, and the group's name. These systems form no group without a size."""
    for grouping in GROUPINGS:
        name = grouping.name(pod)
        if name and (grouping.size_text(pod) or labels.setting(pod, GANG_SIZE)):
            return grouping, name
    return None
