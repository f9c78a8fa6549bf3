"""Which paths of the webhook stand in the stored configurations: with which secret segments, or plain."""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from admission.api.values.decoding import Json
from admission.errors import GoneError
from admission.kube.client import paths
from admission.kube.client.connection import Connection, RetryPolicy
from admission.kube.webhook_config.registration import API_VERSION, KINDS, NAME

PLAIN = ""
"""Stands for a path without a segment."""

ONE_TRY = RetryPolicy(tries=1, timeout=2.0)
"""For calls that a review waits for."""

_SEGMENT = re.compile(r"/([0-9a-f]{32,})(?=/[a-z]+(\W|$))")


async def named(connection: Connection, *, retry_policy: RetryPolicy | None = None) -> frozenset[str]:
    """Return the segments that the configurations name, and `PLAIN` for a path without one. Raises MusterError."""
    found: set[str] = set()
    for plural in KINDS.values():
        path = paths.join(f"/apis/{API_VERSION}/{plural}", NAME)
        try:
            found.update(_segments(await connection.get(path, retry_policy=retry_policy, urgent=True)))
        except GoneError:
            continue
    return frozenset(found)


async def is_plain_named(connection: Connection) -> bool:
    """Whether a configuration names a path without a segment. Raises MusterError if the API server does not answer."""
    return PLAIN in await named(connection, retry_policy=ONE_TRY)


def masked(text: str) -> str:
    """Return a text, such as what the API server says of a call that failed, without the segments of its URLs."""
    return _SEGMENT.sub("/…", text)


def _segments(configuration: Json) -> Iterator[str]:
    for webhook in configuration.get("webhooks") or ():
        client = webhook.get("clientConfig") or {}
        path = (client.get("service") or {}).get("path") or urlsplit(client.get("url") or "").path
        found = _SEGMENT.search(path)
        yield found.group(1) if found else PLAIN
