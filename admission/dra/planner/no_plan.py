"""The planner's answer when a gang has no plan, with the reason.

It is above `candidate_nodes`, since a proof by counting refers to them; `Plan` is in `gang_request`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from admission.api.values.reasons import Detail
from admission.api.values.references import References
from admission.dra.planner.candidate_nodes import CapacityBound


class Kind(StrEnum):
    """Why there is no plan."""

    INFEASIBLE = "Infeasible"
    """No order and no choice of nodes places all pods: proved by search. `diagnose` tells it from Busy."""
    BUSY = "Busy"
    """No plan now, but the gang would fit if nothing were in use."""
    OVER_QUOTA = "OverQuota"
    """The gang fits the cluster, but no plan is affordable."""
    STEPS_ENDED = "StepsEnded"
    """The search ended without proof."""
    UNPRICED = "Unpriced"
    """A meter cannot price a device that a claim might get; the message names both."""
    FATAL = "Fatal"
    """kube-scheduler would give up on the pod, as when a selector fails or a claim requests more than 32 devices."""
    POOL_INCOMPLETE = "PoolIncomplete"
    """No plan, but slices of a pool are missing on a node where the pod might go."""
    NO_DOMAIN = "NoDomain"
    """The gang has to be in one domain, and the labels of the nodes leave no domain to search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoPlan:
    """Why the gang cannot be placed: code, a sentence for people, and the numbers behind it.

    placed: how many pods were placed where, by the message, the gang gets stuck. capacity_bound: shows by counting
    whether other cluster states are too small as well; None where only a search can show it.
    """

    kind: Kind
    message: str
    details: Mapping[str, Detail] = field(default_factory=dict)
    references: References = ()
    steps: int = 0
    placed: int = 0
    capacity_bound: CapacityBound | None = field(default=None, compare=False, repr=False)
