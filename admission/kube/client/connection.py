"""Requests to the API server as raw JSON: authenticated, retried, and with failures translated once.

kubernetes-asyncio provides the credentials. Its typed models are not used: creating one for each of 20000 pods takes
longer than everything else that Muster does with them.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from types import TracebackType
from typing import Any, NamedTuple, Self, TypedDict
from urllib.parse import urlencode

import aiohttp
import msgspec
import structlog

import admission
from admission.api.values import names, typed_json
from admission.errors import ClusterUnavailableError, FixError
from admission.kube.client import backoff, credentials, errors
from admission.kube.client.credentials import ClusterSelection
from admission.kube.client.session import Session

log = structlog.get_logger(__name__)

Json = dict[str, Any]
Params = Mapping[str, str | int | bool]

IN_FLIGHT = 64
"""Concurrent requests. The pool has 100 connections: the rest is for watches and the lease, which must never wait."""

CONNECT_SECONDS = 5.0


class PatchKind(StrEnum):
    """Content types of PATCH."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How long one request may take, and how often it is tried while the API server is unavailable or busy. Seconds."""

    tries: int = 5
    timeout: float = 30.0
    base: float = 0.2
    longest: float = 10.0

    def pause(self, failed: int, retry_after: float | None) -> float:
        """Return the wait after a number of failures: at least what the server asked for, at most `longest`."""
        delay = backoff.backoff(failed, base=self.base, longest=self.longest)
        return delay if retry_after is None else min(self.longest, max(delay, retry_after))


DEFAULT_RETRIES = RetryPolicy()
ONCE = RetryPolicy(tries=1, timeout=5.0)


METADATA_ONLY = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"
"""Accept header for an answer with only the object's metadata."""


TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
"""Accept header for a collection as the table that kubectl prints."""


class ServerVersions(NamedTuple):
    """Major and minor version of the API server, and its minimum compatibility version where it reports one."""

    own: tuple[int, int]
    min_compatible: tuple[int, int] | None = None

    def __str__(self) -> str:
        return f"{self.own[0]}.{self.own[1]}"


METADATA_ONLY_LIST = METADATA_ONLY.replace("PartialObjectMetadata", "PartialObjectMetadataList")
"""Accept header for a collection with only the objects' metadata."""


class _IdentityMeta(TypedDict, total=False):
    name: str
    namespace: str
    uid: str
    resourceVersion: str


class _Identity(TypedDict, total=False):
    metadata: _IdentityMeta


class _IdentityPage(TypedDict, total=False):
    """A page of a collection, parsed only for the identities and versions of its objects."""

    metadata: dict[str, Any]
    items: list[_Identity] | None


class _DecodedMeta(TypedDict, total=False):
    name: Any
    generateName: Any
    namespace: Any
    uid: Any
    resourceVersion: Any
    generation: Any
    labels: Any
    annotations: Any
    ownerReferences: Any
    finalizers: Any
    creationTimestamp: Any
    deletionTimestamp: Any


class _DecodedObject(TypedDict, total=False):
    apiVersion: Any
    kind: Any
    metadata: _DecodedMeta
    spec: Any
    status: Any
    value: Any
    globalDefault: Any


class _DecodedPage(TypedDict, total=False):
    """A page of a collection, parsed only for the fields that decoders read: managedFields are half of a claim."""

    metadata: dict[str, Any]
    items: list[_DecodedObject] | None


class ParsedFields(Enum):
    """The fields that the parser keeps of the objects of a collection."""

    ALL = "all"
    DECODED = "decoded"
    """The fields that the decoders of any kind read."""
    IDENTITY = "identity"
    """Name, namespace, UID and version, in an eighth of the time. The API server sends only metadata."""


_DECODERS: Mapping[ParsedFields, Callable[[bytes], Any]] = {
    ParsedFields.DECODED: typed_json.decoder(_DecodedPage),
    ParsedFields.IDENTITY: typed_json.decoder(_IdentityPage),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request. urgent: it does not wait for others. metadata_only: the answer needs only metadata.

    as_table: a collection is answered as a Table. parsed_fields: the fields to parse of a collection's objects.
    """

    method: str
    path: str
    params: Params = field(default_factory=dict)
    body: Any = None
    content: str = "application/json"
    urgent: bool = False
    watch: bool = False
    metadata_only: bool = False
    as_table: bool = False
    parsed_fields: ParsedFields = ParsedFields.ALL

    @property
    def url(self) -> str:
        """Path and query."""
        query = {key: str(value).lower() if isinstance(value, bool) else value for key, value in self.params.items()}
        return f"{self.path}?{urlencode(query)}" if query else self.path

    @property
    def call(self) -> errors.Target:
        """The verb and resource of the request, for messages."""
        return errors.target(self.method, self.path, watch=self.watch)


class Connection:
    """A connection to one API server, as an async context manager. Entering it reads credentials and sends nothing.

    Every call raises the errors of `admission.errors` that `errors.translate` returns, and ClusterUnavailableError when
    there is no answer after the tries of `retry_policy`. warns: whether retries before the first answer are logged.
    """

    def __init__(
        self, selection: ClusterSelection | None = None, *, retry_policy: RetryPolicy | None = None, warns: bool = True
    ) -> None:
        self._selection = selection or ClusterSelection()
        self._retry_policy = retry_policy or DEFAULT_RETRIES
        self._warns = warns
        self._reached = False
        self._configuration: Any = None
        self._session: Session | None = None
        self._in_flight = asyncio.Semaphore(IN_FLIGHT)

    async def __aenter__(self) -> Self:
        self._configuration = await credentials.load(self._selection)
        try:
            self._session = Session(self._configuration)
        except OSError as error:
            raise FixError(f"cannot use the certificates of the kubeconfig: {error}") from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    @property
    def server(self) -> str:
        """The API server's URL."""
        return str(self._configuration.host)

    async def get(
        self, path: str, params: Params | None = None, *, retry_policy: RetryPolicy | None = None, urgent: bool = False
    ) -> Json:
        """Return an object, or a page of a collection."""
        return await self.send(Request(method="GET", path=path, params=params or {}, urgent=urgent), retry_policy)

    async def post(
        self, path: str, body: Any, *, retry_policy: RetryPolicy | None = None, urgent: bool = False
    ) -> Json:
        """Create an object. Raises ExistsError when it exists already."""
        return await self.send(Request(method="POST", path=path, body=body, urgent=urgent), retry_policy)

    async def patch(
        self, path: str, body: Any, kind: PatchKind, *, retry_policy: RetryPolicy | None = None, urgent: bool = False
    ) -> Json:
        """Change an object."""
        return await self.send(Request(method="PATCH", path=path, body=body, content=kind, urgent=urgent), retry_policy)

    async def set(self, path: str, body: Any, kind: PatchKind) -> None:
        """Change an object, without returning the changed object."""
        await self.send(Request(method="PATCH", path=path, body=body, content=kind, metadata_only=True))

    async def apply(self, path: str, body: Any, *, retry_policy: RetryPolicy | None = None) -> Json:
        """Apply an object on the server side as field manager `muster`, taking over conflicting fields by force."""
        params = {"fieldManager": names.FIELD_MANAGER, "force": "true"}
        request = Request(method="PATCH", path=path, params=params, body=body, content=PatchKind.APPLY)
        return await self.send(request, retry_policy)

    async def delete(self, path: str, body: Any = None) -> Json:
        """Delete an object. `body`: DeleteOptions."""
        return await self.send(Request(method="DELETE", path=path, body=body))

    async def pages(
        self, path: str, *, limit: int, parsed_fields: ParsedFields = ParsedFields.ALL, labels: str = ""
    ) -> AsyncGenerator[Json]:
        """Yield the pages of a collection at one moment. Raises ExpiredError when the API server has discarded it.

        labels: a label selector; the API server refuses what is none.
        """
        params: dict[str, str | int | bool] = {"limit": limit} if limit else {}
        if labels:
            params["labelSelector"] = labels
        while True:
            page = await self.send(Request(method="GET", path=path, params=params, parsed_fields=parsed_fields))
            yield page
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return
            params["continue"] = token

    async def lines(self, path: str, params: Params, *, quiet: float, total: float) -> AsyncGenerator[bytes]:
        """Yield the lines of a long answer as they arrive, after an empty line when it begins. Not retried.

        quiet: seconds without a byte after which the connection counts as lost; total: seconds for the whole answer.
        Lines may have any length.
        """
        request = Request(method="GET", path=path, params=params, watch=True)
        timeout = aiohttp.ClientTimeout(total=total, sock_connect=CONNECT_SECONDS, sock_read=quiet)
        pending: list[bytes] = []
        async with self._answer(request, timeout) as answer:
            yield b""
            async for chunk in answer.content.iter_any():
                *complete, rest = chunk.split(b"\n")
                for line in complete:
                    yield b"".join((*pending, line))
                    pending.clear()
                pending.append(rest)

    async def who_am_i(self) -> str:
        """Return the user name under which the API server knows this process."""
        review = await self.post(
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
        )
        return str(review["status"]["userInfo"]["username"])

    async def version(self) -> tuple[int, int]:
        """Return the API server's major and minor version."""
        return (await self.versions()).own

    async def versions(self) -> ServerVersions:
        """Return the versions that the API server reports."""
        answer = await self.get(errors.VERSION)
        own = _version(answer, "major", "minor")
        if own is None:
            raise ClusterUnavailableError(f"{self.server}/version is not that of Kubernetes: {errors.cut(answer)}")
        return ServerVersions(own, _version(answer, "minCompatibilityMajor", "minCompatibilityMinor"))

    async def send(self, request: Request, retry_policy: RetryPolicy | None = None) -> Json:
        """Send a request, retrying failures that may pass; renew the credentials once if they are refused."""
        retry_policy = retry_policy or self._retry_policy
        renewed = False
        failed = 0
        while True:
            try:
                async with nullcontext() if request.urgent else self._in_flight:
                    return await self._read(request, retry_policy.timeout)
            except errors.UnauthorizedError:
                if renewed:
                    raise
                renewed = True
                await self._renew_credentials()
            except (ClusterUnavailableError, errors.BusyError) as error:
                failed += 1
                if failed >= retry_policy.tries:
                    raise
                pause = retry_policy.pause(failed, getattr(error, "after", None))
                self._log_retry(error, failed, retry_policy.tries, pause)
                await asyncio.sleep(pause)

    def _log_retry(self, error: Exception, failed: int, tries: int, pause: float) -> None:
        """Warn that a request is retried. After the first answer, the callers log failures themselves."""
        if self._warns and not self._reached:
            log.warning("trying again", failed=failed, tries=tries, seconds=round(pause, 3), error=str(error))

    async def _read(self, request: Request, seconds: float) -> Json:
        async with self._answer(request, aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)) as answer:
            text = await answer.read()
        try:
            parsed = _parsed(text, request.parsed_fields)
        except ValueError as error:
            raise ClusterUnavailableError(f"{request.call}: the answer is not JSON: {errors.cut(text)}") from error
        if not isinstance(parsed, dict):
            raise ClusterUnavailableError(f"{request.call}: the answer is not an object: {errors.cut(text)}")
        return parsed

    @asynccontextmanager
    async def _answer(
        self,
        request: Request,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's own: for connecting, for silence, for the whole
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        """Yield a successful answer, or raise one of our errors, also for a failure while the answer is being read."""
        try:
            answer = await self._send_once(request, timeout)
            self._reached = True
            async with answer:
                if answer.status >= 300:
                    raise errors.translate(request.call, answer.status, await answer.read(), after=_retry_after(answer))
                yield answer
        except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError) as error:
            raise FixError(f"the certificate of {self.server} cannot be verified: {errors.cut(error)}") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = errors.cut(error) or type(error).__name__
            fix = "" if self._reached else "; is the cluster up, and is KUBECONFIG (or --kubeconfig) the right one?"
            raise ClusterUnavailableError(
                f"{request.call}: the API server at {self.server} does not answer: {reason}{fix}"
            ) from error

    async def _send_once(self, request: Request, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:  # noqa: ASYNC109 - as above
        headers = {
            "Accept": _accept(request),
            "Content-Type": request.content,
            "User-Agent": f"muster/{admission.__version__}",
        }
        if self._session is None:
            raise RuntimeError("the connection is used outside `async with`")
        try:
            return await self._session.request(
                request.method, request.url, headers=headers, body=request.body, timeout=timeout
            )
        except RuntimeError as error:
            # uvloop 0.23 keeps the file descriptor of a socket that was reset during its TLS handshake, and refuses the
            # next socket with that number (MagicStack/uvloop#653). That passes soon, so it is retried.
            if "is used by transport" not in str(error):
                raise
            raise OSError(str(error)) from error

    async def _renew_credentials(self) -> None:
        """Read the credentials again: a token file was replaced, or a token of an `exec` program expired."""
        fresh = await credentials.load(self._selection)
        self._configuration.api_key.update(fresh.api_key)


def _accept(request: Request) -> str:
    if request.as_table:
        return TABLE
    if request.metadata_only:
        return METADATA_ONLY
    return METADATA_ONLY_LIST if request.parsed_fields is ParsedFields.IDENTITY else "application/json"


def _parsed(text: bytes, parsed_fields: ParsedFields) -> Any:
    if parsed_fields is ParsedFields.ALL:
        return msgspec.json.decode(text)
    try:
        return _DECODERS[parsed_fields](text)
    except msgspec.ValidationError:
        # A field has another type than Kubernetes documents: the decoders report which, object by object.
        return msgspec.json.decode(text)


def _retry_after(answer: aiohttp.ClientResponse) -> float | None:
    try:
        return float(answer.headers["Retry-After"])
    except (KeyError, ValueError):
        return None


def _version(answer: Json, *fields: str) -> tuple[int, int] | None:
    # Some providers report a minor version such as "33+".
    major, minor = (re.sub(r"\D.*", "", str(answer.get(field, ""))) for field in fields)
    return (int(major), int(minor)) if major and minor else None
