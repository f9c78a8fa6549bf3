"""Muster as a cluster has it: two controllers and three webhooks, each a process with lines of its own to the others.

What the chart's Deployments would see to, the test does: who ended is started again by whoever ended it.
"""

import asyncio
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from admission.webhook.tls import certificate
from tests.controlplane import ControlPlane
from tests.controlplane.observing import eventually
from tests.controlplane.processes import FreePorts
from tests.e2e import musters, rights, wires
from tests.e2e.musters import Muster
from tests.e2e.wires import Endpoint, Line, Network, Service

CONTROLLERS, WEBHOOKS = 2, 3
LEASE = "/apis/coordination.k8s.io/v1/namespaces/muster-system/leases/muster-controller"
SECONDS_TO_READY = 120.0
"""On a busy machine."""

YEAR = timedelta(days=365)

NOWHERE = "postgresql://muster@127.0.0.1:1/muster"
"""The webhooks' ledger: they have none."""


@dataclass(slots=True, kw_only=True)
class Replica:
    """One process. cluster, books: its lines to the API server and to PostgreSQL; plain: where its probes are."""

    muster: Muster
    cluster: Line
    plain: int
    settings: dict[str, Any]
    books: Line | None = None
    settings_before: dict[str, Any] | None = None
    """What an earlier release knows of them, whose webhook wrote under the controller's account."""

    @property
    def pid(self) -> int:
        return self.muster.program.pid

    @property
    def ready(self) -> bool:
        try:
            return asyncio.run(asyncio.wait_for(wires.asked(self.plain), 2.0))
        except OSError:
            return False

    def use(self, books: str, **settings: Any) -> None:
        """Have its next start use another database of the same server, and other settings."""
        self.muster.database = self.muster.database.rpartition("/")[0] + "/" + books.rpartition("/")[2]
        self.muster.configure(**{**self.settings, **settings})

    def become(self, words: Sequence[str], *, earlier: bool = False) -> None:
        """Have its next start run a release. earlier: one that knew one account and fewer settings."""
        self.muster.words = words
        chosen = self.settings_before if earlier and self.settings_before is not None else self.settings
        kubeconfig = Path(chosen["kubeconfig"])
        self.muster.kubeconfig = kubeconfig
        self.muster.configure(**chosen)

    def kill(self) -> None:
        self.muster.end(hard=True)

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def restart(self) -> None:
        """Start it, whether it has ended by itself or was killed, and wait until it is ready."""
        self.muster.end()
        self.muster.launch()
        self.wait_ready()

    def wait_ready(self) -> None:
        eventually(lambda: self.ready or self.muster.program.ended, what="it is ready", within=SECONDS_TO_READY)
        assert not self.muster.program.ended, self.muster.log[-4000:]


@dataclass(slots=True, kw_only=True)
class Replicas:
    """All of them, and the files of the webhooks' certificates, which others than Muster keep fresh."""

    control_plane: ControlPlane
    controllers: list[Replica]
    webhooks: list[Replica]
    service: Service
    certificates: "Certificates"

    @property
    def all(self) -> Sequence[Replica]:
        return [*self.controllers, *self.webhooks]

    @property
    def leader(self) -> Replica:
        """The controller that holds the lease."""
        return eventually(self._leader, what="somebody leads")

    def _leader(self) -> Replica | None:
        lease = self.control_plane.client().find(LEASE) or {"spec": {}}
        holder = str(lease["spec"].get("holderIdentity") or "")
        return next((one for one in self.controllers if f"_{one.pid}_" in holder), None)

    @property
    def transitions(self) -> int:
        """How often the lease changed hands."""
        return int(self.control_plane.client().get(LEASE)["spec"].get("leaseTransitions", 0))

    @property
    def standby(self) -> Replica:
        leader = self.leader
        return next(one for one in self.controllers if one is not leader)

    def wait_ready(self) -> None:
        """Wait until all are, and the Service knows it."""
        for one in self.all:
            one.wait_ready()
        eventually(lambda: self.service.ready == len(self.webhooks), what="the Service has all webhooks")

    def clean(self) -> None:
        for one in self.all:
            one.kill()
        for one in self.all:
            one.muster.clean()

    @property
    def logs(self) -> str:
        return "".join(one.muster.logs for one in self.all)


@dataclass(frozen=True, slots=True)
class Certificates:
    """The files that each webhook reads its certificate from, and the authority that signs them."""

    folder: Path
    authority: certificate.Authority

    @classmethod
    def made(cls, folder: Path) -> "Certificates":
        made = cls(folder, certificate.authority(now=datetime.now(UTC), validity=YEAR))
        (folder / "ca.crt").write_bytes(made.authority.certificate)
        for number in range(WEBHOOKS):
            made.renew(number)
        return made

    def renew(self, number: int, *, seconds: float = YEAR.total_seconds()) -> None:
        """Write a certificate for one of the webhooks that lasts so long."""
        leaf = certificate.issue(
            self.authority, ["127.0.0.1"], now=datetime.now(UTC), validity=timedelta(seconds=seconds)
        )
        for name, content in {"crt": leaf.certificate, "key": leaf.key}.items():
            path = self.folder / f"{number}.{name}"
            path.touch(mode=0o600)
            path.write_bytes(content)

    def settings(self, number: int) -> dict[str, str]:
        files = {"certificate": f"{number}.crt", "key": f"{number}.key", "authority": "ca.crt"}
        return {setting: str(self.folder / file) for setting, file in files.items()}


def made(control_plane: ControlPlane, network: Network, books: str, folder: Path) -> Replicas:
    """Make all of them, and start none. books: the URL of an empty database in PostgreSQL."""
    before, _, rest = books.rpartition("127.0.0.1:")
    books_port, _, database = rest.partition("/")
    server = int(control_plane.server.rpartition(":")[2])
    with FreePorts() as ports:
        free = [ports.pick() for _ in range(CONTROLLERS + 2 * WEBHOOKS)]
    shown = Certificates.made(folder)
    rights.grant(control_plane)

    places = [(free.pop(), free.pop()) for _ in range(WEBHOOKS)]
    service = network.service([Endpoint(port=port, plain=plain) for port, plain in places])
    url = f"https://127.0.0.1:{service.port}"
    known = {**musters.SETTINGS["controller"], "user": rights.USER}

    controllers = []
    for _ in range(CONTROLLERS):
        cluster, ledger, plain = network.line(server), network.line(int(books_port)), free.pop()
        own: dict[str, Any] = {"kubeconfig": _kubeconfig(control_plane, cluster, folder), "metrics": {"port": plain}}
        own["roles"] = ["controller"]
        own["controller"] = known
        # Of the files of certificates a controller reads the authority alone.
        own["webhook"] = {"url": url, **shown.settings(0)}
        muster = Muster(control_plane, database=f"{before}127.0.0.1:{ledger.port}/{database}", **own)
        controllers.append(Replica(muster=muster, cluster=cluster, plain=plain, settings=own, books=ledger))

    webhooks = []
    for number, (port, plain) in enumerate(places):
        cluster = network.line(server)
        webhook: dict[str, Any] = {"port": port, "url": url, "linger": 3.0, **shown.settings(number)}
        common = {"metrics": {"port": plain}, "roles": ["webhook"], "webhook": webhook}
        earlier = {**common, "kubeconfig": _kubeconfig(control_plane, cluster, folder)}
        own = {**common, "kubeconfig": _kubeconfig(control_plane, cluster, folder, account=rights.WEBHOOK)}
        own["controller"] = known
        muster = Muster(control_plane, database=NOWHERE, **own)
        webhooks.append(Replica(muster=muster, cluster=cluster, plain=plain, settings=own, settings_before=earlier))
    return Replicas(
        control_plane=control_plane, controllers=controllers, webhooks=webhooks, service=service, certificates=shown
    )


def _kubeconfig(control_plane: ControlPlane, line: Line, folder: Path, *, account: str = rights.ACCOUNT) -> str:
    """Write one that leads over a line, and return its path."""
    path = folder / f"{account.rpartition('/')[2]}-{line.port}"
    return str(rights.kubeconfig(control_plane, path, server=f"https://127.0.0.1:{line.port}", account=account))
