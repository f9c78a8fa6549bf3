"""Builds the oracles of a Kubernetes that has no folder here: a release on its first day, or one that is to come.

Its Go module is that of the newest folder with other versions in go.mod, without the programs of a control plane, and
stands in the cache. Where the new Kubernetes has another API than `release.go` expects, the build fails and names the
line: then it is time for a folder of its own (README.md).
"""

import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.controlplane import building
from tests.controlplane.building import BuildFailed

KUBERNETES = "k8s.io/kubernetes"
PROGRAMS = "programs.go"
"""The file that is left out, with all that it requires: of an alpha not every module is published."""

_VERSION = re.compile(r"v1\.(\d+\.\d+(?:-[\w.]+)?)")
_STAGED = re.compile(r"^\s*(\S+) => \./staging/", re.MULTILINE)
_GO = re.compile(r"^(?:go|godebug) .*$", re.MULTILINE)


def build(version: str) -> Path:
    """Return the program with the oracles of a version such as `v1.38.0-alpha.0`, building it if nobody has.

    Raises ValueError for what is no version, BuildFailed where a module is not published or does not compile.
    """
    if _VERSION.fullmatch(version) is None:
        msg = f"{version} is no version of Kubernetes: write it as v1.38.0 or v1.38.0-alpha.0"
        raise ValueError(msg)
    module = building.cache_folder() / f"k8s-{version}"
    if not module.exists():
        module.parent.mkdir(parents=True, exist_ok=True)
        _write(module, version)
    return building.cached(module, package=".", name="controlplane", ldflags=building.version_flags(module))


def go_mod(version: str, theirs: str) -> str:
    """Return the go.mod for a version of Kubernetes. theirs: the text of its own."""
    found = _VERSION.fullmatch(version)
    assert found is not None
    staging = f"v0.{found[1]}"
    replaced = [f"\t{name} => {name} {staging}" for name in _STAGED.findall(theirs)]
    head = [f"module github.com/muster-dev/muster/tests/controlplane/k8s-{version}", *_GO.findall(theirs)]
    return "\n".join([*head, f"require {KUBERNETES} {version}", "replace (", *replaced, ")", ""])


def _newest() -> Path:
    return building.HERE / f"k8s-{building.DEFAULT_VERSION}"


def _write(module: Path, version: str) -> None:
    """Write the module beside its folder and rename: a folder that exists is complete."""
    theirs = json.loads(_go("mod", "download", "-json", f"{KUBERNETES}@{version}", cwd=_newest()))
    made = Path(tempfile.mkdtemp(prefix=f"{module.name}.", dir=module.parent))
    try:
        for path in _newest().glob("*.go"):
            if path.name != PROGRAMS:
                shutil.copy(path, made)
        (made / "go.mod").write_text(go_mod(version, Path(theirs["GoMod"]).read_text()))
        _go("mod", "tidy", cwd=made)
        made.rename(module)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _go(*words: str, cwd: Path) -> str:
    done = subprocess.run(
        ["go", *words], cwd=cwd, capture_output=True, text=True, check=False, env=building.go_environment(cwd)
    )
    if done.returncode:
        msg = f"go {' '.join(words)} ended with {done.returncode}:\n{(done.stderr or done.stdout)[-2000:]}"
        raise BuildFailed(msg)
    return done.stdout
