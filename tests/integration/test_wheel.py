"""The wheel that people install: all that Muster reads at run time is in it, and it works without a checkout."""

import os
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import admission

ROOT = Path(__file__).parents[2]
MAN = f"muster_admission-{admission.__version__}.data/data/share/man/man1/muster.1"
SHIPPED = {"migrations": "migrations", "config": "config", "manifests": "deploy/manifests"}
"""Folders inside the package, and where a checkout has them."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this checkout, built as people do."""
    folder = tmp_path_factory.mktemp("wheel")
    words = [os.environ.get("UV", "uv"), "build", "--quiet", "--wheel", "--out-dir", str(folder), str(ROOT)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [path] = folder.glob("*.whl")
    return path


@pytest.fixture
def site(wheel: Path, tmp_path: Path) -> Path:
    """A folder with what the wheel has, away from the checkout, and another project's migrations beside it."""
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (site / "migrations").mkdir()
    return site


def files(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        if path.is_file() and not {"__pycache__", "_shipped"} & set(path.parts):
            yield str(path.relative_to(folder))


def test_a_wheel_has_all_that_muster_reads_and_nothing_else(wheel: Path) -> None:
    expected = {f"admission/{name}" for name in files(ROOT / "admission")} | {MAN}
    for name, beside in SHIPPED.items():
        expected |= {f"admission/_shipped/{name}/{file}" for file in files(ROOT / beside)}

    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}

    assert found == expected
    assert {"admission/dashboard/static/muster.js", "admission/dashboard/templates/base.html"} <= found
    shipped = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert shipped["force-include"] == {beside: f"admission/_shipped/{name}" for name, beside in SHIPPED.items()}


def run(site: Path, program: str) -> str:
    """Run a program that imports the wheel's Muster, in another folder than the checkout."""
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=site, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_installed_muster_finds_its_own_files(site: Path, tmp_path: Path) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path / 'ledger.db'}"
    program = (
        "import asyncio; from admission import resources; from admission.ledger.db import migrations;"
        f"asyncio.run(migrations.migrate({url!r}));"
        "print(resources.migrations()); print(resources.config()); print(resources.manifests())"
    )

    said = run(site, program)

    shipped = site / "admission" / "_shipped"
    assert said.splitlines() == [str(shipped / name) for name in SHIPPED]


def test_an_installed_command_prints_what_to_install(site: Path) -> None:
    words = ["muster", "install", "--print", "--image", "registry.example.com/muster:0.1.0"]

    said = run(site, f"import sys; from admission.cli import main; sys.argv = {words}; main()")

    assert "name: muster-controller" in said
