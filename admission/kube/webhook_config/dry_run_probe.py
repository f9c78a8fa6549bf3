"""Sees, by a dry run, whether the API server reaches the webhook and does what it says; until then nothing is closed.

The dry run makes a Lease in Muster's own namespace, where Muster may make Leases anyway, and expects it back with the
annotation that the webhook adds at `/prove`. Host, port, certificates and readiness are those of all other doors. A pod
would need the right to create pods, which Muster neither has nor wants.
"""

import asyncio

import structlog

from admission.api.values import names
from admission.errors import MusterError
from admission.kube.client import backoff, paths
from admission.kube.client.connection import Connection, Request
from admission.kube.webhook_config.client_config import Terms

log = structlog.get_logger(__name__)

CHECK_SECONDS = 20.0
"""Between two looks while all is well."""

AGAIN_SECONDS = 10.0
"""Longest time between two looks while it is not."""

TELLING = 3
"""After how many failures in a row it is said. The API server follows a new configuration a moment later."""


async def keep(connection: Connection, terms: Terms, *, namespace: str) -> None:
    """Prove the webhook, then look again for ever, and say when it is reached no longer, until cancelled.

    Then the configurations are written again: somebody may have changed them, as a process does that was overtaken and
    listens elsewhere.

    That alone opens nothing: pods that nobody judges would run beside the quota, and whoever wants that need only keep
    the API server from reaching Muster. Namespaces stay closed until it is fixed, or the configurations are deleted.
    """
    await terms.written.wait()
    failed = 0
    while True:
        trouble = await probe(connection, namespace)
        if trouble and failed == TELLING:
            log.warning("the API server does not reach the webhook", trouble=trouble, closed=terms.proved)
        if trouble and failed >= TELLING:
            terms.uncertainty()
        if not trouble and not terms.proved:
            terms.prove()
        elif not trouble and failed > TELLING:
            log.info("the API server reaches the webhook")
        failed = failed + 1 if trouble else 0
        await asyncio.sleep(backoff.backoff(failed, base=0.2, longest=AGAIN_SECONDS) if failed else CHECK_SECONDS)


async def probe(connection: Connection, namespace: str) -> str:
    """Return why the API server is not known to reach the webhook; nothing when it does."""
    body = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"generateName": "muster-proof-", "labels": {names.PROOF: ""}},
    }
    path = paths.within("/apis/coordination.k8s.io/v1", namespace, "leases")
    try:
        answer = await connection.send(Request(method="POST", path=path, params={"dryRun": "All"}, body=body))
    except MusterError as error:
        return str(error)
    annotations = (answer.get("metadata") or {}).get("annotations") or {}
    return "" if annotations.get(names.PROOF) == names.SEEN else "a dry run came back without what the webhook adds"
