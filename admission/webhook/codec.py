"""A fast codec for reviews of new pods, the most frequent ones; for all others `admission_review` is used.

All types are checked in one step, and only fields that are read are decoded. Any unusual review is left to
`admission_review`, whose errors explain what is wrong with it.
"""

import base64
from typing import Annotated, Any

import msgspec

from admission.api.kubernetes.admission_review import API_VERSION, MOST_EXTRA, MOST_GROUPS, Review, Verdict
from admission.api.values import typed_json
from admission.podpolicy.pod_view import PodHead


class _Kind(msgspec.Struct):
    kind: str


class _Resource(msgspec.Struct):
    version: str
    resource: str
    group: str = ""


class _User(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: Annotated[tuple[str, ...], msgspec.Meta(max_length=MOST_GROUPS)] = ()
    extra: Annotated[dict[str, tuple[str, ...]], msgspec.Meta(max_length=MOST_EXTRA)] = {}


class _Request(msgspec.Struct):
    uid: str
    kind: _Kind
    resource: _Resource
    operation: str
    userInfo: _User  # noqa: N815 - as it is written in JSON
    object: PodHead
    namespace: str = ""
    name: str = ""
    subResource: str = ""  # noqa: N815
    dryRun: bool = False  # noqa: N815
    oldObject: None = None  # noqa: N815


class _Body(msgspec.Struct):
    kind: str
    apiVersion: str  # noqa: N815
    request: _Request


class _Response(msgspec.Struct, omit_defaults=True):
    uid: str
    allowed: bool
    patchType: str = ""  # noqa: N815
    patch: str = ""
    auditAnnotations: dict[str, str] = {}  # noqa: N815


class _Answer(msgspec.Struct):
    response: _Response
    apiVersion: str = API_VERSION  # noqa: N815
    kind: str = "AdmissionReview"


_encoder = msgspec.json.Encoder()
_to_body = typed_json.converter(_Body)


def read(body: Any) -> Review | None:
    """Read a review of a new pod from its JSON, with only the fields of `PodHead`. None: use `admission_review`."""
    try:
        decoded = _to_body(body)
    except msgspec.ValidationError:
        return None
    request, resource = decoded.request, decoded.request.resource
    is_supported = (
        decoded.kind == "AdmissionReview" and decoded.apiVersion == API_VERSION and request.operation == "CREATE"
    )
    if not is_supported or not request.uid or (resource.group, resource.resource) != ("", "pods"):
        return None
    return Review(
        uid=request.uid,
        group=resource.group,
        version=resource.version,
        resource=resource.resource,
        kind=request.kind.kind,
        operation=request.operation,
        namespace=request.namespace,
        name=request.name,
        subresource=request.subResource,
        username=request.userInfo.username,
        user_uid=request.userInfo.uid,
        groups=request.userInfo.groups,
        extra=request.userInfo.extra,
        dry_run=request.dryRun,
        obj=request.object,
        whole=body["request"]["object"],
    )


def write(uid: str, verdict: Verdict) -> bytes | None:
    """Write an answer that allows without warnings. None: use `admission_review`."""
    if verdict.denial is not None or verdict.warnings:
        return None
    response = _Response(uid, allowed=True, auditAnnotations=dict(verdict.annotations))
    if verdict.patch:
        response.patchType = "JSONPatch"
        response.patch = base64.b64encode(_encoder.encode(verdict.patch)).decode()
    return _encoder.encode(_Answer(response))
