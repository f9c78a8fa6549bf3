"""Shell completion of the names of the cluster's queues and gangs.

The user waits after pressing Tab, so the cluster is asked once with a short timeout; without an answer there are no
names.
"""

import asyncio
from pathlib import Path
from typing import Any

import typer

from admission.api.values.decoding import Json
from admission.cli.cluster_options import Cluster
from admission.kube.cache import watched_resources
from admission.kube.cache.watched_resources import Kind
from admission.kube.client.connection import Connection, RetryPolicy
from admission.kube.client.credentials import ClusterSelection

RETRY_POLICY = RetryPolicy(tries=1, timeout=1.5)
"""One try, with the longest acceptable wait after Tab in seconds."""


def queues(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of queues with this beginning."""
    return _with_prefix(
        incomplete, [found["metadata"]["name"] for found in _list_or_empty(ctx, watched_resources.QUEUES)]
    )


def gangs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of gangs with this beginning, with their namespace unless the command line has one."""
    namespace = ctx.params.get("namespace")
    named = "" if namespace in (None, "", "default") else str(namespace)
    found = [obj["metadata"] for obj in _list_or_empty(ctx, watched_resources.GANGS, named)]
    return _with_prefix(
        incomplete, [metadata["name"] if named else f"{metadata['namespace']}/{metadata['name']}" for metadata in found]
    )


def _with_prefix(incomplete: str, found: list[str]) -> list[str]:
    return sorted(name for name in found if name.startswith(incomplete))


def _list_or_empty(ctx: typer.Context, kind: Kind, namespace: str = "") -> list[Json]:
    try:
        return asyncio.run(_list(ctx.params, kind, namespace))
    except Exception:  # noqa: BLE001 - a prompt is no place for errors; the command itself will tell them
        return []


async def _list(params: dict[str, Any], kind: Kind, namespace: str) -> list[Json]:
    kubeconfig, context = params.get("kubeconfig"), params.get("context")
    place = ClusterSelection(kubeconfig=Path(kubeconfig) if kubeconfig else None, context=context)
    async with (
        asyncio.timeout(RETRY_POLICY.timeout),
        Connection(place, retry_policy=RETRY_POLICY, warns=False) as connection,
    ):
        return await Cluster(connection).list_objects(kind, namespace)
