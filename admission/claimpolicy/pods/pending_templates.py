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


def fulfilled(new_pod: PodView, known: ClaimContext) -> Snapshot:
    """Return the snapshot, with the missing templates of a pod that its policies are going to provide."""
    if not known.policies.provide:
        return known.snapshot
    snapshot = known.snapshot
    missing = {
        claim.template
        for claim in new_pod.claims
        if claim.template and f"{new_pod.namespace}/{claim.template}" not in snapshot.templates
    }
    if not missing:
        return snapshot
    provided: dict[str, ClaimTemplate] = {}
    for wanted in _wanted(new_pod, missing, known):
        template = made(wanted, known)
        if template is not None:
            provided.setdefault(wanted.key, template)
    if not provided:
        return snapshot
    # Nothing writes to either mapping, and a copy of tens of thousands of templates would be most of the work.
    return replace(snapshot, templates=ChainMap(provided, cast("dict[str, ClaimTemplate]", snapshot.templates)))


def made(wanted: DesiredTemplate, known: ClaimContext) -> ClaimTemplate | None:
    """Return a template as it will be stored; None if it cannot be decoded."""
    user = User(username=names.FIELD_MANAGER)
    body = wanted.body()
    new_pod = ClaimView(obj=body, namespace=wanted.namespace, user=user, template=True)
    try:
        return claims.decode_template(admission.completion(new_pod, known).obj)
    except MalformedObjectError:
        return None


def _wanted(new_pod: PodView, missing: set[str], known: ClaimContext) -> Iterator[DesiredTemplate]:
    snapshot, policies = known.snapshot, known.policies
    for name in missing:
        listed = templates.desired(policies, snapshot, new_pod.namespace, name)
        if listed is not None:
            yield listed
    namespace = snapshot.namespaces.get(new_pod.namespace)
    if namespace is None:
        return
    for recipe in extended_resources.recipes(new_pod.annotations):
        one = templates.of_recipe(recipe, policies, namespace, new_pod.queue)
        if one is not None and one.name in missing:
            yield one
