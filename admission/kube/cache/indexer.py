"""All objects of one kind, as last seen; `reflector` feeds a table, `store` freezes it.

What was frozen never changes: the first change after a freeze goes to a copy. So a snapshot costs one copy for each
kind that changed since the last one, and nothing for the others.
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


class Changed(Protocol):
    """Called with the key of every object that was added, changed or removed.

    news: whether it differs in anything that is read of it, beside its resourceVersion.
    """

    def __call__(self, kind: Kind, key: str, *, news: bool) -> None: ...


class _Malformed(NamedTuple):
    name: str
    meta: Meta
    error: MalformedObjectError


class Table:
    """The objects of one kind by key, those that cannot be read, and whether all of them have been listed."""

    def __init__(self, kind: Kind, changed: Changed) -> None:
        self.kind = kind
        self.listed = False
        self.trouble = "not listed yet"
        """Why the table may be out of date; empty while the watch runs."""
        self.heard = time.monotonic()
        """When the API server last said anything of the kind, on a monotonic clock; before that, when we began."""
        self.events = 0
        """Changes and bookmarks that it told."""
        self.lists = 0
        """How often the kind was listed."""
        self.unseen = ""
        """Why nothing is known of the kind at all: it is not served, or Muster may not read it."""
        self._changed = changed
        self._objects: Version[str, Any] = Version()
        self._frozen = False
        self._versions: dict[str, str] = {}
        self._malformed: dict[str, _Malformed] = {}

    def put(self, obj: Json) -> str:
        """Take an object over, unless this version of it is known, and return its key; empty when it has none."""
        key, version = self._key(obj), _meta(obj).get("resourceVersion")
        if not key or (version and version == self._versions.get(key)):
            return key
        news = True
        try:
            value = self.kind.decode(obj)
        except MalformedObjectError as error:
            self._set_aside(key, obj, error)
        except Exception as error:  # noqa: BLE001 - whatever one object does to its decoder, the others are still read
            problem = Problem(".", f"cannot be read: {type(error).__name__}: {error}")
            self._set_aside(key, obj, MalformedObjectError(self.kind.name, meta.name_in(obj), (problem,)))
        else:
            flawless = self._malformed.pop(key, None) is None
            news = not (flawless and _same(self._objects.get(key), value))
            if news or not self.kind.stays(value):
                self._thawed().put(key, value)
        self._versions[key] = str(version or "")
        self._changed(self.kind, key, news=news)
        return key

    def drop(self, obj: Json) -> None:
        """Forget an object that was deleted."""
        self._forget(self._key(obj))

    def keep_only(self, keys: set[str]) -> None:
        """Forget what a complete list did not name: it was deleted while nobody watched."""
        for key in self._versions.keys() - keys:
            self._forget(key)
        self.listed = True

    def is_behind(self, obj: Json) -> bool:
        """Return whether an object is not known yet, or only in an older version than this one."""
        known, version = self._versions.get(self._key(obj)), str(_meta(obj).get("resourceVersion") or "")
        if known is None:
            return True
        # Versions are numbers that grow, which Kubernetes promises since 1.35 and has always kept.
        return known.isdecimal() and version.isdecimal() and int(known) < int(version)

    def hear(self) -> None:
        """Note that the API server said something of the kind."""
        self.heard = time.monotonic()

    def __len__(self) -> int:
        return len(self._versions)

    def find(self, key: str) -> Any | None:
        """Return one object."""
        return self._objects.get(key)

    def knows(self, key: str) -> bool:
        """Return whether an object is there, readable or not."""
        return key in self._versions

    def freeze(self) -> Mapping[str, Any]:
        """Return the objects as they are now, for ever."""
        self._frozen = True
        return self._objects

    def malformed(self) -> dict[tuple[str, str], MalformedObjectError]:
        """Return what cannot be read, by kind and `namespace/name`."""
        return {(self.kind.name, found.name): found.error for found in self._malformed.values()}

    def unread(self) -> dict[str, Meta]:
        """Return the metadata of what cannot be read, by `namespace/name`."""
        return {found.name: found.meta for found in self._malformed.values()}

    def _key(self, obj: Json) -> str:
        if self.kind.by_uid:
            return str(_meta(obj).get("uid") or "")
        return meta.name_in(obj) if _meta(obj).get("name") else ""

    def _set_aside(self, key: str, obj: Json, error: MalformedObjectError) -> None:
        # The last readable version goes too: decisions must not rest on what is no longer so.
        if key in self._objects:
            self._thawed().drop(key)
        self._malformed[key] = _Malformed(meta.name_in(obj), meta.decode(Reader(obj)), error)

    def _forget(self, key: str) -> None:
        if self._versions.pop(key, None) is None:
            return
        self._malformed.pop(key, None)
        if key in self._objects:
            self._thawed().drop(key)
        self._changed(self.kind, key, news=True)

    def _thawed(self) -> Version[str, Any]:
        if self._frozen:
            self._objects = Version(self._objects)
            self._frozen = False
        return self._objects


def _same(before: Any, after: Any) -> bool:
    """Return whether an object is as it was, but for its version: a status that nobody reads was written."""
    if before is None:
        return False
    if isinstance(after, Meta):
        return bool(replace(before, resource_version=after.resource_version) == after)
    seen = replace(before.meta, resource_version=after.meta.resource_version)
    return bool(replace(before, meta=seen) == after)


def _meta(obj: Json) -> Mapping[str, Any]:
    found = obj.get("metadata")
    return found if isinstance(found, Mapping) else {}
