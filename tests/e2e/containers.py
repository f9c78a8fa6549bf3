"""Runs what the chart's Deployments would: a process for each role, in the place of the containers of its pods.

KWOK plays the pods. The process of a role is called after one of them, and ends with it; all of them show its log, run
commands with its settings, and lead to its port. More processes would need a Service between them and the API server.
"""

import base64
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.controlplane import ControlPlane, kubelets, workloads
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

HOOKS = {"helm uninstall": "uninstall", "helm test": "smoke-test"}
"""What has the chart's hooks run → the component of their pods, whose command is run to its end."""

SECONDS_TO_START = 240.0
SECONDS_BETWEEN_LOOKS = 0.5


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
        names = {role: self._pods_of(role) for role in ROLES}
        started = []
        self._end_all_but(names)
        for role, ours in names.items():
            if ours and role not in self._running:
                started.append(self._start(role, ours[0]))
        # Controller and webhook wait for each other.
        for muster in started:
            muster.wait(within=SECONDS_TO_START)
        for role, ours in names.items():
            if ours:
                self._lend(role, ours)

    def _pods_of(self, component: str) -> list[str]:
        pods = self._client.items(f"{SYSTEM}/pods?labelSelector={COMPONENT}={component}")
        return sorted(pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"])

    def _end_all_but(self, names: Mapping[str, list[str]]) -> None:
        """End the processes of roles whose pods are not among these."""
        for role in [role for role, one in self._running.items() if one.pod not in names[role]]:
            container = self._running.pop(role)
            container.muster.end()
            self._ended.append(container.muster)

    @contextmanager
    def hook_runs(self, component: str) -> Iterator[None]:
        """Meanwhile run the command of a hook's pods where these are, and end processes whose pods are gone."""
        is_over, failures, done = threading.Event(), list[str](), set[str]()

        def end_those_without_pods() -> None:
            while not is_over.wait(SECONDS_BETWEEN_LOOKS):
                self._end_all_but({role: self._pods_of(role) for role in ROLES})

        def run_those_of_the_hook() -> None:
            while not is_over.wait(SECONDS_BETWEEN_LOOKS):
                for pod in {*self._pods_of(component)} - done:
                    done.add(pod)
                    failures.extend(self._run_to_its_end(pod))

        # The command waits for controllers to end, so somebody has to look after them while it runs.
        threads = [threading.Thread(target=loop) for loop in (end_those_without_pods, run_those_of_the_hook)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            is_over.set()
            for thread in threads:
                thread.join()
        assert not failures, failures

    def _run_to_its_end(self, pod: str) -> Iterator[str]:
        """Run a pod's command under the pod's account. Yields what it says if it fails, and has the pod done if not."""
        spec = self._client.get(f"{SYSTEM}/pods/{pod}")["spec"]
        account = f"{SYSTEM}/serviceaccounts/{spec['serviceAccountName']}"
        kubeconfig = rights.kubeconfig(self._control_plane, self._folder / f"{pod}-kubeconfig", account=account)
        words = [musters.COMMAND, *spec["containers"][0]["args"]]
        environment = {"KUBECONFIG": str(kubeconfig), "PATH": "/usr/bin:/bin", "HOME": str(self._folder)}
        ran = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
        if ran.returncode:
            yield ran.stdout + ran.stderr
        else:
            annotation = {"metadata": {"annotations": {workloads.FINISH: "true"}}}
            self._client.merge_patch(f"{SYSTEM}/pods/{pod}", annotation)

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
