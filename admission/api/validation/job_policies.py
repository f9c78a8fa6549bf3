"""Validation of what a Job makes of failed and succeeded pods, and of which pods it takes for its own.

In the API server's words. Mirrors `pkg/apis/batch/validation` of Kubernetes (v1.36.3, v1.37.1).
"""

from itertools import pairwise

from admission.api.validation import fields, selectors
from admission.api.values import formats
from admission.api.values.decoding import Reader

ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
MOST_RULES = 20
MOST_PATTERNS = 20
MOST_EXIT_CODES = 255
LONGEST_INDEX = 10
"""Digits of an index."""
GENERATED = frozenset(
    {"job-name", "controller-uid", "batch.kubernetes.io/job-name", "batch.kubernetes.io/controller-uid"}
)
"""Labels that a Job gives its pods, and selects them by."""


def validate(spec: Reader, *, indexes: int | None) -> None:
    """Judge the policies of a JobSpec. indexes: of an Indexed Job; None: it has none."""
    policy = spec.child("podFailurePolicy")
    rules = list(policy.children("rules"))
    if len(rules) > MOST_RULES:
        policy.problem("rules", f"Too many: {len(rules)}: must have at most {MOST_RULES} items")
    of_pod = spec.child("template").child("spec")
    names = {one.text("name") for field in ("containers", "initContainers") for one in of_pod.children(field)}
    for rule in rules:
        _failure_rule(rule, names, per_index="backoffLimitPerIndex" in spec)
    replaced = ("Failed",) if "podFailurePolicy" in spec else ("Failed", "TerminatingOrFailed")
    fields.supported(spec, "podReplacementPolicy", replaced)
    if indexes is not None and "successPolicy" in spec:
        _success(spec.child("successPolicy"), indexes)


def validate_selector(spec: Reader) -> None:
    """Judge the selector of a Job, which is generated unless its author asks for another."""
    if "selector" not in spec:
        return
    selector = spec.child("selector")
    if spec.flag("manualSelector"):
        selectors.label_selector(selector)
        return
    asked = {
        one.text("key") for one in selector.children("matchExpressions") if one.text("operator") in ("In", "Exists")
    }
    if not GENERATED.issuperset({*selector.keys("matchLabels"), *asked}):
        spec.problem("selector", "Invalid value: `selector` not auto-generated: leave it out, or set manualSelector")


def _failure_rule(rule: Reader, names: set[str], *, per_index: bool) -> None:
    action = fields.needed(rule, "action", f"valid values: {', '.join(ACTIONS)}")
    if action:
        fields.supported(rule, "action", ACTIONS)
    if action == "FailIndex" and not per_index:
        fields.invalid(rule, "action", "requires the backoffLimitPerIndex to be set")
    patterns = list(rule.children("onPodConditions"))
    if ("onExitCodes" in rule) == bool(patterns):
        why = "specifying both OnExitCodes and OnPodConditions is not supported" if patterns else ""
        rule.problem("", f"Invalid value: {why or 'specifying one of OnExitCodes and OnPodConditions is required'}")
    if "onExitCodes" in rule:
        _exit_codes(rule.child("onExitCodes"), names)
    if len(patterns) > MOST_PATTERNS:
        rule.problem("onPodConditions", f"Too many: {len(patterns)}: must have at most {MOST_PATTERNS} items")
    for pattern in patterns:
        if message := formats.key(pattern.text("type")):
            pattern.problem("type", f"Invalid value: {message}")
        if pattern.text("status"):
            fields.supported(pattern, "status", ("False", "True", "Unknown"))


def _exit_codes(codes: Reader, names: set[str]) -> None:
    operator = fields.needed(codes, "operator", "valid values: In, NotIn")
    if operator:
        fields.supported(codes, "operator", ("In", "NotIn"))
    if "containerName" in codes and codes.text("containerName") not in names:
        why = "must be one of the container or initContainer names in the pod template"
        fields.invalid(codes, "containerName", why)
    found = codes.raw("values")
    values = [one for one in found if isinstance(one, int)] if isinstance(found, list) else []
    if not found:
        codes.problem("values", "Invalid value: at least one value is required")
    if len(values) > MOST_EXIT_CODES:
        codes.problem("values", f"Too many: {len(values)}: must have at most {MOST_EXIT_CODES} items")
    if any(one > other for one, other in pairwise(values)):
        codes.problem("values", "Invalid value: must be ordered")
    for at, value in enumerate(values):
        if value == 0 and operator == "In":
            codes.problem(f"values[{at}]", "Invalid value: 0: must not be 0 for the In operator")
        if at and value == values[at - 1]:
            codes.problem(f"values[{at}]", f"Duplicate value: {value}")


def _success(policy: Reader, indexes: int) -> None:
    rules = list(policy.children("rules"))
    if not rules:
        why = "at least one rules must be specified when the successPolicy is specified"
        policy.problem("rules", f"Required value: {why}")
    if len(rules) > MOST_RULES:
        policy.problem("rules", f"Too many: {len(rules)}: must have at most {MOST_RULES} items")
    for rule in rules:
        if "succeededCount" not in rule and "succeededIndexes" not in rule:
            why = "at least one of succeededCount or succeededIndexes must be specified"
            rule.problem("", f"Required value: {why}")
        fields.not_negative(rule, "succeededCount")
        if rule.int32("succeededCount") > indexes:
            why = f"must be less than or equal to {indexes} (the number of specified completions)"
            fields.invalid(rule, "succeededCount", why)
        if "succeededIndexes" in rule:
            _indexes(rule, indexes)


def _indexes(rule: Reader, indexes: int) -> None:
    """Judge a list of indexes such as `0,2-4`, in ascending order."""
    total, last = 0, -1
    listed = rule.text("succeededIndexes")
    for part in listed.split(",") if listed else ():
        first, dash, end = part.partition("-")
        bounds = (first, end if dash else first)
        if not all(one.isascii() and one.isdigit() and len(one) <= LONGEST_INDEX for one in bounds):
            fields.invalid(rule, "succeededIndexes", "error parsing succeededIndexes: expected indexes such as 0,2-4")
            return
        low, high = int(bounds[0]), int(bounds[1])
        if not last < low <= high < indexes or (dash and low == high):
            why = f"error parsing succeededIndexes: expected ascending indexes below {indexes}"
            fields.invalid(rule, "succeededIndexes", why)
            return
        total, last = total + high - low + 1, high
    if rule.int32("succeededCount") > total:
        why = f"must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
        fields.invalid(rule, "succeededCount", why)
