"""Advice for a held gang: what would have to change so that it can start, in one sentence for each reason.

Pure: from the reason and its numbers to text. `muster why` and the dashboard show it below the reason; docs/reasons.md
has it in more detail.
"""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import assert_never

from admission.api.muster.gangs import GangReport
from admission.api.values import quantities
from admission.api.values.reasons import Denial, Detail, Hold, HoldReason
from admission.errors import AmountError

MOST_NAMED = 4
"""The most gangs in a sentence."""


PLAN = "plan"
"""The detail of a gang that waits for nodes that has the plan: `node: pods` for each."""

REFUSED = frozenset({HoldReason.START_TIMED_OUT, HoldReason.NO_FEASIBLE_PLACEMENT})
"""Reasons behind which may be that kube-scheduler refused pods on the nodes that are left."""


def advice(gang: GangReport) -> str:
    """Return what would have to change so that a gang can start; "" if nothing holds it."""
    if isinstance(gang.hold, Denial):
        return "what the sentence above names; until then it never starts"
    return for_hold(gang.hold, gang.queue) if gang.hold else ""


def planned(details: Mapping[str, Detail]) -> list[tuple[str, str]]:
    """Return the nodes and pods of the plan of a gang that waits for nodes; none for others."""
    rows = details.get(PLAN)
    parts = [row.partition(": ") for row in rows] if isinstance(rows, list) else []
    return [(node, pods) for node, _, pods in parts]


def for_hold(hold: Hold, queue: str) -> str:  # noqa: C901, PLR0911, PLR0912 - one short answer for each reason
    """Return what would have to change so that a gang that is held can start."""
    if "refusedOn" in hold.details and hold.reason in REFUSED:
        return _refused(hold.details)
    match hold.reason:
        case HoldReason.GANG_INCOMPLETE:
            return _incomplete(hold.details)
        case HoldReason.QUEUE_STOPPED:
            stopped = hold.details.get("queue", queue)
            return f"`muster queue resume {stopped}`, or its spec.stopPolicy set to None in another way"
        case HoldReason.QUEUE_INACTIVE:
            return f"queue {queue} has to be mended as the sentence above says"
        case HoldReason.QUOTA_EXCEEDED:
            return _quota(hold.details, queue)
        case HoldReason.BUDGET_EXHAUSTED:
            return _budget(hold.details, queue)
        case HoldReason.DEVICES_BUSY:
            return _busy(hold.details)
        case HoldReason.NO_FEASIBLE_PLACEMENT:
            return _infeasible(hold.details)
        case HoldReason.NODES_NEEDED:
            return _nodes(hold.details)
        case HoldReason.WAITING_FOR_CLAIMS:
            return _claims(hold.details)
        case HoldReason.SCHEDULING_GATED:
            return "who gave the pod the scheduling gate that is named has to open it; Muster opens only its own"
        case HoldReason.BEHIND_IN_ORDER:
            return _order(hold.details, queue)
        case HoldReason.POOL_INCOMPLETE:
            return "the device driver has to publish all slices of the pool that is named; this passes by itself"
        case HoldReason.START_TIMED_OUT:
            return "nothing, if a time is named: it is tried again then; see the pods' events for why it did not run"
        case HoldReason.PLACEMENT_FAILED:
            return "what the sentence says was in the way has to be mended; it is tried again, if a time is named then"
        case HoldReason.RUNTIME_EXCEEDED:
            return f"it is tried again at the time that is named; to run longer it needs a longer maxRuntime of {queue}"
        case HoldReason.DEVICES_IDLE:
            return (
                f"it is tried again at the time that is named; to be idle longer it needs another spec.idle of {queue}"
            )
        case HoldReason.EVICTION_REQUESTED:
            return "it is tried again at the time that is named; `muster gang requeue` has it tried at once"
        case HoldReason.SEARCH_LIMIT:
            return "it may fit: fewer pods, fewer selectors or a larger controller.steps let the search end"
        case HoldReason.NOT_SIMULATED:
            return "the sentence above names it: do without it, or mend it; nothing is guessed at"
        case HoldReason.NOT_HOLDABLE:
            return "its workload has to be mended as the sentence above says, or deleted and created anew"
        case HoldReason.LEDGER_UNAVAILABLE:
            return "the ledger's database has to answer again; nothing is granted without it"
        case HoldReason.INTERNAL_ERROR:
            return "this is a defect of Muster: report it with the controller's log; the gang made otherwise may start"
        case _:
            assert_never(hold.reason)


def _refused(details: Mapping[str, Detail]) -> str:
    nodes = details["refusedOn"]
    named = ", ".join(nodes[:MOST_NAMED]) if isinstance(nodes, list) else str(nodes)
    return (
        f"what kube-scheduler says is in the way on {named}: a node is tried again once a pod ends there or it changes,"
        " at the latest after an hour; until then the gang needs a place on others"
    )


def _incomplete(details: Mapping[str, Detail]) -> str:
    if "missing" not in details:
        return "whoever makes its pods has to exist and to say how many there are, as the sentence above tells"
    missing = details["missing"]
    return (
        f"{missing} more {'pod has' if str(missing) == '1' else 'pods have'} to be created;"
        " look at the events of what makes them if that does not happen"
    )


def _claims(details: Mapping[str, Detail]) -> str:
    if "pod" in details:
        return "the claim or template that is named has to exist; Kubernetes makes claims from templates by itself"
    if "claim" in details:
        return f"claim {details['claim']} has to be seen as the sentence above says; that mostly passes by itself"
    return "nothing: what the sentence above waits for passes by itself"


def _budget(details: Mapping[str, Detail], queue: str) -> str:
    payer = details.get("queue", queue)
    begins = details.get("reset", details.get("end"))
    waits = f"its next period begins ({begins})" if begins else "its next period begins"
    try:
        hours, left, needed = (Decimal(str(details.get(name))) for name in ("hours", "left", "needed"))
    except InvalidOperation:
        return f"the budget of queue {payer} is raised, {waits}, or the gang is shorter"
    shorter = f", or the gang makes do with {left:f}" if left > 0 else ""
    missing = needed - left
    if needed > hours:
        return (
            f"the whole budget of queue {payer} is {hours:f} {details.get('meter')}-hours, and the gang needs"
            f" {needed:f}: raise the budget, or state a shorter muster.dev/runtime"
        )
    return (
        f"{missing:f} more {details.get('meter')}-hours: the budget of queue {payer} is raised from {hours:f} to at"
        f" least {hours + missing:f}, gangs give back what they were promised, {waits}{shorter}"
    )


def _busy(details: Mapping[str, Detail]) -> str:
    more, holders = _more(details), details.get("holders")
    holder_text = (
        f"; such are held by {', '.join(holders[:MOST_NAMED])}" if isinstance(holders, list) and holders else ""
    )
    if more is None:
        return f"other gangs have to end; it is within its quota, and fits the cluster when less is in use{holder_text}"
    where = f"on node {details.get('node')}, or as many on another"
    return f"{more} more {_devices(details)} have to become free {where}{holder_text}"


def _nodes(details: Mapping[str, Detail]) -> str:
    request = details.get("provisioningRequest")
    if request is not None:
        return (
            f"an autoscaler has to answer ProvisioningRequest {request} (`kubectl describe provreq {request}`);"
            " until then its quota is reserved, at most for the queue's provisioning.timeout"
        )
    if "unread" in details:
        return (
            f"NodeShape {details['unread']} has to be mended, or Muster's right to read it, as the sentence above says"
        )
    shapes = details.get("shapes")
    listed = ", ".join(shapes) if isinstance(shapes, list) else ""
    if "instead" not in details:
        return f"an autoscaler has to start them: {listed}; pods that do not run within provisioning.timeout wait again"
    end = ", or other gangs have to end" if details.get("instead") == HoldReason.DEVICES_BUSY else ""
    return f"nodes have to come: {listed}; the queue has quota for what the gang needs, and nobody starts them{end}"


def _infeasible(details: Mapping[str, Detail]) -> str:
    helps = "waiting does not help: "
    if str(details.get("matching")) == "0":
        return f"{helps}another class or selector for {_request(details)}, or nodes with {_devices(details)} that match"
    if details.get("constraints"):
        rules = details["constraints"]
        named = ", ".join(rules) if isinstance(rules, list) else str(rules)
        return f"{helps}fewer devices on one node, or without {named}; or nodes that have them so"
    if "matching" in details and _more(details) is not None:
        most = details["matching"]
        if int(str(details["needed"])) <= int(str(most)):
            return f"{helps}fewer pods in the gang, or more nodes for it with {_devices(details)}"
        return (
            f"{helps}at most {most} in {_request(details)}, which is the most that a node has;"
            f" or a node with {details['needed']} {_devices(details)}"
        )
    return f"{helps}ask for less or for something else, or add nodes that have it"


def _more(details: Mapping[str, Detail]) -> int | None:
    """Return how many devices the best node lacks; None if missing devices are not the reason."""
    try:
        missing = int(str(details.get("needed"))) - int(str(details.get("mostFree")))
    except ValueError:
        return None
    return missing if missing > 0 else None


def _devices(details: Mapping[str, Detail]) -> str:
    return f"devices of class {details['deviceClass']}" if "deviceClass" in details else "devices"


def _request(details: Mapping[str, Detail]) -> str:
    return f"request {details.get('request')} of claim {details.get('claim')}"


def _order(details: Mapping[str, Detail], queue: str) -> str:
    if "until" in details:
        return f"{details['behind']} has to start first, or the gang to end by {details['until']} (muster.dev/runtime)"
    return f"the gang ahead of it has to start first, or queue {queue} has to become BestEffortFIFO"


def _quota(details: Mapping[str, Detail], queue: str) -> str:
    meter, left, needed = (details.get(name) for name in ("meter", "left", "needed"))
    try:
        missing = quantities.parse_ceiling(str(needed)) - quantities.parse_ceiling(str(left))
        potential = quantities.parse_ceiling(str(details.get("potential", needed)))
    except AmountError:
        return f"other gangs of queue {queue} have to end, or its quota be raised"
    if quantities.parse_ceiling(str(needed)) > potential:
        return (
            f"waiting does not help: ask for at most {quantities.render(potential)} {meter}, or raise what queue"
            f" {queue} can have: its quota or borrowingLimit, or the quotas of the queues that it borrows from"
        )
    return (
        f"{quantities.render(missing)} more {meter} have to become free in queue {queue}: gangs end, its quota or"
        " borrowingLimit is raised"
    )
