"""Helm, for tests of the chart."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.controlplane import building
from tests.integration.chart.charts import ROOT, Helm


@pytest.fixture(scope="session")
def program() -> Path:
    """Helm, built if it is not in the cache. Without Go the test fails in CI, and else skips."""
    try:
        return building.helm()
    except building.ToolMissing as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing))
        pytest.skip(str(missing))


@pytest.fixture
def helm(program: Path, tmp_path: Path) -> Helm:
    """Run helm with some words, with folders of its own and no cluster."""
    folders = {f"HELM_{name}_HOME": str(tmp_path / name) for name in ("CACHE", "CONFIG", "DATA")}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [str(program), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=folders, cwd=ROOT)

    return run
