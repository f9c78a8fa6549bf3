"""The readiness of a gang's claims for a plan: they exist, belong to its pods, and are not being deleted.

Checked in every cycle from what the pods name, since a claim may be deleted while its gang waits. Changing or
recreating a template does not affect claims created from it; Kubernetes does not create them again.
"""

from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.meta import Owner
from admission.api.kubernetes.pods import Pod, PodClaim
from admission.api.snapshot import Snapshot
from admission.api.values.reasons import Hold, HoldReason
from admission.workloads.gangs import Group


def hold(group: Group, snapshot: Snapshot) -> Hold | None:
    """Hold the gang for the first of its claims that cannot be planned; None if all of them can."""
    for pod in group.waiting:
        for named in pod.claims:
            problem = _problem(pod, named, group, snapshot)
            if problem is not None:
                message = f"pod {pod.meta.name}, claim {named.name}: {problem}"
                return Hold(HoldReason.WAITING_FOR_CLAIMS, message, {"pod": pod.meta.name, "claim": named.name})
    return None


def _problem(pod: Pod, named: PodClaim, group: Group, snapshot: Snapshot) -> str | None:
    name = pod.claim_name(named)
    key = f"{pod.meta.namespace}/{name}"
    claim = snapshot.claims.get(key) if name is not None else None
    if claim is None:
        return _missing(pod, named, key, snapshot)
    if claim.meta.deleted is not None:
        return _ending(claim, named)
    owner = _pod_of(claim)
    if owner is None or owner.uid == pod.meta.uid:
        return None
    if named.template is not None:
        return (
            f"ResourceClaim {key} was made for pod {owner.name}, so kube-scheduler does not take it for this one;"
            f" delete pod {pod.meta.name}, and its controller makes another"
        )
    if owner.uid in {one.meta.uid for one in (*group.pods, *group.ended)}:
        return None
    return (
        f"ResourceClaim {key} belongs to pod {owner.name} of another gang and goes with it; name a ResourceClaim that"
        " no pod owns, or a ResourceClaimTemplate, in spec.resourceClaims"
    )


def _missing(pod: Pod, named: PodClaim, key: str, snapshot: Snapshot) -> str:
    template = f"{pod.meta.namespace}/{named.template}"
    for kind, name in (("ResourceClaim", key), ("ResourceClaimTemplate", template)):
        unread = snapshot.malformed.get((kind, name))
        if unread is not None:
            return f"{unread}; mend it, or make it anew"
    if named.template is not None and template not in snapshot.templates:
        return f"ResourceClaimTemplate {template} does not exist; create it"
    if named.template is not None:
        return f"not made yet from ResourceClaimTemplate {template}"
    return f"ResourceClaim {key} does not exist; create it"


def _ending(claim: Claim, named: PodClaim) -> str:
    left = f" (finalizers {', '.join(claim.meta.finalizers)})" if claim.meta.finalizers else ""
    again = "delete the pod as well" if named.template is not None else "create it again when it is gone"
    return f"ResourceClaim {claim.meta.key} is being deleted{left}; {again}"


def _pod_of(claim: Claim) -> Owner | None:
    """Return the pod that owns a claim, with which it is deleted."""
    return next((owner for owner in claim.meta.owners if owner.kind == "Pod"), None)
