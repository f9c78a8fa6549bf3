"""What pages tell people to type on a cluster does what they show, installed as docs/install.md says.

Nobody runs containers here. As soon as a reader has installed the chart, Muster is started beside the API server, with
the settings of the chart's ConfigMap and under the chart's account; KWOK plays the Deployments' pods.
"""

import os
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.controlplane import ControlPlane, building, fleet
from tests.docs import commanding, pages
from tests.docs.commanding import Terminal
from tests.docs.pages import Block
from tests.e2e import musters, rights
from tests.e2e.musters import Muster

FIRST = ("docs/install.md", "docs/tasks/pending.md")
"""Pages that the others take up from."""
BLOCKS = [block for block in commanding.blocks() if commanding.runs(block, offline=False)]
LAST = [block for block in BLOCKS if "last" in block.attributes]
PAGES = list(dict.fromkeys([*FIRST, *(block.page for block in BLOCKS)]))
HARDWARE = pages.ROOT / "config/examples/offline/hardware.yaml"
SYSTEM = "/api/v1/namespaces/muster-system"
CONTROLLER = "/apis/apps/v1/namespaces/muster-system/deployments/muster-controller"
SECONDS_TO_START = 240.0

pytestmark = pytest.mark.timeout(900, func_only=True)


class Reader:
    """Somebody with a terminal and a new cluster, who does what the pages say."""

    def __init__(self, control_plane: ControlPlane, folder: Path) -> None:
        self._control_plane = control_plane
        self._muster: Muster | None = None
        self._database = f"sqlite+aiosqlite:///{folder / 'ledger.sqlite3'}"
        for name in ("config", "deploy", ".venv"):
            (folder / name).symlink_to(pages.ROOT / name)
        self._terminal = Terminal(folder, self._environment(folder))

    def _environment(self, folder: Path) -> dict[str, str]:
        tools = folder / "bin"
        tools.mkdir()
        _tool(tools / "kubectl", *self._control_plane.kubectl_command)
        _tool(tools / "helm", str(building.helm()))
        environment = self._control_plane.kubectl_environment(self._control_plane.kubeconfig)
        path = f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        own = {"PATH": path, "HOME": str(folder), "LANG": "C.UTF-8", "MUSTER_LEDGER_URL": self._database}
        return {**environment, **own}

    def does(self, block: Block) -> None:
        self._terminal.run(block)
        if self._muster is None and self._control_plane.client().find(CONTROLLER):
            settings = self._settings()
            self._muster = Muster(self._control_plane, database=self._database, granting=False, **settings)
            self._muster.start(within=SECONDS_TO_START)

    def _settings(self) -> dict[str, Any]:
        """The settings of the chart, but for where they cannot hold beside the API server."""
        client = self._control_plane.client()
        written: dict[str, Any] = tomllib.loads(client.get(f"{SYSTEM}/configmaps/muster")["data"]["muster.toml"])
        kubeconfig = rights.kubeconfig(self._control_plane, self._terminal.folder / "muster-kubeconfig")
        here = {
            "kubeconfig": str(kubeconfig),
            "log_format": "text",
            "webhook": {**written["webhook"], "host": "127.0.0.1", "service": None, "linger": 0},
            "lease": {**written["lease"], **musters.SETTINGS["lease"]},
        }
        return {**written, **here}

    @property
    def muster(self) -> Muster | None:
        return self._muster


def _tool(path: Path, *words: str) -> None:
    path.write_text(f'#!/bin/sh\nexec {" ".join(words)} "$@"\n')
    path.chmod(0o755)


@pytest.fixture(scope="module")
def control_plane(kubernetes: str, options: dict[str, Any]) -> Iterator[ControlPlane]:
    """A cluster of its own: pages show all that is in it, so nobody else may have left anything."""
    with ControlPlane(kubernetes, **options) as started:
        yield started


@pytest.fixture(scope="module")
def reader(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """A cluster with the hardware of the examples, where nobody has installed anything yet."""
    known = [one for one in yaml.safe_load_all(HARDWARE.read_text()) if one["kind"] != "Node"]
    nodes = [fleet.node(name, allocatable={"cpu": "96", "memory": "1Ti"}) for name in ("node-a", "node-b")]
    fleet.install(control_plane.client(), [*nodes, *known])
    someone = Reader(control_plane, tmp_path_factory.mktemp("reader"))
    yield someone
    if someone.muster is not None:
        someone.muster.clean()


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_do_what_it_shows(page: str, reader: Reader) -> None:
    assert page == FIRST[0] or reader.muster is not None, f"{FIRST[0]} could not be followed"

    for block in BLOCKS:
        if block.page == page and block not in LAST:
            reader.does(block)


def test_the_rights_of_the_chart_were_enough(reader: Reader) -> None:
    assert reader.muster is not None
    assert "; grant " not in reader.muster.log, "a right is missing"


def test_nothing_is_left_when_muster_is_taken_away(reader: Reader, control_plane: ControlPlane) -> None:
    assert LAST
    for block in LAST:
        reader.does(block)

    assert control_plane.client().find(CONTROLLER) is None
    assert control_plane.client().find("/apis/muster.dev/v1alpha1/queues") is None
