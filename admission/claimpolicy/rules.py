"""Rules of ClaimPolicies: restrictions on claims, evaluated as ValidatingAdmissionPolicy evaluates its own.

Every rule of every policy is evaluated for every request; one Deny denies the review. An invalid rule, which does
not compile, and one that cannot be evaluated count as false, or as true with failurePolicy Ignore (k8s.io/apiserver
pkg/admission/plugin/policy/validating, v0.36). If the message expression fails or does not compile, the rule's
`message` is used. A rule that reads what the review does not have, such as `pod` for a claim that no pod uses yet, is
not evaluated; what an invalid one would read is not known, so it counts in every review.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Self

from admission.api.muster.policy_rules import REASON, Action, FailurePolicy, Rule, Variable
from admission.api.values.reasons import Denial, DenyReason, Detail
from admission.api.values.work_budget import Work, WorkBudget
from admission.cel.core.errors import EvaluationError
from admission.cel.expressions import Budget
from admission.cel.front_end import Result
from admission.cel.limits import Inadmissible
from admission.claimpolicy import cel_environment
from admission.claimpolicy.cel_environment import Term, Vocabulary
from admission.claimpolicy.cel_subject import Activation, Subject
from admission.errors import Problem

COST, STEPS = 1_000_000, 100_000
"""The budget of all rules together in one review: cost in CEL's units, and loop iterations."""

LONGEST_MESSAGE = 5 * 1024
"""In bytes; ValidatingAdmissionPolicy has the same limit for a messageExpression."""

AUDIT = "claim-policies"
"""The key of the audit annotation; the API server puts the webhook's name and a slash before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledRule:
    """A rule and its place in spec.rules.

    condition: None if it is invalid, which `problem` then explains. needs: the variables that a review must have for
    the rule to be evaluated. reads: those, and the variables of its message. request_independent: whether the result is
    the same for all requests of a claim.
    """

    index: int
    rule: Rule
    condition: Term | None
    message: Term | None = None
    needs: frozenset[str] = frozenset()
    reads: frozenset[str] = frozenset()
    request_independent: bool = True
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rulebook:
    """The rules of one policy, compiled once per version. uncertain: rules that are applied but are probably wrong."""

    policy: str
    vocabulary: Vocabulary
    rules: tuple[CompiledRule, ...] = ()
    uncertain: tuple[Problem, ...] = ()
    reads: frozenset[str] = frozenset()

    def filtered(self, wanted: Callable[[CompiledRule], bool]) -> Self:
        """Return the same policy with only the wanted rules."""
        rules = tuple(filter(wanted, self.rules))
        return replace(self, rules=rules, reads=_reads(rules))


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that a request violates. error: why the rule could not be evaluated; "" if it could.

    is_invalid: whether that is so for every request.
    """

    policy: str
    index: int
    rule: Rule
    message: str
    error: str = ""
    label: str = ""
    requests: tuple[str, ...] = ()
    is_invalid: bool = False

    @property
    def where(self) -> str:
        """Return the rule's field path in the policy."""
        return f"spec.rules[{self.index}]"

    def __str__(self) -> str:
        return f"ClaimPolicy {self.policy}: {self._place()}: {self.text}"

    @property
    def text(self) -> str:
        """Return the message, without the names of policy and request."""
        if self.is_invalid:
            return f"{self.error}; until the policy's author mends the rule or takes it out, it allows nothing"
        if self.error:
            return f"{self.where} could not be evaluated: {self.error}; the policy's author has to guard it"
        return self.message if self.rule.reason == REASON else f"{self.rule.reason}: {self.message}"

    def _place(self) -> str:
        if not self.requests:
            return self.label
        noun = "requests" if len(self.requests) > 1 else "request"
        named = f"{noun} {', '.join(self.requests)}"
        return f"{self.label}, {named}" if self.label else named


@dataclass(frozen=True, slots=True)
class Ruling:
    """The findings of one review, in the order of the policies and their rules."""

    findings: tuple[Finding, ...] = ()

    @property
    def denial(self) -> Denial | None:
        """Return the denial, with the message of every rule that denies."""
        denying = self._by_action(Action.DENY)
        if not denying:
            return None
        first = denying[0]
        details: dict[str, Detail] = {
            "policy": first.policy,
            "rule": first.where,
            "requests": list(first.requests),
            "cause": first.rule.reason,
        }
        return Denial(DenyReason.POLICY_VIOLATION, "; ".join(map(str, denying)), details)

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(f"muster: {finding}" for finding in self._by_action(Action.WARN))

    @property
    def annotations(self) -> Mapping[str, str]:
        """Return the audit annotation, a JSON list with an object for each rule of action Audit."""
        entries = [_audit_entry(finding) for finding in self._by_action(Action.AUDIT)]
        return {AUDIT: json.dumps(entries, ensure_ascii=False)} if entries else {}

    def _by_action(self, action: Action) -> list[Finding]:
        return [finding for finding in self.findings if finding.rule.action is action]


NO_FINDINGS = Ruling()


NO_PROBLEMS: Mapping[str, Sequence[Problem]] = MappingProxyType({})


def compile_rules(
    policy: str,
    variables: Sequence[Variable],
    rules: Sequence[Rule],
    known_problems: Mapping[str, Sequence[Problem]] = NO_PROBLEMS,
) -> tuple[Rulebook, tuple[Problem, ...]]:
    """Compile a policy's rules. Return them, without invalid ones that are ignored, and all problems.

    known_problems: by the path of the rule or variable; these are not returned.
    """
    vocabulary, problems = cel_environment.build(variables, known_problems)
    found = list(problems)
    compiled = []
    for index, rule in enumerate(rules):
        known = known_problems.get(f"spec.rules[{index}]")
        one, more = (_invalid(index, rule, known), ()) if known else _compile(vocabulary, index, rule)
        found += more
        if not one.problem or rule.failure_policy is FailurePolicy.FAIL:
            compiled.append(one)
    uncertain = tuple(_uncertain(vocabulary, compiled))
    rulebook = Rulebook(
        policy=policy, vocabulary=vocabulary, rules=tuple(compiled), uncertain=uncertain, reads=_reads(compiled)
    )
    return rulebook, tuple(found)


def judge(
    rulebooks: Iterable[Rulebook],
    subjects: Sequence[Subject],
    *,
    budget: Budget | None = None,
    work: WorkBudget | None = None,
) -> Ruling:
    """Evaluate the rules of the policies, in their order, on the claims of one review.

    work: is charged for each rule and request. Raises TooMuchWorkError.
    """
    remaining = new_budget(work) if budget is None else budget
    findings = [
        finding
        for rulebook in rulebooks
        if rulebook.rules
        for subject in subjects
        for finding in _violations(rulebook, subject, remaining, work)
    ]
    return Ruling(tuple(_merged(findings))) if findings else NO_FINDINGS


def new_budget(work: WorkBudget | None) -> Budget:
    """Return the budget of all rules in one review, with no more turns of loops than there is work left."""
    return Budget(cost=COST, steps=STEPS if work is None else min(STEPS, work.left))


def unevaluated(rulebooks: Iterable[Rulebook], label: str, *, absent: Collection[str] = ()) -> Ruling:
    """Return findings about a claim that does not exist yet, from rules that will not be evaluated for it later.

    label: the claim's name in messages. absent: variables that the review does not have; rules that read them are
    skipped.
    """
    text = f"{label} is not there yet, and this rule is asked when the pod is created; create {label} before the pod"
    findings = (
        Finding(rulebook.policy, one.index, one.rule, text, label=label)
        for rulebook in rulebooks
        for one in rulebook.rules
        if one.needs.isdisjoint(absent)
    )
    return Ruling(tuple(findings))


def merged(rulings: Sequence[Ruling]) -> Ruling:
    """Return several rulings of one review as one."""
    findings = [finding for ruling in rulings for finding in ruling.findings]
    return Ruling(tuple(_merged(findings))) if findings else NO_FINDINGS


def _reads(rules: Iterable[CompiledRule]) -> frozenset[str]:
    return frozenset[str]().union(*(one.reads for one in rules))


def _compile(vocabulary: Vocabulary, index: int, rule: Rule) -> tuple[CompiledRule, list[Problem]]:
    """Return a compiled rule, and its problems. One of the message alone leaves the rule valid."""
    at = f"spec.rules[{index}]"
    condition = vocabulary.compile(rule.cel, Result.BOOL)
    message = vocabulary.compile(rule.message_expression, Result.STRING) if rule.message_expression else None
    problems = []
    if isinstance(condition, Inadmissible):
        problems.append(Problem(f"{at}.cel", cel_environment.explain(condition)))
    of_condition = tuple(problems)
    if isinstance(message, Inadmissible):
        problems.append(Problem(f"{at}.messageExpression", cel_environment.explain(message)))
        message = None
    if isinstance(condition, Inadmissible):
        return _invalid(index, rule, of_condition), problems
    # A message that reads a missing variable falls back to `message`, so only the condition decides whether a rule
    # runs.
    reads = condition.reads | (message.reads if message else frozenset())
    compiled = CompiledRule(
        index=index,
        rule=rule,
        condition=condition,
        message=message,
        needs=condition.reads,
        reads=reads,
        request_independent="request" not in reads,
    )
    return compiled, problems


def _invalid(index: int, rule: Rule, problems: Iterable[Problem]) -> CompiledRule:
    return CompiledRule(index=index, rule=rule, condition=None, problem="; ".join(map(str, problems)))


def _uncertain(vocabulary: Vocabulary, compiled: Iterable[CompiledRule]) -> Iterator[Problem]:
    for number, term in enumerate(vocabulary.variables.values()):
        if term.uncertainty:
            yield Problem(f"spec.variables[{number}].expression", f"looks wrong: {term.uncertainty}")
    for one in compiled:
        for name, found in (("cel", one.condition), ("messageExpression", one.message)):
            if found is not None and found.uncertainty:
                yield Problem(f"spec.rules[{one.index}].{name}", f"looks wrong: {found.uncertainty}")


def _violations(rulebook: Rulebook, subject: Subject, budget: Budget, work: WorkBudget | None) -> Iterator[Finding]:
    """Yield the rules that requests of a claim violate; a rule that reads no request is evaluated once for all."""
    present = subject.present
    rules = [compiled for compiled in rulebook.rules if compiled.needs <= present]
    requests = subject.requests()
    if not rules or not requests:
        return
    if work is not None:
        work.charge(Work.EVALUATION, len(rules) * len(requests))
    names = tuple(request.name for request in requests)
    first, others = rules, [compiled for compiled in rules if not compiled.request_independent]
    activation = Activation(rulebook.vocabulary, subject, rulebook.reads, budget)
    for request in requests:
        activation.set_request(request)
        for compiled in first:
            outcome = _violation(compiled, activation)
            if outcome is not None:
                requests_at_fault = names if compiled.request_independent else (request.name,)
                yield Finding(
                    rulebook.policy,
                    compiled.index,
                    compiled.rule,
                    *outcome,
                    subject.label,
                    requests_at_fault,
                    is_invalid=bool(compiled.problem),
                )
        first = others


def _violation(compiled: CompiledRule, activation: Activation) -> tuple[str, str] | None:
    """Return the message and error of a violated rule; None if the request complies."""
    if compiled.condition is None:
        return "", compiled.problem
    try:
        if compiled.condition.expression.evaluate(activation.bindings, activation.budget) is True:
            return None
    except EvaluationError as error:
        return None if compiled.rule.failure_policy is FailurePolicy.IGNORE else ("", str(error))
    return _message(compiled, activation), ""


def _message(compiled: CompiledRule, activation: Activation) -> str:
    """Return the text of the message expression if it is a single line, else `message`."""
    if compiled.message is None:
        return compiled.rule.message
    try:
        value = compiled.message.expression.evaluate(activation.bindings, activation.budget)
    except EvaluationError:
        return compiled.rule.message
    if not isinstance(value, str) or len(value.encode(errors="replace")) > LONGEST_MESSAGE:
        return compiled.rule.message
    text = value.strip()
    return text if text and "\n" not in text else compiled.rule.message


def _merged(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield findings by policy, then rule; findings of one rule with the same message become one."""
    groups: dict[tuple[str, int, str, str, str], list[Finding]] = {}
    policies: dict[str, int] = {}
    for finding in findings:
        policies.setdefault(finding.policy, len(policies))
        groups.setdefault((finding.policy, finding.index, finding.message, finding.error, finding.label), []).append(
            finding
        )
    for _, group in sorted(groups.items(), key=lambda item: (policies[item[0][0]], item[0][1])):
        names = dict.fromkeys(name for finding in group for name in finding.requests)
        yield replace(group[0], requests=tuple(names))


def _audit_entry(finding: Finding) -> dict[str, object]:
    return {
        "policy": finding.policy,
        "rule": finding.where,
        "reason": finding.rule.reason,
        "message": finding.text,
        "requests": list(finding.requests),
        **({"object": finding.label} if finding.label else {}),
    }
