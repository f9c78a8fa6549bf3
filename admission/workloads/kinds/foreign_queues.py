"""How other systems name a pod's queue: for those who move here from there, as `pod_labels` is for their gangs.

Such a name means nothing by itself. Queues that want to be found by it say so in `spec.aliases`, and only where some
queue that is open to the pod's namespace does is any of this read.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from admission.api.values import names


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """One way to name a queue. beside: keys one of which has to be there too, where a key could be anybody's."""

    system: str
    key: str
    label: bool = True
    annotation: bool = False
    beside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a pod says: `label kueue.x-k8s.io/queue-name`, and the name there."""

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
"""The first that a pod says is heard. `queue` alone is no word of YuniKorn: many label pods so."""

OF_JOBS = ("kueue.x-k8s.io/queue-name", "kai.scheduler/queue")
"""Labels that stand on a Job and not on its pods."""


def said(labels: Mapping[str, str], annotations: Mapping[str, str]) -> Said | None:
    """Return the queue that a pod names in the words of another system."""
    for naming in NAMINGS:
        name = labels.get(naming.key, "") if naming.label else ""
        where = "label"
        if not name and naming.annotation:
            name, where = annotations.get(naming.key, ""), "annotation"
        if name and (not naming.beside or any(key in labels or key in annotations for key in naming.beside)):
            return Said(where=f"{where} {naming.key}", name=name)
    return None


def of_job(labels: Mapping[str, str]) -> str:
    """Return the queue that a Job names for its pods; nothing where it names none."""
    return next((labels[key] for key in OF_JOBS if labels.get(key)), "")
