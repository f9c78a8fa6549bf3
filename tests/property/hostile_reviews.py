"""Reviews that are made to take long, of every kind that the webhook is registered for; and the cluster they come to.

Sizes are asked for in bytes, and each maker fills a review up to that size. Nothing here is random: laws draw the
maker, the size and the door.
"""

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from admission.api.muster import claim_policies
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.review import reviewer
from admission.review.caches import ReviewCaches
from admission.webhook.handler import Judge
from tests.unit.webhook import cases
from tests.unit.webhook.cases import RULES, MemoryView, World, exactly

Json = dict[str, Any]

RESOURCE = "nvidia.com/gpu"
CLASS = "gpu.example.com"


def a_snapshot() -> Snapshot:
    """Return a cluster with a queue that holds workloads, and a policy that gives, converts and forbids."""
    quotas = [{"meter": "gpus", "nominal": 8}, {"meter": "cores", "nominal": "1000000"}]
    world = World().queue("team-a", quotas=quotas).queue("team-b", team="b").rated("cores", {"name": "cpu"})
    world.queue("research", team=None).queue("any", default=True, holdAt="Workload")
    made = world.template("t", exactly("gpu", CLASS)).build()
    policy = {
        "metadata": {"name": "p"},
        "spec": {
            "defaults": [
                {"count": 2, "labels": {"a": "b"}, "when": "request.exactly.count < 3"},
                {"deviceClasses": [CLASS], "selectors": [{"cel": {"expression": "true"}}]},
            ],
            "conversions": [{"extendedResource": RESOURCE, "deviceClassName": CLASS}],
            "rules": [
                {"cel": "request.exactly.count <= 8", "message": "m", "action": "Deny"},
                {"cel": "claim.metadata.labels.all(key, key != 'x')", "message": "l", "action": "Audit"},
                {"cel": "pod.metadata.annotations.all(key, key != 'x')", "message": "n", "action": "Warn"},
            ],
        },
    }
    known = {field: getattr(made, field) for field in ("namespaces", "queues", "meters", "classes", "templates")}
    return Snapshot(**known, policies={"p": claim_policies.decode(policy)})


def doors(view: MemoryView, caches: ReviewCaches) -> dict[str, Judge]:
    """Return the judges of the webhook, over one cluster."""
    return {
        "mutate": partial(reviewer.mutate, view=view, caches=caches),
        "validate": partial(reviewer.validate, view=view, rules=RULES, caches=caches),
        "hold": partial(reviewer.hold, view=view, caches=caches),
    }


def body(group: str, resource: str, obj: Any, *, old: Any = None, operation: str = "CREATE", **more: str) -> bytes:
    """Return the bytes of a review by alice in namespace `ml`. more: version, subResource."""
    version = more.pop("version", "v1")
    request = {
        **more,
        "uid": "u-1",
        "kind": {"group": group, "version": version, "kind": obj.get("kind", "") if isinstance(obj, dict) else ""},
        "resource": {"group": group, "version": version, "resource": resource},
        "operation": operation,
        "namespace": "ml",
        "userInfo": {"username": "alice", "groups": ["g"]},
        "object": obj,
        "oldObject": old,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.dumps(review, separators=(",", ":")).encode()


# The three of the issue.


def claims_for_containers(containers: int = 400, claims: int = 240) -> bytes:
    """Return a pod whose annotation names claims for all of its containers."""
    annotation = ",".join(f"a{at}=t" for at in range(claims))
    pod = cases.held(
        annotations={names.CLAIMS: annotation}, containers=[{"name": f"c{at}"} for at in range(containers)]
    )
    return body("", "pods", pod)


def converted_containers(containers: int = 10_000) -> bytes:
    """Return a pod whose containers name an extended resource that becomes a claim."""
    made = [{"name": f"c{at:06}", "resources": {"limits": {RESOURCE: 1}}} for at in range(containers)]
    return body("", "pods", cases.held(containers=made))


def distinct_selectors(selectors: int = 60, length: int = 10_000) -> bytes:
    """Return a claim of different selectors of that many bytes."""
    return claim(selector(at, length) for at in range(selectors))


def selector(number: int, length: int, term: str = " && 1 in [1,2,3]") -> str:
    start = f"{number} == {number}"
    return start + term * max(0, (length - len(start)) // len(term))


def claim(expressions: Iterator[str] | list[str], *, each: int = 30) -> bytes:
    """Return a claim with these selectors, `each` in a request."""
    texts = [{"cel": {"expression": text}} for text in expressions]
    requests = [
        {"name": f"r{at}", "exactly": {"deviceClassName": CLASS, "selectors": texts[at : at + each]}}
        for at in range(0, len(texts), each)
    ]
    return body("resource.k8s.io", "resourceclaims", claim_of(requests))


def claim_of(requests: Any, **devices: Any) -> Json:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "ml", "labels": {names.QUEUE: "team-a"}},
        "spec": {"devices": {"requests": requests, **devices}},
    }


TABLE: dict[str, tuple[str, Callable[[], bytes]]] = {
    "a pod of 400 containers with 240 claims in muster.dev/claims": ("mutate", claims_for_containers),
    "a pod of 10,000 containers with a converted extended resource": ("mutate", converted_containers),
    "a ResourceClaim with 60 different selectors of 10 KB": ("validate", distinct_selectors),
}
"""The inputs of the issue: the door, and the review."""


# Shapes, each filled up to a size in bytes.

Make = Callable[[int], bytes]


def _filled(size: int, item: Callable[[int], Any]) -> list[Any]:
    """Return items until they have about so many bytes as JSON."""
    made: list[Any] = []
    left = size - 1_000
    while left > 0:
        made.append(item(len(made)))
        left -= len(json.dumps(made[-1], separators=(",", ":"))) + 1
    return made


def _pairs(size: int, value: str = "x") -> dict[str, str]:
    return {f"k{at}.example.com/a": value for at in range(max(1, (size - 1_000) // (len(value) + 28)))}


def pod(**rest: Any) -> bytes:
    return body("", "pods", cases.held(**rest))


def _pod(size: int, field: str, item: Callable[[int], Any]) -> bytes:
    return pod(**{field: _filled(size, item)})


def _resources(size: int, resources: Callable[[int], Json]) -> bytes:
    return _pod(size, "containers", lambda at: {"name": f"c{at}", "resources": resources(at)})


def _annotation(size: int, key: str, text: str) -> bytes:
    return pod(annotations={key: (text * (size // len(text)))[: max(0, size - 1_000)]})


def _deep(size: int, opening: str, closing: str) -> Any:
    """Return a value that is nested as deeply as the size allows; for `body` as text."""
    depth = size // (len(opening) + len(closing))
    return f"{opening * depth}{closing * depth}"


def _raw(template: bytes, text: str) -> bytes:
    return template.replace(b'"#here#"', text.encode())


def _of_cpu(cpu: str, at: int) -> Json:
    return {"name": f"c{at}", "resources": {"requests": {"cpu": cpu}}}


HERE = "#here#"
POD = pod(annotations={"here": "x"}, extra=HERE)
CLAIM = body("resource.k8s.io", "resourceclaims", claim_of([exactly("g", CLASS)], extra=HERE))

PODS: dict[str, Make] = {
    "bare containers": lambda size: _pod(size, "containers", lambda _: {}),
    "init containers": lambda size: _pod(size, "initContainers", lambda at: {"name": f"c{at}"}),
    "converted containers": lambda size: _resources(size, lambda _: {"limits": {RESOURCE: 1}}),
    "containers with nothing to convert": lambda size: _resources(size, lambda _: {"limits": {RESOURCE: 0}}),
    "converted init containers": lambda size: _pod(
        size, "initContainers", lambda at: {"name": f"c{at}", "resources": {"limits": {RESOURCE: at % 9}}}
    ),
    "containers that request CPU": lambda size: _resources(size, lambda at: {"requests": {"cpu": f"{at}m"}}),
    "init containers that request CPU": lambda size: _pod(
        size, "initContainers", lambda at: {"name": f"c{at}", "resources": {"limits": {"cpu": at % 9}}}
    ),
    "a resize of many containers": lambda size: body(
        "",
        "pods",
        cases.held(gates=[], containers=_filled(size // 2, partial(_of_cpu, "2"))),
        old=cases.held(gates=[], containers=_filled(size // 2, partial(_of_cpu, "1"))),
        operation="UPDATE",
        subResource="resize",
    ),
    "containers with claims of their own": lambda size: _resources(size, lambda at: {"claims": [{"name": f"c{at}"}]}),
    "many resources of one container": lambda size: pod(
        containers=[{"name": "c", "resources": {"limits": dict.fromkeys(_pairs(size), "1")}}]
    ),
    "many distinct amounts": lambda size: pod(
        containers=[
            {"name": "c", "resources": {"limits": {key: f"{at}.5Gi" for at, key in enumerate(_pairs(size, "123.5Gi"))}}}
        ]
    ),
    "long amounts": lambda size: _resources(size, lambda _: {"limits": {RESOURCE: "9" * 4_000}}),
    "claims from a template": lambda size: _pod(
        size, "resourceClaims", lambda at: {"name": f"c{at}", "resourceClaimTemplateName": "t"}
    ),
    "claims that are not there": lambda size: _pod(
        size, "resourceClaims", lambda at: {"name": f"c{at}", "resourceClaimName": f"c{at}"}
    ),
    "gates": lambda size: pod(gates=_filled(size, lambda at: {"name": f"g{at}"})),
    "tolerations": lambda size: _pod(size, "tolerations", lambda at: {"key": f"t{at}", "operator": "Exists"}),
    "labels": lambda size: pod(labels=_pairs(size)),
    "annotations": lambda size: pod(annotations=_pairs(size)),
    "a label of a queue": lambda size: pod(labels={names.QUEUE: "x" * size}),
    "owners": lambda size: body(
        "", "pods", {"metadata": {"ownerReferences": _filled(size, lambda at: {"name": f"o{at}"})}, "spec": {}}
    ),
    "unread fields": lambda size: _pod(size, "volumes", lambda at: {"name": f"v{at}", "emptyDir": {}}),
    "a change of many containers": lambda size: body(
        "",
        "pods",
        cases.held(containers=_filled(size // 2, lambda at: {"name": f"c{at}", "resources": {"limits": {"a/b": 1}}})),
        old=cases.held(containers=_filled(size // 2, lambda at: {"name": f"c{at}"})),
        operation="UPDATE",
    ),
    "objects in objects": lambda size: _raw(POD, _deep(size, '{"a":', "}").replace(":}", ":1}", 1)),
    "lists in lists": lambda size: _raw(POD, _deep(size, "[", "]")),
    "empty objects": lambda size: _raw(POD, "[" + "{}," * (size // 3) + "{}]"),
    "empty lists": lambda size: _raw(POD, "[" + "[]," * (size // 3) + "[]]"),
    "the same key": lambda size: _raw(POD, "{" + '"a":1,' * (size // 6) + '"a":1}'),
    "escapes": lambda size: _raw(POD, '"' + "\\u0022" * (size // 6) + '"'),
    **{
        f"{key} of {text!r}": partial(_annotation, key=key, text=text)
        for key in (
            names.CLAIMS,
            names.CONVERTED,
            names.GANG,
            names.GANG_SIZE,
            names.RUNTIME,
            names.SUBGROUP,
            names.QUEUE_ALIAS,
            names.USER,
            "yunikorn.apache.org/task-groups",
            "kueue.x-k8s.io/pod-group-total-count",
        )
        for text in ("a=t,", "p:nvidia.com/gpu=1,", "9", "[", '{"a":', "1h", "a.", "é")
    },
}
"""New and changed pods."""

TERMS: dict[str, str] = {
    "conjunctions": " && true",
    "disjunctions": " || true",
    "lists": " && [1,2,3,4] == [1]",
    "memberships": " && 1 in [1,2,3]",
    "maps": " && {1:2,3:4} == {1:2}",
    "look-ups": " && device.attributes['a.example.com'].b == 'c'",
    "guarded look-ups": " && 'b' in device.attributes['a.example.com']",
    "patterns": " && device.driver.matches('a')",
    "large patterns": " && device.driver.matches('((a{30}){30}|b){1}')",
    "loops": " && [1,2].all(x,x>0)",
    "loops in loops": " && [1,2].all(x,[1,2].exists(y,[1,2].all(z,x+y+z>0)))",
    "bindings": " && cel.bind(x,[[1]],x==x)",
    "quantities": " && quantity('1').isGreaterThan(quantity('2'))",
    "versions": " && semver('1.2.3') == semver('1.2.4')",
    "long sums": "+1 == 1 || 1",
    "negations": " && !!!!!!!!true",
    "conditions": " && (true?true:false)",
    "texts": " && 'aaaaaaaaaaaaaaaaaaaa' == 'bbbbbbbbbbbbbbbbbbbbbbbbbbbbb'",
    "comments": " // a\n && true",
    "optionals": " && optional.of(1).hasValue()",
    "has": " && has(device.attributes.a)",
}
NESTED: dict[str, str] = {
    "lists in lists": "[" * 120 + "]" * 120 + " == []",
    "brackets": "(" * 200 + "true" + ")" * 200,
    "bound lists in lists": "cel.bind(x," + "[" * 100 + "]" * 100 + ",[" + ",".join(["x==x"] * 200) + "].all(y,y))",
    "maps of maps": "{1:" * 60 + "1" + "}" * 60 + " == {}",
    "doubled bindings": "".join(f"cel.bind(x{at},[x{at - 1},x{at - 1}]," for at in range(1, 9)).replace("x0", "1")
    + "x8 == x8"
    + ")" * 8,
    "loops of loops": "[1,2,3].all(a," * 7 + "true" + ")" * 7,
    "one large pattern": "device.driver.matches('" + "(a|b)*" * 300 + "')",
    "a repeated pattern": "device.driver.matches('((((a{9}){9}){9}){9}){9}')",
    "a text": "'" + "a" * 9_000 + "' == ''",
    "a broken text": '"' * 3 + "a" * 9_000,
    "one number": "9" * 9_000 + " == 1",
}


def _claim_of_terms(size: int, term: str, *, length: int = 9_900) -> bytes:
    return claim([selector(at, min(length, size), term) for at in range(max(1, size // length))][:900])


def _claim_of(size: int, text: str) -> bytes:
    return claim([f"{at} == {at} && ({text})" for at in range(max(1, size // (len(text) + 40)))][:900])


def _claim_with(size: int, **metadata: Any) -> bytes:
    obj = claim_of([exactly("g", CLASS)])
    obj["metadata"] |= metadata
    return body("resource.k8s.io", "resourceclaims", obj)


def _requests(size: int, request: Callable[[int], Any]) -> bytes:
    return body("resource.k8s.io", "resourceclaims", claim_of(_filled(size, request)))


CLAIMS: dict[str, Make] = {
    **{f"selectors of {name}": partial(_claim_of_terms, term=term) for name, term in TERMS.items()},
    **{f"short selectors of {name}": partial(_claim_of_terms, term=term, length=120) for name, term in TERMS.items()},
    **{f"selectors of {name}": partial(_claim_of, text=text) for name, text in NESTED.items()},
    "requests": lambda size: _requests(size, lambda at: exactly(f"r{at}", CLASS)),
    "requests that are none": lambda size: _requests(size, lambda _: 1),
    "alternatives": lambda size: _requests(
        min(size, 30_000), lambda at: cases.either(f"r{at}", *((f"a{n}", CLASS, 1) for n in range(8)))
    ),
    "amounts": lambda size: _requests(
        size, lambda at: {"name": f"r{at}", "exactly": {"capacity": {"requests": dict.fromkeys(_pairs(3_000), "1Gi")}}}
    ),
    "labels": lambda size: _claim_with(size, labels={names.QUEUE: "team-a", **_pairs(size)}),
    "annotations": lambda size: _claim_with(size, annotations=_pairs(size)),
    "a label of a queue": lambda size: _claim_with(size, labels={names.QUEUE: "x" * size}),
    "what was applied last": lambda size: _claim_with(
        size, annotations={"kubectl.kubernetes.io/last-applied-configuration": "[" + "1," * (size // 2) + "1]"}
    ),
    "what was applied last, nested": lambda size: _claim_with(
        size, annotations={"kubectl.kubernetes.io/last-applied-configuration": "[" * size}
    ),
    "constraints": lambda size: body(
        "resource.k8s.io",
        "resourceclaims",
        claim_of([], constraints=[{"requests": _filled(size // 32, str), "matchAttribute": "a/b"}] * 32),
    ),
    "parameters": lambda size: body(
        "resource.k8s.io",
        "resourceclaims",
        claim_of([], config=[{"opaque": {"driver": "d", "parameters": {"a": _filled(size, lambda _: {})}}}]),
    ),
    "parameters in parameters": lambda size: _raw(CLAIM, _deep(size, '{"a":', "}").replace(":}", ":1}", 1)),
    "nested a little": lambda size: _raw(CLAIM, "[" + ",".join([_deep(900, "[", "]")] * (size // 900)) + "]"),
}
"""Claims; each is sent as a template as well."""


def _own(plural: str, kind: str, spec: Any) -> bytes:
    obj = {"apiVersion": names.API_VERSION, "kind": kind, "metadata": {"name": "x", "generation": 1}, "spec": spec}
    return body(names.GROUP, plural, obj, version=names.VERSION)


def _rule(text: str) -> Json:
    return {"cel": text, "message": "m"}


def _policy_of_terms(size: int, term: str) -> bytes:
    rules = [_rule(selector(at, 9_900, term)) for at in range(size // 9_900 + 1)]
    return _own("claimpolicies", "ClaimPolicy", {"rules": rules})


def _policy_of(size: int, text: str) -> bytes:
    rules = _filled(size, lambda at: _rule(f"{at} == {at} && ({text})"))
    return _own("claimpolicies", "ClaimPolicy", {"rules": rules})


def _meter_of_terms(size: int, term: str) -> bytes:
    texts = [selector(at, 9_900, term) for at in range(size // 9_900 + 1)]
    return _own("meters", "Meter", {"sources": [{"deviceClasses": ["g"], "selector": text} for text in texts]})


OWN: dict[str, Make] = {
    **{
        f"rules of {name}": partial(_policy_of_terms, term=term) for name, term in TERMS.items() if "device" not in term
    },
    **{f"rules of {name}": partial(_policy_of, text=text) for name, text in NESTED.items()},
    **{f"sources of {name}": partial(_meter_of_terms, term=term) for name, term in TERMS.items()},
    "variables": lambda size: _own(
        "claimpolicies",
        "ClaimPolicy",
        {
            "variables": _filled(
                size, lambda at: {"name": f"v{at}", "expression": f"variables.v{at - 1} + 1" if at else "1"}
            ),
            "rules": [_rule("variables.v1 == 1")],
        },
    ),
    "templates": lambda size: _own(
        "claimpolicies",
        "ClaimPolicy",
        {
            "templates": _filled(
                size, lambda at: {"name": f"t{at}", "spec": {"devices": {"requests": [exactly("g", CLASS)]}}}
            )
        },
    ),
    "defaults": lambda size: _own(
        "claimpolicies", "ClaimPolicy", {"defaults": _filled(size, lambda at: {"count": 1, "labels": {f"k{at}": "v"}})}
    ),
    "conversions": lambda size: _own(
        "claimpolicies",
        "ClaimPolicy",
        {"conversions": _filled(size, lambda at: {"extendedResource": f"example.com/r{at}", "deviceClassName": CLASS})},
    ),
    "quotas": lambda size: _own(
        "queues", "Queue", {"quotas": _filled(size, lambda at: {"meter": f"m{at}", "nominal": 1})}
    ),
    "selectors": lambda size: _own(
        "queues",
        "Queue",
        {"namespaceSelector": {"matchExpressions": _filled(size, lambda at: {"key": f"k{at}", "operator": "Exists"})}},
    ),
    "labels that are wrong": lambda size: _own(
        "queues", "Queue", {"namespaceSelector": {"matchExpressions": _filled(size, lambda _: {"key": "!"})}}
    ),
    "aliases": lambda size: _own(
        "queues", "Queue", {"aliases": _filled(size, lambda at: f"a{at}"), "namespaceSelector": {}}
    ),
    "gangs": lambda size: _own("gangs", "Gang", {"queue": "x" * size, "size": 1}),
}
"""Muster's own objects."""


def _template(at: int) -> Json:
    return {"metadata": {"labels": {"a": f"b{at}"}}, "spec": {"containers": [{"name": "c"}]}}


def _workload(group: str, plural: str, version: str, kind: str, spec: Json, **metadata: Any) -> bytes:
    obj = {
        "apiVersion": f"{group}/{version}",
        "kind": kind,
        "metadata": {"name": "w", "namespace": "ml", "uid": "u", **metadata},
        "spec": spec,
    }
    return body(group, plural, obj, version=version)


WORKLOADS: dict[str, Make] = {
    "labels of a Job": lambda size: _workload(
        "batch", "jobs", "v1", "Job", {"template": _template(0)}, labels=_pairs(size)
    ),
    "labels of a Job's pods": lambda size: _workload(
        "batch", "jobs", "v1", "Job", {"template": {"metadata": {"labels": _pairs(size)}, "spec": {}}}
    ),
    "containers of a Job": lambda size: _workload(
        "batch",
        "jobs",
        "v1",
        "Job",
        {"template": {"spec": {"containers": _filled(size, lambda at: {"name": f"c{at}"})}}},
    ),
    "the Jobs of a JobSet": lambda size: _workload(
        "jobset.x-k8s.io",
        "jobsets",
        "v1alpha2",
        "JobSet",
        {
            "replicatedJobs": _filled(
                size, lambda at: {"name": f"r{at}", "template": {"spec": {"template": _template(at)}}}
            )
        },
    ),
    "Jobs that wait for each other": lambda size: _workload(
        "jobset.x-k8s.io",
        "jobsets",
        "v1alpha2",
        "JobSet",
        {
            "replicatedJobs": _filled(
                size,
                lambda at: {
                    "name": f"r{at}",
                    "dependsOn": [{"name": f"r{at - 1}", "status": "Complete"}] if at else [],
                    "template": {"spec": {"template": _template(at)}},
                },
            )
        },
    ),
    "the workers of a RayJob": lambda size: _workload(
        "ray.io",
        "rayjobs",
        "v1",
        "RayJob",
        {
            "rayClusterSpec": {
                "headGroupSpec": {"template": _template(0)},
                "workerGroupSpecs": _filled(size, lambda at: {"groupName": f"g{at}", "template": _template(at)}),
            }
        },
    ),
    "the roles of a PyTorchJob": lambda size: _workload(
        "kubeflow.org",
        "pytorchjobs",
        "v1",
        "PyTorchJob",
        {"pytorchReplicaSpecs": {f"R{at}": {"template": _template(at)} for at in range(size // 120)}},
    ),
    "owners of a Job": lambda size: _workload(
        "batch",
        "jobs",
        "v1",
        "Job",
        {"template": _template(0)},
        ownerReferences=_filled(size, lambda at: {"apiVersion": "v1", "kind": "K", "name": f"o{at}", "uid": f"u{at}"}),
    ),
}
"""Workloads, of which Jobs come to the mutating webhook, too."""


def as_user(sent: bytes, **user: Any) -> bytes:
    """Return a review as by a user with these fields."""
    review = json.loads(sent)
    review["request"]["userInfo"] |= user
    return json.dumps(review, separators=(",", ":")).encode()


def _extra(keys: int, values: int) -> Json:
    return {f"k{at}": ["v"] * values for at in range(keys)}


USERS: dict[str, Make] = {
    "groups of who makes a claim": lambda size: as_user(CLAIM, groups=["g"] * min(size // 4, 10_000)),
    "too many groups": lambda size: as_user(CLAIM, groups=["g"] * (size // 4)),
    "extra of who makes a claim": lambda size: as_user(CLAIM, extra=_extra(min(size // 100, 1_000), 25)),
    "too much extra": lambda size: as_user(CLAIM, extra=_extra(size // 16, 1)),
    "too much extra of who makes a pod": lambda size: as_user(POD, extra=_extra(size // 16, 1)),
}
"""Claims and pods by users of whom much is known."""

ALL: dict[str, Make] = {
    f"{what}: {name}": make
    for what, makers in {"pod": PODS, "claim": CLAIMS, "own": OWN, "workload": WORKLOADS, "user": USERS}.items()
    for name, make in makers.items()
}


def as_template(sent: bytes) -> bytes:
    """Return a review of a claim as that of a template."""
    review = json.loads(sent)
    request = review["request"]
    request["resource"]["resource"] = "resourceclaimtemplates"
    request["object"] |= {"kind": "ResourceClaimTemplate", "spec": {"spec": request["object"]["spec"]}}
    return json.dumps(review, separators=(",", ":")).encode()
