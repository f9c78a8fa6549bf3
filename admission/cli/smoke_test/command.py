"""`muster smoke-test`: has an installation admit a gang, and deletes what that took."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import typer

from admission.api.muster.gangs import GangReport, Phase
from admission.api.values.decoding import Json
from admission.cli import apps, cluster_options, terminal
from admission.cli.cluster_options import Cluster, ContextOption, KubeconfigOption
from admission.cli.init import live_cluster
from admission.cli.smoke_test import objects
from admission.errors import ClusterUnavailableError, FixError, GoneError
from admission.kube.cache import watched_resources
from admission.kube.cache.watched_resources import Kind
from admission.kube.client import bounded_wait, paths

app = apps.single()

NOT_ADMITTED = 3

REMOVAL_SECONDS = 60.0
"""How long to wait until an object is gone: a Queue stays until its gang is settled, a namespace until it is empty."""

IN_ORDER = (
    (watched_resources.METERS, objects.meter),
    (watched_resources.NAMESPACES, objects.namespace),
    (watched_resources.QUEUES, objects.queue),
)
"""What the Job needs, in the order in which it is created; it is deleted the other way round."""

EPILOG = apps.epilog(
    (
        "muster smoke-test",
        "muster smoke-test --image registry.example.com/muster:0.1.0",
        "helm test muster -n muster-system",
    ),
    "It needs no device and no driver: it creates a Meter of pods, a namespace and a Queue, all named "
    "muster-smoke-test, and a Job of two pods, which are held at the webhook, admitted together and started. Then it "
    "deletes them; the ledger keeps the entries of the gang. What a killed run left is removed by the next one.",
    "Exit codes: 0 the gang was admitted, 1 the cluster does not answer or nothing is admitted in time, 2 a right is "
    "missing or an object of that name is somebody else's, 3 the gang waits, and why.",
)


@app.command(epilog=EPILOG)
def smoke_test(
    *,
    image: Annotated[str, typer.Option(help="Image of the pods; it needs `true`.")] = objects.IMAGE,
    timeout: Annotated[
        float, typer.Option(min=1, max=3600, help="Seconds within which the gang has to start.")
    ] = live_cluster.START_SECONDS,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Have Muster admit a gang of two pods without devices, and delete it again."""

    async def try_it(cluster: Cluster) -> GangReport | None:
        async with _prepared(cluster):
            return await _admitted(cluster, image, timeout)

    gang = cluster_options.query(try_it, kubeconfig=kubeconfig, context=context)
    if gang is None:
        raise ClusterUnavailableError(
            f"no gang of Job {objects.NAME}/{objects.NAME} was seen within {timeout:.0f} s:"
            " `muster doctor` says what is wrong with webhook and controller"
        )
    if gang.phase not in _ADMITTED:
        reason = f": {gang.hold.reason}: {gang.hold.message}" if gang.hold is not None else ""
        terminal.error(f"gang {gang.key} is {gang.phase}{reason}")
        raise typer.Exit(NOT_ADMITTED)


_ADMITTED = (Phase.RUNNING, Phase.FINISHED)


@asynccontextmanager
async def _prepared(cluster: Cluster) -> AsyncIterator[None]:
    """Create what the Job needs, and delete everything afterwards, whatever happens meanwhile."""
    await _remove(cluster)
    try:
        for kind, make in IN_ORDER:
            await cluster.connection.post(kind.path, make())
        await live_cluster.wait_active(cluster, objects.NAME)
        terminal.say(f"queue {objects.NAME} is active")
        yield
    finally:
        await asyncio.shield(_remove(cluster))


async def _admitted(cluster: Cluster, image: str, seconds: float) -> GangReport | None:
    """Create the Job and return its gang when it runs or has finished, else as it is when the time is over."""
    jobs = paths.within("/apis/batch/v1", objects.NAME, "jobs")
    began = time.monotonic()
    await cluster.connection.post(jobs, objects.job(image))
    gang = await live_cluster.gang_of(cluster, objects.NAME, objects.NAME, seconds=seconds)
    if gang is not None and gang.phase in _ADMITTED:
        elapsed = time.monotonic() - began
        terminal.say(f"gang {gang.key} of {objects.SIZE} pods was admitted and started within {elapsed:.1f} s")
    return gang


async def _remove(cluster: Cluster) -> None:
    """Delete the Job, the namespace, the Queue and the Meter, each when the one before is gone.

    Raises FixError before anything is deleted if one of them is not this command's.
    """
    found = [kind for kind, _ in IN_ORDER if await _is_found(cluster, kind)]
    if watched_resources.NAMESPACES in found:
        # The gang is settled when its pods are gone, before its namespace is.
        job = paths.join(paths.within("/apis/batch/v1", objects.NAME, "jobs"), objects.NAME)
        await _delete(cluster, job, {"propagationPolicy": "Background"})
    for kind in (watched_resources.NAMESPACES, watched_resources.QUEUES, watched_resources.METERS):
        if kind in found:
            await _delete(cluster, paths.join(kind.path, objects.NAME))
            await _wait_gone(cluster, kind)


async def _is_found(cluster: Cluster, kind: Kind) -> bool:
    """Return whether the object of a kind exists. Raises FixError if it is not this command's."""
    found = await cluster.get_object(kind, objects.NAME)
    if found is None:
        return False
    labels = (found.get("metadata") or {}).get("labels") or {}
    if not objects.OWNED.items() <= labels.items():
        label, value = next(iter(objects.OWNED.items()))
        raise FixError(
            f"{kind.name} {objects.NAME} exists without the label {label}={value}, so it is somebody else's and nothing"
            " is tried: rename it, or delete it"
        )
    return True


async def _delete(cluster: Cluster, path: str, options: Json | None = None) -> None:
    try:
        await cluster.connection.delete(path, options)
    except GoneError:
        return


async def _wait_gone(cluster: Cluster, kind: Kind) -> None:
    """Wait until the object of a kind is gone. Raises ClusterUnavailableError after REMOVAL_SECONDS."""
    found = await bounded_wait.poll(
        lambda: cluster.get_object(kind, objects.NAME), lambda found: found is None, seconds=REMOVAL_SECONDS
    )
    if found is not None:
        raise ClusterUnavailableError(
            f"{kind.name} {objects.NAME} is not gone {REMOVAL_SECONDS:.0f} s after it was deleted:"
            f" `kubectl describe {kind.plural} {objects.NAME}` says what keeps it; run this again to remove it"
        )
