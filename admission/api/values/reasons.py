"""Why a gang waits or is evicted, why a pod is refused, what else Events tell: one enum each, stable, for machines.

People get the message beside it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Detail = str | int | bool | list[str]
"""A number or a name behind a refusal. Amounts of meters are decimal strings, so that JSON readers stay exact."""


class HoldReason(StrEnum):
    """Why a gang is not admitted now. Every member is described in docs/reasons.md."""

    GANG_INCOMPLETE = "GangIncomplete"
    QUEUE_STOPPED = "QueueStopped"
    QUEUE_INACTIVE = "QueueInactive"
    QUOTA_EXCEEDED = "QuotaExceeded"
    BUDGET_EXHAUSTED = "BudgetExhausted"
    DEVICES_BUSY = "DevicesBusy"
    NO_FEASIBLE_PLACEMENT = "NoFeasiblePlacement"
    WAITING_FOR_CLAIMS = "WaitingForClaims"
    BEHIND_IN_ORDER = "BehindInOrder"
    POOL_INCOMPLETE = "PoolIncomplete"
    START_TIMED_OUT = "StartTimedOut"
    PLACEMENT_FAILED = "PlacementFailed"
    RUNTIME_EXCEEDED = "RuntimeExceeded"
    SEARCH_LIMIT = "SearchLimit"
    NOT_SIMULATED = "NotSimulated"
    NOT_HOLDABLE = "NotHoldable"
    LEDGER_UNAVAILABLE = "LedgerUnavailable"
    INTERNAL_ERROR = "InternalError"


class EvictionReason(StrEnum):
    """Why a gang that was admitted was taken back as a whole. Every member is described in docs/reasons.md."""

    PREEMPTED = "Preempted"
    RECLAIMED = "Reclaimed"
    RUNTIME_EXCEEDED = "RuntimeExceeded"
    QUEUE_DRAINED = "QueueDrained"


class EventReason(StrEnum):
    """What an Event tells that is none of the other reasons. Every member is described in docs/reasons.md."""

    ADMITTED = "Admitted"
    NOT_TOGETHER = "NotTogether"
    FELL_BACK = "FellBack"
    EVICTED = "Evicted"
    PLACED_ANEW = "PlacedAnew"
    WRITE_FAILED = "WriteFailed"
    DEVICES_PROTECTED = "DevicesProtected"
    PROTECTION_LOST = "ProtectionLost"
    FINALIZER_KEPT = "FinalizerKept"


class DenyReason(StrEnum):
    """Why a request is refused at admission. Every member is described in docs/reasons.md."""

    UNKNOWN_QUEUE = "UnknownQueue"
    QUEUE_NOT_OPEN = "QueueNotOpen"
    NEVER_FITS = "NeverFits"
    UNMETERED_CLASS = "UnmeteredClass"
    CLAIM_TOO_LARGE = "ClaimTooLarge"
    GATE_TAMPERING = "GateTampering"
    POLICY_VIOLATION = "PolicyViolation"
    MALFORMED_CLAIM = "MalformedClaim"
    MALFORMED_REQUEST = "MalformedRequest"


@dataclass(frozen=True, slots=True)
class Hold:
    """A gang waits: code, sentence, and the numbers behind it."""

    reason: HoldReason
    message: str
    details: Mapping[str, Detail] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Denial:
    """A request that can never be admitted as it is: code, sentence, and the numbers behind it."""

    reason: DenyReason
    message: str
    details: Mapping[str, Detail] = field(default_factory=dict)
