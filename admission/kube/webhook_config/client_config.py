"""How the API server reaches the webhook, whom it trusts there, and whether that is proved.

`app` makes one `Terms`; `tls.rotation` and `dry_run_probe` change it, and `registration` writes what it says.
"""

import asyncio
import base64
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from admission.errors import FixError


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """How the API server reaches the webhook: a base URL, or a Service `namespace/name[:port]`; and whom it trusts.

    authority: PEM of the certificate authorities; None: others write them, as `inject` says to cert-manager: the
    `namespace/name` of a Certificate.
    """

    authority: bytes | None
    inject: str = ""
    url: str | None = None
    service: str | None = None

    def config(self, path: str) -> dict[str, Any]:
        """Return the clientConfig for one of the webhook's paths."""
        bundle = {} if self.authority is None else {"caBundle": base64.b64encode(self.authority).decode()}
        if self.service:
            return bundle | {"service": _service(self.service) | {"path": path}}
        if self.url:
            return bundle | {"url": self.url.rstrip("/") + path}
        raise FixError("the webhook needs a URL or a Service by which the API server reaches it")


class Terms:
    """How the webhook is reached, and whether that is proved. Others change it; `keep` follows."""

    def __init__(self, client: Client, *, proved: bool = False) -> None:
        self.client = client
        self.proved = proved
        self.written = asyncio.Event()
        """Set when the configurations stand."""
        self.doubted = False
        """Whether the configurations may no longer be what was written."""
        self.wake: Callable[[], None] = lambda: None

    def trust(self, authority: bytes | None) -> None:
        """Have the API server trust these authorities."""
        self.client = replace(self.client, authority=authority)
        self.wake()

    def prove(self) -> None:
        """Note that the API server reaches the webhook."""
        self.proved = True
        self.wake()

    def uncertainty(self) -> None:
        """Have the configurations written again: the webhook is not reached, and somebody may have changed them."""
        self.doubted = True
        self.wake()


def _service(text: str) -> dict[str, Any]:
    namespace, slash, rest = text.partition("/")
    name, colon, port = rest.partition(":")
    if not (namespace and slash and name) or (colon and not port.isdecimal()):
        raise FixError(f"{text!r} is not a Service: write namespace/name or namespace/name:port")
    return {"namespace": namespace, "name": name, "port": int(port) if port else 443}
