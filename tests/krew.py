"""Builds what krew installs, from this checkout and `uv.lock`: an archive with the plugin, and its manifest.

`make krew URI=https://example.com/downloads` leaves both in dist/krew, for the platform and the Python of this machine.
The manifest has the archive's own digest, and the place at which it will be published, which only a publisher knows.
"""

import gzip
import hashlib
import io
import os
import platform
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import yaml

import admission

ROOT = Path(__file__).parents[1]

PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
"""Extension modules are of one minor version of Python."""

LAUNCHER = f"""\
#!/bin/sh
# krew links here from its own folder of programs.
set -eu
here=$(dirname "$(readlink -f "$0")")
run='import sys; sys.path.insert(0, sys.argv.pop(1)); from admission import cli; cli.kubectl_plugin()'
exec {PYTHON} -I -c "$run" "$here/lib" "$@"
"""

ARCHES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


def build(folder: Path, uri: str) -> tuple[Path, Path]:
    """Write the archive and the manifest into a folder, and return them. uri: of the folder with the archive."""
    lib = folder / "lib"
    _install(lib, folder)
    system, arch = platform.system().lower(), ARCHES[platform.machine()]
    archive = folder / f"kubectl-muster-v{admission.__version__}-{system}-{arch}.tar.gz"
    archive.write_bytes(_archived(lib))
    path = folder / "muster.yaml"
    found = manifest(archive, f"{uri.rstrip('/')}/{archive.name}", system, arch)
    path.write_text(yaml.safe_dump(found, sort_keys=False, width=100))
    return archive, path


def manifest(archive: Path, uri: str, system: str, arch: str) -> dict[str, Any]:
    """Return the manifest of the plugin for one platform, with the digest of its archive."""
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "muster"},
        "spec": {
            "version": f"v{admission.__version__}",
            "shortDescription": "Queues, quotas and gangs of device claims",
            "description": (
                "Shows why gangs of pods with devices wait and what queues use, submits Jobs, takes gangs back, and"
                " checks manifests, by the admission controller Muster.\n"
            ),
            "caveats": f"It needs {PYTHON} on the PATH.\n",
            "platforms": [
                {
                    "selector": {"matchLabels": {"os": system, "arch": arch}},
                    "uri": uri,
                    "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
                    "bin": "kubectl-muster",
                }
            ],
        },
    }


def _install(lib: Path, folder: Path) -> None:
    """Install Muster, and what uv.lock says that it needs, by hash, into a folder."""
    uv = os.environ.get("UV", "uv")
    locked, wheels = folder / "requirements.txt", folder / "wheels"
    export = ["export", "--frozen", "--quiet", "--no-dev", "--no-emit-project", "--output-file", str(locked)]
    target = ["pip", "install", "--quiet", "--python", sys.executable, "--target", str(lib), "--no-deps"]
    for words in (
        export,
        ["build", "--quiet", "--wheel", "--out-dir", str(wheels), str(ROOT)],
        [*target, "--require-hashes", "--requirements", str(locked)],
    ):
        subprocess.run([uv, *words], check=True, cwd=ROOT)
    subprocess.run([uv, *target, *map(str, wheels.glob("*.whl"))], check=True, cwd=ROOT)


def _archived(lib: Path) -> bytes:
    """Return the archive; of the same files it has the same bytes."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        _add(archive, "kubectl-muster", LAUNCHER.encode(), mode=0o755)
        _add(archive, "LICENSE", (ROOT / "LICENSE").read_bytes())
        for path in sorted(lib.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                _add(archive, f"lib/{path.relative_to(lib)}", path.read_bytes())
    return gzip.compress(packed.getvalue(), compresslevel=4, mtime=0)


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), mode
    archive.addfile(info, io.BytesIO(content))


if __name__ == "__main__":
    destination = ROOT / "dist" / "krew"
    destination.mkdir(parents=True, exist_ok=True)
    print(*build(destination, sys.argv[1]), sep="\n")
