"""Match conditions of the webhooks, mostly as CEL: which objects the API server sends to Muster; for `registration`."""

import json
from collections.abc import Iterable

from admission.api.values import names
from admission.api.values.selectors import LabelSelector, Requirement
from admission.claimpolicy.admission import CLAIM_CONTROLLERS, POD_CLAIM, SCHEDULER
from admission.podpolicy import job_pods, update
from admission.podpolicy.admission import JOB_CONTROLLERS
from admission.podpolicy.pod_view import MIRROR
from admission.workloads import suspendable, template_labels
from admission.workloads.kinds import foreign_queues
from admission.workloads.suspendable import SCHEDULES

FIXED = f"(k.startsWith('{names.GROUP}/') || k in {json.dumps(update.FOREIGN_KEYS)})"
"""CEL: a key is Muster's own, or one of another system whose change `podpolicy.update` refuses."""


def _differs(field: str) -> str:
    """Return CEL that is true when a label or annotation that defines gangs differs between old and new object.

    Most writes are of the status and change none, so the pairs are compared as a whole before each of them.
    """
    new, old = f"object.metadata.?{field}.orValue({{}})", f"oldObject.metadata.?{field}.orValue({{}})"
    one_differs = " || ".join(
        f"{left}.exists(k, {FIXED} && !(k in {right} && {right}[k] == {left}[k]))"
        for left, right in ((new, old), (old, new))
    )
    return f"{new} != {old} && ({one_differs})"


def _has(field: str, key: str) -> str:
    """Return CEL that is true when the object has a label or annotation; no error when it has none at all."""
    return f"'{key}' in object.metadata.?{field}.orValue({{}})"


def _gates(which: str) -> str:
    return f"{which}.spec.?schedulingGates.orValue([]).map(g, g.name)"


NO_MIRROR = f"!({_has('annotations', MIRROR)} && object.spec.?nodeName.orValue('') != '')"
"""CEL: not the mirror of a static pod, as `PodView.is_mirror`. A kubelet must be able to create the mirrors of its
static pods, such as those of the control plane, while Muster is down; Muster admits them unchanged anyway."""

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

RESIZED = "request.?subResource.orValue('') == 'resize'"
"""CEL: a change of what a pod requests, which the API server lets through no other way."""

MATTERS = f"request.operation == 'UPDATE' ? ({RESIZED} || {CHANGED}) : {NO_MIRROR}"
"""CEL: a new pod that is no mirror, a resize, or a change of a pod's gates, of labels and annotations that are Muster's
or define gangs, or of the Job that owns it. Controllers update a running pod many times in other fields, which Muster
need not see."""


NEW_SPEC = "request.operation == 'CREATE' || object.spec != oldObject.spec"
"""CEL: a claim whose spec is written. A spec is immutable, so an update by the original manifest must get the same
defaults again. Changes of finalizers and owners are frequent, and Muster need not see them."""

NEW_SETTINGS = "request.operation != 'UPDATE' || object.spec != oldObject.spec"
"""CEL: one of Muster's own objects that is created, deleted, or changed in its spec; labels may change freely."""

WITH_CLAIMS = "object.spec.?resourceClaims.orValue([]).size() > 0"
"""CEL: a pod that uses claims."""

_CONTAINERS = "(object.spec.containers + object.spec.?initContainers.orValue([]))"

MAY_TAKE_DEVICES = (
    f"{WITH_CLAIMS} || {_CONTAINERS}.exists(c, c.?resources.?requests.orValue({{}}).exists(r, r.contains('/')))"
)
"""CEL: a pod that uses claims, or requests an extended resource; the API server adds requests to its limits before."""

MAY_TAKE_DEVICES_CONDITION = {"name": "may-take-devices", "expression": MAY_TAKE_DEVICES}

DEMANDING = LabelSelector(requirements=(Requirement(key=names.REQUIRE_QUEUE, operator="In", values=(names.REQUIRED,)),))
"""The namespaces that demand a queue of pods with devices. They are closed to these while Muster is down."""

NOT_ALLOCATED_AT_ONCE = {
    "name": "not-of-kube-scheduler",
    "expression": f"request.userInfo.username != '{SCHEDULER}'",
}
"""kube-scheduler creates claims for extended resources while it binds their pods, with the devices already chosen."""


NOT_FROM_TEMPLATE = {
    "name": "not-from-template",
    "expression": (f"!(request.userInfo.username in {list(CLAIM_CONTROLLERS)} && {_has('annotations', POD_CLAIM)})"),
}
"""Excludes claims that Kubernetes creates from a template that was judged already, which saves four calls for a gang of
four. Rules of a ClaimPolicy are evaluated on those claims as well."""


def asks_for_devices(resources: Iterable[str]) -> str:
    """Return CEL that is true for pods with the claims annotation, or an extended resource that becomes a claim."""
    has_annotation = _has("annotations", names.CLAIMS)
    known = json.dumps(list(resources))
    requested = " || ".join(
        f"{known}.exists(r, r in c.?resources.?{field}.orValue({{}}))" for field in ("limits", "requests")
    )
    return f"{has_annotation} || {_CONTAINERS}.exists(c, {requested})" if known != "[]" else has_annotation


def not_by(user: str) -> str:
    """Return CEL that is false for updates by a user, which is Muster's own: it need not judge its own changes."""
    return f"request.operation != 'UPDATE' || request.userInfo.username != {quoted(user)}"


def no_gang_by(user: str) -> str:
    """Return CEL that is false for Gangs that a user writes, which is Muster's own.

    Muster writes no spec of the other kinds: where somebody runs it as themselves, theirs are judged as everybody's.
    """
    return f"request.resource.resource != 'gangs' || request.userInfo.username != {quoted(user)}"


def user_of(expression: str) -> str:
    """Return the user of a condition of `not_by`; "" for any other text."""
    start, marker, name = expression.partition(" || request.userInfo.username != ")
    try:
        user = json.loads(name) if marker and start == "request.operation != 'UPDATE'" else ""
    except ValueError:
        return ""
    return user if isinstance(user, str) else ""


def quoted(text: str) -> str:
    """Return a text as a CEL string literal."""
    return json.dumps(text, ensure_ascii=False)


def _in_template(which: str, key: str) -> str:
    return f"{which}.spec.template.?metadata.?annotations[?'{key}'].orValue('')"


_CREATOR, _MARK = (
    [_in_template(which, key) for which in ("object", "oldObject")] for key in (names.USER, names.COMPLETE)
)

NAMED = (
    f"request.operation == 'UPDATE' ? {_CREATOR[0]} != {_CREATOR[1]} || {_MARK[0]} != {_MARK[1]} : {_CREATOR[0]} != ''"
)
"""CEL: a new Job whose template already names a user as its creator, or a change of that name or of the mark
`names.COMPLETE`. So whoever finds both in a template knows that the webhook has judged the mark."""


def _suspended(which: str) -> str:
    return f"({which}.spec.?suspend.orValue(false) || {which}.spec.?runPolicy.?suspend.orValue(false))"


def _held_mark(which: str) -> str:
    return f"{which}.metadata.?annotations[?'{names.HELD}'].orValue('')"


_HELD_OTHERWISE = (
    f"{_suspended('object')} != {_suspended('oldObject')} || {_held_mark('object')} != {_held_mark('oldObject')}"
)

RESUMED = f"request.operation != 'UPDATE' || {_HELD_OTHERWISE}"
"""CEL: a new workload, or an update that suspends or resumes it, or changes its mark as held."""

_NAMING = json.dumps(foreign_queues.OWNER_LABELS)


def _names_queue(which: str) -> str:
    return f"{which}.metadata.?labels.orValue({{}}).exists(k, k in {_NAMING})"


NAMES_QUEUE = f"{_names_queue('object')} || (request.operation == 'UPDATE' && {_names_queue('oldObject')})"
"""CEL: a workload with a label that names the queue of its pods, or an update that takes it away."""

NAMES_NONE = f"!({NAMES_QUEUE})"

NEW_UNNAMED = f"request.operation == 'CREATE' && {NAMES_NONE}"
"""CEL: a new workload without a label that names the queue of its pods."""

UNOWNED = "!object.metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false))"
"""CEL: a workload that its author makes; the templates of others come from their owner, which was judged."""


def _part(which: str, field: str) -> str:
    return f"{which}.?{field}.orValue({{}})"


def _label(which: str) -> str:
    return f"{which}.metadata.?labels.orValue({{}})[?k].orValue('')"


RENAMED = (
    f"request.operation != 'UPDATE' || {_NAMING}.exists(k, {_label('object')} != {_label('oldObject')}) || ("
    "has(object.spec) && has(object.spec.template)"
    f" ? {_part('object.spec', 'template')} != {_part('oldObject.?spec', 'template')}"
    f" : {_part('object', 'spec')} != {_part('oldObject', 'spec')})"
)
"""CEL: a new workload, or an update of its templates or of a label that names its queue; of a kind without
`spec.template`, any update of its spec. Controllers often scale workloads with one, which Muster need not see."""


FREE = (
    "!object.metadata.?ownerReferences.orValue([])"
    f".exists(o, o.?controller.orValue(false) && !(o.kind in {json.dumps(SCHEDULES)}))"
)
"""CEL: a workload that no other object's controller suspends, as in `workloads.suspendable`."""

_COVERED_BY_HOLD = [
    f"{one.group}/{one.plural}"
    for one in suspendable.ALL
    if set(template_labels.BY_RESOURCE[one.group, one.plural].versions) <= set(one.versions)
]

_IS_COVERED = f"request.resource.group + '/' + request.resource.resource in {json.dumps(_COVERED_BY_HOLD)}"

NOT_HELD = f"!({_IS_COVERED} && ({RESUMED}) && {FREE})"
"""CEL: nothing that `webhook_rules.held_workloads` sends, to the same endpoints."""

_ONE_TEMPLATE = [("spec", "template")]
_NATIVE = [
    f"{one.group}/{one.plural}"
    for one in template_labels.ALL
    if one.is_native and [path.base for path in one.paths] == _ONE_TEMPLATE
]

_READ_KEYS = (names.QUEUE, *(one.key for one in foreign_queues.QUEUE_KEYS), *foreign_queues.PRIORITY_LABELS)


def _has_read_keys(which: str) -> str:
    metadata = (f"{which}.?metadata", f"{which}.?spec.?template.?metadata")
    found = [f"{one}.?{field}.orValue({{}})" for one in metadata for field in ("labels", "annotations")]
    return " || ".join(f"k in {one}" for one in found)


_IS_NATIVE = f"request.resource.group + '/' + request.resource.resource in {json.dumps(_NATIVE)}"

MAY_BE_REFUSED = (
    f"!({_IS_NATIVE})"
    f" || {json.dumps(_READ_KEYS)}.exists(k, {_has_read_keys('object')}"
    f" || (request.operation == 'UPDATE' && ({_has_read_keys('oldObject')})))"
)
"""CEL: false for workloads of Kubernetes' own kinds that set no key of a queue or a priority class, on themselves or on
their template; those are always allowed."""


def _has_other_keys(field: str, *own: str) -> str:
    """Return CEL that is true when a pod has a key by which the webhook decides, beside those of its own."""
    reads = f"k.startsWith('{names.GROUP}/') || k in {json.dumps(job_pods.OTHER_KEYS)}"
    return f"object.metadata.?{field}.orValue({{}}).exists(k, !(k in {json.dumps(own)}) && ({reads}))"


_OF_JOB = "o.?controller.orValue(false) && o.kind == 'Job' && o.apiVersion == 'batch/v1'"

OF_JOB_CONTROLLER = f"request.userInfo.username in {json.dumps(sorted(JOB_CONTROLLERS))}"

COMPLETE = " && ".join(
    (
        "request.operation == 'CREATE'",
        OF_JOB_CONTROLLER,
        f"{_gates('object')}.exists(g, g == '{names.GATE}')",
        "object.spec.?nodeName.orValue('') == ''",
        f"object.metadata.?labels[?'{names.QUEUE}'].orValue('') != ''",
        f"object.metadata.?annotations[?'{names.USER}'].orValue('') != ''",
        f"object.metadata.?annotations[?'{names.COMPLETE}'].orValue('') != ''",
        f"object.metadata.?ownerReferences.orValue([]).exists(o, {_OF_JOB})",
        f"!{_has_other_keys('labels', names.QUEUE)}",
        f"!{_has_other_keys('annotations', names.USER, names.COMPLETE)}",
    )
)
"""CEL: a new pod that the Job controller makes of a template with the mark, which has all that the webhook would add,
and nothing else that it would read. Its gate holds it until the controller, which judges all that the webhook judges,
has let it in."""

NOT_COMPLETE = {"name": "not-complete", "expression": f"!({COMPLETE})"}

_TEMPLATE = "object.?spec.?template.?metadata"
_OWN_LABELS, _TEMPLATE_LABELS = "object.metadata.?labels", f"{_TEMPLATE}.?labels"
_ANNOTATED = " || ".join(
    f"k in {field}.orValue({{}})" for field in ("object.metadata.?annotations", f"{_TEMPLATE}.?annotations")
)
_LABELLED = " || ".join(f"k in {field}.orValue({{}})" for field in (_OWN_LABELS, _TEMPLATE_LABELS))
_NAMES_MORE = f"{_ANNOTATED} || (k != '{names.QUEUE}' && ({_LABELLED}))"
_OWN_QUEUE, _QUEUE = (f"{field}[?'{names.QUEUE}'].orValue('')" for field in (_OWN_LABELS, _TEMPLATE_LABELS))

_NAMING_MORE = (*foreign_queues.JOB_LABELS, *foreign_queues.PRIORITY_LABELS)

NOT_MARKED = (
    "!(request.operation == 'CREATE' && request.resource.group + '/' + request.resource.resource == 'batch/jobs'"
    f" && {_TEMPLATE}.?annotations[?'{names.COMPLETE}'].orValue('') != '' && {_OWN_QUEUE} in ['', {_QUEUE}]"
    f" && !{json.dumps(_NAMING_MORE)}.exists(k, k in {_OWN_LABELS}.orValue({{}})))"
)
"""CEL: false for new Jobs whose template the webhook has marked in an earlier call, with the queue that they enter, and
whose own labels name nothing else that would be written into it, or warned of. The API server gives a Job without
labels those of its template (`pkg/apis/batch/v1/defaults.go`, SetDefaults_Job), so each half would be shown it once
more. The webhook has taken out a mark that somebody else wrote."""

NOT_AS_HELD = (
    f"!(request.operation == 'CREATE' && {_IS_NATIVE} && {_suspended('object')}"
    f" && {_held_mark('object')} == '{names.Held.WAITING}' && {_OWN_QUEUE} in ['', {_QUEUE}]"
    f" && !{json.dumps(_READ_KEYS)}.exists(k, {_NAMES_MORE}))"
)
"""CEL: false for new workloads of one template, of Kubernetes' own kinds, that are as the mutating half holds them. It
takes the mark from all others, and has found their queue by the template's label, so they are always allowed. The API
server gives a Job without labels those of its template (`pkg/apis/batch/v1/defaults.go`, SetDefaults_Job)."""
