"""The webhook for Muster's own objects: it refuses what can never work, and warns of probable mistakes.

What the CRDs have the API server validate is not checked again, but for NodeShapes, whose devices they keep as written.
Only a changed spec is judged, so that changes of
labels and finalizers are never refused because of an older spec; and no deletion is refused.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from admission.api.capacity import node_shapes
from admission.api.kubernetes.admission_review import ALLOWED, Verdict
from admission.api.muster import claim_policies, gangs, meters, queues
from admission.api.snapshot import Snapshot
from admission.api.validation import objects
from admission.api.values.decoding import Json
from admission.api.values.reasons import Denial, Detail
from admission.api.values.work_budget import WorkBudget
from admission.cel import limits
from admission.cel.syntax import lexer
from admission.claimpolicy.match import Policies
from admission.errors import MalformedObjectError
from admission.objectpolicy import (
    claim_policies as objectpolicy_claim_policies,
    gangs as objectpolicy_gangs,
    meters as objectpolicy_meters,
    preferences,
    queues as objectpolicy_queues,
)
from admission.objectpolicy.findings import ObjectFinding


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectView:
    """One of Muster's own objects, by its plural, and who writes it.

    obj: None if it is deleted; old: None if it is new.
    """

    plural: str
    namespace: str = ""
    obj: Json | None = None
    old: Json | None = None
    username: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectContext:
    """What the webhook knows of the cluster; work: what is left for this review."""

    snapshot: Snapshot
    policies: Policies = field(default_factory=lambda: Policies({}, {}))
    work: WorkBudget = field(default_factory=WorkBudget)


T = TypeVar("T")
ObjectCheck = Callable[[ObjectView, ObjectContext], Iterable[ObjectFinding]]


def judge(object_view: ObjectView, context: ObjectContext) -> Verdict:
    """Judge an object. Raises MalformedObjectError with every problem, or RetryError."""
    if object_view.obj is None:
        return _on_deletion(object_view, context)
    if _is_being_deleted(object_view.obj) or (
        object_view.old is not None and object_view.obj.get("spec") == object_view.old.get("spec")
    ):
        return ALLOWED
    context.work.charge_values(object_view.obj)
    context.work.charge_values(object_view.old)
    return _verdict(WRITE_CHECKS[object_view.plural](object_view, context))


def _on_deletion(object_view: ObjectView, context: ObjectContext) -> Verdict:
    check = DELETE_CHECKS.get(object_view.plural)
    if check is None or object_view.old is None or _is_being_deleted(object_view.old):
        return ALLOWED
    try:
        return _verdict(check(object_view, context))
    except MalformedObjectError:
        # A malformed object was never used, so its deletion affects nothing.
        return ALLOWED


def _verdict(findings: Iterable[ObjectFinding]) -> Verdict:
    unique = list(dict.fromkeys(findings))
    warnings = tuple(f"muster: {finding}" for finding in unique if finding.denied is None)
    denying = [finding for finding in unique if finding.denied is not None]
    reasons = [finding.denied for finding in denying if finding.denied is not None]
    if not reasons:
        return Verdict(warnings=warnings) if warnings else ALLOWED
    details: dict[str, Detail] = {"fields": [finding.field for finding in denying]}
    return Verdict(denial=Denial(reasons[0], "; ".join(map(str, denying)), details), warnings=warnings)


def _is_being_deleted(obj: Json) -> bool:
    metadata = obj.get("metadata")
    return isinstance(metadata, dict) and metadata.get("deletionTimestamp") is not None


def _queue(object_view: ObjectView, context: ObjectContext) -> Iterable[ObjectFinding]:
    before = _decode_or_none(queues.decode, object_view.old)
    queue = queues.decode(object_view.obj or {})
    _charge_expressions(context.work, preferences.expressions(queue))
    return objectpolicy_queues.check_write(queue, context.snapshot, before)


def _meter(object_view: ObjectView, context: ObjectContext) -> Iterable[ObjectFinding]:
    before = _decode_or_none(meters.decode, object_view.old)
    meter = meters.decode(object_view.obj or {})
    _charge_expressions(context.work, objectpolicy_meters.expressions(meter))
    return objectpolicy_meters.check_write(meter, context.snapshot, before)


def _policy(object_view: ObjectView, context: ObjectContext) -> Iterable[ObjectFinding]:
    policy = claim_policies.decode(object_view.obj or {})
    _charge_expressions(context.work, objectpolicy_claim_policies.expressions(policy))
    return objectpolicy_claim_policies.check_write(policy, context.snapshot, context.policies)


def _shape(object_view: ObjectView, _: ObjectContext) -> Iterable[ObjectFinding]:
    obj = object_view.obj or {}
    shape = node_shapes.decode(obj)
    problems = objects.other_problems(obj)
    if problems:
        raise MalformedObjectError("NodeShape", shape.name, problems)
    return ()


def _charge_expressions(work: WorkBudget, texts: Iterable[str]) -> None:
    """Charge the compilation of the object's expressions. One that is too long is refused without compiling it."""
    for text in texts:
        if len(text) <= limits.MAX_BYTES:
            limits.charge(work, lexer.measure(text))


def _gang(object_view: ObjectView, context: ObjectContext) -> Iterable[ObjectFinding]:
    gang, before = gangs.decode(object_view.obj or {}), _decode_or_none(gangs.decode, object_view.old)
    yield from objectpolicy_gangs.check_request(gang, before, context.snapshot, object_view.username)
    # A gang stays in its queue, even if the labels of its namespace change later.
    if object_view.old is None:
        yield from objectpolicy_gangs.check_write(gang, context.snapshot, object_view.namespace)


def _decode_or_none(decode: Callable[[Json], T], old: Json | None) -> T | None:
    """Read the object as it was; None if it is malformed."""
    try:
        return None if old is None else decode(old)
    except MalformedObjectError:
        return None


def _queue_deletion(object_view: ObjectView, context: ObjectContext) -> Iterable[ObjectFinding]:
    return objectpolicy_queues.check_delete(queues.decode(object_view.old or {}), context.snapshot)


def _meter_deletion(object_view: ObjectView, context: ObjectContext) -> Iterable[ObjectFinding]:
    return objectpolicy_meters.check_delete(meters.decode(object_view.old or {}), context.snapshot)


WRITE_CHECKS: dict[str, ObjectCheck] = {
    "queues": _queue,
    "meters": _meter,
    "claimpolicies": _policy,
    "nodeshapes": _shape,
    "gangs": _gang,
}
DELETE_CHECKS: dict[str, ObjectCheck] = {"queues": _queue_deletion, "meters": _meter_deletion}
