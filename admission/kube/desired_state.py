"""Objects whose whole spec Muster keeps: watched, compared with the wanted spec, and written again when they differ.

Server-side apply is not enough: it would keep fields that another client adds, such as an exception to a policy. So an
object that differs is replaced as a whole. `fence_controller` uses this module.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import structlog

from admission.api.kubernetes import meta
from admission.api.kubernetes.meta import Meta
from admission.api.values import names
from admission.api.values.decoding import Json, Reader
from admission.errors import FixError, GoneError
from admission.kube.cache.store import Store
from admission.kube.cache.watched_resources import Kind
from admission.kube.client import paths
from admission.kube.client.connection import Connection, Request
from admission.kube.client.errors import ExistsError

log = structlog.get_logger(__name__)

TRUSTED_AGE = timedelta(seconds=60)
"""The age from which `metadata.created` is trusted as the object's age, since clocks differ by less."""

LABELS = {names.MANAGED_BY: names.FIELD_MANAGER}

Identity = tuple[str, int]
"""UID and generation, which counts the changes of an object's spec."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """A stored object: its metadata, and the whole object."""

    meta: Meta
    body: Json

    @property
    def identity(self) -> Identity:
        return self.meta.uid, self.meta.generation


def kind(name: str, group: str, plural: str, *older: str, optional: bool = False) -> Kind:
    """Return a kind for `Objects`. older, optional: as in `Kind`."""
    return Kind(
        name=name,
        group=group,
        version="v1",
        plural=plural,
        field="",
        decode=_decode,
        older=older,
        optional=optional,
        all_fields=True,
    )


class Objects:
    """The objects of some kinds. store: must be fed by a `reflector.watch`. clock: for `since`."""

    def __init__(self, connection: Connection, kinds: Iterable[Kind], clock: Callable[[], datetime]) -> None:
        self.store = Store(kinds)
        self._connection = connection
        self._clock = clock
        self._since: dict[tuple[str, str], tuple[Identity, datetime]] = {}

    def all(self, kind: Kind) -> Mapping[str, StoredObject]:
        """Return the objects of a kind by name."""
        found: Mapping[str, StoredObject] = self.store.tables[kind].freeze()
        return found

    def find(self, kind: Kind, name: str) -> StoredObject | None:
        """Return an object that exists and is not being deleted."""
        found: StoredObject | None = self.store.tables[kind].find(name)
        return None if found is None or found.meta.deleted is not None else found

    def since(self, kind: Kind, name: str) -> datetime | None:
        """Return since when an object has had its present spec, as far as was observed or as its age proves."""
        found = self.find(kind, name)
        if found is None:
            return None
        known = self._since.get((kind.name, name))
        if known is None or known[0] != found.identity:
            now, created = self._clock(), found.meta.created
            unchanged = found.meta.generation == 1 and now - created > TRUSTED_AGE
            known = (found.identity, created if unchanged else now)
            self._since[kind.name, name] = known
        return known[1]

    async def put(self, kind: Kind, name: str, spec: Json, *, version: str = "v1") -> None:
        """Create an object, or replace one whose spec differs.

        Raises FixError when the API server's answer has another spec, ConflictError when another client changes the
        object at the same time.
        """
        found = self.find(kind, name)
        if found is not None and has_spec(found.body, spec):
            return
        metadata: dict[str, Any] = {"name": name, "labels": LABELS}
        body = {"apiVersion": f"{kind.group}/{version}", "kind": kind.name, "metadata": metadata, "spec": spec}
        path = collection(kind, version)
        if found is None:
            try:
                answer = await self._connection.post(path, body)
            except ExistsError:
                return  # it was created a moment ago, and the watch has yet to deliver it
        else:
            metadata["resourceVersion"] = found.meta.resource_version
            answer = await self._connection.send(Request(method="PUT", path=paths.join(path, name), body=body))
        log.info("written", object=f"{kind.name} {name}", instead=found is not None)
        if not has_spec(answer, spec):
            raise FixError(f"{kind.name} {name} is not kept as Muster writes it: see who changes it, and stop that")

    async def remove(self, kind: Kind, name: str, *, version: str = "v1") -> None:
        """Delete an object. A no-op when it is gone."""
        found = self.find(kind, name)
        if found is None:
            return
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": found.meta.uid}}
        with contextlib.suppress(GoneError):
            await self._connection.delete(paths.join(collection(kind, version), name), options)
            log.info("removed", object=f"{kind.name} {name}")


def collection(kind: Kind, version: str) -> str:
    """Return the path of a kind's collection in one of its versions."""
    return f"/apis/{kind.group}/{version}/{kind.plural}"


def has_spec(body: Json, spec: Json) -> bool:
    """Return whether an object's spec equals this one, apart from `timeAdded`."""
    return bool(_without_time_added(body.get("spec")) == _without_time_added(spec))


def _without_time_added(value: Any) -> Any:
    """Return a value without `timeAdded`, which the API server writes into taints."""
    if isinstance(value, Mapping):
        return {key: _without_time_added(item) for key, item in value.items() if key != "timeAdded"}
    return [_without_time_added(item) for item in value] if isinstance(value, list) else value


def _decode(obj: Json) -> StoredObject:
    reader = Reader(obj)
    values = meta.decode(reader)
    reader.finish(str(obj.get("kind", "object")), values.key)
    return StoredObject(meta=values, body=obj)
