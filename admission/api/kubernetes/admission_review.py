"""AdmissionReview (admission.k8s.io/v1): the API server's requests, and the responses to them."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from admission.api.kubernetes.meta import controller_in
from admission.api.values.decoding import Json, Reader
from admission.api.values.json_patch import Patch
from admission.api.values.reasons import Denial, DenyReason
from admission.api.values.work_budget import WorkBudget
from admission.errors import MalformedObjectError, TooMuchWorkError

API_VERSION = "admission.k8s.io/v1"

LONGEST_MESSAGE = 8 * 1024
"""Characters of a denial's message that are sent and logged; the names in it may be as long as their author likes."""

MOST_GROUPS, MOST_EXTRA = 10_000, 1_000
"""The most groups of a user, and the most keys of `userInfo.extra`, that are read. People have fewer by far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """One request. obj and old are the objects as JSON, since a patch refers to the JSON as it was sent.

    username, user_uid, groups, extra: userInfo, the authenticated user. whole: the whole object, if obj has only those
    fields of it that most reviews need.
    """

    uid: str
    group: str
    version: str
    resource: str
    kind: str
    operation: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    username: str = ""
    user_uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    dry_run: bool = False
    obj: Json | None = None
    old: Json | None = None
    whole: Json | None = field(default=None, repr=False, compare=False)
    trace: str = ""
    """The trace that a pod entering a queue continues, as W3C's `traceparent`; empty without tracing."""
    work: WorkBudget = field(default_factory=WorkBudget, repr=False, compare=False)
    """What may still be done to answer it."""

    @property
    def controller_uid(self) -> str:
        """Return the UID of a pod's controller, which identifies its gang at admission; empty for other objects.

        For the pods of a Job it is the UID of the gang.
        """
        return controller_in(self.obj) if self.resource == "pods" else ""

    def full_object(self) -> Json:
        """Return the whole object."""
        return self.whole or self.obj or {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer to one request."""

    denial: Denial | None = None
    patch: Patch = ()
    warnings: Sequence[str] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Annotations in the API server's audit log."""


ALLOWED = Verdict()


def decode(body: Any) -> Review:
    """Decode an AdmissionReview. Raises MalformedObjectError, also for another kind or version."""
    reader = Reader(body)
    if reader.text("kind") != "AdmissionReview" or reader.text("apiVersion") != API_VERSION:
        reader.problem("", f"is not an AdmissionReview of {API_VERSION}")
    request = reader.child("request")
    kind, resource, user = request.child("kind"), request.child("resource"), request.child("userInfo")
    result = Review(
        uid=request.required("uid"),
        group=resource.text("group"),
        version=resource.text("version"),
        resource=resource.required("resource"),
        kind=kind.text("kind"),
        operation=request.required("operation"),
        namespace=request.text("namespace"),
        name=request.text("name"),
        subresource=request.text("subResource"),
        username=user.text("username"),
        user_uid=user.text("uid"),
        groups=_groups(user),
        extra=_extra(user),
        dry_run=request.flag("dryRun"),
        obj=_object(request, "object"),
        old=_object(request, "oldObject"),
    )
    reader.finish("AdmissionReview", result.uid or "(no uid)")
    return result


def pod_creation(pod: Json, *, username: str = "") -> Review:
    """Return the request that creates a pod, of which nobody has asked: to know what would be answered."""
    data = pod["metadata"]
    return Review(
        uid=data["uid"],
        group="",
        version="v1",
        resource="pods",
        kind="Pod",
        operation="CREATE",
        namespace=data["namespace"],
        name=data["name"],
        username=username,
        obj=pod,
    )


def encode(uid: str, verdict: Verdict) -> dict[str, Any]:
    """Return the response to the request with that uid, as JSON."""
    response: dict[str, Any] = {"uid": uid, "allowed": verdict.denial is None}
    if verdict.denial is not None:
        response["status"] = _status(verdict.denial)
    elif verdict.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(json.dumps(verdict.patch, separators=(",", ":")).encode()).decode()
    if verdict.warnings:
        response["warnings"] = list(verdict.warnings)
    if verdict.annotations:
        response["auditAnnotations"] = dict(verdict.annotations)
    return {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response}


def refuse_malformed(error: MalformedObjectError) -> Verdict:
    """Return the denial of a malformed object, with every problem."""
    return Verdict(denial=shortened(Denial(DenyReason.MALFORMED_REQUEST, str(error))))


def refuse_too_much(error: TooMuchWorkError) -> Verdict:
    """Return the denial of a review that takes too much work."""
    return Verdict(denial=Denial(DenyReason.TOO_MUCH_WORK, str(error), dict(error.counts)))


def shortened(denial: Denial) -> Denial:
    """Return a denial with a message that is cut off if it is longer than anybody reads."""
    if len(denial.message) <= LONGEST_MESSAGE:
        return denial
    return replace(denial, message=f"{denial.message[:LONGEST_MESSAGE]}…")


def _groups(user: Reader) -> tuple[str, ...]:
    groups = user.texts("groups")
    if len(groups) > MOST_GROUPS:
        user.problem("groups", f"are {len(groups):,}, and at most {MOST_GROUPS:,} are read")
    return groups


def _extra(user: Reader) -> dict[str, tuple[str, ...]]:
    extra, keys = user.child("extra"), user.keys("extra")
    if len(keys) > MOST_EXTRA:
        user.problem("extra", f"has {len(keys):,} keys, and at most {MOST_EXTRA:,} are read")
        return {}
    return {name: extra.texts(name) for name in keys}


def _object(request: Reader, name: str) -> Json | None:
    value = request.raw(name)
    if value is not None and not isinstance(value, Mapping):
        request.problem(name, "is not an object")
        return None
    return value


def _status(denial: Denial) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "code": 403,
        "reason": "Forbidden",
        "message": f"muster: {denial.reason}: {denial.message}",
    }
