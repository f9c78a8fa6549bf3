"""Rules of ClaimPolicies beside the real thing: the same expressions as ValidatingAdmissionPolicies of the same claims.

What the API server's engine allows, denies, fails on and writes as its message, ours does. The API server knows no
`request` and no `claim`, so the expressions are written for it with what it has in their place.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest

from admission.api.muster.policy_rules import Action, Rule, Variable
from admission.claimpolicy import rules
from admission.claimpolicy.cel_subject import Subject, User
from admission.claimpolicy.rules import Finding
from tests.controlplane import ApiError, ControlPlane
from tests.controlplane.clients import Client
from tests.controlplane.observing import eventually

pytestmark = pytest.mark.e2e

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
MESSAGE = "the message"
AT_A_TIME = 8
"""The API server cuts warnings off that are longer than 4 KiB together."""


class Case(NamedTuple):
    """An expression, and one that writes the message."""

    cel: str
    message: str = ""


CASES = {
    "a bound": Case("request.exactly.count <= 8"),
    "a bound with a message": Case("request.exactly.count <= 2", "'not ' + string(request.exactly.count)"),
    "a message of nothing": Case("request.exactly.count <= 2", "''"),
    "a message of space": Case("request.exactly.count <= 2", "'   '"),
    "a message with space around it": Case("request.exactly.count <= 2", "'  wide  '"),
    "a message of two lines": Case("request.exactly.count <= 2", r"'one\ntwo'"),
    "a message that fails": Case("request.exactly.count <= 2", "'x' + claim.metadata.labels.nowhere"),
    "a message from a variable": Case("request.exactly.count <= 2", "'team ' + variables.team"),
    "a mode": Case("request.exactly.allocationMode != 'All'"),
    "a missing field": Case("claim.metadata.labels.team == 'vision'"),
    "a missing field that is asked for": Case("has(claim.metadata.labels) && 'team' in claim.metadata.labels"),
    "a missing field with a default": Case("claim.metadata.?labels[?'team'].orValue('vision') == 'vision'"),
    "an error that or absorbs": Case("claim.metadata.labels.team == 'vision' || true"),
    "an error that and absorbs": Case("claim.metadata.labels.team == 'vision' && false"),
    "a variable that fails": Case("variables.broken == 'vision'"),
    "a variable that fails, asked twice": Case("variables.broken == 'a' || variables.broken == 'b'"),
    "a variable of a variable": Case("variables.most >= request.exactly.count"),
    "a list": Case("!has(request.exactly.selectors) || request.exactly.selectors.all(s, s.cel.expression.size() < 30)"),
    "a list, by exists": Case(
        "has(request.exactly.tolerations) && request.exactly.tolerations.exists(t, t.key == 'a')"
    ),
    "a regex": Case("request.name.matches('^[a-z]+$')"),
    "a quantity": Case(
        "!has(request.exactly.capacity) ||"
        " quantity(request.exactly.capacity.requests.memory).isLessThan(quantity('20Gi'))"
    ),
    "a capacity that is missing": Case("request.exactly.capacity.requests.cores == '1'"),
    "a quantity that is none": Case("quantity(request.name).isGreaterThan(quantity('1'))"),
    "a division by zero": Case("request.exactly.count / 0 > 1"),
    "an index out of bounds": Case("claim.spec.devices.requests[7].name == 'x'"),
    "the namespace": Case("namespaceObject.metadata.labels.team == 'vision'"),
    "a label that the namespace lacks": Case("namespaceObject.metadata.labels.nowhere == 'vision'"),
    "the user": Case("user.username == 'nobody'"),
    "the user's groups": Case("'system:masters' in user.groups"),
    "types that never match": Case("claim.metadata.name == 1 || request.exactly.deviceClassName == 8"),
    "strings": Case("request.exactly.deviceClassName.split('.').size() == 3"),
    "a map of a list": Case("claim.spec.devices.requests.map(r, r.name) == ['gpu']"),
    "sets": Case("sets.contains(['gpu', 'nic'], claim.spec.devices.requests.map(r, r.name))"),
    "a conditional": Case("request.exactly.allocationMode == 'All' ? false : request.exactly.count > 0"),
    "numbers of other kinds": Case("double(request.exactly.count) * 1.5 < 4.0"),
    "always": Case("false"),
}
VARIABLES = (
    Variable(name="team", expression="namespaceObject.metadata.labels.team"),
    Variable(name="most", expression="variables.team == 'vision' ? 2 : 0"),
    Variable(name="broken", expression="claim.metadata.labels.nowhere"),
)
REFUSED = ("request.exactly.count <=", "nowhere == 1", "1 + 1", "variables.nowhere == 1", "'a'.matches('(')")


def a_claim(metadata: Mapping[str, Any] | None = None, **exactly: Any) -> dict[str, Any]:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com", **exactly}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "one", **(metadata or {})},
        "spec": {"devices": {"requests": [request]}},
    }


CLAIMS = {
    "a plain one": a_claim(),
    "with labels": a_claim({"labels": {"team": "vision"}}, count=2),
    "of another team": a_claim({"labels": {"team": "speech"}}, count=9),
    "for all": a_claim(allocationMode="All"),
    "with everything": a_claim(
        count=4,
        selectors=[{"cel": {"expression": "device.driver == 'gpu.example.com'"}}],
        tolerations=[{"key": "a", "operator": "Exists"}],
        capacity={"requests": {"memory": "20Gi"}},
    ),
}


def in_terms_of_the_api_server(cel: str) -> str:
    instead = {"request": "variables.req", "claim": "object", "user": "request.userInfo"}
    return re.sub(r"\b(request|claim|user)\.", lambda found: f"{instead[found[1]]}.", cel)


def a_policy(name: str, case: Case) -> dict[str, Any]:
    own = [{"name": "req", "expression": "object.spec.devices.requests[0]"}]
    own += [{"name": v.name, "expression": in_terms_of_the_api_server(v.expression)} for v in VARIABLES]
    validation = {"expression": in_terms_of_the_api_server(case.cel), "message": MESSAGE}
    if case.message:
        validation["messageExpression"] = in_terms_of_the_api_server(case.message)
    rule = {"apiGroups": ["resource.k8s.io"], "apiVersions": ["v1"], "operations": ["CREATE"]}
    return {
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{**rule, "resources": ["resourceclaims"]}]},
            "variables": own,
            "validations": [validation],
        },
    }


def a_binding(name: str, namespace: str, action: str) -> dict[str, Any]:
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    return {
        "metadata": {"name": name},
        "spec": {
            "policyName": name,
            "validationActions": [action],
            "matchResources": {"namespaceSelector": selector},
        },
    }


class Bench(NamedTuple):
    """Expressions as policies of the API server, in namespaces of their own. names: case → policy."""

    client: Client
    namespaces: Mapping[str, str]
    names: Mapping[str, str]


@pytest.fixture(scope="module")
def bench(control_plane: ControlPlane) -> Iterator[Bench]:
    client = control_plane.client()
    names = {case: f"rules-{number}" for number, case in enumerate(CASES)}
    namespaces = {case: f"rules-{number // AT_A_TIME}" for number, case in enumerate(CASES)}
    for name in dict.fromkeys(namespaces.values()):
        client.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": {"team": "vision"}}})
    for case, name in names.items():
        client.create(POLICIES, a_policy(name, CASES[case]))
        client.create(BINDINGS, a_binding(name, namespaces[case], "Warn"))
    yield Bench(client, namespaces, names)
    for name in names.values():
        client.delete(f"{BINDINGS}/{name}")
        client.delete(f"{POLICIES}/{name}")
    for name in dict.fromkeys(namespaces.values()):
        client.delete(f"/api/v1/namespaces/{name}")


def theirs(bench: Bench, claim: Mapping[str, Any]) -> dict[str, str]:
    """Return what the API server says of a claim, by case; nothing of the cases that allow it."""
    said: dict[str, str] = {}
    cases = {name: case for case, name in bench.names.items()}
    for namespace in dict.fromkeys(bench.namespaces.values()):
        for warning in warnings(bench.client, namespace, claim):
            found = re.match(
                r"Validation failed for ValidatingAdmissionPolicy '(.+?)' with binding '.+?': (.*)", warning
            )
            assert found is not None, warning
            text = re.sub(r"^expression '.*' resulted in error: ", "error: ", found[2])
            said[cases[found[1]]] = re.sub(r'composited variable "(\w+)" fails to evaluate', r"variables.\1", text)
    return {case: _worded(text) for case, text in said.items()}


def warnings(client: Client, namespace: str, claim: Mapping[str, Any]) -> list[str]:
    path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims?dryRun=All"
    with client._open("POST", path, json.dumps(claim).encode(), "application/json") as answer:
        headers = answer.headers.get_all("Warning") or []
    return [re.sub(r"\\(.)", r"\1", header.removeprefix('299 - "').removesuffix('"')) for header in headers]


def ours(bench: Bench, claim: Mapping[str, Any]) -> dict[str, str]:
    """Return what our engine says of the claim as the API server completes it, by case."""
    review = bench.client.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", {"kind": "SelfSubjectReview"})
    info = review["status"]["userInfo"]
    user = User(username=info["username"], uid=info.get("uid", ""), groups=info.get("groups", ()))
    said = {}
    for case, (cel, message) in CASES.items():
        place = bench.namespaces[case]
        path = f"/apis/resource.k8s.io/v1/namespaces/{place}/resourceclaims?dryRun=All"
        rule = Rule(cel=cel, message=MESSAGE, message_expression=message, action=Action.WARN)
        book, problems = rules.compile_rules(case, VARIABLES, [rule])
        assert not problems, problems
        subject = Subject(
            bench.client.create(path, claim), namespace=bench.client.get(f"/api/v1/namespaces/{place}"), user=user
        )
        for finding in rules.judge([book], [subject]).findings:
            said[case] = _text(finding)
    return said


def _text(finding: Finding) -> str:
    return _worded(f"error: {finding.error}") if finding.error else finding.message


def _worded(text: str) -> str:
    """Leave out what is wrong with a quantity, which the API server says by a pattern."""
    return re.sub(r"quantities must .*", "quantities must …", text)


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_rules_say_what_the_api_server_says(bench: Bench, claim: Mapping[str, Any]) -> None:
    wanted = ours(bench, claim)
    assert "always" in wanted

    # Policies take effect a moment after they are made.
    seen: list[dict[str, str]] = []

    def agrees() -> bool:
        seen.append(theirs(bench, claim))
        return seen[-1] == wanted

    try:
        eventually(agrees, what="the same answers")
    except AssertionError:
        assert wanted == seen[-1]
        raise


@pytest.mark.parametrize("cel", REFUSED)
def test_rules_are_refused_that_the_api_server_refuses(control_plane: ControlPlane, cel: str) -> None:
    _, problems = rules.compile_rules("p", VARIABLES, [Rule(cel=cel, message=MESSAGE)])
    assert problems

    with pytest.raises(ApiError) as refused:
        control_plane.client().create(f"{POLICIES}?dryRun=All", a_policy("refused", Case(cel)))

    assert refused.value.code == 422
