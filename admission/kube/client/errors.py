"""Failures of the API server, translated once into `admission.errors`.

`connection` calls `translate` for every answer that is not a success. The error names the call in RBAC's terms, so that
a missing permission can be granted as written. Only this package distinguishes the narrower errors defined here;
callers outside handle their base classes.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

from admission.errors import (
    ClusterUnavailableError,
    ConflictError,
    FixError,
    ForbiddenError,
    GoneError,
    MusterError,
    RetryError,
)

_OF_RBAC = re.compile(r'cannot \S+ (resource|path) "')
"""The API server's message where no role allows a call (`apiserver/pkg/endpoints/handlers/responsewriters`)."""

LONGEST_BODY = 500
"""Characters of a foreign body that are shown."""

_VERBS = {"GET": "get", "POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}


class ExpiredError(GoneError):
    """The resourceVersion or the continue token is too old to continue: list again (410)."""


class AbsentEndpointError(GoneError):
    """This API server does not serve the resource or subresource at all (404)."""


class EndingError(GoneError):
    """The namespace is being deleted and accepts no new objects (403, or 404 once it is gone)."""


class ExistsError(ConflictError):
    """An object of that name exists already (409, AlreadyExists)."""


class RefusedMethodError(FixError):
    """The resource does not support this verb (405)."""


class UnauthorizedError(ForbiddenError):
    """The API server does not accept the credentials (401)."""


class BusyError(RetryError):
    """The API server, or a disruption budget, asks for a retry later (429). after: seconds, if it gave them."""

    def __init__(self, message: str, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The target of a call, in RBAC's terms. `resource` includes the subresource."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        words = [self.verb, self.resource, self.name]
        if self.namespace:
            words += ["in namespace", self.namespace]
        return " ".join(filter(None, words))

    @property
    def permission(self) -> str:
        """Return a description of the RBAC rule that allows the call."""
        if self.resource.startswith("/"):
            return f"verb {self.verb} on nonResourceURL {self.resource}"
        place = f"namespace {self.namespace}" if self.namespace else "the whole cluster"
        return f"verb {self.verb} on resource {self.resource} of API group {self.group or 'core'} in {place}"


def target(method: str, path: str, *, watch: bool = False) -> Target:
    """Return the target of a path: `/api/v1/…` or `/apis/GROUP/VERSION/…`; any other path is its own resource."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    match parts:
        case ["api", _, *rest]:
            group = ""
        case ["apis", group, _, *rest]:
            pass
        case _:
            return Target(verb=_VERBS[method], group="", resource=path)
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    resource, name, subresource = (*rest, "", "", "")[:3]
    verb = _VERBS[method]
    if verb == "get" and not name:
        verb = "watch" if watch else "list"
    return Target(
        verb=verb,
        group=group,
        resource=f"{resource}/{subresource}" if subresource else resource,
        namespace=namespace,
        name=name,
    )


VERSION = "/version"
"""The path of the API server's version. An API server that has just started refuses even this for a moment."""


def translate(call: Target, code: int, body: bytes | str, *, after: float | None = None) -> MusterError:
    """Return the error for an answer with an HTTP status of 300 or more, or for the Status of an ERROR event."""
    status = _status(body)
    reason = cut(status.get("message") or body)
    text = f"{call}: {reason or 'no reason given'} ({code})"
    match code:
        case HTTPStatus.UNAUTHORIZED:
            return UnauthorizedError(f"{text}; the API server does not accept the credentials: renew them")
        case HTTPStatus.FORBIDDEN if call.resource == VERSION:
            return ClusterUnavailableError(
                f"{text}; everybody may ask that (ClusterRole system:public-info-viewer), so the API server has yet to"
                " read its roles"
            )
        case HTTPStatus.FORBIDDEN if not _has_cause(status, "NamespaceTerminating"):
            return ForbiddenError(_forbidden(call, text, reason))
        case HTTPStatus.TOO_MANY_REQUESTS:
            return BusyError(text, after)
        case _:
            return _class_of(code, status)(text)


def cut(body: Any) -> str:
    """Return at most LONGEST_BODY characters of a foreign text, on one line."""
    text = body.decode(errors="replace") if isinstance(body, bytes) else str(body)
    text = " ".join(text[: 2 * LONGEST_BODY].split())
    return text if len(text) <= LONGEST_BODY else f"{text[: LONGEST_BODY - 1]}…"


def _class_of(code: int, status: Mapping[str, Any]) -> type[MusterError]:
    """Return the error class of a code; other codes are FixError below 500, ClusterUnavailableError from 500."""
    details = _details(status)
    not_found = EndingError if details.get("kind") == "namespaces" else GoneError
    classes: dict[int, type[MusterError]] = {
        HTTPStatus.FORBIDDEN: EndingError,
        # A 404 without an object's name means that the API server does not serve the path.
        HTTPStatus.NOT_FOUND: not_found if details.get("name") else AbsentEndpointError,
        HTTPStatus.METHOD_NOT_ALLOWED: RefusedMethodError,
        HTTPStatus.REQUEST_TIMEOUT: ClusterUnavailableError,
        HTTPStatus.CONFLICT: ExistsError if status.get("reason") == "AlreadyExists" else ConflictError,
        HTTPStatus.GONE: ExpiredError,
    }
    return classes.get(code, FixError if code < HTTPStatus.INTERNAL_SERVER_ERROR else ClusterUnavailableError)


def _details(status: Mapping[str, Any]) -> Mapping[str, Any]:
    details = status.get("details")
    return details if isinstance(details, Mapping) else {}


def _has_cause(status: Mapping[str, Any], reason: str) -> bool:
    return any(isinstance(c, Mapping) and c.get("reason") == reason for c in _details(status).get("causes") or ())


def _status(body: bytes | str) -> Mapping[str, Any]:
    try:
        status = json.loads(body)
    except ValueError:
        return {}
    return status if isinstance(status, Mapping) else {}


def _forbidden(call: Target, text: str, reason: str) -> str:
    # Only RBAC's messages match; a 403 of a quota, pod security or an admission webhook is not fixed by a role.
    if _OF_RBAC.search(reason):
        return f"{text}; grant {call.permission}"
    return f"{text}; refused by a policy of the cluster, not for want of a role"
