"""The templates that Muster has not written yet, as it will write them, so that pods which refer to them can be judged.

The webhook and the rules read a pod's templates. A template that a policy provides may not exist yet: the namespace is
new, or no pod before had extended resources that become a claim of this size.
"""

from collections import ChainMap
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

from admission.api.kubernetes import claims
from admission.api.kubernetes.claims import ClaimTemplate
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.claimpolicy import admission, templates
from admission.claimpolicy.admission import ClaimContext, ClaimView
from admission.claimpolicy.cel_subject import User
from admission.claimpolicy.pods import extended_resources
from admission.claimpolicy.templates import DesiredTemplate
from admission.errors import MalformedObjectError
from admission.podpolicy.pod_view import PodView


def with_pending(new_pod: PodView, context: ClaimContext) -> Snapshot:
    """Return the snapshot, with the missing templates of a pod that its policies are going to provide."""
    if not context.policies.needs_templates:
        return context.snapshot
    snapshot = context.snapshot
    missing = {
        claim.template
        for claim in new_pod.claims
        if claim.template and f"{new_pod.namespace}/{claim.template}" not in snapshot.templates
    }
    if not missing:
        return snapshot
    provided: dict[str, ClaimTemplate] = {}
    for desired in _desired(new_pod, missing, context):
        template = as_stored(desired, context)
        if template is not None:
            provided.setdefault(desired.key, template)
    if not provided:
        return snapshot
    # Nothing writes to either mapping, and a copy of tens of thousands of templates would be most of the work.
    return replace(snapshot, templates=ChainMap(provided, cast("dict[str, ClaimTemplate]", snapshot.templates)))


def as_stored(desired: DesiredTemplate, context: ClaimContext) -> ClaimTemplate | None:
    """Return a template as it will be stored; None if it cannot be decoded."""
    user = User(username=names.FIELD_MANAGER)
    body = desired.body()
    claim_view = ClaimView(obj=body, namespace=desired.namespace, user=user, template=True)
    try:
        return claims.decode_template(admission.completion(claim_view, context).obj)
    except MalformedObjectError:
        return None


def _desired(new_pod: PodView, missing: set[str], context: ClaimContext) -> Iterator[DesiredTemplate]:
    snapshot, policies = context.snapshot, context.policies
    for name in missing:
        listed = templates.desired(policies, snapshot, new_pod.namespace, name)
        if listed is not None:
            yield listed
    namespace = snapshot.namespaces.get(new_pod.namespace)
    if namespace is None:
        return
    for recipe in extended_resources.recipes(new_pod.annotations):
        template = templates.template_for_recipe(recipe, policies, namespace, new_pod.queue)
        if template is not None and template.name in missing:
            yield template
