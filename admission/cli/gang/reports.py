"""The gangs of a cluster, read, found by name, and shown in tables and JSON; for all commands that are about gangs."""

from collections.abc import Iterable
from typing import Any

from admission.api import suggestions
from admission.api.device_use.idle import IdleDevices
from admission.api.device_use.memory import MemoryExceeded
from admission.api.muster import gang_references, status_views
from admission.api.muster.gang_requests import AnsweredRequest
from admission.api.muster.gangs import GangReport, Phase
from admission.api.values.references import EVERYWHERE
from admission.cli import terminal
from admission.cli.cluster_options import Cluster
from admission.cli.terminal import Overflow
from admission.errors import FixError
from admission.kube.cache import watched_resources

NEVER_FITS = "NeverFits"
"""What `kubectl get gangs` shows of gangs for which waiting does not help."""

_ORDER = {phase: at for at, phase in enumerate((Phase.RUNNING, Phase.ADMITTED, Phase.RESERVED, Phase.PENDING))}

_HEADINGS = ("gang", "queue", "phase", "pods", "charges", "where, or why not")

_SPARE = ("charges", "pods", "queue")
"""The columns that a narrow terminal does without."""


async def reports(cluster: Cluster, namespace: str = "", *, labels: str = "") -> list[GangReport]:
    """Return all gangs: running ones first, waiting ones last, in their order. Only these gangs are named."""
    objects = await cluster.list_objects(watched_resources.GANGS, namespace, labels=labels)
    reported = [status_views.gang(obj) for obj in objects]
    keys = {obj["metadata"].get("uid", ""): report.key for obj, report in zip(objects, reported, strict=True)}
    found = [gang_references.for_reader(gang_references.resolved(one, keys), EVERYWHERE) for one in reported]
    last = len(_ORDER)
    return sorted(found, key=lambda gang: (_ORDER.get(gang.phase, last), gang.queue, gang.position or 0, gang.key))


def named(found: Iterable[GangReport], name: str) -> GangReport | None:
    """Return the first gang with a name, or of a workload with it; None if there is none."""
    return next(
        (one for one in found if one.name == name or (one.workload is not None and one.workload.name == name)), None
    )


async def find(cluster: Cluster, namespace: str, name: str) -> GangReport:
    """Return the gang with a name, or of a workload with it. Raises FixError if there is none."""
    there = await reports(cluster, namespace)
    found = named(there, name)
    if found is not None:
        return found
    known = suggestions.listed(name, {one.workload.name if one.workload is not None else one.name for one in there})
    raise FixError(
        f"there is no gang or workload of a gang {name} in namespace {namespace}; there are: {known or 'none'}"
    )


def show(found: list[GangReport], overflow: Overflow = Overflow.CUT) -> None:
    """Print the table."""
    rows = [_row(report, whole=overflow is Overflow.WRAP) for report in found]
    terminal.table("Gangs", _HEADINGS, rows, spare=_SPARE, overflow=overflow)


def request(answered: AnsweredRequest) -> str:
    """Return the last request about a gang as `ann asked for Evict at 2026-11-21T12:00:00Z (why): it is taken back`."""
    why = f" ({answered.reason})" if answered.reason else ""
    return f"{answered.by} asked for {answered.action} at {terminal.moment(answered.at)}{why}: {answered.outcome}"


def as_json(report: GangReport) -> dict[str, Any]:
    """Return one gang as documented JSON (docs/commands.md)."""
    hold = report.hold
    return {
        "namespace": report.namespace,
        "name": report.name,
        "queue": report.queue,
        "phase": report.phase,
        "size": report.size,
        "pods": report.pods,
        "expected": report.expected,
        "neverFits": report.never_fits,
        "position": report.position,
        "reason": hold.reason if hold else None,
        "message": hold.message if hold else "",
        "details": dict(hold.details) if hold else {},
        "placement": report.placement or None,
        "placementReason": report.placement_reason,
        "notSimulated": list(report.not_simulated),
        "later": list(report.later),
        "topology": terminal.topology(report.topology),
        "plan": terminal.plan(report.plan),
        "charges": terminal.amounts(report.charges),
        "idle": _idle(report.idle),
        "memory": _memory(report.memory),
        "evictions": report.evictions,
        "evicted": terminal.evicted(report.evicted),
        "request": _request(report.answered),
        "startEstimate": terminal.moment(report.start_estimate),
        "startReason": report.start_reason,
    }


def _row(report: GangReport, *, whole: bool) -> tuple[object, ...]:
    pods, where = f"{report.pods}/{report.size}", _location_or_reason(report, whole=whole)
    return (report.key, report.queue, state(report), pods, terminal.charge(report.charges), where)


def state(report: GangReport) -> str:
    """Return the phase of a gang in one word; of one that can never start as it is, that."""
    return NEVER_FITS if report.never_fits else report.phase


def _location_or_reason(report: GangReport, *, whole: bool) -> str:
    """Return where the gang runs, or the reason of its hold, of which `muster why` has the numbers, too.

    whole: the reason in full.
    """
    if report.hold is None:
        return terminal.nodes_of(report.plan)
    return f"{report.hold.reason}: {report.hold.message if whole else report.hold.message.split('; ')[0]}"


def _idle(idle: IdleDevices | None) -> dict[str, Any] | None:
    if idle is None:
        return None
    return {"since": terminal.moment(idle.since), "message": idle.message}


def _memory(memory: MemoryExceeded | None) -> dict[str, Any] | None:
    if memory is None:
        return None
    return {
        "claim": memory.claim,
        "askedBytes": str(memory.asked),
        "peakBytes": str(memory.peak),
        "message": memory.message,
    }


def _request(answered: AnsweredRequest | None) -> dict[str, Any] | None:
    if answered is None:
        return None
    return {
        "action": answered.action,
        "by": answered.by,
        "reason": answered.reason,
        "priorityClass": answered.priority_class or None,
        "outcome": answered.outcome,
        "at": terminal.moment(answered.at),
    }
