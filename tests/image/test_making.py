"""What deploy/Dockerfile makes of a checkout in which somebody has worked: Muster, what it needs, and nothing else."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import Marker
from packaging.utils import canonicalize_name

from admission import __version__
from tests.image import building
from tests.image.building import ROOT
from tests.image.engines import Engine, run
from tests.image.trees import Entry, Tree

MUSTER = "opt/muster"
PACKAGES = f"{MUSTER}/lib/python3.11/site-packages"
STANDARD = f"{building.PYTHON}/"[1:]
SENT = ("LICENSE", "README.md", "admission", "config", "deploy/manifests", "docs/reference/muster.1", "migrations")
UNCHECKED = 1
"""Of the flags in a .pyc: it holds by the hash of its source, which nobody compares (PEP 552)."""


def test_what_is_sent_to_the_builder_is_what_git_knows_of_what_is_copied(
    engine: Engine, context: Path, tmp_path: Path
) -> None:
    all_of_it = tmp_path / "Dockerfile"
    all_of_it.write_text("FROM scratch\nCOPY . /\n")
    shutil.copy(ROOT / "deploy/Dockerfile.dockerignore", tmp_path)
    engine.podman("build", "--isolation=chroot", "--file", str(all_of_it), "--tag=localhost/context", str(context))

    sent = Tree.of(engine, "localhost/context")

    pinned = ("pyproject.toml", "uv.lock", "deploy/build-tools.txt")
    known = run("git", "-C", str(ROOT), "ls-files", *pinned, *SENT).stdout.split()
    assert {path for path, entry in sent.entries.items() if entry.content} == {*known}


def test_no_secret_beside_the_sources_gets_into_the_image(tree: Tree) -> None:
    secret = building.SECRET.encode()
    files = [tree.folder / path for path in tree.below(MUSTER)]

    assert [path for path in files if path.is_file() and secret in path.read_bytes()] == []


def test_every_file_belongs_to_a_part(tree: Tree) -> None:
    recorded = {os.path.normpath(f"{PACKAGES}/{file}") for one in _distributions(tree) for file in one.files or ()}
    files = {path for path, entry in tree.below(f"{MUSTER}/lib").items() if entry.content}

    assert {path for path in files - recorded if not path.endswith(".pyc")} == set()
    assert recorded - set(tree.entries) == set()


def test_beside_muster_only_the_standard_library_has_changed_and_it_is_compiled(tree: Tree, base: Tree) -> None:
    others = {path for path in tree.entries if path != MUSTER and not path.startswith(f"{MUSTER}/")}
    added = {path for path in others - set(base.entries) if not path.endswith("/__pycache__")}
    changed = {path for path, entry in base.entries.items() if tree.entries.get(path) != entry}

    assert {path for path in added if not (path.startswith(STANDARD) and path.endswith(".pyc"))} == set()
    assert {f"{STANDARD}{name}.cpython-311.pyc" for name in ("asyncio/__pycache__/tasks", "__pycache__/ssl")} <= added
    assert {flags(tree, path) for path in added} == {UNCHECKED}
    assert changed == set()


def test_whoever_runs_it_may_read_all_of_it_and_change_nothing(tree: Tree) -> None:
    def wrong(entry: Entry) -> bool:
        readable = entry.mode & 0o444 == 0o444
        return entry.owner != (0, 0) or not readable or (entry.mode & 0o022 != 0 and entry.content[:2] != "->")

    assert {path: entry for path, entry in tree.below(MUSTER).items() if wrong(entry)} == {}


def test_the_image_says_how_it_is_run(engine: Engine, image: str) -> None:
    [found] = json.loads(engine.podman("image", "inspect", image))
    config = found["Config"]

    assert config["User"] == "65532:65532"
    assert config["Entrypoint"] == ["muster"]
    assert config["Cmd"] == ["serve"]
    assert config["WorkingDir"] == "/tmp"  # noqa: S108
    variables = dict(variable.split("=", 1) for variable in config["Env"])
    assert {**building.ENVIRONMENT, **variables} == variables | {"PATH": variables["PATH"]}
    assert variables.keys() - building.ENVIRONMENT.keys() == {"HOME", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"}
    assert set(config["ExposedPorts"]) == {"9443/tcp", "9090/tcp"}


def test_every_module_is_compiled_and_none_is_looked_at_again(tree: Tree) -> None:
    """The root is read-only: what is not compiled now would be whenever a process starts."""
    sources = {path for path in tree.below(f"{PACKAGES}/admission") if path.endswith(".py")}
    compiled = {path: entry for path, entry in tree.below(MUSTER).items() if path.endswith(".pyc")}

    def cache(source: str) -> str:
        folder, _, name = source.rpartition("/")
        return f"{folder}/__pycache__/{name.removesuffix('.py')}.cpython-311.pyc"

    # Scripts of migrations are loaded by alembic, by their path.
    assert {path for path in sources if cache(path) not in compiled} == set()
    assert {path for path in compiled if flags(tree, path) != UNCHECKED} == set()


def flags(tree: Tree, path: str) -> int:
    """Return what a .pyc says of itself."""
    return int.from_bytes((tree.folder / path).read_bytes()[4:8], "little")


def test_two_builds_from_checkouts_of_different_people_are_equal(
    engine: Engine, tree: Tree, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """One of them lets nobody else read files, and has made them at another time."""
    other = building.checkout(tmp_path_factory.mktemp("other"))
    for path in (other, *other.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
        os.utime(path, (1_700_000_000, 1_700_000_000))

    again = Tree.of(engine, building.build(engine, other, "again"))

    first, second = tree.below(MUSTER), again.below(MUSTER)
    differing = {path for path in first.keys() | second.keys() if first.get(path) != second.get(path)}
    assert differing == set()


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The list of parts that `make sbom` writes."""
    path = tmp_path_factory.mktemp("sbom") / "muster.cdx.json"
    words = ["make", "--no-print-directory", "sbom", f"SBOM={path}"]
    subprocess.run(words, cwd=ROOT, capture_output=True, check=True, env=os.environ)
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_the_list_of_parts_names_what_is_in_it(tree: Tree, parts: dict[str, Any]) -> None:
    listed = {(part["name"], part["version"]) for part in parts["components"] if _is_for_linux(part)}
    itself = parts["metadata"]["component"]["name"]

    found = {(canonicalize_name(one.name), one.version) for one in _distributions(tree)}

    assert {part for part in found if part[0] != itself} == listed
    assert [version for name, version in found if name == itself] == [__version__]


def _is_for_linux(part: Any) -> bool:
    """Say whether what a part is needed for holds here; the list names what any platform needs."""
    markers = [one["value"] for one in part.get("properties", ()) if one["name"] == "uv:package:marker"]
    here = {"python_version": "3.11", "python_full_version": "3.11.2", "sys_platform": "linux"}
    return all(Marker(marker).evaluate(here) for marker in markers)


def _distributions(tree: Tree) -> Iterator[Distribution]:
    yield from Distribution.discover(path=[str(tree.folder / PACKAGES)])
