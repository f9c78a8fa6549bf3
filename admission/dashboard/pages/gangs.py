"""Gangs: a list with a search, and a page for each gang with its plan on nodes and devices, its pods and its Events."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp import web

from admission.api.muster import gang_references
from admission.api.muster.observed import ObservedGang
from admission.api.values import references
from admission.api.values.reasons import DenyReason, Detail, EvictionReason, HoldReason
from admission.dashboard import formatting, pagination, request_context, view_model
from admission.dashboard.auth.rbac import SLICES, Rights
from admission.dashboard.devices import diagram, inventory
from admission.dashboard.devices.diagram import Drawing
from admission.dashboard.documents import cluster as documents
from admission.dashboard.ledger_queries import GangSearch, Transaction
from admission.dashboard.pages import gang_objects, ledger, overview
from admission.dashboard.pages.gang_objects import GangObjects
from admission.dashboard.request_context import CONTEXT, RIGHTS, Media
from admission.dashboard.view_model import ClusterView
from admission.errors import FixError, RetryError
from admission.status import advice

MOST_NODES = 32
"""The most nodes of a plan that are drawn; the table has all of them."""
MOST_PLANNED = 200
"""The most pods of a plan in its table."""
MOST_EVENTS = 50
"""The most Events in the table of a page."""
ENTRIES = 50

BEFORE = timedelta(days=1)
"""How long before its Gang object the first entries of a gang may be: they precede it, by the leader's clock."""


async def listed(request: web.Request) -> web.StreamResponse:
    """Show the matching gangs in the order that is asked for; by default the longest waiting first."""
    query = request.query
    filters = {name: pagination.word(query, name) for name in _CONDITIONS}
    visible = await request_context.visible_gangs(request, filters["namespace"])
    cluster_view = request_context.cluster_view(request)
    gangs = _matching(visible.namespaces.filter_gangs(cluster_view.gangs), filters)
    size = request_context.page_size(request, pagination.SIZE)
    page = pagination.page(pagination.ordered(gangs, query, _COLUMNS), query, size=size)
    is_page = request_context.media(request) is Media.HTML
    shown = (
        replace(page, items=view_model.all_for_reader(page.items, cluster_view, visible.namespaces))
        if is_page
        else page
    )
    return await request_context.respond(
        request,
        "gangs.html",
        lambda: documents.GangList(
            **request_context.listing(request, page),
            items=[documents.gang(view_model.for_reader(one, cluster_view, visible.namespaces)) for one in page.items],
        ),
        page=shown,
        filters=filters,
        states=[view_model.ALL_WAITING, *view_model.STATES],
        reasons=[*HoldReason, *DenyReason, *EvictionReason],
        crowded=visible.crowded,
        namespaces=sorted(cluster_view.namespaces) if visible.namespaces.all else sorted(visible.namespaces.names),
    )


def _matching(gangs: Sequence[ObservedGang], filters: Mapping[str, str]) -> Sequence[ObservedGang]:
    """Return the gangs that match every condition."""
    for name, value in filters.items():
        if value:
            matches = _CONDITIONS[name]
            gangs = [gang for gang in gangs if matches(gang, value)]
    return gangs


_CONDITIONS: Mapping[str, Callable[[ObservedGang, str], bool]] = {
    "namespace": lambda gang, value: gang.report.namespace == value,
    "queue": lambda gang, value: gang.report.queue == value,
    "phase": view_model.in_state,
    "reason": lambda gang, value: gang.report.phase in view_model.WAITING and overview.reason(gang) == value,
    "q": lambda gang, value: value.lower() in gang.key.lower(),
}

_LATER = datetime.max.replace(tzinfo=UTC)

_COLUMNS: Mapping[str, Callable[[ObservedGang], Any]] = {
    "gang": lambda gang: inventory.natural(gang.key),
    "queue": lambda gang: (gang.report.queue, gang.report.position or 0),
    "state": view_model.state,
    "pods": lambda gang: gang.report.size,
    "asks": lambda gang: sorted(view_model.charge_or_needed(gang).items()),
    "reason": overview.reason,
    "since": view_model.held_since,
    "start": lambda gang: gang.report.start_estimate or _LATER,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """The ledger entries of a gang. trouble: why they cannot be read."""

    entries: Sequence[Transaction] = ()
    trouble: str = ""


async def gang(request: web.Request) -> web.StreamResponse:
    """Show one gang: its phase, hold, charge, place and ledger entries."""
    namespace, name = request.match_info["namespace"], request.match_info["name"]
    rights = request[RIGHTS]
    await rights.need_gang(namespace, name)
    cluster_view = request_context.cluster_view(request)
    gang = cluster_view.observed.gangs.get(f"{namespace}/{name}")
    if gang is None:
        raise web.HTTPNotFound
    sees_devices = await rights.may(SLICES)
    is_page = request_context.media(request) is Media.HTML
    drawings = await _drawings(rights, cluster_view, gang) if sees_devices and is_page else []
    sees_account = await rights.may_see_account(gang.report.queue)
    referred = references.namespaces(gang_references.references_of(view_model.resolved(gang, cluster_view).report))
    observed_queue = cluster_view.queues.get(gang.report.queue)
    gang = view_model.for_reader(gang, cluster_view, await rights.visible_namespaces_or_none(referred))
    end = view_model.expected_end(gang, observed_queue.queue if observed_queue is not None else None)
    objects, journal = await asyncio.gather(
        gang_objects.read(request, gang.report), _journal(request, gang, is_shown=sees_account and is_page)
    )
    return await request_context.respond(
        request,
        "gang.html",
        lambda: _document(request, gang, end, objects),
        gang=gang,
        report=gang.report,
        since=view_model.since(gang),
        end=end,
        commands=_commands(gang),
        waits=gang.report.phase in view_model.WAITING,
        mend=advice.advice(gang.report),
        objects=objects,
        drawings=drawings,
        undrawn=max(0, len(_nodes(gang)) - MOST_NODES),
        most_planned=MOST_PLANNED,
        most_events=MOST_EVENTS,
        sees_devices=sees_devices,
        sees_account=sees_account,
        journal=journal,
        details=[(_as_words(key), _joined(value)) for key, value in _details(gang) if key != advice.PLAN],
        to_come=advice.planned(dict(_details(gang))),
        place=formatting.segment,
    )


def _document(
    request: web.Request, gang: ObservedGang, end: datetime | None, objects: GangObjects
) -> documents.GangPage:
    workload = gang.report.workload
    return documents.GangPage(
        **request_context.envelope(request),
        gang=documents.gang(gang),
        details={key: value if isinstance(value, list) else str(value) for key, value in _details(gang)},
        advice=advice.advice(gang.report),
        expected_end=end,
        workload=f"{workload.kind} {workload.name}" if workload is not None else "",
        plan=documents.plan(gang.report),
        commands=list(_commands(gang)),
        pods=gang_objects.pod_documents(objects),
        pod_states=dict(objects.states),
        pods_note=objects.pods_note,
        events=gang_objects.event_documents(objects),
        events_note=objects.events_note,
    )


def _commands(gang: ObservedGang) -> Sequence[str]:
    """Return what says more of a gang in a shell. Names of Kubernetes' objects need no quoting there."""
    report, workload = gang.report, gang.report.workload
    commands = [f"kubectl muster why {gang.key}", f"kubectl muster gang show {gang.key}"]
    if workload is not None:
        group, _, _ = workload.api_version.rpartition("/")
        kind = f"{workload.kind.lower()}.{group}" if group else workload.kind.lower()
        commands.append(f"kubectl describe {kind} {workload.name} --namespace {report.namespace}")
    return [*commands, f"kubectl describe gangs.muster.dev {report.name} --namespace {report.namespace}"]


def _details(gang: ObservedGang) -> Sequence[tuple[str, Detail]]:
    hold = gang.report.hold
    return sorted(hold.details.items()) if hold is not None else ()


def _as_words(key: str) -> str:
    """Return `perNode` as `per node`."""
    return "".join(f" {char.lower()}" if char.isupper() else char for char in key)


def _joined(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _nodes(gang: ObservedGang) -> list[str]:
    return sorted({str(pod.node) for pod in gang.report.plan}, key=inventory.natural)


async def _drawings(rights: Rights, cluster_view: ClusterView, gang: ObservedGang) -> list[Drawing]:
    planned = {one.device for pod in gang.report.plan for claim in pod.claims for one in claim.devices}
    shared = any(cluster_view.inventory.places.get(device) == inventory.SHARED for device in planned)
    nodes = [*_nodes(gang)[:MOST_NODES], *([inventory.SHARED] if shared else [])]
    found = [(node, cluster_view.inventory.nodes[node]) for node in nodes if node in cluster_view.inventory.nodes]
    names = {name for _, units in found for name in inventory.namespaces(units, cluster_view.holders)}
    visible = await rights.visible_namespaces_or_none(names | {gang.report.namespace})
    return [
        diagram.draw(node, units, cluster_view.holders, visible=visible, own_gang=gang.key) for node, units in found
    ]


async def _journal(request: web.Request, gang: ObservedGang, *, is_shown: bool) -> Journal:
    """Return the latest entries of a gang. If the ledger cannot be read, the page is shown without them."""
    if not is_shown:
        return Journal()
    since = min(gang.meta.created, gang.report.queued_since or gang.meta.created)
    search = GangSearch(uid=gang.report.uid, gang=gang.key, since=since - BEFORE, limit=ENTRIES)
    try:
        found = await request.app[CONTEXT].ledger.of_gang(search)
        mentioned = {namespace for one in found for namespace in references.mentioned(one.entry.reason)}
        visible = await request[RIGHTS].visible_namespaces_or_none(mentioned | {gang.report.namespace})
        return Journal(entries=[ledger.for_reader(one, visible) for one in found])
    except (FixError, RetryError) as error:
        return Journal(trouble=str(error))
