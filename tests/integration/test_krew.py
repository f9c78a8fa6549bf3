"""What krew installs: an archive from which `kubectl muster` runs, and a manifest that krew takes.

krew is not at hand here; its rules are those of its `internal/index/validation/validate.go` (v0.5).
"""

import hashlib
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import yaml

from tests import krew


def test_krew_takes_the_manifest_and_the_archive_runs_where_krew_links_it(tmp_path: Path) -> None:
    built = tmp_path / "built"
    built.mkdir()
    archive, path = krew.build(built, "https://example.com/downloads/")

    plugin = yaml.safe_load(path.read_text())
    assert (plugin["apiVersion"], plugin["kind"]) == ("krew.googlecontainertools.github.com/v1alpha2", "Plugin")
    assert plugin["metadata"]["name"] == path.stem == "muster"
    spec = plugin["spec"]
    assert re.fullmatch(r"v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?", spec["version"])
    assert "\n" not in spec["shortDescription"]
    assert len(spec["shortDescription"]) <= 50
    [built_for] = spec["platforms"]
    assert built_for["selector"]["matchLabels"].keys() == {"os", "arch"}
    assert built_for["uri"] == f"https://example.com/downloads/{archive.name}"
    assert built_for["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert built_for.keys() == {"selector", "uri", "sha256", "bin"}

    store, programs = tmp_path / "store" / "muster" / spec["version"], tmp_path / "bin"
    programs.mkdir()
    with tarfile.open(archive) as packed:
        packed.extractall(store, filter="data")
    (programs / "kubectl-muster").symlink_to(store / built_for["bin"])
    # Nothing is taken from the checkout or from this virtual environment.
    done = subprocess.run(
        [programs / "kubectl-muster", "queue", "create", "q", "--dry-run", "client", "-o", "name"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": f"{Path(sys.executable).resolve().parent}:/usr/bin:/bin"},
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "queue.muster.dev/q\n"), done.stderr
