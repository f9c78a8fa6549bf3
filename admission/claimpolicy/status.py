"""The status of a ClaimPolicy: whether it is applied, why not, and where an earlier policy overrides it."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from admission.api.kubernetes.meta import Condition, ConditionStatus
from admission.api.kubernetes.nodes import Namespace
from admission.api.muster.claim_policies import ClaimPolicy, Default
from admission.api.muster.status_reports import ConditionReport
from admission.api.snapshot import Snapshot
from admission.claimpolicy import draft
from admission.claimpolicy.match import CompiledPolicy, Policies

PLURAL = "claimpolicies"
MOST_REPORTED = 5
"""The most items of one kind in a message."""

NO_PROBLEMS: Mapping[str, tuple[str, ...]] = MappingProxyType({})


def conditions(
    policies: Policies, snapshot: Snapshot, templates: Mapping[str, tuple[str, ...]] = NO_PROBLEMS
) -> list[ConditionReport]:
    """Return the condition Ready of every policy.

    templates: by policy, the templates that differ from what it wants.
    """
    overridden = conflicts(policies, snapshot.namespaces)
    reports = [
        ConditionReport(
            plural=PLURAL,
            name=name,
            generation=compiled.policy.meta.generation,
            conditions=(_ready(compiled, overridden.get(name, ()), templates.get(name, ()), snapshot.namespaces),),
        )
        for name, compiled in sorted(policies.compiled.items())
    ]
    malformed = [
        ConditionReport(plural=PLURAL, name=name, generation=0, conditions=(_refused(str(error)),))
        for (kind, name), error in sorted(snapshot.malformed.items())
        if kind == "ClaimPolicy"
    ]
    return [*reports, *malformed]


def conflicts(policies: Policies, namespaces: Mapping[str, Namespace]) -> Mapping[str, tuple[str, ...]]:
    """Return what earlier policies override: the name of the later policy → its fields that an earlier one decides.

    Only certain conflicts count: entries without a condition, for a class and a namespace that both policies are for.
    """
    found: dict[str, tuple[str, ...]] = {}
    active = [compiled.policy for compiled in policies.active]
    selected = {policy.name: _selected_namespaces(policy, namespaces) for policy in active}
    for index, later in enumerate(active):
        notes = [
            difference
            for earlier in active[:index]
            if _share_queues(earlier, later) and not selected[earlier.name].isdisjoint(selected[later.name])
            for difference in _differences(earlier, later)
        ]
        if notes:
            found[later.name] = tuple(notes)
    return found


def _ready(
    compiled: CompiledPolicy,
    overridden: tuple[str, ...],
    templates: tuple[str, ...],
    namespaces: Mapping[str, Namespace],
) -> Condition:
    policy = compiled.policy
    if compiled.problems:
        problems, failing = _joined(list(map(str, compiled.problems))), _joined(_failing(compiled))
        consequence = f"; what counts as false until then (failurePolicy: Fail): {failing}" if failing else ""
        return _refused(f"is applied but for what is invalid: {problems}{consequence}")
    if overridden or templates:
        reason = "GivesWay" if overridden else "TemplatesDiffer"
        return _condition(reason, f"is applied, but for this: {_joined((*overridden, *templates))}")
    if compiled.uncertain:
        return _condition("Doubtful", f"is applied as it is written: {_joined(list(map(str, compiled.uncertain)))}")
    count = len(_selected_namespaces(policy, namespaces))
    if not count:
        return _condition("NoNamespace", "is applied; no namespace has the labels of namespaceSelector yet")
    return _condition("Applied", f"is applied in {count} namespace{'s' if count > 1 else ''}")


def _failing(compiled: CompiledPolicy) -> list[str]:
    """Return the invalid rules that are not ignored."""
    invalid = [rule for rule in compiled.rules.rules if rule.problem]
    return [f"spec.rules[{rule.index}] ({rule.rule.action})" for rule in invalid]


def _refused(message: str) -> Condition:
    return Condition(type="Ready", status=ConditionStatus.FALSE, reason="Malformed", message=message)


def _condition(reason: str, message: str) -> Condition:
    return Condition(type="Ready", status=ConditionStatus.TRUE, reason=reason, message=message)


def _joined(found: list[str] | tuple[str, ...]) -> str:
    more = f"; and {len(found) - MOST_REPORTED} more" if len(found) > MOST_REPORTED else ""
    return "; ".join(found[:MOST_REPORTED]) + more


def _selected_namespaces(policy: ClaimPolicy, namespaces: Mapping[str, Namespace]) -> frozenset[str]:
    return frozenset(name for name, namespace in namespaces.items() if policy.namespaces.matches(namespace.labels))


def _share_queues(one: ClaimPolicy, other: ClaimPolicy) -> bool:
    return not one.queues or not other.queues or not set(one.queues).isdisjoint(other.queues)


def _differences(earlier: ClaimPolicy, later: ClaimPolicy) -> Iterator[str]:
    known = [default for default in earlier.defaults if default.when is None]
    for index, default in enumerate(later.defaults):
        if default.when is not None:
            continue
        before = {
            field: value
            for other in reversed(known)
            if _share_classes(other, default)
            for field, value in _set_fields(other).items()
        }
        for field, value in _set_fields(default).items():
            if field in before and before[field] != value:
                yield f"ClaimPolicy {earlier.name} comes first and decides spec.defaults[{index}].{field}"
    converted = {conversion.resource: conversion for conversion in earlier.conversions}
    for index, conversion in enumerate(later.conversions):
        if converted.get(conversion.resource, conversion) != conversion:
            yield f"ClaimPolicy {earlier.name} comes first and decides spec.conversions[{index}]"


def _share_classes(one: Default, other: Default) -> bool:
    return not one.classes or not other.classes or not set(one.classes).isdisjoint(other.classes)


def _set_fields(default: Default) -> Mapping[str, object]:
    """Return the values that an entry sets, by field."""
    fields: dict[str, object] = {
        "deviceClassName": default.device_class,
        "count": default.count,
        "selectors": default.selectors,
        "tolerations": default.tolerations,
    }
    parts: dict[str, object] = {f"capacity.requests[{name}]": amount for name, amount in default.capacity.items()}
    parts |= {f"labels[{key}]": value for key, value in default.labels.items()}
    parts |= {f"config[{draft.value_at(entry, 'opaque', 'driver')}]": entry for entry in default.config}
    return {**{field: value for field, value in fields.items() if value}, **parts}
