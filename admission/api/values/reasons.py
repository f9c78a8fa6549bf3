"""Reasons of holds, evictions, denials and Events: one enum each, stable, for machines.

The message next to a reason is for people.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Detail = str | int | bool | list[str]
"""A number or a name that explains a refusal. Amounts of meters are decimal strings, exact for JSON readers."""


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
    """Why an admitted gang was evicted as a whole. Every member is described in docs/reasons.md."""

    PREEMPTED = "Preempted"
    RECLAIMED = "Reclaimed"
    RUNTIME_EXCEEDED = "RuntimeExceeded"
    QUEUE_DRAINED = "QueueDrained"


class EventReason(StrEnum):
    """Reasons that only Events have. Every member is described in docs/reasons.md."""

    ADMITTED = "Admitted"
    NOT_TOGETHER = "NotTogether"
    FELL_BACK = "FellBack"
    EVICTED = "Evicted"
    REPLANNED = "PlacedAnew"
    WRITE_FAILED = "WriteFailed"
    DEVICES_PROTECTED = "DevicesProtected"
    PROTECTION_LOST = "ProtectionLost"
    FINALIZER_KEPT = "FinalizerKept"
    HEAD_SIGNED = "HeadSigned"
    HEAD_NOT_PASSED = "HeadNotPassed"
    FOREIGN_ENTRIES = "ForeignEntries"
    EPOCH_RAISED = "EpochRaised"


class DenyReason(StrEnum):
    """Why a request is refused at admission. Every member is described in docs/reasons.md."""

    UNKNOWN_QUEUE = "UnknownQueue"
    QUEUE_NOT_OPEN = "QueueNotOpen"
    QUEUE_CONFLICT = "QueueConflict"
    NEVER_FITS = "NeverFits"
    UNMETERED_CLASS = "UnmeteredClass"
    CLAIM_TOO_LARGE = "ClaimTooLarge"
    GATE_TAMPERING = "GateTampering"
    POLICY_VIOLATION = "PolicyViolation"
    MALFORMED_CLAIM = "MalformedClaim"
    MALFORMED_REQUEST = "MalformedRequest"


@dataclass(frozen=True, slots=True)
class Hold:
    """A gang waits: code, message, and details."""

    reason: HoldReason
    message: str
    details: Mapping[str, Detail] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Denial:
    """A request can never be admitted in its present form: code, message, and details."""

    reason: DenyReason
    message: str
    details: Mapping[str, Detail] = field(default_factory=dict)
