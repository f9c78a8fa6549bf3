"""Groups that pods name and size by themselves, in the words of other systems: for those who move here from there.

No object stands behind them, so a group is its name in a namespace, under the system's own key: it is never the same as
a `muster.dev/gang`, nor as the group of that name of another system. What gathers an owner's pods is not asked here but
before; these are for pods that nobody else groups.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from admission.api.kubernetes.pods import Pod
from admission.api.values.names import GANG_SIZE
from admission.workloads.kinds import labels
from admission.workloads.kinds.labels import Said

LONGEST_GROUPS = 16_384
"""Characters of task groups that are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """How one system names groups. system: its name. name_key and size_key: where a pod says so, and for people.

    name and size: what a pod says, or nothing; the size as text. count: reads the size; 0 where it is none. is_total:
    whether the size is that of the whole group, and not the least that it starts with.
    """

    system: str
    name_key: str
    size_key: str
    name: Said
    count: Callable[[str], int]
    is_total: bool = False

    def size_text(self, pod: Pod) -> str:
        """Return what a pod says of the size of its group."""
        return pod.meta.annotations.get(self.size_key, "")

    def size(self, pod: Pod) -> int:
        """Return the size that a pod says, or 0."""
        return self.count(self.size_text(pod))


@lru_cache(maxsize=1024)
def task_groups(text: str) -> int:
    """Return how many pods the task groups of YuniKorn have at least, or 0 where they cannot be read."""
    if len(text) > LONGEST_GROUPS:
        return 0
    try:
        groups = json.loads(text)
        counts = [group["minMember"] for group in groups]
    except (ValueError, TypeError, KeyError, RecursionError):
        return 0
    whole = all(
        isinstance(count, int) and not isinstance(count, bool) and 0 <= count < 10**labels.MOST_DIGITS
        for count in counts
    )
    return sum(counts) if whole else 0


APPLICATION = "yunikorn.apache.org/app-id"
TASK_GROUP = "yunikorn.apache.org/task-group-name"


def _application(pod: Pod) -> str:
    """Return the application of a pod that is in one of its task groups; without these it is no gang in YuniKorn."""
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
"""The annotations that are whole numbers."""


def grouping_of(pod: Pod) -> tuple[Grouping, str] | None:
    """Return the system that groups a pod, and the name of the group. One without a size is none in these systems."""
    for grouping in GROUPINGS:
        name = grouping.name(pod)
        if name and (grouping.size_text(pod) or labels.setting(pod, GANG_SIZE)):
            return grouping, name
    return None
