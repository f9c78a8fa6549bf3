"""The queue that a pod enters: the queue that it names, or the default of its namespace, or none.

Queues without a namespaceSelector are parents: they pool what their children lend, and pods cannot enter them.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from admission.api.kubernetes.nodes import Namespace
from admission.api.muster.queues import Queue
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import QueueName
from admission.api.values.reasons import Denial, DenyReason
from admission.api.values.selectors import LabelSelector, Requirement
from admission.errors import RetryError
from admission.podpolicy.pod_view import PodView
from admission.workloads.kinds import foreign_queues, labels
from admission.workloads.kinds.foreign_queues import Said

MOST_NAMED = 10
"""The most aliases in a message."""

HOW_TO_LIST = "`kubectl get queues.muster.dev` lists them"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSelection:
    """The result: a queue, or a denial, or neither, if Muster leaves the pod alone."""

    queue: Queue | None = None
    denial: Denial | None = None
    warning: str = ""


class Defaults:
    """The default queues and aliased queues of each namespace, cached while queues and namespaces stay the same.

    With hundreds of queues, matching all their selectors would be most of the work of a review.

    A default queue that is being deleted gives way to another one, which may exist already; without another it stays
    the default.
    """

    def __init__(self, queues: Iterable[Queue], namespaces: Mapping[str, Namespace]) -> None:
        self._candidates = [(q, q.namespaces) for q in queues if q.default and q.namespaces is not None]
        self._aliased = [(q, q.namespaces) for q in queues if q.aliases and q.namespaces is not None]
        self._namespaces = namespaces
        self._found: dict[str, tuple[Queue, ...]] = {}
        self._called: dict[str, dict[str, tuple[Queue, ...]]] = {}

    def open_to(self, namespace: str) -> tuple[Queue, ...]:
        """Return the default queues that are open to a namespace; more than one is a configuration error."""
        found = self._found.get(namespace)
        if found is None:
            if not self._candidates:
                return ()
            labels = _labels(namespace, self._namespaces)
            every = tuple(queue for queue, selector in self._candidates if selector.matches(labels))
            found = tuple(queue for queue in every if queue.meta.deleted is None) or every
            self._found[namespace] = found
        return found

    def called(self, namespace: str) -> Mapping[str, tuple[Queue, ...]]:
        """Return the queues open to a namespace, by alias; more than one for an alias is a configuration error."""
        if not self._aliased:
            return {}
        found = self._called.get(namespace)
        if found is None:
            labels = _labels(namespace, self._namespaces)
            found = {}
            for queue, selector in self._aliased:
                if selector.matches(labels) and queue.meta.deleted is None:
                    found |= {alias: (*found.get(alias, ()), queue) for alias in queue.aliases}
            self._called[namespace] = found
        return found


def select_queue(new_pod: PodView, snapshot: Snapshot, defaults: Defaults) -> QueueSelection:
    """Return the pod's queue. Raises RetryError if that depends on a namespace which has not been seen yet."""
    if new_pod.queue:
        return _named(QueueName(new_pod.queue), new_pod.namespace, snapshot)
    called = defaults.called(new_pod.namespace)
    said = foreign_queues.said(new_pod.labels or {}, new_pod.annotations) if called else None
    return _default(new_pod.namespace, defaults) if said is None else _aliased(said, called, new_pod.namespace)


def _aliased(said: Said, called: Mapping[str, tuple[Queue, ...]], namespace: str) -> QueueSelection:
    """Return the queue with this alias. An unknown name is refused, so that no pod enters a queue by a typing error."""
    found = called.get(said.name, ())
    if len(found) == 1:
        return QueueSelection(queue=found[0])
    shown = labels.shown(said.name)
    if found:
        names_: list[str] = sorted(queue.name for queue in found)
        message = (
            f"{said.where} names queue {shown}, and so {' and '.join(names_)} are called in namespace {namespace}; take"
            f" it out of spec.aliases of all but one, or name the queue in label {names.QUEUE}"
        )
        return QueueSelection(denial=Denial(DenyReason.UNKNOWN_QUEUE, message, {"queue": shown, "queues": names_}))
    near = difflib.get_close_matches(said.name, called, n=3)
    known = f"nearest: {', '.join(near)}" if near else f"known are {', '.join(sorted(called)[:MOST_NAMED])}"
    message = (
        f"{said.where} names queue {shown}, and no queue that is open to namespace {namespace} is called so in its"
        f" spec.aliases ({known}); add it there, or name the queue in label {names.QUEUE}"
    )
    return QueueSelection(denial=Denial(DenyReason.UNKNOWN_QUEUE, message, {"queue": shown, "nearest": near}))


def _named(name: QueueName, namespace: str, snapshot: Snapshot) -> QueueSelection:
    queue = snapshot.queues.get(name)
    if queue is None:
        return QueueSelection(denial=_unknown(name, namespace, snapshot))
    if queue.namespaces is not None:
        _labels(namespace, snapshot.namespaces)
    denial = shut(queue, namespace, snapshot)
    return QueueSelection(queue=queue) if denial is None else QueueSelection(denial=denial)


def shut(queue: Queue, namespace: str, snapshot: Snapshot) -> Denial | None:
    """Refuse a namespace that the queue is not open to; a namespace that has not been seen yet is not refused."""
    if queue.namespaces is None:
        return _is_parent(queue.name, namespace, snapshot)
    known = snapshot.namespaces.get(namespace)
    if known is None or queue.namespaces.matches(known.labels):
        return None
    return _not_open(queue.name, queue.namespaces, namespace, known.labels)


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
    broken = snapshot.malformed.get(("Queue", name))
    if broken is not None:
        return Denial(
            DenyReason.UNKNOWN_QUEUE,
            f"queue {name} exists but cannot be read: {broken}",
            {"queue": name, "flaws": list(map(str, broken.problems))},
        )
    near = difflib.get_close_matches(name, _open_to(namespace, snapshot), n=3)
    return Denial(
        DenyReason.UNKNOWN_QUEUE,
        f"there is no queue {name}; {_suggestion(near, namespace, snapshot)}",
        {"queue": name, "nearest": near},
    )


def _suggestion(near: list[str], namespace: str, snapshot: Snapshot) -> str:
    if near:
        return f"nearest by name: {', '.join(near)}; {HOW_TO_LIST}"
    if not _open_to(namespace, snapshot):
        return f"no queue at all is open to namespace {namespace}; {HOW_TO_LIST}"
    return HOW_TO_LIST


def _is_parent(name: QueueName, namespace: str, snapshot: Snapshot) -> Denial:
    below = sorted(
        other
        for other in _open_to(namespace, snapshot)
        if (parent := snapshot.queues[QueueName(other)].parent) is not None and parent == name
    )
    fix = f"name one below it: {', '.join(below)}" if below else HOW_TO_LIST
    return Denial(
        DenyReason.QUEUE_NOT_OPEN,
        f"queue {name} has no namespaceSelector: it is a parent and nobody enters it; {fix}",
        {"queue": name, "children": below},
    )


def _not_open(name: QueueName, selector: LabelSelector, namespace: str, labels: Mapping[str, str]) -> Denial:
    wanted = describe(selector)
    has = ", ".join(f"{key}={value}" for key, value in sorted(labels.items())) or "no labels"
    return Denial(
        DenyReason.QUEUE_NOT_OPEN,
        f"queue {name} is open to namespaces with {wanted}; namespace {namespace} has {has}",
        {"queue": name, "namespace": namespace, "selector": wanted, "labels": has},
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
    """Return a selector in the form of kubectl's `-l`."""
    return ",".join(map(_requirement, selector.requirements)) or "any labels"


def _requirement(requirement: Requirement) -> str:
    values = ",".join(requirement.values)
    match requirement.operator:
        case "In" if len(requirement.values) == 1:
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
