"""Failures of the API server, translated once into `admission.errors`.

`connection` calls `translate` for every answer that is not a success; what it raises names the call in the words of
RBAC, so that a missing permission can be granted as it stands. The narrower errors here are told apart inside this
package only; callers outside see what they derive from.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

from admission.errors import (
    ClusterAwayError,
    ConflictError,
    FixError,
    ForbiddenError,
    GoneError,
    MusterError,
    RetryError,
)

_OF_RBAC = re.compile(r'cannot \S+ (resource|path) "')
"""What the API server says where no role allows a call (`apiserver/pkg/endpoints/handlers/responsewriters`)."""

LONGEST_BODY = 500
"""Characters of a foreign body that are shown."""

_VERBS = {"GET": "get", "POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}


class ExpiredError(GoneError):
    """The resourceVersion or the continue token is too old to go on from: list again (410)."""


class AbsentEndpointError(GoneError):
    """Not the object but its whole resource or subresource is unknown to this API server (404)."""


class EndingError(GoneError):
    """The namespace is being deleted and takes no new objects (403, or 404 once it is gone)."""


class ExistsError(ConflictError):
    """An object of that name is there already (409, AlreadyExists)."""


class RefusedMethodError(FixError):
    """The resource does not take this verb (405)."""


class UnauthorizedError(ForbiddenError):
    """The API server does not accept the credentials (401)."""


class BusyError(RetryError):
    """The API server, or a disruption budget, asks to come back later (429). after: seconds, if it said."""

    def __init__(self, message: str, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a call is about, in the words of RBAC. `resource` includes the subresource."""

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
        """Return the rule that allows the call."""
        if self.resource.startswith("/"):
            return f"verb {self.verb} on nonResourceURL {self.resource}"
        place = f"namespace {self.namespace}" if self.namespace else "the whole cluster"
        return f"verb {self.verb} on resource {self.resource} of API group {self.group or 'core'} in {place}"


def target(method: str, path: str, *, watch: bool = False) -> Target:
    """Read the path of a call: `/api/v1/…` or `/apis/GROUP/VERSION/…`; any other path is its own resource."""
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
"""Where the API server says which release it is of. One that has just started refuses everything for a moment."""


def translate(call: Target, code: int, body: bytes | str, *, after: float | None = None) -> MusterError:
    """Return the error for an answer with an HTTP status of 300 or more, or for the Status of an ERROR event."""
    status = _status(body)
    said = cut(status.get("message") or body)
    text = f"{call}: {said or 'no reason given'} ({code})"
    match code:
        case HTTPStatus.UNAUTHORIZED:
            return UnauthorizedError(f"{text}; the API server does not accept the credentials: renew them")
        case HTTPStatus.FORBIDDEN if call.resource == VERSION:
            return ClusterAwayError(
                f"{text}; everybody may ask that (ClusterRole system:public-info-viewer), so the API server has yet to"
                " read its roles"
            )
        case HTTPStatus.FORBIDDEN if not _has_cause(status, "NamespaceTerminating"):
            return ForbiddenError(_forbidden(call, text, said))
        case HTTPStatus.TOO_MANY_REQUESTS:
            return BusyError(text, after)
        case _:
            return _class_of(code, status)(text)


def cut(body: Any) -> str:
    """Return at most 500 characters of a foreign text, on one line."""
    text = body.decode(errors="replace") if isinstance(body, bytes) else str(body)
    text = " ".join(text[: 2 * LONGEST_BODY].split())
    return text if len(text) <= LONGEST_BODY else f"{text[: LONGEST_BODY - 1]}…"


def _class_of(code: int, status: Mapping[str, Any]) -> type[MusterError]:
    """Return the error of a code; those that are not named are our fault below 500, and the server's above."""
    details = _details(status)
    not_found = EndingError if details.get("kind") == "namespaces" else GoneError
    classes: dict[int, type[MusterError]] = {
        HTTPStatus.FORBIDDEN: EndingError,
        # Without a name it is about no object: the API server does not know the path.
        HTTPStatus.NOT_FOUND: not_found if details.get("name") else AbsentEndpointError,
        HTTPStatus.METHOD_NOT_ALLOWED: RefusedMethodError,
        HTTPStatus.REQUEST_TIMEOUT: ClusterAwayError,
        HTTPStatus.CONFLICT: ExistsError if status.get("reason") == "AlreadyExists" else ConflictError,
        HTTPStatus.GONE: ExpiredError,
    }
    return classes.get(code, FixError if code < HTTPStatus.INTERNAL_SERVER_ERROR else ClusterAwayError)


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


def _forbidden(call: Target, text: str, said: str) -> str:
    # RBAC says who cannot do what; quotas, pod security and admission webhooks answer 403 as well, and no role helps.
    if _OF_RBAC.search(said):
        return f"{text}; grant {call.permission}"
    return f"{text}; refused by a policy of the cluster, not for want of a role"
