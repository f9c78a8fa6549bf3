"""Somebody with a terminal and a new cluster, who does what the pages say.

Nobody runs containers here. Where the Deployments have pods, which KWOK plays, Muster is started beside the API server,
with the settings of the chart's ConfigMap and under the chart's account: module `containers`.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

import yaml

from tests.controlplane import ControlPlane, building, fleet, kubelets
from tests.docs import pages
from tests.docs.commanding import Terminal
from tests.docs.pages import Block
from tests.e2e import neighbours
from tests.e2e.containers import HOOKS, Containers
from tests.e2e.musters import Muster
from tests.postgres import Server, programs
from tests.postgres.serving import ROLE

HARDWARE = pages.ROOT / "config/examples/offline/hardware.yaml"


class Reader:
    """One whose cluster is of its own: pages show all that is in it."""

    def __init__(self, control_plane: ControlPlane, folder: Path, postgres: Server) -> None:
        self._control_plane = control_plane
        self._postgres = postgres
        self._database = postgres.database()
        for name in ("config", "deploy", ".venv"):
            (folder / name).symlink_to(pages.ROOT / name)
        self._terminal = Terminal(folder, self._environment(folder))
        self.containers = Containers(control_plane, folder, books=self._database)

    def _environment(self, folder: Path) -> dict[str, str]:
        tools = folder / "bin"
        tools.mkdir()
        _tool(tools / "kubectl", *self._control_plane.kubectl_command)
        _tool(tools / "helm", str(building.helm()))
        environment = self._control_plane.kubectl_environment(self._control_plane.kubeconfig)
        path = f"{tools}:{Path(sys.executable).parent}:{programs.folder()}:{os.environ['PATH']}"
        own = {"PATH": path, "HOME": str(folder), "LANG": "C.UTF-8", "MUSTER_LEDGER_URL": self._database}
        return {**environment, **own, **self._database_environment()}

    def _database_environment(self) -> dict[str, str]:
        """What docs/runbook.md names: the URLs of the books and of the restored ones; and where `createdb` asks."""
        server = self._postgres
        urls = {"URL": self._database, "NEW_URL": server.url("muster_restored")}
        return {**urls, "PGHOST": "127.0.0.1", "PGPORT": str(server.port), "PGUSER": ROLE}

    def does(self, block: Block) -> None:
        hook = next((hook for words, hook in HOOKS.items() if words in block.text), None)
        with self.containers.hook_runs(hook) if hook else nullcontext():
            self._terminal.run(block)
        self.containers.catch_up()

    @property
    def musters(self) -> list[Muster]:
        return self.containers.musters


def _tool(path: Path, *words: str) -> None:
    path.write_text(f'#!/bin/sh\nexec {" ".join(words)} "$@"\n')
    path.chmod(0o755)


@contextmanager
def reading(control_plane: ControlPlane, folder: Path, postgres: Server) -> Iterator[Reader]:
    """Give a cluster the hardware of the examples, where nobody has installed anything yet, and somebody who reads."""
    known = [one for one in yaml.safe_load_all(HARDWARE.read_text()) if one["kind"] != "Node"]
    nodes = [fleet.node(name, allocatable={"cpu": "96", "memory": "1Ti"}) for name in ("node-a", "node-b")]
    for node in nodes:
        node["status"] |= kubelets.status(control_plane.kubelet_port)
    fleet.install(control_plane.client(), [*nodes, *known])
    someone = Reader(control_plane, folder, postgres)
    with ExitStack() as stack:
        stack.enter_context(neighbours.known(control_plane))
        try:
            yield someone
        finally:
            for muster in someone.musters:
                stack.callback(muster.clean)
