"""The labels and annotations in which other systems name a pod's queue and priority, for users who migrate from them.

Such a name has no meaning by itself. A queue lists the names that it accepts in `spec.aliases`; pods are read only if
such a queue is open to their namespace.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from admission.api.values import names


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueKey:
    """One key that names a queue. required_keys: if the key is not specific, one of them must be present too."""

    system: str
    key: str
    label: bool = True
    annotation: bool = False
    required_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedClass:
    """A priority class's name in a label. key: of the label."""

    key: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedQueue:
    """A queue's name in a pod. where: the key, such as `label kueue.x-k8s.io/queue-name`."""

    where: str
    name: str


OWN_LABEL = f"label {names.QUEUE}"
"""`NamedQueue.where` of Muster's own label; any other key names an alias."""

YUNIKORN = "yunikorn.apache.org/queue"
APPLICATIONS = ("applicationId", "yunikorn.apache.org/app-id")

QUEUE_KEYS = (
    QueueKey(system="Kueue", key="kueue.x-k8s.io/queue-name"),
    QueueKey(system="Volcano", key="scheduling.volcano.sh/queue-name", label=False, annotation=True),
    QueueKey(system="Volcano", key="volcano.sh/queue-name"),
    QueueKey(system="YuniKorn", key=YUNIKORN, annotation=True),
    QueueKey(system="YuniKorn", key="queue", required_keys=APPLICATIONS),
    QueueKey(system="KAI", key="kai.scheduler/queue"),
    QueueKey(system="a Job's own label", key=names.QUEUE_ALIAS, label=False, annotation=True),
)
"""The first one that a pod has counts. `queue` alone does not mean YuniKorn: it is a common label."""

JOB_LABELS = ("kueue.x-k8s.io/queue-name", "kai.scheduler/queue")
"""Labels that these systems put on a Job or another workload, and not on its pods."""

OWNER_LABELS = (names.QUEUE, *JOB_LABELS)
"""Labels of a workload that name the queue of its pods; the first one that it has counts."""

KUEUE_PRIORITY_CLASS = "kueue.x-k8s.io/priority-class"
PRIORITY_LABELS = (names.PRIORITY_CLASS, KUEUE_PRIORITY_CLASS)
"""Labels that name a priority class, of which a queue has one of the same name; the first one counts."""


def priority_class(labels: Mapping[str, str]) -> NamedClass | None:
    """Return the priority class that labels name."""
    key = next((key for key in PRIORITY_LABELS if labels.get(key)), None)
    return None if key is None else NamedClass(key=key, name=labels[key])


def named_queue(labels: Mapping[str, str], annotations: Mapping[str, str]) -> NamedQueue | None:
    """Return the queue that a pod names in another system's key."""
    for queue_key in QUEUE_KEYS:
        name = labels.get(queue_key.key, "") if queue_key.label else ""
        where = "label"
        if not name and queue_key.annotation:
            name, where = annotations.get(queue_key.key, ""), "annotation"
        if name and (
            not queue_key.required_keys or any(key in labels or key in annotations for key in queue_key.required_keys)
        ):
            return NamedQueue(where=f"{where} {queue_key.key}", name=name)
    return None


def of_owner(labels: Mapping[str, str]) -> NamedQueue | None:
    """Return the queue that a workload's own labels name for its pods."""
    key = next((key for key in OWNER_LABELS if labels.get(key)), None)
    return None if key is None else NamedQueue(where=f"label {key}", name=labels[key])


def of_pod(labels: Mapping[str, str], annotations: Mapping[str, str]) -> NamedQueue | None:
    """Return the queue that a pod or a pod template names: in Muster's label, or else in another system's key."""
    own = labels.get(names.QUEUE)
    return NamedQueue(where=OWN_LABEL, name=own) if own else named_queue(labels, annotations)


def of_job(labels: Mapping[str, str]) -> str:
    """Return the queue that a Job's labels name for its pods; "" for none."""
    return next((labels[key] for key in JOB_LABELS if labels.get(key)), "")
