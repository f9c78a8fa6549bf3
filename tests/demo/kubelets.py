"""Plays the kubelets of the demo's fake nodes, on a cluster that has no KWOK for them.

It keeps the nodes Ready and moves their pods on: bound ones run, those that shall finish succeed, deleted ones go.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from admission.errors import MusterError
from admission.kube.client.connection import Connection, PatchKind
from tests.demo.stage import FINISH, NAMESPACES

SECONDS_BETWEEN_ROUNDS = 0.5
ROUNDS_BETWEEN_HEARTBEATS = 20


@asynccontextmanager
async def playing(connection: Connection, nodes: list[str]) -> AsyncIterator[None]:
    """Play while the block runs."""
    task = asyncio.create_task(_play(connection, nodes), name="play the kubelets")
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _play(connection: Connection, nodes: list[str]) -> None:
    rounds = 0
    while True:
        with suppress(MusterError):
            if rounds % ROUNDS_BETWEEN_HEARTBEATS == 0:
                await asyncio.gather(*(_beat(connection, node) for node in nodes))
            for namespace in NAMESPACES:
                pods = (await connection.get(f"/api/v1/namespaces/{namespace}/pods")).get("items") or ()
                await asyncio.gather(*(_move(connection, pod) for pod in pods if pod["spec"].get("nodeName") in nodes))
        rounds += 1
        await asyncio.sleep(SECONDS_BETWEEN_ROUNDS)


async def _beat(connection: Connection, node: str) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {"type": "Ready", "status": "True", "reason": "Played", "message": "by Muster's demo"}
    body = {"status": {"conditions": [{**ready, "lastHeartbeatTime": now}]}}
    await connection.patch(f"/api/v1/nodes/{node}/status", body, PatchKind.STRATEGIC)


async def _move(connection: Connection, pod: dict[str, Any]) -> None:
    meta, phase = pod["metadata"], pod["status"].get("phase")
    path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
    if meta.get("deletionTimestamp"):
        await connection.delete(path, {"gracePeriodSeconds": 0})
    elif phase == "Running" and (meta.get("annotations") or {}).get(FINISH) == "true":
        await connection.patch(f"{path}/status", {"status": _status("Succeeded", pod)}, PatchKind.STRATEGIC)
    elif phase == "Pending":
        await connection.patch(f"{path}/status", {"status": _status("Running", pod)}, PatchKind.STRATEGIC)


def _status(phase: str, pod: dict[str, Any]) -> dict[str, Any]:
    runs = phase == "Running"
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    state = {"running": {"startedAt": now}} if runs else {"running": None, "terminated": {"exitCode": 0}}
    containers = [
        {"name": c["name"], "image": c["image"], "imageID": "", "ready": runs, "restartCount": 0, "state": state}
        for c in pod["spec"]["containers"]
    ]
    ready = [{"type": kind, "status": "True" if runs else "False"} for kind in ("Ready", "ContainersReady")]
    return {"phase": phase, "conditions": ready, "containerStatuses": containers}
