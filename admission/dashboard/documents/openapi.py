"""The OpenAPI document of what programs may ask the dashboard for; served, and in docs/reference."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from admission.dashboard.documents import books, cluster
from admission.dashboard.documents.encoding import API_VERSION, Document, Error

PATH = "/openapi.json"

PAGING = {
    "page": "Which page of the list, from 1.",
    "size": "How many items a page of JSON has, at most 1000.",
    "sort": "The column by which the list is sorted; in reverse with - before it.",
}
PERIOD = {"from": "Its start, in UTC (2026-09-01T00:00).", "to": "Its end, in UTC."}


class Operation(NamedTuple):
    """One page. parameters: of its query."""

    path: str
    summary: str
    document: type[Document]
    parameters: dict[str, str]


OPERATIONS: Sequence[Operation] = (
    Operation("/", "What operators need first.", cluster.Overview, {}),
    Operation(
        "/queues",
        "The tree of queues, all of it unless the query names branches.",
        cluster.QueueList,
        {
            "q": "A part of the names.",
            "parent": "The queue whose branch is asked for.",
            "open": "The branches that are open, separated by commas.",
            "meter": "The meter by which columns sort; by default the busiest of each queue.",
            **PAGING,
        },
    ),
    Operation("/queues/{name}", "One queue.", cluster.QueuePage, {}),
    Operation(
        "/gangs",
        "Gangs, by default the longest waiting first.",
        cluster.GangList,
        {
            "q": "A part of namespace/name.",
            "namespace": "Their namespace.",
            "queue": "Their queue.",
            "phase": "Their state: a phase, NeverFits, or Waiting for any in which they wait.",
            "reason": "For which they wait.",
            **PAGING,
        },
    ),
    Operation(
        "/gangs/{namespace}/{name}",
        "One gang, with its pods and Events.",
        cluster.GangPage,
        {"page": "Which page of its pods, from 1.", "size": "How many pods a page has, at most 1000."},
    ),
    Operation(
        "/devices",
        "Nodes with devices.",
        cluster.NodeList,
        {"q": "A part of the names.", "driver": "The driver of their devices.", **PAGING},
    ),
    Operation(
        "/heatmap",
        "All devices, with the queue that has each.",
        cluster.HeatMap,
        {"model": "The model, with the memory, as it is named there."},
    ),
    Operation("/shapes", "The shapes of nodes that may still come.", cluster.ShapeList, {**PAGING}),
    Operation(
        "/capacity",
        "What stands free in pieces, and how many more gangs of a shape would start.",
        cluster.GangCapacity,
        {
            "pods": "Of a gang, at most 1000.",
            "devices": "Of each pod, at most 32.",
            "class": "The DeviceClass of the devices.",
            "queue": "The queue that the gangs would enter; else quota does not count.",
            **PAGING,
        },
    ),
    Operation("/devices/{node}", "The devices of one node; of node - those that several reach.", cluster.NodePage, {}),
    Operation(
        "/ledger",
        "Transactions, the newest first.",
        books.TransactionList,
        {
            "queue": "Of which queue.",
            "namespace": "Of gangs of which namespace.",
            "gang": "A part of namespace/name.",
            "user": "Of whose gangs.",
            "kind": "Of which kind of entry.",
            "before": "Only those with a lower number.",
            "size": "How many, at most 1000.",
            **PERIOD,
        },
    ),
    Operation(
        "/ledger/statements/{queue}",
        "The movements on a queue's account.",
        books.Statement,
        {**PERIOD, "page": PAGING["page"], "size": PAGING["size"]},
    ),
    Operation(
        "/ledger/use",
        "Device-hours over time.",
        books.DeviceHours,
        {
            "queue": "Of which queue; else of all.",
            "by": "queue, class, namespace or user.",
            "step": "hour, day or month.",
            "last": "day, week or month: the period up to now, instead of from and to.",
            **PERIOD,
        },
    ),
    Operation(
        "/ledger/used",
        "What allocated devices did: used hours beside allocated ones, and the emptiest gangs.",
        books.UsedHours,
        {
            "queue": "Of which queue; else of all.",
            "by": "queue, gang, namespace or user.",
            "last": "day, week or month: the period up to now, instead of from and to.",
            **PERIOD,
        },
    ),
    Operation(
        "/ledger/waiting",
        "How long gangs have waited over time, in the last 40 days.",
        books.WaitingTime,
        {
            "queue": "Of which queue; else of all.",
            "step": "hour, day or month.",
            "last": "day, week or month: the period up to now, instead of from and to.",
            **PERIOD,
        },
    ),
    Operation(
        "/past",
        "The accounts, and who held what, at a past time.",
        books.Past,
        {"at": "The time, in UTC.", "queue": "Of which queue.", "page": PAGING["page"], "size": PAGING["size"]},
    ),
)


@functools.cache
def text() -> bytes:
    """Return the document as JSON."""
    return msgspec.json.format(msgspec.json.encode(document()), indent=1)


def document() -> dict[str, Any]:
    """Return the document (OpenAPI 3.1)."""
    types = [*(operation.document for operation in OPERATIONS), Error]
    _, schemas = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Muster's dashboard",
            "version": API_VERSION.rpartition("/")[2],
            "description": (
                "Every page of the dashboard as JSON (Accept: application/json, or ?format=json), and each of its"
                " tables as CSV (text/csv, or ?format=csv, with ?table= for others than the first), by the same rights."
            ),
        },
        "security": [{"bearer": []}],
        "paths": {operation.path: {"get": _get(operation)} for operation in OPERATIONS},
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "A token that the API server accepts."}
            },
        },
    }


def _get(operation: Operation) -> dict[str, Any]:
    segments = [part[1:-1] for part in operation.path.split("/") if part.startswith("{")]
    return {
        "operationId": f"get{operation.document.__name__}",
        "summary": operation.summary,
        "parameters": [
            *({"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in segments),
            *(
                {"name": name, "in": "query", "description": description, "schema": {"type": "string"}}
                for name, description in operation.parameters.items()
            ),
        ],
        "responses": {
            "200": {
                "description": operation.summary,
                "content": {
                    "application/json": {"schema": _reference(operation.document)},
                    "text/csv": {"schema": {"type": "string"}},
                },
            },
            "default": {
                "description": "Why there is no such document: 401 without a valid token, 403 without the right.",
                "content": {"application/json": {"schema": _reference(Error)}},
            },
        },
    }


def _reference(document: type[Document]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{document.__name__}"}
