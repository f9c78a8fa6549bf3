"""Rules of ClaimPolicies: what they allow, deny, warn of and note, and with which words."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from admission.api.muster.policy_rules import Action, FailurePolicy, Rule, Variable
from admission.api.values.work_budget import Work, WorkBudget
from admission.cel.expressions import Budget
from admission.claimpolicy import cel_subject, rules as claimpolicy_rules
from admission.claimpolicy.cel_subject import Subject, User
from admission.claimpolicy.rules import Rulebook, Ruling
from admission.errors import MalformedObjectError

NAMESPACE = {"metadata": {"name": "vision", "labels": {"team": "vision"}}}
ALICE = User(username="alice", uid="u-1", groups=("dev", "vision"), extra={"scopes": ("a",)})
POD = {"metadata": {"name": "train-0"}, "spec": {"priorityClassName": "high"}}


def asked(name: str = "gpu", **exactly: Any) -> dict[str, Any]:
    return {"name": name, "exactly": {"deviceClassName": "gpu.example.com", **exactly}}


def claim(*requests: Mapping[str, Any], **metadata: Any) -> dict[str, Any]:
    data = {"name": "train", "namespace": "vision", **metadata}
    return {"metadata": data, "spec": {"devices": {"requests": list(requests)}}}


def book(*rules: Rule, variables: Sequence[Variable] = (), policy: str = "house") -> Rulebook:
    compiled, problems = claimpolicy_rules.compile_rules(policy, variables, rules)
    assert not problems, problems
    return compiled


def rule(cel: str, message: str = "not so", **more: Any) -> Rule:
    return Rule(cel=cel, message=message, **more)


def judged(cel: str, *requests: Mapping[str, Any], **surroundings: Any) -> Ruling:
    return claimpolicy_rules.judge([book(rule(cel))], [subject(claim(*requests), **surroundings)])


def subject(obj: Mapping[str, Any], **surroundings: Any) -> Subject:
    return Subject(obj, **{"namespace": NAMESPACE, "user": ALICE, "queue": "research", **surroundings})


ALLOWED = {
    "a request by its fields": ("request.exactly.count <= 8", asked(count=8)),
    "a count that is not written is 1, as the API server makes it": ("request.exactly.count == 1", asked()),
    "the mode that is not written is ExactCount": ("request.exactly.allocationMode == 'ExactCount'", asked()),
    "a request for all has no count": ("!has(request.exactly.count)", asked(allocationMode="All")),
    "the claim around it": ("claim.metadata.name == 'train' && claim.spec.devices.requests.size() == 1", asked()),
    "the namespace": ("namespaceObject.metadata.labels.team == 'vision'", asked()),
    "who asks": ("user.username == 'alice' && 'dev' in user.groups && user.extra.scopes == ['a']", asked()),
    "the queue": ("queue == 'research'", asked()),
    "capacities are quantities in text": (
        "quantity(request.exactly.capacity.requests.memory).compareTo(quantity('1Gi')) == 0",
        asked(capacity={"requests": {"memory": "1024Mi"}}),
    ),
    "fields that Muster does not know": ("request.exactly.newest == 'x'", asked(newest="x")),
}


@pytest.mark.parametrize(("cel", "request_"), ALLOWED.values(), ids=ALLOWED)
def test_a_rule_that_holds_allows_the_claim(cel: str, request_: Mapping[str, Any]) -> None:
    assert judged(cel, request_) == claimpolicy_rules.NO_FINDINGS


def test_denies_with_policy_request_and_message() -> None:
    denial = judged("request.exactly.count <= 8", asked(count=9), asked("nic")).denial

    assert denial is not None
    assert denial.reason == "PolicyViolation"
    assert denial.message == "ClaimPolicy house: request gpu: not so"
    assert denial.details == {
        "policy": "house",
        "rule": "spec.rules[0]",
        "requests": ["gpu"],
        "cause": "PolicyViolation",
    }


def test_a_denial_carries_the_reason_of_its_rule() -> None:
    strict = book(rule("request.exactly.count <= 8", "one node has 8", reason="MoreThanOneNode"))

    denial = claimpolicy_rules.judge([strict], [subject(claim(asked(count=9)))]).denial

    assert denial is not None
    assert denial.message == "ClaimPolicy house: request gpu: MoreThanOneNode: one node has 8"
    assert denial.details["cause"] == "MoreThanOneNode"


def test_requests_that_break_the_same_rule_share_a_finding() -> None:
    found = judged("request.exactly.count <= 8", asked("a", count=9), asked("b"), asked("c", count=10))

    assert [str(finding) for finding in found.findings] == ["ClaimPolicy house: requests a, c: not so"]


def test_alternatives_are_judged_as_requests() -> None:
    first = {"name": "gpu", "firstAvailable": [{"name": "big", "deviceClassName": "g", "count": 9}, {"name": "small"}]}

    found = judged("request.exactly.count <= 8", first)

    assert [finding.requests for finding in found.findings] == [("gpu/big",)]


def test_flat_requests_of_v1beta1_are_judged_alike() -> None:
    assert judged("request.exactly.count <= 8", {"name": "gpu", "deviceClassName": "g", "count": 9}).denial is not None


def test_a_denial_lists_every_rule_that_denies() -> None:
    strict = book(rule("request.exactly.count <= 8", "too many"), rule("request.name != 'gpu'", "bad name"))
    other = book(rule("queue != 'research'", "closed"), policy="other")

    denial = claimpolicy_rules.judge([strict, other], [subject(claim(asked(count=9)))]).denial

    assert denial is not None
    assert denial.message == (
        "ClaimPolicy house: request gpu: too many; ClaimPolicy house: request gpu: bad name;"
        " ClaimPolicy other: request gpu: closed"
    )


def test_warnings_and_audit_let_the_claim_in() -> None:
    mild = book(
        rule("request.exactly.count <= 8", "many", action=Action.WARN),
        rule("request.exactly.count <= 4", "some", action=Action.AUDIT, reason="Many"),
    )

    found = claimpolicy_rules.judge([mild], [subject(claim(asked(count=9)))])

    assert found.denial is None
    assert found.warnings == ("muster: ClaimPolicy house: request gpu: many",)
    assert json.loads(found.annotations[claimpolicy_rules.AUDIT]) == [
        {"policy": "house", "rule": "spec.rules[1]", "reason": "Many", "message": "Many: some", "requests": ["gpu"]}
    ]


ERRORS = {
    "a field that is missing": ("claim.metadata.labels.team == 'a'", "no such key: labels"),
    "a division by zero": ("request.exactly.count / 0 == 1", "division by zero"),
}


@pytest.mark.parametrize(("cel", "error"), ERRORS.values(), ids=ERRORS)
def test_a_rule_that_cannot_be_evaluated_denies(cel: str, error: str) -> None:
    denial = judged(cel, asked()).denial

    assert denial is not None
    assert denial.message == (
        f"ClaimPolicy house: request gpu: spec.rules[0] could not be evaluated: {error};"
        " the policy's author has to guard it"
    )


def test_a_warning_that_cannot_be_evaluated_warns() -> None:
    found = claimpolicy_rules.judge([book(rule("claim.status.x == 1", action=Action.WARN))], [subject(claim(asked()))])

    assert found.denial is None
    assert len(found.warnings) == 1
    assert "no such key: status" in found.warnings[0]


MESSAGES = {
    "what it writes is told": ("'at most 8, not ' + string(request.exactly.count)", "at most 8, not 9"),
    "without the space around it": ("'  wide  '", "wide"),
    "nothing is replaced": ("''", "not so"),
    "only space is replaced": ("'  '", "not so"),
    "several lines are replaced": (r"'a\nb'", "not so"),
    "what fails is replaced": ("claim.status.reason", "not so"),
    "what is too long is replaced": ("lists.range(600).map(i, '0123456789').join('')", "not so"),
}


@pytest.mark.parametrize(("expression", "message"), MESSAGES.values(), ids=MESSAGES)
def test_the_message_expression_of_a_rule_makes_its_message(expression: str, message: str) -> None:
    strict = book(rule("request.exactly.count <= 8", message_expression=expression))

    (found,) = claimpolicy_rules.judge([strict], [subject(claim(asked(count=9)))]).findings

    assert found.message == message


def test_a_policy_variable_reads_earlier_variables_and_the_request() -> None:
    variables = (
        Variable(name="team", expression="namespaceObject.metadata.labels.team"),
        Variable(name="most", expression="variables.team == 'vision' ? 8 : 2"),
        Variable(name="over", expression="request.exactly.count > variables.most"),
    )
    strict = book(rule("!variables.over"), variables=variables)

    found = claimpolicy_rules.judge([strict], [subject(claim(asked("a", count=9), asked("b", count=8)))])

    assert [finding.requests for finding in found.findings] == [("a",)]


def test_a_variable_that_nobody_reads_is_not_computed() -> None:
    strict = book(rule("request.exactly.count > 0"), variables=[Variable(name="bad", expression="1 / 0 == 0")])

    assert claimpolicy_rules.judge([strict], [subject(claim(asked()))]) == claimpolicy_rules.NO_FINDINGS


def test_a_policy_variable_that_fails_makes_the_rules_that_read_the_variable_fail() -> None:
    variables = [Variable(name="team", expression="claim.metadata.labels.team")]
    strict = book(rule("variables.team == 'a' || true"), rule("variables.team == 'a'"), variables=variables)

    found = claimpolicy_rules.judge([strict], [subject(claim(asked()))])

    assert [(finding.index, finding.error) for finding in found.findings] == [
        (1, "variables.team: no such key: labels")
    ]


NEEDING = {
    "a pod": ("pod.spec.priorityClassName == 'low'", {"pod": lambda: POD}, {"pod": None}),
    "a user": ("user.username == 'bob'", {"user": ALICE}, {"user": None}),
}


@pytest.mark.parametrize(("cel", "there", "away"), NEEDING.values(), ids=NEEDING)
def test_a_rule_is_evaluated_only_where_the_objects_that_the_rule_reads_exist(cel: str, there: Any, away: Any) -> None:
    assert judged(cel, asked(), **there).denial is not None
    assert judged(cel, asked(), **away) == claimpolicy_rules.NO_FINDINGS


def test_a_rule_needs_what_its_variables_read() -> None:
    variables = [Variable(name="class", expression="pod.spec.priorityClassName")]
    strict = book(rule("variables.class == 'low'"), variables=variables)

    assert claimpolicy_rules.judge([strict], [subject(claim(asked()))]) == claimpolicy_rules.NO_FINDINGS
    assert claimpolicy_rules.judge([strict], [subject(claim(asked()), pod=lambda: POD)]).denial is not None


def test_a_loop_over_something_called_pod_needs_no_pod() -> None:
    assert judged("['a'].all(pod, pod == 'b')", asked()).denial is not None


def test_a_finding_names_the_claim_template_of_the_pod() -> None:
    made = cel_subject.claim_from_template({"namespace": "vision"}, {"spec": claim(asked(count=9))["spec"]})

    found = claimpolicy_rules.judge(
        [book(rule("request.exactly.count <= 8"))], [subject(made, label="ResourceClaimTemplate one", pod=lambda: POD)]
    )

    assert [str(finding) for finding in found.findings] == [
        "ClaimPolicy house: ResourceClaimTemplate one, request gpu: not so"
    ]


def test_all_rules_of_a_review_share_a_budget_and_fail_closed() -> None:
    dear = book(*(rule("lists.range(1000).all(x, x >= 0)") for _ in range(5)))

    found = claimpolicy_rules.judge([dear], [subject(claim(asked()))], budget=Budget(cost=15_000, steps=1_000_000))

    assert [finding.index for finding in found.findings] == [2, 3, 4]
    assert {finding.error for finding in found.findings} == {"operation cancelled: actual cost limit exceeded"}


FLAWS = {
    "an unknown name": (
        rule("object.spec.x"),
        (
            "spec.rules[1].cel: is not CEL: 1:1: undeclared reference to 'object' (in container ''); there are"
            " request, claim, pod, namespaceObject, user, queue, variables"
        ),
    ),
    "a variable that does not exist": (
        rule("true &&\n  variables.x"),
        "spec.rules[1].cel: is not CEL that Muster takes: 2:12: undefined field 'x'",
    ),
    "another result": (
        rule("request.exactly.count + 1"),
        "spec.rules[1].cel: is not CEL that Muster takes: must evaluate to bool or the unknown type, not int",
    ),
    "a message that is no text": (
        rule("true", message_expression="1"),
        (
            "spec.rules[1].messageExpression: is not CEL that Muster takes: must evaluate to string or the unknown"
            " type, not int"
        ),
    ),
    "what surely costs too much": (
        rule("lists.range(3000000).all(x, x >= 0)"),
        (
            "spec.rules[1].cel: is not CEL that Muster takes: evaluating it may cost 18,000,012, the limit is"
            " 10,000,000; loop over less"
        ),
    ),
}


@pytest.mark.parametrize(("wrong", "problem"), FLAWS.values(), ids=FLAWS)
def test_a_problem_of_a_rule_names_rule_line_and_column(wrong: Rule, problem: str) -> None:
    _, problems = claimpolicy_rules.compile_rules("house", (), [rule("true"), wrong])

    assert [str(found) for found in problems] == [problem]


NO_CEL = (
    "house: request gpu: spec.rules[0].cel: is not CEL that Muster takes: 1:3: Syntax error: the expression ends too"
)
MEND = "; until the policy's author mends the rule or takes it out, it allows nothing"


def flawed(*rules: Rule, variables: Sequence[Variable] = ()) -> Rulebook:
    return claimpolicy_rules.compile_rules("house", variables, rules)[0]


def test_a_flawed_rule_denies_what_it_would_be_asked_and_the_others_go_on() -> None:
    found = flawed(rule("x."), rule("request.exactly.count <= 8", "at most 8"))

    denial = claimpolicy_rules.judge([found], [subject(claim(asked(count=2)))]).denial
    assert denial is not None
    assert denial.reason == "PolicyViolation"
    assert denial.message.startswith(f"ClaimPolicy {NO_CEL}")
    assert denial.message.endswith(MEND)
    assert "at most 8" not in denial.message
    assert denial.details["rule"] == "spec.rules[0]"
    both = claimpolicy_rules.judge([found], [subject(claim(asked(count=9)))]).denial
    assert both is not None
    assert both.message.endswith("; ClaimPolicy house: request gpu: at most 8")


def test_a_rule_that_reads_a_flawed_variable_is_flawed() -> None:
    found = flawed(rule("variables.most > 1"), variables=[Variable(name="most", expression="x.")])

    assert claimpolicy_rules.judge([found], [subject(claim(asked()))]).denial is not None


def test_a_flawed_rule_does_what_its_action_does() -> None:
    warning = claimpolicy_rules.judge([flawed(rule("x.", action=Action.WARN))], [subject(claim(asked()))])
    audit = claimpolicy_rules.judge([flawed(rule("x.", action=Action.AUDIT))], [subject(claim(asked()))])

    assert warning.denial is None
    assert warning.warnings[0].startswith(f"muster: ClaimPolicy {NO_CEL}")
    assert audit.denial is None
    assert "is not CEL" in json.loads(audit.annotations[claimpolicy_rules.AUDIT])[0]["message"]


def test_a_flawed_message_leaves_the_rule_as_it_is() -> None:
    found = flawed(rule("request.exactly.count <= 8", "at most 8", message_expression="1"))

    denial = claimpolicy_rules.judge([found], [subject(claim(asked(count=9)))]).denial
    assert denial is not None
    assert denial.message == "ClaimPolicy house: request gpu: at most 8"
    assert claimpolicy_rules.judge([found], [subject(claim(asked(count=8)))]).denial is None


@pytest.mark.parametrize("cel", ["x.", "claim.metadata.labels.team == 'a'"], ids=["a flaw", "no value"])
def test_what_is_to_be_ignored_denies_nothing(cel: str) -> None:
    ignored = rule(cel, failure_policy=FailurePolicy.IGNORE)

    assert claimpolicy_rules.judge([flawed(ignored)], [subject(claim(asked()))]) == claimpolicy_rules.NO_FINDINGS
    assert claimpolicy_rules.judge([flawed(rule(cel))], [subject(claim(asked()))]).denial is not None


def test_a_rule_that_is_ignored_where_it_fails_denies_where_it_is_false() -> None:
    found = flawed(rule("claim.metadata.labels.team == 'a'", failure_policy=FailurePolicy.IGNORE))

    assert claimpolicy_rules.judge([found], [subject(claim(asked(), labels={"team": "b"}))]).denial is not None


def test_a_policy_variable_cannot_read_a_later_variable() -> None:
    variables = [Variable(name="a", expression="variables.b"), Variable(name="b", expression="1")]

    _, problems = claimpolicy_rules.compile_rules("house", variables, ())

    assert [str(problem) for problem in problems] == [
        "spec.variables[0].expression: is not CEL that Muster takes: 1:10: undefined field 'b'"
    ]


def test_a_field_that_no_type_has_is_doubted_but_taken() -> None:
    compiled = book(rule("request.exactly.cuont <= 8"))

    assert [str(uncertainty) for uncertainty in compiled.uncertain] == [
        "spec.rules[0].cel: looks wrong: 1:16: undefined field 'cuont'"
    ]


def test_a_claim_nested_too_deeply_is_refused_by_name() -> None:
    parameters: Any = {}
    for _ in range(2_000):
        parameters = [parameters]
    deep = {**claim(asked()), "status": parameters}

    with pytest.raises(MalformedObjectError, match=r"claim vision/train: \.: is nested too deeply"):
        subject(deep)


def test_loops_turn_no_more_often_than_there_is_work_left() -> None:
    fresh, spent = WorkBudget(), WorkBudget()
    spent.charge(Work.TOKEN, Work.TOKEN.most - 1)

    assert claimpolicy_rules.new_budget(None).steps == claimpolicy_rules.STEPS
    assert claimpolicy_rules.new_budget(fresh).steps == claimpolicy_rules.STEPS
    assert claimpolicy_rules.new_budget(spent).steps == spent.left < claimpolicy_rules.STEPS


def test_rules_times_requests_are_charged() -> None:
    rulebook, work = book(rule("request.exactly.count < 3"), rule("claim.metadata.name != ''")), WorkBudget()
    subject = Subject(claim(*(asked(f"r{at}") for at in range(5))), namespace=NAMESPACE)

    claimpolicy_rules.judge([rulebook], [subject], work=work)

    assert work.spent == 2 * 5 * Work.EVALUATION.units
