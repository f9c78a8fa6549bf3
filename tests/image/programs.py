"""The programs that build an image and run it: which are missing, and how `make deps-image` installs them."""

import os
import shutil

from tests import packages

PACKAGES = {"podman": "podman", "runc": "runc", "mmdebstrap": "mmdebstrap"}
"""Debian's packages, by the program that is looked for."""
MEND = f"as root on Debian: apt-get install {' '.join(PACKAGES.values())}, which `make deps-image` does"


class ProgramsMissing(Exception):  # noqa: N818 - a fact, as in tests.postgres
    """No image can be built on this machine; the message says what to install."""


def look() -> None:
    """Raise ProgramsMissing unless everything is here, and we may use it."""
    lacking = [program for program in PACKAGES if shutil.which(program) is None]
    if lacking:
        raise ProgramsMissing(f"{', '.join(lacking)} not found, so no image can be built here: {MEND}")
    if os.geteuid() != 0:
        raise ProgramsMissing("only root can make a base image of Debian's packages here")


def install() -> None:
    """Install what is missing, or raise ProgramsMissing."""
    try:
        look()
    except ProgramsMissing:
        if not packages.may_be_installed():
            raise
        print(f"installing Debian's {', '.join(PACKAGES.values())}", flush=True)
        packages.install(*PACKAGES.values(), fix=MEND, failure=ProgramsMissing)
        look()
