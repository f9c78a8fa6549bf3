"""Rules of a ClaimPolicy: conditions on the requests of claims, and the variables that they share."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from admission.api.values.decoding import Reader

REASON = "PolicyViolation"
"""The reason of a rule that states none."""


class Action(StrEnum):
    """The effect of a rule whose expression is false."""

    DENY = "Deny"
    WARN = "Warn"
    AUDIT = "Audit"


class FailurePolicy(StrEnum):
    """What becomes of an invalid rule, or one that cannot be evaluated, as in ValidatingAdmissionPolicy."""

    FAIL = "Fail"
    """It counts as false."""
    IGNORE = "Ignore"
    """It counts as true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One of spec.variables: `variables.NAME` in the expressions after it."""

    name: str
    expression: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One of spec.rules. message_expression: CEL that returns the message; empty if there is none."""

    cel: str
    message: str
    message_expression: str = ""
    reason: str = REASON
    action: Action = Action.DENY
    failure_policy: FailurePolicy = FailurePolicy.FAIL


def decode_variables(spec: Reader) -> tuple[Variable, ...]:
    """Decode spec.variables of a ClaimPolicy; problems go to the reader."""
    return tuple(_variables(spec))


def decode(spec: Reader) -> tuple[Rule, ...]:
    """Decode spec.rules of a ClaimPolicy; problems go to the reader."""
    return tuple(map(_rule, spec.children("rules")))


def _variables(spec: Reader) -> Iterator[Variable]:
    seen: set[str] = set()
    for reader in spec.children("variables"):
        found = Variable(name=reader.required("name"), expression=reader.required("expression"))
        if found.name in seen:
            reader.problem("name", f"{found.name!r} stands twice; give each variable a name of its own")
        seen.add(found.name)
        yield found


def _rule(reader: Reader) -> Rule:
    action = reader.text("action", Action.DENY)
    if action not in set(Action):
        reader.problem("action", f"{action!r} is not one of {', '.join(Action)}")
        action = Action.DENY
    failure_policy = reader.text("failurePolicy", FailurePolicy.FAIL)
    if failure_policy not in set(FailurePolicy):
        reader.problem("failurePolicy", f"{failure_policy!r} is not one of {', '.join(FailurePolicy)}")
        failure_policy = FailurePolicy.FAIL
    return Rule(
        cel=reader.required("cel"),
        message=reader.required("message"),
        message_expression=reader.text("messageExpression"),
        reason=reader.text("reason") or REASON,
        action=Action(action),
        failure_policy=FailurePolicy(failure_policy),
    )
