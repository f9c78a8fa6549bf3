"""All objects of one kind, as last seen; `reflector` feeds a table, `store` freezes it.

A frozen mapping never changes: the first change after a freeze goes to a copy. So a snapshot costs one copy for each
kind that changed since the last snapshot, and nothing for the others.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from admission.api.kubernetes import meta
from admission.api.kubernetes.meta import Meta
from admission.api.snapshot import Version
from admission.api.values.decoding import Json, Reader
from admission.errors import MalformedObjectError, Problem
from admission.kube.cache.watched_resources import Kind


class ChangeHandler(Protocol):
    """Called with the key of every object that was added, changed or removed.

    content_changed: whether the decoded object differs in more than its resourceVersion.
    """

    def __call__(self, kind: Kind, key: str, *, content_changed: bool) -> None: ...


class _Malformed(NamedTuple):
    name: str
    meta: Meta
    error: MalformedObjectError


class Table:
    """The objects of one kind by key, those that cannot be read, and whether all of them have been listed."""

    def __init__(self, kind: Kind, changed: ChangeHandler) -> None:
        self.kind = kind
        self.listed = False
        self.trouble = "not listed yet"
        """Why the table may be out of date; empty while the watch runs."""
        self.last_answer = time.monotonic()
        """Monotonic time of the API server's latest answer for the kind; before the first one, of the start."""
        self.events = 0
        """Number of changes and bookmarks received."""
        self.lists = 0
        """Number of complete lists."""
        self.unavailable = ""
        """Why the kind cannot be read at all: it is not served, or Muster lacks the permission."""
        self._changed = changed
        self._objects: Version[str, Any] = Version()
        self._frozen = False
        self._versions: dict[str, str] = {}
        self._malformed: dict[str, _Malformed] = {}

    def put(self, obj: Json) -> str:
        """Store an object, unless this version of it is stored, and return its key; empty when it has none."""
        key, version = self._key(obj), _meta(obj).get("resourceVersion")
        if not key or (version and version == self._versions.get(key)):
            return key
        content_changed = True
        try:
            value = self.kind.decode(obj)
        except MalformedObjectError as error:
            self._put_malformed(key, obj, error)
        except Exception as error:  # noqa: BLE001 - one object that breaks its decoder must not stop the others
            problem = Problem(".", f"cannot be read: {type(error).__name__}: {error}")
            self._put_malformed(key, obj, MalformedObjectError(self.kind.name, meta.name_in(obj), (problem,)))
        else:
            was_readable = self._malformed.pop(key, None) is None
            content_changed = not (was_readable and _equal_but_version(self._objects.get(key), value))
            if content_changed or not self.kind.ignores_version(value):
                self._writable().put(key, value)
        self._versions[key] = str(version or "")
        self._changed(self.kind, key, content_changed=content_changed)
        return key

    def drop(self, obj: Json) -> None:
        """Remove an object that was deleted."""
        self._remove(self._key(obj))

    def keep_only(self, keys: set[str]) -> None:
        """Remove the objects that are missing from a complete list: they were deleted between two watches."""
        for key in self._versions.keys() - keys:
            self._remove(key)
        self.listed = True

    def is_behind(self, obj: Json) -> bool:
        """Return whether the table lacks an object, or has an older version of it."""
        known = self._versions.get(self._key(obj))
        return known is None or _is_older(known, str(_meta(obj).get("resourceVersion") or ""))

    def has_newer(self, key: str, version: str) -> bool:
        """Return whether an object is stored in a later version than this one."""
        return _is_older(version, self._versions.get(key, ""))

    def record_answer(self) -> None:
        """Record that the API server answered for the kind just now."""
        self.last_answer = time.monotonic()

    def __len__(self) -> int:
        return len(self._versions)

    def find(self, key: str) -> Any | None:
        """Return one object."""
        return self._objects.get(key)

    def knows(self, key: str) -> bool:
        """Return whether an object is stored, readable or not."""
        return key in self._versions

    def freeze(self) -> Mapping[str, Any]:
        """Return an immutable mapping of the present objects."""
        self._frozen = True
        return self._objects

    def malformed(self) -> dict[tuple[str, str], MalformedObjectError]:
        """Return the errors of unreadable objects, by kind and `namespace/name`."""
        return {(self.kind.name, found.name): found.error for found in self._malformed.values()}

    def unreadable(self) -> dict[str, Meta]:
        """Return the metadata of unreadable objects, by `namespace/name`."""
        return {found.name: found.meta for found in self._malformed.values()}

    def _key(self, obj: Json) -> str:
        if self.kind.by_uid:
            return str(_meta(obj).get("uid") or "")
        return meta.name_in(obj) if _meta(obj).get("name") else ""

    def _put_malformed(self, key: str, obj: Json, error: MalformedObjectError) -> None:
        # The last readable version is removed too: decisions must not rest on outdated content.
        if key in self._objects:
            self._writable().drop(key)
        self._malformed[key] = _Malformed(meta.name_in(obj), meta.decode(Reader(obj)), error)

    def _remove(self, key: str) -> None:
        if self._versions.pop(key, None) is None:
            return
        self._malformed.pop(key, None)
        if key in self._objects:
            self._writable().drop(key)
        self._changed(self.kind, key, content_changed=True)

    def _writable(self) -> Version[str, Any]:
        if self._frozen:
            self._objects = Version(self._objects)
            self._frozen = False
        return self._objects


def _equal_but_version(before: Any, after: Any) -> bool:
    """Return whether two decoded objects differ only in their version, as after a write to fields that are not read."""
    if before is None:
        return False
    if isinstance(after, Meta):
        return bool(replace(before, resource_version=after.resource_version) == after)
    versioned = replace(before.meta, resource_version=after.meta.resource_version)
    return bool(replace(before, meta=versioned) == after)


def _is_older(version: str, other: str) -> bool:
    """Compare two resourceVersions: ascending numbers, which Kubernetes guarantees since 1.35 and has always kept."""
    return version.isdecimal() and other.isdecimal() and int(version) < int(other)


def _meta(obj: Json) -> Mapping[str, Any]:
    found = obj.get("metadata")
    return found if isinstance(found, Mapping) else {}
