"""The common parts of Kubernetes objects: metadata, owners, and conditions of status."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import wraps
from typing import Any, Protocol, TypeVar

from admission.api.values.decoding import Json, Reader
from admission.api.values.names import Uid

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """One of metadata.ownerReferences."""

    api_version: str
    kind: str
    name: str
    uid: Uid
    controller: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """The part of ObjectMeta that Muster reads. `namespace` is empty for cluster-scoped objects."""

    name: str
    namespace: str = ""
    uid: Uid = Uid("")
    resource_version: str = ""
    generation: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    owners: tuple[Owner, ...] = ()
    finalizers: tuple[str, ...] = ()
    created: datetime = EPOCH
    deleted: datetime | None = None

    @property
    def key(self) -> str:
        """Return `namespace/name`, or the name of a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def controller(self) -> Owner | None:
        """Return the owner that manages the object, if any."""
        return next((owner for owner in self.owners if owner.controller), None)


class ConditionStatus(StrEnum):
    """metav1.ConditionStatus."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """metav1.Condition without its time, which the writer keeps while the status does not change."""

    type: str
    status: ConditionStatus
    reason: str
    message: str


class Object(Protocol):
    """A decoded object."""

    @property
    def meta(self) -> Meta: ...


T = TypeVar("T", bound=Object)


def decoder(kind: str) -> Callable[[Callable[[Reader], T]], Callable[[Json], T]]:
    """Return a decorator: what reads an object of a kind becomes a decoder that reports all of its problems at once."""

    def decorated(read: Callable[[Reader], T]) -> Callable[[Json], T]:
        @wraps(read)
        def decoded(obj: Json) -> T:
            reader = Reader(obj)
            result = read(reader)
            reader.finish(kind, result.meta.key)
            return result

        return decoded

    return decorated


def decode(reader: Reader) -> Meta:
    """Decode `metadata` of the reader's object."""
    meta = reader.child("metadata")
    return Meta(
        name=meta.text("name"),
        namespace=meta.text("namespace"),
        uid=Uid(meta.text("uid")),
        resource_version=meta.text("resourceVersion"),
        generation=meta.integer("generation"),
        labels=meta.pairs("labels"),
        annotations=meta.pairs("annotations"),
        owners=tuple(map(_owner, meta.children("ownerReferences"))),
        finalizers=meta.texts("finalizers"),
        created=meta.time("creationTimestamp") or EPOCH,
        deleted=meta.time("deletionTimestamp"),
    )


def _owner(reader: Reader) -> Owner:
    return Owner(
        api_version=reader.text("apiVersion"),
        kind=reader.text("kind"),
        name=reader.text("name"),
        uid=Uid(reader.text("uid")),
        controller=reader.flag("controller"),
    )


def name_in(obj: Any) -> str:
    """Return `namespace/name` of a JSON value for messages, even of a malformed one."""
    meta = obj.get("metadata") if isinstance(obj, Mapping) else None
    if not isinstance(meta, Mapping):
        return "(unnamed)"
    name = str(meta.get("name") or meta.get("generateName") or "(unnamed)")
    return f"{meta['namespace']}/{name}" if meta.get("namespace") else name


def controller_in(obj: Any) -> str:
    """Return the UID of a JSON value's controller, even of a malformed one; empty if it has none."""
    meta = obj.get("metadata") if isinstance(obj, Mapping) else None
    owners = meta.get("ownerReferences") if isinstance(meta, Mapping) else None
    listed = owners if isinstance(owners, list) else ()
    found = (one for one in listed if isinstance(one, Mapping) and one.get("controller"))
    return str(next(found, {}).get("uid") or "")
