"""The HTTP session with one API server: TLS, proxy, token, and an end that leaves no connection behind.

kubernetes-asyncio reads the configuration; its own session is not used. For each request that reads ~/.netrc and looks
for a proxy, in a thread each: two thirds of the processor time of a short request. A password found there would even
take the place of the kubeconfig's token.
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
"""Buffered of an answer: more than an object may have, so that the event of a watch is never waited for in parts."""

CLOSING_SECONDS = 1.0
"""How long the end of a session waits for its sockets to be closed."""


class Proxy(NamedTuple):
    """What requests go through."""

    url: URL
    auth: aiohttp.BasicAuth | None


class Session:
    """Requests to the server of a configuration. Made inside a running loop; raises OSError for unusable certificates.

    Whoever makes it has to `close` it.
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
        """Send a request and return the answer as it begins. path: quoted, with its query. body: what becomes JSON."""
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

        A connection whose answer was not read to its end (a watch that was cancelled) is given up by aiohttp before:
        it waits for the server to say good-bye, and no `close` waits for it. Were the loop to end meanwhile, it would
        stay open until it is collected as garbage.
        """
        await self._session.close()
        for one in self._open():
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_SECONDS):
                while self._open():  # noqa: ASYNC110 - no event tells of it
                    await asyncio.sleep(0.005)

    def _socket(self, address: Any) -> socket.socket:
        """Make the socket of a new connection; address: as `socket.getaddrinfo` returns it."""
        made = socket.socket(*address[:3])
        self._sockets.add(made)
        return made

    def _open(self) -> list[socket.socket]:
        return [one for one in self._sockets if one.fileno() >= 0]


def proxy_of(configuration: Any) -> Proxy | None:
    """Return the proxy of the kubeconfig, else the one that HTTP_PROXY or HTTPS_PROXY names and NO_PROXY spares not."""
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
    # Go's TLS does not ask for all that Python's strict mode does, so clusters exist whose certificates lack it.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
