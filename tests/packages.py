"""Debian packages, for `make deps`: whether we may install any, or tests do without, and apt-get without questions."""

import os
import shutil
import subprocess


def may_be_installed() -> bool:
    """Say whether we are root on a machine that has apt-get."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def must_be_here() -> bool:
    """Say whether tests fail without a program: in CI, and where `make deps` can install it. Elsewhere they skip."""
    return bool(os.environ.get("CI")) or may_be_installed()


def install(*packages: str, fix: str, failure: type[Exception]) -> None:
    """Install packages. Raises `failure`, with what was said and the mend."""
    quiet = ("apt-get", "-qq", "-o", "Dpkg::Use-Pty=0")
    run(*quiet, "update", fix=fix, failure=failure)
    run(*quiet, "install", "--yes", "--no-install-recommends", *packages, fix=fix, failure=failure)


def run(*command: str, fix: str, failure: type[Exception], cwd: str | None = None) -> None:
    """Run a command of Debian's. Raises `failure`, with what it said and the mend."""
    done = subprocess.run(
        command,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise failure(f"`{' '.join(command)}` failed; {fix}\n{done.stdout}")
