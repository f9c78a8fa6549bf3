"""The HTTP session with one API server: TLS, proxy, token, and a close that leaves no connection open.

kubernetes-asyncio reads the configuration; its own session is not used. For each request that session reads ~/.netrc
and looks for a proxy, in a thread each, which takes two thirds of the processor time of a short request. A password
found there would even replace the kubeconfig's token.
"""

import asyncio
import contextlib
import json
import socket
import ssl
import urllib.request
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from weakref import WeakSet

import aiohttp
from yarl import URL

READ_BYTES = 2**21
"""Bytes of an answer's read buffer: more than the largest object, so that a watch event is buffered whole."""

CLOSING_SECONDS = 1.0
"""How long closing a session waits for its sockets to close."""


class Proxy(NamedTuple):
    """The proxy for requests."""

    url: URL
    auth: aiohttp.BasicAuth | None


class Session:
    """Requests to the server of a configuration. Create it inside a running loop, and `close` it afterwards.

    Raises OSError for unusable certificates.
    """

    def __init__(self, configuration: Any) -> None:
        self._configuration = configuration
        self._server_name: str | None = configuration.tls_server_name
        self._proxy = proxy_of(configuration)
        self._sockets: WeakSet[socket.socket] = WeakSet()
        connector = aiohttp.TCPConnector(
            limit=configuration.connection_pool_maxsize, ssl=_tls(configuration), socket_factory=self._socket
        )
        self._session = aiohttp.ClientSession(connector=connector, read_bufsize=READ_BYTES)

    async def request(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str],
        body: Any,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's own: for connecting, for silence, for the whole
    ) -> aiohttp.ClientResponse:
        """Send a request; return the answer after its headers. path: quoted, with its query. body: encoded as JSON."""
        token = await self._configuration.get_api_key_with_prefix("BearerToken")
        return await self._session.request(
            method,
            URL(f"{self._configuration.host}{path}", encoded=True),
            headers={**headers, "Authorization": token} if token else headers,
            # Compact, as Go writes it: the API server keeps a driver's parameters byte by byte.
            data=None if body is None else json.dumps(body, separators=(",", ":")).encode(),
            timeout=timeout,
            proxy=self._proxy.url if self._proxy else None,
            proxy_auth=self._proxy.auth if self._proxy else None,
            server_hostname=self._server_name,
        )

    async def close(self) -> None:
        """Close all connections and return once their sockets are closed.

        aiohttp no longer tracks a connection whose answer was not read to its end (a cancelled watch): it waits for the
        server to close it, and `close` does not wait for that. If the loop ended meanwhile, the socket would stay open
        until it is garbage-collected.
        """
        await self._session.close()
        for open_socket in self._open():
            with contextlib.suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_SECONDS):
                while self._open():  # noqa: ASYNC110 - there is no event to wait for
                    await asyncio.sleep(0.005)

    def _socket(self, address: Any) -> socket.socket:
        """Return the socket for a new connection. address: as returned by `socket.getaddrinfo`."""
        opened = socket.socket(*address[:3])
        self._sockets.add(opened)
        return opened

    def _open(self) -> list[socket.socket]:
        return [one for one in self._sockets if one.fileno() >= 0]


def proxy_of(configuration: Any) -> Proxy | None:
    """Return the proxy of the kubeconfig, else of HTTP_PROXY or HTTPS_PROXY unless NO_PROXY excludes the server."""
    text = configuration.proxy or _proxy_of_environment(configuration.host)
    if not text:
        return None
    url = URL(text)
    return Proxy(url.with_user(None), aiohttp.BasicAuth.from_url(url))


def _proxy_of_environment(server: str) -> str | None:
    url = urlsplit(server)
    if not url.hostname or urllib.request.proxy_bypass(url.hostname):
        return None
    return urllib.request.getproxies().get(url.scheme)


def _tls(configuration: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    # Go's TLS is less strict than Python's strict mode, so some clusters have certificates that fail the latter.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
