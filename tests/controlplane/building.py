"""Builds the programs of a control plane, and helm, from the Go modules beside this file, once per machine.

A build takes minutes and its input is a few files, so its result is kept outside the work tree under a name made of
their digest: a clone, a second work tree and a CI cache share it, and a changed version never meets an old binary.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.controlplane.progress import Progress

HERE = Path(__file__).parent
VERSIONS = ("1.37", "1.36")
"""Those that all tests are run on."""
ON_DEMAND = ("1.35", "1.34")
"""Those that are built when somebody asks for them by name."""
DEFAULT_VERSION = VERSIONS[0]
ORACLES = ("allocate", "filters", "selectors")
PROGRAMS = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubectl", *ORACLES)
KWOK = "sigs.k8s.io/kwok/cmd/kwok"
HELM = "helm.sh/helm/v4/cmd/helm"
KARPENTER = HERE / "karpenter"


SELECTS_TOOLCHAIN = (1, 21)
"""The oldest Go that fetches a newer one from the module proxy, as it does with modules."""


class ToolMissing(Exception):  # noqa: N818 named by what happened
    """The Go toolchain is not there or too old; the message says what to install."""


class BuildFailed(Exception):  # noqa: N818
    """`go build` refused; the message ends with the last lines that it wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binaries:
    """How to start each program: the words of a command line, to which its flags are added."""

    version: str
    commands: Mapping[str, tuple[str, ...]]


def build(version: str = DEFAULT_VERSION) -> Binaries:
    """Return the programs of this Kubernetes minor version, building what is not in the cache yet.

    `KUBEBUILDER_ASSETS` names a folder of ready programs, as controller-runtime's envtest fills it (etcd,
    kube-apiserver, kubectl); what is there is used as it is, the rest comes from our build.
    """
    if version not in (known := (*VERSIONS, *ON_DEMAND)):
        msg = f"Kubernetes {version} is not one of {', '.join(known)}"
        raise ValueError(msg)
    commands = _ready_made()
    if missing := [program for program in PROGRAMS if program not in commands]:
        module = HERE / f"k8s-{version}"
        binary = cached(module, package=".", name="controlplane", ldflags=version_flags(module))
        commands |= {program: (str(binary), program) for program in missing}
    commands["kwok"] = (str(cached(HERE / "kwok", package=KWOK, name="kwok", ldflags="-s -w")),)
    return Binaries(version=version, commands=commands)


def helm() -> Path:
    """Return helm, which templates the chart in deploy, building it if it is not in the cache yet."""
    return cached(HERE / "helm", package=HELM, name="helm", ldflags="-s -w")


def karpenter() -> Path:
    """Return Karpenter with its KWOK provider, building it if it is not in the cache yet."""
    return cached(KARPENTER, package=".", name="karpenter", ldflags="-s -w")


def cache_folder() -> Path:
    """Where builds are kept: $MUSTER_CACHE, else $XDG_CACHE_HOME/muster, else ~/.cache/muster."""
    base = os.environ.get("MUSTER_CACHE")
    xdg = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return (Path(base) if base else Path(xdg) / "muster").expanduser().resolve() / "controlplane"


def _ready_made() -> dict[str, tuple[str, ...]]:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if not assets:
        return {}
    found = {program: Path(assets).expanduser().resolve() / program for program in PROGRAMS}
    return {program: (str(path),) for program, path in found.items() if os.access(path, os.X_OK)}


def cached(module: Path, *, package: str, name: str, ldflags: str) -> Path:
    """Return the binary of this module, building it if nobody has; two runs at once build it once."""
    folder = cache_folder() / f"{module.name.removeprefix('k8s-')}-{_digest(module)}"
    binary = folder / name
    if binary.exists():
        return binary
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _lock(folder.with_name(folder.name + ".lock")):
        if not binary.exists():
            _build_into(folder, module=module, package=package, name=name, ldflags=ldflags)
    return binary


def _digest(module: Path) -> str:
    """Hash everything of ours that a build depends on."""
    digest = hashlib.sha256()
    for path in (module / "go.sum", module / "go.mod", *sorted(module.glob("*.go"))):
        digest.update(path.read_bytes())
    return digest.hexdigest()


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold an advisory lock; the system drops it when its holder dies, so a killed build blocks nobody."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _build_into(folder: Path, *, module: Path, package: str, name: str, ldflags: str) -> None:
    """Build beside the folder and rename: a folder that exists is complete."""
    check_go(module)
    building = Path(tempfile.mkdtemp(prefix=folder.name + ".", dir=folder.parent))
    try:
        _go_build(module, package=package, output=building / name, ldflags=ldflags)
        shutil.rmtree(folder, ignore_errors=True)
        building.rename(folder)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _go_build(module: Path, *, package: str, output: Path, ldflags: str) -> None:
    command = ["go", "build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-v", "-ldflags", ldflags]
    progress = Progress(f"Building {module.name}")
    with subprocess.Popen(
        [*command, "-o", str(output), package],
        cwd=module,
        stderr=subprocess.PIPE,
        text=True,
        env=go_environment(module),
    ) as go:
        assert go.stderr is not None
        try:
            progress.follow(go.stderr)
        except BaseException:
            # Left alone, the compiler would hold both cores for minutes after a Ctrl-C.
            go.terminate()
            raise
    if go.returncode != 0:
        msg = f"go build of {module} ended with {go.returncode}:\n" + "\n".join(progress.last_words())
        raise BuildFailed(msg)
    progress.done()


def go_environment(module: Path) -> dict[str, str]:
    """Return the environment in which go works on a module, with a newer toolchain where it needs one.

    A developer's workspace file is kept out; -mod=readonly already overrules a vendor flag. Raises ToolMissing.
    """
    needed, there = _needed_go(module), check_go(module)
    toolchain = "local" if there >= needed else f"go{'.'.join(map(str, needed))}"
    return {**os.environ, "GOWORK": "off", "GOTOOLCHAIN": toolchain}


def version_flags(module: Path) -> str:
    """Stamp the version as Kubernetes' own build does; unstamped it reads 0.0.0 and feature gates refuse to parse."""
    required = r"^\s*k8s\.io/kubernetes (v(\d+)\.(\d+)\.\S+)$"
    found = re.search(required, (module / "go.mod").read_text(), re.MULTILINE)
    assert found is not None, f"{module.name}/go.mod does not require k8s.io/kubernetes"
    stamps = {"gitVersion": found.group(1), "gitMajor": found.group(2), "gitMinor": found.group(3)}
    return " ".join(["-s -w", *(f"-X k8s.io/component-base/version.{name}={stamp}" for name, stamp in stamps.items())])


def check_go(module: Path) -> tuple[int, ...]:
    """Return the release of the Go that is there; refuse early and in one sentence one that cannot build a module."""
    wanted = ".".join(map(str, _needed_go(module))).removesuffix(".0")
    fix = f"install Go {wanted} or newer from https://go.dev/dl/ and put it on PATH"
    if shutil.which("go") is None:
        msg = f"building {module.name} needs Go {wanted}, and there is no `go` on PATH: {fix}"
        raise ToolMissing(msg)
    said = subprocess.run(
        ["go", "version"], capture_output=True, text=True, check=True, env={**os.environ, "GOTOOLCHAIN": "local"}
    ).stdout
    there = _go_release(re.search(r"go(\d\S*)", said))
    if there < SELECTS_TOOLCHAIN:
        msg = f"building {module.name} needs Go {wanted}, and `go version` says {said.strip()!r}: {fix}"
        raise ToolMissing(msg)
    return there


def _needed_go(module: Path) -> tuple[int, ...]:
    return _go_release(re.search(r"^go (\S+)$", (module / "go.mod").read_text(), re.MULTILINE))


def _go_release(found: re.Match[str] | None) -> tuple[int, ...]:
    """Read 1.26.0, 1.26rc1 or 1.26-custom as numbers; what is not a release counts as the oldest."""
    numbers = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", found.group(1)) if found else None
    return tuple(int(number or 0) for number in numbers.groups()) if numbers else (0,)
