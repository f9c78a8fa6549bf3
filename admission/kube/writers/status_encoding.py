"""Encoding of reports as JSON for the API server: pure, sent by `status`. Field names are those of the CRDs.

A status is encoded from the report and the previous status, which has two times that the report lacks: the last
transition of a condition, and the time since when a gang is held for its reason.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from admission.api.device_use.idle import IdleDevices
from admission.api.device_use.memory import MemoryExceeded
from admission.api.kubernetes.meta import Condition, ConditionStatus, Owner
from admission.api.muster import gang_references, queue_references
from admission.api.muster.gang_requests import AnsweredRequest
from admission.api.muster.gangs import (
    MADE_ROOM_FOR,
    Charge,
    DomainReport,
    DomainRequest,
    Evicted,
    GangReport,
    Phase,
    PlannedClaim,
    PlannedPod,
    RefusedPod,
    TopologyReport,
)
from admission.api.muster.queues import Scope
from admission.api.muster.status_reports import BudgetUse, ConditionReport, MeterUse, QueueReport, QueueSummary
from admission.api.values import durations, names, quantities
from admission.api.values.decoding import Json
from admission.api.values.reasons import Denial, Hold
from admission.api.values.references import LISTED, NOWHERE, Reference, References, Referent
from admission.quota import budgets

LONGEST_MESSAGE = 4096
LONGEST_REASON = 1024
LONGEST_PHRASE = 1024
MOST_REFERENCES = 16
LISTED_METERS = 3
"""The most meters in a column."""

_USED_PLACEMENTS = ("Allocate", "Pin", "Count")
_COUNTED = (Phase.PENDING, Phase.RESERVED, Phase.ADMITTED, Phase.RUNNING, Phase.EVICTED)


def gang(report: GangReport) -> dict[str, Any]:
    """Return the Gang object of a gang that the controller recognised; its workload owns it for garbage collection."""
    meta: dict[str, Any] = {
        "name": report.name,
        "namespace": report.namespace,
        "labels": {names.MANAGED_BY: names.FIELD_MANAGER, names.QUEUE: report.queue},
    }
    if report.position_key:
        meta["annotations"] = {names.POSITION_KEY: report.position_key}
    spec: dict[str, Any] = {"queue": report.queue, "size": report.size, "priority": report.priority}
    if report.topology is not None and report.topology.gang is not None:
        spec["topology"] = _domain_request(report.topology.gang.request)
    if report.workload is not None:
        # Neither controller nor blockOwnerDeletion: Muster must never block the deletion of a workload.
        meta["ownerReferences"] = [_owner(report.workload) | {"controller": False, "blockOwnerDeletion": False}]
        spec["workload"] = _owner(report.workload)
    return {"apiVersion": names.API_VERSION, "kind": "Gang", "metadata": meta, "spec": spec}


def gang_status(report: GangReport, before: Json, *, now: datetime) -> dict[str, Any]:
    """Return the status of a Gang, in the words for readers of its namespace."""
    report = gang_references.for_reader(report, {report.namespace})
    status = {
        "phase": str(report.phase),
        "summary": _gang_summary(report) or None,
        "conditions": conditions(_gang_conditions(report), before, now=now),
        "pods": report.pods,
        "expected": report.expected or None,
        "requests": _amounts(report.needed),
        "position": report.position,
        "hold": _hold(report.hold, before, now=now) if report.hold else None,
        "plan": [_planned_pod(pod) for pod in report.plan] or None,
        "charges": _amounts(report.charges),
        "placement": report.placement if report.placement in _USED_PLACEMENTS else None,
        "placementReason": cut(report.placement_reason, LONGEST_REASON) or None,
        "placementReferences": _references(report.placement_references),
        "notSimulated": [cut(text, LONGEST_REASON) for text in report.not_simulated] or None,
        "later": [cut(text, LONGEST_REASON) for text in report.later] or None,
        "topology": _topology(report.topology) if report.topology is not None else None,
        "idle": _idle(report.idle),
        "memory": _memory(report.memory),
        "evictions": report.evictions,
        "evicted": _evicted(report.evicted),
        "request": _answered(report.answered),
        "startEstimate": time(report.start_estimate),
        "startReason": cut(report.start_reason, LONGEST_REASON) or None,
        "startReferences": _references(report.start_references),
        "queuedSince": time(report.queued_since),
        "nextTry": time(report.next_try),
        "refused": [_refused(one) for one in report.refused] or None,
    }
    return _without_none(status)


def _gang_summary(report: GangReport) -> dict[str, Any]:
    """Return why a gang waits in one word, and what it asks for or has."""
    cause = report.hold or report.evicted
    charge = [
        f"{quantities.render(amount)} {meter}" for meter, amount in sorted((report.needed or report.charges).items())
    ]
    more = [f"{len(charge) - LISTED_METERS} more"] if len(charge) > LISTED_METERS else []
    return _without_none(
        {
            "reason": "NeverFits" if report.never_fits else str(cause.reason) if cause else None,
            "requests": ", ".join([*charge[:LISTED_METERS], *more]) or None,
        }
    )


def _domain_request(request: DomainRequest) -> dict[str, Any]:
    return _without_none({"required": request.required or None, "preferred": request.preferred or None})


def _topology(report: TopologyReport) -> dict[str, Any]:
    subgroups = [{"name": name, **_domains(subgroup)} for name, subgroup in report.subgroups]
    return _without_none({**_domains(report.gang), "subgroups": subgroups or None})


def _domains(report: DomainReport | None) -> dict[str, Any]:
    if report is None:
        return {}
    domains = {"domains": list(report.domains) or None, "preferredDomains": list(report.preferred) or None}
    return {**_domain_request(report.request), **_without_none(domains)}


def _refused(one: RefusedPod) -> dict[str, Any]:
    return {
        "pod": one.pod,
        "node": str(one.node),
        "shape": one.shape,
        "bound": one.bound,
        "message": cut(one.message, LONGEST_REASON),
        "at": time(one.at),
    }


def _evicted(evicted: Evicted | None) -> dict[str, Any] | None:
    """Return why a gang was evicted. Its time has microseconds, unlike others, since it is compared with the ledger."""
    if evicted is None:
        return None
    return _without_none(
        {
            "reason": str(evicted.reason),
            "message": cut(evicted.message, LONGEST_MESSAGE),
            "at": evicted.at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
            MADE_ROOM_FOR: evicted.made_room_for or None,
            "references": _references(evicted.references),
        }
    )


def _idle(idle: IdleDevices | None) -> dict[str, Any] | None:
    if idle is None:
        return None
    policy = idle.policy
    return {
        "since": time(idle.since),
        "belowPercent": policy.below_percent,
        "after": durations.render(policy.after),
        "action": str(policy.action),
    }


def _memory(memory: MemoryExceeded | None) -> dict[str, Any] | None:
    if memory is None:
        return None
    return {
        "claim": memory.claim,
        "sharers": memory.sharers,
        "asked": str(memory.asked),
        "peak": str(memory.peak),
        "start": time(memory.start),
        "end": time(memory.end),
    }


def _answered(answered: AnsweredRequest | None) -> dict[str, Any] | None:
    """Return the last request that was answered."""
    if answered is None:
        return None
    return _without_none(
        {
            "id": answered.id,
            "action": str(answered.action),
            "by": answered.by,
            "reason": answered.reason or None,
            "priorityClass": answered.priority_class or None,
            "outcome": cut(answered.outcome, LONGEST_REASON),
            "at": time(answered.at),
        }
    )


def _references(references: References) -> list[dict[str, Any]] | None:
    """Return references, which have names of objects of the reader's own namespace only; None if there are none."""
    return [_reference(one) for one in references[:MOST_REFERENCES]] or None


def _reference(reference: Reference) -> dict[str, Any]:
    return _without_none(
        {
            "text": cut(reference.phrase, LONGEST_PHRASE),
            "detail": reference.detail or None,
            "count": reference.count or None,
            "objects": [_referent(one) for one in reference.referents[:LISTED]] or None,
        }
    )


def _referent(one: Referent) -> dict[str, Any]:
    return _without_none(
        {
            "kind": str(one.kind),
            "name": _own_name(one.key) or None,
            "uid": one.uid or None,
            "gang": _own_name(one.gang) or None,
            "gangUID": one.gang_uid or None,
            "queue": one.queue or None,
            "devices": one.devices or None,
            "note": one.note or None,
            "count": one.count if one.count > 1 else None,
        }
    )


def queue_status(report: QueueReport, before: Json, *, now: datetime) -> dict[str, Any]:
    """Return the status of a Queue, which readers of any namespace may have."""
    report = queue_references.for_reader(report, NOWHERE)
    status = {
        "observedGeneration": report.generation or None,
        "conditions": conditions(report.conditions, before, now=now, generation=report.generation),
        "meters": [{"meter": str(meter), **_use(use)} for meter, use in sorted(report.meters.items())] or None,
        "budgets": [_budget(budget) for budget in report.budgets] or None,
        "references": _references(report.references),
        "summary": _queue_summary(report.summary),
        "gangs": {phase.lower(): report.gangs.get(phase, 0) for phase in _COUNTED},
    }
    return _without_none(status)


def _queue_summary(summary: QueueSummary) -> dict[str, Any]:
    counts = {"waiting": summary.waiting, "started": summary.started}
    if not summary.meter:
        return counts
    use = f"{quantities.render(summary.used)}/{quantities.render(summary.quota)} {summary.meter}"
    return {"use": use, "borrowed": quantities.render(summary.borrowed), **counts}


def condition_status(report: ConditionReport, before: Json, *, now: datetime) -> dict[str, Any]:
    """Return the status of a Meter, a ClaimPolicy or a NodeShape."""
    outside = [{"deviceClass": name, "devices": devices} for name, devices in sorted(report.outside.items())]
    known = (one for one in before.get("conditions") or () if isinstance(one, Mapping))
    kept = [dict(one) for one in known if one.get("type") in report.keeps]
    status = {
        "observedGeneration": report.generation or None,
        "conditions": [*conditions(report.conditions, before, now=now, generation=report.generation), *kept],
        "outsideQueues": outside or None,
    }
    return _without_none(status)


def conditions(
    wanted: Iterable[Condition], before: Json, *, now: datetime, generation: int = 0
) -> list[dict[str, Any]]:
    """Return conditions; one whose status has not changed keeps its lastTransitionTime."""
    known = {c.get("type"): c for c in before.get("conditions") or () if isinstance(c, Mapping)}
    result = []
    for condition in wanted:
        previous = known.get(condition.type, {})
        same = previous.get("status") == condition.status
        since = previous.get("lastTransitionTime") if same else None
        result.append(
            {
                "type": condition.type,
                "status": str(condition.status),
                "reason": condition.reason,
                "message": cut(condition.message, LONGEST_MESSAGE),
                "lastTransitionTime": since or time(now),
                **({"observedGeneration": generation} if generation else {}),
            }
        )
    return result


def applied(api_version: str, kind: str, name: str, status: Json, *, namespace: str = "") -> dict[str, Any]:
    """Return the body of a server-side apply of a status."""
    place = {"namespace": namespace} if namespace else {}
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, **place}, "status": status}


def time(moment: datetime | None) -> str | None:
    """Return a time as metav1.Time: RFC 3339 in UTC, to the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if moment else None


def cut(text: str, most: int) -> str:
    """Return a text cut to at most `most` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _gang_conditions(report: GangReport) -> tuple[Condition, ...]:
    """Return the conditions of a gang. What holds it is said once: by NeverFits, or else by Admitted."""
    phase, hold = report.phase, report.hold
    is_in = phase in (Phase.ADMITTED, Phase.RUNNING, Phase.FINISHED)
    why = (str(phase), "its pods may start" if is_in else f"the gang is {phase.lower()}")
    why = (str(hold.reason), hold.message) if hold else why
    runs, ended = phase is Phase.RUNNING, phase is Phase.FINISHED
    states = {
        "Admitted": (is_in, *(("NeverFits", "the gang can never start as it is") if report.never_fits else why)),
        "Running": (runs, str(phase), _said_of_pods(runs=runs, waits=hold is not None)),
        "Finished": (ended, str(phase), "its pods have ended" if ended else "it has not ended"),
        **({"NeverFits": (True, *why)} if report.never_fits else {}),
        **({"Idle": (True, "DevicesIdle", report.idle.message)} if report.idle is not None else {}),
        **({"MemoryExceeded": (True, "MoreThanAsked", report.memory.message)} if report.memory is not None else {}),
    }
    return tuple(
        Condition(
            type=kind,
            status=ConditionStatus.TRUE if holds else ConditionStatus.FALSE,
            reason=reason,
            message=message,
        )
        for kind, (holds, reason, message) in states.items()
    )


def _said_of_pods(*, runs: bool, waits: bool) -> str:
    if not runs:
        return "not all of its pods run"
    return "it runs, and pods that join it wait" if waits else "all of its pods run"


def _amounts(charge: Charge) -> dict[str, str] | None:
    return {meter: quantities.render(amount) for meter, amount in sorted(charge.items())} or None


def _hold(hold: Hold | Denial, before: Json, *, now: datetime) -> dict[str, Any]:
    previous = before.get("hold")
    same = isinstance(previous, Mapping) and previous.get("reason") == hold.reason
    status = {
        "reason": str(hold.reason),
        "message": cut(hold.message, LONGEST_MESSAGE),
        "details": dict(sorted(hold.details.items())) or None,
        "references": _references(hold.references) if isinstance(hold, Hold) else None,
        "since": (previous.get("since") if isinstance(previous, Mapping) and same else None) or time(now),
    }
    return _without_none(status)


def _planned_pod(pod: PlannedPod) -> dict[str, Any]:
    claims = [_planned_claim(claim) for claim in pod.claims]
    return {"pod": _own_name(pod.pod), "node": str(pod.node), **({"claims": claims} if claims else {})}


def _planned_claim(claim: PlannedClaim) -> dict[str, Any]:
    devices = [{"request": allocated.request, **allocated.device._asdict()} for allocated in claim.devices]
    return {"claim": _own_name(claim.claim), "devices": devices}


def _own_name(key: str) -> str:
    """Return the name in `namespace/name`, since a gang and its pods share the namespace."""
    return key.rpartition("/")[2]


def _use(use: MeterUse) -> dict[str, str]:
    fields = ("nominal", "reserved", "used", "borrowed", "lent", "pending")
    return {field: quantities.render(getattr(use, field)) for field in fields}


def _budget(budget: BudgetUse) -> dict[str, Any]:
    amounts = {
        "hours": budget.limit,
        "spent": budget.spent,
        "promised": budget.promised,
        "left": budget.left,
        "elsewhere": budget.elsewhere,
    }
    kept = {name: seconds for name, seconds in amounts.items() if name != "elsewhere" or budget.scope == Scope.GLOBAL}
    return _without_none(
        {
            "meter": str(budget.meter),
            **{name: budgets.hours(seconds) for name, seconds in kept.items()},
            "period": str(budget.period) or None,
            "start": time(budget.start),
            "end": time(budget.end),
            "scope": str(budget.scope) or None,
            "onExhausted": str(budget.on_exhausted) or None,
        }
    )


def _owner(owner: Owner) -> dict[str, Any]:
    return {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": str(owner.uid)}


def _without_none(status: dict[str, Any]) -> dict[str, Any]:
    """Return a status without its empty fields.

    If a map or list that had content before is applied empty, it becomes null, and the API server refuses the whole
    status (structured-merge-diff v6).
    """
    return {name: value for name, value in status.items() if value is not None}
