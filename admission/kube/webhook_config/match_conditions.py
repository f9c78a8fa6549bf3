"""Conditions that an object has to meet for the API server to ask Muster about it, as CEL: for `registration`."""

import json
from collections.abc import Iterable

from admission.api.values import names
from admission.claimpolicy.admission import CLAIM_CONTROLLERS, POD_CLAIM, SCHEDULER
from admission.podpolicy.pod_view import MIRROR
from admission.workloads.kinds import catalog
from admission.workloads.suspendable import SCHEDULES

FIXED = f"(k.startsWith('{names.GROUP}/') || k in {json.dumps(catalog.IMMUTABLE_KEYS)})"
"""CEL: a key is Muster's own, or one of another system by which gangs are found."""


def _differs(field: str) -> str:
    """Return CEL that is true when labels or annotations that gangs are found by differ between old and new."""
    new, old = f"object.metadata.?{field}.orValue({{}})", f"oldObject.metadata.?{field}.orValue({{}})"
    return " || ".join(
        f"{these}.exists(k, {FIXED} && !(k in {those} && {those}[k] == {these}[k]))"
        for these, those in ((new, old), (old, new))
    )


def _has(field: str, key: str) -> str:
    """Return CEL that is true when the object has a label or annotation, and no error when it has none at all."""
    return f"'{key}' in object.metadata.?{field}.orValue({{}})"


def _gates(which: str) -> str:
    return f"{which}.spec.?schedulingGates.orValue([]).map(g, g.name)"


NO_MIRROR = f"!({_has('annotations', MIRROR)} && object.spec.?nodeName.orValue('') != '')"
"""CEL: not the mirror of a static pod, as `arrivals` knows it. A kubelet must be able to show its static pods, those of
the control plane among them, while Muster is down; Muster would let them in untouched anyway."""

NO_MIRROR_CONDITION = {"name": "no-mirror", "expression": NO_MIRROR}


def _jobs(which: str) -> str:
    owners = f"{which}.metadata.?ownerReferences.orValue([])"
    return f"{owners}.filter(o, o.kind == 'Job' && o.?controller.orValue(false)).map(o, o.uid)"


CHANGED = " || ".join(
    (
        f"{_gates('object')} != {_gates('oldObject')}",
        _differs("labels"),
        _differs("annotations"),
        f"{_jobs('object')} != {_jobs('oldObject')}",
    )
)

MATTERS = f"request.operation == 'UPDATE' ? ({CHANGED}) : {NO_MIRROR}"
"""CEL: a new pod that is no mirror, or a change of a pod's gates, of labels and annotations that are Muster's or that
gangs are found by, or of the Job that it belongs to. A running pod is updated many times by many controllers, and none
of that is Muster's business."""


NEW_SPEC = "request.operation == 'CREATE' || object.spec != oldObject.spec"
"""CEL: a claim whose spec is written. It may not change, so whoever applies the same manifest again must be given the
same defaults again; finalizers and owners change often, and are nothing to Muster."""

NEW_SETTINGS = "request.operation != 'UPDATE' || object.spec != oldObject.spec"
"""CEL: one of Muster's own objects that is created, deleted, or changed in what it says; labels may be changed."""

WITH_CLAIMS = "object.spec.?resourceClaims.orValue([]).size() > 0"
"""CEL: a pod that uses claims."""

NOT_ALLOCATED_AT_ONCE = {
    "name": "not-of-kube-scheduler",
    "expression": f"request.userInfo.username != '{SCHEDULER}'",
}
"""kube-scheduler makes claims for extended resources while it binds their pods, and knows already what is in them."""


NOT_FROM_TEMPLATE = {
    "name": "not-from-template",
    "expression": (f"!(request.userInfo.username in {list(CLAIM_CONTROLLERS)} && {_has('annotations', POD_CLAIM)})"),
}
"""What Kubernetes makes for a pod that was judged already, together with the template: four calls for a gang of four.
Rules of a ClaimPolicy are asked about those as well."""


def asks_for_devices(resources: Iterable[str]) -> str:
    """Return CEL that is true for pods with the annotation, or with an extended resource that becomes a claim."""
    annotated = _has("annotations", names.CLAIMS)
    known = json.dumps(list(resources))
    listed = "(object.spec.containers + object.spec.?initContainers.orValue([]))"
    asked = " || ".join(
        f"{known}.exists(r, r in c.?resources.?{field}.orValue({{}}))" for field in ("limits", "requests")
    )
    return f"{annotated} || {listed}.exists(c, {asked})" if known != "[]" else annotated


def not_by(user: str) -> str:
    """Return CEL that is false for what a user changes. What Muster changes it need not be asked about."""
    return f"request.operation != 'UPDATE' || request.userInfo.username != {quoted(user)}"


def quoted(text: str) -> str:
    """Write a text as CEL."""
    return json.dumps(text, ensure_ascii=False)


def _maker(which: str) -> str:
    return f"{which}.spec.template.?metadata.?annotations[?'{names.USER}'].orValue('')"


NAMED = f"{_maker('object')} != (request.operation == 'UPDATE' ? {_maker('oldObject')} : '')"
"""CEL: a new Job whose template names somebody as its maker, or one that is changed to name another client."""


def _suspended(which: str) -> str:
    return f"({which}.spec.?suspend.orValue(false) || {which}.spec.?runPolicy.?suspend.orValue(false))"


def _mark(which: str) -> str:
    return f"{which}.metadata.?annotations[?'{names.HELD}'].orValue('')"


_HELD_OTHERWISE = f"{_suspended('object')} != {_suspended('oldObject')} || {_mark('object')} != {_mark('oldObject')}"

RESUMED = f"request.operation != 'UPDATE' || {_HELD_OTHERWISE}"
"""CEL: a new workload, or one that is suspended or resumed, or marked otherwise as held."""

FREE = (
    "!object.metadata.?ownerReferences.orValue([])"
    f".exists(o, o.?controller.orValue(false) && !(o.kind in {json.dumps(SCHEDULES)}))"
)
"""CEL: a workload that no other object's controller suspends, as `holdable` knows it."""
