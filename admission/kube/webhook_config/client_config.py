"""The client configuration of the webhook: its address, the trusted authorities, and whether a dry run proved them.

`registration_app` creates one `WebhookState`; it and `dry_run_probe` change it, and `registration` writes it to the
cluster.
"""

import asyncio
import base64
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from admission.errors import FixError


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """The webhook's address, a base URL or a Service `namespace/name[:port]`, and the authorities trusted for it.

    authority: PEM of the certificate authorities; None: another program writes them, such as cert-manager. inject: the
    `namespace/name` of the Certificate from which cert-manager does. segment: the secret first part of the paths, by
    which the webhook knows the API server; "" for plain paths.
    """

    authority: bytes | None
    inject: str = ""
    url: str | None = None
    service: str | None = None
    segment: str = field(default="", repr=False)

    def config(self, path: str) -> dict[str, Any]:
        """Return the clientConfig for one of the webhook's paths."""
        path = f"/{self.segment}{path}" if self.segment else path
        bundle = {} if self.authority is None else {"caBundle": base64.b64encode(self.authority).decode()}
        if self.service:
            return bundle | {"service": _service(self.service) | {"path": path}}
        if self.url:
            return bundle | {"url": self.url.rstrip("/") + path}
        raise FixError("the webhook needs a URL or a Service by which the API server reaches it")


class WebhookState:
    """The present client configuration, and whether it is proved. `registration.keep` follows its changes."""

    def __init__(self, client: ClientConfig, *, proved: bool = False) -> None:
        self.client = client
        self.proved = proved
        self.written = asyncio.Event()
        """Set once the configurations are written."""
        self.rewrite_requested = False
        """Whether another client may have changed the configurations since."""
        self.wake: Callable[[], None] = lambda: None

    def trust(self, authority: bytes | None) -> None:
        """Have the API server trust these authorities."""
        self.client = replace(self.client, authority=authority)
        self.wake()

    def move(self, client: ClientConfig) -> None:
        """Have the API server reach the webhook elsewhere."""
        self.client = client
        self.wake()

    def call_by(self, segment: str) -> None:
        """Have the API server call the webhook by paths with this segment."""
        if segment != self.client.segment:
            self.client = replace(self.client, segment=segment)
            self.wake()

    def prove(self) -> None:
        """Record that the API server reaches the webhook."""
        self.proved = True
        self.wake()

    def request_rewrite(self) -> None:
        """Have the configurations written again: the webhook is not reached, perhaps because they were changed."""
        self.rewrite_requested = True
        self.wake()


def _service(text: str) -> dict[str, Any]:
    namespace, slash, rest = text.partition("/")
    name, colon, port = rest.partition(":")
    if not (namespace and slash and name) or (colon and not port.isdecimal()):
        raise FixError(f"{text!r} is not a Service: write namespace/name or namespace/name:port")
    return {"namespace": namespace, "name": name, "port": int(port) if port else 443}
