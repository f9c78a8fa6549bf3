"""The build around the compiler: what is reused, what is refused, and what a person is told. `go` is a script here."""

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.controlplane import building, newer
from tests.controlplane.progress import Progress

FakeGo = Callable[..., Path]


@pytest.fixture(autouse=True)
def empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No cache, no ready-made programs, no go: each test adds what it needs."""
    monkeypatch.setenv("MUSTER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)


@pytest.fixture
def go(tmp_path: Path) -> FakeGo:
    """Install a `go` of this version whose build writes its output file after a while; return its diary."""
    shell, sleep, touch = (shutil.which(name, path="/usr/bin:/bin") for name in ("sh", "sleep", "touch"))

    def install(release: str = "go1.26.1", *, builds: bool = True) -> Path:
        diary, program = tmp_path / "diary", tmp_path / "bin" / "go"
        program.parent.mkdir(exist_ok=True)
        build = f"{touch} $output; exit 0" if builds else "echo no rule for this >&2; exit 1"
        program.write_text(
            f"""#!{shell}
if [ "$1" = version ]; then echo go version {release} linux/amd64; exit 0; fi
echo $GOTOOLCHAIN "$@" >> {diary}
echo go: downloading example.org/module v1.0.0 >&2
echo example.org/package >&2
{sleep} 0.2
while [ $# -gt 1 ]; do if [ "$1" = -o ]; then output=$2; fi; shift; done
{build}
"""
        )
        program.chmod(0o755)
        return diary

    return install


def builds_in(diary: Path) -> int:
    return len(diary.read_text().splitlines()) if diary.exists() else 0


def test_a_missing_go_is_named_with_its_mend() -> None:
    with pytest.raises(building.ToolMissing, match=r"no `go` on PATH: install Go 1\.26 or newer from https://go\.dev"):
        building.build()


@pytest.mark.parametrize("release", ["go1.20.14", "go1.9", "devel"])
def test_an_old_go_is_named_with_its_mend(go: FakeGo, release: str) -> None:
    diary = go(release)

    with pytest.raises(building.ToolMissing, match=rf"says 'go version {release} .*install Go 1\.26 or newer"):
        building.build()

    assert builds_in(diary) == 0


@pytest.mark.parametrize(
    ("release", "toolchain"), [("go1.26.8", "go1.26.9"), ("go1.21.0", "go1.26.9"), ("go1.27.0", "local")]
)
def test_a_go_that_is_too_old_for_a_module_is_to_fetch_the_one_that_it_takes(
    go: FakeGo, release: str, toolchain: str
) -> None:
    diary = go(release)

    building.karpenter()

    assert diary.read_text().startswith(f"{toolchain} build ")


def test_a_version_that_nobody_pinned_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Kubernetes 1\.12 is not one of 1\.37, 1\.36"):
        building.build("1.12")


def test_a_control_plane_already_built_is_not_built_again(go: FakeGo, tmp_path: Path) -> None:
    diary = go()
    first = building.build()
    (tmp_path / "bin" / "go").unlink()

    assert building.build() == first
    assert builds_in(diary) == 2, "the control plane and KWOK"
    assert all(Path(command[0]).is_relative_to(tmp_path / "cache") for command in first.commands.values())


def test_two_runs_at_once_build_once(go: FakeGo) -> None:
    diary = go()
    runs = [threading.Thread(target=building.build) for _ in range(3)]

    for run in runs:
        run.start()
    for run in runs:
        run.join()

    assert builds_in(diary) == 2


def test_a_build_that_fails_says_why_and_leaves_nothing_to_be_taken_for_a_result(go: FakeGo, tmp_path: Path) -> None:
    go(builds=False)

    with pytest.raises(building.BuildFailed, match="no rule for this"):
        building.build()

    assert [path for path in (tmp_path / "cache" / "controlplane").iterdir() if path.is_dir()] == []


def test_the_versions_are_stamped_as_kubernetes_stamps_its_own(go: FakeGo) -> None:
    diary = go()

    building.build("1.36")

    assert "version.gitVersion=v1.36." in diary.read_text()
    assert "version.gitMinor=36" in diary.read_text()


def test_ready_made_programs_are_used_and_only_the_others_are_built(
    go: FakeGo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go()
    assets = tmp_path / "assets"
    assets.mkdir()
    for name in ("etcd", "kube-apiserver", "kubectl"):
        (assets / name).touch(mode=0o755)
    (assets / "kube-scheduler").touch(mode=0o644)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))

    commands = building.build().commands

    ready_made = {name for name, command in commands.items() if Path(command[0]).is_relative_to(assets)}
    assert ready_made == {"etcd", "kube-apiserver", "kubectl"}
    assert commands["etcd"] == (str(assets / "etcd"),)
    assert commands["kube-scheduler"][1:] == ("kube-scheduler",), "one that cannot be run is not there"


def test_the_programs_of_all_versions_are_built_from_the_same_text() -> None:
    """All but `release.go`, which is for what releases write otherwise."""
    folders = [building.HERE / f"k8s-{version}" for version in (*building.VERSIONS, *building.ON_DEMAND)]
    texts = [{path.name: path.read_text() for path in folder.glob("*.go")} for folder in folders]

    of_release = [text.pop("release.go") for text in texts]
    assert texts[0].keys() == {f"{name}.go" for name in ("main", "programs", *building.ORACLES, "lines")}
    assert all(text == texts[0] for text in texts)
    assert of_release[0] == of_release[1] != of_release[2]


def test_a_version_without_a_folder_has_the_module_of_the_newest_with_its_own_versions() -> None:
    theirs = """module k8s.io/kubernetes

go 1.27.0

godebug default=go1.27

require k8s.io/api v0.0.0

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/dynamic-resource-allocation => ./staging/src/k8s.io/dynamic-resource-allocation
)
"""

    ours = newer.go_mod("v1.38.0-alpha.0", theirs).splitlines()

    assert {"go 1.27.0", "godebug default=go1.27", "require k8s.io/kubernetes v1.38.0-alpha.0"} <= {*ours}
    assert ours[ours.index("replace (") + 1 : -1] == [
        f"\tk8s.io/{name} => k8s.io/{name} v0.38.0-alpha.0" for name in ("api", "dynamic-resource-allocation")
    ]


def test_what_is_no_version_is_refused_before_anything_is_fetched() -> None:
    with pytest.raises(ValueError, match=r"1\.38 is no version of Kubernetes: write it as v1\.38\.0"):
        newer.build("1.38")


def test_progress_counts_packages_and_downloads(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress("Building it")

    progress.follow(
        ["go: downloading a v1\n", "example.org/a\n", "example.org/b\n", "# example.org/b\n", "b.go:1: oh\n"]
    )
    progress._show_now_and_then()
    progress._show("paused")

    assert "Building it: paused, 1 modules downloaded, 0 s" in capsys.readouterr().err
    assert (progress._packages, progress.last_words()[-1]) == (2, "b.go:1: oh")
