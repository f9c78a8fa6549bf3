"""What Muster adds to the creation of a pod through a real API server: the same pods with it and without.

Fifty clients create pods at a steady pace, each over a connection of its own and no faster than it is answered, in a
namespace with a queue and in one that Muster does not see; rounds alternate in one run on one control plane. Pods carry
a gate of somebody else's, so that no scheduler looks at them; those of a round are deleted before the next begins.
Webhook and controller are processes of their own, as the chart deploys them, or one, as `muster serve` has it by
default: then cycles and what they write compete with answers in one process. They compete for the cores either way, and
so does the API server with what the controller asks of it. A third row stops the controller (SIGSTOP) during rounds:
what the way through the webhook costs by itself. The fourth has a webhook that lets everything pass: what any costs.
"""

import asyncio
import base64
import json
import os
import random
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from itertools import count
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

import uvloop
from rich.table import Table

from tests.bench import webhook
from tests.bench.admission import WAYS, namespace_of, running_muster
from tests.bench.serving import ENDPOINTS, HOST
from tests.controlplane import ControlPlane, fleet, workloads
from tests.controlplane.clients import Client
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.e2e.musters import Muster

CLIENTS = 50
GOAL_MS = 5.0
REGISTRATIONS = "/apis/admissionregistration.k8s.io/v1"
PARTS = (0.5, 0.9, 0.99)


@dataclass(frozen=True, slots=True)
class Setting:
    """How many processes Muster has; none: a webhook that lets everything pass.

    paused: the controller stands still during rounds.
    """

    processes: int
    paused: bool = False


SETTINGS = {
    "two processes": Setting(2),
    "one process": Setting(1),
    "webhook, the controller paused": Setting(2, paused=True),
    "a webhook that does nothing": Setting(0),
}


def measure(*, rounds: int, seconds: float, pace: float) -> dict[str, Any]:
    """Run all rounds. pace: pods a second of each client."""
    rows = {name: _measured(setting, rounds=rounds, seconds=seconds, pace=pace) for name, setting in SETTINGS.items()}
    return {"rounds": rounds, "seconds": seconds, "pace": pace, "rows": rows}


def _measured(setting: Setting, *, rounds: int, seconds: float, pace: float) -> dict[str, dict[str, float]]:
    """Return percentiles in ms by way."""
    latencies: dict[str, list[float]] = {way: [] for way in WAYS}
    with ControlPlane() as control_plane, ExitStack() as stack:
        fleet.install(control_plane.client(), fleet.demo_fleet([8]))
        ones = []
        if setting.processes:
            ones.append(stack.enter_context(running_muster(control_plane, apart=setting.processes == 2)))
            namespaces = {way: namespace_of(control_plane, way, gpus=8) for way in WAYS}
        else:
            namespaces = _asking(
                control_plane, stack.enter_context(webhook.running("allowing", workers=1, loop="uvloop"))
            )
        for number in range(rounds + 1):
            for way in WAYS if number % 2 else WAYS[::-1]:
                with _standing_still(ones if setting.paused else []):
                    found = _round(control_plane.client(), namespaces[way], seconds=seconds, pace=pace)
                if number:
                    latencies[way] += found
    return {way: {str(part): _percentile(found, part) for part in PARTS} for way, found in latencies.items()}


def _asking(control_plane: ControlPlane, server: webhook.Running) -> dict[str, Namespace]:
    """Make two namespaces without queues, and have the server asked twice about pods of the first, as Muster is."""
    client = control_plane.client()
    namespaces = {way: Namespace(name=f"bench-{way}", client=client) for way in WAYS}
    for namespace in namespaces.values():
        client.create("/api/v1/namespaces", {"metadata": {"name": namespace.name}})
    asked = {"matchLabels": {"kubernetes.io/metadata.name": namespaces["muster"].name}}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    authority = base64.b64encode(server.authority.encode()).decode()
    for kind, endpoint in zip(("Mutating", "Validating"), ENDPOINTS, strict=True):
        entry = {
            "name": f"{endpoint}.bench.example.com",
            "clientConfig": {"url": f"https://{HOST}:{server.port}/{endpoint}", "caBundle": authority},
            "namespaceSelector": asked,
            "rules": [rule],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "failurePolicy": "Fail",
        }
        path = f"{REGISTRATIONS}/{kind.lower()}webhookconfigurations"
        client.create(path, {"kind": f"{kind}WebhookConfiguration", "metadata": {"name": "bench"}, "webhooks": [entry]})
    return namespaces


@contextmanager
def _standing_still(ones: Sequence[Muster]) -> Iterator[None]:
    for one in ones:
        os.kill(one.program.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for one in ones:
            os.kill(one.program.pid, signal.SIGCONT)


def _percentile(latencies: list[float], part: float) -> float:
    return sorted(latencies)[int(len(latencies) * part)] * 1e3


def _round(client: Client, namespace: Namespace, *, seconds: float, pace: float) -> list[float]:
    found = uvloop.run(_load(client, namespace, seconds=seconds, pace=pace))
    client.delete(f"{namespace.pods}?gracePeriodSeconds=0&labelSelector=bench")
    eventually(lambda: not client.items(namespace.pods), what=f"{namespace.name} is empty again", within=300)
    return found


async def _load(client: Client, namespace: Namespace, *, seconds: float, pace: float) -> list[float]:
    numbers = count()
    end = perf_counter() + seconds
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_client(client, namespace, lambda: next(numbers), end=end, pause=1 / pace))
            for _ in range(CLIENTS)
        ]
    return [latency for task in tasks for latency in task.result()]


async def _client(
    client: Client, namespace: Namespace, number: Callable[[], int], *, end: float, pause: float
) -> list[float]:
    """Create a pod after the other until the end; the first, for which the connection is made, does not count."""
    address = urlsplit(client.server)
    reader, writer = await asyncio.open_connection(address.hostname, address.port, ssl=client.tls)
    latencies: list[float] = []
    await asyncio.sleep(random.uniform(0, pause))  # noqa: S311 - clients shall not come all at once
    while (began := perf_counter()) < end:
        writer.write(_request(client, address.netloc, namespace, number()))
        await writer.drain()
        await _answer(reader)
        latencies.append(perf_counter() - began)
        await asyncio.sleep(max(0.0, began + pause - perf_counter()))
    writer.close()
    return latencies[1:]


def _request(client: Client, host: str, namespace: Namespace, number: int) -> bytes:
    pod = workloads.pod(f"pod-{number}", gates=["bench.example.com/wait"], labels={"bench": "true"})
    body = json.dumps(pod).encode()
    head = (
        f"POST {namespace.pods} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {client.token}\r\n"
        f"Content-Type: application/json\r\nAccept: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _answer(reader: asyncio.StreamReader) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    lowered = head.lower()
    at = lowered.index(b"content-length:") + 15
    body = await reader.readexactly(int(lowered[at : lowered.index(b"\r\n", at)]))
    if int(head.split(b" ", 2)[1]) != HTTPStatus.CREATED:
        raise RuntimeError(f"a pod is not created: {head!r} {body[:500]!r}")


def table(result: dict[str, Any]) -> Table:
    """Show percentiles with Muster and without."""
    made = Table(
        title=f"A pod's creation through the API server, {CLIENTS} clients with {result['pace']:g} pods/s each,"
        f" {result['rounds']} rounds of {result['seconds']:g} s"
    )
    for column in ("webhook and controller", "ms", "with Muster", "without", "added", "goal"):
        made.add_column(column, justify="right")
    for name, ms in result["rows"].items():
        for part in map(str, PARTS):
            with_, without = (ms[way][part] for way in WAYS)
            goal = f"≤ {GOAL_MS:g}" if part == "0.99" else ""
            cells = (f"p{float(part) * 100:g}", f"{with_:.1f}", f"{without:.1f}", f"{with_ - without:.1f}", goal)
            made.add_row(name, *cells)
    return made
