"""Checks of a new or changed ClaimPolicy.

A policy with a problem would refuse too much or too little, so it is refused: the stored version stays in force.
"""

from collections.abc import Iterator, Sequence

from admission.api.muster.claim_policies import ClaimPolicy, Template
from admission.api.snapshot import Snapshot
from admission.api.validation import objects
from admission.api.validation.openapi import unknown_fields
from admission.api.values.decoding import Json, Reader
from admission.claimpolicy import match, status
from admission.claimpolicy.match import CompiledPolicy, Policies
from admission.device_cel import limits
from admission.device_cel.lint import LintRule
from admission.errors import Problem
from admission.objectpolicy import findings
from admission.objectpolicy.findings import ObjectFinding


def check_write(policy: ClaimPolicy, snapshot: Snapshot, known: Policies) -> Iterator[ObjectFinding]:
    """Yield the findings about a policy as it will be stored. known: all policies as they are now."""
    compiled = match.compile_policy(policy)
    yield from cel_findings(compiled)
    for at, template in enumerate(policy.templates):
        yield from findings.refusals(_template_problems(template, f"spec.templates[{at}]"))
    yield from findings.uncertain(_unknown_fields(policy))
    for at, default in enumerate(policy.defaults):
        yield from _lint_selectors(default.selectors, f"spec.defaults[{at}]", ())
    for at, conversion in enumerate(policy.conversions):
        device_class = snapshot.classes.get(conversion.device_class)
        before = device_class.selectors if device_class is not None else None
        yield from _lint_selectors(conversion.selectors, f"spec.conversions[{at}]", before)
    yield from unknown_queues(policy, snapshot)
    if not compiled.problems:
        policies = Policies({**known.compiled, policy.name: compiled}, snapshot.namespaces)
        for notes in status.conflicts(policies, snapshot.namespaces).get(policy.name, ()):
            yield ObjectFinding(field="spec.order", message=notes)


def expressions(policy: ClaimPolicy) -> Iterator[str]:
    """Yield the policy's CEL, as often as it is compiled."""
    for variable in policy.variables:
        yield variable.expression
    for rule in policy.rules:
        yield from (rule.cel, rule.message_expression or "")
    for default in policy.defaults:
        yield default.when or ""
    selectors = [selector for default in policy.defaults for selector in default.selectors]
    selectors += [selector for conversion in policy.conversions for selector in conversion.selectors]
    for selector in selectors:
        text = str(selector["cel"]["expression"])
        yield from (text, text)
    for template in policy.templates:
        yield from _template_expressions(template)


def _template_expressions(template: Template) -> Iterator[str]:
    for request in Reader(template.spec).child("devices").children("requests"):
        for device_request in (request.child("exactly"), *request.children("firstAvailable")):
            for selector in device_request.children("selectors"):
                yield str(selector.child("cel").raw("expression"))


def cel_findings(compiled: CompiledPolicy) -> list[ObjectFinding]:
    """Return the findings about a policy's CEL."""
    return [*findings.refusals(compiled.problems), *findings.uncertain(compiled.uncertain)]


def unknown_queues(policy: ClaimPolicy, snapshot: Snapshot) -> Iterator[ObjectFinding]:
    """Yield queues that do not exist: a policy only for those applies to no claim."""
    for at, queue in enumerate(policy.queues):
        if queue not in snapshot.queues:
            yield ObjectFinding(field=f"spec.queues[{at}]", message=f"there is no queue {queue}")


def _unknown_fields(policy: ClaimPolicy) -> Iterator[Problem]:
    """Yield the fields of what is kept as written (`known_fields.KEPT`) that no Kubernetes has."""
    kept: list[tuple[str, Json, str]] = []
    for at, template in enumerate(policy.templates):
        kept.append((f"spec.templates[{at}].spec", template.spec, "resource.v1.ResourceClaimSpec"))
    for at, default in enumerate(policy.defaults):
        path = f"spec.defaults[{at}]"
        for number, toleration in enumerate(default.tolerations):
            kept.append((f"{path}.tolerations[{number}]", toleration, "resource.v1.DeviceToleration"))
        for number, config in enumerate(default.config):
            kept.append((f"{path}.config[{number}]", config, "resource.v1.DeviceClaimConfiguration"))
    for path, value, type_name in kept:
        yield from unknown_fields.problems(value, type_name, path)


def _template_problems(template: Template, path: str) -> Iterator[Problem]:
    """Yield the problems of a template that every API server would refuse."""
    body = {"metadata": {"name": template.name}, "spec": {"spec": template.spec}}
    for problem in objects.problems("ResourceClaimTemplate", body):
        field = problem.field.replace("metadata.name", f"{path}.name", 1).replace("spec.spec", f"{path}.spec", 1)
        yield Problem(field, problem.message)
    reader = Reader(template.spec, f"{path}.spec")
    for request in reader.child("devices").children("requests"):
        for device_request in (request.child("exactly"), *request.children("firstAvailable")):
            yield from _selector_problems(device_request)


def _selector_problems(device_request: Reader) -> Iterator[Problem]:
    for selector in device_request.children("selectors"):
        text = selector.child("cel").raw("expression")
        refusal = limits.check(text, profile=findings.COMPILER) if isinstance(text, str) and text else None
        if refusal is not None:
            yield Problem(f"{selector.path}.cel.expression", f"is not CEL that Kubernetes takes: {refusal}")


def _lint_selectors(selectors: Sequence[Json], path: str, before: tuple[str, ...] | None) -> Iterator[ObjectFinding]:
    """Yield the lint warnings of selectors. before: the selectors of their class; None if it is not known."""
    for at, selector in enumerate(selectors):
        text = str(selector["cel"]["expression"])
        for lint_warning in findings.lint_of(text, before or ()):
            if lint_warning.rule is not LintRule.UNGUARDED_LOOKUP or before:
                yield findings.from_lint(f"{path}.selectors[{at}].cel.expression", text, lint_warning)
        if before is not None:
            before = (*before, text)
