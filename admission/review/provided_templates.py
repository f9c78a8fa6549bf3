"""The ResourceClaimTemplates that Muster would create in a cluster for its ClaimPolicies."""

from dataclasses import replace

from admission.api.snapshot import Snapshot
from admission.claimpolicy import templates
from admission.claimpolicy.admission import ClaimContext
from admission.claimpolicy.pods import pending_templates
from admission.review.caches import ReviewCaches


def with_provided(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with the templates that Muster would create for ClaimPolicies."""
    if not snapshot.policies:
        return snapshot
    context = claim_context(snapshot)
    plan = templates.plan(context.policies, snapshot)
    desired = (*plan.missing, *(desired_template for desired_template, _ in plan.outdated))
    stored = {
        desired_template.key: template
        for desired_template in desired
        if (template := pending_templates.as_stored(desired_template, context)) is not None
    }
    return replace(snapshot, templates={**snapshot.templates, **stored}) if stored else snapshot


def claim_context(snapshot: Snapshot) -> ClaimContext:
    """Return the context in which claims of this cluster are admitted, its ClaimPolicies compiled."""
    caches = ReviewCaches()
    return ClaimContext(
        snapshot=snapshot,
        defaults=caches.defaults(snapshot),
        limits=caches.limits(snapshot),
        policies=caches.policies(snapshot),
    )
