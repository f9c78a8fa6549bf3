"""References from a message to the objects that it is about, and the words for these, which depend on the reader.

A message names no object that may be of another namespace. In its place it has a phrase that any reader may know ("2
gangs of queue research that hold 8 devices"), accompanied by a Reference with the objects. `render` replaces phrases by
the names that a reader may know.
"""

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

from admission.api.values.decoding import Reader

Audience = Container[str]
"""A reader, as the namespaces whose objects the reader may know by name."""

MOST_NAMED = 3
"""The most objects, or groups of objects, that a phrase has; the rest is counted."""

LISTED = 64
"""The most objects that details list."""


class _Everywhere:
    """Every namespace."""

    def __contains__(self, _: object) -> bool:
        return True


EVERYWHERE: Audience = _Everywhere()
"""A reader of every namespace, such as a log, the ledger, or a user who has all manifests."""

KEPT = 16
"""The most objects that a status lists one by one; the others are counted by queue."""

NUMBERED = "#"
"""The first character of the placeholder for the UID of a gang without one."""

NOWHERE: Audience = frozenset[str]()
"""A reader who may know no names."""


class Kind(StrEnum):
    """The kinds of objects that messages refer to."""

    GANG = "Gang"
    CLAIM = "ResourceClaim"
    TEMPLATE = "ResourceClaimTemplate"
    POD = "Pod"


_NOUNS = {Kind.GANG: "gang", Kind.CLAIM: "claim", Kind.TEMPLATE: "template", Kind.POD: "pod"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Referent:
    """An object that a message is about. key: `namespace/name`, empty if the reader may not know it; uid: if known.

    gang, gang_uid: of a claim, the gang that pays for it. queue: of the gang. devices: what it holds of what the
    message is about; 0 if that is no number of devices. note: what the message says of it beside its name. count: how
    many objects of the kind and queue it stands for; more than one have no name.
    """

    kind: Kind
    key: str = ""
    uid: str = ""
    gang: str = ""
    gang_uid: str = ""
    queue: str = ""
    devices: int = 0
    note: str = ""
    count: int = 1

    def is_known_to(self, audience: Audience) -> bool:
        """Return whether a reader may know its name, or that of its gang, which is in the same namespace."""
        name = self.key or self.gang
        return bool(name) and name.partition("/")[0] in audience

    @property
    def is_of_gang(self) -> bool:
        """Whether it is a gang, or the claim of one."""
        return self.kind is Kind.GANG or (self.kind is Kind.CLAIM and bool(self.gang or self.gang_uid or self.queue))

    @property
    def name(self) -> str:
        """Return its kind and name, for a reader who may know them."""
        noun = self.kind if self.kind is Kind.TEMPLATE else _NOUNS[self.kind]
        own = f"{noun} {self.key}" if self.key else f"a {noun}"
        return f"{own}{f' of gang {self.gang}' if self.gang else ''}{f' ({self.note})' if self.note else ''}"


@dataclass(frozen=True, kw_only=True)
class Reference:
    """What a phrase of a message stands for. detail: the key of the details that lists the same; empty if none does.

    count: the number of objects, if more than these. Equivalent gangs have the same reference, so the words for its
    readers are kept with it.
    """

    phrase: str
    referents: tuple[Referent, ...]
    detail: str = ""
    count: int = 0

    @cached_property
    def namespaces(self) -> frozenset[str]:
        """The namespaces of the objects with a name."""
        names = (one.key or one.gang for one in self.referents)
        return frozenset(name.partition("/")[0] for name in names if name)

    @cached_property
    def listing(self) -> list[str]:
        """The objects for the details: the names that there are, then how many more of which queue."""
        known = [one for one in self.referents if one.is_known_to(EVERYWHERE)]
        names = [one.name if one.kind is Kind.CLAIM or not one.key else one.key for one in known]
        groups, others = _grouped(one for one in self.referents if not one.is_known_to(EVERYWHERE))
        more = others + max(0, self.count - _total(self.referents))
        return [*names, *groups, *([f"{more} more"] if more else [])]

    @cached_property
    def _for_readers(self) -> dict[frozenset[str], "Reference"]:
        """By the namespaces that a reader knows of these, the reference in the words for that reader."""
        return {}

    def for_reader(self, audience: Audience) -> "Reference":
        """Return the reference in the words for a reader, without names that the reader may not know.

        A reference by a newer version of Muster to an unknown kind keeps its phrase.
        """
        if not self.referents:
            return self
        namespaces = frozenset(namespace for namespace in self.namespaces if namespace in audience)
        known = self._for_readers.get(namespaces)
        if known is None:
            numbers: dict[str, str] = {}
            kept = (one if one.is_known_to(namespaces) else _nameless(one, numbers) for one in self.referents)
            words = phrase(self.referents, namespaces, count=self.count)
            known = self._for_readers[namespaces] = replace(self, phrase=words, referents=tuple(kept))
        return known


References = tuple[Reference, ...]
"""The references of a message, in the order of their phrases."""


def refer(referents: Iterable[Referent], *, detail: str = "", count: int = 0) -> Reference:
    """Return a reference to objects, with the phrase for any reader. count: of all objects; these are the first.

    If there are many, only those that hold most are kept, since every status with the reference lists them.
    """
    found = tuple(referents)
    if len(found) > LISTED:
        count = max(count, len(found))
        found = tuple(sorted(found, key=lambda one: -one.devices)[:LISTED])
    return Reference(phrase=phrase(found, NOWHERE, count=count), referents=found, detail=detail, count=count)


def words(message: str, references: References, audience: Audience) -> str:
    """Return a message in the words for a reader."""
    return rephrase(message, references, tuple(reference.for_reader(audience) for reference in references))


def render(message: str, references: References, audience: Audience) -> tuple[str, References]:
    """Return a message in the words for a reader, and its references, without the names that the reader may not know.

    A phrase that is not found, as in a message that was cut, is not replaced.
    """
    rendered = tuple(reference.for_reader(audience) for reference in references)
    return rephrase(message, references, rendered), rendered


def rephrase(message: str, before: References, after: References) -> str:
    """Return a message with the phrases of its references replaced by those of other references, one for each."""
    parts: list[str] = []
    begin = 0
    for old, new in zip(before, after, strict=True):
        at = message.find(old.phrase, begin)
        if at >= 0 and old.phrase:
            parts += message[begin:at], new.phrase
            begin = at + len(old.phrase)
    return "".join((*parts, message[begin:]))


def listed(reference: Reference, audience: Audience) -> list[str]:
    """Return the objects of a reference for the details, as a reader may know them."""
    return [*reference.for_reader(audience).listing]


def resolve(references: References, keys: Mapping[str, str]) -> References:
    """Return references with the names that are known by UID. keys: `namespace/name` by UID."""
    if not keys:
        return references
    return _mapped(
        references,
        lambda one: replace(one, key=one.key or keys.get(one.uid, ""), gang=one.gang or keys.get(one.gang_uid, "")),
    )


def identify(reference: Reference, find: Callable[[Referent], Referent]) -> Reference:
    """Return a reference with what `find` adds to its objects, as their UIDs and queues, in the words for any reader.

    It is for a status: if there are many objects, only the first are kept one by one, and claims are replaced by their
    gangs.
    """
    found = _condensed(tuple(map(find, reference.referents)))
    return replace(reference, phrase=phrase(found, NOWHERE, count=reference.count), referents=found)


def _condensed(referents: tuple[Referent, ...]) -> tuple[Referent, ...]:
    if len(referents) <= KEPT:
        return referents
    gangs: dict[tuple[Kind, str], Referent] = {}
    for referent in referents:
        one = referent
        if referent.kind is Kind.CLAIM and referent.gang:
            one = replace(referent, kind=Kind.GANG, key=referent.gang, uid=referent.gang_uid, gang="", gang_uid="")
        known = gangs.get((one.kind, one.key))
        gangs[one.kind, one.key] = one if known is None else replace(known, devices=known.devices + one.devices)
    groups: dict[tuple[Kind, str], Referent] = {}
    for one in [*gangs.values()][KEPT:]:
        group = groups.get((one.kind, one.queue), Referent(kind=one.kind, queue=one.queue, count=0))
        groups[one.kind, one.queue] = replace(group, count=group.count + 1, devices=group.devices + one.devices)
    return (*[*gangs.values()][:KEPT], *groups.values())


def decode(readers: Iterable[Reader], namespace: str) -> References:
    """Decode the references in the status of an object of a namespace; a kind of a newer Muster is left out."""
    return tuple(
        Reference(
            phrase=reader.text("text"),
            referents=tuple(
                _decode_referent(one, namespace) for one in reader.children("objects") if one.text("kind") in set(Kind)
            ),
            detail=reader.text("detail"),
            count=reader.integer("count"),
        )
        for reader in readers
    )


def _decode_referent(reader: Reader, namespace: str) -> Referent:
    name, gang = reader.text("name"), reader.text("gang")
    return Referent(
        kind=Kind(reader.text("kind")),
        key=f"{namespace}/{name}" if name else "",
        uid=reader.text("uid"),
        gang=f"{namespace}/{gang}" if gang else "",
        gang_uid=reader.text("gangUID"),
        queue=reader.text("queue"),
        devices=reader.integer("devices"),
        note=reader.text("note"),
        count=max(1, reader.integer("count")),
    )


def uids(references: References) -> set[str]:
    """Return the UIDs of objects without a name."""
    own = {one.uid for reference in references for one in reference.referents if not one.key}
    gangs = {one.gang_uid for reference in references for one in reference.referents if not one.gang}
    return {uid for uid in own | gangs if uid and not uid.startswith(NUMBERED)}


def unidentified(references: References) -> set[str]:
    """Return the gangs, `namespace/name`, of which the references have no UID."""
    referents = [one for reference in references for one in reference.referents]
    gangs = {one.key for one in referents if one.kind is Kind.GANG and not one.uid}
    return (gangs | {one.gang for one in referents if one.kind is Kind.CLAIM and not one.gang_uid}) - {""}


def namespaces(references: References) -> set[str]:
    """Return the namespaces of all objects with a name."""
    return {namespace for reference in references for namespace in reference.namespaces}


def mentioned(text: str) -> set[str]:
    """Return the namespaces of everything that a text names as `namespace/name`."""
    return {found[1] for found in _KEY.finditer(text)}


def conceal(text: str, audience: Audience) -> str:
    """Return a text of the ledger without what it names in namespaces that a reader may not know.

    The ledger keeps names for ever, and has no references for texts of older versions. A text that looks like a name is
    concealed as well.
    """
    return _KEY.sub(lambda found: found[0] if found[1] in audience else CONCEALED, text)


CONCEALED = "(of another namespace)"

_LABEL = "[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_KEY = re.compile(rf"(?<![\w./-])(?!docs/[\w-]+\.md\b)({_LABEL})/[a-z0-9](?:[-a-z0-9.]{{0,251}}[a-z0-9])?(?![\w/])")
"""`namespace/name`; a device has two slashes, a label's key or a class a dot before its slash, and pages are ours."""


def phrase(referents: Sequence[Referent], audience: Audience, *, count: int = 0) -> str:
    """Return objects in words for a reader. count: how many there are, if more than these."""
    known = [one for one in referents if one.is_known_to(audience)]
    shown = known[:MOST_NAMED]
    parts = [one.name for one in shown]
    if len(shown) > 1 and all(one.kind is Kind.GANG for one in shown):
        parts = [f"gangs {shown[0].key}", *(one.key for one in shown[1:])]
    groups, others = _grouped(one for one in referents if not one.is_known_to(audience))
    parts += groups
    more = len(known) - len(shown) + others + max(0, count - _total(referents))
    if more:
        parts.append(f"{more} more")
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1]))) if parts else "others"


def _mapped(references: References, change: Callable[[Referent], Referent]) -> References:
    return tuple(replace(one, referents=tuple(map(change, one.referents))) for one in references)


def _nameless(referent: Referent, numbers: dict[str, str]) -> Referent:
    """Return an object without its name. numbers: of gangs without a UID, so that claims of one gang stay together."""
    gang_uid = referent.gang_uid
    if referent.gang and not gang_uid:
        gang_uid = numbers.setdefault(referent.gang, f"{NUMBERED}{len(numbers)}")
    return replace(referent, key="", gang="", note="", gang_uid=gang_uid)


def _grouped(hidden: Iterable[Referent]) -> tuple[list[str], int]:
    """Return objects without their names: how many there are of each queue, and what they hold, the largest first.

    The number is that of the objects of further groups.
    """
    groups: dict[tuple[str, str], tuple[set[str], int, int]] = {}
    for number, one in enumerate(hidden):
        noun = _NOUNS[Kind.GANG] if one.is_of_gang else _NOUNS[one.kind]
        identity = (one.key or one.uid) if one.kind is Kind.GANG or not one.is_of_gang else (one.gang or one.gang_uid)
        members, others, devices = groups.get((noun, one.queue), (set[str](), 0, 0))
        members.add(identity or f"{NUMBERED}{number}")
        groups[noun, one.queue] = members, others + one.count - 1, devices + one.devices
    counted = [(-devices, -len(members) - others, *key) for key, (members, others, devices) in groups.items()]
    ordered = sorted(counted)
    parts = [_group(noun, queue, -count, -devices) for devices, count, noun, queue in ordered[:MOST_NAMED]]
    return parts, sum(-count for _, count, _, _ in ordered[MOST_NAMED:])


def _total(referents: Iterable[Referent]) -> int:
    return sum(one.count for one in referents)


def _group(noun: str, queue: str, count: int, devices: int) -> str:
    who = f"a {noun}" if count == 1 else f"{count} {noun}s"
    of = f" of queue {queue}" if queue else ""
    holds = f" that {'holds' if count == 1 else 'hold'} {devices} device{'' if devices == 1 else 's'}"
    return f"{who}{of}{holds if devices else ''}"
