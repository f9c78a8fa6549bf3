"""Where the browser is, how it is installed, and whether tests may do without."""

import shutil
import sys

from tests import packages

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MEND = "install Chromium 120 or newer (Debian: apt-get install chromium), or set PATH to it"


class ProgramMissing(Exception):  # noqa: N818 - a fact, as in tests.postgres
    """No browser is on this machine; the message says what to install."""


def path() -> str:
    """Return the browser's program. Raises ProgramMissing."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise ProgramMissing(f"none of {', '.join(NAMES)} is found: {MEND}")
    return found


def install() -> None:
    """Install Debian's package if there is no browser and we may; else say what to install."""
    try:
        path()
    except ProgramMissing as missing:
        if not packages.may_be_installed():
            print(f"{missing}; without it, the dashboard's tests in a browser are skipped", file=sys.stderr)
            return
        print("installing Debian's chromium", flush=True)
        packages.install("chromium", fix=MEND, failure=ProgramMissing)
        path()
