"""The ResourceClaimTemplates that ClaimPolicies require, and the plan of what to create, replace and delete.

There are two kinds: templates that a policy lists, in every namespace that it selects; and templates of pods whose
extended resources it has turned into claims, in the namespaces of such pods. `writers.claim_templates` executes the
plan.

A template is Muster's if its label names a policy and its annotation proves that it was made for exactly this policy
(by UID), namespace and name; a copy under another name or in another namespace has no such proof. Any other template of
the name is never touched. The annotation also has a digest of the spec as the policy writes it, since the stored spec
has defaults added. The policy owns its templates, so Kubernetes deletes them with it, even when Muster does not run.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from admission.api.kubernetes import claims
from admission.api.kubernetes.claims import ClaimTemplate
from admission.api.kubernetes.nodes import Namespace
from admission.api.kubernetes.pods import Pod
from admission.api.muster.claim_policies import ClaimPolicy
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.decoding import Json
from admission.claimpolicy import conversion_recipe, match
from admission.claimpolicy.conversion_recipe import Recipe
from admission.claimpolicy.match import Policies

LONGEST_LABEL = 63
MOST_REPORTED = 3
"""The most namespaces in a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredTemplate:
    """A template that must exist. recipe: for converted pods; None for a template that the policy lists."""

    policy: ClaimPolicy
    namespace: str
    name: str
    spec: Json
    recipe: Recipe | None = None

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def annotation(self) -> str:
        """Return the annotation that identifies the template: the proof, and the digest of the spec."""
        return f"{_proof(self.policy, self.namespace, self.name)}.{_digest(self.spec)}"

    def body(self) -> dict[str, Any]:
        """Return the ResourceClaimTemplate to create."""
        policy = self.policy
        converted = {names.CONVERTED: str(self.recipe)} if self.recipe is not None else {}
        return {
            "apiVersion": claims.VERSION,
            "kind": "ResourceClaimTemplate",
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "labels": {names.POLICY: label(policy.name), names.MANAGED_BY: names.FIELD_MANAGER},
                "annotations": {names.TEMPLATE: self.annotation, **converted},
                "ownerReferences": [
                    {
                        "apiVersion": names.API_VERSION,
                        "kind": "ClaimPolicy",
                        "name": policy.name,
                        "uid": policy.meta.uid,
                    }
                ],
            },
            "spec": {"spec": self.spec},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What has to be done.

    missing: to be created. outdated: to be replaced, each with the stored template. surplus: to be deleted. idle: made
    for converted pods, none of which exists now. conflicting: those whose name a template of another client has.
    overridden: those that a policy lists and an earlier policy provides, with that policy's name.
    """

    missing: tuple[DesiredTemplate, ...] = ()
    outdated: tuple[tuple[DesiredTemplate, ClaimTemplate], ...] = ()
    surplus: tuple[ClaimTemplate, ...] = ()
    idle: tuple[ClaimTemplate, ...] = ()
    conflicting: tuple[DesiredTemplate, ...] = ()
    overridden: tuple[tuple[DesiredTemplate, str], ...] = ()


def plan(policies: Policies, snapshot: Snapshot, *, excluded: Iterable[str] = ()) -> Plan:
    """Compare the templates that must exist with those that do. Muster creates none in `excluded`."""
    required, overridden = _required(policies, snapshot, frozenset(excluded))
    missing: list[DesiredTemplate] = []
    outdated: list[tuple[DesiredTemplate, ClaimTemplate]] = []
    conflicting: list[DesiredTemplate] = []
    for key, template in required.items():
        existing = snapshot.templates.get(key)
        if existing is None:
            unreadable = ("ResourceClaimTemplate", key) in snapshot.malformed
            (conflicting if unreadable else missing).append(template)
        elif (
            existing.meta.annotations.get(names.TEMPLATE) == template.annotation
            and _owner(existing, policies) is template.policy
        ):
            continue
        elif _owner(existing, policies) is None:
            conflicting.append(template)
        elif existing.meta.deleted is None:
            outdated.append((template, existing))
    unrequired = [
        existing
        for key, existing in snapshot.templates.items()
        if key not in required and _is_surplus(existing, policies)
    ]
    used = _used(snapshot) if unrequired else frozenset[str]()
    return Plan(
        missing=tuple(missing),
        outdated=tuple(outdated),
        surplus=tuple(existing for existing in unrequired if names.CONVERTED not in existing.meta.annotations),
        idle=tuple(
            existing
            for existing in unrequired
            if names.CONVERTED in existing.meta.annotations and existing.meta.key not in used
        ),
        conflicting=tuple(conflicting),
        overridden=tuple(overridden),
    )


def desired(policies: Policies, snapshot: Snapshot, namespace: str, name: str) -> DesiredTemplate | None:
    """Return the template of this name that a policy lists for a namespace; the first in order of several."""
    known = snapshot.namespaces.get(namespace)
    if known is None:
        return None
    for compiled in policies.active:
        for template in compiled.policy.templates:
            if template.name == name and _selects(compiled.policy, known, snapshot):
                return DesiredTemplate(policy=compiled.policy, namespace=namespace, name=name, spec=template.spec)
    return None


def template_for_recipe(recipe: Recipe, policies: Policies, namespace: Namespace, queue: str) -> DesiredTemplate | None:
    """Return the template for a converted pod; None if no policy there converts the resource in this way."""
    compiled = policies.compiled.get(recipe.policy)
    if compiled is None or not compiled.applied:
        return None
    conversion = next((one for one in compiled.policy.conversions if one.resource == recipe.resource), None)
    if conversion is None or not match.applies(compiled.policy, namespace.labels, queue):
        return None
    return DesiredTemplate(
        policy=compiled.policy,
        namespace=namespace.meta.name,
        name=recipe.template,
        spec=conversion_recipe.spec(recipe, conversion),
        recipe=recipe,
    )


def label(policy: str) -> str:
    """Return the label's value for a policy: its name, shortened with a digest if it is too long for a label."""
    if len(policy) <= LONGEST_LABEL:
        return policy
    return f"{policy[: LONGEST_LABEL - 9].rstrip('.-')}-{hashlib.sha256(policy.encode()).hexdigest()[:8]}"


def problem_messages(found: Plan, refused: Iterable[tuple[DesiredTemplate, str]]) -> dict[str, tuple[str, ...]]:
    """Return messages for the status of each policy, by name. refused: templates that could not be written, and why."""
    messages = [
        *((one, "is somebody else's and stays; rename one of the two, or delete it") for one in found.conflicting),
        *((one, f"is that of ClaimPolicy {first}, which comes first") for one, first in found.overridden),
        *((one, f"is not written: {why}") for one, why in refused),
    ]
    namespaces_by_message: dict[tuple[str, str, str], list[str]] = {}
    for one, message in messages:
        namespaces_by_message.setdefault((one.policy.name, one.name, message), []).append(one.namespace)
    notes: dict[str, tuple[str, ...]] = {}
    for (policy, name, message), namespaces_of_message in sorted(namespaces_by_message.items()):
        notes[policy] = (
            *notes.get(policy, ()),
            f"in {_namespace_list(namespaces_of_message)}, template {name} {message}",
        )
    return notes


def _required(
    policies: Policies, snapshot: Snapshot, excluded: frozenset[str]
) -> tuple[dict[str, DesiredTemplate], list[tuple[DesiredTemplate, str]]]:
    """Return the templates that must exist, by key, and those that an earlier policy's template overrides."""
    templates_by_key: dict[str, DesiredTemplate] = {}
    overridden: list[tuple[DesiredTemplate, str]] = []
    for template in _listed(policies, snapshot, excluded):
        first = templates_by_key.setdefault(template.key, template)
        if first is not template:
            overridden.append((template, first.policy.name))
    for template in _converted(policies, snapshot, excluded) if policies.has_conversions else ():
        templates_by_key.setdefault(template.key, template)
    return templates_by_key, overridden


def _listed(policies: Policies, snapshot: Snapshot, excluded: frozenset[str]) -> Iterator[DesiredTemplate]:
    for compiled in policies.active:
        policy = compiled.policy
        if not policy.templates:
            continue
        for name, namespace in snapshot.namespaces.items():
            if name in excluded or namespace.meta.deleted is not None or not _selects(policy, namespace, snapshot):
                continue
            for template in policy.templates:
                yield DesiredTemplate(policy=policy, namespace=name, name=template.name, spec=template.spec)


def _selects(policy: ClaimPolicy, namespace: Namespace, snapshot: Snapshot) -> bool:
    """Return whether a policy is for a namespace; if it names queues, one of them must be open to the namespace."""
    if not policy.namespaces.matches(namespace.labels):
        return False
    queues = (snapshot.queues.get(name) for name in policy.queues)
    return not policy.queues or any(
        queue is not None and queue.namespaces is not None and queue.namespaces.matches(namespace.labels)
        for queue in queues
    )


def _converted(policies: Policies, snapshot: Snapshot, excluded: frozenset[str]) -> Iterator[DesiredTemplate]:
    """Yield the templates that pods with converted resources need."""
    for pod in snapshot.pods.values():
        if names.CONVERTED not in pod.meta.annotations or pod.finished or pod.meta.namespace in excluded:
            continue
        namespace = snapshot.namespaces.get(pod.meta.namespace)
        if namespace is None or namespace.meta.deleted is not None:
            continue
        referred = _referred(pod)
        for recipe in conversion_recipe.recipes(pod.meta.annotations):
            one = template_for_recipe(recipe, policies, namespace, pod.queue) if recipe.template in referred else None
            if one is not None:
                yield one


def _used(snapshot: Snapshot) -> frozenset[str]:
    """Return the keys of the templates that unfinished pods refer to."""
    pods = (pod for pod in snapshot.pods.values() if pod.claims and not pod.finished)
    return frozenset(f"{pod.meta.namespace}/{name}" for pod in pods for name in _referred(pod))


def _referred(pod: Pod) -> frozenset[str]:
    return frozenset(claim.template for claim in pod.claims if claim.template)


def _is_surplus(found: ClaimTemplate, policies: Policies) -> bool:
    """Return whether a template is Muster's and its policy no longer requires it.

    A policy with a problem, or one that is being deleted, requires nothing to be deleted; Kubernetes deletes the
    templates of the latter.
    """
    if names.POLICY not in found.meta.labels or found.meta.deleted is not None:
        return False
    owner = _owner(found, policies)
    return owner is not None and policies.compiled[owner.name].applied and not policies.compiled[owner.name].problems


def _owner(found: ClaimTemplate, policies: Policies) -> ClaimPolicy | None:
    """Return the policy that a template was made for; None if Muster did not make it."""
    label_value = found.meta.labels.get(names.POLICY)
    if label_value is None:
        return None
    compiled = policies.compiled.get(label_value) or next(
        (one for name, one in policies.compiled.items() if len(name) > LONGEST_LABEL and label(name) == label_value),
        None,
    )
    if compiled is None:
        return None
    proof, _, _ = found.meta.annotations.get(names.TEMPLATE, "").partition(".")
    policy = compiled.policy
    return policy if proof == _proof(policy, found.meta.namespace, found.meta.name) else None


def _proof(policy: ClaimPolicy, namespace: str, name: str) -> str:
    return _digest([policy.meta.uid, namespace, name])


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _namespace_list(namespaces: list[str]) -> str:
    found = sorted(namespaces)
    if len(found) == 1:
        return f"namespace {found[0]}"
    more = f" and {len(found) - MOST_REPORTED} more" if len(found) > MOST_REPORTED else ""
    return f"namespaces {', '.join(found[:MOST_REPORTED])}{more}"
