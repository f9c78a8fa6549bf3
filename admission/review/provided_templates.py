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
    known = claim_context(snapshot)
    plan = templates.plan(known.policies, snapshot)
    wanted = (*plan.missing, *(one for one, _ in plan.outdated))
    made = {one.key: template for one in wanted if (template := pending_templates.as_stored(one, known)) is not None}
    return replace(snapshot, templates={**snapshot.templates, **made}) if made else snapshot


def claim_context(snapshot: Snapshot) -> ClaimContext:
    """Return the context in which claims of this cluster are admitted, its ClaimPolicies compiled."""
    memory = ReviewCaches()
    return ClaimContext(
        snapshot=snapshot,
        defaults=memory.defaults(snapshot),
        limits=memory.limits(snapshot),
        policies=memory.policies(snapshot),
    )
