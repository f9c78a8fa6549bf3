"""Reasons of holds, evictions, denials and Events: one enum each, stable, for machines.

The message next to a reason is for people. It names no object of another namespace (see `references`); `for_reader`
puts in the names that a reader may know.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeVar

from admission.api.values import references as references_
from admission.api.values.names import MeterName
from admission.api.values.references import Audience, Reference, References

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
    NODES_NEEDED = "NodesNeeded"
    WAITING_FOR_CLAIMS = "WaitingForClaims"
    SCHEDULING_GATED = "SchedulingGated"
    BEHIND_IN_ORDER = "BehindInOrder"
    POOL_INCOMPLETE = "PoolIncomplete"
    START_TIMED_OUT = "StartTimedOut"
    PLACEMENT_FAILED = "PlacementFailed"
    RUNTIME_EXCEEDED = "RuntimeExceeded"
    DEVICES_IDLE = "DevicesIdle"
    EVICTION_REQUESTED = "EvictionRequested"
    SEARCH_LIMIT = "SearchLimit"
    NOT_SIMULATED = "NotSimulated"
    NOT_HOLDABLE = "NotHoldable"
    LEDGER_UNAVAILABLE = "LedgerUnavailable"
    INTERNAL_ERROR = "InternalError"


_NUMBERS = re.compile(r"\d[\d.]*")

PASSING = frozenset({HoldReason.GANG_INCOMPLETE, HoldReason.WAITING_FOR_CLAIMS})
"""Reasons that mostly pass within a second, while controllers create what is missing."""


IN_LINE = frozenset(
    {
        HoldReason.QUEUE_STOPPED,
        HoldReason.QUEUE_INACTIVE,
        HoldReason.QUOTA_EXCEEDED,
        HoldReason.BUDGET_EXHAUSTED,
        HoldReason.DEVICES_BUSY,
        HoldReason.NODES_NEEDED,
        HoldReason.BEHIND_IN_ORDER,
        HoldReason.LEDGER_UNAVAILABLE,
    }
)
"""Reasons for which those who come to the queue next most likely wait as well."""


class EvictionReason(StrEnum):
    """Why an admitted gang was evicted as a whole. Every member is described in docs/reasons.md."""

    PREEMPTED = "Preempted"
    RECLAIMED = "Reclaimed"
    RUNTIME_EXCEEDED = "RuntimeExceeded"
    DEVICES_IDLE = "DevicesIdle"
    QUEUE_DRAINED = "QueueDrained"
    EVICTION_REQUESTED = "EvictionRequested"


class EventReason(StrEnum):
    """Reasons that only Events have. Every member is described in docs/reasons.md."""

    ADMITTED = "Admitted"
    NOT_TOGETHER = "NotTogether"
    FELL_BACK = "FellBack"
    EVICTED = "Evicted"
    REPLANNED = "PlacedAnew"
    GANG_IDLE = "GangIdle"
    MEMORY_EXCEEDED = "MemoryExceeded"
    REQUEST_ANSWERED = "RequestAnswered"
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
    QUEUE_REQUIRED = "QueueRequired"
    NEVER_FITS = "NeverFits"
    OVER_QUOTA = "OverQuota"
    UNMETERED_CLASS = "UnmeteredClass"
    CLAIM_TOO_LARGE = "ClaimTooLarge"
    GATE_TAMPERING = "GateTampering"
    POLICY_VIOLATION = "PolicyViolation"
    MALFORMED_CLAIM = "MalformedClaim"
    MALFORMED_REQUEST = "MalformedRequest"
    TOO_MUCH_WORK = "TooMuchWork"


@dataclass(frozen=True, slots=True)
class Hold:
    """A gang waits: code, message, details, and what the message refers to without a name."""

    reason: HoldReason
    message: str
    details: Mapping[str, Detail] = field(default_factory=dict)
    references: References = ()


@dataclass(frozen=True, slots=True)
class Denial:
    """A request can never be admitted in its present form: code, message, and details."""

    reason: DenyReason
    message: str
    details: Mapping[str, Detail] = field(default_factory=dict)


def without_numbers(message: str) -> str:
    """Return what a message says, whatever its numbers: what is left of a quota or a budget changes all the time."""
    return _NUMBERS.sub("#", message)


def never_fits(hold: Hold, needed: Mapping[MeterName, int]) -> bool:
    """Return whether a held gang would not fit even if nothing else were in use, so that waiting does not help.

    needed: a lower bound on its charge. Nodes that kube-scheduler has refused are tried again, so they do not count.
    """
    if hold.reason is HoldReason.QUOTA_EXCEEDED:
        potential = str(hold.details.get("potential"))
        return potential.isdecimal() and needed.get(MeterName(str(hold.details.get("meter"))), 0) > int(potential)
    return hold.reason is HoldReason.NO_FEASIBLE_PLACEMENT and "refusedOn" not in hold.details


H = TypeVar("H", bound=Hold | Denial)


def for_reader(hold: H, audience: Audience) -> H:
    """Return a hold in the words for a reader. A denial is about objects of its own namespace, and stays as it is."""
    if not isinstance(hold, Hold) or not hold.references:
        return hold
    message, references = references_.render(hold.message, hold.references, audience)
    details = _details_for_reader(hold.details, hold.references, audience)
    return replace(hold, message=message, details=details, references=references)


def message_for(hold: Hold | Denial, audience: Audience) -> str:
    """Return the message of a hold in the words for a reader."""
    return references_.words(hold.message, hold.references, audience) if isinstance(hold, Hold) else hold.message


def identified(hold: H, identify: Callable[[Reference], Reference]) -> H:
    """Return a hold with what is known of the objects that it refers to, in the words for any reader."""
    if not isinstance(hold, Hold) or not hold.references:
        return hold
    references = tuple(map(identify, hold.references))
    message = references_.rephrase(hold.message, hold.references, references)
    details = _details_for_reader(hold.details, references, references_.NOWHERE)
    return replace(hold, message=message, details=details, references=references)


def _details_for_reader(
    details: Mapping[str, Detail], references: References, audience: Audience
) -> Mapping[str, Detail]:
    shown = dict(details)
    for reference in references:
        if reference.detail not in details or not reference.referents:
            continue
        names = references_.listed(reference, audience)
        shown[reference.detail] = names if isinstance(details[reference.detail], list) else ", ".join(names)
    return shown
