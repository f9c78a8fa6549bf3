"""What would have to change so that a held gang can start: one sentence for each reason.

Pure: the reason and the numbers behind it in, words out. `muster why` prints it below the reason; docs/reasons.md says
the same at length.
"""

from collections.abc import Mapping
from typing import assert_never

from admission.api.reasons import Detail, Hold, HoldReason


def advice(hold: Hold, queue: str) -> str:  # noqa: C901, PLR0911, PLR0912 - one short answer for each reason
    """Return what would let the gang start."""
    match hold.reason:
        case HoldReason.GANG_INCOMPLETE:
            return "its missing pods have to be created; look at the Job's events if that does not happen"
        case HoldReason.QUEUE_STOPPED:
            return "someone has to set spec.stopPolicy of the queue that is named back to None"
        case HoldReason.QUEUE_INACTIVE:
            return f"queue {queue} has to be mended as the sentence above says"
        case HoldReason.QUOTA_EXCEEDED:
            return _quota(hold.details, queue)
        case HoldReason.BUDGET_EXHAUSTED:
            payer = hold.details.get("queue", queue)
            return f"the budget of queue {payer} has to be raised, its next period has to begin, or the gang be shorter"
        case HoldReason.DEVICES_BUSY:
            return "other gangs have to end; it is within its quota and fits the cluster, only not beside what runs now"
        case HoldReason.NO_FEASIBLE_PLACEMENT:
            return "waiting does not help: ask for less or for something else, or add nodes that have it"
        case HoldReason.WAITING_FOR_CLAIMS:
            return "the claim or template that is named has to exist; Kubernetes makes claims from templates by itself"
        case HoldReason.BEHIND_IN_ORDER:
            return _order(hold.details, queue)
        case HoldReason.POOL_INCOMPLETE:
            return "the device driver has to publish all slices of the pool that is named; this passes by itself"
        case HoldReason.START_TIMED_OUT:
            return "nothing, if a time is named: it is tried again then; see the pods' events for why it did not run"
        case HoldReason.PLACEMENT_FAILED:
            return "it is tried again at the time that is named; what the sentence says was in the way has to be mended"
        case HoldReason.RUNTIME_EXCEEDED:
            return f"it is tried again at the time that is named; to run longer it needs a longer maxRuntime of {queue}"
        case HoldReason.SEARCH_LIMIT:
            return "it may fit: fewer pods, fewer selectors or a larger controller.steps let the search end"
        case HoldReason.NOT_SIMULATED:
            return "the sentence above names it: do without it, or mend it; nothing is guessed at"
        case HoldReason.LEDGER_UNAVAILABLE:
            return "the ledger's database has to answer again; nothing is granted without it"
        case HoldReason.INTERNAL_ERROR:
            return "this is a defect of Muster: report it with the controller's log; the gang made otherwise may start"
        case _:
            assert_never(hold.reason)


def _order(details: Mapping[str, Detail], queue: str) -> str:
    if "until" in details:
        return f"{details['behind']} has to start first, or the gang to end by {details['until']} (muster.dev/runtime)"
    return f"the gang ahead of it has to start first, or queue {queue} has to become BestEffortFIFO"


def _quota(details: Mapping[str, Detail], queue: str) -> str:
    meter, left, needed = (details.get(name) for name in ("meter", "left", "needed"))
    try:
        short = int(str(needed)) - int(str(left))
    except ValueError:
        return f"other gangs of queue {queue} have to end, or its quota be raised"
    return (
        f"{short} more {meter} have to become free in queue {queue}: gangs end, its quota or borrowingLimit is raised"
    )
