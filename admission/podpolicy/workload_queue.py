"""The queue that a workload names for its pods: in its own labels, or in those of its templates.

The webhook writes the queue of a workload's own labels into the templates without one, so that the pods carry it from
their creation, whoever makes them; with it the priority class of these labels, if the queue has
it. A queue that its pods could not enter is refused where it is named, and so is a template with another queue than
that of what it stands in. `muster simulate` and `muster lint` call the same functions.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from admission.api.kubernetes import meta
from admission.api.kubernetes.meta import Meta
from admission.api.muster.queues import HoldAt, Queue
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.decoding import Json, Reader
from admission.api.values.json_patch import Patch
from admission.api.values.reasons import Denial, DenyReason
from admission.api.values.work_budget import Work, WorkBudget
from admission.podpolicy import queue_selection
from admission.podpolicy.pod_view import PodView
from admission.podpolicy.queue_selection import Defaults, QueueSelection
from admission.workloads import template_labels
from admission.workloads.kinds import foreign_queues
from admission.workloads.kinds.foreign_queues import NamedClass, NamedQueue
from admission.workloads.template_labels import MOST_PLACES, LabelledKind, Path, Place

L = TypeVar("L")

OWN_FIELD = "metadata.labels"
TRY_AGAIN = "create it again; if this persists, another webhook takes away what Muster's mutating webhook adds"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedWorkload:
    """A workload at admission. named: by its own labels; places: those of its pods, with the names in them.

    is_complete: whether these are all of its places; others are not read.
    """

    kind: LabelledKind
    meta: Meta
    namespace: str
    named: NamedQueue | None
    places: tuple[tuple[Place, NamedQueue | None], ...]
    is_complete: bool

    @property
    def names(self) -> Mapping[Path, NamedQueue | None]:
        """Return all names, by the path of what they stand in."""
        return {(): self.named} | {place.base: named for place, named in self.places}


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldDenial:
    """A denial, and the field that it is about."""

    field: str
    denial: Denial


def decode(kind: LabelledKind, obj: Json | None, namespace: str, work: WorkBudget | None = None) -> QueuedWorkload:
    """Read a workload. work: is charged; None offline. Raises MalformedObjectError or TooMuchWorkError."""
    reader = Reader(obj)
    if work is not None:
        work.charge_values(reader.raw("metadata"))
    workload_meta = meta.decode(reader)
    places, is_complete = template_labels.places(kind, reader)
    if work is not None:
        work.charge(Work.TEMPLATE, len(places))
        work.charge(Work.VALUE, sum(len(place.labels) + len(place.annotations) for place in places))
    found = QueuedWorkload(
        kind=kind,
        meta=workload_meta,
        namespace=namespace,
        named=foreign_queues.of_owner(workload_meta.labels),
        places=tuple([(place, foreign_queues.of_pod(place.labels, place.annotations)) for place in places]),
        is_complete=is_complete,
    )
    reader.finish(kind.kind, workload_meta.key)
    return found


def selection(workload: QueuedWorkload, snapshot: Snapshot, defaults: Defaults) -> QueueSelection | None:
    """Return the queue of the workload's own labels; None if they name none. Raises RetryError."""
    return queue_selection.resolve(workload.named, workload.namespace, snapshot, defaults)


def first_queue(workload: QueuedWorkload, snapshot: Snapshot, defaults: Defaults) -> Queue | None:
    """Return the queue that the pods of the first template enter; None if they enter none. Raises RetryError."""
    first = next((place for place, _ in workload.places if place.path.is_written), None)
    found = next((one for one in _found(workload, snapshot, defaults) if one.place is first), None)
    if found is not None:
        return found.queue
    return queue_selection.select_queue(PodView(namespace=workload.namespace), snapshot, defaults).queue


def additions(
    workload: QueuedWorkload, snapshot: Snapshot, defaults: Defaults, *, before: QueuedWorkload | None = None
) -> Patch:
    """Return the patch that writes the queue and the priority class of a workload's labels into its templates.

    before: the stored workload, for an update. Raises RetryError.
    """
    classes = _Classes(workload, before)
    return tuple(
        step
        for one in _found(workload, snapshot, defaults)
        if one.queue is not None and one.place.path.is_written
        for step in one.place.add(
            ({names.QUEUE: one.queue.name} if _lacks(one, before) else {}) | classes.to_write(one.place, one.queue)
        )
    )


def label_templates(workload: QueuedWorkload, queue: Queue) -> Patch:
    """Return the patch that writes a queue into all templates without one, and the priority class of the labels."""
    classes = _Classes(workload)
    return tuple(
        step
        for place, _ in workload.places
        if place.path.is_written
        for step in place.add(
            ({} if place.labels.get(names.QUEUE) else {names.QUEUE: queue.name}) | classes.to_write(place, queue)
        )
    )


def unknown_classes(workload: QueuedWorkload, snapshot: Snapshot, defaults: Defaults) -> Iterator[tuple[str, str]]:
    """Yield the labels, and why, that name a priority class which the queue of the pods does not have.

    Also those that are written into no template, since no queue is named and the pods enter the default one. Each one
    once for each queue. Raises RetryError.
    """
    classes = _Classes(workload)
    seen: set[tuple[str, str]] = set()
    found = [*_found(workload, snapshot, defaults)]
    yield from _classes_in_default_queue(workload, classes, found, snapshot, defaults)
    for one in found:
        level = classes.around(one.place)
        if level is None or one.queue is None or (level.field, one.queue.name) in seen:
            continue
        seen.add((level.field, one.queue.name))
        denial = queue_selection.refuse_priority_class(level.named.name, one.queue, level.named.key)
        if denial is not None:
            yield level.field, f"{denial.message}; it has no effect"


def _classes_in_default_queue(
    workload: QueuedWorkload, classes: "_Classes", found: Sequence["_Found"], snapshot: Snapshot, defaults: Defaults
) -> Iterator[tuple[str, str]]:
    named = {one.place.base for one in found}
    levels = (classes.around(place) for place, _ in workload.places if place.base not in named)
    by_field = {level.field: level.named for level in levels if level is not None}
    if not by_field:
        return
    queue = queue_selection.select_queue(PodView(namespace=workload.namespace), snapshot, defaults).queue
    if queue is None or queue.hold_at is HoldAt.WORKLOAD:
        return
    for field, one in by_field.items():
        message = (
            f"{one.key} names {one.name}, which has no effect, as no queue is named and the pods enter the default"
            f" queue {queue.name}; name the queue beside it ({names.QUEUE}), or the class in the pod template"
        )
        yield field, message


def judge(
    workload: QueuedWorkload, snapshot: Snapshot, defaults: Defaults, *, before: QueuedWorkload | None = None
) -> FieldDenial | None:
    """Refuse queues that pods cannot enter, several for one pod, and a changed name. Raises RetryError.

    Names that do not change are not judged again: a queue may have been deleted since.
    """
    own = selection(workload, snapshot, defaults)
    if before is not None:
        if before.names == workload.names:
            return None
        was = selection(before, snapshot, defaults)
        if workload.kind.is_fixed and before.named != workload.named and (own is not None or was is not None):
            return FieldDenial(field=OWN_FIELD, denial=_changed(workload, before))
    refusal = _unusable(workload, own) if own is not None else None
    if refusal is not None:
        return refusal
    for one in _found(workload, snapshot, defaults):
        if one.denial is not None:
            return FieldDenial(field=one.field, denial=one.denial)
        # Where only an object inside it names a queue, that is written when a controller makes the object.
        if own is not None and _lacks(one, before):
            return FieldDenial(field=one.field, denial=_not_written(one))
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """The queue of a place's pods. own: of the place itself; selection: with that of what the place stands in."""

    place: Place
    own: QueueSelection | None
    selection: QueueSelection

    @property
    def queue(self) -> Queue | None:
        return self.selection.queue

    @property
    def field(self) -> str:
        return self.place.field

    @property
    def denial(self) -> Denial | None:
        denial = self.selection.denial
        if denial is None or denial.reason is DenyReason.QUEUE_CONFLICT or self.own is None:
            return denial
        return replace(denial, message=f"{self.field}: {denial.message}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Level:
    """The queue of one object that contains templates. field: its labels."""

    field: str
    selection: QueueSelection | None


def _found(workload: QueuedWorkload, snapshot: Snapshot, defaults: Defaults) -> Iterator[_Found]:
    """Yield each place for whose pods a queue is named: there, or in what it stands in.

    Places that are only read come before those inside them, so the levels around a place are known when it is reached.
    """
    levels: dict[Path, _Level] = {(): _Level(field=OWN_FIELD, selection=selection(workload, snapshot, defaults))}
    for place, named in workload.places:
        outer = _around(place.base, levels)
        own = queue_selection.resolve(named, workload.namespace, snapshot, defaults)
        combined = queue_selection.combine(own, outer.selection, sources=(place.field, outer.field))
        if not place.path.is_written:
            levels[place.base] = _Level(field=outer.field if own is None else place.field, selection=combined)
        if combined is not None:
            yield _Found(place=place, own=own, selection=combined)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ClassLevel:
    """A priority class that an object names for the pods of the templates in it. field: its labels."""

    field: str
    named: NamedClass


class _Classes:
    """The priority classes that a workload's own labels, and those of what is inside it, name for its pods."""

    def __init__(self, workload: QueuedWorkload, before: QueuedWorkload | None = None) -> None:
        """before: the stored workload, for an update. The templates of one that runs once cannot be changed."""
        self._levels: dict[Path, _ClassLevel | None] = {(): None}
        self._writable: frozenset[Path] | None = None
        outer = (((), OWN_FIELD, workload.meta.labels),)
        inner = ((place.base, place.field, place.labels) for place, _ in workload.places if not place.path.is_written)
        for base, field, labels in (*outer, *inner):
            named = foreign_queues.priority_class(labels)
            if named is not None:
                self._levels[base] = _ClassLevel(field=field, named=named)
        if before is not None and before.kind.is_fixed:
            self._writable = frozenset(place.base for place, _ in before.places if _names_class(place))

    def around(self, place: Place) -> _ClassLevel | None:
        """Return what is named for the pods of a template that names none itself."""
        return _around(place.base, self._levels) if place.path.is_written and not _names_class(place) else None

    def to_write(self, place: Place, queue: Queue) -> dict[str, str]:
        """Return the label that a template lacks. A name that the queue does not have is left out."""
        level = self.around(place)
        if level is None or not queue.has_priority_class(level.named.name):
            return {}
        if self._writable is not None and place.base not in self._writable:
            return {}
        return {names.PRIORITY_CLASS: level.named.name}


def _names_class(place: Place) -> bool:
    return names.PRIORITY_CLASS in place.annotations or foreign_queues.priority_class(place.labels) is not None


def _around(base: Path, levels: Mapping[Path, L]) -> L:
    """Return the innermost level around a place. Paths have few parts."""
    return next(levels[base[:length]] for length in range(len(base), -1, -1) if base[:length] in levels)


def _lacks(found: _Found, before: QueuedWorkload | None) -> bool:
    """Whether the queue is to be written into a place.

    Templates of workloads that run once cannot be changed; there, only a name that was taken away is written again.
    """
    if not found.place.path.is_written or found.own is not None:
        return False
    return before is None or not before.kind.is_fixed or before.names.get(found.place.base) is not None


# Denials.


def _unusable(workload: QueuedWorkload, own: QueueSelection) -> FieldDenial | None:
    """Refuse a name in the workload's own labels that no pod could follow."""
    kind = workload.kind
    is_own_label = own.named is not None and own.named.where == foreign_queues.OWN_LABEL
    if own.denial is not None and (is_own_label or not workload.places):
        return FieldDenial(field=OWN_FIELD, denial=own.denial)
    where = own.named.where if own.named is not None else ""
    if not kind.paths:
        message = (
            f"{where} of a {kind.kind} does not reach its pods, and Muster cannot write it there; {kind.elsewhere}"
        )
        return FieldDenial(field=OWN_FIELD, denial=Denial(DenyReason.MALFORMED_REQUEST, message))
    if not workload.is_complete:
        message = (
            f"{where} is written into every template, and there are more than {MOST_PLACES}; name the queue in the"
            " templates instead, or make several workloads"
        )
        return FieldDenial(field=OWN_FIELD, denial=Denial(DenyReason.MALFORMED_REQUEST, message))
    return None


def _changed(workload: QueuedWorkload, before: QueuedWorkload) -> Denial:
    old, new = (f"{one.named.where} {one.named.name!r}" if one.named else "nothing" for one in (before, workload))
    return Denial(
        DenyReason.GATE_TAMPERING,
        f"the queue of {workload.kind.kind} {workload.meta.name} is changed from {old} to {new}; it is fixed when the"
        " workload is created; delete it and create it with the other queue",
        {"before": old, "after": new},
    )


def _not_written(found: _Found) -> Denial:
    queue = "" if found.queue is None else found.queue.name
    return Denial(
        DenyReason.GATE_TAMPERING,
        f"{found.field} lacks label {names.QUEUE}: {queue}, the queue that the workload's labels name; {TRY_AGAIN}",
        {"field": found.field, "queue": queue},
    )
