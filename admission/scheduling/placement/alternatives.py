"""What each alternative of a request lacks, where a gang is over quota or budget with those that have devices.

A search that finds no plan tells the first charge that was not affordable, which is that of one alternative. So each is
planned by itself, for the explanation alone: of the first request with alternatives, in all claims that are equal.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from admission.api.kubernetes.claims import Claim, Request
from admission.api.values.reasons import Hold, HoldReason
from admission.dra.planner import device_kinds
from admission.dra.requests.gang_request import PodDemand

OVER = frozenset({HoldReason.QUOTA_EXCEEDED, HoldReason.BUDGET_EXHAUSTED})

MOST = 4
"""The most alternatives of which is said what they lack: each costs a plan."""


def explained(hold: Hold, demands: Sequence[PodDemand], propose: Callable[[Sequence[PodDemand]], object]) -> Hold:
    """Return the hold of a gang with what each alternative lacks, if it may choose and is over quota; else as it is.

    propose: returns the hold of a gang with other demands, or its plan.
    """
    found = next((one for demand in demands for claim in demand.claims for one in _listed(claim)), None)
    if hold.reason not in OVER or found is None:
        return hold
    claim, request = found
    tried = [at for at, one in enumerate(request.alternatives) if device_kinds.NOTHING not in one.selectors]
    named = [(request.alternatives[at].name, propose(_with_one(demands, claim, request, at))) for at in tried[:MOST]]
    holds = [one for _, one in named if isinstance(one, Hold)]
    if len(named) < 2 or len(holds) < len(named):
        return hold
    parts = [f"with {request.name}/{name}: {one.message}" for (name, _), one in zip(named, holds, strict=True)]
    rest = len(tried) - len(named)
    parts += [f"{rest} more {'alternative fits' if rest == 1 else 'alternatives fit'} neither"] if rest else []
    # Phrases are found in the order of the references; the details are those of the hold itself.
    references = tuple(replace(reference, detail="") for one in holds for reference in one.references)
    details = {**hold.details, "alternatives": [f"{request.name}/{name}" for name, _ in named]}
    return Hold(hold.reason, "; ".join(parts), details, references)


def _listed(claim: Claim) -> list[tuple[Claim, Request]]:
    return [(claim, one) for one in claim.spec.requests if one.first_available] if claim.allocation is None else []


def _with_one(demands: Sequence[PodDemand], like: Claim, request: Request, at: int) -> list[PodDemand]:
    """Return the demands with one alternative of a request left, in all claims that equal one."""
    one = replace(request, alternatives=(request.alternatives[at],))
    asked = tuple(one if known == request else known for known in like.spec.requests)

    def narrowed(claim: Claim) -> Claim:
        is_equal = claim.allocation is None and claim.spec.equivalence_key == like.spec.equivalence_key
        return replace(claim, spec=replace(claim.spec, requests=asked)) if is_equal else claim

    return [replace(demand, claims=tuple(map(narrowed, demand.claims))) for demand in demands]
