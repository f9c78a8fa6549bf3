"""What the families have in common: a kind's entry, the way from a pod up to an object of it, and who the pod is there.

The way goes by UIDs alone. A label says what a pod is to an object that it is proved to belong to, never that it does.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from admission.api.kubernetes import active_deadline, meta
from admission.api.kubernetes.jobs import Job, PodTemplate
from admission.api.kubernetes.meta import Meta, Owner
from admission.api.kubernetes.owners import Parent, Wave
from admission.api.kubernetes.pods import Pod
from admission.api.values import names
from admission.api.values.decoding import Json, Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One owner on the way up from a pod. found: the object with that UID; None where it is not seen."""

    owner: Owner
    found: Job | Pod | Parent | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """Who a pod is to the object that it belongs to.

    uid and name: of what starts together below the object; the object's own unless it has several such. attempt: which
    try of it this is; empty for the first. size: how many pods it has, where that is not the same for all.
    """

    uid: str
    name: str
    role: str = ""
    attempt: str = ""
    size: int | None = None


Shape = tuple[dict[str, Wave], dict[str, str]]
"""Waves by name, and the wave of each role that is not of the first."""

MOST_PODS = 2**53 - 1
"""What is told of a wave that is larger: every reader of JSON knows the number. No gang may be as large by far."""

Join = Callable[[Pod, Sequence[Link], Parent], Member]
"""Says who a pod is to an object. The links lead to the object, and are without it."""


def no_templates(_reader: Reader, _meta: Meta) -> Iterable[PodTemplate]:
    """Return no templates, for kinds that are never held as a whole."""
    return ()


def always(_reader: Reader) -> bool:
    """Return true, for kinds of which every object may be suspended."""
    return True


def first_try(_reader: Reader) -> str:
    """Return that an object does not say which try of it this is."""
    return ""


OVER = frozenset({"Complete", "Completed", "Succeeded", "Failed"})
"""Conditions of objects that make no more pods."""


def has_ended(reader: Reader) -> bool:
    """Return whether the conditions of an object say that it makes no more pods."""
    conditions = reader.child("status").children("conditions")
    return any(one.text("type") in OVER and one.text("status") == "True" for one in conditions)


def is_kind(_pod: Pod, _links: Sequence[Link], parent: Parent) -> Member:
    """Return a member like all others of an object."""
    return Member(uid=parent.meta.uid, name=parent.meta.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadKind:
    """One kind of objects that pods belong to.

    versions: of the same shape, the best first. read: how many pods an object has; it notes problems in the reader.
    fields: which of its fields say so. named: whether pods name the object, as a PodGroup, and do not belong to it.
    is_link: whether it only stands between pods and what they belong to. suspend: the field by which its controller
    is told to make no pods; empty where it has none, or where the pods that would come cannot be told from the object.
    may_suspend: whether its controller bears with an object that is suspended. templates: what would come of it, those
    first that nothing has to run before. by_way_of: the kind that its pods belong to, by its key, where the object only
    makes one of that kind: it speaks for the pods as long as it is held as a whole. attempt: which try of it this is.
    has_ended: whether it makes no more pods, of those that may be suspended: its controller heeds no `suspend` then.
    deadline: the field by which its controller ends all of its pods some time after the start of the object; through
    lists, those of the parts that have one each. Empty where it has none.
    """

    kind: str
    group: str
    versions: tuple[str, ...]
    plural: str
    read: Callable[[Reader, Meta], Shape]
    join: Join = is_kind
    fields: str = ""
    named: bool = False
    is_link: bool = False
    suspend: tuple[str, ...] = ()
    may_suspend: Callable[[Reader], bool] = always
    templates: Callable[[Reader, Meta], Iterable[PodTemplate]] = no_templates
    by_way_of: str = ""
    attempt: Callable[[Reader], str] = first_try
    has_ended: Callable[[Reader], bool] = has_ended
    deadline: tuple[str, ...] = ()

    @property
    def makes_pods(self) -> bool:
        """Whether the kind's controller makes pods, or makes what makes them."""
        return not self.named and not self.is_link

    @property
    def key(self) -> str:
        """How a snapshot names the kind: `Kind.group`."""
        return key(self.kind, self.group)

    def decode(self, obj: Json) -> Parent:
        """Read an object. Raises MalformedObjectError."""
        reader = Reader(obj)
        known = meta.decode(reader)
        waves, roles = self.read(reader, known)
        is_held = bool(self.suspend) and names.HELD in known.annotations
        templates = tuple(self.templates(reader, known)) if is_held else ()
        suspended = is_held and is_suspended(reader, self.suspend)
        finished = bool(self.suspend) and self.has_ended(reader)
        attempt, ends = self.attempt(reader), deadlines_at(reader, self.deadline)
        reader.finish(self.kind, known.key)
        return Parent(
            meta=known,
            waves=waves,
            roles=roles,
            attempt=attempt,
            deadline=latest(ends),
            finished=finished,
            suspended=suspended,
            templates=templates,
        )


def is_suspended(reader: Reader, path: tuple[str, ...]) -> bool:
    """Return whether an object is told to make no pods. path: of the field that says so."""
    for name in path[:-1]:
        reader = reader.child(name)
    return reader.flag(path[-1])


def deadlines_at(reader: Reader, path: tuple[str, ...]) -> list[timedelta | None]:
    """Return what an object says under the path of a deadline: each part of it, where that leads through a list."""
    if not path:
        return []
    readers = [reader]
    for name in path[:-1]:
        readers = [part for one in readers for part in _parts(one, name)]
    return [active_deadline.read(one, path[-1]) for one in readers]


def _parts(reader: Reader, name: str) -> list[Reader]:
    return [*reader.children(name)] if isinstance(reader.raw(name), list) else [reader.child(name)]


def latest(ends: Sequence[timedelta | None]) -> timedelta | None:
    """Return after how long all parts have ended; None where one of them goes on for ever, or there is none."""
    known = [end for end in ends if end is not None]
    return max(known) if known and len(known) == len(ends) else None


def key(kind: str, group: str) -> str:
    """Return how a snapshot names a kind."""
    return f"{kind}.{group}"


def kind_of(owner: Owner) -> str:
    """Return how a snapshot names the kind of an owner, of whatever version."""
    group, _, _ = owner.api_version.rpartition("/")
    return key(owner.kind, group)


def one_wave(pods: int, needed: int | None = None) -> Shape:
    """Return the shape of an object that makes all of its pods at once."""
    return {"": wave(pods, needed)}, {}


def wave(pods: int, needed: int | None = None) -> Wave:
    """Return a wave; needed: at least one, and by default all of it."""
    least = pods if needed is None else needed
    return Wave(pods=min(max(pods, 0), MOST_PODS), needed=min(max(least, 1), MOST_PODS))


def waves(parts: Iterable[tuple[str, Hashable, int]]) -> tuple[dict[str, int], dict[str, str]]:
    """Return the pods of each wave and the wave of each role. parts: each role, what it waits for, and its pods.

    Those that wait for the same are one wave, named after the first of them, but for the first wave.
    """
    named: dict[Hashable, str] = {}
    pods: dict[str, int] = {}
    roles: dict[str, str] = {}
    for role, waits_for, count in parts:
        group = named.setdefault(waits_for, role if named else "")
        pods[group] = pods.get(group, 0) + count
        roles[role] = group
    return pods, roles


def at_a_time(job: Reader) -> int:
    """Return how many pods a Job runs at a time, from its spec."""
    parallelism = job.integer("parallelism", 1)
    return min(parallelism, job.integer("completions")) if "completions" in job else parallelism


def replicas(specs: Iterable[tuple[str, Reader]]) -> dict[str, int]:
    """Return how many pods each role has, from specs with `replicas`, which is 1 where it is not written."""
    return {role: spec.integer("replicas", 1) for role, spec in specs}
