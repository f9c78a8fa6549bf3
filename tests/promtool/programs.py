"""Where promtool is, and how it is fetched: out of Debian's package. To install that would start a server."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from tests import packages
from tests.controlplane import building

MEND = "put promtool 2.42 or newer on PATH (Debian's package prometheus has it, and so have the releases of Prometheus)"


class ProgramMissing(Exception):  # noqa: N818 - a fact, as in tests.postgres
    """promtool is not on this machine; the message says what to do."""


def path() -> Path:
    """Return the program. Raises ProgramMissing."""
    found = shutil.which("promtool") or shutil.which(_kept())
    if found is None:
        raise ProgramMissing(f"promtool is not found: {MEND}")
    return Path(found)


def install() -> None:
    """Fetch it into the cache if it is missing and apt-get can; else say what is skipped without it."""
    try:
        path()
    except ProgramMissing:
        try:
            _fetch()
        except ProgramMissing as missing:
            print(f"{missing}; without it, no alert is tried", file=sys.stderr)


def _kept() -> Path:
    return building.cache_folder().parent / "tools" / "promtool"


def _fetch() -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise ProgramMissing(MEND)
    print("fetching promtool from Debian's prometheus", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        # Who downloads as root does so as _apt, which may not write there.
        patience = ("-o", "Acquire::http::Timeout=20", "-o", "Acquire::Retries=0")
        download = ("apt-get", "-qq", *patience, "-o", "APT::Sandbox::User=root", "download", "prometheus")
        try:
            _run(*download, cwd=folder)
        except ProgramMissing:
            if os.geteuid():
                raise
            _run("apt-get", "-qq", *patience, "update", cwd=folder)
            _run(*download, cwd=folder)
        [package] = Path(folder).glob("prometheus_*.deb")
        _run("dpkg-deb", "--extract", str(package), "unpacked", cwd=folder)
        _kept().parent.mkdir(parents=True, exist_ok=True)
        # Whole or not at all: others may be looking for it.
        begun = _kept().with_name(f"promtool.{os.getpid()}")
        shutil.copy(Path(folder, "unpacked/usr/bin/promtool"), begun)
        begun.rename(_kept())


def _run(*command: str, cwd: str) -> None:
    packages.run(*command, fix=MEND, failure=ProgramMissing, cwd=cwd)
