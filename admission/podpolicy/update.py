"""Checks of changes to existing pods: gate, queue, gang, claims and maker are fixed, if admitted the priority class.

`review.reviewer` calls it for every change that reaches the webhook (`webhook_config.match_conditions`, MATTERS), by
any user and through any kind of request.
"""

from collections.abc import Mapping
from dataclasses import replace

from admission.api.muster.queues import Queue
from admission.api.values import names
from admission.api.values.names import QueueName
from admission.api.values.reasons import Denial, DenyReason
from admission.podpolicy import queue_selection
from admission.podpolicy.admission import JOB_CONTROLLERS, Rules
from admission.podpolicy.pod_view import PodView
from admission.workloads import topology
from admission.workloads.kinds import catalog

IMMUTABLE_KEYS = (
    names.QUEUE,
    names.GANG,
    names.GANG_SIZE,
    names.GANG_MIN,
    *topology.KEYS,
    names.SUBGROUP,
    names.CLAIMS,
    names.CONVERTED,
)
"""Labels and annotations of Muster's that keep the value from the pod's creation."""

FOREIGN_KEYS = tuple(
    key for key in dict.fromkeys((*catalog.IMMUTABLE_KEYS, *catalog.SUBGROUP_KEYS)) if key not in IMMUTABLE_KEYS
)
"""Labels and annotations of other systems that keep their value. The API server sends changes of exactly these, and of
all keys of Muster's (`webhook_config.match_conditions`)."""

FIXED_KEYS = (*IMMUTABLE_KEYS, *FOREIGN_KEYS)
"""All keys whose change is refused."""

JOB_CHANGERS = JOB_CONTROLLERS | {"system:serviceaccount:kube-system:generic-garbage-collector"}
"""Users that change which Job owns a pod: the Job controller adopts and releases pods, the garbage collector orphans
them."""

GATE_REMOVED = (
    f"scheduling gate {names.GATE} is removed by {{user}}; only {{controller}} opens it, when the pod's gang is"
    " admitted; delete the pod if it shall not wait"
)
KEY_CHANGED = (
    "{key} of a pod in a queue is changed from {before} to {after}; queue, gang and claims are fixed when the pod is"
    " created; delete the pod and create it with the other value"
)
CLASS_CHANGED = f"{names.PRIORITY_CLASS} of a pod in a queue is changed from {{before}} to {{after}}; {{why}}"
CLASS_ADMITTED = "the pod is admitted, and keeps the one that it had then"
CLASS_TAKEN = "it cannot be taken away; name another class of the queue"
CREATOR_CHANGED = (
    f"annotation {names.USER} of a pod in a queue is changed from {{before}} to {{after}}; it says who made the pod, as"
    " the API server knew them, and stays as it is"
)
JOB_CHANGED = (
    "metadata.ownerReferences of a pod in a queue: the Job that controls it is changed from {before} to {after} by"
    " {user}; a pod stays in the gang of the Job that made it; delete the pod instead"
)
"""The messages of the denials, as formats, which `webhook_config.pod_policy` has the API server use as well."""


def judge(
    old: PodView, new: PodView, *, username: str, rules: Rules, queues: Mapping[QueueName, Queue]
) -> Denial | None:
    """Judge an update: only the controller may change gate, queue and gang of a queued pod. queues: all there are."""
    if username == rules.controller:
        return None
    if old.gated and not new.gated:
        message = GATE_REMOVED.format(user=username or "an unknown user", controller=rules.controller)
        return Denial(DenyReason.GATE_TAMPERING, message, {"user": username})
    if not old.queue and not new.queue:
        return None
    denial = _key_denial(old, new) or _priority_class_denial(old, new, queues)
    if denial is not None:
        return denial
    old_user, new_user = (pod.annotations.get(names.USER) for pod in (old, new))
    if old_user != new_user:
        return _creator_changed(old_user, new_user)
    return None if old.job == new.job or username in JOB_CHANGERS else _job_changed(old, new, username)


def _key_denial(old: PodView, new: PodView) -> Denial | None:
    """Refuse a changed value of a fixed key.

    Under other systems' keys, their controllers may add a value where there was none.
    """
    for key in FIXED_KEYS:
        before, after = old.settings(key), new.settings(key)
        if before != after and (before or key in IMMUTABLE_KEYS):
            return _key_changed(key, _format(before), _format(after))
    return None


def _priority_class_denial(old: PodView, new: PodView, queues: Mapping[QueueName, Queue]) -> Denial | None:
    """Refuse another priority class of a pod that is admitted, or one that its queue does not have.

    Of a pod that waits it may be given and changed, not taken away, as in Kueue (`pkg/controller/jobframework/
    validation.go`, 2026). There that of a running workload may be changed, too; here
    the priority by which a gang was let in stays, so that none escapes preemption by a change.
    """
    before, after = old.settings(names.PRIORITY_CLASS), new.settings(names.PRIORITY_CLASS)
    if before == after:
        return None
    if not old.gated:
        return _priority_class_changed(before, after, CLASS_ADMITTED)
    if before.keys() - after.keys():
        return _priority_class_changed(before, after, CLASS_TAKEN)
    queue = queues.get(QueueName(new.queue))
    if queue is None:
        return None
    for where, name in after.items():
        denial = queue_selection.refuse_priority_class(name, queue)
        if denial is not None:
            return replace(denial, message=f"{where} {denial.message}")
    return None


def _priority_class_changed(before: Mapping[str, str], after: Mapping[str, str], why: str) -> Denial:
    shown = {"before": _format(before), "after": _format(after)}
    return Denial(
        DenyReason.POLICY_VIOLATION,
        CLASS_CHANGED.format(**shown, why=why),
        {"key": names.PRIORITY_CLASS, **shown},
    )


def _key_changed(key: str, before: str, after: str) -> Denial:
    return Denial(
        DenyReason.GATE_TAMPERING,
        KEY_CHANGED.format(key=key, before=before, after=after),
        {"key": key, "before": before, "after": after},
    )


def _creator_changed(before: str | None, after: str | None) -> Denial:
    shown = {
        "before": "nothing" if before is None else repr(before),
        "after": "nothing" if after is None else repr(after),
    }
    details = {"key": names.USER, "before": before or "", "after": after or ""}
    return Denial(DenyReason.GATE_TAMPERING, CREATOR_CHANGED.format(**shown), details)


def _job_changed(old: PodView, new: PodView, username: str) -> Denial:
    before, after = (_job(pod) for pod in (old, new))
    return Denial(
        DenyReason.GATE_TAMPERING,
        JOB_CHANGED.format(before=before, after=after, user=username or "an unknown user"),
        {"user": username, "before": before, "after": after},
    )


def _job(pod: PodView) -> str:
    return f"{pod.controller.name} (UID {pod.job})" if pod.controller is not None and pod.job is not None else "none"


def _format(settings: Mapping[str, str]) -> str:
    return " and ".join(f"{where} {text!r}" for where, text in settings.items()) or "nothing"
