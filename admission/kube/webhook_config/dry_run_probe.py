"""A probe, by dry run, that the API server reaches the webhook and applies its patches; nothing is closed before.

The dry run creates a Lease in Muster's own namespace, where Muster has that permission anyway, and expects it back with
the annotation that the webhook adds at `/prove`. Host, port, certificates and readiness are those of all other
endpoints of the webhook. A probe by a pod would need permission to create pods, which Muster does not have.
"""

import asyncio

import structlog

from admission.api.values import names
from admission.errors import ForbiddenError, MusterError
from admission.kube.client import backoff, paths
from admission.kube.client.connection import Connection, Request
from admission.kube.webhook_config import registered_paths
from admission.kube.webhook_config.client_config import WebhookState

log = structlog.get_logger(__name__)

CHECK_SECONDS = 20.0
"""Seconds between two probes while they succeed."""

AGAIN_SECONDS = 10.0
"""Longest time between two probes while they fail."""

FAILURES_UNTIL_WARNING = 3
"""Failures in a row before a warning: the API server uses a new configuration only after a moment."""


async def keep(connection: Connection, state: WebhookState, *, namespace: str) -> None:
    """Probe the webhook until cancelled: record the first success, and warn when the webhook is no longer reached.

    After TELLING failures the configurations are written again, since another client may have changed them, such as a
    superseded process that listens at another address.

    A failing probe does not reopen namespaces. Otherwise pods would run outside the quota, and blocking the API server
    from Muster would be a way to bypass it. Namespaces stay closed until the cause is fixed, or the configurations are
    deleted.
    """
    await state.written.wait()
    failed = 0
    while True:
        trouble = await _trouble(connection, namespace)
        if trouble and failed == FAILURES_UNTIL_WARNING:
            log.warning("the API server does not reach the webhook", trouble=trouble, closed=state.proved)
        if trouble and failed >= FAILURES_UNTIL_WARNING:
            state.request_rewrite()
        if not trouble and not state.proved:
            state.prove()
        elif not trouble and failed > FAILURES_UNTIL_WARNING:
            log.info("the API server reaches the webhook")
        failed = failed + 1 if trouble else 0
        await asyncio.sleep(backoff.backoff(failed, base=0.2, longest=AGAIN_SECONDS) if failed else CHECK_SECONDS)


async def _trouble(connection: Connection, namespace: str) -> str:
    """Return why the API server is not known to reach the webhook, if only for want of a right; empty when it does."""
    try:
        return await probe(connection, namespace)
    except ForbiddenError as error:
        return registered_paths.masked(str(error))


async def probe(connection: Connection, namespace: str) -> str:
    """Return why the API server is not known to reach the webhook; empty when it does.

    Raises:
        ForbiddenError: who asks may not create Leases, or a webhook refuses them; nothing is known.
    """
    body = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"generateName": "muster-proof-", "labels": {names.PROOF: ""}},
    }
    path = paths.within("/apis/coordination.k8s.io/v1", namespace, "leases")
    try:
        answer = await connection.send(Request(method="POST", path=path, params={"dryRun": "All"}, body=body))
    except ForbiddenError:
        raise
    except MusterError as error:
        return registered_paths.masked(str(error))
    annotations = (answer.get("metadata") or {}).get("annotations") or {}
    return "" if annotations.get(names.PROOF) == names.SEEN else "a dry run came back without what the webhook adds"
