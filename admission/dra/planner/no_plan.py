"""Why there is no plan for a gang: the planner's answer when it has none.

It stands above the candidate nodes, since a proof by counting refers to them; `Plan` itself is with the request.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from admission.api.values.reasons import Detail
from admission.dra.planner.candidate_nodes import CapacityBound


class Kind(StrEnum):
    """Why there is no plan."""

    INFEASIBLE = "Infeasible"
    """No order and no choice of nodes places all pods: proved by search. `diagnose` tells Busy from it."""
    BUSY = "Busy"
    """The same, but the gang would fit if nothing were in use."""
    OVER_QUOTA = "OverQuota"
    """The gang fits the cluster, but no plan is affordable."""
    STEPS_ENDED = "StepsEnded"
    """The search ended without proof."""
    UNPRICED = "Unpriced"
    """A meter cannot price a device that a claim might get; both are named in the message."""
    FATAL = "Fatal"
    """kube-scheduler would give up on the pod: a selector fails, a claim asks for more than 32 devices."""
    POOL_INCOMPLETE = "PoolIncomplete"
    """No plan, but slices are missing of a pool on a node where the pod might go."""
    NO_DOMAIN = "NoDomain"
    """The gang has to be together, and as nodes are labelled no domain can be looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoPlan:
    """Why the gang cannot be placed: code, a sentence for people, and the numbers behind it.

    placed: how many pods had found a place where the sentence says that the gang is stuck. capacity_bound: tells of
    other cluster states whether they are too small as well; None where nobody can tell without a search.
    """

    kind: Kind
    message: str
    details: Mapping[str, Detail] = field(default_factory=dict)
    steps: int = 0
    placed: int = 0
    capacity_bound: CapacityBound | None = field(default=None, compare=False, repr=False)
