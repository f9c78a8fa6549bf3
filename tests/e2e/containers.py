"""Runs what the chart's Deployments would: a process for each role, in the place of the containers of its pods.

KWOK plays the pods. The process of a role is called after one of them, and ends with it; all of them show its log, run
commands with its settings, and lead to its port. More processes would need a Service between them and the API server.
"""

import base64
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.controlplane import ControlPlane, kubelets
from tests.controlplane.kubelets import Loan
from tests.controlplane.processes import FreePorts
from tests.e2e import musters, rights
from tests.e2e.musters import Muster

SYSTEM = f"/api/v1/namespaces/{rights.NAMESPACE}"
HOST = "127.0.0.1"
COMPONENT = "app.kubernetes.io/component"
ROLES = (*musters.ROLES, "dashboard")
METRICS, PAGES = 9090, 8080
"""The ports of the chart's containers that have /metrics and /readyz, and the dashboard's pages."""

DASHBOARD = f"{SYSTEM}/serviceaccounts/muster-dashboard"

SECONDS_TO_START = 240.0


@dataclass(slots=True, kw_only=True)
class Container:
    """The process of a role. pod: whom it is called after. ports: where its own are. lent: pods that show it."""

    muster: Muster
    pod: str
    ports: dict[int, int]
    lent: set[str] = field(default_factory=set)


class Containers:
    """What runs in Muster's pods. books: the ledger's URL while the Secret has the one that stands in pages."""

    def __init__(self, control_plane: ControlPlane, folder: Path, *, books: str) -> None:
        self._control_plane = control_plane
        self._client = control_plane.client()
        self._folder = folder
        self._books = books
        with FreePorts() as free:
            self._webhook = free.pick()
        self._running: dict[str, Container] = {}
        self._ended: list[Muster] = []

    @property
    def musters(self) -> list[Muster]:
        """All that have run, those that run last."""
        return [*self._ended, *(container.muster for container in self._running.values())]

    def catch_up(self) -> None:
        """End processes whose pods are gone, start those that shall run and wait until they do, and show their logs."""
        pods = [pod["metadata"] for pod in self._client.items(f"{SYSTEM}/pods")]
        pods = [pod for pod in pods if "deletionTimestamp" not in pod]
        names = {
            role: sorted(pod["name"] for pod in pods if pod.get("labels", {}).get(COMPONENT) == role) for role in ROLES
        }
        started = []
        for role, ours in names.items():
            if role in self._running and self._running[role].pod not in ours:
                container = self._running.pop(role)
                container.muster.end()
                self._ended.append(container.muster)
            if ours and role not in self._running:
                started.append(self._start(role, ours[0]))
        # Controller and webhook wait for each other.
        for muster in started:
            muster.wait(within=SECONDS_TO_START)
        for role, ours in names.items():
            if ours:
                self._lend(role, ours)

    def _start(self, role: str, pod: str) -> Muster:
        with FreePorts() as free:
            ports = {METRICS: free.pick(), PAGES: free.pick()}
        settings = self._shown(ports) if role == "dashboard" else self._chosen(role, ports)
        muster = Muster(self._control_plane, database=self._url(), granting=False, **settings)
        muster.words = (sys.executable, "-m", "tests.e2e.naming", pod)
        self._running[role] = Container(muster=muster, pod=pod, ports=ports)
        muster.launch()
        return muster

    def _lend(self, role: str, pods: list[str]) -> None:
        container = self._running[role]
        muster = container.muster
        log = self._folder / f"{role}.log"
        log.write_text(kubelets.logged(muster.log, at=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"))
        variables = {
            "MUSTER_CONFIG": str(muster.config),
            "MUSTER_ROLES": role,
            "MUSTER_LEDGER_URL": muster.database,
            # In the place of the account's token, which is a file in every pod.
            "KUBECONFIG": str(muster.kubeconfig),
        }
        for pod in set(pods) - container.lent:
            loan = Loan(log=log, environment={**variables, "HOSTNAME": pod}, ports=container.ports)
            kubelets.lend(self._client, rights.NAMESPACE, pod, loan)
            container.lent.add(pod)

    def _chosen(self, role: str, ports: Mapping[int, int]) -> dict[str, Any]:
        """The settings of the chart, but for where they cannot hold beside the API server."""
        written = self._written("muster")
        here = {
            **self._here(role, ports, account=rights.account_of([role])),
            "webhook": {**written["webhook"], "host": HOST, "port": self._webhook, "service": None, "linger": 0},
            "lease": {**written["lease"], **musters.SETTINGS["lease"]},
        }
        return {**written, **here}

    def _shown(self, ports: Mapping[int, int]) -> dict[str, Any]:
        """The same for the dashboard."""
        written = self._written("muster-dashboard-settings")
        here = self._here("dashboard", ports, account=DASHBOARD)
        return {**written, **here, "dashboard": {**written["dashboard"], "port": ports[PAGES]}}

    def _here(self, role: str, ports: Mapping[int, int], *, account: str) -> dict[str, Any]:
        path = self._folder / f"{role}-kubeconfig"
        return {
            "kubeconfig": str(rights.kubeconfig(self._control_plane, path, account=account)),
            "log_format": "text",
            "roles": [role],
            "metrics": {"host": HOST, "port": ports[METRICS]},
        }

    def _written(self, name: str) -> dict[str, Any]:
        """The settings in a ConfigMap of the chart."""
        return tomllib.loads(self._client.get(f"{SYSTEM}/configmaps/{name}")["data"]["muster.toml"])

    def _url(self) -> str:
        """The database that the Secret names."""
        encoded = self._client.get(f"{SYSTEM}/secrets/muster-ledger")["data"]["url"]
        named = base64.b64decode(encoded).decode()
        return self._books if "example.com" in named else named
