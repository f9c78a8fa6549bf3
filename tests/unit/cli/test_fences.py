"""`muster fence`: what stands, and how it is taken away."""

import json
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Self

import pytest
from typer.testing import CliRunner

from admission import cli
from admission.cli import cluster_options
from admission.kube import fence_controller
from admission.kube.fence_controller import ClusterFences

GPU = "gpu.example.com"


@pytest.fixture
def lifted(monkeypatch: pytest.MonkeyPatch) -> list[Collection[str]]:
    """A cluster with one fence; return what is asked to be lifted."""
    asked: list[Collection[str]] = []

    class Connection:
        async def __aenter__(self) -> Self:
            return self

        async def __aexit__(self, *_: object) -> None: ...

    async def standing(_connection: object) -> ClusterFences:
        return ClusterFences([(GPU, datetime(2026, 11, 21, 12, tzinfo=UTC))], ["muster-fence"])

    async def lift(_connection: object, drivers: Collection[str]) -> list[str]:
        asked.append(drivers)
        return [f"DeviceTaintRule muster-fence-{GPU}"] if not drivers or GPU in drivers else []

    monkeypatch.setattr(cluster_options, "Connection", lambda *_, **__: Connection())
    monkeypatch.setattr(fence_controller, "cluster_fences", standing)
    monkeypatch.setattr(fence_controller, "lift", lift)
    return asked


def run(*words: str) -> str:
    result = CliRunner().invoke(cli.app, ["fence", *words])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.usefixtures("lifted")
def test_the_fences_of_the_cluster_are_listed() -> None:
    assert json.loads(run("list", "--format", "json")) == {
        "fences": [{"driver": GPU, "since": "2026-11-21T12:00:00Z"}],
        "policies": ["muster-fence"],
    }
    assert f"{GPU}  2026-11-21 12:00:00Z" in run("list")


def test_all_fences_or_those_of_some_drivers_are_lifted(lifted: list[Collection[str]]) -> None:
    assert f"removed DeviceTaintRule muster-fence-{GPU}" in run("lift")
    assert "no such fence stands" in run("lift", "nic.example.com")
    assert json.loads(run("lift", GPU, "--format", "json")) == {"removed": [f"DeviceTaintRule muster-fence-{GPU}"]}
    assert [list(drivers) for drivers in lifted] == [[], ["nic.example.com"], [GPU]]
