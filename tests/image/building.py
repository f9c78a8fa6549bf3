"""Builds deploy/Dockerfile: from a checkout with litter in it, on a base image made of Debian's packages.

The base that the Dockerfile names is in a registry of images, which tests do without. What stands in for it has what
the Dockerfile relies on: Debian, a Python 3.11 at /usr/local/bin/python3 with pip, and no compiled standard library.
"""

import shutil
import ssl
from collections.abc import Mapping
from pathlib import Path

from tests.image.engines import Engine, run

ROOT = Path(__file__).parents[2]

BASE = "localhost/python-of-debian"
SUITE = "bookworm"
"""The last release of Debian that has Python 3.11."""
PYTHON = "/usr/lib/python3.11"
AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    # uv brings authorities of its own; a machine behind a proxy trusts others.
    "SSL_CERT_FILE": AUTHORITIES,
}

SECRET = "never-in-an-image-5d1f"
LITTER = (
    ".env",
    ".git/config",
    "admission/__pycache__/settings.cpython-311.pyc",
    "admission/_shipped/config/old.yaml",
    "admission/cli/__pycache__/app.cpython-311.pyc",
    "config/__pycache__/old.pyc",
    "deploy/values-production.yaml",
    "kubeconfig",
    "ledger.sqlite3",
    "tls.key",
)
"""What lies about in a checkout that somebody works in; each file holds the secret."""


def make_base(engine: Engine) -> None:
    """Make the stand-in, which needs Debian's packages from the network."""
    archive = engine.folder / "base.tar"
    hooks = (
        # Debian's own pip asks for an environment; that of the real base installs for all.
        f'rm "$1"{PYTHON}/EXTERNALLY-MANAGED',
        'ln -s /usr/bin/python3.11 "$1"/usr/local/bin/python3',
        f'find "$1"{PYTHON} "$1"/usr/lib/python3 -name "*.pyc" -delete',
        f'cat "{_authorities()}" > "$1"{AUTHORITIES}',
    )
    words = [f"--customize-hook={hook}" for hook in hooks]
    packages = "--include=ca-certificates,netbase,python3.11,python3-pip,tzdata"
    run("mmdebstrap", "--quiet", "--variant=minbase", packages, *words, SUITE, str(archive))
    changes = [f"--change=ENV {name}={value}" for name, value in ENVIRONMENT.items()]
    engine.podman("import", "--quiet", *changes, str(archive), BASE)
    archive.unlink()


def _authorities() -> str:
    """Return the file of the authorities that this machine trusts."""
    found = ssl.get_default_verify_paths().cafile
    return found or AUTHORITIES


def checkout(folder: Path) -> Path:
    """Copy what git knows of the work tree, as it is now, and add litter."""
    for name in run("git", "-C", str(ROOT), "ls-files", "-z").stdout.split("\0")[:-1]:
        if (ROOT / name).is_file():  # else it is deleted and not committed yet
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    for name in LITTER:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(SECRET)
    return folder


def build(engine: Engine, context: Path, tag: str, *, arguments: Mapping[str, str] | None = None) -> str:
    """Build the image with nothing from an earlier build, and return its name."""
    given = {"PYTHON": BASE, **(arguments or {})}
    words = [f"--build-arg={name}={value}" for name, value in given.items()]
    # chroot: no more of the kernel than a change of root is needed, and the network is the machine's.
    settled = ("--isolation=chroot", "--pull=never", "--no-cache", "--layers=false")
    name = f"localhost/{tag}"
    engine.podman("build", *settled, *words, "--file", str(context / "deploy/Dockerfile"), "--tag", name, str(context))
    return name
