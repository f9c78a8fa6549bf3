"""Where promtool, Prometheus and amtool are, and how to fetch them: out of Debian's packages.

To install these packages would start servers.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from tests import packages
from tests.controlplane import building

PACKAGES = {"promtool": "prometheus", "prometheus": "prometheus", "amtool": "prometheus-alertmanager"}
"""Programs, and Debian's package of each."""


class ProgramMissing(Exception):  # noqa: N818 - a fact, as in tests.postgres
    """A program is not on this machine; the message says what to do."""


def path(name: str) -> Path:
    """Return a program of PACKAGES. Raises ProgramMissing."""
    found = shutil.which(name) or shutil.which(_kept(name))
    if found is None:
        raise ProgramMissing(f"{name} is not found: {_mend(name)}")
    return Path(found)


def install() -> None:
    """Fetch what is missing into the cache if apt-get can; else say what is skipped without it."""
    for name in PACKAGES:
        try:
            path(name)
        except ProgramMissing:
            try:
                _fetch(name)
            except ProgramMissing as missing:
                print(f"{missing}; without it, tests of alerts and of the use of devices are skipped", file=sys.stderr)


def _mend(name: str) -> str:
    return f"put {name} on PATH (Debian's package {PACKAGES[name]} has it, and so have the releases of Prometheus)"


def _kept(name: str) -> Path:
    return building.cache_folder().parent / "tools" / name


def _fetch(name: str) -> None:
    mend, package = _mend(name), PACKAGES[name]
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise ProgramMissing(mend)
    print(f"fetching {name} from Debian's {package}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        # Who downloads as root does so as _apt, which may not write there.
        patience = ("-o", "Acquire::http::Timeout=20", "-o", "Acquire::Retries=0")
        download = ("apt-get", "-qq", *patience, "-o", "APT::Sandbox::User=root", "download", package)
        try:
            _run(*download, mend=mend, cwd=folder)
        except ProgramMissing:
            if os.geteuid():
                raise
            _run("apt-get", "-qq", *patience, "update", mend=mend, cwd=folder)
            _run(*download, mend=mend, cwd=folder)
        [archive] = Path(folder).glob("*.deb")
        _run("dpkg-deb", "--extract", str(archive), "unpacked", mend=mend, cwd=folder)
        kept = _kept(name)
        kept.parent.mkdir(parents=True, exist_ok=True)
        # Whole or not at all: others may be looking for it.
        begun = kept.with_name(f"{name}.{os.getpid()}")
        shutil.copy(Path(folder, "unpacked/usr/bin", name), begun)
        begun.rename(kept)


def _run(*command: str, mend: str, cwd: str) -> None:
    packages.run(*command, fix=mend, failure=ProgramMissing, cwd=cwd)
