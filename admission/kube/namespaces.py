"""Muster's own namespace, where its lease lives."""

import contextlib

from admission.errors import GoneError
from admission.kube.client import paths
from admission.kube.client.connection import Connection
from admission.kube.client.errors import ExistsError


async def ensure(connection: Connection, name: str) -> None:
    """Create the namespace unless it is there. Raises ForbiddenError, naming the permission, when that is refused."""
    try:
        await connection.get(paths.of("/api/v1/namespaces", name))
    except GoneError:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        with contextlib.suppress(ExistsError):
            await connection.post("/api/v1/namespaces", body)
