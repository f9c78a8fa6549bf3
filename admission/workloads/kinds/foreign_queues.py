"""The labels and annotations in which other systems name a pod's queue, for users who migrate from them.

Such a name has no meaning by itself. A queue lists the names that it accepts in `spec.aliases`; pods are read only if
such a queue is open to their namespace.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from admission.api.values import names


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """One key that names a queue. beside: other keys, one of which must be present too if the key is not specific."""

    system: str
    key: str
    label: bool = True
    annotation: bool = False
    beside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A queue's name in a pod. where: the key, such as `label kueue.x-k8s.io/queue-name`."""

    where: str
    name: str


YUNIKORN = "yunikorn.apache.org/queue"
APPLICATIONS = ("applicationId", "yunikorn.apache.org/app-id")

NAMINGS = (
    Naming(system="Kueue", key="kueue.x-k8s.io/queue-name"),
    Naming(system="Volcano", key="scheduling.volcano.sh/queue-name", label=False, annotation=True),
    Naming(system="Volcano", key="volcano.sh/queue-name"),
    Naming(system="YuniKorn", key=YUNIKORN, annotation=True),
    Naming(system="YuniKorn", key="queue", beside=APPLICATIONS),
    Naming(system="KAI", key="kai.scheduler/queue"),
    Naming(system="a Job's own label", key=names.QUEUE_ALIAS, label=False, annotation=True),
)
"""The first one that a pod has counts. `queue` alone does not mean YuniKorn: it is a common label."""

OF_JOBS = ("kueue.x-k8s.io/queue-name", "kai.scheduler/queue")
"""Labels that these systems put on a Job and not on its pods."""


def said(labels: Mapping[str, str], annotations: Mapping[str, str]) -> Said | None:
    """Return the queue that a pod names in another system's key."""
    for naming in NAMINGS:
        name = labels.get(naming.key, "") if naming.label else ""
        where = "label"
        if not name and naming.annotation:
            name, where = annotations.get(naming.key, ""), "annotation"
        if name and (not naming.beside or any(key in labels or key in annotations for key in naming.beside)):
            return Said(where=f"{where} {naming.key}", name=name)
    return None


def of_job(labels: Mapping[str, str]) -> str:
    """Return the queue that a Job's labels name for its pods; "" for none."""
    return next((labels[key] for key in OF_JOBS if labels.get(key)), "")
