"""The pods that a workload's templates would yield, gated, as the webhook would complete them, and their claims.

Scheduling knows gangs by their pods, and a workload that is suspended until its gang may start has none.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from admission import default_ports
from admission.api.kubernetes import admission_review, pods
from admission.api.kubernetes.claims import Claim, ClaimTemplate
from admission.api.kubernetes.jobs import PodTemplate
from admission.api.kubernetes.meta import Meta, Owner
from admission.api.kubernetes.owners import Parent
from admission.api.kubernetes.pods import Pod, PodClaim
from admission.api.scheduling import scheduling_rules
from admission.api.snapshot import Snapshot
from admission.api.values import json_patch, names
from admission.api.values.decoding import Json, Reader
from admission.api.values.names import Uid
from admission.api.values.reasons import Denial
from admission.podpolicy import admission
from admission.review import provided_templates, reviewer
from admission.review.caches import ReviewCaches
from admission.workloads import owner_chain, suspendable
from admission.workloads.gang_key import LARGEST_SIZE
from admission.workloads.kinds import podgroup
from admission.workloads.suspendable import Workload

SUFFIX = " (expected)"
"""The end of an expected claim's name, which no real name can have."""

MAKER = min(admission.JOB_CONTROLLERS)
"""The user name of reviews for pods of a Job; the Job's user is in its template."""


def expected(
    workload: Workload, snapshot: Snapshot, known: ReviewCaches
) -> tuple[dict[Uid, Pod], dict[str, Claim]] | Denial | str:
    """Return the pods of a workload's templates, by UID, and their claims, by name; or why there are none.

    Raises MalformedObjectError, and RetryError while the namespace is not observed.
    """
    made = make_pods(workload, snapshot, known)
    if not isinstance(made, dict):
        return made
    templates = snapshot.templates
    if snapshot.policies:
        templates = provided_templates.with_provided(replace(snapshot, pods=made)).templates
    claims = (claim for pod in made.values() for claim in claims_of(pod, templates))
    return made, {claim.meta.key: claim for claim in claims}


def make_pods(workload: Workload, snapshot: Snapshot, known: ReviewCaches) -> dict[Uid, Pod] | Denial | str:
    """Return the pods of a workload, by UID, or why there are none. Raises MalformedObjectError and RetryError."""
    templates = [template for template in workload.templates if template.pods > 0]
    count = sum(template.pods for template in templates)
    if count > LARGEST_SIZE:
        return f"it makes {count} pods at a time, and a gang has at most {LARGEST_SIZE}; write a smaller number"
    found: dict[Uid, Pod] = {}
    for template in templates:
        first_pod = _first_pod(workload, template, snapshot, known)
        if isinstance(first_pod, Denial):
            return first_pod
        group = snapshot.parents.get(podgroup.GANGS.key, {}).get(group_key(first_pod))
        for number in range(template.pods):
            pod = _numbered_pod(first_pod, template, number, names.expected_pod(workload.meta.uid, len(found)))
            pod = replace(pod, generated_claims=_generated_claims(pod, group))
            if (template.exclusive or template.has_own_nodes) or (template.numbers_pods and pod.rules.concern_pods):
                pod = _with_own_rules(pod, _body(workload, template, number))
            found[pod.meta.uid] = pod
    return found


def _first_pod(workload: Workload, template: PodTemplate, snapshot: Snapshot, known: ReviewCaches) -> Pod | Denial:
    """Return a pod of a template as the webhook would complete it, or why it would not be admitted."""
    of_job = workload.kind is suspendable.JOB
    obj = _body(workload, template, 0)
    user = workload.meta.annotations.get(names.USER)
    if user and not of_job:
        obj["metadata"]["annotations"] |= {names.USER: user}
    asked = admission_review.pod_creation(obj, username=MAKER if of_job else "")
    verdict = reviewer.mutate(asked, default_ports.FrozenView(snapshot), caches=known)
    if verdict.denial is not None:
        return verdict.denial
    obj = json_patch.apply(obj, verdict.patch)
    pod = owner_chain.with_priority(pods.decode(obj), obj, snapshot.priorities)
    return pod if pod.gated else replace(pod, gates=(*pod.gates, names.GATE))


def _body(workload: Workload, template: PodTemplate, number: int) -> dict[str, Any]:
    return suspendable.pod_body(
        template,
        number,
        owner=workload.kind.owner(workload.meta),
        namespace=workload.meta.namespace,
        uid=names.expected_pod(workload.meta.uid, 0),
        created=workload.meta.created.isoformat(),
    )


def _with_own_rules(pod: Pod, body: Json) -> Pod:
    """Return a pod with the rules and the node selector of its own number, which may name its part."""
    spec = Reader(body).child("spec")
    labels = {**pod.meta.labels, **Reader(body).child("metadata").pairs("labels")}
    rules = scheduling_rules.decode(spec, namespace=pod.meta.namespace, labels=labels)
    node_selector = {**pod.node_selector, **spec.pairs("nodeSelector")}
    return replace(pod, meta=replace(pod.meta, labels=labels), rules=rules, node_selector=node_selector)


def _numbered_pod(pod: Pod, template: PodTemplate, number: int, uid: Uid) -> Pod:
    name = template.pod_name(number)
    created = pod.meta.created + timedelta(microseconds=number)
    own = suspendable.numbered_labels(template, number, namespace=pod.meta.namespace) if template.numbers_pods else {}
    labels = {**pod.meta.labels, **own} if own else pod.meta.labels
    meta = replace(pod.meta, name=name, uid=uid, created=created, labels=labels)
    return replace(pod, meta=meta)


def _generated_claims(pod: Pod, group: Parent | None) -> dict[str, str]:
    """Return the claims that are made for a pod from templates, by its own names of them.

    A claim that its PodGroup has, by the same name and template, is the group's one, which is made before any pod
    exists (`pkg/controller/resourceclaim`, syncPodGroup; BindTo of `k8s.io/dynamic-resource-allocation/resourceclaim`).
    Until then the pod has none.
    """
    found = {}
    for claim in pod.claims:
        if claim.template is None:
            continue
        if group is None or claim not in group.claims:
            found[claim.name] = f"{pod.meta.name}-{claim.name}{SUFFIX}"
        elif claim.name in group.generated_claims:
            found[claim.name] = group.generated_claims[claim.name]
    return found


def _claim(pod: Pod, named: PodClaim, template: ClaimTemplate) -> Claim:
    made = Meta(
        name=pod.generated_claims[named.name],
        namespace=pod.meta.namespace,
        uid=names.expected_claim(pod.meta.uid, named.name),
        owners=(Owner(api_version="v1", kind="Pod", name=pod.meta.name, uid=pod.meta.uid, controller=True),),
        created=pod.meta.created,
    )
    return Claim(meta=made, spec=template.spec)


def placeholder(workload: Workload) -> dict[Uid, Pod]:
    """Return one pod for a workload whose pods cannot be planned, so that its gang has a status with the reason."""
    labels: dict[str, str] = {}
    for template in workload.templates:
        given = (template.body.get("metadata") or {}).get("labels") or {}
        labels = labels or {key: str(text) for key, text in given.items() if key == names.QUEUE}
    uid = names.expected_pod(workload.meta.uid, 0)
    own = replace(workload.meta, uid=uid, labels=labels, owners=(workload.kind.owner(workload.meta),), annotations={})
    return {uid: Pod(meta=own, gates=(names.GATE,))}


def claims_of(pod: Pod, templates: Mapping[str, ClaimTemplate]) -> Iterator[Claim]:
    """Yield the claims that would be created for a pod: not those that its PodGroup has."""
    for named in pod.claims:
        template = templates.get(template_of(pod, named)) if named.template is not None else None
        if template is not None and pod.generated_claims.get(named.name, "").endswith(SUFFIX):
            yield _claim(pod, named, template)


def group_key(pod: Pod) -> str:
    return f"{pod.meta.namespace}/{pod.group}"


def template_of(pod: Pod, claim: PodClaim) -> str:
    return f"{pod.meta.namespace}/{claim.template}"
