"""A Secret that several processes of Muster share, with the authorities of the webhook's certificates.

A writer names the version that it has read, so of two concurrent writers one fails and reads again.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from admission.api.values import names
from admission.errors import ConflictError, FixError, GoneError
from admission.kube.client import paths
from admission.kube.client.connection import Connection, Request
from admission.kube.client.errors import AbsentEndpointError


class SecretStore:
    """The entries of one Secret: the real `webhook.tls.rotation.Vault`."""

    def __init__(self, connection: Connection, *, namespace: str, name: str) -> None:
        self._connection = connection
        self._name = name
        self._namespace = namespace
        self._collection = paths.within("/api/v1", namespace, "secrets")

    async def read(self) -> tuple[Mapping[str, bytes], str] | None:
        """Return the entries and their version; None when there is no such Secret."""
        try:
            found = await self._connection.get(self._path)
        except AbsentEndpointError:
            raise
        except GoneError:
            return None
        try:
            entries = {key: base64.b64decode(text, validate=True) for key, text in (found.get("data") or {}).items()}
        except binascii.Error as error:
            raise FixError(f"Secret {self._namespace}/{self._name}: data is not base64: {error}") from error
        return entries, str(found["metadata"]["resourceVersion"])

    async def write(self, entries: Mapping[str, bytes], version: str | None) -> None:
        """Create the Secret, or replace the entries of a version. Raises ConflictError when it has another version."""
        metadata: dict[str, Any] = {"name": self._name, "namespace": self._namespace}
        metadata["labels"] = {names.MANAGED_BY: names.FIELD_MANAGER}
        data = {key: base64.b64encode(value).decode() for key, value in entries.items()}
        body = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata, "data": data}
        if version is None:
            await self._connection.post(self._collection, body)
            return
        metadata["resourceVersion"] = version
        try:
            await self._connection.send(Request(method="PUT", path=self._path, body=body))
        except GoneError as error:
            raise ConflictError(f"Secret {self._namespace}/{self._name} was deleted meanwhile") from error

    @property
    def _path(self) -> str:
        return paths.join(self._collection, self._name)
