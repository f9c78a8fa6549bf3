"""Decoding of the statuses of Muster's objects into reports, for the commands and the dashboard.

The controller writes statuses from the same reports (`writers.status`). A field that an older or newer Muster does not
write has its default.
"""

from typing import TypeVar

from admission.api.kubernetes import meta
from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.api.kubernetes.meta import Condition, ConditionStatus
from admission.api.muster import gangs
from admission.api.muster.gangs import Charge, DomainReport, GangReport, Phase, PlannedClaim, PlannedPod, TopologyReport
from admission.api.muster.status_reports import BudgetUse, MeterUse, QueueReport
from admission.api.values import quantities, references
from admission.api.values.decoding import Json, Reader
from admission.api.values.names import GangUid, MeterName, NodeName, QueueName, Uid
from admission.api.values.reasons import Denial, DenyReason, Detail, Hold, HoldReason

T = TypeVar("T")


def gang(obj: Json) -> GangReport:
    """Decode a Gang with its status. Raises MalformedObjectError."""
    decoded = gangs.decode(obj)
    reader = Reader(obj)
    status = reader.child("status")
    report = GangReport(
        uid=GangUid(decoded.workload.uid if decoded.workload else decoded.meta.uid),
        namespace=decoded.meta.namespace,
        name=decoded.meta.name,
        queue=decoded.queue,
        size=decoded.size,
        priority=decoded.priority,
        workload=decoded.workload,
        phase=decoded.phase,
        pods=status.integer("pods"),
        expected=status.integer("expected"),
        hold=_hold(status.child("hold"), decoded.meta.namespace) if "hold" in status else None,
        needed=_amounts(status, "requests"),
        position=status.integer("position") or None,
        plan=tuple(_planned(pod, decoded.meta.namespace) for pod in status.children("plan")),
        charges=_amounts(status, "charges"),
        placement=status.text("placement"),
        placement_reason=status.text("placementReason"),
        placement_references=references.decode(status.children("placementReferences"), decoded.meta.namespace),
        not_simulated=status.texts("notSimulated"),
        later=status.texts("later"),
        topology=_topology(status.child("topology")) if "topology" in status else None,
        idle=decoded.idle,
        memory=decoded.memory,
        evictions=decoded.evictions,
        evicted=decoded.evicted,
        answered=decoded.answered,
        start_estimate=status.time("startEstimate"),
        start_reason=status.text("startReason"),
        start_references=references.decode(status.children("startReferences"), decoded.meta.namespace),
        queued_since=decoded.queued_since,
        next_try=decoded.next_try,
    )
    reader.finish("Gang", decoded.meta.key)
    return report


def _topology(reader: Reader) -> TopologyReport:
    gang = _domains(reader)
    return TopologyReport(
        gang=gang if gang.request else None,
        subgroups=tuple((subgroup.text("name"), _domains(subgroup)) for subgroup in reader.children("subgroups")),
    )


def _domains(reader: Reader) -> DomainReport:
    return DomainReport(
        request=gangs.decode_domain_request(reader),
        domains=reader.texts("domains"),
        preferred=reader.texts("preferredDomains"),
    )


def queue(obj: Json) -> QueueReport:
    """Decode a Queue's status. Raises MalformedObjectError."""
    reader = Reader(obj)
    values = meta.decode(reader)
    status = reader.child("status")
    counts = status.child("gangs")
    report = QueueReport(
        name=QueueName(values.name),
        generation=values.generation,
        conditions=tuple(map(condition, status.children("conditions"))),
        meters={MeterName(use.required("meter")): _use(use) for use in status.children("meters")},
        budgets=tuple(map(_budget, status.children("budgets"))),
        references=references.decode(status.children("references"), ""),
        gangs={phase: counts.integer(phase.lower()) for phase in Phase if phase.lower() in counts},
    )
    reader.finish("Queue", values.name)
    return report


def _hold(reader: Reader, namespace: str) -> Hold | Denial:
    reason, message = reader.text("reason"), reader.text("message")
    details: dict[str, Detail] = dict(reader.raw("details") or {})
    if reason in set(HoldReason):
        found = references.decode(reader.children("references"), namespace)
        return Hold(HoldReason(reason), message, details, found)
    if reason in set(DenyReason):
        return Denial(DenyReason(reason), message, details)
    # Written by a newer Muster: the message keeps its reason.
    return Hold(HoldReason.NOT_SIMULATED, f"{reason}: {message}", details)


def _planned(reader: Reader, namespace: str) -> PlannedPod:
    return PlannedPod(
        uid=Uid(""),
        pod=f"{namespace}/{reader.text('pod')}",
        node=NodeName(reader.text("node")),
        claims=tuple(
            PlannedClaim(
                uid=Uid(""),
                claim=f"{namespace}/{claim.text('claim')}",
                devices=tuple(map(_device, claim.children("devices"))),
            )
            for claim in reader.children("claims")
        ),
    )


def _device(reader: Reader) -> RequestDevice:
    device = DeviceId(reader.text("driver"), reader.text("pool"), reader.text("device"))
    return RequestDevice(request=reader.text("request"), device=device)


def _use(reader: Reader) -> MeterUse:
    return MeterUse(
        nominal=_amount(reader, "nominal"),
        reserved=_amount(reader, "reserved"),
        used=_amount(reader, "used"),
        borrowed=_amount(reader, "borrowed"),
        lent=_amount(reader, "lent"),
        pending=_amount(reader, "pending"),
    )


def _budget(reader: Reader) -> BudgetUse:
    return BudgetUse(
        meter=MeterName(reader.required("meter")),
        limit=_seconds(reader, "hours"),
        spent=_seconds(reader, "spent"),
        promised=_seconds(reader, "promised"),
        elsewhere=_seconds(reader, "elsewhere"),
        period=reader.text("period"),
        start=reader.time("start"),
        end=reader.time("end"),
        scope=reader.text("scope"),
        on_exhausted=reader.text("onExhausted"),
    )


def _seconds(reader: Reader, name: str) -> int:
    return reader.parsed(name, quantities.seconds_of, 0)


def _amounts(status: Reader, name: str) -> Charge:
    return {MeterName(meter): _amount(status.child(name), meter) for meter in status.pairs(name)}


def _amount(reader: Reader, name: str) -> int:
    return reader.parsed(name, quantities.parse_amount, 0)


def condition(reader: Reader) -> Condition:
    """Decode a condition of a status."""
    status = reader.text("status")
    return Condition(
        type=reader.text("type"),
        status=ConditionStatus(status) if status in set(ConditionStatus) else ConditionStatus.UNKNOWN,
        reason=reader.text("reason"),
        message=reader.text("message"),
    )
