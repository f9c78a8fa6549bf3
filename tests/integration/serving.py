"""`muster serve` as a process of its own, before an API server of one page that needs no Kubernetes."""

import asyncio
import base64
import os
import signal
import socket
import ssl
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import aiohttp
import yaml

from admission.webhook import path_segments
from admission.webhook.tls import ca_rotation
from admission.webhook.tls.ca_rotation import Lifetimes
from tests import tomls
from tests.controlplane.processes import FreePorts, tail
from tests.integration.kube.fake_api import FakeApi

COMMAND = str(Path(sys.executable).with_name("muster"))
USER = "system:serviceaccount:muster-system:muster"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
STARTS = 30
"""How many processes may ask who they are."""

Seen = TypeVar("Seen")


@dataclass
class Muster:
    """A running `muster serve`: its process, the folder of its settings and log, and where it listens."""

    api: FakeApi
    process: asyncio.subprocess.Process
    log: Path
    port: int
    plain_port: int

    @property
    def workers(self) -> list[int]:
        """The process ids of the further workers, in the order of their starts."""
        pid = self.process.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    @property
    def words(self) -> str:
        return tail(self.log, 1000)

    def entries(self) -> dict[str, bytes]:
        """Return what the Secret has."""
        secret = self.api.objects["/api/v1/secrets"]["muster-system/muster-webhook"]
        return {key: base64.b64decode(value) for key, value in secret["data"].items()}

    def trusted(self) -> ssl.SSLContext:
        """Trust what the API server is to trust: the authorities in the Secret."""
        return ssl.create_default_context(cadata=self.entries()["ca.crt"].decode())

    async def get(self, path: str, *, shared: bool = False) -> tuple[int, str]:
        """Look at a page over plain HTTP; shared: over TLS, at whichever process the system chooses."""
        address = f"https://127.0.0.1:{self.port}" if shared else f"http://127.0.0.1:{self.plain_port}"
        connector = aiohttp.TCPConnector(ssl=self.trusted()) if shared else aiohttp.TCPConnector()
        async with aiohttp.ClientSession(connector=connector) as session, session.get(address + path) as response:
            return response.status, await response.text()

    def path(self, endpoint: str) -> str:
        """Return the path at which the API server is to call an endpoint."""
        hooks = self.api.objects[MUTATING].get("muster", {}).get("webhooks", ())
        paths = [urlsplit(hook["clientConfig"]["url"]).path for hook in hooks]
        return next((path for path in paths if path.endswith(f"/{endpoint}")), f"/{endpoint}")

    async def registered(self) -> bool:
        """Whether the webhook configurations are written."""
        return "muster" in self.api.objects[MUTATING]

    async def review(self, body: dict[str, Any], path: str | None = None) -> int:
        """Have a pod judged over a connection of its own; return the HTTP status. path: None: the registered one."""
        connector = aiohttp.TCPConnector(ssl=self.trusted())
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.post(f"https://127.0.0.1:{self.port}{path or self.path('mutate')}", json=body) as response,
        ):
            await response.read()
            return response.status

    async def counted(self, name: str, **labels: str) -> float:
        """Add up the samples of a metric that have these labels, on the page for Prometheus."""
        _, page = await self.get("/metrics")
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        lines = [line for line in page.splitlines() if line.partition("{")[0].partition(" ")[0] == name]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if all(label in line for label in wanted))

    async def is_ready(self) -> bool:
        assert self.process.returncode is None, self.words
        try:
            return (await self.get("/readyz"))[0] == 200
        except aiohttp.ClientConnectionError:
            return False


@asynccontextmanager
async def muster(
    folder: Path,
    *,
    roles: Sequence[str] = ("webhook",),
    ledger: Mapping[str, str] | None = None,
    user: str | None = None,
    authorities: bool = True,
    registered: dict[str, Any] | None = None,
    **settings: Any,
) -> AsyncIterator[Muster]:
    """Start it, and end it hard if it still runs.

    user: whom the settings name as the controller. authorities: whether a controller has made them before. registered:
    the MutatingWebhookConfiguration that an earlier one has left. settings: those of its webhook.
    """
    api = FakeApi()
    await api.start()
    for crd in ("claimpolicies", "gangs", "meters", "nodeshapes", "queues"):
        established = {"conditions": [{"type": "Established", "status": "True"}]}
        api.put(CRDS, {"metadata": {"name": f"{crd}.muster.dev"}, "status": established})
    if registered is not None:
        api.put(MUTATING, registered)
    api.objects[""]["version"] = {"major": "1", "minor": "37"}
    api.objects["/api/v1/namespaces"]["muster-system"] = {"metadata": {"name": "muster-system"}}
    if authorities:
        make_authorities(api)
    for _ in range(STARTS):
        review = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        api.answer("POST", review, 201, {"status": {"userInfo": {"username": USER}}})
    with FreePorts() as ports:
        port, plain_port = ports.pick(), ports.pick()
    others: dict[str, Any] = {"roles": list(roles), "ledger": ledger or {}}
    if user is not None:
        others["controller"] = {"user": user}
    config = _written(folder, api, plain_port, {"port": port, **settings}, others)
    log = folder / "muster.log"
    with log.open("wb") as output:
        command = (COMMAND, "serve", "--config", str(config))
        process = await asyncio.create_subprocess_exec(*command, stdout=output, stderr=output)
    try:
        yield Muster(api, process, log, port, plain_port)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await api.stop()


def make_authorities(api: FakeApi) -> None:
    """Write the Secret that a controller writes first of all, with authorities and a segment for the paths."""
    now = datetime.now(UTC)
    made = {
        **ca_rotation.encode(ca_rotation.rotate((), Lifetimes(), now=now)),
        **path_segments.encode(path_segments.rotate((), Lifetimes(), now=now)),
    }
    api.put("/api/v1/secrets", secret(made))


def secret(entries: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the webhook's Secret with these entries."""
    data = {name: base64.b64encode(text).decode() for name, text in entries.items()}
    return {"metadata": {"name": "muster-webhook", "namespace": "muster-system"}, "data": data}


def _written(folder: Path, api: FakeApi, plain_port: int, webhook: dict[str, Any], others: dict[str, Any]) -> Path:
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": api.url}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (folder / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    own = {
        "install_crds": "controller" in others["roles"],
        "kubeconfig": str(folder / "kubeconfig"),
        "log_format": "text",
        "metrics": {"port": plain_port},
        "webhook": {"register": False, **webhook},
        **others,
    }
    path = folder / "muster.toml"
    path.write_text(tomls.dumped(own))
    return path


async def eventually(look: Callable[[], Awaitable[Seen]], *, what: str, within: float = 60.0) -> Seen:
    """Look until something true is seen, and return it; fail once `within` seconds are over."""
    deadline = time.monotonic() + within
    while not (seen := await look()):
        assert time.monotonic() < deadline, f"{what}: not seen within {within:g} s; last seen: {seen!r}"
        await asyncio.sleep(0.05)
    return seen


def is_gone(pid: int) -> bool:
    """Whether a process has ended; nobody may have asked for its exit code yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def kill(pid: int) -> None:
    """End a process the way machines fail."""
    os.kill(pid, signal.SIGKILL)


def is_heard(port: int) -> bool:
    """Whether anybody listens there."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
