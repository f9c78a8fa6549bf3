"""What pages tell people to type on a cluster does what they show, installed as docs/install.md says.

Nobody runs containers here. Where the Deployments have pods, which KWOK plays, Muster is started beside the API server,
with the settings of the chart's ConfigMap and under the chart's account: module `containers`. Pages forward the ports
8080 and 9090 of this machine, so these have to be free.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.controlplane import ControlPlane, building, fleet, kubelets
from tests.docs import commanding, pages, sentences
from tests.docs.commanding import Terminal
from tests.docs.pages import Block
from tests.e2e import neighbours
from tests.e2e.containers import Containers
from tests.e2e.musters import Muster
from tests.postgres import Server, programs
from tests.postgres.serving import ROLE

FIRST = ("docs/install.md", "docs/tasks/pending.md")
"""Pages that the others take up from."""
RUNBOOK = "docs/runbook.md"
"""It ends the leader, and restores the books into another database: after the others, which read them."""
BLOCKS = [block for block in commanding.blocks() if commanding.runs(block, offline=False)]
SAID = {said.text: said for said in sentences.every() if said.tool == "kubectl" and said.complete}.values()
LAST = [block for block in BLOCKS if "last" in block.attributes]
PAGES = [*dict.fromkeys([*FIRST, *(block.page for block in BLOCKS if block.page != RUNBOOK)]), RUNBOOK]
HARDWARE = pages.ROOT / "config/examples/offline/hardware.yaml"
CONTROLLER = "/apis/apps/v1/namespaces/muster-system/deployments/muster-controller"

pytestmark = pytest.mark.timeout(900, func_only=True)


class Reader:
    """Somebody with a terminal and a new cluster, who does what the pages say."""

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
        self._terminal.run(block)
        self.containers.catch_up()

    @property
    def musters(self) -> list[Muster]:
        return self.containers.musters


def _tool(path: Path, *words: str) -> None:
    path.write_text(f'#!/bin/sh\nexec {" ".join(words)} "$@"\n')
    path.chmod(0o755)


@pytest.fixture(scope="module")
def control_plane(kubernetes: str, options: dict[str, Any]) -> Iterator[ControlPlane]:
    """A cluster of its own: pages show all that is in it, so nobody else may have left anything."""
    with ControlPlane(kubernetes, kubelets=True, **options) as started:
        yield started


@pytest.fixture(scope="module")
def reader(control_plane: ControlPlane, postgres: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """A cluster with the hardware of the examples, where nobody has installed anything yet."""
    known = [one for one in yaml.safe_load_all(HARDWARE.read_text()) if one["kind"] != "Node"]
    nodes = [fleet.node(name, allocatable={"cpu": "96", "memory": "1Ti"}) for name in ("node-a", "node-b")]
    for node in nodes:
        node["status"] |= kubelets.status(control_plane.kubelet_port)
    fleet.install(control_plane.client(), [*nodes, *known])
    someone = Reader(control_plane, tmp_path_factory.mktemp("reader"), postgres)
    with ExitStack() as stack:
        stack.enter_context(neighbours.known(control_plane))
        yield someone
        for muster in someone.musters:
            stack.callback(muster.clean)


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_do_what_it_shows(page: str, reader: Reader) -> None:
    assert page == FIRST[0] or reader.musters, f"{FIRST[0]} could not be followed"

    for block in BLOCKS:
        if block.page == page and block not in LAST:
            reader.does(block)


def test_what_stands_in_sentences_can_be_typed(reader: Reader) -> None:
    for said in SAID:
        reader.does(Block(page=said.page, line=0, language="shell", text=said.text))


def test_the_rights_of_the_chart_were_enough(reader: Reader) -> None:
    assert reader.musters
    assert all("; grant " not in muster.logs for muster in reader.musters), "a right is missing"


def test_nothing_is_left_when_muster_is_taken_away(reader: Reader, control_plane: ControlPlane) -> None:
    assert LAST
    for block in LAST:
        reader.does(block)

    assert control_plane.client().find(CONTROLLER) is None
    assert control_plane.client().find("/apis/muster.dev/v1alpha1/queues") is None
