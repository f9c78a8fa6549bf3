"""PostgreSQL's programs: where they are, how they are installed, and whether tests may do without."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests import packages

MEND = "install PostgreSQL 13 or newer, its server included (Debian: apt-get install postgresql), or set PATH to it"

# Read by pg_createcluster: the package would otherwise make a cluster for the whole machine, and start it.
NO_CLUSTER = Path("/etc/postgresql-common/createcluster.d/muster-tests.conf")


class ProgramsMissing(Exception):  # noqa: N818 - a fact, as in tests.controlplane
    """PostgreSQL's server is not on this machine; the message says what to install."""


def folder() -> Path:
    """Return the folder that holds `initdb` and `postgres`. Raises ProgramsMissing."""
    for candidate in _candidates():
        if all(os.access(candidate / program, os.X_OK) for program in ("initdb", "postgres")):
            return candidate
    raise ProgramsMissing(f"PostgreSQL's `initdb` and `postgres` are not found: {MEND}")


def _candidates() -> Iterator[Path]:
    on_path = shutil.which("postgres")
    if on_path:
        yield Path(on_path).resolve().parent
    asked = shutil.which("pg_config")
    if asked:
        yield Path(subprocess.run([asked, "--bindir"], capture_output=True, text=True, check=True).stdout.strip())
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: (len(str(path)), path), reverse=True)


def install() -> None:
    """Install Debian's package if PostgreSQL is missing and we may; else say what to install."""
    try:
        folder()
    except ProgramsMissing as missing:
        if not packages.may_be_installed():
            print(f"{missing}; without it, the tests of the ledger on PostgreSQL are skipped", file=sys.stderr)
            return
        _install_quietly()
        folder()


def _install_quietly() -> None:
    print("installing Debian's postgresql", flush=True)
    NO_CLUSTER.parent.mkdir(parents=True, exist_ok=True)
    NO_CLUSTER.write_text("create_main_cluster = false\n")
    try:
        packages.install("postgresql", fix=MEND, failure=ProgramsMissing)
    finally:
        NO_CLUSTER.unlink()
