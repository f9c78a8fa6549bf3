"""The queue that a pod enters: the queue that it names, or the default of its namespace, or none.

Queues without a namespaceSelector are parents: they pool what their children lend, and pods cannot enter them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from admission.api import suggestions
from admission.api.kubernetes.nodes import Namespace
from admission.api.muster.queues import Queue
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import QueueName
from admission.api.values.reasons import Denial, DenyReason, Detail
from admission.api.values.selectors import LabelSelector, Requirement
from admission.errors import RetryError
from admission.podpolicy.pod_view import PodView
from admission.workloads.kinds import foreign_queues, labels
from admission.workloads.kinds.foreign_queues import NamedQueue

NAME_LABEL = "kubernetes.io/metadata.name"
"""The label of every namespace with its name, which the API server writes."""

HOW_TO_LIST = "`kubectl get queues.muster.dev` lists them"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSelection:
    """The result: a queue, or a denial, or neither, if Muster leaves the pod alone.

    named: what names the queue, where its name is to be compared with another one.
    """

    queue: Queue | None = None
    denial: Denial | None = None
    warning: str = ""
    named: NamedQueue | None = None


class Defaults:
    """The default queues and aliased queues of each namespace, cached while queues and namespaces stay the same.

    With hundreds of queues, matching all their selectors would be most of the work of a review.

    A default queue that is being deleted gives way to another one, which may exist already; without another it stays
    the default.
    """

    def __init__(self, queues: Iterable[Queue], namespaces: Mapping[str, Namespace]) -> None:
        self._candidates = [
            (queue, queue.namespaces) for queue in queues if queue.default and queue.namespaces is not None
        ]
        self._aliased = [
            (queue, queue.namespaces) for queue in queues if queue.aliases and queue.namespaces is not None
        ]
        self._namespaces = namespaces
        self._defaults_by_namespace: dict[str, tuple[Queue, ...]] = {}
        self._aliases_by_namespace: dict[str, dict[str, tuple[Queue, ...]]] = {}

    def open_to(self, namespace: str) -> tuple[Queue, ...]:
        """Return the default queues that are open to a namespace; more than one is a configuration error."""
        found = self._defaults_by_namespace.get(namespace)
        if found is None:
            if not self._candidates:
                return ()
            labels = _labels(namespace, self._namespaces)
            matching = tuple(queue for queue, selector in self._candidates if selector.matches(labels))
            found = tuple(queue for queue in matching if queue.meta.deleted is None) or matching
            self._defaults_by_namespace[namespace] = found
        return found

    def by_alias(self, namespace: str) -> Mapping[str, tuple[Queue, ...]]:
        """Return the queues open to a namespace, by alias; more than one for an alias is a configuration error."""
        if not self._aliased:
            return {}
        found = self._aliases_by_namespace.get(namespace)
        if found is None:
            labels = _labels(namespace, self._namespaces)
            found = {}
            for queue, selector in self._aliased:
                if selector.matches(labels) and queue.meta.deleted is None:
                    found |= {alias: (*found.get(alias, ()), queue) for alias in queue.aliases}
            self._aliases_by_namespace[namespace] = found
        return found


def select_queue(new_pod: PodView, snapshot: Snapshot, defaults: Defaults) -> QueueSelection:
    """Return the pod's queue. Raises RetryError if that depends on a namespace which has not been seen yet.

    The labels of its Job name the queue of a pod that names none. The template of a Job has the queue's name from
    `workload_queue`, unless the Job is older.
    """
    job = snapshot.jobs.get(uid) if (uid := new_pod.job) else None
    of_job = None
    if job is not None and job.meta.namespace == new_pod.namespace:
        of_job = resolve(foreign_queues.of_owner(job.meta.labels), new_pod.namespace, snapshot, defaults)
    if of_job is None or job is None:
        if new_pod.queue:
            return _named(QueueName(new_pod.queue), new_pod.namespace, snapshot)
        return _own(new_pod, snapshot, defaults) or _default(new_pod.namespace, defaults)
    own = _own(new_pod, snapshot, defaults)
    return combine(own, of_job, sources=("the pod", f"its Job {job.meta.name}")) or of_job


def _own(new_pod: PodView, snapshot: Snapshot, defaults: Defaults) -> QueueSelection | None:
    """Return the queue that a pod names; None if it names none. Most pods are spared the search for other keys."""
    if not new_pod.queue and not defaults.by_alias(new_pod.namespace):
        return None
    named = foreign_queues.of_pod(new_pod.labels or {}, new_pod.annotations)
    return resolve(named, new_pod.namespace, snapshot, defaults)


def resolve(
    named_queue: NamedQueue | None, namespace: str, snapshot: Snapshot, defaults: Defaults
) -> QueueSelection | None:
    """Return the queue of a name; None if nothing is named. Raises RetryError as `select_queue`.

    The keys of other systems count only if a queue that is open to the namespace has aliases.
    """
    if named_queue is None:
        return None
    if named_queue.where == foreign_queues.OWN_LABEL:
        return _named(QueueName(named_queue.name), namespace, snapshot, named_queue)
    by_alias = defaults.by_alias(namespace)
    return _aliased(named_queue, by_alias, namespace) if by_alias else None


def combine(
    inner: QueueSelection | None, outer: QueueSelection | None, *, sources: tuple[str, str]
) -> QueueSelection | None:
    """Return the queue of a pod or template, and of what makes it; a denial if they name different queues.

    A key of another system on the outer one that leads to no queue does not count beside a queue of the inner one.
    sources: both, for the message.
    """
    if inner is None or outer is None:
        return inner or outer
    if inner.queue is None or outer.queue is inner.queue:
        return inner
    if outer.queue is None:
        return outer if outer.named is not None and outer.named.where == foreign_queues.OWN_LABEL else inner
    texts = [
        f"{source} names queue {selection.queue.name} in {selection.named.where}"
        for source, selection in zip(sources, (inner, outer), strict=True)
        if selection.queue is not None and selection.named is not None
    ]
    message = f"{' and '.join(texts)}; pods enter one queue: name the same in both, or leave one of them out"
    details: dict[str, Detail] = {"queue": inner.queue.name, "other": outer.queue.name}
    return replace(inner, queue=None, denial=Denial(DenyReason.QUEUE_CONFLICT, message, details))


def _aliased(named_queue: NamedQueue, by_alias: Mapping[str, tuple[Queue, ...]], namespace: str) -> QueueSelection:
    """Return the queue with this alias. An unknown name is refused, so that no pod enters a queue by a typing error."""
    found = by_alias.get(named_queue.name, ())
    if len(found) == 1:
        return QueueSelection(queue=found[0], named=named_queue)
    name = labels.shortened(named_queue.name)
    if found:
        names_: list[str] = sorted(queue.name for queue in found)
        message = (
            f"{named_queue.where} names queue {name}, and so {' and '.join(names_)} are called in namespace"
            f" {namespace}; take it out of spec.aliases of all but one, or name the queue in label {names.QUEUE}"
        )
        denial = Denial(DenyReason.UNKNOWN_QUEUE, message, {"queue": name, "queues": names_})
        return QueueSelection(denial=denial, named=named_queue)
    nearest = suggestions.nearest(named_queue.name, by_alias)
    known = suggestions.listed(named_queue.name, by_alias)
    hint = f"nearest: {', '.join(nearest)}" if nearest else f"known are {known}"
    message = (
        f"{named_queue.where} names queue {name}, and no queue that is open to namespace {namespace} is called so in"
        f" its spec.aliases ({hint}); add it there, or name the queue in label {names.QUEUE}"
    )
    denial = Denial(DenyReason.UNKNOWN_QUEUE, message, {"queue": name, "nearest": nearest})
    return QueueSelection(denial=denial, named=named_queue)


def _named(
    name: QueueName, namespace: str, snapshot: Snapshot, named_queue: NamedQueue | None = None
) -> QueueSelection:
    queue = snapshot.queues.get(name)
    if queue is None:
        return QueueSelection(denial=_unknown(name, namespace, snapshot), named=named_queue)
    if queue.namespaces is not None:
        _labels(namespace, snapshot.namespaces)
    denial = refuse_namespace(queue, namespace, snapshot)
    if denial is None:
        return QueueSelection(queue=queue, named=named_queue)
    if queue.namespaces is not None and (others := _open_to(namespace, snapshot)):
        message = f"{denial.message}; open to it: {suggestions.listed(name, others)}"
        denial = replace(denial, message=message)
    return QueueSelection(denial=denial, named=named_queue)


def refuse_namespace(queue: Queue, namespace: str, snapshot: Snapshot) -> Denial | None:
    """Refuse a namespace that the queue is not open to; a namespace that has not been seen yet is not refused."""
    if queue.namespaces is None:
        return _parent_denial(queue.name, namespace, snapshot)
    known = snapshot.namespaces.get(namespace)
    if known is None or queue.namespaces.matches(known.labels):
        return None
    return _not_open_denial(queue.name, queue.namespaces, namespace, known.labels)


def refuse_priority_class(name: str, queue: Queue, key: str = names.PRIORITY_CLASS) -> Denial | None:
    """Refuse a priority class that the queue does not have. key: what names it."""
    known = [one.name for one in queue.priority_classes]
    if name in known:
        return None
    listed = suggestions.listed(name, known)
    there = f"it has {listed}" if listed else "it has none (spec.priorityClasses)"
    shown = labels.shortened(name)
    return Denial(
        DenyReason.POLICY_VIOLATION,
        f"{key} names {shown}, which is no priority class of queue {queue.name}; {there}",
        {"queue": queue.name, "priorityClass": shown, "nearest": suggestions.nearest(name, known)},
    )


def _default(namespace: str, defaults: Defaults) -> QueueSelection:
    found = defaults.open_to(namespace)
    if len(found) == 1:
        return QueueSelection(queue=found[0])
    if not found:
        return QueueSelection()
    several = ", ".join(sorted(queue.name for queue in found))
    return QueueSelection(
        warning=f"muster: queues {several} are all marked default for namespace {namespace}, so the pod enters none;"
        f" name one in label {names.QUEUE}"
    )


def _labels(namespace: str, namespaces: Mapping[str, Namespace]) -> Mapping[str, str]:
    known = namespaces.get(namespace)
    if known is None:
        # The namespace was just created. Without its labels, a pod could evade its quota or be refused wrongly.
        raise RetryError(f"namespace {namespace} has not been seen yet; try again in a moment")
    return known.labels


def _unknown(name: QueueName, namespace: str, snapshot: Snapshot) -> Denial:
    malformed = snapshot.malformed.get(("Queue", name))
    if malformed is not None:
        return Denial(
            DenyReason.UNKNOWN_QUEUE,
            f"queue {name} exists but cannot be read: {malformed}",
            {"queue": name, "flaws": list(map(str, malformed.problems))},
        )
    nearest, shown = suggestions.nearest(name, _open_to(namespace, snapshot)), labels.shortened(name)
    return Denial(
        DenyReason.UNKNOWN_QUEUE,
        f"there is no queue {shown}; {_suggestion(name, nearest, namespace, snapshot)}",
        {"queue": shown, "nearest": nearest},
    )


def _suggestion(name: str, nearest: list[str], namespace: str, snapshot: Snapshot) -> str:
    known = _open_to(namespace, snapshot)
    if not known:
        return f"no queue at all is open to namespace {namespace}; {HOW_TO_LIST}"
    what = f"nearest by name: {', '.join(nearest)}; " if nearest else ""
    return f"{what}open to namespace {namespace}: {suggestions.listed(name, known)}; {HOW_TO_LIST}"


def _parent_denial(name: QueueName, namespace: str, snapshot: Snapshot) -> Denial:
    children = sorted(
        other for other in _open_to(namespace, snapshot) if snapshot.queues[QueueName(other)].parent == name
    )
    fix = f"name one below it: {', '.join(children)}" if children else HOW_TO_LIST
    return Denial(
        DenyReason.QUEUE_NOT_OPEN,
        f"queue {name} has no namespaceSelector: it is a parent and nobody enters it; {fix}",
        {"queue": name, "children": children},
    )


def _not_open_denial(name: QueueName, selector: LabelSelector, namespace: str, labels: Mapping[str, str]) -> Denial:
    selector_text = describe(selector)
    labels_text = ", ".join(f"{key}={value}" for key, value in sorted(labels.items())) or "no labels"
    return Denial(
        DenyReason.QUEUE_NOT_OPEN,
        f"queue {name} is open to namespaces with {selector_text}; namespace {namespace} has {labels_text}",
        {"queue": name, "namespace": namespace, "selector": selector_text, "labels": labels_text},
    )


def open_to(namespace: str, snapshot: Snapshot) -> list[Queue]:
    """Return the queues that the namespace may enter, by name."""
    known = snapshot.namespaces.get(namespace)
    if known is None:
        return []
    found = (
        queue
        for queue in snapshot.queues.values()
        if queue.namespaces is not None and queue.namespaces.matches(known.labels)
    )
    return sorted(found, key=lambda queue: queue.name)


def _open_to(namespace: str, snapshot: Snapshot) -> list[str]:
    """Return the names of the queues that the namespace may enter; any other would be refused next."""
    return [queue.name for queue in open_to(namespace, snapshot)]


def describe(selector: LabelSelector) -> str:
    """Return a selector in the form of kubectl's `-l`, with a number instead of names of namespaces.

    It is read in a namespace that is none of those.
    """
    return ",".join(map(_requirement, selector.requirements)) or "any labels"


def _requirement(requirement: Requirement) -> str:
    is_shown = requirement.key != NAME_LABEL
    values = ",".join(requirement.values) if is_shown else f"{len(requirement.values)} not shown"
    match requirement.operator:
        case "In" if len(requirement.values) == 1 and is_shown:
            return f"{requirement.key}={values}"
        case "In":
            return f"{requirement.key} in ({values})"
        case "NotIn":
            return f"{requirement.key} notin ({values})"
        case "Exists":
            return requirement.key
        case "DoesNotExist":
            return f"!{requirement.key}"
        case _:
            return f"{requirement.key} {requirement.operator} {values}"
