"""AdmissionReviews as an API server sends them, and as none ever would; and bytes that are no longer JSON."""

import copy
import json
from typing import Any

from hypothesis import strategies as st

from admission.api.values import names
from tests.unit.webhook import cases

Json = Any

ODD: st.SearchStrategy[Json] = st.recursive(
    st.sampled_from([None, True, False, 0, -1, 2**31, 2**63, 2**64, 10**40, 0.5, 1e308, -0.0, "", "x", "ml", "team-a"])
    | st.sampled_from(["\x00", "é", "\U0001d54f", "\u202e", "../..", "a" * 300, "1e999999", "9" * 400, "{}", "8Gi"])
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
"""A value that stands where another is expected."""

QUEUES = st.sampled_from(["team-a", "team-b", "research", "none", "", "x" * 64])
SELECTORS = st.sampled_from(
    ["true", "device.driver == 'x'", "device.attributes['d'].x", "device.foo", "((((", "1 +", "'" * 3, "a" * 9000]
)
AMOUNTS = st.sampled_from([0, 1, 8, 33, -1, 2**63, "8", "8Gi", "1e9", "0.5", "x", "", "9" * 50])


def _labels(queue: str) -> dict[str, str]:
    return {names.QUEUE: queue} if queue else {}


def _request(count: Json, selector: str, *, first: bool, flat: bool) -> dict[str, Json]:
    asked = {"deviceClassName": "gpu.example.com", "count": count, "selectors": [{"cel": {"expression": selector}}]}
    if flat:
        return {"name": "gpu", **asked}
    return {"name": "gpu", "firstAvailable": [{"name": "one", **asked}]} if first else {"name": "gpu", "exactly": asked}


REQUESTS = st.builds(_request, AMOUNTS, SELECTORS, first=st.booleans(), flat=st.booleans())
CLAIM_SPECS = st.lists(REQUESTS, max_size=3).map(lambda requests: {"devices": {"requests": requests}})


def _claim(queue: str, spec: Json, version: str, *, template: bool) -> dict[str, Json]:
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceClaimTemplate" if template else "ResourceClaim",
        "metadata": {"name": "c", "namespace": "ml", "labels": _labels(queue)},
        "spec": {"spec": spec} if template else spec,
    }


VERSIONS = st.sampled_from(["v1", "v1", "v1beta1", "v1beta2"])
CLAIMS = st.builds(_claim, QUEUES, CLAIM_SPECS, VERSIONS, template=st.just(value=False))
TEMPLATES = st.builds(_claim, QUEUES, CLAIM_SPECS, VERSIONS, template=st.just(value=True))

ANNOTATIONS = st.dictionaries(
    st.sampled_from([names.USER, names.GANG, names.GANG_SIZE, names.GANG_MIN, names.RUNTIME, names.CLAIMS]),
    st.sampled_from(["alice", "g", "2", "0", "-1", "4h", "x", "gpu=t", "", "9" * 50]),
    max_size=3,
)
GATES = st.sampled_from([None, [], cases.GATES, [{"name": "other"}]])
TEMPLATE_NAMES = st.lists(st.sampled_from(["t", "big", "none"]), max_size=2).map(tuple)


EXTENDED = st.dictionaries(st.sampled_from(["nvidia.com/gpu", "other.example/x", "cpu"]), AMOUNTS, max_size=2)
CONTAINERS = st.one_of(
    st.just([cases.CONTAINER]),
    EXTENDED.map(lambda amounts: [cases.CONTAINER | {"resources": {"limits": amounts, "requests": dict(amounts)}}]),
)


def _pod(
    queue: str, annotations: dict[str, str], gates: Json, templates: tuple[str, ...], spec: dict[str, Json]
) -> dict[str, Json]:
    return cases.a_pod(labels=_labels(queue), annotations=annotations, gates=gates, templates=templates, **spec)


SPECS = st.fixed_dictionaries({"containers": CONTAINERS}, optional={"nodeName": st.just("n")})
PODS = st.builds(_pod, QUEUES, ANNOTATIONS, GATES, TEMPLATE_NAMES, SPECS)
JOBS = st.builds(
    lambda annotations, bare: cases.a_job(metadata=None) if bare else cases.a_job(annotations=annotations),
    ANNOTATIONS,
    st.booleans(),
)


def own(kind: str, spec: st.SearchStrategy[dict[str, Json]]) -> st.SearchStrategy[dict[str, Json]]:
    """Return objects of Muster of a kind."""
    return st.builds(
        lambda name, spec: {
            "apiVersion": names.API_VERSION,
            "kind": kind,
            "metadata": {"name": name, "generation": 1},
            "spec": spec,
        },
        QUEUES,
        spec,
    )


TEXTS = st.sampled_from(["true", "1", "request.exactly.count <= 8", "object.x", "1 +", "variables.v", "pod.spec.x", ""])
OWN = {
    "queues": own(
        "Queue",
        st.fixed_dictionaries(
            {},
            optional={
                "parent": QUEUES,
                "default": st.booleans(),
                "namespaceSelector": st.sampled_from([{}, {"matchLabels": {"team": "a"}}, {"matchExpressions": [{}]}]),
                "quotas": st.lists(
                    st.fixed_dictionaries(
                        {"meter": QUEUES, "nominal": AMOUNTS},
                        optional={"borrowingLimit": AMOUNTS, "lendingLimit": AMOUNTS},
                    ),
                    max_size=2,
                ),
                "budgets": st.lists(st.fixed_dictionaries({"meter": QUEUES, "hours": AMOUNTS}), max_size=2),
            },
        ),
    ),
    "meters": own(
        "Meter",
        st.fixed_dictionaries(
            {},
            optional={
                "sources": st.lists(
                    st.fixed_dictionaries(
                        {"deviceClasses": st.just(["gpu.example.com"])},
                        optional={"selector": SELECTORS, "expression": SELECTORS.map(lambda t: {"cel": t})},
                    ),
                    max_size=2,
                )
            },
        ),
    ),
    "claimpolicies": own(
        "ClaimPolicy",
        st.fixed_dictionaries(
            {},
            optional={
                "queues": st.lists(QUEUES, max_size=2),
                "defaults": st.lists(st.fixed_dictionaries({"count": AMOUNTS, "when": TEXTS}), max_size=2),
                "templates": st.lists(st.builds(lambda s: {"name": "t", "spec": s}, CLAIM_SPECS), max_size=2),
                "rules": st.lists(st.builds(lambda t: {"cel": t, "message": "m"}, TEXTS), max_size=2),
                "conversions": st.lists(
                    st.builds(
                        lambda t: {
                            "extendedResource": "example.com/gpu",
                            "deviceClassName": "gpu.example.com",
                            "selectors": [{"cel": {"expression": t}}],
                        },
                        SELECTORS,
                    ),
                    max_size=1,
                ),
            },
        ),
    ),
    "gangs": own("Gang", st.fixed_dictionaries({"queue": QUEUES, "size": AMOUNTS})),
}

OBJECTS: dict[tuple[str, str, str], st.SearchStrategy[dict[str, Json]]] = {
    ("", "v1", "pods"): PODS,
    ("batch", "v1", "jobs"): JOBS,
    ("resource.k8s.io", "v1", "resourceclaims"): CLAIMS,
    ("resource.k8s.io", "v1", "resourceclaimtemplates"): TEMPLATES,
    **{(names.GROUP, names.VERSION, plural): objects for plural, objects in OWN.items()},
}
OPERATIONS = st.sampled_from(["CREATE", "CREATE", "UPDATE", "DELETE", "CONNECT"])


@st.composite
def reviews(draw: st.DrawFn) -> dict[str, Json]:
    """Draw a review as an API server may send it."""
    group, version, resource = draw(st.sampled_from(sorted(OBJECTS)))
    objects, operation = OBJECTS[group, version, resource], draw(OPERATIONS)
    return {
        "apiVersion": draw(st.sampled_from(["admission.k8s.io/v1"] * 9 + ["admission.k8s.io/v1beta1"])),
        "kind": "AdmissionReview",
        "request": {
            "uid": "u-1",
            "kind": {"group": group, "version": version, "kind": "Thing"},
            "resource": {"group": group, "version": version, "resource": resource},
            "subResource": draw(st.sampled_from(["", "", "", "status", "eviction", "binding", "resize"])),
            "operation": operation,
            "namespace": draw(st.sampled_from(["ml", "ml", "ml", "unseen", ""])),
            "name": "c",
            "userInfo": {"username": draw(st.sampled_from(["alice", cases.CONTROLLER, ""])), "groups": ["g"]},
            "object": draw(objects) if operation in ("CREATE", "UPDATE") else None,
            "oldObject": draw(objects) if operation in ("UPDATE", "DELETE") else None,
            "dryRun": draw(st.booleans()),
        },
    }


@st.composite
def broken(draw: st.DrawFn) -> dict[str, Json]:
    """Draw a review with a few fields that are missing, or are something else."""
    review = copy.deepcopy(draw(reviews()))  # what is drawn shares its parts with what is drawn later
    for _ in range(draw(st.integers(0, 4))):
        if not review:
            break
        holder, key = _somewhere(draw, review)
        if draw(st.booleans()):
            holder[key] = draw(ODD)
        elif isinstance(holder, dict):
            del holder[key]
    return review


def _somewhere(draw: st.DrawFn, review: dict[str, Json]) -> tuple[Json, Json]:
    """Walk down to some field; return what holds it, and its key or index there."""
    holder: Json = review
    while True:
        key = draw(st.sampled_from(sorted(holder) if isinstance(holder, dict) else list(range(len(holder)))))
        inner = holder[key]
        if not isinstance(inner, dict | list) or not inner or draw(st.integers(0, 3)) == 0:
            return holder, key
        holder = inner


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Draw the bytes of a review, of which some are lost, doubled, changed, or nested very deep."""
    body = bytearray(json.dumps(draw(broken())).encode())
    for _ in range(draw(st.sampled_from([0, 0, 1, 3]))):
        at, length = draw(st.integers(0, len(body))), draw(st.integers(0, 40))
        match draw(st.sampled_from(["drop", "double", "flip", "insert", "nest", "same key"])):
            case "drop":
                del body[at : at + length]
            case "double":
                body[at:at] = body[at : at + length]
            case "flip" if at < len(body):
                body[at] = draw(st.integers(0, 255))
            case "insert":
                body[at:at] = draw(st.binary(max_size=6))
            case "nest":
                depth = draw(st.sampled_from([10, 500, 5000]))
                body = body.replace(b'"g"', b"[" * depth + b"]" * depth, 1)
            case "same key":
                body = body.replace(b'"request": {', b'"request": {"object": {"spec": 1}, "uid": "u-2", ', 1)
            case _:
                pass
    return bytes(body)
