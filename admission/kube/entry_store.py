"""The entries of one object of Muster's own that several processes share: a Secret, or a ConfigMap.

A writer names the version that it has read, so of two concurrent writers one fails and reads again.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from admission.api.values import names
from admission.errors import ConflictError, GoneError
from admission.kube.client import paths
from admission.kube.client.connection import Connection, Request
from admission.kube.client.errors import AbsentEndpointError


class EntryStore:
    """The entries of one object; a kind says how its `data` is written."""

    kind: ClassVar[str]
    plural: ClassVar[str]
    fields: ClassVar[Mapping[str, str]] = {}
    """Further fields of the object, beside its metadata and `data`."""

    def __init__(self, connection: Connection, *, namespace: str, name: str) -> None:
        self._connection = connection
        self._namespace = namespace
        self._name = name
        self._collection = paths.within("/api/v1", namespace, self.plural)

    async def read(self) -> tuple[Mapping[str, bytes], str] | None:
        """Return the entries and their version; None when there is no such object. Raises FixError if unreadable."""
        try:
            found = await self._connection.get(self._path)
        except AbsentEndpointError:
            raise
        except GoneError:
            return None
        return self._decode(found.get("data") or {}), str(found["metadata"]["resourceVersion"])

    async def write(self, entries: Mapping[str, bytes], version: str | None) -> None:
        """Create the object, or replace the entries of a version.

        Raises ConflictError when it has another version, and FixError when the kind cannot hold the entries.
        """
        data = self._encode(entries)
        metadata: dict[str, Any] = {"name": self._name, "namespace": self._namespace}
        metadata["labels"] = {names.MANAGED_BY: names.FIELD_MANAGER}
        body = {"apiVersion": "v1", "kind": self.kind, **self.fields, "metadata": metadata, "data": data}
        if version is None:
            await self._connection.post(self._collection, body)
            return
        metadata["resourceVersion"] = version
        try:
            await self._connection.send(Request(method="PUT", path=self._path, body=body))
        except GoneError as error:
            raise ConflictError(f"{self._identity} was deleted meanwhile") from error

    def _decode(self, data: Mapping[str, Any]) -> dict[str, bytes]:
        raise NotImplementedError

    def _encode(self, entries: Mapping[str, bytes]) -> dict[str, str]:
        raise NotImplementedError

    @property
    def _identity(self) -> str:
        return f"{self.kind} {self._namespace}/{self._name}"

    @property
    def _path(self) -> str:
        return paths.join(self._collection, self._name)
