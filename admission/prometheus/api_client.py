"""The HTTP API of Prometheus, version 1, as far as Muster asks it: range queries.

https://prometheus.io/docs/prometheus/latest/querying/api/ has the forms of requests and answers; Thanos, Mimir and
VictoriaMetrics have the same.
"""

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import aiohttp
import msgspec

from admission.errors import FixError, MusterError, RetryError

MOST_BYTES = 64 << 20
"""The longest answer that is read."""

MOST_IN_ERROR = 300
"""Characters of a foreign answer that are shown."""

_REFUSED = frozenset({400, 401, 403, 404, 405, 422})
"""Statuses after which the same request fails again, until somebody changes the query or the settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Where the API is and who asks. url: without `/api/v1`. token_file: with a bearer token, read at each request.

    authority: a file of certificates that vouch for the server's, None for those of the system. timeout: in seconds.
    """

    url: str
    token_file: str | None = None
    authority: str | None = None
    timeout: float = 30.0


class Series(msgspec.Struct, frozen=True, gc=False):
    """One series of a range: labels, and pairs of a Unix time in seconds and a value as text."""

    metric: Mapping[str, str]
    values: Sequence[tuple[float, str]] = ()


class _Data(msgspec.Struct, frozen=True, rename="camel"):
    result_type: str
    result: list[Series] = []


class _Answer(msgspec.Struct, frozen=True):
    status: str
    data: _Data | None = None
    error: str = ""


_decode = msgspec.json.Decoder(_Answer).decode


class ApiClient:
    """A client of one server; each query opens a session of its own, since they are rare."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._address = f"{server.url.rstrip('/')}/api/v1/query_range"

    async def range(self, query: str, start: datetime, end: datetime, step: int) -> Sequence[Series]:
        """Evaluate a query at `start`, every `step` seconds, up to `end`.

        Raises RetryError if the server does not answer, or not with all data, and FixError if it refuses the query.
        """
        form = {
            "query": query,
            "start": f"{start.timestamp():.0f}",
            "end": f"{end.timestamp():.0f}",
            "step": f"{step}",
            "timeout": f"{self._server.timeout:g}",
            # Thanos answers with what it has, unless it is told not to; others do not know the parameter.
            "partial_response": "false",
        }
        try:
            status, body = await self._post(form)
        except (aiohttp.ClientError, TimeoutError) as error:
            # Not its text, which may name the URL with a password.
            raise RetryError(f"usage.prometheus.url: the server does not answer ({type(error).__name__})") from error
        return _series(status, body)

    async def _post(self, form: Mapping[str, str]) -> tuple[int, bytes]:
        timeout = aiohttp.ClientTimeout(total=self._server.timeout)
        headers, context = await asyncio.to_thread(self._credentials)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(self._address, data=form, headers=headers, ssl=context, allow_redirects=False) as answer,
        ):
            return answer.status, await _read(answer)

    def _credentials(self) -> tuple[Mapping[str, str], ssl.SSLContext | bool]:
        """Read the files, which others may replace at any time. Raises FixError."""
        headers: dict[str, str] = {}
        context: ssl.SSLContext | bool = True
        server = self._server
        if server.token_file is not None:
            try:
                token = Path(server.token_file).read_text().strip()
            except (OSError, UnicodeDecodeError) as error:
                raise FixError(f"usage.prometheus.token_file: {server.token_file} cannot be read: {error}") from error
            if not token.isascii() or not token.isprintable() or not token:
                raise FixError(f"usage.prometheus.token_file: {server.token_file} has no line of ASCII that is a token")
            headers["Authorization"] = f"Bearer {token}"
        if server.authority is not None:
            try:
                context = ssl.create_default_context(cafile=server.authority)
            except OSError as error:  # ssl.SSLError is one
                raise FixError(f"usage.prometheus.authority: {server.authority} cannot be read: {error}") from error
        return headers, context


async def _read(answer: aiohttp.ClientResponse) -> bytes:
    """Return the body. Raises FixError if it is too long."""
    body = bytearray()
    async for part in answer.content.iter_any():
        body += part
        if len(body) > MOST_BYTES:
            raise FixError(
                f"usage.prometheus: an answer is longer than {MOST_BYTES >> 20} MiB: the queries have to return one"
                " series for each of the UUIDs that they are asked for, with no label but uuid"
            )
    return bytes(body)


def _series(status: int, body: bytes) -> Sequence[Series]:
    try:
        answer = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _failure(status, f"the answer is not that of Prometheus' API: {_cut(body)}") from error
    if status != 200 or answer.status != "success" or answer.data is None:
        raise _failure(status, answer.error or _cut(body))
    if answer.data.result_type != "matrix":
        raise FixError(f"usage.prometheus: a query returns a {answer.data.result_type}, no instant vector of series")
    return answer.data.result


def _failure(status: int, text: str) -> MusterError:
    kind = FixError if status in _REFUSED else RetryError
    return kind(f"usage.prometheus.url: the server answers {status}: {text[:MOST_IN_ERROR]}")


def _cut(body: bytes) -> str:
    return body[:MOST_IN_ERROR].decode(errors="replace")
