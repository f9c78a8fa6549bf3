"""The pods and Events on a gang's page, of which each visitor sees what `kubectl get` shows to that visitor.

Both are asked for in the gang's namespace, with a right of its own each. Where they cannot be read, the page says why
and shows the rest.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aiohttp import web

from admission.api.kubernetes.access_review import Question
from admission.api.listings import ObjectEvent, PodRow
from admission.api.muster.gangs import GangReport
from admission.dashboard import pagination, request_context
from admission.dashboard.auth.rbac import EVENTS, PODS
from admission.dashboard.documents import cluster as documents
from admission.dashboard.gang_listings import POD, Involved
from admission.dashboard.pagination import Page
from admission.dashboard.request_context import CONTEXT, RIGHTS
from admission.errors import FixError, RetryError
from admission.workloads import pod_selectors
from admission.workloads.pod_selectors import PodSelector

PODS_SHOWN = 50
EVENTS_SHOWN = 100

WARNING = "Warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class GangPod:
    """A pod of a gang. devices: of the plan, as pool/device; warning: the latest Event that warns of it."""

    row: PodRow
    devices: Sequence[str] = ()
    warning: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GangObjects:
    """The pods, a page of them, and the Events of a gang. states: how many pods there are by status, in their order.

    pods_note, events_note: why they are not all there.
    """

    pods: Page[GangPod]
    states: Mapping[str, int]
    pods_note: str = ""
    events: Sequence[ObjectEvent] = ()
    events_note: str = ""


async def read(request: web.Request, report: GangReport) -> GangObjects:
    """Return the pods and Events of a gang, as far as the visitor may list them."""
    (rows, pods_note), (found, events_note) = await asyncio.gather(_pods(request, report), _events(request, report))
    workload = report.workload
    own = {row.name for row in rows} | ({workload.name} if workload is not None and workload.kind == POD else set())
    events = [event for event in found if event.kind != POD or event.name in own]
    warnings = {event.name: event.message for event in reversed(events) if _warns_of_pod(event)}
    devices = {
        pod.pod.partition("/")[2]: [
            f"{one.device.pool}/{one.device.device}" for claim in pod.claims for one in claim.devices
        ]
        for pod in report.plan
    }
    page = pagination.page(rows, request.query, size=request_context.page_size(request, PODS_SHOWN))
    shown = [
        GangPod(row=row, devices=devices.get(row.name, ()), warning=warnings.get(row.name, "")) for row in page.items
    ]
    return GangObjects(
        pods=Page(items=shown, number=page.number, size=page.size, total=page.total),
        states=Counter(row.status for row in rows),
        pods_note=pods_note,
        events=events[:EVENTS_SHOWN],
        events_note=events_note,
    )


def _warns_of_pod(event: ObjectEvent) -> bool:
    return event.type == WARNING and event.kind == POD


async def _pods(request: web.Request, report: GangReport) -> tuple[Sequence[PodRow], str]:
    """Return the pods of a gang, and a note about those that are missing."""
    refused = await _refused(request, PODS._replace(namespace=report.namespace))
    if refused:
        return (), refused
    selector = pod_selectors.selector(report)
    if selector is None:
        return (), "No label of its pods says that they are of this gang, so they cannot be listed here."
    listing = await request.app[CONTEXT].gang_listings.pods(report.namespace, selector)
    if listing.trouble:
        return (), _unread("pods", listing.trouble)
    rows, complete = listing.found.rows, listing.found.complete
    planned = {pod.pod.partition("/")[2] for pod in report.plan}
    if not selector.whole and planned:
        rows = [row for row in rows if row.name in planned]
    return rows, _pods_note(report, selector, len(rows), complete=complete)


def _pods_note(report: GangReport, selector: PodSelector, found: int, *, complete: bool) -> str:
    if not complete:
        return f"Only the first {found} are listed."
    if report.workload is None:
        unlabelled = report.pods and not found
        return f"None has the label {selector.labels}: they name their gang in another way." if unlabelled else ""
    if selector.whole or report.plan:
        return ""
    return f"These are all pods of {report.workload.kind} {report.workload.name}: this gang is {report.pods} of them."


async def _events(request: web.Request, report: GangReport) -> tuple[Sequence[ObjectEvent], str]:
    """Return the Events about a gang, its workload and pods of its namespace, and a note about those that are missing.

    Those of pods only for a visitor who is shown the gang's pods.
    """
    refused = await _refused(request, EVENTS._replace(namespace=report.namespace))
    if refused:
        return (), refused
    workload = report.workload
    involved = [Involved("Gang", report.name)]
    involved += [Involved(workload.kind, workload.name)] if workload is not None else []
    is_pod = workload is not None and workload.kind == POD
    if not is_pod and pod_selectors.selector(report) is not None:
        hidden = await _refused(request, PODS._replace(namespace=report.namespace))
        involved += [] if hidden else [Involved(POD)]
    listing = await request.app[CONTEXT].gang_listings.events(report.namespace, involved)
    return listing.found, _unread("Events", listing.trouble) if listing.trouble else ""


async def _refused(request: web.Request, question: Question) -> str:
    """Return why the visitor may not list something; "" for a visitor who may."""
    try:
        allowed = await request[RIGHTS].may(question)
    except (FixError, RetryError) as error:
        return _unread(question.resource, str(error))
    return "" if allowed else f"To see them, you need the right to {question}."


def _unread(what: str, trouble: str) -> str:
    return f"The {what} cannot all be read now: {trouble}."


def pod_documents(objects: GangObjects) -> list[documents.Pod]:
    """Return the page of pods for programs."""
    return [
        documents.Pod(**one.row._asdict(), devices=list(one.devices), warning=one.warning) for one in objects.pods.items
    ]


def event_documents(objects: GangObjects) -> list[documents.Event]:
    """Return the Events for programs."""
    return [
        documents.Event(**{name: getattr(event, name) for name in documents.Event.__struct_fields__})
        for event in objects.events
    ]
