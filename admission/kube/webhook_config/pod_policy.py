"""The ValidatingAdmissionPolicy on changes of pods in queues: what `podpolicy.update` refuses without any knowledge.

The API server evaluates it for every user, also while no webhook answers, in namespaces that no queue selects, and
where somebody has deleted or changed the webhook configurations. The webhook refuses the same, in the same words: a
policy that is deleted, or an API server without the plugin, opens no gate.

It does not depend on queues, nor does the one of `gate_policy`, so both are written beside the configurations, once for
each start and again every ten minutes.
"""

import asyncio
import json
import string
from collections.abc import Iterator, Mapping

import structlog

from admission.api.values import names
from admission.api.values.decoding import Json
from admission.api.values.reasons import DenyReason
from admission.errors import GoneError, MusterError
from admission.kube.client import backoff
from admission.kube.client.connection import Connection
from admission.kube.webhook_config import gate_policy, match_conditions, registration, webhook_rules
from admission.podpolicy import update

log = structlog.get_logger(__name__)

NAME = registration.NAME
"""Of the policy and of its binding."""

KINDS = {"ValidatingAdmissionPolicy": "validatingadmissionpolicies"} | {
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings"
}

_NEW, _OLD = "object", "oldObject"


def policy(*, namespace: str, controller: str) -> Json:
    """Return the spec of the policy. namespace: Muster's own; controller: its user, whose changes are let through."""
    outside = {
        "key": "kubernetes.io/metadata.name",
        "operator": "NotIn",
        "values": list(registration.exempt(namespace)),
    }
    resources = ("pods", "pods/status")
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "namespaceSelector": {"matchExpressions": [outside]},
            "objectSelector": {"matchExpressions": [{"key": names.QUEUE, "operator": "Exists"}]},
            "resourceRules": [webhook_rules.pod("UPDATE", resource=resource) for resource in resources],
        },
        "matchConditions": [
            {"name": "not-by-muster", "expression": match_conditions.not_by(controller)},
            {"name": "changed", "expression": CHANGED},
        ],
        "variables": [{"name": name, "expression": text} for name, text in VARIABLES.items()],
        "validations": list(_validations(controller)),
    }


def binding() -> Json:
    """Return the spec of the binding that enforces the policy wherever it matches."""
    return {"policyName": NAME, "validationActions": ["Deny"]}


async def keep(connection: Connection, *, namespace: str, controller: str) -> None:
    """Write the policies and their bindings again and again until cancelled."""
    failed, last_error = 0, ""
    while True:
        unwritten = "the policy on changes of pods is not written"
        try:
            await _write_changes(connection, namespace=namespace, controller=controller)
            unwritten = "the policy that adds gates to pods of Jobs is not written, so the webhook adds them"
            await _write_gates(connection, namespace=namespace)
        except MusterError as error:
            failed += 1
            if str(error) != last_error:
                log.warning(unwritten, error=str(error))
            last_error = str(error)
            await asyncio.sleep(backoff.backoff(failed, base=0.5, longest=registration.AGAIN_SECONDS))
        else:
            failed, last_error = 0, ""
            await asyncio.sleep(registration.AGAIN_SECONDS)


async def _write_changes(connection: Connection, *, namespace: str, controller: str) -> None:
    """Create or update the policy, then its binding."""
    await _apply(connection, KINDS, policy(namespace=namespace, controller=controller), binding())


async def _write_gates(connection: Connection, *, namespace: str) -> None:
    """Create or update the policy that adds gates and its binding, where the API server serves such."""
    try:
        await _apply(connection, gate_policy.KINDS, gate_policy.policy(namespace=namespace), gate_policy.binding())
    except GoneError:
        log.debug("no MutatingAdmissionPolicy is served; the webhook adds all gates")


async def _apply(connection: Connection, kinds: Mapping[str, str], *specs: Json) -> None:
    for (kind, plural), spec in zip(kinds.items(), specs, strict=True):
        labels = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/component": "webhook"}
        metadata = {"name": NAME, "labels": labels}
        body = {"apiVersion": registration.API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}
        await connection.apply(_path(plural), body)


async def remove(connection: Connection) -> None:
    """Remove the bindings and the policies. A no-op when they are gone."""
    for kind, plural in reversed((KINDS | gate_policy.KINDS).items()):
        try:
            await connection.delete(_path(plural))
        except GoneError:
            log.debug("the policy is gone already", kind=kind)


def _path(plural: str) -> str:
    return f"/apis/{registration.API_VERSION}/{plural}/{NAME}"


# The expressions.


def _value(which: str, field: str, key: str) -> str:
    """Return CEL for a label or annotation; "" where there is none. key: as CEL."""
    return f"{which}.metadata.?{field}[?{key}].orValue('')"


def _differs(key: str) -> str:
    """Return CEL that is true when a key's label or annotation differs, as by `PodView.settings`."""
    return " || ".join(
        f"{_value(_NEW, field, key)} != {_value(_OLD, field, key)}" for field in ("labels", "annotations")
    )


def _shown(which: str, key: str) -> str:
    """Return CEL for a key's values as the webhook writes them."""
    label, annotation = (_value(which, field, key) for field in ("labels", "annotations"))
    return (
        f"({label} == '' && {annotation} == '' ? 'nothing' : "
        f"({label} == '' ? '' : \"label '\" + {label} + \"'\")"
        f" + ({label} == '' || {annotation} == '' ? '' : ' and ')"
        f" + ({annotation} == '' ? '' : \"annotation '\" + {annotation} + \"'\"))"
    )


def _gated(which: str) -> str:
    return f"{which}.spec.?schedulingGates.orValue([]).exists(g, g.name == '{names.GATE}')"


def _controller(which: str) -> str:
    return f"{which}.metadata.?ownerReferences.orValue([]).filter(o, o.?controller.orValue(false))"


def _job(owners: str) -> str:
    """Return CEL for the Job that controls a pod, as a list of at most one. owners: a variable of `_controller`."""
    is_job = f"{owners}[0].kind == 'Job' && {owners}[0].apiVersion == 'batch/v1'"
    return f"size({owners}) > 0 && {is_job} ? [{owners}[0]] : []"


def _job_shown(job: str) -> str:
    return f"(size({job}) == 0 ? 'none' : {job}[0].name + ' (UID ' + {job}[0].uid + ')')"


def _user(which: str) -> str:
    return f"{which}.metadata.?annotations[?'{names.USER}']"


def _user_shown(which: str) -> str:
    return f"({_user(which)}.hasValue() ? \"'\" + {_user(which)}.value() + \"'\" : 'nothing')"


CHANGED = " || ".join(
    f"{_NEW}.{field}.orValue({none}) != {_OLD}.{field}.orValue({none})"
    for field, none in {
        "metadata.?labels": "{}",
        "metadata.?annotations": "{}",
        "metadata.?ownerReferences": "[]",
        "spec.?schedulingGates": "[]",
    }.items()
)
"""CEL: a change that may matter; what kubelets, schedulers and controllers write of a pod's life is none."""

_LABELS = [_value(which, "labels", f"'{names.QUEUE}'") for which in (_OLD, _NEW)]
_BEFORE = " || ".join(f"{_value(_OLD, field, 'k')} != ''" for field in ("labels", "annotations"))

VARIABLES: Mapping[str, str] = {
    "queued": " || ".join(f"{label} != ''" for label in _LABELS),
    "gated": _gated(_OLD),
    "keys": (
        f"{json.dumps(update.IMMUTABLE_KEYS)}.filter(k, {_differs('k')})"
        f" + {json.dumps(update.FOREIGN_KEYS)}.filter(k, ({_differs('k')}) && ({_BEFORE}))"
    ),
    "oldOwners": _controller(_OLD),
    "newOwners": _controller(_NEW),
    "oldJob": _job("variables.oldOwners"),
    "newJob": _job("variables.newOwners"),
}
"""CEL of variables, each of which may read those before it. keys: those of `podpolicy.update.FIXED_KEYS` whose change
is refused, in order; oldJob, newJob: a list with the reference to the Job that controls the pod, or none."""

_CLASS = f"'{names.PRIORITY_CLASS}'"
_CLASS_TAKEN = " || ".join(
    f"({_value(_OLD, field, _CLASS)} != '' && {_value(_NEW, field, _CLASS)} == '')"
    for field in ("labels", "annotations")
)
_SAME_JOB = "variables.oldJob.map(o, o.uid) == variables.newJob.map(o, o.uid)"
_USERNAME = "request.userInfo.username"


def _validations(controller: str) -> Iterator[Json]:
    """Yield the rules in the order of `podpolicy.update.judge`: the API server tells the first that is broken."""
    tampering, violation = DenyReason.GATE_TAMPERING, DenyReason.POLICY_VIOLATION
    opener = match_conditions.quoted(controller)
    values = {"user": _USERNAME, "controller": opener}
    yield _rule(f"!variables.gated || {_gated(_NEW)}", tampering, update.GATE_REMOVED, values)

    key = "variables.keys[0]"
    values = {"key": key, "before": _shown(_OLD, key), "after": _shown(_NEW, key)}
    yield _rule("!variables.queued || size(variables.keys) == 0", tampering, update.KEY_CHANGED, values)

    same = f"!variables.queued || !({_differs(_CLASS)})"
    quote = match_conditions.quoted
    why = f"(variables.gated ? {quote(update.CLASS_TAKEN)} : {quote(update.CLASS_ADMITTED)})"
    values = {"before": _shown(_OLD, _CLASS), "after": _shown(_NEW, _CLASS), "why": why}
    allowed = f"{same} || (variables.gated && !({_CLASS_TAKEN}))"
    yield _rule(allowed, violation, update.CLASS_CHANGED, values)

    values = {"before": _user_shown(_OLD), "after": _user_shown(_NEW)}
    yield _rule(f"!variables.queued || {_user(_NEW)} == {_user(_OLD)}", tampering, update.CREATOR_CHANGED, values)

    values = {"before": _job_shown("variables.oldJob"), "after": _job_shown("variables.newJob"), "user": _USERNAME}
    allowed = f"{_USERNAME} in {json.dumps(sorted(update.JOB_CHANGERS))}"
    yield _rule(f"!variables.queued || {_SAME_JOB} || {allowed}", tampering, update.JOB_CHANGED, values)


def _rule(expression: str, reason: DenyReason, message: str, values: Mapping[str, str]) -> Json:
    """Return a validation. message: a format; values: CEL for its fields.

    The API server uses the plain form where a value has line breaks or makes the message too long.
    """
    prefix = f"muster: {reason}: "
    plain = prefix + message.format_map(dict.fromkeys(values, "…"))
    return {
        "expression": expression,
        "message": plain,
        "messageExpression": " + ".join(_parts(prefix + message, values)),
        "reason": "Forbidden",
    }


def _parts(message: str, values: Mapping[str, str]) -> Iterator[str]:
    for text, field, _, _ in string.Formatter().parse(message):
        if text:
            yield match_conditions.quoted(text)
        if field is not None:
            yield values[field]
