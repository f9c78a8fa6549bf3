"""The common parts of workload kinds: a kind's entry, the owners between a pod and its workload, and the pod's role.

Owners are followed only by UID. A label gives a pod's role in an object that it is proved to belong to; it never proves
that.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from admission.api.kubernetes import active_deadline, meta, pods
from admission.api.kubernetes.jobs import Job, PodTemplate
from admission.api.kubernetes.meta import Meta, Owner
from admission.api.kubernetes.owners import LaterWave, Parent, Wave
from admission.api.kubernetes.pods import Pod
from admission.api.scheduling import exclusive_domains
from admission.api.values import names
from admission.api.values.decoding import Json, Reader
from admission.workloads.kinds import wave_templates


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One owner on the way up from a pod. obj: the object with its UID; None if it is not seen."""

    owner: Owner
    obj: Job | Pod | Parent | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A pod's role in the object that it belongs to.

    uid and name: of the set of pods that start together; the object's own unless it has several such sets. attempt: the
    object's attempt; "" for the first. size: the number of pods, if it differs between sets.
    """

    uid: str
    name: str
    role: str = ""
    attempt: str = ""
    size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExclusiveParts:
    """The parts of a kind's workloads that may each be alone in a domain of nodes, as pods know them.

    label: of pods, which names their part. index: the label of their number in it. role: returns a pod's role, as in
    `Identity.followers`. name: returns a part's name.
    """

    label: str
    index: str
    role: Callable[[Pod], str]
    name: Callable[[Pod], str]

    def domain(self, pod: Pod) -> str:
        """Return the node label in whose domains the pod's part is alone, as its webhook wrote it; "" if it is not."""
        found = exclusive_domains.find(pod.rules, self.label, pod.meta.labels.get(self.label, ""))
        return found.label if found is not None else ""


Shape = tuple[dict[str, Wave], dict[str, str]]
"""Waves by name, and the wave of each role outside the first wave."""

MOST_PODS = 2**53 - 1
"""The size reported for a larger wave: every JSON reader can represent it. It is far beyond any gang's limit."""

Join = Callable[[Pod, Sequence[Link], Parent], Member]
"""Returns a pod's role in an object. The links lead from the pod to the object, which is left out."""


def no_templates(_reader: Reader, _meta: Meta) -> Iterable[PodTemplate]:
    """Return no templates, for kinds that are never held as a whole."""
    return ()


def always(_reader: Reader) -> bool:
    """Return true, for kinds whose objects may all be suspended."""
    return True


def no_attempt(_reader: Reader) -> str:
    """Return "", for kinds that do not tell one attempt from the next."""
    return ""


def no_followers(_parent: Parent, _wave: str, _pod: Pod) -> dict[str, int]:
    """Return nothing, for kinds whose pods do not follow others into their domains."""
    return {}


def never_alone(_obj: Json, _roles: frozenset[str], _running_roles: frozenset[str]) -> None:
    """Return nothing, for kinds whose later waves are not known by its roles."""
    return


def no_running_roles(_obj: Json, _roles: Sequence[str]) -> tuple[str, ...]:
    """Return nothing, for kinds whose later waves wait for no others that run on."""
    return ()


TERMINAL_CONDITIONS = frozenset({"Complete", "Completed", "Succeeded", "Failed"})
"""Conditions of objects that make no more pods."""


def has_ended(reader: Reader) -> bool:
    """Return whether the conditions of an object say that it makes no more pods."""
    conditions = reader.child("status").children("conditions")
    return any(one.text("type") in TERMINAL_CONDITIONS and one.text("status") == "True" for one in conditions)


def is_kind(_pod: Pod, _links: Sequence[Link], parent: Parent) -> Member:
    """Return the role of a pod in an object whose pods are all equal."""
    return Member(uid=parent.meta.uid, name=parent.meta.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadKind:
    """One kind of objects that pods belong to.

    versions: of the same shape, the preferred one first. read: returns an object's waves, and notes problems in the
    reader. join: returns a pod's role. fields: the fields that state the size. named: whether pods name the object,
    like a PodGroup, instead of having it as an owner. is_link: whether it only stands between pods and their workload.
    suspend: the field that makes its controller create no pods; empty if it has none, or if its future pods cannot be
    derived from the object. may_suspend: whether its controller supports suspending an object. templates: returns its
    future pods, those of the first wave only; of one group, if several start each by itself. creates_kind: the key of
    the kind that its pods belong to, if the object only creates one object of that kind; while held as a whole, it
    stands for that object. attempt: returns the object's attempt. has_ended: whether a suspendable object makes no more
    pods, and its controller ignores `suspend`. alone: returns an object with some of its roles, which wait for nothing,
    and with those beside which they always run; None if that is not known. deadline: the path of the field after which
    its controller ends all pods, counted from the object's start; through a list, one for each element. Empty if it has
    none. has_claims: whether its objects have claims that their pods share. followers: returns how many more pods like
    its own are made for each part of a wave once its first pod is scheduled, by role; it is given a pod of the wave.
    exclusive: these parts.
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
    alone: Callable[[Json, frozenset[str], frozenset[str]], Json | None] = never_alone
    running_roles: Callable[[Json, Sequence[str]], tuple[str, ...]] = no_running_roles
    creates_kind: str = ""
    attempt: Callable[[Reader], str] = no_attempt
    has_ended: Callable[[Reader], bool] = has_ended
    deadline: tuple[str, ...] = ()
    has_claims: bool = False
    followers: Callable[[Parent, str, Pod], dict[str, int]] = no_followers
    exclusive: ExclusiveParts | None = None

    @property
    def makes_pods(self) -> bool:
        """Whether the kind's controller makes pods, or makes objects that make pods."""
        return not self.named and not self.is_link

    @property
    def has_templates(self) -> bool:
        """Return whether its future pods, or some of them, can be derived from an object."""
        return self.templates is not no_templates

    @property
    def key(self) -> str:
        """Return the kind's key in a snapshot: `Kind.group`."""
        return key(self.kind, self.group)

    def decode(self, obj: Json) -> Parent:
        """Read an object. Raises MalformedObjectError."""
        reader = Reader(obj)
        object_meta = meta.decode(reader)
        waves, roles = self.read(reader, object_meta)
        is_held = bool(self.suspend) and names.HELD in object_meta.annotations
        templates = tuple(self.templates(reader, object_meta)) if is_held else ()
        suspended = is_held and is_suspended(reader, self.suspend)
        finished = bool(self.suspend) and self.has_ended(reader)
        attempt, deadlines = self.attempt(reader), deadlines_at(reader, self.deadline)
        claims = pods.decode_claims(reader.child("spec")) if self.has_claims else ()
        generated = pods.decode_generated(reader.child("status")) if claims else {}
        reader.finish(self.kind, object_meta.key)
        return Parent(
            meta=object_meta,
            waves=waves,
            roles=roles,
            attempt=attempt,
            deadline=latest(deadlines),
            finished=finished,
            suspended=suspended,
            templates=templates,
            later=() if finished else tuple(self._later(obj, roles)),
            claims=claims,
            generated_claims=generated,
            constrained=self.has_claims and bool(reader.child("spec").raw("schedulingConstraints")),
        )

    def waves_alone(
        self, obj: Json, roles: Mapping[str, str]
    ) -> Iterator[tuple[tuple[str, ...], tuple[str, ...], Json]]:
        """Yield the roles of each wave after the first one, with the object that has these alone where it is known.

        And again with the roles beside which they run, and the object that has both, if there are any; only so if pods
        of the wave have to be with others.
        """
        for wave in dict.fromkeys(filter(None, roles.values())):
            of_wave = tuple(role for role, own in roles.items() if own == wave)
            others = self.running_roles(obj, of_wave)
            for running_roles in dict.fromkeys(((), others)):
                alone = self.alone(obj, frozenset(of_wave), frozenset(running_roles))
                if alone is not None and (running_roles == others or not self._needs_others(alone)):
                    yield of_wave, running_roles, alone

    def _needs_others(self, obj: Json) -> bool:
        reader = Reader(obj)
        templates = self.templates(reader, meta.decode(reader))
        return any(wave_templates.needs_others(template.body) for template in templates)

    def _later(self, obj: Json, roles: Mapping[str, str]) -> Iterator[LaterWave]:
        for of_wave, running_roles, alone in self.waves_alone(obj, roles):
            reader = Reader(alone)
            object_meta = meta.decode(reader)
            templates = tuple(one for one in self.templates(reader, object_meta) if one.pods > 0)
            if templates:
                waves, own_roles = self.read(reader, object_meta)
                yield LaterWave(
                    roles=of_wave, running_roles=running_roles, templates=templates, waves=waves, waves_of=own_roles
                )


def is_suspended(reader: Reader, path: tuple[str, ...]) -> bool:
    """Return whether an object is set to make no pods. path: of the field."""
    for name in path[:-1]:
        reader = reader.child(name)
    return reader.flag(path[-1])


def deadlines_at(reader: Reader, path: tuple[str, ...]) -> list[timedelta | None]:
    """Return the deadlines at a path of an object: one for each element if the path leads through a list."""
    if not path:
        return []
    readers = [reader]
    for name in path[:-1]:
        readers = [child for one in readers for child in _children(one, name)]
    return [active_deadline.read(one, path[-1]) for one in readers]


def _children(reader: Reader, name: str) -> list[Reader]:
    return [*reader.children(name)] if isinstance(reader.raw(name), list) else [reader.child(name)]


def latest(deadlines: Sequence[timedelta | None]) -> timedelta | None:
    """Return the time after which all parts have ended; None if one has no limit, or there is none."""
    limited = [deadline for deadline in deadlines if deadline is not None]
    return max(limited) if limited and len(limited) == len(deadlines) else None


def key(kind: str, group: str) -> str:
    """Return a kind's key in a snapshot."""
    return f"{kind}.{group}"


def kind_of(owner: Owner) -> str:
    """Return the key in a snapshot of an owner's kind, whatever its version."""
    group, _, _ = owner.api_version.rpartition("/")
    return key(owner.kind, group)


def one_wave(pods: int, needed: int | None = None) -> Shape:
    """Return the shape of an object that creates all its pods at once."""
    return {"": wave(pods, needed)}, {}


def wave(pods: int, needed: int | None = None) -> Wave:
    """Return a wave; needed: at least one, all pods by default."""
    least = pods if needed is None else needed
    return Wave(pods=min(max(pods, 0), MOST_PODS), needed=min(max(least, 1), MOST_PODS))


def waves(parts: Iterable[tuple[str, Hashable, int]]) -> tuple[dict[str, int], dict[str, str]]:
    """Return the pods of each wave and the wave of each role. parts: each role, what it waits for, and its pods.

    Roles that wait for the same are one wave; all but the first wave are named after their first role.
    """
    named: dict[Hashable, str] = {}
    pods: dict[str, int] = {}
    roles: dict[str, str] = {}
    for role, waits_for, count in parts:
        group = named.setdefault(waits_for, role if named else "")
        pods[group] = pods.get(group, 0) + count
        roles[role] = group
    return pods, roles


def parallel_pods(job: Reader) -> int:
    """Return how many pods a Job runs at a time, from its spec."""
    parallelism = job.integer("parallelism", 1)
    return min(parallelism, job.integer("completions")) if "completions" in job else parallelism


def replicas(specs: Iterable[tuple[str, Reader]]) -> dict[str, int]:
    """Return the number of pods of each role, from specs with `replicas`, which is 1 by default."""
    return {role: spec.integer("replicas", 1) for role, spec in specs}
