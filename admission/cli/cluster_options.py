"""The commands' connection to a cluster, and the options that select it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from admission.api.values.decoding import Json
from admission.errors import FixError, GoneError
from admission.kube.cache.watched_resources import Kind
from admission.kube.client import paths
from admission.kube.client.connection import Connection, RetryPolicy
from admission.kube.client.credentials import ClusterSelection

T = TypeVar("T")

RETRY_POLICY = RetryPolicy(tries=3, timeout=15.0)
"""The user waits: two more tries within seconds, then the error."""

PAGE = 500

KubeconfigOption = Annotated[
    Path | None,
    typer.Option("--kubeconfig", help="By default $KUBECONFIG, else the pod's service account, else ~/.kube/config."),
]
ContextOption = Annotated[str | None, typer.Option("--context", help="The kubeconfig's context to use.")]


@dataclass(frozen=True, slots=True)
class Cluster:
    """An open connection, for whole objects."""

    connection: Connection

    async def list_objects(self, kind: Kind, namespace: str = "", *, labels: str = "") -> list[Json]:
        """Return all objects of a kind, of one namespace if it is given, and with some labels if it asks for them.

        Raises FixError if the kind is not installed.
        """
        path = kind.path if not namespace else _within(kind, namespace)
        found: list[Json] = []
        try:
            async for page in self.connection.pages(path, limit=PAGE, labels=labels):
                found += page.get("items") or ()
        except GoneError as error:
            raise FixError(
                f"the cluster at {self.connection.server} does not know {kind}: is Muster installed there?"
            ) from error
        return found

    async def get_object(self, kind: Kind, name: str, namespace: str = "") -> Json | None:
        """Return an object; None if it does not exist."""
        path = kind.path if not namespace else _within(kind, namespace)
        try:
            return await self.connection.get(paths.join(path, name))
        except GoneError:
            return None


def query(fetch: Callable[[Cluster], Awaitable[T]], *, kubeconfig: Path | None, context: str | None) -> T:
    """Connect, return the result of the question, and disconnect."""

    async def fetched() -> T:
        place = ClusterSelection(kubeconfig=kubeconfig, context=context)
        async with Connection(place, retry_policy=RETRY_POLICY, warns=False) as connection:
            return await fetch(Cluster(connection))

    return asyncio.run(fetched())


def split_name(text: str, namespace: str) -> tuple[str, str]:
    """Return namespace and name of an argument that is a name or namespace/name. namespace: where it names none."""
    named, _, name = text.rpartition("/")
    return named or namespace, name


def _within(kind: Kind, namespace: str) -> str:
    root, _, plural = kind.path.rpartition("/")
    return paths.within(root, namespace, plural)
