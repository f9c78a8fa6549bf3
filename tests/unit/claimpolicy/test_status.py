"""What the status of a ClaimPolicy says."""

from typing import Any

import pytest

from admission.api.kubernetes.meta import ConditionStatus, Meta
from admission.api.kubernetes.nodes import Namespace
from admission.api.muster.claim_policies import ClaimPolicy
from admission.api.snapshot import Snapshot
from admission.claimpolicy import status
from admission.claimpolicy.match import Policies
from admission.errors import MalformedObjectError, Problem
from tests.unit.claimpolicy.policies import a_policy

NAMESPACES = {
    name: Namespace(meta=Meta(name=name), labels={"team": name, "all": ""}) for name in ("vision", "speech", "text")
}


def said(*policies: ClaimPolicy, **malformed: str) -> dict[str, tuple[ConditionStatus, str, str]]:
    """Return status, reason and message of every policy."""
    errors = {
        ("ClaimPolicy", name): MalformedObjectError("ClaimPolicy", name, (Problem("spec.order", text),))
        for name, text in malformed.items()
    }
    snapshot = Snapshot(namespaces=NAMESPACES, policies={policy.name: policy for policy in policies}, malformed=errors)
    reports = status.conditions(Policies.build(snapshot.policies, snapshot.namespaces), snapshot)
    assert {report.plural for report in reports} == {"claimpolicies"}
    found = {report.name: report.conditions[0] for report in reports}
    return {name: (condition.status, condition.reason, condition.message) for name, condition in found.items()}


def team(name: str) -> dict[str, Any]:
    return {"namespaceSelector": {"matchLabels": {"team": name}}}


ALONE: dict[str, tuple[dict[str, Any], ConditionStatus, str, str]] = {
    "one that is whole": ({}, ConditionStatus.TRUE, "Applied", "is applied in 3 namespaces"),
    "one for one namespace": (team("text"), ConditionStatus.TRUE, "Applied", "is applied in 1 namespace"),
    "one for none": (
        team("nobody"),
        ConditionStatus.TRUE,
        "NoNamespace",
        "is applied; no namespace has the labels of namespaceSelector yet",
    ),
    "one with flaws": (
        {
            "rules": [{"cel": "1", "message": "m"}],
            "variables": [{"name": "a", "expression": "b"}],
            "defaults": [{"when": "'x'", "count": 1}],
        },
        ConditionStatus.FALSE,
        "Malformed",
        (
            "is applied but for what is invalid: spec.variables[0].expression: is not CEL: 1:1: undeclared reference to"
            " 'b' (in container ''); there are request, claim, pod, namespaceObject, user, queue, variables;"
            " spec.rules[0].cel: is not CEL that Muster takes: must evaluate to bool or the unknown type, not int;"
            " spec.defaults[0].when: is not CEL that Muster takes: must evaluate to bool or the unknown type, not"
            " string; what counts as false until then (failurePolicy: Fail): spec.rules[0] (Deny)"
        ),
    ),
    "one with a flawed rule that is ignored": (
        {"rules": [{"cel": "1", "message": "m", "failurePolicy": "Ignore"}, {"cel": "true", "message": "m"}]},
        ConditionStatus.FALSE,
        "Malformed",
        (
            "is applied but for what is invalid: spec.rules[0].cel: is not CEL that Muster takes: must evaluate to"
            " bool or the unknown type, not int"
        ),
    ),
    "one with many flaws": (
        {"rules": [{"cel": "1", "message": "m"}] * 7},
        ConditionStatus.FALSE,
        "Malformed",
        "; and 2 more",
    ),
    "one that looks wrong": (
        {"rules": [{"cel": "request.exactly.cuont == 1", "message": "m"}]},
        ConditionStatus.TRUE,
        "Doubtful",
        "is applied as it is written: spec.rules[0].cel: looks wrong: 1:16: undefined field 'cuont'",
    ),
    "one with a variable that looks wrong": (
        {
            "variables": [{"name": "most", "expression": "8"}, {"name": "n", "expression": "request.exactly.cuont"}],
            "rules": [{"cel": "variables.most == 8", "message": "m"}],
        },
        ConditionStatus.TRUE,
        "Doubtful",
        "is applied as it is written: spec.variables[1].expression: looks wrong: 1:16: undefined field 'cuont'",
    ),
}


@pytest.mark.parametrize(("spec", "status", "reason", "message"), ALONE.values(), ids=ALONE)
def test_the_condition_of_a_claim_policy_follows_from_its_own_spec(
    spec: dict[str, Any], status: ConditionStatus, reason: str, message: str
) -> None:
    (found,) = said(a_policy(**spec)).values()

    assert found[:2] == (status, reason)
    assert found[2].endswith(message)


def test_a_claim_policy_that_cannot_be_read_has_condition_malformed() -> None:
    assert said(p="is a string, an integer is expected") == {
        "p": (
            ConditionStatus.FALSE,
            "Malformed",
            "ClaimPolicy p: spec.order: is a string, an integer is expected",
        )
    }


CONFIG = {"opaque": {"driver": "gpu.example.com", "parameters": {}}}
FIRST = {
    "deviceClasses": ["gpu"],
    "deviceClassName": "a.example.com",
    "count": 1,
    "labels": {"x": "1"},
    "capacity": {"requests": {"memory": "1Gi"}},
    "config": [CONFIG],
}
GIVES_WAY: dict[str, tuple[dict[str, Any], list[str]]] = {
    "an alias": ({"deviceClasses": ["gpu"], "deviceClassName": "b.example.com"}, ["deviceClassName"]),
    "a count for every class": ({"count": 2, "tolerations": [{"operator": "Exists"}]}, ["count"]),
    "a label": ({"labels": {"x": "2", "y": "2"}}, ["labels[x]"]),
    "a capacity": ({"capacity": {"requests": {"memory": "2Gi", "cores": "1"}}}, ["capacity.requests[memory]"]),
    "a configuration": (
        {"config": [{"opaque": {**CONFIG["opaque"], "parameters": {"a": 1}}}]},
        ["config[gpu.example.com]"],
    ),
    "the same": ({"count": 1}, []),
    "another class": ({"deviceClasses": ["nic"], "count": 2}, []),
    "a condition": ({"when": "true", "count": 2}, []),
}


@pytest.mark.parametrize(("entry", "fields"), GIVES_WAY.values(), ids=GIVES_WAY)
def test_the_later_policy_gives_way_and_says_so(entry: dict[str, Any], fields: list[str]) -> None:
    first, later = a_policy("z", order=-1, defaults=[FIRST]), a_policy("a", defaults=[entry])

    found = said(first, later)

    assert found["z"][1] == "Applied"
    notes = "; ".join(f"ClaimPolicy z comes first and decides spec.defaults[0].{field}" for field in fields)
    wanted = ("GivesWay", f"is applied, but for this: {notes}") if notes else ("Applied", "is applied in 3 namespaces")
    assert found["a"][1:] == wanted


def test_policies_that_never_meet_do_not_give_way() -> None:
    first, second = [FIRST], [{"count": 2}]
    apart = [
        (a_policy("a", **team("vision"), defaults=first), a_policy("b", **team("speech"), defaults=second)),
        (a_policy("a", queues=["x"], defaults=first), a_policy("b", queues=["y"], defaults=second)),
    ]

    for one, other in apart:
        assert {reason for _, reason, _ in said(one, other).values()} == {"Applied"}
