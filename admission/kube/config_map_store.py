"""A ConfigMap of Muster's own, with texts that anybody with the right to it may read: the real `ports.EntryStore`.

A writer names the version that it has read, so of two concurrent writers one fails and reads again.
"""

from collections.abc import Mapping

from admission.api.values import names
from admission.errors import ConflictError, FixError, GoneError
from admission.kube.client import paths
from admission.kube.client.connection import Connection, Request
from admission.kube.client.errors import AbsentEndpointError

MOST_BYTES = 1_000_000
"""The API server takes objects of about this size (etcd's limit is 1.5 MiB, a ConfigMap's data 1 MiB)."""


class ConfigMapStore:
    """The entries of one ConfigMap."""

    def __init__(self, connection: Connection, *, namespace: str, name: str) -> None:
        self._connection = connection
        self._name = name
        self._namespace = namespace
        self._collection = paths.within("/api/v1", namespace, "configmaps")

    async def read(self) -> tuple[Mapping[str, bytes], str] | None:
        """Return the entries and their version; None when there is no such ConfigMap."""
        try:
            found = await self._connection.get(self._path)
        except AbsentEndpointError:
            raise
        except GoneError:
            return None
        entries = {str(key): str(text).encode() for key, text in (found.get("data") or {}).items()}
        return entries, str(found["metadata"]["resourceVersion"])

    async def write(self, entries: Mapping[str, bytes], version: str | None) -> None:
        """Create the ConfigMap, or replace the entries of a version.

        Raises ConflictError when it has another version, and FixError when the entries are too large for one.
        """
        size = sum(map(len, entries.values()))
        if size > MOST_BYTES:
            raise FixError(f"ConfigMap {self._namespace}/{self._name}: {size} bytes are more than {MOST_BYTES}")
        metadata = {"name": self._name, "namespace": self._namespace, "labels": {names.MANAGED_BY: names.FIELD_MANAGER}}
        data = {key: value.decode() for key, value in entries.items()}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        if version is None:
            await self._connection.post(self._collection, body)
            return
        body["metadata"] = {**metadata, "resourceVersion": version}
        try:
            await self._connection.send(Request(method="PUT", path=self._path, body=body))
        except GoneError as error:
            raise ConflictError(f"ConfigMap {self._namespace}/{self._name} was deleted meanwhile") from error

    @property
    def _path(self) -> str:
        return paths.join(self._collection, self._name)
